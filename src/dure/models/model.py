"""`dure.Model`: a network of plain JAX functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import optax

from dure.errors import SpecError
from dure.models.metrics import Metric, named
from dure.models.pure import Array, PyTree

__all__ = ["Model"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """A network of plain JAX functions, with the optimizer that trains it.

    Args:
        init: `init(key)` gives the initial params, a pytree of floating arrays; with `has_state` a pair
            `(params, state)`. `key` is a `jax.random.key`.
        apply: `apply(params, x, *, key, training)` gives the outputs `[batch, ...]`; with `has_state`
            `apply(params, state, x, *, key, training)` gives `(outputs, state)`. `x` is a pytree of arrays
            `[batch, ...]`. `key` differs in every training step and is the same in all of evaluation.
        loss: `loss(outputs, targets)` gives one value an example, `[batch]`. Their mean is the objective;
            with sample weights it is `sum(weight * loss) / batch`, as in Keras.
        optimizer: An optax optimizer, its learning rate schedule included.
        metrics: Name in the results -> name of a metric ("accuracy", "mean_squared_error", "top_5_accuracy";
            see `dure.models.metrics.named`) or a function of (outputs, targets) that gives one value an
            example, `[batch]`. Reported is the mean over all examples; sample weights do not enter.
        has_state: The network changes a state as it trains (moving averages). `apply` is given the whole
            batch, whatever the strategy, so that batch statistics are the full batch's.

    Raises:
        SpecError: A function cannot be called as above, the optimizer is no optax one, or a metric is
        unknown.

    Example:
        >>> import jax, optax
        >>> model = Model(
        ...     init=lambda key: {"w": 0.1 * jax.random.normal(key, (4, 3))},
        ...     apply=lambda params, x, *, key, training: x @ params["w"],
        ...     loss=optax.softmax_cross_entropy_with_integer_labels,
        ...     optimizer=optax.adam(1e-3),
        ...     metrics={"accuracy": "accuracy"},
        ... )
        >>> sorted(model.metrics)
        ['accuracy']
    """

    init: Callable[[Array], PyTree]
    apply: Callable[..., Any]
    loss: Callable[[PyTree, PyTree], Array]
    optimizer: optax.GradientTransformation
    metrics: Mapping[str, str | Metric] = field(default_factory=dict)
    has_state: bool = False

    def __post_init__(self) -> None:
        """Refuses what cannot train, while the line that wrote it is still on the stack."""
        if not isinstance(self.has_state, bool):
            raise SpecError(f"has_state is {_shown(self.has_state)}; write True or False.")
        first = "params, state, x" if self.has_state else "params, x"
        _check_callable("init", self.init, "init(key)", 1, ())
        _check_callable(
            "apply", self.apply, f"apply({first}, *, key, training)", len(first.split()), ("key", "training")
        )
        _check_callable("loss", self.loss, "loss(outputs, targets)", 2, ())
        if not isinstance(self.optimizer, optax.GradientTransformation):
            raise SpecError(
                f"optimizer is {_shown(self.optimizer)}, which is no optax GradientTransformation. "
                "Write for example `optimizer=optax.adam(1e-3)`."
            )
        object.__setattr__(self, "metrics", dict(_checked_metrics(self.metrics)))


def _checked_metrics(metrics: object) -> Mapping[str, str | Metric]:
    if not isinstance(metrics, Mapping):
        example = metrics if isinstance(metrics, str) else "accuracy"
        raise SpecError(
            f"metrics is {_shown(metrics)}; it maps names in the results to metrics. "
            f'Write for example `metrics={{"{example}": "{example}"}}`.'
        )
    for name, metric in metrics.items():
        if not isinstance(name, str) or not name:
            raise SpecError(f"metrics has the name {name!r}; names are texts that are not empty.")
        if name == "loss" or name.startswith("val_"):
            raise SpecError(f"metric `{name}` would hide a result that is always there; give it another name.")
        if isinstance(metric, str):
            named(metric)
        else:
            _check_callable(f"metrics[{name!r}]", metric, "metric(outputs, targets)", 2, ())
    return metrics


def _check_callable(name: str, given: object, written: str, positional: int, keywords: tuple[str, ...]) -> None:
    if not callable(given):
        raise SpecError(f"{name} is {_shown(given)}, which cannot be called. Give a function `{written}`.")
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):  # builtins and some compiled functions have none
        return
    try:
        signature.bind(*[None] * positional, **dict.fromkeys(keywords))
    except TypeError as error:
        raise SpecError(
            f"{name} is called as `{written}`, and what was given takes `{signature}` ({error}). "
            "Change its parameters to match."
        ) from error


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} (a {type(value).__name__})"
