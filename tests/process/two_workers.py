"""The program of a process that `test_two_workers` starts: trains a small network and writes what came out."""

import json
import sys

import dure

strategy = dure.strategy_from_env()

import jax
import jax.numpy as jnp
import numpy as np
import optax


def init(key):
    first, second = jax.random.split(key)
    return {"a": jax.random.normal(first, (5, 8)) * 0.5, "b": jax.random.normal(second, (8, 3)) * 0.5}


def apply(params, x, *, key, training):
    hidden = jnp.tanh(x @ params["a"])
    if training:
        hidden = hidden * jax.random.bernoulli(key, 0.8, hidden.shape) / 0.8
    return hidden @ params["b"]


def data(rows=37):
    rng = np.random.default_rng(1)
    return rng.normal(size=(rows, 5)).astype(np.float32), rng.integers(0, 3, rows).astype(np.int32)


def train(strategy, path, how="held"):
    model = dure.Model(
        init=init,
        apply=apply,
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(0.01),
        metrics={"accuracy": "accuracy"},
    )
    x, y = data()
    shuffled = how != "batches"
    with strategy, dure.Trainer(model, strategy, seed=3, resident_bytes=0 if how == "streamed" else None) as trainer:
        given = (x, y) if shuffled else ([(x[n : n + 8], y[n : n + 8]) for n in range(0, len(x), 8)],)
        if how == "one has other rows" and not strategy.is_chief:
            given = (x[::-1].copy(), y)
        if how == "one has fewer batches":
            batches = [(x[n : n + 8], y[n : n + 8]) for n in range(0, 32, 8)]
            given = (batches if strategy.is_chief else batches[:-1],)
        history = trainer.fit(*given, epochs=3, batch_size=8, validation_data=(x[:9], y[:9]), verbose=0)
        trainer.save(path)
        outputs = trainer.predict(x, batch_size=8)
        params = jax.tree.map(lambda leaf: leaf.tolist(), trainer.params)
        return {"metrics": history.metrics, "params": params, "outputs": outputs.tolist(), "step": trainer.step}


if __name__ == "__main__":
    found = train(strategy, sys.argv[1], sys.argv[2])
    print(json.dumps({**found, "chief": strategy.is_chief, "replicas": strategy.num_replicas}))
