"""Splits a full-batch program by rows: an interpreter that computes what one replica has of each value.

The program is traced once, at the full batch, exactly as a single device would run it, gradients included. Inside a
mapped program each replica then walks its equations with the rules of `rules` and `contract`. So the numbers are the
single device's by construction: the mean is over the full batch because the traced program says so, statistics of a
batch are summed over all rows, and a draw is the single device's draw.
"""

from typing import Any

import jax

from dure import _jax
from dure.strategy import contract, control, rules
from dure.strategy.layout import NotSplit, Piece, Rows, Spread, by_rows, laid, partial, whole
from dure.strategy.rules import Context, Equation, Pieces, Rule

PyTree = Any
ClosedJaxpr = Any

ELEMENTWISE = frozenset(
    {
        "abs",
        "acos",
        "acosh",
        "add",
        "add_any",
        "and",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "bessel_i0e",
        "bessel_i1e",
        "bitcast_convert_type",
        "cbrt",
        "ceil",
        "clamp",
        "clz",
        "complex",
        "conj",
        "convert_element_type",
        "copy",
        "cos",
        "cosh",
        "digamma",
        "div",
        "eq",
        "eq_to",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "ge",
        "gt",
        "igamma",
        "igamma_grad_a",
        "igammac",
        "imag",
        "integer_pow",
        "is_finite",
        "le",
        "le_to",
        "lgamma",
        "log",
        "log1p",
        "logistic",
        "lt",
        "lt_to",
        "max",
        "min",
        "mul",
        "mulhi",
        "name",
        "ne",
        "neg",
        "nextafter",
        "not",
        "or",
        "polygamma",
        "population_count",
        "pow",
        "real",
        "reduce_precision",
        "regularized_incomplete_beta",
        "rem",
        "round",
        "rsqrt",
        "select_n",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "stop_gradient",
        "sub",
        "tan",
        "tanh",
        "xor",
        "zeta",
    }
)
"""Operations whose result's elements come each from the operands' elements at the same place."""

ALONG: dict[str, Any] = {
    "cholesky": rules.last_axes(2),
    "eigh": rules.last_axes(2),
    "fft": lambda e: rules.last_axes(len(e.params["fft_lengths"]))(e),
    "householder_product": rules.last_axes(2),
    "lu": rules.last_axes(2),
    "qr": rules.last_axes(2),
    "svd": rules.last_axes(2),
    "tile": lambda e: [axis for axis, count in enumerate(e.params["reps"]) if count != 1],
    "triangular_solve": rules.last_axes(2),
    "cumsum": lambda e: [e.params["axis"]],
    "cumprod": lambda e: [e.params["axis"]],
    "cummax": lambda e: [e.params["axis"]],
    "cummin": lambda e: [e.params["axis"]],
    "cumlogsumexp": lambda e: [e.params["axis"]],
    "rev": lambda e: e.params["dimensions"],
    "sort": lambda e: [e.params["dimension"]],
    "split": lambda e: [e.params["axis"]],
    "top_k": lambda e: [e.params["axis"]],
    "reduce_window_max": rules.window_axes,
    "reduce_window_min": rules.window_axes,
    "reduce_window_sum": rules.window_axes,
    "reduce_window": rules.window_axes,
    "select_and_scatter_add": rules.window_axes,
    "select_and_gather_add": rules.window_axes,
}
"""Operations that mix elements along some axes only, with these axes."""

RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, rules.elementwise),
    **{name: rules.along(axes) for name, axes in ALONG.items()},
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"), rules.reduce),
    **dict.fromkeys(("argmax", "argmin"), rules.arg_reduce),
    "broadcast_in_dim": rules.broadcast_in_dim,
    "concatenate": contract.concatenate,
    "conv_general_dilated": contract.convolution,
    "dot_general": contract.dot_general,
    "dynamic_slice": rules.dynamic_slice,
    "dynamic_update_slice": rules.dynamic_update_slice,
    "gather": contract.gather,
    "iota": rules.iota,
    "optimization_barrier": contract.barrier,
    "pad": rules.pad,
    "random_bits": rules.random_bits,
    "random_split": rules.random_split,
    "reshape": rules.reshape,
    **dict.fromkeys(
        ("scatter", "scatter-add", "scatter-max", "scatter-min", "scatter-mul", "scatter-sub"), contract.scatter
    ),
    "slice": rules.slice_,
    "squeeze": rules.squeeze,
    "stack": contract.stack,
    "transpose": rules.transpose,
    "unstack": rules.unstack,
}

BODIES = {"scan": control.scan, "cond": control.cond}
"""Operations that hold programs and run them more or less than once."""

INLINE = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
"""Operations that hold a program and run it once, with the parameter that holds it. Their rules of differentiation have
done their work before the split."""


def walk(context: Context, program: ClosedJaxpr, operands: Pieces) -> Pieces:
    """Computes a program's results from its operands, equation by equation.

    Args:
        context: the share of rows and the exchange.
        program: the full-batch program.
        operands: one piece an argument.

    Returns:
        One piece a result.

    Raises:
        NotSplit: an operation has effects, which every replica would have.
    """
    jaxpr = program.jaxpr
    pieces: dict[Any, Piece] = {}
    pieces.update(zip(jaxpr.constvars, map(whole, program.consts), strict=True))
    pieces.update(zip(jaxpr.invars, operands, strict=True))

    def read(atom: Any) -> Piece:
        return whole(atom.val) if _jax.is_literal(atom) else pieces[atom]

    for equation in jaxpr.eqns:
        operands = [read(v) for v in equation.invars]
        # A sum that was exchanged for one use is whole for the next.
        known = [p.shared if p.shared and p.layout is Spread.PARTIAL else p for p in operands]
        results = step(context, equation, known)
        pieces.update(zip(equation.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def step(context: Context, equation: Equation, operands: Pieces) -> Pieces:
    """Computes one equation's results."""
    name = equation.primitive.name
    if name in INLINE:
        inner = _jax.closed(equation.params[INLINE[name]])
        if equation.params.get("differentiated") and equation.params.get("prevent_cse"):
            # The second forward pass of a checkpoint must stay a second one, or the memory it saves is spent.
            values = jax.lax.optimization_barrier([p.value() for p in operands])
            operands = [laid(v, p.layout) for p, v in zip(operands, values, strict=True)]
        return walk(context, inner, operands)
    if equation.effects:
        raise rules.refuse(equation, f"has effects {sorted(map(str, equation.effects))}")
    rule = BODIES[name](walk) if name in BODIES else RULES.get(name, rules.everywhere)
    try:
        return rule(context, equation, operands)
    except NotSplit as why:
        context.computed_whole.append(str(why))
        return rules.everywhere(context, equation, [context.gather(piece) for piece in operands])


def split(context: Context, program: ClosedJaxpr, *, whole_in: PyTree, partial_in: PyTree, rows_in: PyTree) -> Pieces:
    """Computes a program whose arguments are, in this order: whole values, sums, and rows of the batch.

    Args:
        context: the share of rows and the exchange.
        program: traced from a function of `(whole_in, partial_in, rows_in)`.
        whole_in: pytree; every replica has all of each leaf.
        partial_in: pytree; each leaf is a sum of the replicas' parts.
        rows_in: pytree; each leaf `[share.size, ...]`, this replica's rows.

    Returns:
        One piece a result leaf.

    Raises:
        NotSplit: an operation has effects.
    """
    # A single row has nothing to share, and a traced program treats an axis of length 1 as it likes: every replica
    # computes it, and what is summed counts the first one's.
    rows = whole if context.share.batch == 1 else lambda leaf: by_rows(leaf, Rows(0))
    operands = [
        *map(whole, jax.tree.leaves(whole_in)),
        *map(partial, jax.tree.leaves(partial_in)),
        *map(rows, jax.tree.leaves(rows_in)),
    ]
    return walk(context, program, operands)


def settle_all(context: Context, pieces: Pieces) -> list[Any]:
    """The whole value of each piece, the sums exchanged last and together."""
    open_sums = {id(piece): piece for piece in pieces if piece.layout is Spread.PARTIAL and piece.shared is None}
    totals = context.exchange.sum_all([piece.value() for piece in open_sums.values()])
    for piece, total in zip(open_sums.values(), totals, strict=True):
        piece.shared = whole(total)
    return [context.gather(piece).value() for piece in pieces]


def partial_all(context: Context, pieces: Pieces) -> list[Any]:
    """Each piece as this replica's part of a sum."""
    return [context.as_partial(context.gather(p) if isinstance(p.layout, Rows) else p) for p in pieces]


def rows_all(context: Context, pieces: Pieces) -> list[Any]:
    """Each piece as this replica's rows of axis 0."""
    own = [piece if piece.layout == Rows(0) else context.gather(piece) for piece in pieces]
    return [piece.rows(context.share, Rows(0)) for piece in own]
