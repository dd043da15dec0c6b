"""`st.tables.plan(…)`: which grade a job over tables has and why, and the run of that very plan."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import NotARuntime, PlanError

X = {"x": st.tables.Table(rows=100, cols=8)}


def worker(w: Any) -> None:
    x = w.table("x")
    for clock in w.clocks(3):
        keys = np.unique(w.random(clock).integers(0, 100, 20))
        x.add(keys, 0.1 * x.read(keys) + 1.0)


@pytest.mark.parametrize(
    ("sync", "placement", "grade", "why"),
    [
        (None, "served", "identical", "a read sees exactly the clocks before its own"),
        (st.tables.BSP(), "served", "identical", "deltas are applied in worker order"),
        (st.tables.SSP(2), "served", "replayable", "depends on time: record='full' keeps a recording"),
        (st.tables.ASP(), "served", "replayable", "two runs may differ"),
        (st.tables.BSP(), "shared", "statistical", r"table 'x' has placement='shared': .*\(Hogwild!\)"),
        (st.tables.SSP(1), "shared", "statistical", "only the converged loss is promised"),
    ],
)
def test_the_grade_and_why(sync: Any, placement: str, grade: str, why: str) -> None:
    tables = {"x": st.tables.Table(rows=100, cols=8, placement=placement)}
    plan = st.tables.plan(worker, workers=2, tables=tables, sync=sync, runtime=st.Threads(2))
    assert plan.grade == grade
    text = " ".join(plan.explain().split())
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(text)
    assert f"{placement}, updates by" in text
    assert repr(plan) == (
        f"<plan {plan.fingerprint}: tables/worker on 2 workers and 1 table, {grade}, threads, 2 workers>"
    )


def test_what_it_lists() -> None:
    tables = {
        "weights": st.tables.Table(rows=10_000, cols=64, apply=st.tables.adagrad(0.1)),
        "words": st.tables.Table(dtype="i8"),
        "sparse": st.tables.Table(rows=50, cols=1000, unit="element", dtype="f2"),
    }
    comm = st.tables.Managed("100Mbit", codec="f2")
    plan = st.tables.plan(
        worker, workers=4, tables=tables, sync=st.tables.SSP(3), comm=comm, runtime=st.Threads(2), seed=7
    )
    text = " ".join(plan.explain().split())
    assert "weights [10,000 × 64] float32: served, updates by adagrad" in text
    assert "2.4 MiB" in text
    assert "words [any keys × 1] int64: served" in text
    assert "sparse [50 × 1,000] float32: served, by element" in text
    assert "SSP(s=3" in text
    assert "all updates of clocks up to t − 4" in text
    assert "16-bit floats" in text
    assert "4 logical" in text
    assert "seed=7" in text
    assert plan.cost.state_bytes == 10_000 * 64 * 4 + 50 * 1000 * 4
    assert "statistical" not in text
    with pytest.raises(PlanError, match="has no picture: which worker touches which row is known only while it runs"):
        plan.draw()
    assert "Managed(" in plan._repr_html_()


def test_the_fingerprint() -> None:
    def of(**other: Any) -> str:
        given: dict[str, Any] = {"workers": 2, "tables": X, "seed": 0} | other
        return st.tables.plan(worker, **given).fingerprint

    assert of() == of(runtime=st.Serial()) == of(runtime=st.Simulated(nodes=3)) == of(comm=st.tables.Lazy())
    others: list[dict[str, Any]] = [
        {"workers": 3},
        {"seed": 1},
        {"sync": st.tables.SSP(1)},
        {"comm": st.tables.Eager(codec="f2")},
    ]
    others += [{"tables": {"x": st.tables.Table(rows=100, cols=8, start=np.ones((100, 8), "f4"))}}]
    assert len({of(), *(of(**other) for other in others)}) == len(others) + 1


def test_a_plan_runs_as_st_run_does() -> None:
    straight = st.run(worker, workers=2, tables=X, runtime=st.Serial())
    plan = st.tables.plan(worker, workers=2, tables=X, runtime=st.Threads(2))
    for result in (plan.run(), plan.run(runtime=st.Serial()), plan.run(runtime=st.Simulated(nodes=2, threads=1))):
        np.testing.assert_array_equal(result.tables["x"], straight.tables["x"])
        assert result.plan.fingerprint == plan.fingerprint
    assert straight.plan is not None
    assert straight.plan.grade == "identical"
    assert pickle.loads(pickle.dumps(straight)).plan.fingerprint == plan.fingerprint


def test_a_start_that_changed_is_refused() -> None:
    start = np.zeros((100, 8), "f4")
    table = st.tables.Table(rows=100, cols=8, start=start)
    plan = st.tables.plan(worker, workers=2, tables={"x": table})
    assert isinstance(table.start, np.ndarray)
    table.start.flags.writeable = True
    table.start[0, 0] = 5
    with pytest.raises(PlanError, match=r"cannot run: .*start of table 'x' was .*st.tables.plan\(…\)"):
        plan.run()


def test_what_cannot_run_is_refused_when_it_is_planned() -> None:
    shared = {"x": st.tables.Table(rows=100, cols=8, placement="shared")}
    with pytest.raises(PlanError, match="memory of one process, and Simulated has several"):
        st.tables.plan(worker, tables=shared, runtime=st.Simulated(nodes=2))
    with pytest.raises(NotARuntime, match=r"runtime='threads' is not a runtime"):
        st.tables.plan(worker, tables=X, runtime="threads")
    with pytest.raises(PlanError, match=r"give a dict of st\.tables\.Table"):
        st.tables.plan(worker, tables={})
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        _ = st.tables.plans
