"""Rules for `scan` and `cond`: their bodies are split as the program around them is."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from dure import _jax
from dure.strategy.exchange import Exchange
from dure.strategy.layout import Layout, NotSplit, Piece, Rows, Spread, laid
from dure.strategy.rules import Context, Equation, Pieces, everywhere, refuse, rows_of

Array = Any
Walk = Callable[[Context, Any, Pieces], Pieces]


def lay(context: Context, piece: Piece, layout: Layout) -> Array:
    """The piece's array in another layout.

    Raises:
        NotSplit: the value cannot be laid so without being gathered.
    """
    if layout is Spread.PARTIAL:
        return context.as_partial(piece)
    if layout is Spread.WHOLE:
        if isinstance(piece.layout, Rows):
            raise NotSplit(f"a value lies as {piece.layout} where a whole one is needed")
        return context.settle(piece).value()
    return context.settle(piece).rows(context.share, layout)


def join(first: Layout, second: Layout) -> Layout:
    """The layout that both can be laid in: by rows before partial before whole."""
    if isinstance(first, Rows):
        return first
    if isinstance(second, Rows):
        return second
    return Spread.PARTIAL if Spread.PARTIAL in (first, second) else Spread.WHOLE


def layouts_of(context: Context, walk: Walk, program: Any, layouts: Sequence[Layout]) -> list[Layout]:
    """How a body's results lie, from how its operands lie; computes nothing."""
    found: list[Layout] = []
    trial = replace(context, exchange=Exchange(), computed_whole=[])

    def look(values: list[Array]) -> list[Array]:
        operands = [laid(v, layout) for v, layout in zip(values, layouts, strict=True)]
        pieces = walk(trial, program, operands)
        found.extend(piece.layout for piece in pieces)
        return [piece.value() for piece in pieces]

    shapes = [
        context.share.local_shape(v.aval.shape, layout) if isinstance(layout, Rows) else v.aval.shape
        for v, layout in zip(program.jaxpr.invars, layouts, strict=True)
    ]
    types = [v.aval.dtype for v in program.jaxpr.invars]
    jax.eval_shape(look, [jax.ShapeDtypeStruct(s, t) for s, t in zip(shapes, types, strict=True)])
    return found


def scan(walk: Walk) -> Callable[[Context, Equation, Pieces], Pieces]:
    """The rule for a loop over a leading axis that is not the rows': each carried value keeps one layout throughout."""

    def rule(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
        if rows_of_any(pieces) is None and context.own_draws is None:
            return everywhere(context, equation, pieces)
        params = equation.params
        body, num_consts, num_carry = _jax.closed(params["jaxpr"]), params["num_consts"], params["num_carry"]
        pieces = [context.settle(piece) for piece in pieces]
        start = num_consts + num_carry
        each = [_element(equation, piece.layout) for piece in pieces[start:]]
        before = [piece.layout for piece in pieces[:start]]
        carried = before[num_consts:]
        while True:  # a layout only ever moves on from whole to partial to rows, so that this ends
            found = layouts_of(context, walk, body, [*before[:num_consts], *carried, *each])
            joined = [join(a, b) for a, b in zip(carried, found[:num_carry], strict=True)]
            if joined == carried:
                break
            carried = joined
        constants = [piece.value() for piece in pieces[:num_consts]]
        inputs = [*before[:num_consts], *carried, *each]

        def run(carry: list[Array], element: list[Array]) -> tuple[list[Array], list[Array]]:
            values = zip([*constants, *carry, *element], inputs, strict=True)
            results = walk(context, body, [laid(v, layout) for v, layout in values])
            after = [lay(context, p, to) for p, to in zip(results[:num_carry], carried, strict=True)]
            return after, [p.value() for p in results[num_carry:]]

        first = [lay(context, p, to) for p, to in zip(pieces[num_consts:start], carried, strict=True)]
        last, collected = jax.lax.scan(
            run,
            first,
            [piece.value() for piece in pieces[start:]],
            length=params["length"],
            reverse=params["reverse"],
            unroll=params["unroll"],
        )
        final = [laid(v, layout) for v, layout in zip(last, carried, strict=True)]
        return final + [laid(v, _stacked(a)) for v, a in zip(collected, found[num_carry:], strict=True)]

    return rule


def rows_of_any(pieces: Pieces) -> Rows | None:
    """A `Rows` layout among the pieces, whichever; None without one."""
    return next((piece.layout for piece in pieces if isinstance(piece.layout, Rows)), None)


def _element(equation: Equation, layout: Layout) -> Layout:
    if not isinstance(layout, Rows):
        return layout
    if layout.axis == 0:
        raise refuse(equation, "goes through the rows one after another")
    return Rows(layout.axis - 1, layout.factor)


def _stacked(layout: Layout) -> Layout:
    return Rows(layout.axis + 1, layout.factor) if isinstance(layout, Rows) else layout


def cond(walk: Walk) -> Callable[[Context, Equation, Pieces], Pieces]:
    """The rule for a choice between programs that every replica makes alike."""

    def rule(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
        if rows_of_any(pieces) is None and context.own_draws is None:
            return everywhere(context, equation, pieces)
        if rows_of(equation, pieces[:1]) is not None:
            raise refuse(equation, "chooses for each row")
        which, *operands = [context.settle(piece) for piece in pieces]
        branches = [_jax.closed(branch) for branch in equation.params["branches"]]
        given = [piece.layout for piece in operands]
        found = [layouts_of(context, walk, branch, given) for branch in branches]
        common = found[0]
        for other in found[1:]:
            common = [join(a, b) for a, b in zip(common, other, strict=True)]

        def run(branch: Any) -> Callable[..., list[Array]]:
            def one(*values: Array) -> list[Array]:
                results = walk(context, branch, [laid(v, a) for v, a in zip(values, given, strict=True)])
                return [lay(context, p, to) for p, to in zip(results, common, strict=True)]

            return one

        values = [piece.value() for piece in operands]
        results = jax.lax.switch(which.value().astype("int32"), [run(branch) for branch in branches], *values)
        return [laid(v, layout) for v, layout in zip(results, common, strict=True)]

    return rule
