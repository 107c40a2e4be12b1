"""Draws a report as a picture: `python scripts/screenshot.py dure-report.html docs/images/report.png`.

Needs a Chromium (`CHROMIUM` says which), Playwright and Pillow.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def main() -> None:
    """Reads the words of the command line and writes the picture."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("report", type=Path)
    words.add_argument("picture", type=Path)
    words.add_argument("--width", type=int, default=960, help="of the window, in pixels")
    words.add_argument("--height", type=int, default=None, help="of the picture; the whole page if left out")
    words.add_argument("--dark", action="store_true")
    asked = words.parse_args()
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("there is no chromium in the path; set CHROMIUM to one")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        draw(asked.report, shot, browser, width=asked.width, height=asked.height, is_dark=asked.dark)
        asked.picture.parent.mkdir(parents=True, exist_ok=True)
        # 128 colours are enough for flat drawings and make the file a quarter as large.
        colours = Image.open(shot).convert("RGB").quantize(128, dither=Image.Dither.NONE)
        colours.save(asked.picture, optimize=True)
    print(f"{asked.picture}: {asked.picture.stat().st_size / 1024:.0f} KiB")


def draw(report: Path, shot: Path, browser: str, *, width: int, height: int | None, is_dark: bool) -> None:
    """Opens a report in a browser and takes its picture."""
    with sync_playwright() as driver, driver.chromium.launch(executable_path=browser, args=ARGUMENTS) as opened:
        page = opened.new_page(
            viewport={"width": width, "height": height or 800}, color_scheme="dark" if is_dark else "light"
        )
        page.goto(report.resolve().as_uri())
        page.screenshot(path=str(shot), full_page=height is None)


if __name__ == "__main__":
    main()
