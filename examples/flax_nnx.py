"""A Flax NNX network with batch normalisation and dropout, trained on one device and mirrored over two.

Run: python flax_nnx.py
"""

import jax
import optax
from flax import nnx

import dure


class Network(nnx.Module):
    """Images of 64 numbers to ten scores."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(64, 48, rngs=rngs)
        self.norm = nnx.BatchNorm(48, rngs=rngs)
        self.dropout = nnx.Dropout(0.2)
        self.scores = nnx.Linear(48, 10, rngs=rngs)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs) -> jax.Array:
        """The scores `[batch, 10]` of images `[batch, 64]`."""
        return self.scores(self.dropout(nnx.relu(self.norm(self.hidden(x))), rngs=rngs))


# What is fixed about the network: its layers and options. The arrays are what `init` returns.
GRAPH = nnx.graphdef(nnx.eval_shape(lambda: Network(nnx.Rngs(0))))


def init(key: jax.Array) -> tuple[nnx.State, nnx.State]:
    """Weights, and the moving averages of batch normalisation."""
    _, params, state = nnx.split(Network(nnx.Rngs(key)), nnx.Param, ...)
    return params, state


def apply(
    params: nnx.State, state: nnx.State, x: jax.Array, *, key: jax.Array, training: bool
) -> tuple[jax.Array, nnx.State]:
    """The scores, and the averages after this batch."""
    network = nnx.merge(GRAPH, params, state)
    if training:
        network.train()
    else:
        network.eval()
    outputs = network(x, nnx.Rngs(key))
    return outputs, nnx.split(network, nnx.Param, ...)[2]


def make_model() -> dure.Model:
    """The network as Dure trains it."""
    return dure.Model(
        init=init,
        apply=apply,
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-2),
        metrics={"accuracy": "accuracy"},
        has_state=True,
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
