"""A script that trains in several processes for tests, and is hurt at a moment that an event chooses, never a clock.

Its arguments: what happens, when, and to whom. What is to happen is noted in the file `fault` with the time.
"""

from __future__ import annotations

TRAIN = """
import threading

FAULT, MOMENT, CULPRIT = sys.argv[1:4]
STEPS, EPOCHS = 6, 2
is_hurt = task == CULPRIT and os.environ["DURE_RESTART"] == "0"

def hurt():
    note("fault", repr(time.monotonic()))
    if FAULT == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if FAULT == "raises":
        raise ValueError("mine")
    wait_for("never")

def load():
    if is_hurt and MOMENT == "start":
        hurt()

load()

import dure

strategy = dure.strategy_from_env()

import jax
import jax.numpy as jnp
import numpy as np
import optax

passes = []

def batches():
    passes.append(0)
    rng = np.random.default_rng(7)
    for number in range(STEPS):
        if is_hurt and FAULT in ("blocked", "raises") and MOMENT == f"batch {number} of pass {len(passes)}":
            hurt()
        yield rng.normal(size=(9, 5)).astype(np.float32), rng.integers(0, 3, 9).astype(np.int32)

def init(key):
    return {"w": jax.random.normal(key, (5, 3))}

def apply(params, x, *, key, training):
    if is_hurt and MOMENT == "first step" and board.read().phase is Phase.COMPILE:
        hurt()
    return x @ params["w"]

model = dure.Model(init=init, apply=apply, loss=optax.softmax_cross_entropy_with_integer_labels,
                   optimizer=optax.adam(0.05))

def fall(changes):
    # The chief says how many steps the next dispatch has, and goes on; the others wait for it until it has.
    while board.read().phase is not Phase.COLLECTIVE or board.read().changes < changes + 1 + strategy.is_chief:
        pass
    hurt()

class Moment:
    every_steps = 1

    def on_step(self, trainer, step, logs):
        if MOMENT != f"step {step}" or os.environ["DURE_RESTART"] != "0":
            return
        if task != CULPRIT:
            # It comes to no exchange before the other is hurt, which so waits in one.
            wait_for("fault")
        elif FAULT in ("killed", "stopped"):
            threading.Thread(target=fall, args=[board.read().changes], daemon=True).start()
        else:
            hurt()

    def on_epoch(self, trainer, epoch, logs):
        if FAULT == "diverges" and task == CULPRIT:
            trainer._engine.state._placed = flipped(trainer._engine.state._placed)

def flipped(placed):
    def other(leaf):
        words = np.array(leaf.addressable_data(0))
        words.reshape(-1).view(np.uint32)[-1] ^= 1
        part = jax.device_put(words, leaf.addressable_shards[0].device)
        return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, [part])
    return placed._replace(params=jax.tree.map(other, placed.params))

callbacks = [Moment()]
"""

FIT = """
with strategy, dure.Trainer(model, strategy, seed=1) as trainer:
    history = trainer.fit(batches, epochs=EPOCHS, callbacks=callbacks, verbose=0)
    print("losses", *history["loss"])
"""
