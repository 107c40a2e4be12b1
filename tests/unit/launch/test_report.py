from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dure.errors import SecurityError
from dure.launch.board import Phase
from dure.launch.report import pack, unpack
from dure.launch.verdict import Raised, Seen

SEEN = st.builds(
    Seen,
    task=st.integers(0, 99).map(lambda index: f"worker:{index}"),
    host=st.text(max_size=20),
    pid=st.integers(0, 2**31),
    phase=st.sampled_from(Phase),
    step=st.integers(0, 2**40),
    quiet_s=st.floats(0, 1e6),
    code=st.none() | st.integers(-64, 255),
    ended_s=st.floats(0, 1e6),
    stopped_s=st.none() | st.floats(0, 1e6),
    raised=st.none() | st.builds(Raised, st.text(max_size=20), st.text(max_size=20)),
    by_peers=st.booleans(),
)


@given(SEEN)
def test_what_is_seen_crosses_as_json(seen: Seen) -> None:
    assert unpack(json.loads(json.dumps(pack(seen)))) == seen


def test_a_traceback_stays_and_words_are_bounded() -> None:
    seen = Seen("worker:0", "h", 1, Phase.USER, 0, 0.0, 1, raised=Raised("E", "x" * 10**6, "Traceback"))
    again = unpack(pack(seen))
    assert again.raised is not None
    assert (len(again.raised.message), again.raised.text) == (4000, "")


GOOD = pack(Seen("worker:0", "h", 1, Phase.USER, 0, 0.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": 3}, "task=3"),
        ({"task": "x" * 300}, "task='xxx"),
        ({"pid": True}, "pid=True"),
        ({"step": None}, "step=None"),
        ({"code": "0"}, "code='0'"),
        ({"phase": "sleep"}, "phase='sleep'"),
        ({"raised": "E"}, "raised='E'"),
        ({"raised": ["E", 3]}, "raised="),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SecurityError, match=words):
        unpack({**GOOD, **change})
