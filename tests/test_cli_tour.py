"""`stretto tour`: every stop shows a result of its own, and says what it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clirun import stretto
from stretto.cli.commands import tour as command
from stretto.cli.tour.stop import Shown
from stretto.cli.tour.stops import STOPS


def show(number: int, folder: Path) -> Shown:
    shown = STOPS[number - 1].run(folder)
    assert "defect" not in shown.says
    assert all(len(line) <= 125 for line in shown.picture.splitlines())
    return shown


def test_a_loop_ends_with_the_bits_of_a_serial_run(tmp_path: Path) -> None:
    shown = show(1, tmp_path)
    losses = shown.facts["losses"]
    assert shown.facts["same_bits"]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.1 * losses[0]
    assert 0 < shown.facts["seconds"] < shown.facts["seconds_python"]
    assert "blocks that differ in both i and j run together" in shown.picture
    assert shown.record is not None
    assert (shown.record / "run.json").is_file()


def test_visits_at_one_time_share_no_block(tmp_path: Path) -> None:
    shown = show(2, tmp_path)
    assert shown.facts["blocks"] == 64
    assert shown.facts["clashes"] == 0
    cells = [cell for line in shown.picture.splitlines()[2:] for cell in line.split()]
    assert sorted(int(cell[1:]) for cell in cells) == list(range(1, 65))
    assert {cell[0] for cell in cells} <= set("ABCD")


def test_ranking_reaches_a_lower_error_for_the_same_bytes(tmp_path: Path) -> None:
    facts = show(3, tmp_path).facts
    assert facts["rmse_ranked"] < 0.98 * facts["rmse_random"]
    assert facts["bytes_ranked"] == pytest.approx(facts["bytes_random"], rel=0.01)


@pytest.mark.slow
def test_staleness_hides_short_delays_that_a_barrier_waits_for(tmp_path: Path) -> None:
    facts = show(4, tmp_path).facts
    assert facts["seconds_barrier"] > 1.3 * facts["seconds_calm"]
    assert facts["seconds_stale"] < 0.8 * facts["seconds_barrier"]


def test_a_killed_node_changes_no_bit(tmp_path: Path) -> None:
    shown = show(5, tmp_path)
    assert shown.facts["same_bits"]
    assert shown.facts["losses"] == 1
    assert shown.facts["seconds_killed"] > shown.facts["seconds"]


def test_stages_of_their_own_width_are_as_fast_and_hold_fewer_cores(tmp_path: Path) -> None:
    facts = show(6, tmp_path).facts
    assert facts["same_bits"]
    assert facts["seconds_mixed"] == facts["seconds_wide"] < 0.5 * facts["seconds_narrow"]
    assert facts["core_seconds_mixed"] < 0.5 * facts["core_seconds_wide"]


def test_the_page_has_the_runs_of_the_tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    said = stretto("tour", "--only", "5", "--browser")
    page = tmp_path / "tour.html"
    assert opened == [page.as_uri()]
    assert b"<title>crash" in page.read_bytes()
    assert "5 of 6" in said.out
    assert (
        "--browser: the stops that were shown leave no run record"
        in stretto("tour", "--only", "6", "--browser", code=2).err
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tour.html"]


def test_the_tour_waits_at_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up stops: what is asked between them, and that q ends the tour."""
    stop = STOPS[0]
    made = tuple(type(stop)(f"stop {k}", "?", lambda folder: Shown("picture", "says", {"k": 1})) for k in range(3))
    monkeypatch.setattr("stretto.cli.tour.stops.STOPS", made)
    asked: list[bool] = []

    def goes_on() -> bool:
        asked.append(True)
        return len(asked) < 2

    monkeypatch.setattr(command, "_goes_on", goes_on)
    assert stretto("tour").out.count("picture") == 3  # neither stdin nor stdout is a terminal
    assert asked == []
    monkeypatch.setattr(command, "_at_a_terminal", lambda: True)
    assert stretto("tour").out.count("picture") == 2
    assert len(asked) == 2
    assert stretto("tour", "--yes").out.count("picture") == 3
    found = json.loads(stretto("tour", "--json", "--only", "3", "--only", "1").out)
    assert [one["number"] for one in found["stops"]] == [3, 1]
    assert len(asked) == 2
    assert "the tour has 3 stops" in stretto("tour", "--only", "4", code=2).err
