"""A group that loses a worker comes back from its last checkpoint, and gives what an undisturbed one gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from process.launched import Ended, run

TRAIN = """
import json
import dure
strategy = dure.strategy_from_env()
import jax, jax.numpy as jnp, numpy as np, optax

def apply(params, x, *, key, training):
    hidden = jnp.tanh(x @ params["a"])
    if training:
        hidden = hidden * jax.random.bernoulli(key, 0.8, hidden.shape) / 0.8
    return hidden @ params["b"]

class Death:
    every_steps = 1

    def on_step(self, trainer, step, logs):
        if [os.environ["DURE_RESTART"], task, str(step)] == sys.argv[1:]:
            os.kill(os.getpid(), signal.SIGKILL)

rng = np.random.default_rng(1)
x, y = rng.normal(size=(37, 5)).astype(np.float32), rng.integers(0, 3, 37)
model = dure.Model(
    init=lambda key: {"a": jax.random.normal(key, (5, 8)), "b": jnp.ones((8, 3)) / 8},
    apply=apply,
    loss=optax.softmax_cross_entropy_with_integer_labels,
    optimizer=optax.adam(0.02),
    metrics={"accuracy": "accuracy"},
)
# Only the chief reaches its folder: the others are given what it reads.
saver = dure.callbacks.Checkpoint(folder / f"of {task}", every=3)
with strategy, dure.Trainer(model, strategy, seed=4) as trainer:
    fits = [trainer.fit(x, y, epochs=n, batch_size=8, verbose=0, callbacks=[saver, Death()]) for n in (1, 2)]
    if strategy.is_chief:
        params = {name: leaf.tolist() for name, leaf in trainer.params.items()}
        print(json.dumps([*([fit.metrics, fit.epochs, fit.steps] for fit in fits), params]))
"""


def train(folder: Path, *death: str) -> Ended:
    folder.mkdir()
    return run(folder, TRAIN, "--max-restarts", "1", arguments=death)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    ended = train(tmp_path_factory.mktemp("undisturbed") / "run")
    assert ended.code == 0, ended.err
    found: list[object] = json.loads(ended.out.splitlines()[-1])
    return found


@pytest.mark.parametrize("death", [("0", "worker:0", "4"), ("0", "worker:1", "15")])
def test_a_killed_worker_costs_time_and_nothing_else(
    tmp_path: Path, undisturbed: list[object], death: tuple[str]
) -> None:
    ended = train(tmp_path / "run", *death)
    assert ended.code == 0, ended.err
    assert f"{death[1]} (host" in ended.err
    found = json.loads(ended.out.splitlines()[-1])
    for one, other in zip(numbers(found), numbers(undisturbed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def numbers(tree: object) -> list[float]:
    """All the numbers of nested lists and dicts, in order."""
    if isinstance(tree, dict):
        return [n for name in sorted(tree) for n in numbers(tree[name])]
    if isinstance(tree, list):
        return [n for part in tree for n in numbers(part)]
    assert isinstance(tree, int | float)
    return [float(tree)]
