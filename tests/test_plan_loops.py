"""`loop.plan(…)`: printed, shown in a notebook, and run as it is."""

# mypy: allow-untyped-defs, disable-error-code="attr-defined"
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from plan_cases import LOOPS, digest, run_loop
from stretto.errors import NotARuntime, PlanError


@st.parallel
def epoch(ratings, W, H, lr, loss):
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * e * H[j], H[j] + lr * e * W[i]


def arguments() -> list[Any]:
    random = np.random.default_rng(0)
    cells = random.choice(600, 200, replace=False)
    data = st.Data.from_arrays(cells // 20, cells % 20, random.normal(size=200).astype("f4"), (30, 20))
    return [data, random.normal(size=(30, 4)), random.normal(size=(20, 4)), 0.01, st.accumulator(0.0)]


def test_a_plan_runs_the_call() -> None:
    one, other, third = arguments(), arguments(), arguments()
    epoch(*one)
    plan = epoch.plan(*other)
    assert plan.run() is None
    epoch.plan(*third).run(runtime=st.Serial())
    for a, b, c in zip(one[1:3], other[1:3], third[1:3], strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert float(one[4]) == float(other[4])
    plan.run()
    assert float(other[4]) > float(one[4]), "a plan may run once an epoch"


# A schedule goes on from call to call: what its second run gives depends on the first.
@pytest.mark.parametrize("name", [name for name, (_, options, _) in LOOPS.items() if "schedule" not in options])
def test_every_strategy_runs_by_its_plan(name: str) -> None:
    function, options, make = LOOPS[name]
    made = make()
    plan = st.parallel(runtime=st.Threads(2), **options)(function).plan(**made)
    plan.run()
    assert plan.cost.entries >= 0
    assert plan.grade == "identical"
    assert plan._repr_html_().count("<tr>") > 3
    assert digest(run_loop(name, st.Serial())), name


def test_arguments_that_were_left_out_are_needed_to_run() -> None:
    data, W, H, *_ = arguments()
    with pytest.raises(PlanError, match=r"of epoch cannot run: missing a required argument: 'lr'; give epoch.plan"):
        epoch.plan(data, W, H).run()


def test_records_that_changed_are_refused() -> None:
    given, values = arguments(), np.ones(200, "f4")
    given[0] = st.Data.from_arrays(given[0].rows, given[0].cols, values, (30, 20))
    plan = epoch.plan(*given)
    values[3] += 1
    with pytest.raises(PlanError, match=rf"plan {plan.fingerprint} cannot run: .*data digest was .*epoch.plan\(…\)"):
        plan.run()


def test_where_it_runs_is_checked() -> None:
    with pytest.raises(NotARuntime, match=r"plan of epoch: runtime='serial' is not a runtime.*write st.Serial\(\)"):
        epoch.plan(*arguments()).run(runtime="serial")


def test_how_it_prints() -> None:
    plan = epoch.using(runtime=st.Threads(2)).plan(*arguments())
    assert repr(plan) == f"<plan {plan.fingerprint}: epoch, 2d unordered, identical, threads, 2 workers>"
    assert str(plan) == plan.explain()
    html = plan._repr_html_()
    assert "strategy" in html
    assert "</svg>" in html
    assert plan.cost.entries == 200


def test_planning_starts_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a cluster was started")

    monkeypatch.setattr("stretto.runtime.cluster.hosts.hosts.Hosts.__enter__", refuse)
    plan = epoch.using(runtime=st.Cluster("processes", nodes=2)).plan(*arguments())
    assert plan.fingerprint == epoch.plan(*arguments()).fingerprint
    assert "cluster" in repr(plan)
