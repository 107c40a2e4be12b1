"""Rules for the operations that bring operands of different shapes together: products, convolutions, look-ups."""

from typing import Any

from dure.strategy.layout import Piece, Rows, Spread, by_rows, laid, partial, whole
from dure.strategy.rules import Context, Equation, Pieces, apply, everywhere, refuse, rows_of

Array = Any


def _sum_over_rows(context: Context, equation: Equation, left: tuple[Piece, int], right: tuple[Piece, int]) -> Pieces:
    """A product that contracts the rows: each replica contracts its own, and the result is a sum of parts."""
    (a, a_axis), (b, b_axis) = left, right
    rows_a = a.layout if isinstance(a.layout, Rows) else None
    rows_b = b.layout if isinstance(b.layout, Rows) else None
    factor = (rows_a or rows_b or Rows(0)).factor
    if rows_a not in (None, Rows(a_axis, factor)) or rows_b not in (None, Rows(b_axis, factor)):
        raise refuse(equation, "contracts rows with something else")
    a_rows, b_rows = Rows(a_axis, factor), Rows(b_axis, factor)
    a_value, b_value = a.rows(context.share, a_rows), b.rows(context.share, b_rows)
    # Padding must count nothing: one of the two operands is zero there, the smaller one.
    if a_value.size <= b_value.size:
        a_value = context.share.masked(a_value, a_rows, 0)
    else:
        b_value = context.share.masked(b_value, b_rows, 0)
    return [partial(v) for v in apply(equation, [a_value, b_value])]


def dot_general(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """A matrix product: rows may be free on one side, shared by both, or contracted."""
    left, right = (context.settle(p) for p in pieces)
    (left_contract, right_contract), (left_batch, right_batch) = equation.params["dimension_numbers"]
    meeting = [*zip(left_contract, right_contract, strict=True), *zip(left_batch, right_batch, strict=True)]
    if isinstance(left.layout, Rows) and isinstance(right.layout, Rows):
        (left_axis, left_factor), (right_axis, right_factor) = left.layout, right.layout
        if (left_axis, right_axis) not in meeting or left_factor != right_factor:
            right = context.gather(right)  # every row with every row: a replica's own with all
    sides = [(left, left_contract, left_batch), (right, right_contract, right_batch)]
    for piece, contract, shared in sides:
        if not isinstance(piece.layout, Rows):
            continue
        axis, factor = piece.layout
        if axis in contract:
            place = list(contract).index(axis)
            return _sum_over_rows(context, equation, (left, left_contract[place]), (right, right_contract[place]))
        if axis in shared:
            place = list(shared).index(axis)
            values = [
                p.rows(context.share, Rows(dims[place], factor))
                for p, dims in ((left, left_batch), (right, right_batch))
            ]
            return [by_rows(v, Rows(place, factor)) for v in apply(equation, values)]
    for side, (piece, contract, shared) in enumerate(sides):
        if isinstance(piece.layout, Rows):
            axis, factor = piece.layout
            ndim = len(equation.invars[side].aval.shape)
            free = [d for d in range(ndim) if d not in contract and d not in shared]
            skipped = len(shared)
            if side == 1:
                skipped += len(equation.invars[0].aval.shape) - len(left_contract) - len(left_batch)
            rows = Rows(skipped + free.index(axis), factor)
            return [by_rows(v, rows) for v in apply(equation, [left.value(), right.value()])]
    return everywhere(context, equation, [left, right])


def convolution(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """A convolution: rows are images, or, in the gradient of a kernel, what is contracted."""
    left, right = (context.settle(p) for p in pieces)
    if rows_of(equation, [left]) is None and rows_of(equation, [right]) is None:
        return everywhere(context, equation, [left, right])
    numbers, params = equation.params["dimension_numbers"], equation.params
    image, feature = numbers.lhs_spec[0], numbers.lhs_spec[1]
    if isinstance(left.layout, Rows) and left.layout.axis == image and right.layout is Spread.WHOLE:
        if params["batch_group_count"] != 1:
            raise refuse(equation, "groups the rows")
        rows = Rows(numbers.out_spec[0], left.layout.factor)
        return [by_rows(v, rows) for v in apply(equation, [left.value(), right.value()])]
    left_fits = left.layout is Spread.WHOLE or (isinstance(left.layout, Rows) and left.layout.axis == feature)
    if params["feature_group_count"] == 1 and left_fits:
        return _sum_over_rows(context, equation, (left, feature), (right, numbers.rhs_spec[1]))
    raise refuse(equation, "mixes the rows")


def _index_axes(ndim: int) -> list[int]:
    """Axes of an array of indices other than the last, which holds one index."""
    return list(range(ndim - 1))


def gather(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """A look-up: by row in a table, in each row by that row's index, or the same places of every row."""
    operand, indices = (context.settle(p) for p in pieces)
    if rows_of(equation, [operand]) is None and rows_of(equation, [indices]) is None:
        return everywhere(context, equation, [operand, indices])
    numbers = equation.params["dimension_numbers"]
    result = range(len(equation.outvars[0].aval.shape))
    batch_axes = [d for d in result if d not in numbers.offset_dims]
    if isinstance(indices.layout, Rows):
        axis, factor = indices.layout
        out = Rows(batch_axes[_index_axes(len(equation.invars[1].aval.shape)).index(axis)], factor)
        table = operand.value()
        if axis in numbers.start_indices_batching_dims:
            own = numbers.operand_batching_dims[list(numbers.start_indices_batching_dims).index(axis)]
            table = operand.rows(context.share, Rows(own, factor))
        elif isinstance(operand.layout, Rows):
            table = context.gather(operand).value()  # a row looks up other rows
        return [by_rows(v, out) for v in apply(equation, [table, indices.value()])]
    axis, factor = operand.layout  # type: ignore[misc]  # rows_of found rows, and the indices have none
    sizes = equation.params["slice_sizes"]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    if axis in numbers.operand_batching_dims:
        own = numbers.start_indices_batching_dims[list(numbers.operand_batching_dims).index(axis)]
        out = Rows(batch_axes[_index_axes(len(equation.invars[1].aval.shape)).index(own)], factor)
        values = [operand.value(), indices.rows(context.share, Rows(own, factor))]
        return [by_rows(v, out) for v in apply(equation, values)]
    if axis in dropped or sizes[axis] != equation.invars[0].aval.shape[axis]:
        return [_other_rows(context, equation, context.gather(operand).value(), indices, batch_axes)]
    window = [d for d in range(len(sizes)) if d not in dropped]
    out = Rows(numbers.offset_dims[window.index(axis)], factor)
    local = context.share.local_shape(sizes, Rows(axis, factor))
    return [by_rows(v, out) for v in apply(equation, [operand.value(), indices.value()], slice_sizes=local)]


def _other_rows(context: Context, equation: Equation, table: Array, indices: Piece, batch_axes: list[int]) -> Piece:
    """Some rows in some order: a replica that needs only its share of them looks up only these."""

    def cut(rows: Rows) -> Array:
        if rows.axis not in batch_axes:
            return context.share.cut(piece.value(), rows)
        places = indices.rows(context.share, Rows(batch_axes.index(rows.axis), rows.factor))
        return apply(equation, [table, places])[0]

    piece = Piece(Spread.WHOLE, lambda: apply(equation, [table, indices.value()])[0], cut)
    return piece


def scatter(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Writes or adds rows to a table, to each row's own place, or to the same places of every row."""
    operand, indices, updates = pieces[0], context.settle(pieces[1]), context.settle(pieces[2])
    is_sum = equation.primitive.name in ("scatter-add", "scatter-sub")
    if not is_sum:
        operand = context.settle(operand)
    if all(not isinstance(p.layout, Rows) for p in (operand, indices, updates)):
        return everywhere(context, equation, [operand, indices, updates])
    numbers = equation.params["dimension_numbers"]
    ndim = len(equation.invars[2].aval.shape)
    batch_axes = [d for d in range(ndim) if d not in numbers.update_window_dims]
    factor = next(p.layout.factor for p in (indices, updates, operand) if isinstance(p.layout, Rows))

    window = [
        d
        for d in range(len(equation.invars[0].aval.shape))
        if d not in numbers.inserted_window_dims and d not in numbers.operand_batching_dims
    ]
    # By its rows' axis in the updates, each case says where the same rows lie in the indices and the operand.
    where: list[tuple[int, int | None, int | None]] = []
    for place, axis in enumerate(batch_axes):
        own = None
        if place in numbers.scatter_indices_batching_dims:
            own = numbers.operand_batching_dims[list(numbers.scatter_indices_batching_dims).index(place)]
        where.append((axis, place, own))
    where += [(axis, None, window[i]) for i, axis in enumerate(numbers.update_window_dims)]

    def fits(piece: Piece, axis: int | None) -> bool:
        return not isinstance(piece.layout, Rows) or piece.layout == Rows(axis if axis is not None else -1, factor)

    def is_full(variable: Any, axis: int | None) -> bool:
        return axis is None or variable.aval.shape[axis] == context.share.batch * factor

    for update_axis, index_axis, own in where:
        if not (fits(updates, update_axis) and fits(indices, index_axis) and fits(operand, own)):
            continue
        if not all(map(is_full, reversed(equation.invars), (update_axis, index_axis, own))):
            continue  # it writes to some of the rows
        rows = Rows(update_axis, factor)
        update = updates.rows(context.share, rows)
        index = indices.value() if index_axis is None else indices.rows(context.share, Rows(index_axis, factor))
        if own is not None:
            table = context.settle(operand).rows(context.share, Rows(own, factor))
            return [by_rows(v, Rows(own, factor)) for v in apply(equation, [table, index, update])]
        if not is_sum:
            raise refuse(equation, "writes rows over one another")
        # Padding adds nothing, but it repeats the last row's place.
        update = context.share.masked(update, rows, 0)
        is_unique = equation.params["unique_indices"] and context.share.is_even
        values = [context.as_partial(operand), index, update]
        return [partial(v) for v in apply(equation, values, unique_indices=is_unique)]
    raise refuse(equation, "writes to other rows of the batch")


def concatenate(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Joins along an axis that is not the rows'."""
    pieces = [context.settle(p) for p in pieces]
    rows = rows_of(equation, pieces)
    if rows is None:
        return [whole(v) for v in apply(equation, [p.value() for p in pieces])]
    if rows.axis == equation.params["dimension"]:
        raise refuse(equation, "joins rows to rows")
    return [by_rows(v, rows) for v in apply(equation, [p.rows(context.share, rows) for p in pieces])]


def stack(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """Joins along a new axis."""
    pieces = [context.settle(p) for p in pieces]
    rows = rows_of(equation, pieces)
    if rows is None:
        return everywhere(context, equation, pieces)
    out = Rows(rows.axis + (equation.params["axis"] <= rows.axis), rows.factor)
    return [by_rows(v, out) for v in apply(equation, [p.rows(context.share, rows) for p in pieces])]


def barrier(context: Context, equation: Equation, pieces: Pieces) -> Pieces:
    """An optimization barrier: values pass as they lie."""
    results = apply(equation, [p.value() for p in pieces])
    return [laid(v, p.layout) for p, v in zip(pieces, results, strict=True)]
