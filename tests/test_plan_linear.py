"""`model.plan(X, y)` of linear models: no grid, and otherwise a plan like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import pytest
from scipy.sparse import csc_array, csr_array
from sklearn.model_selection import KFold

import stretto as st
from stretto.errors import PlanError
from stretto.plan.job import JobPlan

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 15))
NUMBERS = 2 * X[:, 3] - X[:, 5] + 1
TWO, THREE = NUMBERS > 1, np.digitize(NUMBERS, [0, 2])

CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "lasso": (lambda **k: st.Lasso(0.1, **k), NUMBERS),
    "lasso, positive": (lambda **k: st.Lasso(0.1, positive=True, fit_intercept=False, standardize=True, **k), NUMBERS),
    "elastic net": (lambda **k: st.ElasticNet(0.1, l1_ratio=0.3, profile="fast", **k), NUMBERS),
    "scheduled": (lambda **k: st.Lasso(0.1, schedule=st.schedule.prioritised(width=2), random_state=3, **k), NUMBERS),
    "cross-validation": (lambda **k: st.LassoCV(n_alphas=5, cv=3, **k), NUMBERS),
    "ratios": (lambda **k: st.ElasticNetCV(l1_ratio=[0.2, 0.8], n_alphas=5, cv=3, **k), NUMBERS),
    "shuffled folds": (lambda **k: st.LassoCV(n_alphas=5, cv=KFold(3, shuffle=True, random_state=0), **k), NUMBERS),
    "groups": (lambda **k: st.GroupLasso(0.1, groups=[[3, 1], [0, 2], list(range(4, 15))], **k), NUMBERS),
    "counts": (lambda **k: st.PoissonRegressor(0.1, l1_ratio=0.5, **k), np.round(np.abs(NUMBERS))),
    "huber": (lambda **k: st.HuberElasticNet(0.1, epsilon=0.5, **k), NUMBERS),
    "two targets": (lambda **k: st.MultiTaskElasticNet(0.1, **k), np.c_[NUMBERS, -NUMBERS]),
    "two classes": (lambda **k: st.LogisticRegression(0.5, l1_ratio=1.0, class_weight="balanced", **k), TWO),
    "chosen C": (lambda **k: st.LogisticRegressionCV(Cs=4, l1_ratios=[0.5, 1.0], cv=3, **k), THREE),
    "several classes": (lambda **k: st.LogisticRegression(l1_ratio=0.5, **k), THREE),
    "against the rest": (lambda **k: st.LogisticRegression(l1_ratio=1.0, multi_class="ovr", **k), THREE),
    "sgd": (lambda **k: st.LogisticRegression(l1_ratio=1.0, solver="sgd", tol=1.0, optimizer="sgd", **k), THREE),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", [np.asarray, csr_array, csc_array])
def test_the_plan_is_the_one_that_fit_runs(name: str, form: Callable[..., Any]) -> None:
    make, y = CASES[name]
    model, data = make(n_jobs=2), form(X)
    plan = model.plan(data, y)
    assert not any(attribute.endswith("_") for attribute in vars(model)), "planning leaves no trace"
    fitted = make(n_jobs=1).fit(data, y)
    assert isinstance(plan, JobPlan)
    assert plan.fingerprint == fitted.fingerprint_ == fitted.plan_.fingerprint
    assert plan.cost == fitted.plan_.cost
    assert plan.grade == "identical"
    assert plan.run(runtime=st.Serial()) is model
    assert model.fingerprint_ == plan.fingerprint
    np.testing.assert_array_equal(model.coef_, fitted.coef_)
    assert f"plan {plan.fingerprint}: {type(model).__name__} on 120 × 15, 1,800 entries" in str(plan)


def test_what_changes_a_number_changes_the_fingerprint() -> None:
    weight = np.linspace(0.5, 2.0, len(X))
    plans = [
        st.Lasso(0.1).plan(X, NUMBERS),
        st.Lasso(0.2).plan(X, NUMBERS),
        st.Lasso(0.1, tol=1e-6).plan(X, NUMBERS),
        st.Lasso(0.1, profile="fast").plan(X, NUMBERS),
        st.Lasso(0.1, schedule=st.schedule.cyclic(width=2)).plan(X, NUMBERS),
        st.ElasticNet(0.1, l1_ratio=1.0).plan(X, NUMBERS),
        st.Lasso(0.1).plan(X + 1, NUMBERS),
        st.Lasso(0.1).plan(X, NUMBERS + 1),
        st.Lasso(0.1).plan(X, NUMBERS, weight),
        st.Lasso(0.1).plan(X.astype("f4"), NUMBERS),
    ]
    assert len({plan.fingerprint for plan in plans}) == len(plans)
    assert st.Lasso(0.1, n_jobs=2, verbose=1).plan(X, NUMBERS).fingerprint == plans[0].fingerprint


def test_the_memory_layout_of_dense_data_does_not_change_the_fingerprint() -> None:
    whole = np.rint(X) + 0.0  # no −0.0, which integers do not have
    same = [np.asfortranarray(whole), pandas.DataFrame(whole), whole.astype(">f8"), whole.astype(np.int8)]
    same += [np.repeat(whole, 2, axis=1)[:, ::2], whole.tolist()]
    for model in (st.Lasso(0.1), st.LogisticRegression(l1_ratio=1.0), st.FactorizationMachine(2, max_iter=2)):
        y = RNG.normal(size=len(X)) > 0
        one = model.plan(whole, y).fingerprint
        assert {model.plan(form, y).fingerprint for form in same} == {one}
        assert model.plan(whole[::-1], y).fingerprint != one


def test_a_warm_start_is_part_of_the_plan() -> None:
    model = st.Lasso(0.1, warm_start=True)
    first = model.fit(X, NUMBERS).fingerprint_
    plan = model.plan(X, NUMBERS)
    assert plan.fingerprint != first
    assert plan.run().fingerprint_ == plan.fingerprint


def test_folds_that_are_drawn_are_those_of_the_plan() -> None:
    model = st.LassoCV(n_alphas=3, cv=KFold(3, shuffle=True))
    plan = model.plan(X, NUMBERS)
    assert plan.run().fingerprint_ == plan.fingerprint


def test_data_that_changed_are_refused() -> None:
    data, model = X.copy(), st.Lasso(0.1)
    plan = model.plan(data, NUMBERS)
    data[3, 4] += 1
    with pytest.raises(PlanError, match=r"cannot run: .*data digest was .*make a new plan with Lasso.plan\(X, y\)"):
        plan.run()
    assert not hasattr(model, "coef_")


def test_what_it_costs_and_how_it_prints() -> None:
    plan = st.Lasso(0.1, runtime=st.Serial()).plan(csc_array(X), NUMBERS)
    assert plan.cost.entries == 1800
    assert plan.cost.entry_bytes == 1800 * 12 + 16 * 8
    assert plan.cost.flops == 7200
    assert repr(plan) == f"<plan {plan.fingerprint}: Lasso on 120 × 15, 1,800 entries, identical, serial>"
    with pytest.raises(PlanError, match=r"has no picture: features are chosen round by round"):
        plan.draw()
    assert "has no picture" in plan._repr_html_()
    assert "<td" in plan._repr_html_()


def test_a_program_of_coordinates_has_a_plan() -> None:
    def make() -> st.SparseRegression:
        return st.SparseRegression(X, NUMBERS, 0.01, schedule=st.schedule.cyclic(width=2), intercept=True)

    program = make()
    plan = program.plan(pipeline=2, rounds=50, seed=1, runtime=st.Threads(2))
    assert plan.fingerprint == program.fingerprint(2, 1)
    assert plan.grade == "identical"
    assert f"plan {plan.fingerprint}: SparseRegression on 120 × 15" in str(plan)
    found = plan.run(runtime=st.Serial())
    same = st.run(make(), pipeline=2, rounds=50, seed=1)
    np.testing.assert_array_equal(found.params["coef"], same.params["coef"])
    with pytest.raises(PlanError, match=r"start was .* and is"):
        plan.run()
    with pytest.raises(PlanError, match="nothing would end this run"):
        make().plan().run()
