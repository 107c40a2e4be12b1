"""The report in a real browser, where this machine has one: it loads nothing, says nothing, and fits its screen.

What can be read without a browser is tested in tests/unit/advise/test_report.py, which runs everywhere.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from dure.advise.counsel import counsel
from dure.advise.report import advice_page, page
from unit.advise.outlooks import LARGE, outlook, site
from unit.advise.records import loses_to

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
]

if BROWSER is not None:
    from playwright.sync_api import sync_playwright

    def test_the_report_loads_nothing_and_fits_every_screen(tmp_path: Path) -> None:
        report = tmp_path / "report.html"
        report.write_text(page(loses_to("exchange")), encoding="utf-8")
        messages: list[str] = []
        requests: list[str] = []
        with (
            sync_playwright() as driver,
            driver.chromium.launch(executable_path=BROWSER, args=ARGUMENTS) as browser,
        ):
            for width in (360, 768, 1280):
                shown = browser.new_page(viewport={"width": width, "height": 800}, color_scheme="dark")
                shown.on("console", lambda message: messages.append(message.text))
                shown.on("pageerror", lambda error: messages.append(str(error)))
                shown.on("request", lambda request: requests.append(request.url))
                shown.goto(report.as_uri())
                assert shown.evaluate("document.documentElement.scrollWidth") <= width
                letters = shown.locator("figure svg .tick").first.bounding_box()
                assert letters is not None
                assert letters["height"] >= 9  # still to be read on a telephone
                assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
                bars = shown.locator(".fill").all()
                lengths = [box["width"] for bar in bars if (box := bar.bounding_box())]
                assert abs(lengths[1] / lengths[0] - 2.0) < 0.02
        assert messages == []
        assert set(requests) == {report.as_uri()}

    def test_advice_loads_nothing_fits_every_screen_and_no_label_lies_on_another(tmp_path: Path) -> None:
        report = tmp_path / "advice.html"
        strategies = ("single", "mirrored:2", "mirrored:8", "multi-worker:16")
        asked = outlook(LARGE, site=site(), strategies=strategies, batch_size=1024, most=16)
        report.write_text(advice_page(counsel(asked)), encoding="utf-8")
        messages: list[str] = []
        requests: list[str] = []
        with (
            sync_playwright() as driver,
            driver.chromium.launch(executable_path=BROWSER, args=ARGUMENTS) as browser,
        ):
            for width, scheme in ((360, "dark"), (768, "light"), (1280, "dark")):
                shown = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
                shown.on("console", lambda message: messages.append(message.text))
                shown.on("pageerror", lambda error: messages.append(str(error)))
                shown.on("request", lambda request: requests.append(request.url))
                shown.goto(report.as_uri())
                assert shown.evaluate("document.documentElement.scrollWidth") <= width
                for drawing in shown.locator("figure > svg").all():
                    frame = drawing.bounding_box()
                    boxes = [one.bounding_box() for one in drawing.locator("text").all()]
                    assert frame is not None
                    assert len(boxes) > 8
                    for n, box in enumerate(boxes):
                        assert box is not None
                        assert box["height"] >= 8.5  # still to be read on a telephone
                        assert frame["x"] - 1 <= box["x"]
                        assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
                        assert not any(other is not None and overlap(box, other) for other in boxes[n + 1 :])
        assert messages == []
        assert set(requests) == {report.as_uri()}

    def overlap(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
        """Whether two boxes share more than the empty edge around letters."""
        across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
        down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
        return across > 1 and down > 0.4 * min(one["height"], other["height"])
