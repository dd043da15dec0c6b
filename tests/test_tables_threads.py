"""Tables on threads: the bits of the serial truth under BSP, the floor under SSP, and every way a run can end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stretto as st
from examples_run import load
from stretto.errors import CheckpointError, RunError
from stretto.tables.worker import Worker
from stretto.testing.replay import check_replay

ROWS = 30
FUNCTIONS = [
    st.tables.add,
    st.tables.average,
    st.tables.adagrad(0.1),
    st.tables.proximal(0.1, l1=0.05, l2=0.1),
    st.tables.adarevision(0.1),
]


def momentum(row: Any, state: Any, delta: Any, old: Any, params: Any) -> float:
    for k in range(len(row)):
        state[0, k] = params[1] * state[0, k] + delta[k]
        row[k] -= params[0] * state[0, k]
    return 1.0


def start(cols: int) -> NDArray[Any]:
    return np.random.default_rng(5).standard_normal((ROWS, cols))


def mixed(w: Worker) -> None:
    """Reads and adds of unsorted, repeated keys; workers end at different clocks, the last without a tick."""
    x, n = w.table("x"), w.table("n")
    for clock in w.clocks(4 + w.number % 2):
        for call in range(3):
            draw = w.random(clock, call)
            keys = draw.integers(0, ROWS, 11)
            rows = x.read(keys)
            x.add(keys, (0.2 * rows + 0.1 * draw.standard_normal(rows.shape)).astype(rows.dtype))
            n.add(draw.integers(-3, 3, 5), draw.integers(-9, 9, 5))
    keys = w.random(99).integers(0, ROWS, 4)
    x.add(keys, 0.01 * x.read(keys))


def bits(result: Any) -> list[bytes]:
    """Rows and what their server functions keep, of both tables."""
    found = [result.tables["x"].tobytes(), result.entries("n").keys.tobytes(), result.entries("n").values.tobytes()]
    every = np.arange(ROWS)
    return found + [state(every).tobytes() for state in result.table("x").states]


def elsewhere() -> list[Any]:
    threads = [st.Threads(n) for n in (1, 2, 4)]
    return [*threads, *(st.Simulated(nodes=nodes, threads=2, latency="1ms") for nodes in (1, 2, 4))]


def compare(body: Callable[[Worker], Any], workers: int = 4, comm: Any = None, **tables: st.tables.Table) -> None:
    truth = bits(st.run(body, workers=workers, tables=tables, comm=comm, runtime=st.Serial()))
    for runtime in elsewhere():
        assert bits(st.run(body, workers=workers, tables=tables, comm=comm, runtime=runtime)) == truth, runtime


# -- BSP ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("apply", FUNCTIONS, ids=repr)
def test_bsp_has_the_bits_of_the_serial_truth(apply: Any, dtype: str) -> None:
    table = st.tables.Table(rows=ROWS, cols=3, dtype=dtype, apply=apply, start=start(3))
    compare(mixed, x=table, n=st.tables.Table(dtype="i8"))


def test_bsp_with_a_function_of_the_users() -> None:
    apply = st.tables.server_function(momentum, states=1, params=(0.1, 0.9))
    table = st.tables.Table(rows=ROWS, cols=3, apply=apply, start=start(3))
    compare(mixed, x=table, n=st.tables.Table(dtype="i4"))


@pytest.mark.parametrize(
    "comm", [st.tables.Lazy(), st.tables.Managed("1Gbit"), st.tables.Managed("20Mbit", codec="f2", burst=(2, 3))]
)
@pytest.mark.parametrize("apply", [st.tables.add, st.tables.adarevision(0.1)], ids=repr)
def test_bsp_whatever_is_sent_when(comm: Any, apply: Any) -> None:
    table = st.tables.Table(rows=ROWS, cols=3, apply=apply, start=start(3).astype("f4"))
    compare(mixed, comm=comm, x=table, n=st.tables.Table(dtype="i8"))


@pytest.mark.parametrize("unit", ["row", "element"])
def test_bsp_of_short_numbers_and_elements(unit: str) -> None:
    table = st.tables.Table(rows=ROWS, cols=3, dtype="f2", unit=unit, start=start(3))

    def body(w: Worker) -> None:
        mixed(w)
        x = w.table("x")
        for _ in w.clocks(7):
            x.add_at([3, 3, w.number], [0, 0, 2], [0.1, 0.3, 1e-5])

    compare(body, x=table, n=st.tables.Table(dtype="i8"))


def test_bsp_with_a_small_cache() -> None:
    table = st.tables.Table(rows=ROWS, cols=3, start=start(3), cache_rows=12)
    compare(mixed, x=table, n=st.tables.Table(dtype="i8"))


def test_more_workers_than_threads_and_than_nodes() -> None:
    table = st.tables.Table(rows=ROWS, cols=2, start=start(2), apply=st.tables.adagrad(0.1))
    compare(mixed, workers=11, x=table, n=st.tables.Table(dtype="i8"))


# -- SSP and ASP -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", [st.Serial(), st.Threads(3), st.Threads(1)], ids=repr)
@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(0), st.tables.SSP(2), st.tables.ASP()], ids=repr)
@pytest.mark.parametrize("comm", [st.tables.Eager(), st.tables.Lazy()], ids=repr)
def test_no_read_is_older_than_the_rule_allows(runtime: Any, sync: Any, comm: Any) -> None:
    clocks = 12

    def body(w: Worker) -> None:
        x = w.table("x")
        for clock in w.clocks(clocks):
            seen = x.read()
            assert seen[w.number] == clock  # own writes, all of them
            assert (seen >= sync.need(clock)).all()
            if isinstance(sync, st.tables.BSP):
                assert (seen == clock).all()
            x.add([w.number], [1.0])

    result = st.run(body, workers=3, tables={"x": st.tables.Table(rows=3)}, sync=sync, comm=comm, runtime=runtime)
    assert result.tables["x"].tolist() == [clocks] * 3
    if not isinstance(runtime, st.Serial):
        bound = sync.s if isinstance(sync, st.tables.SSP) else 0 if isinstance(sync, st.tables.BSP) else 31
        assert result.staleness.sum() == 3 * 3 * clocks
        assert result.staleness[:, bound + 1 :].sum() == 0


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1), st.tables.ASP()], ids=repr)
@pytest.mark.parametrize("rows", [40, None], ids=["reserved", "looked up"])
def test_nothing_is_lost_where_threads_add_to_the_same_rows(sync: Any, rows: int | None) -> None:
    """Reserved rows are read and added to without a lock in Python; every number of a row always has the same sum."""

    def body(w: Worker) -> None:
        x = w.table("x")
        for clock in w.clocks(4):
            for call in range(25):
                keys = w.random(clock, call).integers(0, 40, 300)
                x.add(keys, np.ones((300, 8)))
                seen = x.read(keys)
                assert (seen == seen[:, :1]).all()  # never half a row

    result = st.run(body, workers=4, tables={"x": st.tables.Table(rows=rows, cols=8)}, sync=sync, runtime=st.Threads(4))
    assert result.entries("x").values.sum(axis=0).tolist() == [4 * 4 * 25 * 300] * 8


def test_fast_workers_wait_for_slow_ones() -> None:
    """Worker 0 does not read until the others have gone as far as the rule lets them."""
    others_at = threading.Barrier(3)
    far: dict[int, int] = {}

    def body(w: Worker) -> None:
        x = w.table("x")
        if w.number == 0:
            others_at.wait(60)
            assert all(far[k] == 3 for k in (1, 2))  # SSP(2): clock 3 may not be read before clock 0 is closed
        for clock in w.clocks(8):
            if w.number and clock == 3:
                far[w.number] = clock
                others_at.wait(60)
            x.read([0])
            x.add([0], [1.0])

    result = st.run(
        body, workers=3, tables={"x": st.tables.Table(rows=1)}, sync=st.tables.SSP(2), runtime=st.Threads(3)
    )
    assert result.tables["x"].tolist() == [24.0]


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1), st.tables.ASP()], ids=repr)
@pytest.mark.parametrize(
    "runtime", [st.Threads(1), st.Threads(4), st.Simulated(nodes=2)], ids=lambda r: type(r).__name__
)
def test_a_worker_that_has_ended_holds_nobody_back(sync: Any, runtime: Any) -> None:
    def body(w: Worker) -> None:
        x = w.table("x")
        for _ in w.clocks(2 * w.number):
            x.add([0], [float(x.read([0])[0] >= 0)])

    result = st.run(body, workers=4, tables={"x": st.tables.Table(rows=1)}, sync=sync, runtime=runtime)
    assert result.tables["x"].tolist() == [12.0]
    assert result.clocks == (0, 2, 4, 6)


@pytest.mark.parametrize("runtime", [st.Threads(1), st.Threads(3), st.Simulated(nodes=3)], ids=["1", "3", "simulated"])
def test_announced_rows_may_be_read_past_the_bound(runtime: Any) -> None:
    """Worker 0 stays in clock 0 and has said that it adds to row 0 alone: others read row 1 as far on as they like."""

    def body(w: Worker) -> None:
        x = w.table("x")
        for clock in w.clocks(1 if w.number == 0 else 6):
            for ahead in range(6) if clock == 0 else ():
                x.announce([0] if w.number == 0 else [w.number], ahead)
            seen = x.read([w.number or 1])[0]
            assert seen >= (clock if w.number else 0)
            x.add([w.number], [1.0])

    sync = st.tables.SSP(0, speculate=True)
    result = st.run(body, workers=3, tables={"x": st.tables.Table(rows=3)}, sync=sync, runtime=runtime, record="full")
    assert result.tables["x"].tolist() == [1.0, 6.0, 6.0]
    assert not check_replay(result.recording).violations


# -- how runs end ------------------------------------------------------------------------------------------------------


def test_an_error_ends_the_run_for_everybody() -> None:
    ended = []

    def body(w: Worker) -> None:
        try:
            for clock in w.clocks(1000):
                w.table("x").read([0])
                if w.number == 2 and clock == 5:
                    raise ValueError("no more")
        finally:
            ended.append(w.number)

    with pytest.raises(RunError, match=r"^worker 2 failed at clock 5: ValueError: no more$") as caught:
        st.run(body, workers=4, tables={"x": st.tables.Table(rows=1)}, runtime=st.Threads(2))
    assert isinstance(caught.value.__cause__, ValueError)
    assert sorted(ended) == [0, 1, 2, 3]


def strike() -> None:
    """Ctrl-C, as the system delivers it."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


@pytest.fixture
def noticed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a run on threads knows of Ctrl-C: a worker that waits for it cannot be through before."""
    from stretto.runtime.tables.threads import ThreadedRun

    event, ask = threading.Event(), ThreadedRun._ask

    def told(run: ThreadedRun) -> None:
        ask(run)
        event.set()

    monkeypatch.setattr(ThreadedRun, "_ask", told)
    return event


@pytest.mark.parametrize("runtime", [st.Threads(1), st.Threads(3), st.Serial()], ids=repr)
def test_ctrl_c_ends_a_run_at_the_end_of_a_clock(runtime: Any) -> None:
    def body(w: Worker) -> None:
        x = w.table("x")
        for clock in w.clocks(10**9):
            x.read([0])
            x.add([w.number], [1.0])
            if w.number == 1 and clock == 4:
                strike()

    result = st.run(body, workers=3, tables={"x": st.tables.Table(rows=3)}, runtime=runtime)
    assert result.stopped == "interrupted"
    assert len(set(result.clocks)) == 1
    assert result.tables["x"].tolist() == [result.clocks[0]] * 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_run_away_from_the_main_thread() -> None:
    found: list[Any] = []

    def body(w: Worker) -> None:
        for _ in w.clocks(3):
            w.table("x").add([0], [1.0])

    thread = threading.Thread(
        target=lambda: found.append(st.run(body, workers=2, tables={"x": st.tables.Table(rows=1)}))
    )
    thread.start()
    thread.join()
    assert found[0].tables["x"].tolist() == [6.0]


# -- checkpoints -------------------------------------------------------------------------------------------------------


def lasting(w: Worker, fail_at: tuple[int, int] | None = None) -> None:
    """Rows, local arrays and numbers, and a loop over batches: all of it must come back."""
    x = w.table("x")
    total = w.local.setdefault("total", np.zeros(3))
    for batch in w.batches(40, 3, passes=3):
        rows = x.read(batch % ROWS)  # by now everybody has reached this clock
        if (w.number, w.clock) == fail_at:
            raise ValueError("lost")
        total += rows.sum(axis=0)
        w.local["last"] = int(batch[-1])
        x.add(batch % ROWS, 0.1 * rows + w.random(w.clock).standard_normal(rows.shape) + 0.001 * total)
        w.tick()


def in_the_end(result: Any) -> list[Any]:
    states = [state(np.arange(ROWS)).tobytes() for state in result.table("x").states]
    local = [(mine["total"].tobytes(), mine["last"]) for mine in result.local]
    return [result.tables["x"].tobytes(), states, local, result.clocks]


@pytest.mark.parametrize("apply", [st.tables.add, st.tables.adarevision(0.1)], ids=repr)
@pytest.mark.parametrize("comm", [None, st.tables.Managed(1e9, codec="f2")], ids=repr)
def test_a_run_goes_on_from_its_last_checkpoint(tmp_path: Path, apply: Any, comm: Any) -> None:
    options: dict[str, Any] = {
        "workers": 3,
        "tables": {"x": st.tables.Table(rows=ROWS, cols=3, apply=apply, start=start(3))},
        "comm": comm,
    }
    whole = in_the_end(st.run(lasting, runtime=st.Serial(), **options))
    options |= {"checkpoint": tmp_path, "checkpoint_every": 2, "runtime": st.Threads(2)}
    for crash in (5, 8):
        with pytest.raises(RunError, match=f"worker 1 failed at clock {crash}: ValueError: lost"):
            st.run(partial(lasting, fail_at=(1, crash)), resume=crash > 5, **options)
        assert list(tmp_path.glob("checkpoint-*"))
    began: list[int] = []

    def going_on(w: Worker) -> None:
        began.append(w.clock)
        lasting(w)

    assert in_the_end(st.run(going_on, resume=True, **options)) == whole
    assert began == [8, 8, 8]


@pytest.mark.parametrize("sync", [st.tables.SSP(1), st.tables.SSP(4)], ids=repr)
def test_a_checkpoint_under_bounded_staleness_loses_nothing(tmp_path: Path, sync: Any) -> None:
    def body(w: Worker, fail: bool) -> None:
        x = w.table("x")
        for clock in w.clocks(20):
            x.read([0])
            x.add([0, 1 + w.number], [1.0, 1.0])
            if fail and w.number == 1 and clock == 13:
                raise ValueError

    options: dict[str, Any] = {
        "workers": 3,
        "tables": {"x": st.tables.Table(rows=4)},
        "sync": sync,
        "runtime": st.Threads(3),
    }
    options |= {"checkpoint": tmp_path, "checkpoint_every": 3}
    with pytest.raises(RunError):
        st.run(lambda w: body(w, True), **options)
    result = st.run(lambda w: body(w, False), resume=True, **options)
    assert result.tables["x"].tolist() == [60.0, 20.0, 20.0, 20.0]


def test_ctrl_c_saves_and_the_run_goes_on(tmp_path: Path, noticed: threading.Event) -> None:
    def body(w: Worker, strikes: bool) -> None:
        x = w.table("x")
        for clock in w.clocks(30):
            x.add([0], x.read([0]) * 0.5 + w.number)
            if strikes and w.number == 0 and clock == 4:
                strike()
                assert noticed.wait(60)

    tables = {"x": st.tables.Table(rows=1, dtype="f8")}
    stopped = st.run(lambda w: body(w, True), workers=2, tables=tables, checkpoint=tmp_path)
    assert stopped.stopped == "interrupted"
    assert stopped.clocks[0] < 30
    whole = st.run(lambda w: body(w, False), workers=2, tables=tables, runtime=st.Serial())
    resumed = st.run(lambda w: body(w, False), workers=2, tables=tables, checkpoint=tmp_path, resume=True)
    assert resumed.clocks == (30, 30)
    assert resumed.tables["x"].tobytes() == whole.tables["x"].tobytes()


def test_ctrl_c_does_not_wait_for_the_next_checkpoint(tmp_path: Path, noticed: threading.Event) -> None:
    def body(w: Worker, strikes: bool) -> None:
        x = w.table("x")
        for clock in w.clocks(600):
            x.add([0], clock + w.number - 0.4 * x.read([0]))
            if strikes and w.number == 0 and clock == 330:
                strike()
                assert noticed.wait(60)

    tables = {"x": st.tables.Table(rows=1, dtype="f8")}
    options: dict[str, Any] = {"workers": 2, "tables": tables, "checkpoint": tmp_path, "checkpoint_every": 300}
    stopped = st.run(lambda w: body(w, True), **options)
    assert stopped.stopped == "interrupted"
    assert 330 < stopped.clocks[0] < 600
    resumed = st.run(lambda w: body(w, False), resume=True, **options)
    whole = st.run(lambda w: body(w, False), workers=2, tables=tables)
    assert resumed.tables["x"].tobytes() == whole.tables["x"].tobytes()
    assert resumed.clocks == (600, 600)


def test_a_run_that_was_through_is_not_run_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def body(w: Worker) -> None:
        calls.append(w.number)
        for _ in w.clocks(4 + w.number):
            w.table("x").add([0], [1.0])

    options: dict[str, Any] = {"workers": 2, "tables": {"x": st.tables.Table(rows=1)}, "checkpoint": tmp_path}
    options |= {"checkpoint_every": 3}
    first = st.run(body, **options)
    again = st.run(body, resume=True, **options)
    assert sorted(calls) == [0, 1]
    assert (first.clocks, first.tables["x"].tolist()) == (again.clocks, again.tables["x"].tolist()) == ((4, 5), [9.0])


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(2)], ids=repr)
def test_a_lazy_run_is_saved_too(tmp_path: Path, sync: Any) -> None:
    def body(w: Worker, fail: bool) -> None:
        x = w.table("x")
        for clock in w.clocks(15):
            x.read([0])
            x.add([0], [1.0])
            if fail and clock == 12:
                raise ValueError

    options: dict[str, Any] = {
        "workers": 2,
        "tables": {"x": st.tables.Table(rows=1)},
        "sync": sync,
        "comm": st.tables.Lazy(),
    }
    options |= {"checkpoint": tmp_path, "checkpoint_every": 3}
    with pytest.raises(RunError):
        st.run(lambda w: body(w, True), **options)
    assert st.run(lambda w: body(w, False), resume=True, **options).tables["x"].tolist() == [30.0]


def saved(folder: Path, **more: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "workers": 2,
        "tables": {"x": st.tables.Table(rows=ROWS, cols=3)},
        "runtime": st.Threads(2),
    }
    options |= {"checkpoint": folder, "checkpoint_every": 4, **more}
    with pytest.raises(RunError):
        st.run(lambda w: lasting(w, (0, 11)), **options)
    return options


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    options = saved(tmp_path)
    newest = sorted(tmp_path.glob("checkpoint-*"))[-1]
    file = newest / "arrays.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-5] ^= 1
    file.write_bytes(raw)
    began: list[int] = []

    def going_on(w: Worker) -> None:
        began.append(w.clock)
        lasting(w)

    with pytest.warns(RuntimeWarning, match="is damaged: .* the previous checkpoint is used"):
        result = st.run(going_on, resume=True, **options)
    assert began == [4, 4]
    del options["checkpoint"], options["checkpoint_every"]
    assert in_the_end(result) == in_the_end(st.run(lasting, **options))


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    options = saved(tmp_path)
    for change in (
        {"seed": 1},
        {"workers": 3},
        {"sync": st.tables.SSP(1)},
        {"tables": {"x": st.tables.Table(rows=ROWS, cols=2)}},
    ):
        with pytest.raises(CheckpointError, match="was saved under plan"):
            st.run(lasting, resume=True, **(options | change))
    with pytest.raises(CheckpointError, match="no checkpoints in"):
        st.run(lasting, resume=True, **(options | {"checkpoint": tmp_path / "nothing"}))


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    def body(w: Worker) -> None:
        w.local["thing"] = object()
        list(w.clocks(10))

    with pytest.raises(
        CheckpointError, match=r"w.local cannot be saved in a checkpoint: .* of type object cannot be kept"
    ):
        st.run(body, tables={"x": st.tables.Table(rows=1)}, checkpoint=tmp_path, checkpoint_every=2)


def test_a_disk_that_refuses_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    def body(w: Worker) -> None:
        list(w.clocks(5))

    with pytest.warns(RuntimeWarning, match="could not save a checkpoint"):
        result = st.run(body, tables={"x": st.tables.Table(rows=1)}, checkpoint=tmp_path / "file", checkpoint_every=2)
    assert result.clocks == (5,)


# -- shared tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", [st.Threads(1), st.Threads(3), st.Serial()], ids=repr)
@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1)], ids=repr)
def test_a_shared_table_is_one_array(runtime: Any, sync: Any) -> None:
    low: list[float] = []

    def body(w: Worker) -> None:
        x: Any = w.table("x")
        assert x.array.shape == (4, 2)
        assert x.array is not x.read()
        for clock in w.clocks(10):
            low.append(float(x.array[:3].min()) - sync.need(clock))  # every worker has written its row so often
            x.array[w.number] += 1.0
            x.add([3, 3], 0.5)

    tables = {"x": st.tables.Table(rows=4, cols=2, dtype="f8", placement="shared"), "y": st.tables.Table(rows=2)}
    result = st.run(body, workers=3, tables=tables, sync=sync, runtime=runtime)
    assert result.tables["x"].tolist() == [[10, 10]] * 3 + [[30, 30]]
    assert min(low) >= 0.0
    further = st.run(lambda w: w.table("x").add([0], 1.0), tables={"x": result.table("x")}, runtime=runtime)
    assert further.tables["x"][0].tolist() == [11, 11]
    assert result.tables["x"][0].tolist() == [10, 10]


def test_shared_tables_in_a_checkpoint(tmp_path: Path) -> None:
    def body(w: Worker, fail: bool) -> None:
        x: Any = w.table("x")
        for clock in w.clocks(12):
            x.array[w.number] += 1.0
            if fail and clock == 9:
                raise ValueError

    options: dict[str, Any] = {
        "workers": 3,
        "tables": {"x": st.tables.Table(rows=3, placement="shared")},
        "sync": st.tables.SSP(2),
    }
    options |= {"checkpoint": tmp_path, "checkpoint_every": 4, "runtime": st.Threads(3)}
    with pytest.raises(RunError):
        st.run(lambda w: body(w, True), **options)
    assert st.run(lambda w: body(w, False), resume=True, **options).tables["x"].tolist() == [12.0] * 3


# -- recording ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(0), st.tables.SSP(2), st.tables.ASP()], ids=repr)
@pytest.mark.parametrize("apply", [st.tables.add, st.tables.adarevision(0.1)], ids=repr)
def test_the_replay_checker_finds_nothing(sync: Any, apply: Any) -> None:
    table = st.tables.Table(rows=ROWS, cols=3, apply=apply, start=np.ones((ROWS, 3)))
    tables = {"x": table, "n": st.tables.Table(dtype="i8")}
    result = st.run(mixed, workers=5, tables=tables, sync=sync, runtime=st.Threads(3), record="full")
    report = check_replay(result.recording)
    assert not report.violations
    assert report.numbers["reads"] == 3 * sum(result.clocks) + 5


def test_a_recording_holds_every_call() -> None:
    table = st.tables.Table(rows=ROWS, cols=3, start=start(3))
    tables = {"x": table, "n": st.tables.Table(dtype="i8")}
    result = st.run(mixed, workers=3, tables=tables, sync=st.tables.SSP(1), runtime=st.Threads(2), record="full")
    told = result.recording
    assert len(told.ticks) == sum(result.clocks)
    assert len(told.reads) == 3 * sum(result.clocks) + 3
    keys, counts = told.final[0]
    added = np.concatenate([entry.keys for entry in told.adds if entry.table == 0 and entry.worker == 1])
    assert counts[:, 1].tolist() == np.bincount(added, minlength=ROWS)[keys].tolist()


# -- the example -------------------------------------------------------------------------------------------------------


def test_the_shipped_example_learns_and_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    example = load("tables_mf")
    ratings = st.generate_ratings(4_000, 120, 80, rank=2, noise=0.1, seed=1).data
    runs = [
        example.train(ratings, rank=4, epochs=5, batch=200, runtime=runtime)
        for runtime in (st.Serial(), st.Threads(2), st.Simulated(nodes=2, threads=2))
    ]
    assert len({run.tables["items"].tobytes() for run in runs}) == 1
    assert len({run.objective for run in runs}) == 1
    assert runs[0].objective < 0.75 * runs[0].history[0].objective
    assert "clock 5: RMSE" in capsys.readouterr().out


# --- runs that had ended, and go on -----------------------------------------------------------------------------------


def places() -> list[Any]:
    return [st.Threads(2), pytest.param(st.Cluster("processes", nodes=2), marks=pytest.mark.timeout(120))]


@pytest.mark.parametrize("place", places(), ids=lambda place: type(place).__name__)
@pytest.mark.parametrize("every", [None, *(pytest.param(every, marks=pytest.mark.slow) for every in (1, 3))])
def test_a_run_that_had_ended_goes_on_to_more_clocks(tmp_path: Path, place: Any, every: int) -> None:
    def body(w: Worker, clocks: int) -> None:
        x = w.table("x")
        for clock in w.clocks(clocks):
            x.add([0], clock + w.number - 0.4 * x.read([0]))
            w.local["last"] = clock

    options: dict[str, Any] = {"workers": 3, "tables": {"x": st.tables.Table(rows=1, dtype="f8")}, "runtime": place}
    whole = st.run(lambda w: body(w, 9), **options)
    options |= {"checkpoint": tmp_path, "checkpoint_every": every}
    assert st.run(lambda w: body(w, 4), **options).clocks == (4, 4, 4)
    resumed = st.run(lambda w: body(w, 9), resume=True, **options)
    assert resumed.clocks == whole.clocks == (9, 9, 9)
    assert resumed.tables["x"].tobytes() == whole.tables["x"].tobytes()
    assert [local["last"] for local in resumed.local] == [8, 8, 8]
    again = st.run(lambda w: body(w, 9), resume=True, **options)  # nothing more to do
    assert again.tables["x"].tobytes() == whole.tables["x"].tobytes()


def test_workers_that_forget_to_tick_are_reported() -> None:
    def body(w: Worker) -> None:
        for _ in range(3):
            w.table("x").add([0], w.table("x").read([0]) + 1)

    options: dict[str, Any] = {"workers": 2, "tables": {"x": st.tables.Table(rows=1)}}
    with pytest.warns(RuntimeWarning, match=r"run: no worker ticked, so watch= was .* or call w.tick\(\)") as caught:
        st.run(body, watch=lambda view: float(view["x"][0]), **options)
    assert [warning.filename for warning in caught] == [__file__]
    assert st.run(body, **options).clocks == (0, 0)  # nobody expects evaluations: one clock may be meant


def test_adding_without_reading_needs_no_tick() -> None:
    result = st.run(
        lambda w: w.table("x").add([0], [1.0]),
        workers=2,
        tables={"x": st.tables.Table(rows=1)},
        watch=lambda view: float(view["x"][0]),
    )
    assert result.tables["x"].tolist() == [2.0]


def test_batches_that_had_ended_are_passed_over(tmp_path: Path) -> None:
    """Ticks inside the loop: a finished run goes on with more passes, and does nothing again with as many."""

    def body(w: Worker, passes: int) -> None:
        for batch in w.batches(np.arange(12.0), 2, passes):
            w.table("x").add([0], [batch.sum()])
            w.tick()

    options: dict[str, Any] = {"workers": 2, "tables": {"x": st.tables.Table(rows=1, dtype="f8")}}
    options |= {"checkpoint": tmp_path, "checkpoint_every": 2}
    assert st.run(lambda w: body(w, 1), **options).tables["x"].tolist() == [66.0]
    assert st.run(lambda w: body(w, 1), resume=True, **options).tables["x"].tolist() == [66.0]
    assert st.run(lambda w: body(w, 3), resume=True, **options).tables["x"].tolist() == [198.0]


def test_loops_over_batches_one_after_the_other_go_on_in_the_right_one(tmp_path: Path) -> None:
    """Interrupted in the second of three loops: the first is passed over, the third is made whole."""

    def body(w: Worker, fails: bool) -> None:
        for epoch in range(3):
            for batch in w.batches(np.arange(4.0), 1):
                if fails and epoch == 1 and batch[0] == 2:
                    raise ValueError("enough")
                w.table("x").add([epoch], batch)
                w.tick()

    options: dict[str, Any] = {"tables": {"x": st.tables.Table(rows=3, dtype="f8")}, "checkpoint": tmp_path}
    options |= {"checkpoint_every": 1}
    with pytest.raises(RunError, match="enough"):
        st.run(lambda w: body(w, True), **options)
    assert st.run(lambda w: body(w, False), resume=True, **options).tables["x"].tolist() == [6.0, 6.0, 6.0]


def test_what_was_added_after_the_last_tick_is_not_added_twice(tmp_path: Path) -> None:
    def body(w: Worker, clocks: int) -> None:
        for _ in w.clocks(clocks):
            w.table("x").add([0], [1.0])
        w.table("x").add([1], [1.0])

    options: dict[str, Any] = {"workers": 2, "tables": {"x": st.tables.Table(rows=2)}, "checkpoint": tmp_path}
    options |= {"checkpoint_every": 3}
    assert st.run(lambda w: body(w, 4), **options).tables["x"].tolist() == [8.0, 2.0]
    assert st.run(lambda w: body(w, 6), resume=True, **options).tables["x"].tolist() == [8.0, 2.0]
