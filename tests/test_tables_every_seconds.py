"""Evaluations at given seconds: virtual ones on a simulated cluster, those of the clock on the wall elsewhere."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import PlanError
from stretto.runtime.simulated.faults import Crash

CLUSTER = st.Simulated(nodes=4, threads=1, seconds_per_item=1e-3, latency="10us")


def slow(w: Any) -> None:
    """Worker 0 takes ten times as long as the others."""
    x = w.table("x")
    for _ in w.clocks(10):
        x.add([w.number], x.read([w.number]) * 0.5 + 1.0)
        w.work(100 if w.number == 0 else 10)


def total(view: Any) -> float:
    return float(view["x"].sum())


def simulated(sync: Any, **more: Any) -> Any:
    runtime = more.pop("runtime", CLUSTER)
    tables = {"x": st.tables.Table(rows=4, dtype="f8")}
    return st.run(slow, workers=4, tables=tables, sync=sync, runtime=runtime, watch=total, **more)


def test_virtual_seconds_whatever_the_slowest_worker_does() -> None:
    result = simulated(st.tables.ASP(), every_seconds="20ms")
    assert [look.seconds for look in result.history[:-1]] == pytest.approx(
        [0.02 * k for k in range(len(result.history) - 1)]
    )
    early = [look for look in result.history if look.seconds < 0.09]
    assert {look.clock for look in early} == {0}
    assert len({look.objective for look in early}) > 3  # the quick ones are seen to move on
    assert result.history[-1].objective == float(result.tables["x"].sum())


def test_given_seconds() -> None:
    result = simulated(st.tables.SSP(2), every_seconds=[0.25, 0.1, "400ms"])
    assert [look.seconds for look in result.history[1:-1]] == pytest.approx([0.1, 0.25, 0.4])


def test_under_bsp_the_tables_of_a_clock_are_evaluated() -> None:
    by_clock = {look.clock: look.objective for look in simulated(st.tables.BSP()).history}
    result = simulated(st.tables.BSP(), every_seconds=0.25)
    assert [look.clock for look in result.history] == [0, 3, 5, 8, 10]
    assert all(by_clock[look.clock] == look.objective for look in result.history)


def test_clocks_and_seconds_together() -> None:
    result = simulated(st.tables.BSP(), every=4, every_seconds=0.25)
    assert [look.clock for look in result.history] == [0, 3, 4, 5, 8, 10]


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1)], ids=repr)
def test_evaluations_of_a_lost_life_do_not_count(sync: Any) -> None:
    failing = st.Simulated(
        nodes=4,
        threads=1,
        seconds_per_item=1e-3,
        latency="10us",
        faults=[Crash(1, at=0.55, back_after=0.1)],
        detect=0.05,
    )
    result = simulated(sync, every_seconds=0.2, runtime=failing, checkpoint_every=1)
    clocks, seconds = [look.clock for look in result.history], [look.seconds for look in result.history]
    assert clocks == sorted(clocks)
    assert seconds == sorted(seconds)
    assert len(result.history) > 4
    np.testing.assert_array_equal(result.tables["x"], simulated(st.tables.BSP()).tables["x"])


def waiting(w: Any) -> None:
    for _ in w.clocks(30):
        w.table("x").add([w.number], [1.0])
        time.sleep(0.03)


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1)], ids=repr)
@pytest.mark.parametrize("runtime", [st.Serial(), st.Threads(2), "cluster"], ids=["serial", "threads", "cluster"])
def test_seconds_on_the_wall(runtime: Any, sync: Any) -> None:
    if runtime == "cluster":
        pytest.importorskip("zmq", reason="the extra stretto[cluster] is not installed")
        runtime = st.Cluster("processes", nodes=2)
    result = st.run(
        waiting,
        workers=2,
        tables={"x": st.tables.Table(rows=2)},
        sync=sync,
        runtime=runtime,
        watch=total,
        every_seconds=0.1,
    )
    found = [(look.clock, look.objective) for look in result.history]
    assert found[0] == (0, 0.0)
    assert found[-1] == (30, 60.0)
    assert len(found) >= 3
    if isinstance(sync, st.tables.BSP):
        assert all(objective == 2 * clock for clock, objective in found)


def test_what_is_no_time_is_refused() -> None:
    for wrong, words in ((0, "above 0"), ("soon", "not a time"), ([], "names no second"), (-1, "not a time")):
        with pytest.raises(PlanError, match=words):
            simulated(st.tables.BSP(), every_seconds=wrong)
    with pytest.raises(PlanError, match="pass watch="):
        st.run(waiting, workers=2, tables={"x": st.tables.Table(rows=2)}, every_seconds=1.0)
