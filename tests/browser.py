"""Debian's Chromium without a window, driven by Playwright, for tests of pages.

`browser` is a fixture of `conftest.py`. Tests read what the console received (`problems`) and every address that a page
asked for (`requests`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
PATIENCE = 60_000  # milliseconds


class Browser:
    """One page of one browser.

    Attributes
    ----------
    page : playwright.sync_api.Page
    problems : list of str
        What the console received since the page was opened, and errors of scripts.
    requests : list of str
        Every address asked for since then.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda said: self.problems.append(said.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, address: Path | str, link: str = "", width: int = 1400, height: int = 900) -> None:
        """Open a file, or an address."""
        self.page.set_viewport_size({"width": width, "height": height})
        # From an empty page: another #link alone would not load the file again.
        self.page.goto("about:blank")
        self.problems.clear()
        self.requests.clear()
        self.page.goto((address if isinstance(address, str) else address.as_uri()) + link, wait_until="load")

    def js(self, expression: str) -> Any:
        """The value of an expression, after the page has drawn what was asked of it."""
        drawn = "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));"
        return self.page.evaluate(f"async () => {{ {drawn} return {expression}; }}")

    def wait(self, expression: str) -> None:
        """Until the expression holds; what the browser does by itself, it does in its own time."""
        self.page.wait_for_function(f"() => {expression}", timeout=PATIENCE)

    def texts(self, selector: str) -> list[str]:
        self.js("0")
        return [str(text) for text in self.page.locator(selector).all_text_contents()]

    def click(self, selector: str) -> None:
        """Press the mouse where the element is; fails when something else lies over it."""
        self.page.locator(selector).first.click()

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.insert_text(text)

    def faults(self) -> list[tuple[str, list[str]]]:
        """Serious faults of accessibility: the rule, and the elements that break it."""
        import axe_core_python  # type: ignore[import-untyped]

        script = Path(axe_core_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
        self.page.evaluate(script)
        found = self.page.evaluate("async () => (await axe.run()).violations")
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        return [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious]

    def prefers(self, scheme: str) -> None:
        """Ask for the "dark" or the "light" theme."""
        self.page.emulate_media(color_scheme=scheme)


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """A browser with an empty page; without Chromium the test is skipped, or fails under `make test-full`."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        why = "no Chromium to open pages with; install chromium"
        if os.environ.get("STRETTO_TEST_FULL"):
            pytest.fail(why)
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(FLAGS), headless=True)
        try:
            yield Browser(chromium.new_page())
        finally:
            chromium.close()
