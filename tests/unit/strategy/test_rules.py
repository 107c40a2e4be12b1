"""Every rule, on shares of every kind: what replicas compute together is what one device computes of the full batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dure.strategy.layout import Spread
from unit.strategy.programs import FORWARD_ONLY, GROUPS, Results, row_values, whole_values
from unit.strategy.replicas import equals_the_whole

# Four replicas share eight rows evenly, and of five rows they have two, two, one and none.
REPLICAS = 4


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("batch", [8, 5])
def test_values_are_those_of_one_device(name: str, batch: int) -> None:
    expected: dict[str, Any] = {}

    def function(whole: Any, _: Any, rows: Any) -> list[Any]:
        results = GROUPS[name](whole, rows)
        expected.update({result: layout for result, (layout, _) in results.items()})
        return [value for _, value in results.values()]

    found = equals_the_whole(function, whole_values(), row_values(batch), REPLICAS)
    assert dict(zip(expected, found.layouts, strict=True)) == expected


@pytest.mark.parametrize("name", ["reductions", "products"])
def test_a_single_row_is_computed_by_every_replica(name: str) -> None:
    def function(whole: Any, _: Any, rows: Any) -> list[Any]:
        return [value for _, value in GROUPS[name](whole, rows).values()]

    found = equals_the_whole(function, whole_values(), row_values(1), REPLICAS)
    assert set(found.layouts) == {Spread.WHOLE}
    assert found.exchanged == []


@pytest.mark.parametrize("name", [name for name in GROUPS if name not in FORWARD_ONLY])
def test_gradients_are_those_of_one_device(name: str) -> None:
    rows = row_values(5)
    label = rows.pop("label")

    def function(whole: Any, _: Any, rows: Any) -> Any:
        def objective(whole: Any, rows: Any, label: Any) -> Any:
            return combined(GROUPS[name](whole, rows | {"label": label}))

        given = {key: value for key, value in rows.items() if key != "label"}
        return jax.grad(objective, argnums=(0, 1))(whole, given, rows["label"])

    equals_the_whole(function, whole_values(), rows | {"label": label}, REPLICAS)


def combined(results: Results) -> Any:
    """A number that depends on every place of every floating result in its own way."""
    total = jnp.float32(0)
    for place, (_, value) in enumerate(results.values()):
        if jnp.issubdtype(value.dtype, jnp.floating):
            weights = jnp.cos(jnp.arange(value.size, dtype=jnp.float32) + place).reshape(value.shape)
            total = total + jnp.mean(jnp.sin(value) * weights)
    return total


def test_a_program_names_what_every_replica_computes_whole() -> None:
    def function(_: Any, __: Any, rows: Any) -> Any:
        return jnp.sort(rows["x"], axis=0).sum(), jnp.cumsum(rows["x"], axis=1)

    found = equals_the_whole(function, (), row_values(8), 4)
    assert found.computed_whole == ["operation `sort` (float32[8,4]) mixes the rows"]


def test_a_not_a_number_is_not_lost_among_replicas() -> None:
    rows = row_values(8)
    rows["x"][5, 2] = np.nan

    def function(_: Any, __: Any, rows: Any) -> Any:
        return rows["x"].max(0), rows["x"].min(0), rows["x"].sum(0), (rows["x"] > 0).any(0)

    equals_the_whole(function, (), rows, 4)


def test_sums_that_come_in_stay_sums_until_they_are_used() -> None:
    def function(_: Any, sums: Any, rows: Any) -> Any:
        total = sums["total"] + rows["x"].sum(0)
        return total, jnp.maximum(sums["peak"], rows["x"].max(0)), sums["total"] * rows["x"]

    sums = {"total": np.arange(4, dtype=np.float32), "peak": np.full(4, 0.5, np.float32)}
    found = equals_the_whole(function, (), row_values(7), 3, sums=sums)
    assert [str(layout) for layout in found.layouts] == ["Spread.PARTIAL", "Spread.WHOLE", "Rows(axis=0, factor=1)"]


def test_statistics_of_a_batch_are_exchanged_small() -> None:
    def function(whole: Any, _: Any, rows: Any) -> Any:
        def normalised(x: Any) -> Any:
            centred = x - x.mean((0, 1, 2))
            return (centred * jax.lax.rsqrt(jnp.square(centred).mean((0, 1, 2)) + 1e-3)).sum() + jnp.sin(x).sum()

        return jax.grad(normalised)(rows["image"])

    found = equals_the_whole(function, (), row_values(7), 3)
    assert max(np.prod(shape) for _, shape, _ in found.exchanged) == 2  # channels, not rows
