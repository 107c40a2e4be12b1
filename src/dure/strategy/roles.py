"""Which random draws of a program have a value a row.

Local SGD traces a program for a replica's rows alone, and such a program does not say which of a draw's axes are rows:
`[50, 8]` is a mask of 25 rows with two places each as well as one of a layer's weights. A second trace, at the full
batch, tells them apart: what grows with the batch are rows.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dure import _jax
from dure.errors import SpecError
from dure.strategy.draws import DRAWS, Draw
from dure.strategy.layout import Rows
from dure.strategy.split import BODIES, INLINE

ClosedJaxpr = Any

HIDDEN = {"random_gamma", "rng_bit_generator", "rng_uniform"}
"""Draws whose places nothing outside knows."""


def own_draws(
    program: ClosedJaxpr, rows: int, batch: int, trace: Callable[[], ClosedJaxpr]
) -> Mapping[Draw, Rows] | None:
    """Finds the draws with a value a row in a program traced for some rows of a batch.

    A draw that looks alike both ways, as where a layer has as many weights as the replica has rows, is taken for one by
    row: then the replicas draw apart from one another, which is never wrong for replicas that train by themselves.

    Args:
        program: traced at `rows`.
        rows: how many.
        batch: rows of the full batch.
        trace: gives the same program traced at `batch`; called only if it draws at all.

    Returns:
        How each such draw's rows lie in what a key gives; None where there is none, or the rows are all the batch.

    Raises:
        SpecError: a draw's rows cannot be told, or are drawn where a replica cannot draw its own.
    """
    found = list(_draws(program))
    if rows == batch or not found:
        return None
    full = {draw for draw, _ in _draws(trace())}
    roles: dict[Draw, Rows] = {}
    for draw, can_cut in found:
        axes = [axis for axis, grown in _grown(draw, rows, batch) if grown in full]
        if not axes and draw not in full:
            others = sorted({str(list(other.shape)) for other in full if other.operation == draw.operation})
            raise SpecError(
                f"local SGD gives each replica its rows of the full batch's random draws, and `{draw.operation}` of "
                f"{list(draw.shape)} on {rows} rows is {' or '.join(others) or 'not made'} on {batch}, where one axis "
                f'was to grow with the rows. Draw a value a row, `[rows, ...]`, or train with `sync_every="step"`.'
            )
        inside = [axis - len(draw.keys) for axis in axes if axis >= len(draw.keys)]
        if not inside:
            continue  # the same for all, or each row has a key of its own already
        if not can_cut:
            raise SpecError(
                f"local SGD gives each replica its rows of the full batch's random draws, and `{draw.operation}` of "
                f"{list(draw.shape)} on {rows} rows would be the same on each. Give each row a key of its own, by "
                f"`jax.vmap` over `jax.random.split(key, rows)`, draw uniform or normal numbers, or train with "
                f'`sync_every="step"`.'
            )
        roles[draw] = Rows(inside[0], draw.shape[inside[0]] // rows)
    return roles or None


def _grown(draw: Draw, rows: int, batch: int) -> Iterator[tuple[int, Draw]]:
    """What a draw is at the full batch if one of its axes, those of its keys first, holds the rows."""
    shape = (*draw.keys, *draw.shape)
    for axis, size in enumerate(shape):
        if size and size % rows == 0:
            grown = (*shape[:axis], size // rows * batch, *shape[axis + 1 :])
            yield axis, Draw(draw.operation, grown[: len(draw.keys)], grown[len(draw.keys) :])


def _draws(program: ClosedJaxpr, *, is_walked: bool = True) -> Iterator[tuple[Draw, bool]]:
    """Each draw, and whether a replica can have its own rows of it: only where the split goes into the program."""
    for equation in program.jaxpr.eqns:
        name = equation.primitive.name
        if name in DRAWS or name in HIDDEN:
            yield Draw.of(equation), is_walked and name in DRAWS
            continue
        if name == "random_fold_in" and _is_numbered(program, equation.invars[1]):
            yield Draw.of(equation), False
        for body in _jax.bodies(equation.params):
            yield from _draws(body, is_walked=is_walked and (name in INLINE or name in BODIES))


def _is_numbered(program: ClosedJaxpr, value: Any) -> bool:
    """Whether a value is made of numbers in a row (`arange`) alone, which start at 0 on every replica."""
    makers = {made: equation for equation in program.jaxpr.eqns for made in equation.outvars}
    waiting, has_numbers = [value], False
    while waiting:
        atom = waiting.pop()
        if _jax.is_literal(atom):
            continue
        if atom not in makers:
            return False
        has_numbers = has_numbers or makers[atom].primitive.name == "iota"
        waiting += makers[atom].invars
    return has_numbers
