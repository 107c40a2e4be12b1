from __future__ import annotations

import copy
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure import errors

TREE = {
    "SpecError": "DureError",
    "TraceError": "DureError",
    "PlaceError": "DureError",
    "CompileError": "DureError",
    "StepError": "DureError",
    "LostError": "StepError",
    "DeadlineError": "StepError",
    "CancelledError": "StepError",
    "StateError": "DureError",
    "QueueClosedError": "DureError",
    "ClosedError": "DureError",
    "BusyError": "DureError",
    "CheckpointError": "DureError",
    "DataError": "DureError",
    "SecurityError": "DureError",
    "InternalError": "DureError",
}
CLASSES = [getattr(errors, name) for name in ("DureError", *TREE)]
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


def test_the_tree_is_the_one_that_the_design_draws() -> None:
    assert {name: getattr(errors, name).__base__.__name__ for name in TREE} == TREE
    classes = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    assert classes == {"DureError", *TREE}


def test_the_docstring_draws_every_class() -> None:
    drawn = re.findall(r"^[│├└─ ]*(\w+Error)\b", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(["DureError", *TREE])


def test_a_wrong_request_is_also_a_value_error() -> None:
    with pytest.raises(ValueError, match="ask for 2"):
        raise errors.SpecError("asked for 4 devices, there are 2; ask for 2")
    assert [kind for kind in CLASSES if issubclass(kind, ValueError)] == [errors.SpecError]


@pytest.mark.parametrize("kind", CLASSES)
class TestEveryClass:
    def test_its_docstring_says_what_to_do(self, kind: type[errors.DureError]) -> None:
        assert ":" in (kind.__doc__ or "")

    def test_where_it_happened_is_kept(self, kind: type[errors.DureError]) -> None:
        error = kind("text", node="loss/sum", device="/gpu:0", task="/job:ps/task:1", step=7)
        assert (error.node, error.device, error.task, error.step) == (
            "loss/sum",
            "/gpu:0",
            "/job:ps/task:1",
            7,
        )
        assert str(error) == error.message == "text"

    def test_it_knows_nothing_that_it_was_not_told(self, kind: type[errors.DureError]) -> None:
        error = kind("text")
        assert (error.node, error.device, error.task, error.step) == (None, None, None, None)

    def test_where_is_given_by_name_only(self, kind: type[errors.DureError]) -> None:
        with pytest.raises(TypeError, match="positional"):
            kind("text", "loss/sum")  # type: ignore[misc]

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: errors.from_dict(error.to_dict())])
    def test_copies_are_equal(self, kind: type[errors.DureError], copied: object) -> None:
        error = kind("text", node="n", task="t", step=0)
        other = copied(error)  # type: ignore[operator]
        assert type(other) is kind
        assert other.to_dict() == error.to_dict()


@given(st.sampled_from(CLASSES), names, *[st.none() | names] * 3, st.none() | st.integers(0, 2**63))
def test_json_carries_an_error_whole(kind, message, node, device, task, step) -> None:
    error = kind(message, node=node, device=device, task=task, step=step)
    other = errors.from_dict(json.loads(json.dumps(error.to_dict())))
    assert type(other) is kind
    assert other.to_dict() == error.to_dict()


def test_a_class_of_a_newer_peer_keeps_its_name_and_its_place() -> None:
    error = errors.from_dict({"error": "QuotaError", "message": "3 of 2 used", "task": "/job:ps/task:0", "step": 4})
    assert type(error) is errors.StepError
    assert error.message == "QuotaError: 3 of 2 used"
    assert (error.task, error.step, error.node) == ("/job:ps/task:0", 4, None)


def test_only_classes_of_the_tree_are_made_from_a_record() -> None:
    assert type(errors.from_dict({"error": "SystemExit", "message": "0"})) is errors.StepError


class TestNear:
    @pytest.mark.parametrize(
        ("asked", "first"),
        [
            ("MNIST", "mnist"),
            ("fashion-mnist", "fashion_mnist"),
            ("digit", "digits"),
            ("fashon_mnist", "fashion_mnist"),
        ],
    )
    def test_the_likeliest_is_first(self, asked: str, first: str) -> None:
        assert errors.near(asked, ["digits", "fashion_mnist", "mnist"])[0] == first

    def test_nothing_is_near_to_what_is_far(self) -> None:
        assert errors.near("zebra", ["digits", "fashion_mnist", "mnist"]) == []

    def test_the_limit_holds(self) -> None:
        assert len(errors.near("name", [f"name{i}" for i in range(9)], limit=2)) == 2

    @given(names, st.lists(names, max_size=8))
    def test_only_what_exists_is_near(self, asked: str, existing: list[str]) -> None:
        assert set(errors.near(asked, existing)) <= set(existing)

    @given(st.lists(names, min_size=1, max_size=8))
    def test_a_name_is_near_to_itself(self, existing: list[str]) -> None:
        assert errors.near(existing[0], existing)[0].lower().replace("-", "_") == existing[0].lower().replace("-", "_")


class TestHint:
    def test_near_misses_come_first_then_everything(self) -> None:
        text = errors.hint("miror", ["single", "mirrored"])
        assert text == "Did you mean `mirrored`? There are: mirrored, single."

    def test_a_long_list_is_cut_and_counted(self) -> None:
        assert errors.hint("x", [f"n{i}" for i in range(30)], limit=3) == "There are: n0, n1, n10 and 27 more."

    def test_an_empty_list_says_so(self) -> None:
        assert errors.hint("x", []) == "There are none."
