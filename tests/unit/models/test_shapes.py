from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dure.errors import SpecError
from dure.models.pure import Batch
from dure.models.shapes import cast_like, count_rows, describe, explained, same_structure, specs


def test_rows_are_those_of_the_first_input() -> None:
    assert count_rows(Batch({"a": np.zeros((7, 2)), "b": np.zeros((7, 3))})) == 7


def test_a_loop_keeps_its_types() -> None:
    weak = jnp.asarray(1.0) * 2
    cast = cast_like((weak, 3, jnp.float32(1.5)), (np.float32(0), np.int32(0), jnp.bfloat16(0)))
    assert [leaf.dtype.name for leaf in cast] == ["float32", "int32", "bfloat16"]
    assert not any(leaf.weak_type for leaf in cast)


def test_an_error_shows_the_data_and_what_it_said() -> None:
    message = r"cannot add: float32\[3\]\. It raised ValueError: no\. "
    with pytest.raises(SpecError, match=message) as caught, explained("cannot add", np.zeros(3, np.float32)):
        raise ValueError("no")
    assert isinstance(caught.value.__cause__, ValueError)


def test_errors_of_dure_pass_as_they_are() -> None:
    with pytest.raises(SpecError, match=r"^three$"), explained("cannot add", np.zeros(3)):
        raise SpecError("three")


def test_specs_hold_shapes_alone() -> None:
    assert specs({"a": np.zeros((2, 3), np.int8)}) == {"a": jax.ShapeDtypeStruct((2, 3), np.int8)}


def test_structures_are_compared_without_their_leaves() -> None:
    assert same_structure({"a": 1}, {"a": np.zeros(3)})
    assert not same_structure([1], (1,))


def test_nothing_is_described_in_words() -> None:
    assert describe(None) == "nothing"
