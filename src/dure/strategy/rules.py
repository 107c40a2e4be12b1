"""One rule an operation: what a replica computes of it when the rows of the batch are shared out.

A rule gets the equation of the full-batch program and its operands as pieces, and gives the results as pieces. What no
rule covers raises `NotSplit`: every replica then gets all rows of the operands and computes that one operation whole.
Sums over rows stay partial as long as what follows is linear, so that a gradient is exchanged once, last.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from dure import _jax
from dure.strategy.draws import Draw, can_draw_rows, draw_rows
from dure.strategy.exchange import Exchange
from dure.strategy.layout import NotSplit, Piece, Rows, Share, Spread, by_rows, partial, whole

Array = Any
Equation = Any
Pieces = list[Piece]


@dataclass(frozen=True)
class Context:
    """What a rule needs besides its operands."""

    share: Share
    exchange: Exchange
    own_draws: Mapping[Draw, Rows] | None = None
    """The program is traced for this replica's rows alone: where the rows lie in those of its draws that have a value a
    row. Such draws are the replica's rows of the full batch's. None where there are none, or at the full batch."""
    computed_whole: list[str] = field(default_factory=list)
    """Which operations every replica computes whole, and why; filled as the program is split."""

    def settle(self, piece: Piece) -> Piece:
        """The piece with its parts summed, if it is a partial one."""
        if piece.layout is not Spread.PARTIAL:
            return piece
        if piece.shared is None:
            piece.shared = whole(self.exchange.sum(piece.value()))
        return piece.shared

    def gather(self, piece: Piece) -> Piece:
        """The whole value of a piece: its parts summed, or every replica's rows brought to all."""
        if not isinstance(piece.layout, Rows):
            return self.settle(piece)
        if piece.shared is None:
            rows = piece.layout
            piece.shared = whole(self.share.trim(self.exchange.gather(piece.value(), rows.axis), rows))
        return piece.shared

    def as_partial(self, piece: Piece) -> Array:
        """The piece as parts of a sum; a whole value counts once, on the first replica."""
        if piece.layout is Spread.PARTIAL:
            return piece.value()
        if piece.layout is not Spread.WHOLE:
            raise NotSplit(f"a value that lies as {piece.layout} is added to a sum over rows")
        value = piece.value()
        if self.share.replicas == 1:
            return value
        return jnp.where(self.share.first() == 0, value, jnp.zeros_like(value))


Rule = Callable[[Context, Equation, Pieces], Pieces]


def refuse(equation: Equation, why: str) -> NotSplit:
    """The error for an equation that no rule covers."""
    shapes = ", ".join(str(v.aval.str_short()) for v in equation.invars)
    return NotSplit(f"operation `{equation.primitive.name}` ({shapes}) {why}")


def rows_of(equation: Equation, pieces: Pieces) -> Rows | None:
    """The one `Rows` layout among the operands, or None.

    Raises:
        NotSplit: the operands lie by rows in different ways.
    """
    found = {piece.layout for piece in pieces if isinstance(piece.layout, Rows)}
    if len(found) > 1:
        raise refuse(equation, f"mixes rows of different axes: {sorted(found)}")
    return next(iter(found), None)


def apply(equation: Equation, values: Sequence[Array], **changed: Any) -> list[Array]:
    """Applies the equation's operation to this replica's arrays, with some parameters changed."""
    return _jax.bind(equation.primitive, list(values), {**equation.params, **changed})


def everywhere(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Computes the same on every replica: for operands that are whole."""
    if rows_of(equation, pieces):
        raise refuse(equation, "has no rule for operands that lie by rows")
    return [whole(v) for v in apply(equation, [context.settle(p).value() for p in pieces])]


def operand_rows(context: Context, equation: Equation, at: int, piece: Piece, rows: Rows) -> Array:
    """One operand of an element-by-element operation whose result lies by `rows`."""
    shape = equation.invars[at].aval.shape
    if not shape:
        return piece.value()  # a scalar goes with every element
    result = next(v.aval.shape for v in equation.outvars if v.aval.shape)
    if shape[rows.axis] != result[rows.axis]:
        return piece.value()  # length 1, spread over the rows
    return piece.rows(context.share, rows)


LINEAR_IN_ALL = {"add", "sub", "add_any", "neg", "copy", "copy_p"}
LINEAR_IN_FIRST = {"mul", "div"}


def linear(context: Context, equation: Equation, pieces: Pieces) -> Pieces | None:
    """Keeps a sum over rows partial through an operation that is linear in it; None where that cannot be."""
    name = equation.primitive.name
    is_partial = [p.layout is Spread.PARTIAL for p in pieces]
    if name in LINEAR_IN_ALL:
        if any(isinstance(p.layout, Rows) for p in pieces):
            return None
        shapes = {v.aval.shape for v in equation.invars}
        if len(shapes) > 1:  # a broadcast operand would be counted once an element: still linear, but keep it plain
            return None
        return [partial(v) for v in apply(equation, [context.as_partial(p) for p in pieces])]
    if name == "select_n" and not is_partial[0]:
        if any(isinstance(p.layout, Rows) for p in pieces):
            return None  # a choice that every replica makes alike is linear in what it chooses from
        values = [pieces[0].value(), *map(context.as_partial, pieces[1:])]
        return [partial(v) for v in apply(equation, values)]
    if name == "convert_element_type":
        kinds = [jnp.dtype(d) for d in (equation.invars[0].aval.dtype, equation.params["new_dtype"])]
        if all(jnp.issubdtype(d, jnp.floating) for d in kinds) or all(jnp.issubdtype(d, jnp.integer) for d in kinds):
            return [partial(v) for v in apply(equation, [pieces[0].value()])]
        return None
    first_only = is_partial[0] and not any(is_partial[1:]) and pieces[-1].layout is Spread.WHOLE
    second_only = name == "mul" and is_partial[-1] and not is_partial[0] and pieces[0].layout is Spread.WHOLE
    if name in LINEAR_IN_FIRST and (first_only or second_only):
        if name == "div" and not jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating):
            return None  # integer division rounds each part
        return [partial(v) for v in apply(equation, [p.value() for p in pieces])]
    return None


def elementwise(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Each element of the result comes from the same element of the operands."""
    if any(p.layout is Spread.PARTIAL for p in pieces):
        kept = linear(context, equation, pieces)
        if kept is not None:
            return kept
        pieces = [context.settle(p) for p in pieces]
    rows = rows_of(equation, pieces)
    if rows is not None:
        if any(v.aval.shape[rows.axis] != context.share.batch * rows.factor for v in equation.outvars):
            raise refuse(equation, "spreads one row over several")
        values = [operand_rows(context, equation, i, p, rows) for i, p in enumerate(pieces)]
        return [by_rows(v, rows) for v in apply(equation, values)]

    def cut(rows: Rows) -> Array:
        return apply(equation, [operand_rows(context, equation, i, p, rows) for i, p in enumerate(pieces)])[0]

    cheap = any(p.cuts_cheaply for p in pieces)
    return [Piece(Spread.WHOLE, lambda: apply(equation, [p.value() for p in pieces])[0], cut if cheap else None)]


def random_bits(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """A draw: a replica draws its own rows of the single device's."""
    if isinstance(pieces[0].layout, Rows):  # a key a row
        return [by_rows(v, pieces[0].layout) for v in apply(equation, [pieces[0].value()])]
    key, shape = pieces[0].value(), equation.params["shape"]
    can_draw = can_draw_rows(key, bit_width=equation.params["bit_width"], shape=shape)

    def cut(rows: Rows) -> Array:
        if rows.axis < key.ndim:
            return apply(equation, [pieces[0].rows(context.share, rows)])[0]
        if rows.axis == 0 and can_draw:
            return draw_rows(key, context.share.index(rows), context.share.local_shape(shape, rows))
        return context.share.cut(piece.value(), rows)

    if (own := own_rows(context, equation)) is not None:
        return own_part(context, equation, key, own)
    piece = Piece(Spread.WHOLE, lambda: apply(equation, [key])[0], cut)
    return [piece]


def random_split(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Keys made of one key; of a program for a replica's rows alone, with a key a row, those of its rows."""
    if (own := own_rows(context, equation)) is not None:
        return own_part(context, equation, pieces[0].value(), own)
    return everywhere(context, equation, pieces)


def own_rows(context: Context, equation: Equation) -> Rows | None:
    """Where the rows lie in what a key gives, of a draw with a value a row in a program for a replica's rows alone."""
    return None if context.own_draws is None else context.own_draws.get(Draw.of(equation))


def own_part(context: Context, equation: Equation, key: Array, rows: Rows) -> Pieces:
    """A replica's rows of what a key gives for the full batch."""
    shape = equation.params["shape"]
    first, size = context.share.first() * rows.factor, shape[rows.axis]
    full = (*shape[: rows.axis], context.share.batch * rows.factor, *shape[rows.axis + 1 :])
    is_bits = equation.primitive.name == "random_bits"
    if is_bits and rows.axis == 0 and can_draw_rows(key, bit_width=equation.params["bit_width"], shape=full):
        return [whole(draw_rows(key, first + jnp.arange(size, dtype=jnp.int32), shape))]
    (drawn,) = apply(equation, [key], shape=full)
    return [whole(jax.lax.dynamic_slice_in_dim(drawn, first, size, key.ndim + rows.axis))]


def iota(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Numbers along an axis: a replica's own start at its first row."""
    shape, dimension = equation.params["shape"], equation.params["dimension"]

    def cut(rows: Rows) -> Array:
        local = context.share.local_shape(shape, rows)
        if dimension != rows.axis:
            return apply(equation, [], shape=local)[0]
        numbers = context.share.index(rows).astype(equation.params["dtype"])
        return jax.lax.broadcast_in_dim(numbers, local, (dimension,))

    return [Piece(Spread.WHOLE, lambda: apply(equation, [])[0], cut)]


def broadcast_in_dim(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Adds axes, or lengthens axes of length 1."""
    (piece, *_), params = pieces, equation.params
    shape, kept = params["shape"], [int(d) for d in params["broadcast_dimensions"]]
    given = equation.invars[0].aval.shape
    if piece.layout is Spread.PARTIAL and math.prod(shape) == math.prod(given):
        return [partial(v) for v in apply(equation, [piece.value()])]
    # A sum that grows is exchanged while it is small: statistics of a batch are about to be spread over its rows.
    piece = context.settle(piece)
    if isinstance(piece.layout, Rows):
        axis, factor = piece.layout
        if shape[kept[axis]] != given[axis]:
            raise refuse(equation, "spreads one row over several")
        rows = Rows(kept[axis], factor)
        return [
            by_rows(v, rows) for v in apply(equation, [piece.value()], shape=context.share.local_shape(shape, rows))
        ]

    def cut(rows: Rows) -> Array:
        inner = kept.index(rows.axis) if rows.axis in kept else None
        if inner is not None and given[inner] == shape[rows.axis]:
            value = piece.rows(context.share, Rows(inner, rows.factor))
        else:
            value = piece.value()
        return apply(equation, [value], shape=context.share.local_shape(shape, rows))[0]

    return [Piece(Spread.WHOLE, lambda: apply(equation, [piece.value()])[0], cut)]


def reshape(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Keeps the rows where the new shape has an axis that starts where theirs did and holds whole rows."""
    piece, sizes = pieces[0], equation.params["new_sizes"]
    if not isinstance(piece.layout, Rows):
        return keep_unless_rows(context, equation, pieces)
    axis, factor = piece.layout
    before = math.prod(equation.invars[0].aval.shape[:axis])
    batch = context.share.batch
    fits = [i for i, size in enumerate(sizes) if math.prod(sizes[:i]) == before and size and size % batch == 0]
    same = [i for i in fits if sizes[i] == batch * factor]
    if not fits:
        raise refuse(equation, f"divides the rows to shape {sizes}")
    rows = Rows((same or fits)[0], sizes[(same or fits)[0]] // batch)
    local = context.share.local_shape(sizes, rows)
    if math.prod(local) != piece.value().size:
        raise refuse(equation, f"divides the rows to shape {sizes}")
    return [by_rows(v, rows) for v in apply(equation, [piece.value()], new_sizes=local)]


def keep_unless_rows(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """For an operation that only moves elements: whole stays whole, partial stays partial."""
    layout = pieces[0].layout
    if isinstance(layout, Rows):
        raise refuse(equation, f"moves rows that lie as {layout}")
    results = apply(equation, [p.value() for p in pieces])
    return [partial(v) if layout is Spread.PARTIAL else whole(v) for v in results]


def transpose(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Moves the rows' axis along."""
    piece = pieces[0]
    if not isinstance(piece.layout, Rows):
        return keep_unless_rows(context, equation, pieces)
    rows = Rows(equation.params["permutation"].index(piece.layout.axis), piece.layout.factor)
    return [by_rows(v, rows) for v in apply(equation, [piece.value()])]


def unstack(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Parts along an axis, which goes; never the rows' own."""
    piece, axis = pieces[0], equation.params["axis"]
    if not isinstance(piece.layout, Rows):
        return keep_unless_rows(context, equation, pieces)
    if piece.layout.axis == axis:
        raise refuse(equation, "takes the rows apart")
    rows = Rows(piece.layout.axis - (axis < piece.layout.axis), piece.layout.factor)
    return [by_rows(v, rows) for v in apply(equation, [piece.value()])]


def squeeze(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Drops axes of length 1, never the rows' own."""
    piece, dropped = pieces[0], equation.params["dimensions"]
    if not isinstance(piece.layout, Rows):
        return keep_unless_rows(context, equation, pieces)
    if piece.layout.axis in dropped:
        raise refuse(equation, "drops the axis of the rows")
    rows = Rows(piece.layout.axis - sum(d < piece.layout.axis for d in dropped), piece.layout.factor)
    return [by_rows(v, rows) for v in apply(equation, [piece.value()])]


def reduce(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """A reduction over axes: over the rows it becomes a sum of parts, or is exchanged at once."""
    piece, axes, name = pieces[0], equation.params["axes"], equation.primitive.name
    if piece.layout is Spread.PARTIAL:
        if name == "reduce_sum":
            return [partial(v) for v in apply(equation, [piece.value()])]
        piece = context.settle(piece)
    if not isinstance(piece.layout, Rows):
        return [whole(v) for v in apply(equation, [piece.value()])]
    rows = piece.layout
    if rows.axis not in axes:
        kept = Rows(rows.axis - sum(a < rows.axis for a in axes), rows.factor)
        return [by_rows(v, kept) for v in apply(equation, [piece.value()])]
    if name == "reduce_sum":
        return [partial(v) for v in apply(equation, [context.share.masked(piece.value(), rows, 0)])]
    is_truth = equation.outvars[0].aval.dtype == jnp.bool_
    if name in ("reduce_max", "reduce_min") or (is_truth and name in ("reduce_or", "reduce_and")):
        # Padding repeats the last row, so that it changes no maximum.
        (value,) = apply(equation, [piece.value()])
        return [whole(context.exchange.extreme(value, is_max=name in ("reduce_max", "reduce_or")))]
    raise refuse(equation, "reduces over the rows")


def arg_reduce(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """The place of an extreme along an axis that is not the rows'."""
    piece = context.settle(pieces[0])
    axes = equation.params["axes"]
    if not isinstance(piece.layout, Rows):
        return [whole(v) for v in apply(equation, [piece.value()])]
    if piece.layout.axis in axes:
        raise refuse(equation, "looks for a place among the rows")
    rows = Rows(piece.layout.axis - sum(a < piece.layout.axis for a in axes), piece.layout.factor)
    return [by_rows(v, rows) for v in apply(equation, [piece.value()])]


def along(axes_of: Callable[[Equation], Sequence[int]]) -> Rule:
    """A rule for operations that mix elements along some axes only: rows on another axis stay as they are.

    Args:
        axes_of: gives the axes that the operation mixes.
    """

    def rule(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
        pieces = [context.settle(p) for p in pieces]
        rows = rows_of(equation, pieces)
        if rows is None:
            return [whole(v) for v in apply(equation, [p.value() for p in pieces])]
        if rows.axis in axes_of(equation):
            raise refuse(equation, "mixes the rows")
        # What has no axes goes with every row: the start value of a windowed reduction.
        shapes = [v.aval.shape for v in equation.invars]
        values = [p.rows(context.share, rows) if s else p.value() for p, s in zip(pieces, shapes, strict=True)]
        return [by_rows(v, rows) for v in apply(equation, values)]

    return rule


def window_axes(equation: Equation) -> list[int]:
    """Axes along which a windowed operation sees more than one element."""
    params = equation.params
    sizes = params["window_dimensions"]
    neutral = [1] * len(sizes)
    settings = [params.get(k) or neutral for k in ("window_strides", "base_dilation", "window_dilation")]
    padding = params["padding"]
    return [
        axis
        for axis, size in enumerate(sizes)
        if size != 1 or tuple(padding[axis]) != (0, 0) or any(s[axis] != 1 for s in settings)
    ]


def last_axes(count: int) -> Callable[[Equation], Sequence[int]]:
    """Gives the last axes of an equation's first operand, which matrix operations mix."""
    return lambda equation: range(len(equation.invars[0].aval.shape))[-count:]


def pad(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Padding of axes that are not the rows'."""
    pieces = [context.settle(p) for p in pieces]
    rows = pieces[0].layout
    if not isinstance(rows, Rows):
        return everywhere(context, equation, pieces)
    if tuple(equation.params["padding_config"][rows.axis]) != (0, 0, 0):
        raise refuse(equation, "pads the rows")
    return [by_rows(v, rows) for v in apply(equation, [pieces[0].value(), pieces[1].value()])]


def slice_(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """A part of axes that are not the rows'."""
    piece, params = pieces[0], equation.params
    rows = piece.layout
    if not isinstance(rows, Rows):
        return keep_unless_rows(context, equation, pieces)
    size = equation.invars[0].aval.shape[rows.axis]
    strides = params["strides"]
    if (
        params["start_indices"][rows.axis]
        or params["limit_indices"][rows.axis] != size
        or (strides and strides[rows.axis] != 1)
    ):
        raise refuse(equation, "takes some of the rows")
    limits = context.share.local_shape(params["limit_indices"], rows)
    return [by_rows(v, rows) for v in apply(equation, [piece.value()], limit_indices=limits)]


def dynamic_slice(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """A part at a computed place along axes that are not the rows'."""
    pieces = [context.settle(p) for p in pieces]
    rows = pieces[0].layout
    if rows_of(equation, pieces[1:]) is not None:
        raise refuse(equation, "starts at a place that depends on the row")
    if not isinstance(rows, Rows):
        return everywhere(context, equation, pieces)
    sizes = equation.params["slice_sizes"]
    if sizes[rows.axis] != equation.invars[0].aval.shape[rows.axis]:
        raise refuse(equation, "takes some of the rows")
    local = context.share.local_shape(sizes, rows)
    return [by_rows(v, rows) for v in apply(equation, [p.value() for p in pieces], slice_sizes=local)]


def dynamic_update_slice(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Writes a part at a computed place along axes that are not the rows'."""
    pieces = [context.settle(p) for p in pieces]
    if rows_of(equation, pieces[2:]) is not None:
        raise refuse(equation, "starts at a place that depends on the row")
    rows = rows_of(equation, pieces[:2])
    if rows is None:
        return everywhere(context, equation, pieces)
    target, update = (v.aval.shape for v in equation.invars[:2])
    if target[rows.axis] != update[rows.axis]:
        raise refuse(equation, "writes some of the rows")
    values = [p.rows(context.share, rows) for p in pieces[:2]] + [p.value() for p in pieces[2:]]
    return [by_rows(v, rows) for v in apply(equation, values)]
