"""Logistic regression with few dense features: the optimum, its true duality gap, and the same bits everywhere."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import stretto as st
from linear_problems import Made, assert_optimal, objective, problems
from stretto.data.design.design import Design
from stretto.errors import DataError
from stretto.kernels.newton import logistic_fit
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.solvers.linear.few_features.choice import suits_newton
from stretto.solvers.linear.few_features.solver import FewFeaturesSolver
from stretto.solvers.linear.moments.solver import solver_of
from stretto.solvers.linear.regression import Fit, RegressionProblem
from stretto.solvers.linear.working_sets import WorkingSetSolver
from working_made import Floats, numbers


def problem_of(X: Any, y: Floats, weight: Floats | None = None, **more: Any) -> RegressionProblem:
    weight = np.ones(len(y)) if weight is None else weight
    return RegressionProblem(Design.of(X), y, weight, "logistic", **({"intercept": True} | more))


def solved(problem: RegressionProblem, l1: float, l2: float = 0.0, runtime: Runtime | None = None, **more: Any) -> Fit:
    with (runtime or Serial()).open() as crew:
        return FewFeaturesSolver(problem, crew).fit(l1, l2, **more)


def best_of(problem: RegressionProblem, l1: float, l2: float, gap: float) -> Fit:
    with Serial().open() as crew:
        return WorkingSetSolver(problem, crew).fit(l1, l2, gap=gap)


def drawn(n: int, p: int, seed: int = 0) -> tuple[Floats, Floats]:
    X = numbers(n, p, seed=seed)
    noise = np.random.default_rng(seed).normal(size=n)
    return X, np.where(X[:, 0] - 2.0 * X[:, p // 2] + noise > -0.5, 1.0, -1.0)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_objective_and_gap_are_true(made: Made) -> None:
    """The reported objective is that of the coefficients, and no solution is better by more than the gap."""
    y = made.signs
    size = float(made.weight.sum())
    for l1, l2, intercept in ((0.5, 0.0, True), (0.05, 2.0, True), (0.0, 1.0, True), (0.3, 0.0, False)):
        problem = problem_of(made.X, y, made.weight, intercept=intercept)
        for gap in (1e-2 * size, 1e-7 * size):
            found = solved(problem, l1, l2, gap=gap)
            value = objective(made.X, y, made.weight, found.coef, found.intercept, l1, l2, "logistic")
            assert found.converged
            assert found.gap <= gap
            assert found.objective == pytest.approx(value, rel=1e-9, abs=1e-9 * size)
            best = best_of(problem, l1, l2, 1e-9 * size)
            assert -2e-9 * size <= found.objective - best.objective <= found.gap + 1e-12 * size
        assert_optimal(
            made, y, made.weight, found.coef, found.intercept, l1, l2, found.gap, loss="logistic",
            fit_intercept=intercept,
        )  # fmt: skip


@pytest.mark.parametrize("penalty", [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)])
@pytest.mark.parametrize(
    "kind", ["scaled", "far", "separable", "copies", "float32", "penalty factors", "rare", "heavy"]
)
def test_awkward_data(kind: str, penalty: tuple[float, float]) -> None:
    l1, l2 = penalty
    X, y = drawn(300, 12, seed=3)
    weight, scale = np.ones(300), None
    if kind == "scaled":
        X = X * 10.0 ** np.arange(-6.0, 6.0)
    elif kind == "far":
        X = X + 1e6
    elif kind == "separable":
        y = np.where(X[:, 3] > 0.2, 1.0, -1.0)
    elif kind == "copies":
        X[:, 4:8], X[:, 9] = X[:, :4], 7.0
    elif kind == "float32":
        X = np.asarray(X, np.float32)
    elif kind == "penalty factors":
        scale = np.linspace(0.1, 5.0, 12)
    elif kind == "rare":
        y[:] = -1.0
        y[:4] = 1.0
    else:
        weight = 10.0 ** np.random.default_rng(0).uniform(-8.0, 8.0, 300)
    problem = problem_of(X, y, weight, scale=scale)
    size = float(weight.sum())
    found, best = solved(problem, l1, l2, gap=1e-6 * size), best_of(problem, l1, l2, 1e-8 * size)
    assert found.converged
    assert best.converged
    assert -2e-8 * size <= found.objective - best.objective <= found.gap + 1e-9 * size
    if kind == "copies":
        assert found.coef[9] == 0.0


def test_newton_steps_suffice() -> None:
    """Usual data need no working sets, and few steps."""
    X, y = drawn(800, 30)
    with Serial().open() as crew:
        for l1, l2 in ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0), (20.0, 0.0)):
            solver = FewFeaturesSolver(problem_of(X, y), crew)
            found = solver.fit(l1, l2, gap=1e-8)
            assert found.converged
            assert found.rounds <= 10
            assert solver._sets is None


def test_working_sets_continue_where_steps_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stretto.solvers.linear.few_features.solver._STEPS", 2)
    X, y = drawn(300, 12)
    seen: list[int] = []

    def look(state: dict[str, Any]) -> bool:
        seen.append(state["round"])
        return False

    found = solved(problem_of(X, y), 0.1, gap=1e-8, look=look)
    assert found.converged
    assert found.rounds > 3
    assert seen == list(range(1, len(seen) + 1))
    assert found.objective == pytest.approx(best_of(problem_of(X, y), 0.1, 0.0, 1e-9).objective, abs=1e-7)


@pytest.mark.parametrize("profile", ["exact", "fast"])
def test_threads_and_callbacks_change_no_bit(profile: str) -> None:
    X, y = drawn(3000, 40)
    found = []
    for runtime in (Serial(), Threads(1), Threads(2)):
        for look in (None, lambda state: False):
            with runtime.open() as crew:
                found.append(FewFeaturesSolver(problem_of(X, y), crew, profile=profile).fit(1.0, gap=1e-6, look=look))
    assert len({fit.coef.tobytes() for fit in found}) == 1
    assert len({(fit.intercept, fit.gap, fit.objective, fit.rounds, fit.epochs) for fit in found}) == 1


def test_rounds_end_on_request() -> None:
    X, y = drawn(300, 12)
    problem = problem_of(X, y)
    found = solved(problem, 1.0, gap=1e-6)
    first = solved(problem, 1.0, gap=1e-6, max_rounds=1)
    assert (first.rounds, first.converged, bool(first.coef.any())) == (1, False, False)
    assert solved(problem, 1.0, gap=1e-6, max_rounds=3).rounds == 3
    measured = solved(problem, 1.0, gap=1e-6, max_rounds=0, start=found)
    assert measured.coef.tobytes() == found.coef.tobytes()
    assert measured.gap == pytest.approx(found.gap, abs=1e-9)
    assert solved(problem, 1.0, gap=1e-6, start=found).rounds == 1
    assert solved(problem, 1.0, gap=1e-9, look=lambda state: True).rounds == 1


def test_largest_l1_is_the_least_that_gives_zeros() -> None:
    X, y = drawn(300, 12)
    with Serial().open() as crew:
        solver = FewFeaturesSolver(problem_of(X, y), crew)
        most = solver.largest_l1()
        assert most == pytest.approx(WorkingSetSolver(problem_of(X, y), crew).largest_l1(), rel=1e-12)
        assert not solver.fit(1.0001 * most, gap=1e-9).coef.any()
        assert np.count_nonzero(solver.fit(0.99 * most, gap=1e-9).coef) == 1


def test_a_path_continues_from_a_saved_state() -> None:
    X, y = drawn(300, 8)
    with Serial().open() as crew:
        whole = FewFeaturesSolver(problem_of(X, y), crew)
        first = whole.fit(20.0, gap=1e-3)
        saved = {name: np.array(a) for name, a in whole.state().items()}
        wanted = whole.fit(5.0, gap=1e-3, start=first)
        other = FewFeaturesSolver(problem_of(X, y), crew)
        found = other.fit(5.0, gap=1e-3, start=other.restore(saved))
    assert found.coef.tobytes() == wanted.coef.tobytes()
    assert found.objective == pytest.approx(best_of(problem_of(X, y), 5.0, 0.0, 1e-6).objective, abs=1e-3)


def test_a_running_fit_continues_from_a_saved_state() -> None:
    X, y = drawn(400, 20)
    states: list[dict[str, Any]] = []
    with Serial().open() as crew:
        solver = FewFeaturesSolver(problem_of(X, y), crew)
        keep = lambda: states.append({name: np.array(a) for name, a in solver.state().items()})  # noqa: E731
        wanted = solver.fit(0.3, gap=1e-6, ended=keep)
        assert len(states) > 2
        for state in states:
            other = FewFeaturesSolver(problem_of(X, y), crew)
            assert other.restore(state) is None
            found = other.fit(0.3, gap=1e-6)
            assert found.coef.tobytes() == wanted.coef.tobytes()
            assert (found.rounds, found.epochs, found.gap) == (wanted.rounds, wanted.epochs, wanted.gap)


def test_which_problems_are_solved_by_newton_steps() -> None:
    assert suits_newton(100, 20)
    assert not suits_newton(100, 7_000)
    assert not suits_newton(1_000_000, 10)
    X, y = drawn(60, 5)
    with Serial().open() as crew:
        assert isinstance(solver_of(problem_of(X, y), crew, profile="exact"), FewFeaturesSolver)
        sets = solver_of(problem_of(X, y), crew, profile="exact", schedule=st.schedule.working_sets())
        assert isinstance(sets, WorkingSetSolver)
    assert "Newton steps" in st.LogisticRegression().plan(X, y).explain()
    assert "Newton steps" in st.LogisticRegression().explain(X, y)
    assert "working sets" in st.LogisticRegression().plan(*drawn(20, 400)).explain()


def test_a_fit_without_callbacks_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    given = logistic_fit.fit["exact"]

    def counted(*args: Any) -> None:
        calls.append(1)
        given(*args)

    monkeypatch.setattr(logistic_fit, "fit", {"exact": counted})
    assert solved(problem_of(*drawn(300, 12)), 1.0, gap=1e-6).rounds > 3
    assert len(calls) == 1


@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"standardize": True}, {"class_weight": "balanced"}])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_estimators_agree_with_working_sets(options: dict[str, Any], ratio: float) -> None:
    X, y = drawn(400, 20)
    common = {"l1_ratio": ratio, "tol": 1e-7, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = st.LogisticRegression(**common).fit(X, y)
        sets = st.LogisticRegression(schedule=st.schedule.working_sets(), **common).fit(X, y)
    assert np.allclose(found.coef_, sets.coef_, atol=1e-3)
    assert found.objective_[0] == pytest.approx(sets.objective_[0], rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e80])
@pytest.mark.parametrize("weight", [1.0, 1e-12, 0.0])
def test_values_that_cannot_be_computed_with_are_refused(value: float, weight: float) -> None:
    X, y = drawn(300, 12)
    X[70, 5] = value
    weights = np.ones(300)
    weights[70] = weight
    with pytest.raises(DataError, match="row 70, column 5"):
        st.LogisticRegression().fit(X, y, weights)
