"""Panes of tables, tasks and memory plans: real runs are recorded, summed up in a bounded size, and drawn."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as hs

import stretto as st
from browser import Browser
from cluster_hosts import InProcess, close_all
from page_records import state_of
from stretto.errors import PlanError
from stretto.observe.events import ClocksMeasured, Event, LinksMeasured, MemoryPlanned, RunStarted, StageDone
from stretto.observe.log import EVENTS, encode
from stretto.observe.page.document import report
from stretto.observe.page.findings import findings
from stretto.observe.page.process import Dashboard
from stretto.observe.page.samples import Samples
from stretto.observe.page.summaries import _apart
from stretto.observe.page.tail import RecordTail
from stretto.runtime.tables.job import TableEvaluation, TableMeasure
from stretto.runtime.tables.monitor import TableMonitor

KEYS = np.arange(40)
NASTY = "</script><b>bold</b><script>window.ran = 1</script>"


def worker(w: Any) -> None:
    x = w.table("x")
    for clock in w.clocks(12):
        x.add(KEYS, 0.1 * (w.random(clock).standard_normal((40, 4)) - x.read(KEYS)))
        w.work(100)


def tables(folder: Path, **how: Any) -> Any:
    """A run over tables that is recorded."""
    simulated = st.Simulated(nodes=3, threads=1, seconds_per_item=1e-4, speed=(1, 1, 0.4))
    options: dict[str, Any] = {"runtime": simulated, "tables": {"x": st.tables.Table(rows=40, cols=4)}, "watch": _size}
    return st.run(worker, workers=3, session=st.Session(record=folder), **(options | how))


def _size(view: Any) -> float:
    return float(np.square(view["x"]).mean())


def task(folder: Path) -> Any:
    """A task whose width is measured, recorded."""
    x, total = np.ones((400, 2)), st.zeros(2, "f8")

    def add(worker: Any, x: Any, total: Any) -> None:
        worker.work(len(x))
        total.add([0, 1], x.sum(axis=0))

    def size(worker: Any, total: Any) -> float:
        return 1.0 / float(total.read().sum())

    turn = st.seq(st.unit(add, x, total, workers="auto", iterations=12), st.unit(size, total, parts=1, workers=1))
    where = st.Simulated(nodes=2, threads=4, seconds_per_item=1e-4)
    return st.run(st.loop(turn, times=4), runtime=where, session=st.Session(record=folder))


@given(hs.integers(2, 40), hs.integers(0, 300))
def test_samples_keep_their_shape_and_the_newest_row(limit: int, count: int) -> None:
    samples: Samples[int] = Samples(limit)
    for row in range(count):
        samples.add(row)
        assert samples.rows()[-1] == row
        assert len(samples.rows()) <= limit + 1
    assert len(set(np.diff(samples.rows()[:-1]))) <= 1
    assert len(samples) == count


def test_a_run_over_tables(tmp_path: Path) -> None:
    policy = st.tables.Managed("2Mbit", rank="absolute", links={(0, 1): "1Mbit"})
    result = tables(tmp_path / "run", sync=st.tables.SSP(2), comm=policy, record="rows")
    state = state_of(tmp_path / "run")
    assert (state["status"], state["config"]["sync"]) == ("done", str(st.tables.SSP(2)))
    assert state["fingerprint"] == result.plan.fingerprint
    assert state["series"]["objective"] == [look.objective for look in result.history[1:]]
    clocks, links = state["clocks"], state["links"]
    assert clocks["bound"] == 2
    assert clocks["workers"] == list(result.clocks)
    total = result.staleness.sum(axis=0)
    assert clocks["staleness"] == total[: len(clocks["staleness"])].tolist()
    assert sum(clocks["staleness"]) == total.sum() == 3 * 12 * 40
    assert max(high - low for _, low, high in clocks["spread"]) <= 3
    assert clocks["spread"][-1][1:] == [12, 12]
    waits = sum(result.recording.waits.values())
    np.testing.assert_allclose(clocks["waits"], waits, atol=1e-5)
    assert any(f"worker {np.argmin(waits)} is the slowest" in one.text for one in findings(state))
    sent = {(one.source, one.target): 0 for one in result.traffic}
    for one in result.traffic:
        sent[one.source, one.target] += one.nbytes
    assert {(a, b): nbytes for a, b, nbytes in links["links"]} == sent
    assert sum(links["reasons"].values()) == sum(sent.values())
    steps = np.diff([0.0, *links["rates"]["nodes"]["at"]])
    for name, rates in links["rates"]["nodes"]["curves"].items():
        own = sum(nbytes for (source, _), nbytes in sent.items() if source == int(name))
        assert np.dot(rates, steps) == pytest.approx(own)
    assert (links["budget"], links["limits"], links["rank"]) == (250_000.0, [[0, 1, 125_000.0]], "absolute")
    steps = np.diff([0.0, *links["rates"]["links"]["at"]])
    for name, rates in links["rates"]["links"]["curves"].items():  # bytes per second, over the whole run
        source, target = map(int, name.split(" to "))
        assert np.dot(rates, steps) == pytest.approx(sent[source, target])
    table, row, times = links["first"][0]
    assert table == "x"
    assert times == result.recording.row_sends(0).max() == result.recording.row_sends(0)[row]


def test_one_process_has_clocks_and_no_links(tmp_path: Path) -> None:
    result = tables(tmp_path / "run", runtime=st.Threads(2), sync=st.tables.SSP(1))
    state = state_of(tmp_path / "run")
    assert state["links"] is None
    assert sum(state["clocks"]["staleness"]) == result.staleness.sum()
    assert state["clocks"]["spread"][-1][1:] == [12, 12]


def test_hosts_report_what_they_counted_at_the_end(tmp_path: Path) -> None:
    result = tables(tmp_path / "run", runtime=InProcess(3, threads=1), sync=st.tables.SSP(1))
    close_all()
    state = state_of(tmp_path / "run")
    assert sum(state["clocks"]["staleness"]) == result.staleness.sum()
    assert state["clocks"]["workers"] == [12, 12, 12]
    assert sum(link[2] for link in state["links"]["links"]) == sum(one.nbytes for one in result.traffic)
    assert len(state["links"]["rates"]["links"]["at"]) == 1  # while they run they report sums by node
    assert len(state["links"]["rates"]["nodes"]["curves"]) == 3


def test_listening_changes_no_bit(tmp_path: Path) -> None:
    plan = st.tables.plan(worker, tables={"x": st.tables.Table(rows=40, cols=4)}, workers=3, runtime=st.Threads(2))
    kept = plan.run(session=st.Session(record=tmp_path / "run"))
    assert kept.tables["x"].tobytes() == plan.run().tables["x"].tobytes()


def test_a_run_that_fails_is_recorded(tmp_path: Path) -> None:
    def fails(w: Any) -> None:
        raise ValueError("no luck")

    with pytest.raises(Exception, match="no luck"):
        st.run(fails, tables={"x": st.tables.Table(rows=1, cols=1)}, session=st.Session(record=tmp_path / "run"))
    state = state_of(tmp_path / "run")
    assert state["status"] == "failed"
    assert "no luck" in state["message"]


def test_runs_print_the_link_of_their_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Path] = []

    def start(folders: list[Path]) -> Dashboard:
        shown.extend(folders)
        return Dashboard(None, f"http://127.0.0.1:1/{folders[0].name}")  # type: ignore[arg-type]

    monkeypatch.setattr("stretto.observe.page.process.start", start)
    session = st.Session(record=tmp_path / "tables", dashboard=True)
    st.run(worker, tables={"x": st.tables.Table(rows=40, cols=4)}, runtime=st.Serial(), session=session)
    session = st.Session(record=tmp_path / "task", dashboard=True)
    st.run(st.unit(lambda worker: None, parts=1, name="nothing"), runtime=st.Serial(), session=session)
    links = capsys.readouterr().err.splitlines()
    assert links == [f"live page: http://127.0.0.1:1/{name}" for name in ("tables", "task")]
    assert shown == [tmp_path / "tables", tmp_path / "task"]


def test_sessions_that_a_run_cannot_use(tmp_path: Path) -> None:
    saving = st.Session(saving=st.Saving(tmp_path))
    wanted = {"x": st.tables.Table(rows=1, cols=1)}
    with pytest.raises(PlanError, match="run: session= has saving= or resume="):
        st.run(worker, tables=wanted, session=saving)
    with pytest.raises(PlanError, match="session"):
        st.run(worker, tables=wanted, session="runs")  # type: ignore[call-overload]


def test_measuring_takes_a_small_share() -> None:
    told: list[Event] = []
    monitor = TableMonitor(told.append, st.tables.BSP(), st.tables.Eager())

    def measure() -> TableMeasure:
        time.sleep(0.01)
        return TableMeasure(1.0, [1, 2])

    began = time.monotonic()
    for _ in range(300_000):
        monitor.moved(measure)
    assert 1 <= len(told) <= 1 + (time.monotonic() - began) / 0.5
    monitor.evaluated(TableEvaluation(0, 0.0, 0, 3.0))
    monitor.evaluated(TableEvaluation(5, 2.0, 10, 1.0))
    assert (told[-1].epoch, told[-1].seconds, told[-1].items) == (1, 2.0, 5)  # type: ignore[union-attr]


def test_a_task(tmp_path: Path) -> None:
    result = task(tmp_path / "run")
    state = state_of(tmp_path / "run")
    stages = state["stages"]
    assert stages["count"] == len(result.stages) == len(stages["stages"])
    for (unit, begin, end, width), stage in zip(stages["stages"], result.stages, strict=True):
        assert (unit, width) == (stage.unit, stage.width)
        assert end - begin == pytest.approx(stage.seconds)
    assert len({width for unit, _, _, width in stages["stages"] if unit == "add"}) > 1
    assert [row[-1] for row in stages["why"]] == [stage.reason for stage in result.stages]
    assert state["series"]["objective"] == result.history("size")
    assert state["series"]["seconds"][-1] == pytest.approx(result.seconds)


def test_a_loop_that_chooses_its_staleness(tmp_path: Path) -> None:
    w = st.zeros(4, "f8")

    def steps(worker: Any, w: Any) -> None:
        worker.work(10 if worker.part else 40)
        w.add(np.arange(4), -0.005 * (w.read() - 1.0))

    def loss(worker: Any, w: Any) -> float:
        return float(np.square(w.read() - 1.0).sum())

    until = st.below(st.unit(loss, w, parts=1), 0.05)
    loop = st.loop(st.unit(steps, w, parts=4, iterations=10), until=until, times=12, sync="adaptive")
    where = st.Simulated(nodes=4, threads=1, seconds_per_item=1e-4)
    result = st.run(loop, runtime=where, session=st.Session(record=tmp_path / "run"))
    state = state_of(tmp_path / "run")
    moves = [move for move in result.moves if move.knob == "staleness"]
    assert moves
    bounds = state["clocks"]["bounds"]["staleness"]
    assert [window for window, _ in bounds[1:]] == [move.window for move in moves]
    assert len(state["clocks"]["staleness"]) > 1
    assert sum(state["clocks"]["staleness"]) == sum(sum(stage.staleness) for stage in result.stages)


def test_threads_that_were_chosen(tmp_path: Path) -> None:
    data = st.generate_ratings(20_000, 400, 300, rank=4, noise=0.3, seed=0).data
    model = st.MatrixFactorization(4, max_iter=6, n_jobs="auto", random_state=0)
    model.fit(data, session=st.Session(record=tmp_path / "run"))
    stages = state_of(tmp_path / "run")["stages"]
    assert stages is not None
    assert all(unit == "threads" and end is None for unit, _, end, _ in stages["stages"])


def test_a_step_within_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("stretto.memory.run.devices.PlainDevice.peak", lambda device: 12_345)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(256, 64), torch.zeros(256, 64)
    step: Any = st.memory.train_step(
        model, torch.nn.functional.mse_loss, optimizer, batch, budget="1MiB", device="cpu",
        session=st.Session(record=tmp_path / "run"),
    )  # fmt: skip
    step(batch)
    peak, seconds = step.report.peak, step.report.seconds
    state = state_of(tmp_path / "run")
    assert state["status"] == "running"
    memory = state["memory"]
    assert (memory["peak"], memory["plans"], memory["seconds"]) == (peak, 1, pytest.approx(seconds))
    assert max(map(sum, zip(*memory["kinds"].values(), strict=True))) == peak <= memory["budget"]
    assert memory["at"] == sorted(memory["at"])
    assert "operations" in state["plan"]
    assert memory["measured"] == 12_345
    step.close()
    assert state_of(tmp_path / "run")["status"] == "done"


def many(count: int) -> list[Event]:
    """Events of a long run over tables and stages."""
    found: list[Event] = []
    for k in range(count):
        links = [(a, b, 10 * k + a) for a in range(3) for b in range(3) if a != b]
        found.append(ClocksMeasured(float(k), float(k), "SSP(s=2)", 2, [k, k + 2], [1] * 32, [0.1, 0.2]))
        found.append(LinksMeasured(float(k), float(k), "Eager()", None, links, {"clock": k}))
        found.append(StageDone(float(k), float(k), f"unit {k % 9}", 4, 1, 0.5, 3, "why", 1.0))
    return found


def test_a_long_run_takes_bounded_memory(tmp_path: Path) -> None:
    def cost(count: int) -> int:
        path = tmp_path / f"{count}" / EVENTS
        path.parent.mkdir()
        path.write_bytes(b"".join(encode(event) + b"\n" for event in many(count)))
        tracemalloc.start()
        tail = RecordTail(path.parent)
        tail.poll()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(tail.state("a")["stages"]["stages"]) <= 1501
        return size

    assert cost(20_000) < 1.5 * cost(2_000)


def test_damaged_events_do_no_harm(tmp_path: Path) -> None:
    lines = [
        b'{"event":"ClocksMeasured","clocks":"x"}',
        b'{"event":"ClocksMeasured"}',
        b'{"event":"LinksMeasured","links":[[0,1,5]],"seconds":0}',
        b'{"event":"LinksMeasured","links":[]}',
        b'{"event":"StageDone","staleness":[1,2]}',
        b'{"event":"MemoryPlanned","at":[0,1],"kinds":{"a":[1]}}',
        b'{"event":"SettingTuned","knob":"staleness","window":1,"before":"ASP","after":"?"}',
    ]
    (tmp_path / EVENTS).write_bytes(b"\n".join(lines) + b"\n")
    state = state_of(tmp_path)
    assert findings(state)
    report([state])


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, Any]:
    """One state with all panes, with names that try to be more than text."""
    folder = tmp_path / "whole"
    folder.mkdir()
    events: list[Event] = [RunStarted(0.0, {"unit": "clocks"}), *many(40)]
    links = [(0, 1, 5_000_000), (1, 0, 2_000_000), (-1, -1, 1_000_000)]
    first = [(NASTY, 7, 30)]
    events.append(
        LinksMeasured(
            41.0, 41.0, "Managed", 1e5, links, {"rank": 6_000_000, NASTY: 2_000_000}, [(0, 1, 5e4)], NASTY, first
        )
    )
    events.append(StageDone(41.0, 41.0, NASTY, 8, 2, 2.0, 10, NASTY))
    at = [0.0, 0.001, 0.002]
    kinds = {"parameters": [1 << 20] * 3, NASTY: [0, 3 << 20, 1 << 20]}
    events.append(MemoryPlanned(41.0, 8 << 20, 4 << 20, 1 << 20, 0.002, at, kinds, [(0.0, 0.001)], [(0.001, 0.0005)]))
    (folder / EVENTS).write_bytes(b"".join(encode(event) + b"\n" for event in events))
    return state_of(folder)


def test_a_burst_of_messages_is_no_rate() -> None:
    rows = [(0.0, {}), (5.0, {(0, 1): 50}), (5.001, {(0, 1): 90}), (6.0, {(0, 1): 95}), (9.99, {(0, 1): 99})]
    assert _apart([*rows, (10.0, {(0, 1): 100})]) == [*rows[:2], rows[3], (10.0, {(0, 1): 100})]
    assert _apart(rows[:1]) == rows[:1]
    assert _apart([rows[0], (0.0, {(0, 1): 9})]) == rows[:1]


def test_the_panes_are_drawn(browser: Browser, tmp_path: Path, whole: dict[str, Any]) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(report([whole]))
    browser.open(path)
    for pane in ("clocks", "links", "stages", "memory"):
        assert browser.page.locator(f"#{pane}").is_visible(), pane
    assert "a read is at most 2 clocks behind" in browser.texts("#clocks-about")[0]
    assert browser.js("document.querySelectorAll('#staleness-chart rect').length") == 32
    assert browser.js("document.querySelectorAll('#staleness-chart rect.over').length") == 29
    assert browser.texts("#clocks-table tbody th") == ["worker 0", "worker 1"]
    assert browser.texts("#links-table tbody th") == ["node 0 to 1", "node 1 to 0", "all other links"]
    assert browser.texts("#links-table tbody tr:first-child td")[:3] == ["5 MB", "122 kB/s", "50 kB/s"]
    assert browser.texts("#first-table tbody th") == [NASTY]
    assert browser.js("document.querySelectorAll('#links-chart svg path.limit').length") == 2  # drawn, and its legend
    browser.page.select_option("#links-by", "links")
    assert "node 0 to 1" in browser.texts("#links-chart .legend li")
    assert browser.texts("#stages-table tbody tr:first-child td")[-1] == NASTY
    assert "other units" in browser.texts("#stages-chart .legend li")
    assert "At most 4 MiB of 8 MiB" in browser.texts("#memory-about")[0]
    assert browser.js("document.querySelectorAll('#memory-chart .area').length") == 2
    browser.page.locator("#memory-chart > svg").focus()
    browser.press("Home")
    browser.press("ArrowRight")
    assert "parameters 1 MiB" in browser.texts("#memory-chart .values")[0]
    assert browser.js("window.ran === undefined && document.querySelectorAll('b').length === 0")
    assert browser.problems == []


def test_panes_without_data_are_left_out(browser: Browser, tmp_path: Path, whole: dict[str, Any]) -> None:
    path = tmp_path / "report.html"
    none: dict[str, Any] = dict.fromkeys(("clocks", "links", "stages", "memory"))
    path.write_bytes(report([whole | none, whole | {"name": "other"}]))
    browser.open(path)
    for pane in none:
        assert not browser.page.locator(f"#{pane}").is_visible(), pane
    browser.page.select_option("#run", "1")
    for pane in none:
        assert browser.page.locator(f"#{pane}").is_visible(), pane
    assert browser.problems == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 400)])
def test_people_can_use_the_panes(
    browser: Browser, tmp_path: Path, whole: dict[str, Any], scheme: str, width: int
) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(report([whole]))
    browser.prefers(scheme)
    browser.open(path, width=width)
    assert browser.faults() == []
    assert browser.js("document.documentElement.scrollWidth <= window.innerWidth")
    browser.page.emulate_media(color_scheme="null")
