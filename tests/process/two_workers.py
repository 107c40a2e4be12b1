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


def train(strategy, path, resident_bytes=None):
    model = dure.Model(
        init=init,
        apply=apply,
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(0.01),
        metrics={"accuracy": "accuracy"},
    )
    x, y = data()
    with strategy, dure.Trainer(model, strategy, seed=3, resident_bytes=resident_bytes) as trainer:
        history = trainer.fit(x, y, epochs=3, batch_size=8, validation_data=(x[:9], y[:9]), verbose=0)
        trainer.save(path)
        outputs = trainer.predict(x, batch_size=8)
        params = jax.tree.map(lambda leaf: leaf.tolist(), trainer.params)
        return {"metrics": history.metrics, "params": params, "outputs": outputs.tolist(), "step": trainer.step}


if __name__ == "__main__":
    found = train(strategy, sys.argv[1], 0 if sys.argv[2] == "streamed" else None)
    print(json.dumps({**found, "chief": strategy.is_chief, "replicas": strategy.num_replicas}))
