"""An Equinox network trained on one device and mirrored over two.

Run: python equinox_mlp.py
"""

import equinox as eqx
import jax
import optax

import dure


def make_network(key: jax.Array) -> eqx.nn.Sequential:
    """Images of 64 numbers to ten scores."""
    first, second = jax.random.split(key)
    return eqx.nn.Sequential(
        [
            eqx.nn.Linear(64, 48, key=first),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Dropout(0.2),
            eqx.nn.Linear(48, 10, key=second),
        ]
    )


# What is fixed about a network: its functions and options, without its arrays.
STATIC = eqx.filter(
    eqx.filter_eval_shape(lambda: make_network(jax.random.key(0))),
    lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct),
)


def init(key: jax.Array) -> eqx.nn.Sequential:
    """The arrays of a network."""
    return eqx.filter(make_network(key), eqx.is_array)


def apply(params: eqx.nn.Sequential, x: jax.Array, *, key: jax.Array, training: bool) -> jax.Array:
    """The scores `[batch, 10]`; an Equinox network takes one example, so it is mapped over the batch."""
    network = eqx.nn.inference_mode(eqx.combine(params, STATIC), value=not training)
    return jax.vmap(lambda row, key: network(row, key=key))(x, jax.random.split(key, len(x)))


def make_model() -> dure.Model:
    """The network as Dure trains it."""
    return dure.Model(
        init=init,
        apply=apply,
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adamw(1e-2),
        metrics={"accuracy": "accuracy", "top 3": "top_3_accuracy"},
    )


def main(epochs: int = 20) -> dict[str, float]:
    """Trains on scikit-learn's digits; returns the test accuracy of each strategy."""
    (x, y), (x_test, y_test) = dure.data.load("digits")
    x, x_test = x.reshape(len(x), -1) / 16.0, x_test.reshape(len(x_test), -1) / 16.0
    accuracies = {}
    for strategy in (dure.SingleDevice(), dure.Mirrored(num_devices=2)):
        with strategy, dure.Trainer(make_model(), strategy) as trainer:
            trainer.fit(x, y, epochs=epochs, batch_size=50, seed=0, verbose=0)
            accuracy = trainer.evaluate(x_test, y_test, verbose=0)["accuracy"]
        print(f"{strategy}: accuracy {accuracy:.3f}")
        accuracies[type(strategy).__name__] = accuracy
    return accuracies


if __name__ == "__main__":
    dure.configure(cpu_devices=2)
    main()
