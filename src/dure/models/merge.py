"""Whether accumulators of several replicas can be merged by adding them."""

from __future__ import annotations

from typing import Any

from dure import _jax

__all__ = ["is_running_sum"]

ClosedJaxpr = Any

_SAME = {"copy", "convert_element_type", "stop_gradient"}
"""Operations whose result is their operand's value."""


def is_running_sum(program: ClosedJaxpr, start: int, result: int) -> bool:
    """Whether a program only adds to one of its arguments what does not depend on it.

    Args:
        program: traced.
        start: the argument's number, among the flat arguments.
        result: the number of the result that it becomes.

    Returns:
        True where that is so; False where it is not, or is done in a way that is not seen through.

    Example:
        >>> import jax
        >>> step = lambda total, highest, x: (total + x, jax.numpy.maximum(highest, x))
        >>> program = jax.make_jaxpr(step)(0.0, 0.0, 1.0)
        >>> is_running_sum(program, 0, 0), is_running_sum(program, 1, 1)
        (True, False)
    """
    jaxpr = program.jaxpr
    touched = {jaxpr.invars[start]}
    makers: dict[Any, Any] = {}
    for equation in jaxpr.eqns:
        makers.update(dict.fromkeys(equation.outvars, equation))
        if any(not _jax.is_literal(atom) and atom in touched for atom in equation.invars):
            touched.update(equation.outvars)
    atom = jaxpr.outvars[result]
    while atom is not jaxpr.invars[start]:
        if _jax.is_literal(atom) or atom not in makers:
            return False
        equation = makers[atom]
        name = equation.primitive.name
        from_start = [a for a in equation.invars if not _jax.is_literal(a) and a in touched]
        if len(from_start) != 1 or name not in {*_SAME, "add", "add_any"}:
            return False
        (atom,) = from_start
    return True
