"""The report: one page that needs nothing else, says everything, and lets no value become markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dure.advise.compare import Comparison
from dure.advise.counsel import counsel
from dure.advise.record import Failure, Forecast, Record
from dure.advise.report import advice_fragment, advice_page, check_writable, fragment, page, write
from dure.errors import SpecError
from unit.advise.outlooks import LARGE, outlook, separate
from unit.advise.records import loses_to, record

ADVICE = counsel(outlook())
"""What one device wins."""

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Reads a page: its elements, attributes and words, and whether every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("text", [page(loses_to("exchange")), advice_page(ADVICE)], ids=["comparison", "advice"])
def test_it_needs_no_network_and_no_script(text: str) -> None:
    reader = Reader(text)
    assert not reader.all("script")
    assert not reader.all("iframe")
    assert not reader.all("img")
    for _, attributes in reader.elements:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "action", "srcset", "data", "xlink:href"):
            assert attributes.get(name) in (None, "data:,")
    assert "://" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert any("default-src 'none'" in (meta.get("content") or "") for meta in reader.all("meta"))


def test_it_has_every_section() -> None:
    reader = Reader(page(loses_to("exchange")))
    for heading in (
        "Verdict",
        "What was measured",
        "Time to train",
        "Where a step’s time goes",
        "How the loss fell",
        "How to measure it again",
    ):
        assert heading in reader.text
    assert "The largest cause: the exchange, 66 % of the step" in reader.text
    assert "2 virtual cpu" in reader.text
    assert "dure compare" in reader.text
    assert "jax 0.10.2" in reader.text
    assert "Training loss against time" in reader.text
    assert "Training loss against updates" in reader.text
    assert [a.get("class") for a in reader.all("tr")].count("best") == 1


def test_advice_has_every_section() -> None:
    reader = Reader(advice_page(ADVICE))
    for heading in (
        "What is predicted",
        "Where it would be otherwise",
        "Why",
        "What would change the answer",
        "What to know besides",
        "How to ask again",
    ):
        assert heading in reader.text
    assert "Use single: one device is predicted to be the fastest, 6.11 s." in reader.text
    assert "dure advise" in reader.text
    assert "the model at 7 (120 µs), 25 (213 µs), 512 (2.60 ms) rows" in reader.text
    assert [a.get("class") for a in reader.all("tr")].count("best") == 1


def test_a_crossing_is_marked_with_its_batch() -> None:
    found = counsel(outlook(LARGE, separate(2, 2e-3), strategies=("single", "mirrored:2"), batch_size=512))
    low = found.lines[1].pays[-1][0]
    reader = Reader(advice_page(found))
    rings = [one for one in reader.all("circle") if "ring" in (one.get("class") or "")]
    assert len(rings) >= 2
    assert f"mirrored:2: {low:,}" in reader.text


def test_advice_about_one_device_has_no_drawing() -> None:
    reader = Reader(advice_page(counsel(outlook(strategies=("single",)))))
    assert "Where it would be otherwise" not in reader.text
    assert "there is nothing to set against it" in reader.text


def test_what_was_predicted_is_drawn_beside_what_was_measured() -> None:
    assert "what was predicted before the runs" not in Reader(page(loses_to("cores"))).text
    told = replace(loses_to("cores"), forecasts=(Forecast("mirrored:2", 14.0, 0.5e-3),))
    reader = Reader(page(told))
    assert "The dashed line is what was predicted before the runs." in reader.text
    assert "predicted 14.0 s" in reader.text
    assert len([one for one in reader.all("line") if one.get("class") == "forecast"]) == 1


@pytest.mark.parametrize("text", [page(loses_to("cores")), advice_page(ADVICE)], ids=["comparison", "advice"])
def test_its_drawings_are_well_formed_and_described(text: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(drawings) >= 8
    for drawing in drawings:
        root = ET.fromstring(drawing)
        if root.get("aria-hidden") != "true":
            assert root.get("role") == "img"
            assert root.find("title") is not None
            assert root.get("aria-label") or root.find("desc") is not None
    ids = [attributes["id"] for _, attributes in Reader(text).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = {
        name for _, attributes in Reader(text).elements for name in (attributes.get("aria-labelledby") or "").split()
    }
    assert named <= set(ids)


def test_it_suits_dark_rooms_and_narrow_screens() -> None:
    text = page(loses_to("batch"))
    assert "prefers-color-scheme: dark" in text
    assert "max-width: 34rem" in text
    assert any(meta.get("name") == "viewport" for meta in Reader(text).all("meta"))


HOSTILE = '<script>alert("x")</script>&`<b>`'


@pytest.mark.parametrize("render", [page, fragment])
def test_no_value_becomes_markup(render) -> None:  # type: ignore[no-untyped-def]
    base = loses_to("strategy")
    settings = replace(base.settings, model=HOSTILE, data=HOSTILE)
    failure = Failure(HOSTILE, "mirrored:2", HOSTILE, (HOSTILE,))
    facts = replace(base.facts, note=HOSTILE)
    machine = replace(base.machine, processor=HOSTILE, versions={HOSTILE: HOSTILE})
    hostile = replace(base, settings=settings, failures=(failure,), facts=facts, machine=machine, command=HOSTILE)
    text = render(hostile)
    assert "<script" not in text
    assert "<b>" not in text
    assert not Reader(text).all("script")
    assert 'alert("x")' in Reader(text).text


@pytest.mark.parametrize("render", [advice_page, advice_fragment])
def test_no_value_of_advice_becomes_markup(render) -> None:  # type: ignore[no-untyped-def]
    base = outlook(command=HOSTILE)
    facts = replace(base.facts, note=HOSTILE, shape=HOSTILE)
    here = replace(base.here, device=HOSTILE, notes=(HOSTILE,), made=HOSTILE, key={"dure": HOSTILE})
    asked = replace(base.asked, model=HOSTILE, data=HOSTILE)
    text = render(counsel(replace(base, asked=asked, facts=facts, here=here)))
    assert "<script" not in text
    assert "<b>" not in text
    assert 'alert("x")' in Reader(text).text


def test_words_between_backticks_are_code() -> None:
    assert "<code>--sync-every 16</code>" in page(loses_to("exchange"))


@pytest.mark.parametrize(
    "measured",
    [
        record({"single": (), "mirrored:2": ()}, interrupted=True),
        record({"single": (8.0,)}),
        record(
            {"single": (8.0,), "mirrored:2": ()},
            failures=(Failure("mirrored:2, run 1 of 1", "mirrored:2", "it ended", ("last line",)),),
        ),
    ],
    ids=["nothing", "one", "failed"],
)
def test_it_can_be_written_whatever_is_missing(measured: Record) -> None:
    reader = Reader(page(measured))
    assert "How to measure it again" in reader.text
    assert "not known: the measuring runs are missing" in reader.text.lower()
    if measured.failures:
        assert "mirrored:2, run 1 of 1 gave no result: it ended" in reader.text
        assert "last line" in reader.text


def test_a_comparison_saves_and_shows_itself(tmp_path: Path) -> None:
    comparison = Comparison(loses_to("exchange"))
    path = comparison.save(tmp_path / "report.html")
    assert path.read_text() == page(comparison.record)
    comparison.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    assert path.stat().st_mode & 0o777 == 0o644
    assert "<table>" in comparison._repr_html_()
    assert "Use single" in comparison._repr_html_()
    assert comparison.table in str(comparison)
    assert comparison.verdict in str(comparison)
    plain = comparison.to_dict()
    assert plain["verdict"]["judgements"][0]["main_cause"] == "the exchange"
    assert Record.from_dict(plain) == comparison.record
    assert plain["table"][1]["devices"] == "2 virtual cpu"


def test_a_record_of_another_format_is_refused() -> None:
    with pytest.raises(SpecError, match="of format 99 was given, this version reads format 2"):
        Record.from_dict({**record({"single": (8.0,)}).to_dict(), "format": 99})


def test_a_path_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"there is no folder .*nowhere; make it first"):
        check_writable(tmp_path / "nowhere" / "r.html")
    with pytest.raises(SpecError, match=r"which is a folder; name a file in it"):
        write(tmp_path, "x")
    with pytest.raises(SpecError, match=r"the report was to be written to .*File name too long; name another path"):
        write(tmp_path / ("r" * 300), "x")
    assert list(tmp_path.iterdir()) == []
