"""The text form of a split step: what the replicas exchange, what each computes whole, and how each result lies."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from dure.models.pure import PyTree
from dure.strategy.exchange import Exchange
from dure.strategy.layout import AXIS, Layout, Rows, Share, Spread
from dure.strategy.rules import Context
from dure.strategy.split import split


def show(
    function: Callable[..., PyTree],
    replicas: int,
    *,
    whole_in: PyTree,
    partial_in: PyTree,
    rows_in: PyTree,
    names: Sequence[str] = ("results",),
) -> str:
    """How a function of the full batch is split; traces it, compiles and runs nothing.

    Args:
        function: of `(whole_in, partial_in, rows_in)`, as `PureModel.gradients` is of state, metrics and batch.
        replicas: how many share the rows.
        whole_in: arrays or `jax.ShapeDtypeStruct` leaves that every replica has.
        partial_in: leaves that are sums of the replicas' parts.
        rows_in: leaves `[batch, ...]`.
        names: what to call each result of a function that returns several, in order.

    Returns:
        Lines of text, the same for the same program.

    Raises:
        NotSplit: the function has effects.

    Example:
        >>> import jax.numpy as jnp
        >>> def mean_of_squares(weight, _, rows):
        ...     return jnp.mean((rows @ weight) ** 2)
        >>> text = show(mean_of_squares, 2, whole_in=jnp.ones(3), partial_in=(), rows_in=jnp.ones((5, 3)))
        >>> print(text)
        5 rows on 2 replicas, at most 3 rows each
        exchanged on the way: nothing
        whole on every replica: nothing
        results float32[]: parts of a sum
    """
    batch = jax.tree.leaves(rows_in)[0].shape[0]
    share = Share(batch, replicas)
    program, results = jax.make_jaxpr(function, return_shape=True)(whole_in, partial_in, rows_in)
    context = Context(share, Exchange())
    layouts: list[Layout] = []

    def replica(whole: PyTree, sums: PyTree, mine: PyTree) -> list[Any]:
        pieces = split(context, program, whole_in=whole, partial_in=sums, rows_in=mine)
        layouts.extend(piece.layout for piece in pieces)
        return [piece.value() for piece in pieces]

    own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((share.size, *leaf.shape[1:]), leaf.dtype), rows_in)
    jax.make_jaxpr(replica, axis_env=[(AXIS, replicas)])(whole_in, partial_in, own)
    exchanged = [f"{m.operation} {_kind(m.shape, m.dtype)}" for m in context.exchange.meetings]
    parts = results if len(names) > 1 else (results,)
    named = [
        (name + jax.tree_util.keystr(path), leaf)
        for name, part in zip(names, parts, strict=True)
        for path, leaf in jax.tree.leaves_with_path(part)
    ]
    return "\n".join(
        [
            f"{batch} rows on {replicas} replicas, at most {share.size} rows each",
            *_listed("exchanged on the way", exchanged),
            *_listed("whole on every replica", list(dict.fromkeys(context.computed_whole))),
            *(
                f"{name} {_kind(leaf.shape, leaf.dtype)}: {_words(layout)}"
                for (name, leaf), layout in zip(named, layouts, strict=True)
            ),
        ]
    )


def _listed(title: str, lines: list[str]) -> list[str]:
    return [f"{title}:", *(f"  {line}" for line in lines)] if lines else [f"{title}: nothing"]


def _kind(shape: Sequence[int], dtype: Any) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def _words(layout: Layout) -> str:
    if isinstance(layout, Rows):
        apart = f", {layout.factor} places a row" if layout.factor > 1 else ""
        return f"own rows on axis {layout.axis}{apart}"
    return "whole" if layout is Spread.WHOLE else "parts of a sum"
