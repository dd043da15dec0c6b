"""The page of runs: text that cannot run, and what a real browser makes of it."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

import stretto as st
from browser import Browser
from page_records import events, record, state_of
from stretto.errors import PlanError, RunError
from stretto.observe.events import EpochDone, RunEnded, Warned
from stretto.observe.page.document import PARTS, report, with_findings
from stretto.observe.page.server import PageServer
from stretto.observe.record import RunRecord

NASTY = "</script><b>bold</b><script>window.ran = 1</script>"


def write(tmp_path: Path, *states: dict[str, Any]) -> Path:
    path = tmp_path / "report.html"
    path.write_bytes(report(states))
    return path


@pytest.fixture
def state(tmp_path: Path) -> dict[str, Any]:
    return state_of(record(tmp_path / "one"))


def test_parts_are_the_whole_state(state: dict[str, Any]) -> None:
    keys = [key for part in PARTS.values() for key in part]
    assert sorted(keys) == sorted(with_findings(state))


def test_text_is_inert_in_the_file(state: dict[str, Any]) -> None:
    content = report([state | {"name": NASTY, "config": {NASTY: NASTY}, "plan": NASTY}]).decode()
    assert NASTY not in content
    assert html.escape(NASTY) in content
    assert len(re.findall("<script", content)) == 2


def test_a_report_is_drawn(browser: Browser, tmp_path: Path, state: dict[str, Any]) -> None:
    path = write(tmp_path, state)
    browser.open(path)
    assert browser.texts("h1") == ["one"]
    assert browser.texts("#runs-table tbody th") == ["one"]
    assert browser.texts("#runs-table .status") == ["done"]
    assert "Warning: the disk is slow" in browser.texts("#findings-list li")
    assert browser.texts("#convergence-y option") == ["objective", "test RMSE"]
    assert browser.js("document.querySelectorAll('#convergence-chart .curve').length") == 1
    assert browser.js("document.querySelectorAll('#convergence-chart circle').length") == 6
    assert browser.texts("#lanes-table tbody th") == ["worker 0", "worker 1"]
    assert browser.texts("#lanes-table tbody tr:nth-child(2) td")[1:3] == ["50 %", "50 %"]
    assert browser.texts("#notes-table tbody th") == ["end", "warning", "checkpoint"]
    assert browser.texts("#plan-text")[0].startswith("plan f00d")
    assert browser.problems == []
    assert {url.partition("#")[0] for url in browser.requests} == {path.as_uri()}


def test_charts_zoom_and_say_what_is_under_the_pointer(browser: Browser, tmp_path: Path, state: dict[str, Any]) -> None:
    browser.open(write(tmp_path, state))
    page = browser.page
    chart = page.locator("#convergence-chart > svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.97, box["y"] + 50)
    assert browser.texts("#convergence-chart .values")[0] == "epochs 6: one 1.167"
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.99, box["y"] + 50)
    page.mouse.up()
    assert browser.js("document.querySelectorAll('#convergence-chart circle').length") == 3
    browser.click("#convergence-reset")
    assert browser.js("document.querySelectorAll('#convergence-chart circle').length") == 6
    page.select_option("#convergence-y", "objective")
    page.check("#convergence-log")
    page.select_option("#convergence-x", "seconds")
    chart.focus()
    browser.press("Home")
    assert browser.texts("#convergence-chart .values")[0] == "seconds in epochs 0.5: one 8"
    browser.press("ArrowRight")
    assert browser.texts("#convergence-chart .values")[0] == "seconds in epochs 1: one 4"
    lanes = page.locator("#lanes-chart")
    lanes.scroll_into_view_if_needed()
    box = lanes.bounding_box()
    page.mouse.move(box["x"] + 90, box["y"] + 8)
    assert browser.texts("#lanes-hover") == ["worker 0: row block 0, column block 0, from 0 ms for 1 ms"]
    page.mouse.move(box["x"] + 74 + 0.095 * (box["width"] - 82), box["y"] + 30)
    assert browser.texts("#lanes-hover") == ["worker 1 waits"]
    browser.click("#lanes-in")
    assert browser.js("lanes.view") == [2000, 6000]
    lanes.focus()
    browser.press("ArrowLeft")
    assert browser.js("lanes.view") == [0, 4000]
    browser.press("Escape")
    assert browser.js("lanes.view") is None
    assert browser.problems == []


def test_several_runs_are_compared(browser: Browser, tmp_path: Path, state: dict[str, Any]) -> None:
    other = state_of(record(tmp_path / "two", config={"estimator": "Made", "seed": 4}, epochs=3))
    browser.open(write(tmp_path, state, other))
    assert browser.texts("#convergence-chart .legend li") == ["one", "two"]
    assert browser.texts("#settings-table .differs th") == ["seed"]
    browser.page.select_option("#run", "1")
    assert "Epoch 3" in browser.texts("#lanes-about")[0]
    assert browser.problems == []


def test_nasty_text_is_shown_and_not_run(browser: Browser, tmp_path: Path) -> None:
    nasty = record(tmp_path / "nasty", Warned(NASTY), config={NASTY: NASTY}, status=None)
    state = state_of(nasty)
    state["series"][NASTY] = state["series"]["objective"]
    state["lanes"]["passes"] = [NASTY]
    browser.open(write(tmp_path, state | {"name": NASTY, "plan": NASTY, "message": NASTY, "status": "failed"}))
    assert browser.texts("h1") == [NASTY]
    assert any(NASTY in text for text in browser.texts("#notes-table td"))
    assert browser.js("window.ran === undefined && document.querySelectorAll('b').length === 0")
    assert browser.problems == []


def test_a_run_without_epochs_or_lanes(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "young"
    kept = RunRecord(folder)
    kept(next(events()))
    browser.open(write(tmp_path, state_of(folder)))
    kept.close()
    assert browser.texts("#convergence-chart .values") == ["Nothing has been recorded yet."]
    assert not browser.page.locator("#lanes").is_visible()
    assert browser.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_people_can_use_it(browser: Browser, tmp_path: Path, state: dict[str, Any], scheme: str, width: int) -> None:
    """No serious fault of accessibility, and no sideways scrolling of the page."""
    browser.prefers(scheme)
    browser.open(write(tmp_path, state, state | {"name": "two", "status": "failed"}), width=width)
    assert browser.faults() == []
    assert browser.js("document.documentElement.scrollWidth <= window.innerWidth")
    browser.page.emulate_media(color_scheme="null")


def test_a_live_page_follows_its_run(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "live"
    kept = RunRecord(folder)
    *made, last = events(3, status=None)
    for event in made:
        kept(event)
    with PageServer([folder], interval=0.01) as server:
        browser.open(server.url)
        browser.wait("document.querySelector('#pulse').textContent === 'live, 1 running'")
        assert browser.js("document.querySelectorAll('#convergence-chart circle').length") == 3
        kept(EpochDone(2000.0, 4, 4, 0.5, 100, 0.125, {"test_rmse": 1.01}))
        browser.wait("document.querySelectorAll('#convergence-chart circle').length === 4")
        kept(last)
        browser.wait("document.querySelector('#findings-list').textContent.includes('the disk is slow')")
        kept(RunEnded(2001.0, "done"))
        browser.wait("document.querySelector('#runs-table .status').textContent === 'done'")
        kept.close()
        assert browser.problems == []
        assert {url.split("/")[2] for url in browser.requests} == {f"127.0.0.1:{server.port}"}
    browser.wait("document.querySelector('#pulse').textContent.includes('the server has ended')")


def test_a_report_of_runs_in_python(tmp_path: Path) -> None:
    record(tmp_path / "runs" / "one")
    assert st.report(tmp_path / "runs", tmp_path / "new" / "r.html").read_bytes().startswith(b"<!doctype html>")
    with pytest.raises(PlanError, match="name at least one run record"):
        st.report([])
    with pytest.raises(PlanError, match="runs are folders of run records; got 3"):
        st.dashboard(3)  # type: ignore[arg-type]
    with pytest.raises(RunError, match="cannot be written"):
        st.report(tmp_path / "runs", "/proc/nothing/report.html")
