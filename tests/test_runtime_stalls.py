"""Workers that do not tick are reported: who, in which clock, for how long."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

import stretto as st
from stretto.runtime.cluster.blocks import driver_runs
from stretto.runtime.tables import stalls
from stretto.runtime.tables.stalls import Stalled, Stalls, WorkerPosition


def test_a_worker_is_reported_after_so_long_and_then_ever_more_rarely() -> None:
    found = Stalls(after=60.0)
    told = []
    for now in range(0, 1000, 10):
        for stalled in found.see(
            now, {0: WorkerPosition(5, "read"), 1: WorkerPosition(5, ""), 2: WorkerPosition(now, "")}
        ):
            told.append((now, stalled))
    assert told == [
        (now, Stalled(1, 5, now, waiting=1)) for now in (60, 120, 240, 480, 960)
    ]  # not the one that waits, nor the one that ticks


def test_a_tick_begins_anew_and_waiting_does_not_count() -> None:
    found = Stalls(after=60.0)
    assert not found.see(0, {0: WorkerPosition(1, "")})
    assert not found.see(59, {0: WorkerPosition(2, "")})
    assert not found.see(118, {0: WorkerPosition(2, "read")})
    assert not found.see(170, {0: WorkerPosition(2, "")})
    assert [stalled.worker for stalled in found.see(178, {0: WorkerPosition(2, "")})] == [0]
    assert not found.see(200, {})


@pytest.mark.parametrize(
    ("waiting", "words"), [(0, "without a tick; if"), (1, "and another waits;"), (3, "and 3 others wait;")]
)
def test_the_words(waiting: int, words: str) -> None:
    said = str(Stalled(3, 7, 61.2, waiting))
    assert said.startswith("worker 3 has been in clock 7 for 61 s without a tick")
    assert words in said


def test_many_are_reported_as_a_few() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stalls.warn([Stalled(worker, 1, 60.0, 0) for worker in range(9)])
    assert len(caught) == 4
    assert "6 more workers" in str(caught[-1].message)


def until_warned(monkeypatch: pytest.MonkeyPatch, go: Any) -> list[str]:
    """Warnings, shown as they come; go() is called with the first that is about worker 1 in clock 2."""
    shown: list[str] = []

    def show(message: Any, *_: Any) -> None:
        shown.append(str(message))
        if shown[-1].startswith("worker 1 has been in clock 2 for "):
            go()

    monkeypatch.setattr(warnings, "showwarning", show)
    monkeypatch.setattr(stalls, "AFTER", 0.05)
    return shown


def test_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker goes on when the warning has been shown: there is nothing to sleep for."""
    go = threading.Event()

    def worker(w: Any) -> None:
        for clock in w.clocks(3):
            w.table("x").read()
            if w.number == 1 and clock == 2:
                assert go.wait(60)
            w.table("x").add([0], [1.0])

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = until_warned(monkeypatch, go.set)
        result = st.run(worker, workers=3, tables={"x": st.tables.Table(rows=1)}, runtime=st.Threads(3))
    assert result.stopped == "done"
    assert any(text.startswith("worker 1 has been in clock 2 for ") for text in shown), shown


def test_on_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "warned"

    def worker(w: Any) -> None:
        for clock in w.clocks(3):
            w.table("x").read()
            while w.number == 1 and clock == 2 and not mark.exists():
                pass
            w.table("x").add([0], [1.0])

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = until_warned(monkeypatch, mark.touch)
        result = st.run(
            worker,
            workers=2,
            tables={"x": st.tables.Table(rows=1)},
            runtime=st.Cluster("processes", nodes=2, patience=30),
        )
    assert result.stopped == "done"
    assert any(text.startswith("worker 1 has been in clock 2 for ") for text in shown), shown


def test_a_visit_that_does_not_end() -> None:
    """On nodes: a warning long before the node counts as lost."""
    from types import SimpleNamespace
    from typing import cast

    from stretto.runtime.cluster.spec import Cluster

    now = [0.0]
    hosts = SimpleNamespace(
        nodes=2,
        where=(0, 1),
        spec=Cluster("processes", nodes=2),
        ask=lambda what, **_: {0: {0: ((3, 17), 0)}, 1: {1: ((3, 20), 2)}},
    )
    runs = driver_runs.Runs(cast(Any, hosts), lambda: now[0])
    plan = cast(Any, SimpleNamespace(block_bytes=1 << 60))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for now[0] in range(0, 300, 5):
            runs._check(plan)
    said = [str(one.message) for one in caught]
    assert [text.split(";")[0] for text in said] == [
        f"node 1, on host 1, has been in one visit for {seconds} s" for seconds in (60, 120, 240)
    ]
    assert all("counts as lost after 600 s" in text for text in said)
