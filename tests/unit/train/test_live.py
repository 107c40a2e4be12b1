"""The state on the devices, when it is made, replaced, and lost."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dure import Model, Trainer
from dure.errors import StateError


def equal(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


class Bomb:
    """A network that fails on the device when it is armed."""

    armed = False

    def model(self):
        def spark(value):
            if self.armed:
                raise ArithmeticError("boom")
            return value

        def apply(params, x, *, key, training):
            outputs = x @ params["w"]
            return jax.pure_callback(spark, outputs, outputs) if not training else self._through(spark, outputs)

        return Model(
            init=lambda key: {"w": jnp.zeros(4)},
            apply=apply,
            loss=lambda outputs, targets: (outputs - targets) ** 2,
            optimizer=optax.sgd(0.1),
        )

    @staticmethod
    def _through(spark, outputs):
        """The callback's result with the gradient of what went in: a callback has none of its own."""
        told = jax.pure_callback(spark, outputs, jax.lax.stop_gradient(outputs))
        return outputs + jax.lax.stop_gradient(told - outputs)


def test_a_dispatch_that_fails_takes_the_weights_and_says_so_until_others_come(single, data, tmp_path):
    bomb = Bomb()
    x, y = data[0], data[1].astype(np.float32)
    trainer = Trainer(bomb.model(), single)
    trainer.fit(x, y, batch_size=37, verbose=0)
    trainer.save(tmp_path / "c")
    kept = trainer.state
    bomb.armed = True
    with pytest.raises(Exception, match="boom"):
        trainer.fit(x, y, batch_size=37, verbose=0)
    bomb.armed = False
    for use in (lambda: trainer.predict(x), lambda: trainer.fit(x, y, verbose=0), lambda: trainer.state):
        with pytest.raises(StateError, match=r"went with a dispatch that failed after step 1: .*trainer.restore"):
            use()
    trainer.restore(tmp_path / "c")
    equal(trainer.state, kept)
    trainer.fit(x, y, batch_size=37, verbose=0)
    assert trainer.step == 2
    bomb.armed = True
    with pytest.raises(Exception, match="boom"):
        trainer.fit(x, y, batch_size=37, verbose=0)
    bomb.armed = False
    trainer.state = kept
    equal(trainer.state, kept)


def test_an_evaluation_that_fails_takes_nothing(single, data):
    bomb = Bomb()
    x, y = data[0], data[1].astype(np.float32)
    trainer = Trainer(bomb.model(), single)
    trainer.fit(x, y, batch_size=37, verbose=0)
    kept = trainer.state
    bomb.armed = True
    with pytest.raises(Exception, match="boom"):
        trainer.evaluate(x, y, batch_size=37)
    bomb.armed = False
    equal(trainer.state, kept)
    assert trainer.evaluate(x, y, batch_size=37)["loss"] > 0


def test_a_state_that_was_set_outlives_data_of_another_kind(classifier, single, data):
    x, y = data
    trainer = Trainer(classifier(), single)
    start = trainer.state
    zero = start._replace(params=jax.tree.map(np.zeros_like, start.params))
    trainer.state = zero
    trainer.fit(x, y, epochs=0, verbose=0)
    trainer.fit(x.astype(np.float16), y, epochs=0, verbose=0)
    equal(trainer.state, zero)


def test_fresh_weights_are_those_of_the_seed_whatever_was_asked_first(classifier, single, data):
    x, _ = data
    asked = Trainer(classifier(), single, seed=3)
    asked.predict(x[:4])
    plain = Trainer(classifier(), single, seed=3)
    equal(asked.state, plain.state)
    assert asked.step == 0
