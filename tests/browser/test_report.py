"""The report in a real browser, where this machine has one: it loads nothing, says nothing, and fits its screen.

What can be read without a browser is tested in tests/unit/advise/test_report.py, which runs everywhere.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from dure.advise.report import page
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
