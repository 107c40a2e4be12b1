"""Ctrl-C while training."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from dure import Trainer
from dure.train.interrupt import Interrupts


@pytest.fixture(autouse=True)
def hears_ctrl_c():
    """A process that was started in the background ignores Ctrl-C: not this one, while it is tested."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press():
    os.kill(os.getpid(), signal.SIGINT)


class Presses:
    """Presses Ctrl-C in a dispatch."""

    def __init__(self, at, times=1):
        self.at, self.times = at, times

    def on_step(self, trainer, step, logs):
        if step >= self.at:
            for _ in range(self.times):
                press()


def test_the_first_is_noted_and_the_second_raised():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        assert not interrupts.requested
        press()
        assert interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_of_the_main_thread_it_does_nothing():
    found = []

    def run():
        with Interrupts() as interrupts:
            found.append((signal.getsignal(signal.SIGINT), interrupts.requested))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [(before, False)]


def test_a_process_that_ignores_it_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            press()
            assert not interrupts.requested
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("resident_bytes", [None, 0])
def test_training_ends_cleanly_and_goes_on_as_if_it_had_not(classifier, single, data, capsys, resident_bytes):
    trainer = Trainer(classifier(), single, resident_bytes=resident_bytes)
    start = trainer.state
    trainer.fit(*data, epochs=3, batch_size=4, seed=1, verbose=0)
    wanted = trainer.state
    trainer.state = start
    history = trainer.fit(
        *data, epochs=3, batch_size=4, seed=1, steps_per_execution=2, callbacks=[Presses(at=14)], verbose=2
    )
    assert history.interrupted
    assert "interrupted" in repr(history)
    assert trainer.step == 14
    assert len(history["loss"]) == 2
    assert "interrupted after step 14; the weights so far are kept" in capsys.readouterr().out
    assert np.isfinite(trainer.evaluate(*data)["loss"])
    rest = trainer.fit(*data, epochs=1, batch_size=4, verbose=0)
    assert rest.steps == 6 + 10
    assert rest.epochs == [4, 5]
    for name in ("first", "second"):
        assert trainer.params[name].tobytes() == wanted.params[name].tobytes()


def test_during_validation_it_ends_after_the_epoch(classifier, single, data):
    class InValidation:
        def on_epoch(self, trainer, epoch, logs):
            press()

    trainer = Trainer(classifier(), single)
    history = trainer.fit(*data, epochs=3, batch_size=8, callbacks=[InValidation()], verbose=0)
    assert history.interrupted
    assert trainer.epoch == 1
    assert len(history["loss"]) == 1


def test_a_second_one_is_raised_and_the_trainer_stays_usable(classifier, single, data):
    trainer = Trainer(classifier(), single)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(*data, epochs=3, batch_size=8, callbacks=[Presses(at=2, times=2)], verbose=0)
    history = trainer.fit(*data, epochs=1, batch_size=8, verbose=0)
    assert not history.interrupted
    assert np.isfinite(history["loss"][-1])


SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import jax, jax.numpy as jnp, numpy as np, optax
import dure
model = dure.Model(
    init=lambda key: {"w": jnp.zeros(4)},
    apply=lambda params, x, *, key, training: x @ params["w"],
    loss=lambda outputs, targets: (outputs - targets) ** 2,
    optimizer=optax.sgd(1e-3),
)
def batches():
    while True:
        if MODE == "slow" and state["given"] >= 8:
            print("waits", flush=True)
            import threading
            threading.Event().wait(30 if MODE == "slow" else 0)
        state["given"] += 1
        yield np.ones((8, 4)), np.ones(8)
class Tell:
    told = False
    def on_step(self, trainer, step, logs):
        if not self.told and MODE == "fast":
            print("trains", flush=True)
            self.told = True
MODE, state = sys.argv[1], {"given": 0}
with dure.SingleDevice() as strategy:
    trainer = dure.Trainer(model, strategy)
    if MODE == "fast":
        history = trainer.fit(np.ones((800, 4)), np.ones(800), batch_size=8, epochs=10**6,
        callbacks=[Tell()], verbose=0)
    else:
        history = trainer.fit(batches, steps_per_epoch=10**6, verbose=0)
    print("ended", history.interrupted, bool(np.isfinite(trainer.params["w"]).all()), flush=True)
"""


@pytest.mark.parametrize("mode", ["fast", "slow"])
def test_a_real_ctrl_c_ends_a_program_s_training(mode):
    with subprocess.Popen([sys.executable, "-c", SCRIPT, mode], stdout=subprocess.PIPE, text=True) as process:
        try:
            first = process.stdout.readline().strip()
            assert first in ("trains", "waits")
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=40)
        finally:
            process.kill()
    assert out.strip() == "ended True True"
    assert process.returncode == 0
