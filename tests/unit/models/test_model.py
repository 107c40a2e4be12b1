from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import optax
import pytest

from dure.errors import SpecError
from dure.models.model import Model

GOOD: dict[str, Any] = {
    "init": lambda key: {"w": jnp.zeros(())},
    "apply": lambda params, x, *, key, training: x * params["w"],
    "loss": lambda outputs, targets: (outputs - targets) ** 2,
    "optimizer": optax.sgd(0.1),
}


def test_is_a_frozen_record_compared_by_identity() -> None:
    model = Model(**GOOD)
    assert model.metrics == {}
    assert hash(model) != hash(Model(**GOOD))
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.init = lambda key: {}  # type: ignore[misc]


def test_its_metrics_do_not_change_with_the_dict_that_gave_them() -> None:
    metrics: dict[str, Any] = {"accuracy": "accuracy"}
    model = Model(**GOOD, metrics=metrics)
    metrics["more"] = "mse"
    assert dict(model.metrics) == {"accuracy": "accuracy"}


@pytest.mark.parametrize(
    "apply",
    [
        lambda params, x, key, training: x,
        lambda params, x, **options: x,
        lambda params, x, *, key=None, training=False: x,
        functools.partial(lambda scale, params, x, *, key, training: x, 2.0),
    ],
)
def test_takes_every_function_that_can_be_called_so(apply: Any) -> None:
    Model(**(GOOD | {"apply": apply}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"init": {"w": 1}}, r"init is \{'w': 1\} \(a dict\), which cannot be called.*`init\(key\)`"),
        ({"init": lambda: None}, r"init is called as `init\(key\)`, and what was given takes `\(\)`"),
        (
            {"apply": lambda params, x: x},
            r"`apply\(params, x, \*, key, training\)`, and what was given takes `\(params, x\)`",
        ),
        ({"has_state": True}, r"`apply\(params, state, x, \*, key, training\)`"),
        ({"loss": "mse"}, r"loss is 'mse' \(a str\), which cannot be called"),
        ({"loss": lambda outputs: outputs}, r"loss is called as `loss\(outputs, targets\)`"),
        ({"optimizer": "adam"}, r"optimizer is 'adam' \(a str\).*`optimizer=optax\.adam\(1e-3\)`"),
        ({"optimizer": optax.adam}, r"optimizer is <function adam.*no optax GradientTransformation"),
        ({"has_state": 1}, r"has_state is 1 \(a int\); write True or False"),
        ({"metrics": "accuracy"}, r"metrics is 'accuracy'.*`metrics=\{\"accuracy\": \"accuracy\"\}`"),
        ({"metrics": ["accuracy"]}, r"metrics is \['accuracy'\] \(a list\)"),
        ({"metrics": {"a": "acuracy"}}, r"metric `acuracy` is unknown\. Did you mean `accuracy`"),
        ({"metrics": {"a": 3}}, r"metrics\['a'\] is 3 \(a int\), which cannot be called"),
        ({"metrics": {"": "mse"}}, r"metrics has the name ''"),
        ({"metrics": {3: "mse"}}, r"metrics has the name 3"),
        ({"metrics": {"loss": "mse"}}, r"metric `loss` would hide"),
        ({"metrics": {"val_loss": "mse"}}, r"metric `val_loss` would hide"),
    ],
)
def test_refuses_at_once_what_cannot_train(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Model(**(GOOD | change))
