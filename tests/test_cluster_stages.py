"""States between the stages of tasks on a cluster of processes: holders, moves, and what a loss costs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import PlanError, RunError

ROWS = 40_000  # f8: five chunks
KEYS = np.arange(0, ROWS, 37)


def nudge(worker: Any, w: Any, by: float) -> None:
    """Reads and changes rows in every chunk."""
    seen = w.read(KEYS)
    w.add(KEYS, by * (1.0 + 0.01 * seen))


def nudge_one(worker: Any, w: Any) -> None:
    """Reads and changes rows of the first chunk only."""
    w.add(np.arange(10), 1.0 + 0.5 * w.read(np.arange(10)))


def spread(worker: Any, rows: Any, w: Any) -> None:
    w.add(np.asarray(rows), 0.25 + 0.001 * w.read(np.asarray(rows)))


def hops(w: Any, **how: Any) -> Any:
    """Stages on single nodes, which take turns, between stages on all."""
    return st.loop(
        st.seq(
            st.unit(spread, np.arange(ROWS), w, parts=4),
            st.unit(nudge, w, 0.5, placement={0: 1}, **how),
            st.unit(nudge, w, 0.25, placement={1: 1}, iterations=3, **how),
            st.unit(nudge_one, w, placement={2: 1}, **how),
        ),
        times=2,
    )


def bits(runtime: Any, how: dict[str, Any] | None = None, **options: Any) -> tuple[bytes, Any]:
    w = st.zeros(ROWS, "f8")
    result = st.run(hops(w, **(how or {})), runtime=runtime, **options)
    return w.array.tobytes(), result


@pytest.fixture(scope="module")
def reference() -> bytes:
    w = st.zeros(ROWS, "f8")
    units = hops(w)
    loop = units.body.tasks
    for _ in range(2):  # placements name nodes that the serial runtime does not have
        for unit in loop:
            plain = st.unit(
                unit.function, *(a.value for a in unit.arguments), parts=unit.parts, iterations=unit.iterations
            )
            st.run(plain, runtime=st.Serial())
    return w.array.tobytes()


@pytest.mark.parametrize("preparation", ["whole", "on-demand", "served", None])
def test_stages_on_single_nodes_have_the_bits_of_the_serial_runtime(reference: bytes, preparation: Any) -> None:
    cluster = st.Cluster("processes", nodes=3)
    found, result = bits(cluster, {"preparation": preparation})
    assert found == reference
    single = [stage for stage in result.stages if len(stage.nodes) == 1]
    assert {stage.preparation for stage in single} == {preparation or "whole"}
    touched = [stage.moved for stage in single if stage.unit == "nudge_one"]
    whole = ROWS * 8
    if preparation == "on-demand":  # the first chunk alone: 64 KiB
        assert touched == [65_536, 65_536]
    elif preparation == "served":
        assert touched == [0, 0]
    else:
        assert all(moved == whole for moved in touched)


def test_direct_transfers_move_less_than_over_all_nodes(reference: bytes) -> None:
    cluster = st.Cluster("processes", nodes=3)
    direct = bits(cluster, {"preparation": "whole"})
    shards = bits(cluster, {"preparation": "whole"}, transfer="shards")
    assert direct[0] == shards[0] == reference
    hops = [[stage.moved for stage in result.stages if stage.nodes in ((1,), (2,))] for _, result in (direct, shards)]
    assert hops[0] == [ROWS * 8] * 4  # from one node to the next
    assert all(moved > 1.2 * ROWS * 8 for moved in hops[1])  # to all nodes first
    with pytest.raises(PlanError, match="transfer must be one of 'direct', 'shards'; got 'wire'"):
        bits(cluster, transfer="wire")


def test_a_state_larger_than_its_memory_is_on_disk(reference: bytes) -> None:
    def crowd(worker: Any, w: Any) -> float:
        import stretto.runtime.stages.held_states as states

        (held,) = [held for key, held in states._held.items() if key[1] >= 0]
        return float(held.table().values.nbytes)

    w = st.zeros(ROWS, "f8")
    task = st.unit(nudge, w, 0.5, parts=2, iterations=3, workers=1)
    plain = st.zeros(ROWS, "f8")
    st.run(st.unit(nudge, plain, 0.5, parts=2, iterations=3), runtime=st.Serial())
    cluster = st.Cluster("processes", nodes=2)
    result = st.run(st.seq(task, st.unit(crowd, w, workers=1)), runtime=cluster, memory="128KiB")
    assert w.array.tobytes() == plain.array.tobytes()
    assert result.value == 128 * 1024  # two chunks of 64 KiB, of five


def meet(worker: Any, w: Any, mine: str, other: str) -> None:
    """Ends only if the other stage runs at the same time."""
    Path(mine).touch()
    deadline = time.monotonic() + 60
    while not Path(other).exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the other stage did not start")
        time.sleep(0.01)  # polls for another process, with a deadline
    w.add([0], [1.0])


def test_stages_of_two_tasks_run_at_the_same_time(tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    x, y = st.zeros(4, "f8"), st.zeros(4, "f8")
    session = st.Session()
    one = session.submit(st.unit(meet, x, a, b, workers=1), runtime=st.Cluster("processes", nodes=2))
    two = session.submit(st.unit(meet, y, b, a, workers=1))
    nodes = [task.result(120).stages[0].nodes for task in (one, two)]
    session.close()
    assert sorted(nodes) == [(0,), (1,)]
    assert x.array[0] == y.array[0] == 1.0


def where(worker: Any, w: Any) -> None:
    w.add(np.arange(ROWS), np.ones(ROWS))


def test_nodes_join_and_leave_between_stages() -> None:
    w = st.zeros(ROWS, "f8")
    session = st.Session()
    cluster = st.Cluster("processes", nodes=2)
    with pytest.raises(PlanError, match=r"no cluster yet; submit a task with runtime=st.Cluster"):
        session.add_node()
    first = session.submit(st.unit(where, w, parts=4), runtime=cluster).result(120)
    assert first.stages[0].nodes == (0, 1)
    assert session.add_node() == 2
    second = session.submit(st.unit(where, w, parts=6)).result(120)
    assert second.stages[0].nodes == (0, 1, 2)
    with pytest.raises(PlanError, match=r"node 7 of 0, 1, 2; give one of these"):
        session.remove_node(7)
    session.remove_node(0)
    third = session.submit(st.unit(where, w, parts=4)).result(120)
    assert third.stages[0].nodes == (1, 2)
    session.close()
    assert (w.array == 4 + 6 + 4).all()
    fixed = st.Session()
    fixed.submit(st.unit(where, w), runtime=st.Threads(1)).result(60)
    with pytest.raises(PlanError, match=r"Threads\(n=1\) has a fixed number of nodes"):
        fixed.add_node()
    fixed.close()


def test_a_node_that_leaves_hands_on_what_it_alone_holds() -> None:
    """Within one task: the states are on node 0 when it leaves."""
    w = st.zeros(ROWS, "f8")
    session = st.Session()
    left = []

    def after(stage: Any) -> None:
        if stage.unit == "first":
            session.remove_node(0)
            left.append(stage.nodes)

    task = st.seq(
        st.unit(nudge, w, 1.0, placement={0: 1}, name="first"), st.unit(nudge, w, 2.0, placement={1: 1}, name="second")
    )
    session.submit(task, runtime=st.Cluster("processes", nodes=2), on_stage=after).result(120)
    session.close()
    assert left == [(0,)]
    plain = st.zeros(ROWS, "f8")
    st.run(st.seq(st.unit(nudge, plain, 1.0), st.unit(nudge, plain, 2.0)), runtime=st.Serial())
    assert w.array.tobytes() == plain.array.tobytes()


def step(worker: Any, w: Any, marker: str) -> None:
    """Kills its process once, in the middle of a later stage."""
    nudge(worker, w, 0.5)
    if worker.iteration == 3 and marker:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def chain(w: Any, marker: str) -> Any:
    return st.loop(
        st.seq(st.unit(step, w, marker, placement={0: 1}, iterations=2), st.unit(nudge, w, 0.1, placement={1: 1})),
        times=3,
    )


def test_a_killed_host_that_held_the_only_copy_costs_no_bits(tmp_path: Path) -> None:
    plain = st.zeros(ROWS, "f8")
    for _ in range(3):
        st.run(st.seq(st.unit(nudge, plain, 0.5, iterations=2), st.unit(nudge, plain, 0.1)), runtime=st.Serial())
    w = st.zeros(ROWS, "f8")
    with pytest.warns(RuntimeWarning, match="was lost"):
        result = st.run(chain(w, str(tmp_path / "killed")), runtime=st.Cluster("processes", nodes=2))
    assert (tmp_path / "killed").exists()
    assert w.array.tobytes() == plain.array.tobytes()
    assert [stage.iterations for stage in result.stages] == [2, 1] * 3  # what was repeated is listed once


def test_a_task_resumes_in_the_middle_of_a_unit(tmp_path: Path) -> None:
    plain = st.zeros(ROWS, "f8")
    st.run(st.unit(nudge, plain, 0.5, iterations=10), runtime=st.Serial())

    def stop(stage: Any) -> None:
        stages.append(stage.iterations)
        if len(stages) == 2:
            raise KeyboardInterrupt

    for runtime in (st.Threads(2), st.Cluster("processes", nodes=2)):
        w = st.zeros(ROWS, "f8")
        folder, stages = tmp_path / type(runtime).__name__, list[int]()
        task = st.unit(nudge, w, 0.5, iterations=10)
        with pytest.raises(KeyboardInterrupt):
            st.run(task, runtime=runtime, checkpoint=folder, checkpoint_every="3 iterations", on_stage=stop)
        w.array[:] = -1.0
        result = st.run(task, runtime=runtime, checkpoint=folder, checkpoint_every="3 iterations", resume=True)
        assert stages == [3, 3]
        assert [stage.iterations for stage in result.stages] == [3, 3, 1]
        assert w.array.tobytes() == plain.array.tobytes()


@pytest.mark.parametrize("mode", ["locked", "hogwild", "sequential"])
def test_modes_run_on_one_node_of_a_cluster(mode: str) -> None:
    w = st.zeros(ROWS, "f8")

    def count(worker: Any, w: Any) -> None:
        w.add(np.arange(worker.part, ROWS, 4), np.ones(ROWS // 4))  # no two parts write to one number

    task = st.seq(st.unit(where, w, placement={1: 1}), st.unit(count, w, parts=4, iterations=2, mode=mode, workers=1))
    st.run(task, runtime=st.Cluster("processes", nodes=2))
    assert (w.array == 3).all()


def test_an_error_on_a_node_names_the_unit_and_the_host() -> None:
    def wrong(worker: Any, w: Any) -> None:
        raise ValueError("no such luck")

    w = st.zeros(4, "f8")
    with pytest.raises(RunError, match=r"unit wrong failed in part 0, iteration 0: ValueError: no such luck") as found:
        st.run(st.unit(wrong, w), runtime=st.Cluster("processes", nodes=2))
    assert any("host" in note for note in getattr(found.value, "__notes__", []))


def test_a_partition_of_the_user_is_kept() -> None:
    def held(worker: Any, w: Any) -> Any:
        import stretto.runtime.stages.held_states as states

        (mine,) = [held for key, held in states._held.items() if key[1] >= 0]
        found = np.zeros(5)
        if worker.part % 2 == 0:
            found[mine.present] = 1.0 + worker.node
        return found

    w = st.zeros(ROWS, "f8")
    cluster = st.Cluster("processes", nodes=2)
    task = st.unit(held, w, parts=4, partition={"w": "range"})
    assert st.run(task, runtime=cluster).value.tolist() == [1.0, 1.0, 1.0, 2.0, 2.0]
    odd = st.unit(held, w, parts=4, partition={"w": lambda rows, nodes: (rows // 8192) % nodes})
    assert st.run(odd, runtime=cluster).value.tolist() == [1.0, 2.0, 1.0, 2.0, 1.0]
    with pytest.raises(PlanError, match="partition of 'w' is 3; give 'range', 'parts' or a function"):
        st.unit(held, w, partition={"w": 3})
