"""Runs a program split by rows on some of the eight devices, and puts the full-batch values together again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from dure.strategy.exchange import Exchange, Meeting
from dure.strategy.layout import AXIS, Layout, Rows, Share, Spread
from dure.strategy.rules import Context
from dure.strategy.split import split

PyTree = Any

# What is under test is what is computed, not how well it is compiled, which takes most of the time.
QUICK = {"xla_backend_optimization_level": 0}


class Spreading(NamedTuple):
    """What came of a split program.

    Attributes:
        values: the full-batch value of each result leaf, NumPy.
        layouts: how each lay on the replicas.
        exchanged: what replicas exchanged, in order.
        computed_whole: which operations every replica computed whole, and why.
    """

    values: list[np.ndarray]
    layouts: list[Layout]
    exchanged: list[Meeting]
    computed_whole: list[str]


def spread(
    function: Callable[..., PyTree], whole: PyTree, rows: PyTree, replicas: int, *, sums: PyTree = ()
) -> Spreading:
    """Splits `function(whole, sums, rows)` and joins its results again.

    Args:
        function: written for the full batch.
        whole: leaves that every replica has.
        rows: leaves `[batch, ...]`, shared out.
        replicas: how many.
        sums: leaves that are the sum of the replicas' parts; the first replica gets all of them.

    Raises:
        AssertionError: a value that should be whole differs between two replicas.
    """
    batch = len(jax.tree.leaves(rows)[0])
    share = Share(batch, replicas)
    program = jax.make_jaxpr(function)(whole, sums, rows)
    layouts: list[Layout] = []
    exchanged: list[Meeting] = []
    computed_whole: list[str] = []

    def replica(whole: PyTree, sums: PyTree, mine: PyTree) -> list[Any]:
        sums, mine = (jax.tree.map(lambda leaf: leaf[0], tree) for tree in (sums, mine))
        context = Context(share, Exchange())
        pieces = split(context, program, whole_in=whole, partial_in=sums, rows_in=mine)
        layouts[:] = [piece.layout for piece in pieces]
        values = [piece.value()[None] for piece in pieces]
        exchanged[:] = context.exchange.meetings
        computed_whole[:] = context.computed_whole
        return values

    shared = jax.tree.map(lambda leaf: leaf[share.places()], rows)
    parts = jax.tree.map(lambda leaf: np.stack([leaf, *[np.zeros_like(leaf)] * (replicas - 1)]), sums)
    mesh = Mesh(np.array(jax.devices()[:replicas]), (AXIS,))
    run = jax.shard_map(replica, mesh=mesh, in_specs=(P(), P(AXIS), P(AXIS)), out_specs=P(AXIS), check_vma=False)
    stacked = [np.asarray(leaf) for leaf in jax.jit(run, compiler_options=QUICK)(whole, parts, shared)]
    joined = [join(value, layout, share) for value, layout in zip(stacked, layouts, strict=True)]
    return Spreading(joined, layouts, exchanged, computed_whole)


def join(stacked: np.ndarray, layout: Layout, share: Share) -> np.ndarray:
    """The full-batch value of what each replica has, `[replicas, ...]`."""
    if layout is Spread.WHOLE:
        for other in stacked[1:]:
            np.testing.assert_array_equal(other, stacked[0])
        return stacked[0]
    if layout is Spread.PARTIAL:
        return stacked.sum(0, dtype=stacked.dtype)
    assert isinstance(layout, Rows)
    own = np.concatenate(list(stacked), axis=layout.axis)
    real = np.arange(share.batch * layout.factor)
    return np.take(own, real, axis=layout.axis)


def close(found: PyTree, expected: PyTree, *, noise: float = 0.0) -> None:
    """Asserts that leaves differ by at most 1e-5 of the largest magnitude in each.

    Args:
        found: leaves of numbers.
        expected: leaves of the same shapes and dtypes.
        noise: what rounding may leave of a sum that is zero.
    """
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for place, (one, other) in enumerate(pairs):
        a, b = np.asarray(one), np.asarray(other)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"leaf {place}: {a.dtype}{a.shape}, {b.dtype}{b.shape}"
        if not np.issubdtype(b.dtype, np.floating):
            np.testing.assert_array_equal(a, b, err_msg=f"leaf {place}")
            continue
        limit = noise + 1e-5 * np.abs(b).max(initial=0, where=np.isfinite(b))
        np.testing.assert_allclose(a, b, rtol=0, atol=limit, err_msg=f"leaf {place}")


def equals_the_whole(
    function: Callable[..., PyTree],
    whole: PyTree,
    rows: PyTree,
    replicas: int,
    *,
    sums: PyTree = (),
    noise: float = 0.0,
) -> Spreading:
    """Asserts that the split program's values are the whole program's; gives back how they lay."""
    found = spread(function, whole, rows, replicas, sums=sums)
    close(found.values, jax.tree.leaves(jax.jit(function, compiler_options=QUICK)(whole, sums, rows)), noise=noise)
    return found
