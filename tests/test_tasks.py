"""Tasks: trees of units, their values and states, on every runtime; widths, modes, checkpoints, sessions."""

from __future__ import annotations

import threading
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import CheckpointError, NotEnoughMemory, PlanError, RunError
from stretto.runtime.stages import data_store
from stretto.runtime.tables.array_locks import RowAccess, access_of
from stretto.testing import check_replay

RNG = np.random.default_rng(5)
X = RNG.normal(size=(210, 6))
TRUE = np.array([1.0, -2.0, 0.5, 0.0, 3.0, -1.0])
Y = X @ TRUE
KEYS = np.arange(6)


def gradient(worker: Any, X: Any, y: Any, w: Any, g: Any) -> None:
    g.add(KEYS, X.T @ (X @ w.read() - y))


def descend(worker: Any, w: Any, g: Any, rate: float) -> None:
    w.add(KEYS, -rate * g.read())


def loss(worker: Any, X: Any, y: Any, w: Any) -> float:
    return float(((X @ w.read() - y) ** 2).sum())


def batch_step(worker: Any, X: Any, y: Any, w: Any) -> None:
    rows = worker.random().integers(len(y), size=5)
    seen = worker.local.setdefault("seen", np.zeros(1))
    seen += 5
    w.add(KEYS, -0.002 * X[rows].T @ (X[rows] @ w.read() - y[rows]))


def descent(w: Any, g: Any, workers: Any = None, turns: int = 4) -> Any:
    """Gradient descent, with stochastic steps in between."""
    return st.loop(
        st.seq(
            st.unit(gradient, X, Y, w, g, fresh=[g], workers=workers),
            st.unit(descend, w, g, 0.003),
            st.unit(batch_step, X, Y, w, parts=4, iterations=5, workers=workers),
        ),
        times=turns,
        until=st.below(st.unit(loss, X, Y, w), 1e-12),
    )


def run_descent(runtime: Any, workers: Any = None, **how: Any) -> tuple[bytes, list[float], Any]:
    w, g = st.zeros(6, "f8"), st.zeros(6, "f8")
    result = st.run(descent(w, g, workers), runtime=runtime, **how)
    return w.array.tobytes(), result.history("loss"), result


@cache
def truth() -> tuple[bytes, list[float]]:
    return run_descent(st.Serial())[:2]


# -- results -----------------------------------------------------------------------------------------------------------


def test_it_learns() -> None:
    history = truth()[1]
    assert len(history) == 4
    assert history[-1] < history[0] / 2


@pytest.mark.parametrize("width", [None, 1, 2, 3, "auto"])
@pytest.mark.parametrize(
    "runtime",
    [st.Threads(1), st.Threads(3), st.Simulated(nodes=4, threads=2), st.Simulated(nodes=2, threads=1)],
    ids=["threads1", "threads3", "simulated4", "simulated2"],
)
def test_the_same_bits_on_every_runtime_at_any_width(runtime: Any, width: Any) -> None:
    if isinstance(width, int) and width > runtime.workers:
        with pytest.raises(PlanError, match=f"asks for {width} workers, and all nodes together have"):
            run_descent(runtime, width)
        return
    assert run_descent(runtime, width)[:2] == truth()


def test_narrow_stages_run_on_one_node_and_wide_ones_on_all() -> None:
    result = run_descent(st.Simulated(nodes=4, threads=2), 2)[2]
    nodes: dict[str, set[tuple[int, ...]]] = {}
    for stage in result.stages:
        nodes.setdefault(stage.unit, set()).add(stage.nodes)
    assert all(len(at) == 1 for unit in ("gradient", "descend", "batch_step") for at in nodes[unit])
    assert len(nodes["gradient"] | nodes["batch_step"]) > 1  # the nodes take turns
    assert nodes["loss"] == {(0, 1, 2, 3)}


def test_a_placement_is_followed() -> None:
    w = st.zeros(6, "f8")
    unit = st.unit(batch_step, X, Y, w, placement={1: 2, 3: 1})
    result = st.run(unit, runtime=st.Simulated(nodes=4, threads=2))
    assert result.stages[0].nodes == (1, 3)
    assert result.stages[0].width == 3
    with pytest.raises(PlanError, match="node 5, which does not exist"):
        st.run(st.unit(batch_step, X, Y, w, placement={5: 1}), runtime=st.Simulated(nodes=4, threads=2))


def test_units_of_loops() -> None:
    @st.parallel
    def scale(x: Any, by: Any) -> None:
        for i in range(len(x)):
            x[i] = x[i] * by

    x = st.full(100, 1.0, "f8")
    result = st.run(st.loop(st.unit(scale, x, 2.0, iterations=2), times=3), runtime=st.Threads(2))
    assert (x.array == 64).all()
    assert len(result.stages) == 3


def test_values_are_summed_in_the_order_of_parts() -> None:
    numbers = RNG.normal(size=1000)

    def total(worker: Any, part: Any) -> float:
        return float(part.sum())

    found = [
        st.run(st.unit(total, numbers, parts=7), runtime=runtime).value
        for runtime in (st.Serial(), st.Threads(3), st.Simulated(nodes=3, threads=1))
    ]
    cuts = [k * 1000 // 7 for k in range(8)]
    by_hand = 0.0
    for a, b in pairwise(cuts):
        by_hand += float(numbers[a:b].sum())  # 0.0 + x is x
    assert found == [by_hand] * 3


def test_branches_and_stalls() -> None:
    x = st.full(1, 5.0, "f8")

    def large(worker: Any, x: Any) -> bool:
        return bool(x.read()[0] > 3)

    def halve(worker: Any, x: Any) -> None:
        x.add([0], -x.read() / 2)

    def size(worker: Any, x: Any) -> float:
        return float(x.read()[0])

    step = st.branch(st.unit(large, x), st.unit(halve, x))
    result = st.run(st.loop(step, until=st.stalls(st.unit(size, x), 1e-6)), runtime=st.Serial())
    assert x.array[0] == 2.5
    assert result.history("size") == [2.5, 2.5]


def test_what_parts_keep_lasts_over_stages() -> None:
    w = st.zeros(6, "f8")
    unit = st.unit(batch_step, X, Y, w, parts=4, iterations=3)
    seen: list[Any] = []

    def look(worker: Any) -> float:
        return 0.0

    def count(worker: Any, X: Any, y: Any, w: Any) -> float:
        worker.local["calls"] = worker.local.get("calls", 0) + 1
        seen.append(worker.iteration)
        return float(worker.local["calls"])

    result = st.run(st.loop(st.unit(count, X, Y, w, parts=2, iterations=2), times=3), runtime=st.Serial())
    assert result.value == 12.0  # 6 calls of each of 2 parts
    assert sorted(seen) == [k for k in range(6) for _ in range(2)]
    assert st.run(st.seq(unit, st.unit(look)), runtime=st.Serial()).value == 0.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1), st.tables.ASP()], ids=["bsp", "ssp", "asp"])
def test_no_update_is_lost_at_the_border_of_stages(sync: Any, seed: int) -> None:
    """Messages are delayed, lost with their connection and doubled; every stage's recording is replayed."""
    faults: list[Any] = [
        st.faults.Delay(k % 4, (k + 1) % 4, at=0.001 * k, seconds=0.005, extra="3ms") for k in range(1, 8)
    ]
    faults += [st.faults.Reset(k % 4, (k + 2) % 4, at=0.002 * k) for k in range(1, 4)]
    cluster = st.Simulated(nodes=4, threads=2, jitter="2ms", seed=seed, faults=faults)
    w = st.zeros(6, "f8")

    def count(worker: Any, rows: Any, w: Any) -> None:
        worker.work(50 * (1 + worker.part % 3))
        w.read()
        w.add(KEYS, np.ones(6))

    wide = st.unit(count, X, w, parts=8, iterations=3, sync=sync)
    narrow = st.unit(count, X, w, parts=2, iterations=4, workers=1, sync=sync)
    result = st.run(st.loop(st.seq(wide, narrow), times=2), runtime=cluster, record="full")
    assert w.array.tolist() == [2.0 * (8 * 3 + 2 * 4)] * 6
    assert len(result.stages) == 4
    for stage in result.stages:
        assert not check_replay(stage.recording).violations


# -- widths ------------------------------------------------------------------------------------------------------------


def busy(worker: Any, rows: Any, w: Any) -> None:
    worker.work(20_000 / worker.parts)
    w.add(KEYS, 1e-3 * (1 + 0 * w.read()))


def test_automatic_width_tries_widths_and_throws_nothing_away() -> None:
    results = {}
    for width in ("auto", 1, 16):
        w = st.zeros(6, "f8")
        unit = st.unit(busy, X, w, parts=16, iterations=60, workers=width)
        results[width] = st.run(unit, runtime=st.Simulated(nodes=4, threads=4)), w.array.tobytes()
    auto = results["auto"][0]
    assert len({bits for _, bits in results.values()}) == 1
    assert sum(stage.iterations for stage in auto.stages) == 60
    assert len({stage.width for stage in auto.stages}) > 1
    assert all(stage.reason for stage in auto.stages)
    assert auto.seconds < results[1][0].seconds


def test_the_best_width_is_remembered_in_the_next_turn() -> None:
    w = st.zeros(6, "f8")
    unit = st.unit(busy, X, w, parts=16, iterations=60, workers="auto", batch=210)
    result = st.run(st.loop(unit, times=2), runtime=st.Simulated(nodes=4, threads=4))
    second = [stage for stage in result.stages if stage.turn == 1]
    assert len(second) == 1
    assert "earlier search" in second[0].reason
    assert result.widths["widths"]


# -- modes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sequential", "locked", "hogwild"])
def test_modes_reach_the_same_loss(mode: str) -> None:
    w = st.zeros(6, "f8")
    steps = st.unit(batch_step, X, Y, w, parts=4, iterations=400, mode=mode)
    result = st.run(st.seq(steps, st.unit(loss, X, Y, w)), runtime=st.Threads(2))
    assert result.value < 1e-3 * float((Y**2).sum())
    assert result.plan.grade == ("identical" if mode == "sequential" else "statistical")


def test_sequential_parts_see_each_other_at_once_and_have_one_answer() -> None:
    def double(worker: Any, x: Any) -> None:
        x.add([0], x.read([0]))

    x, y = st.full(1, 1.0, "f8"), st.full(1, 1.0, "f8")
    st.run(st.unit(double, x, parts=4, mode="sequential"), runtime=st.Threads(2))
    st.run(st.unit(double, y, parts=4), runtime=st.Threads(2))
    assert (x.array[0], y.array[0]) == (16.0, 5.0)


def test_locked_adds_are_not_lost() -> None:
    def count(worker: Any, x: Any) -> None:
        x.add(np.arange(50), np.ones(50))

    x = st.zeros(1000, "f8")
    st.run(st.unit(count, x, parts=8, iterations=200, mode="locked"), runtime=st.Threads(4))
    assert (x.array[:50] == 1600).all()


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1), st.tables.ASP()], ids=repr)
@pytest.mark.parametrize("mode", [None, "hogwild"])
def test_threads_take_parts_in_the_order_of_their_clocks(sync: Any, mode: str | None) -> None:
    lock, events = threading.Lock(), []  # (started?, part, iteration)

    def follow(worker: Any, w: Any) -> None:
        with lock:
            events.append((True, worker.part, worker.iteration))
        w.add([worker.part], [1.0])
        with lock:
            events.append((False, worker.part, worker.iteration))

    w = st.zeros(7, "f8")
    st.run(st.unit(follow, w, parts=7, iterations=20, workers=3, sync=sync, mode=mode), runtime=st.Threads(3))
    running: set[int] = set()
    ended = dict.fromkeys(range(7), 0)
    slack = {"BSP()": 0, "SSP(1)": 1}.get(repr(sync), 20)
    for started, part, iteration in events:
        if started:
            assert part not in running  # never twice at a time
            assert ended[part] == iteration
            assert iteration <= min(ended.values()) + slack
            running.add(part)
            assert len(running) <= 3
        else:
            running.remove(part)
            ended[part] += 1
    assert set(ended.values()) == {20}
    assert w.array.tolist() == [20.0] * 7


def test_chunks_are_locked_one_by_one() -> None:
    """Two threads in compiled code: one waits for a lock that is held, and only for that one."""
    access, array, out = RowAccess(640, 64), np.zeros((640, 2)), np.empty((1, 2))
    access._locks[63] = 1  # held by somebody else: rows 1008 to 1023 of 1024, and 16 rows each for the others
    access.add(array, np.array([3, 4, 600]), np.ones((3, 2)))
    access.read(array, np.array([600]), out)
    assert out.tolist() == [[1.0, 1.0]]
    assert access._locks.nonzero()[0].tolist() == [63]  # all others were released
    access._locks[37] = 1
    done = threading.Event()

    def late() -> None:
        access.add(array, np.array([600]), np.ones((1, 2)))
        done.set()

    waits = threading.Thread(target=late)
    waits.start()
    assert not done.wait(0.05)
    access._locks[37] = 0
    assert done.wait(20)
    waits.join()
    assert array[600].tolist() == [2.0, 2.0]
    assert len(access_of("chunks", 10)._locks) > 0
    assert len(access_of("none", 10)._locks) == 0


def test_modes_need_one_memory() -> None:
    w = st.zeros(6, "f8")
    with pytest.raises(PlanError, match="memory of one process"):
        st.run(st.unit(batch_step, X, Y, w, mode="hogwild"), runtime=st.Simulated(nodes=2))


# -- plans -------------------------------------------------------------------------------------------------------------


def test_logical_and_physical_plans_in_words() -> None:
    w, g = st.zeros(6, "f8"), st.zeros(6, "f8")
    task = descent(w, g, "auto")
    golden = Path(__file__).parent / "golden" / "task_plan.txt"
    text = f"{task.logical()}\n\n{task.plan(workers=8, nodes=4)}\n"
    assert text == golden.read_text(encoding="utf-8")


def test_widths_are_not_part_of_the_fingerprint_but_parts_are() -> None:
    w = st.zeros(6, "f8")

    def print_of(**how: Any) -> str:
        return str(st.unit(batch_step, X, Y, w, **how).plan(workers=8).fingerprint)

    assert print_of(workers=1) == print_of(workers=8) == print_of(workers="auto") == print_of()
    assert print_of(parts=4) != print_of()
    assert print_of(sync=st.tables.SSP(1)) != print_of()


def test_lifetimes() -> None:
    w, g, late = st.zeros(6, "f8"), st.zeros(6, "f8"), st.zeros(6, "f8")
    task = st.seq(descent(w, g), st.unit(descend, late, w, 0.1))
    stages = task.plan(workers=2).stages
    frees = {stage.unit.name: stage.frees for stage in stages}
    creates = {stage.unit.name: stage.creates for stage in stages}
    assert creates["gradient"] == ("X", "y", "w", "g")
    assert frees["loss"] == ("X", "y")  # the loop needs them until its end
    assert stages[1].frees == ("g",)  # made anew by `gradient` in every turn
    assert set(stages[-1].frees) == {"w", "w_2"}


def test_a_task_larger_than_memory_is_refused() -> None:
    w = st.zeros(6, "f8")
    unit = st.unit(batch_step, np.zeros((100_000, 6)), np.zeros(100_000), w)
    with pytest.raises(NotEnoughMemory, match="plan for more nodes"):
        unit.plan(workers=4, memory="2MiB")
    assert unit.plan(workers=4, nodes=4, memory="2MiB").nodes == 4


def test_plans_run_and_draw(tmp_path: Path) -> None:
    w, g = st.zeros(6, "f8"), st.zeros(6, "f8")
    plan = descent(w, g).plan(workers=2)
    assert "<svg" in plan.draw(str(tmp_path / "plan.svg"))
    plan.run(runtime=st.Threads(2))
    assert w.array.tobytes() == truth()[0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: st.unit(3), "cannot be called"),  # type: ignore[arg-type]
        (lambda: st.unit(loss, X), "does not take them"),
        (lambda: st.unit(loss, X, Y, st.zeros(6), workers=0), "less than 1"),
        (lambda: st.unit(loss, X, Y, st.zeros(6), mode="fast"), "choose 'sequential'"),
        (lambda: st.unit(loss, X, Y, st.zeros((2, 2, 2))), "one or two dimensions"),
        (lambda: st.unit(loss, X, Y, st.zeros(6), fresh=[st.zeros(6)]), "does not use"),
        (st.seq, "at least one"),
        (lambda: st.seq(loss), "is not a task"),  # type: ignore[arg-type]
        (lambda: st.loop(st.unit(loss, X, Y, st.zeros(6))), "would never end"),
        (lambda: st.loop(st.unit(loss, X, Y, st.zeros(6)), until=3), "is not a unit"),
        (lambda: st.source(3), "cannot be called"),  # type: ignore[call-overload]
    ],
)
def test_wrong_trees_are_refused(make: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        make()


def test_units_side_by_side_share_no_state() -> None:
    w = st.zeros(6, "f8")
    with pytest.raises(PlanError, match="use one state"):
        st.parallel_units(st.unit(batch_step, X, Y, w), st.unit(loss, X, Y, w))
    a, b = st.zeros(6, "f8"), st.zeros(6, "f8")
    both = st.parallel_units(st.unit(batch_step, X, Y, a, workers=1), st.unit(batch_step, X, Y, b, workers=1))
    st.run(both, runtime=st.Threads(2), seed=1)
    assert a.array.any()
    assert b.array.any()


# -- failures ----------------------------------------------------------------------------------------------------------


def test_an_error_names_unit_part_and_iteration_and_loses_nothing() -> None:
    w = st.zeros(6, "f8")

    def bad(worker: Any, X: Any, w: Any) -> None:
        if worker.part == 2 and worker.iteration == 3:
            raise ValueError("too hot")

    task = st.seq(st.unit(batch_step, X, Y, w), st.unit(bad, X, w, iterations=5))
    with pytest.raises(RunError, match="unit bad failed in part 2, iteration 3: ValueError: too hot"):
        st.run(task, runtime=st.Threads(2))
    assert w.array.any()


def test_a_criterion_that_is_nan_ends_the_task_with_words() -> None:
    def nan(worker: Any) -> float:
        return float("nan")

    with pytest.raises(RunError, match="criterion nan: its value is nan"):
        st.run(st.loop(st.unit(nan), until=st.below(st.unit(nan), 1.0)), runtime=st.Serial())


def test_a_value_must_be_a_number() -> None:
    with pytest.raises(RunError, match="returned dict; return a number"):
        st.run(st.unit(lambda worker: {}, name="odd"), runtime=st.Serial())


class _Stop(Exception):
    pass


@pytest.mark.parametrize("after", [1, 2, 3, 5, 8, 11])
def test_a_task_resumes_with_the_same_bits(after: int, tmp_path: Path) -> None:
    done = []

    def stop(record: Any) -> None:
        done.append(record)
        if len(done) == after:
            raise _Stop

    with pytest.raises(_Stop):
        run_descent(st.Threads(2), checkpoint=tmp_path, checkpoint_every=1, on_stage=stop)
    if after == 1:  # stopped before the first checkpoint
        bits, history, _ = run_descent(st.Threads(2), checkpoint=tmp_path)
    else:
        bits, history, _ = run_descent(st.Threads(1), checkpoint=tmp_path, resume=True)
    assert bits == truth()[0]
    assert history == truth()[1][len(truth()[1]) - len(history) :]


def test_another_task_does_not_resume(tmp_path: Path) -> None:
    run_descent(st.Serial(), checkpoint=tmp_path)
    w, g = st.zeros(6, "f8"), st.zeros(6, "f8")
    with pytest.raises(CheckpointError, match="tree"):
        st.run(descent(w, g, turns=9), runtime=st.Serial(), checkpoint=tmp_path, resume=True)


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_tasks_of_a_session_do_not_change_each_other() -> None:
    session = st.Session()
    states = [(st.zeros(6, "f8"), st.zeros(6, "f8")) for _ in range(4)]
    handles = [session.submit(descent(w, g, 1), runtime=st.Threads(2)) for w, g in states]
    for handle in handles:
        assert handle.result(60).history("loss") == truth()[1]
    session.close()
    assert {w.array.tobytes() for w, _ in states} == {truth()[0]}


def test_after_failed_cancelled(tmp_path: Path) -> None:
    session = st.Session()
    w, started, go = st.zeros(6, "f8"), threading.Event(), threading.Event()

    def bad(worker: Any) -> None:
        raise ValueError("no")

    def slow(worker: Any) -> None:
        started.set()
        assert go.wait(60)

    gate = session.submit(st.unit(slow, workers=1), runtime=st.Threads(2))
    assert started.wait(60)
    failing = session.submit(st.unit(bad, workers=1), after=[gate])
    skipped = session.submit(st.unit(batch_step, X, Y, w), after=[failing])
    neighbour = session.submit(st.unit(batch_step, X, Y, w, workers=1))
    assert neighbour.result(60).stopped == "done"  # beside the one that waits
    endless = session.submit(st.loop(st.unit(batch_step, X, Y, st.zeros(6, "f8"), workers=1), times=10**6))
    endless.cancel()
    go.set()
    with pytest.raises(RunError, match="unit bad failed"):
        failing.result(60)
    with pytest.raises(RunError, match="skipped"):
        skipped.result(60)
    with pytest.raises(RunError, match="cancelled"):
        endless.result(60)
    assert (gate.status, failing.status, skipped.status) == ("done", "failed", "skipped")
    with pytest.raises(PlanError, match="another session"):
        session.submit(st.unit(slow), runtime=st.Serial())
    session.close()


def test_data_are_read_once_and_freed_after_their_last_task() -> None:
    reads: list[int] = []

    def read(part: int, parts: int) -> Any:
        reads.append(part)
        return np.arange(part, 100, parts)

    numbers = st.source(read)

    submitted = threading.Event()  # data are freed when no task is left that needs them, so both must be known

    def total(worker: Any, mine: Any) -> int:
        submitted.wait(60)
        return int(mine.sum())

    session = st.Session()
    first = session.submit(st.unit(total, numbers, parts=4), runtime=st.Threads(2))
    second = session.submit(st.loop(st.unit(total, numbers, parts=4), times=3), after=[first])
    submitted.set()
    assert second.result(60).value == first.result(60).value == 4950
    assert sorted(reads) == [0, 1, 2, 3]
    session.close()
    assert not [owner for owner in data_store._held if owner.startswith("session")]


def test_nested_loops_have_a_sync_each() -> None:
    def note(worker: Any, seen: Any) -> None:
        seen.add([worker.part], [1.0])

    inner_state, outer_state = st.zeros(2, "f8"), st.zeros(2, "f8")
    inner = st.loop(st.unit(note, inner_state, parts=2, iterations=3, name="inner"), times=2, sync=st.SSP(2))
    own = st.unit(note, outer_state, parts=2, iterations=3, name="own", sync=st.ASP())
    task = st.loop(st.seq(inner, st.unit(note, outer_state, parts=2, name="outer"), own), times=2, sync=st.BSP())
    assert {unit.name: unit.sync for unit in task.units()} == {
        "inner": st.SSP(2),
        "outer": st.BSP(),
        "own": st.ASP(),
    }
    for runtime in (st.Serial(), st.Threads(2), st.Simulated(nodes=2, threads=1)):
        inner_state.array[:] = outer_state.array[:] = 0.0
        result = st.run(task, runtime=runtime, record=None if isinstance(runtime, st.Serial) else "full")
        assert inner_state.array.tolist() == [12.0, 12.0]
        assert outer_state.array.tolist() == [8.0, 8.0]
        for record in result.stages:
            if record.recording is not None:
                check_replay(record.recording)
        assert isinstance(runtime, st.Serial) == all(record.recording is None for record in result.stages)
