"""Least squares from moments: the optimum and its true duality gap; working sets where rounding counts."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.sparse import csc_array

import stretto as st
from linear_problems import Made, objective, problems
from stretto.data.design.design import Design
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.solvers.linear.moments.choice import suits_moments
from stretto.solvers.linear.moments.solver import MomentSolver, solver_of
from stretto.solvers.linear.regression import Fit, RegressionProblem
from stretto.solvers.linear.working_sets import WorkingSetSolver
from working_made import Floats, numbers


def problem_of(X: Any, y: Floats, weight: Floats | None = None, **more: Any) -> RegressionProblem:
    weight = np.broadcast_to(np.float64(1.0), (len(y),)) if weight is None else weight
    return RegressionProblem(Design.of(X), y, weight, "squared", **({"intercept": True} | more))


def solved(problem: RegressionProblem, l1: float, l2: float = 0.0, runtime: Runtime | None = None, **more: Any) -> Fit:
    with (runtime or Serial()).open() as crew:
        return MomentSolver(problem, crew).fit(l1, l2, **more)


def drawn(n: int, p: int, seed: int = 0) -> tuple[Floats, Floats]:
    X = numbers(n, p, seed=seed)
    return X, X[:, 0] - 2.0 * X[:, p // 2] + np.random.default_rng(seed).normal(size=n) + 3.0


@settings(max_examples=40, deadline=None)
@given(problems())
def test_objective_and_gap_are_true(made: Made) -> None:
    """The reported objective is that of the coefficients, and no solution is better by more than the gap."""
    for l1, l2, positive in ((0.5, 0.0, False), (0.05, 2.0, False), (0.3, 0.0, True), (0.0, 1.0, False)):
        problem = problem_of(made.given, made.y, made.weight, positive=positive)
        spread = float(made.weight @ (made.y - np.average(made.y, weights=made.weight)) ** 2)
        found = solved(problem, l1, l2, gap=1e-6 * spread)
        value = objective(made.X, made.y, made.weight, found.coef, found.intercept, l1, l2)
        assert found.converged
        assert found.objective == pytest.approx(value, rel=1e-9, abs=1e-9 * spread)
        with Serial().open() as crew:
            best = WorkingSetSolver(problem, crew).fit(l1, l2, gap=1e-9 * spread)
        assert -1e-9 * spread <= found.objective - best.objective <= found.gap + 1e-8 * spread
        assert not positive or found.coef.min(initial=0.0) >= 0.0


@pytest.mark.parametrize("shape", [(5000, 7), (300, 60)])
@pytest.mark.parametrize("sparse", [False, True])
def test_threads_change_no_bit(shape: tuple[int, int], sparse: bool) -> None:
    X, y = drawn(60 * shape[0], shape[1])
    X = csc_array(X * (X > 1.0)) if sparse else X
    wanted = solved(problem_of(X, y), 5.0, gap=1e-3)
    for runtime in (Threads(2), Threads(3)):
        found = solved(problem_of(X, y), 5.0, runtime=runtime, gap=1e-3)
        assert found.coef.tobytes() == wanted.coef.tobytes()
        assert (found.intercept, found.gap, found.objective) == (wanted.intercept, wanted.gap, wanted.objective)


def test_uniform_weights_are_ones() -> None:
    X, y = drawn(400, 9)
    a, b = solved(problem_of(X, y), 3.0, gap=1e-6), solved(problem_of(X, y, np.ones(400)), 3.0, gap=1e-6)
    np.testing.assert_allclose(a.coef, b.coef, rtol=1e-9)


def test_collinear_columns_need_newton_steps() -> None:
    """Coordinate descent alone would take thousands of sweeps."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 1)) + 1e-3 * rng.normal(size=(400, 20))
    y = X @ rng.normal(size=20) * 100.0 + 0.1 * rng.normal(size=400)
    spread = float(((y - y.mean()) ** 2).sum())
    found = solved(problem_of(X, y), 1e-4, gap=1e-9 * spread)
    assert found.converged
    assert found.rounds > 2  # the first evaluates the start, the second makes sweeps
    with Serial().open() as crew:
        best = WorkingSetSolver(problem_of(X, y), crew).fit(1e-4, gap=1e-11 * spread)
    assert found.objective - best.objective <= 2e-9 * spread


def test_gaps_near_rounding_are_checked_with_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = drawn(200, 5)
    used: list[Fit] = []
    fit = WorkingSetSolver.fit

    def counted(self: WorkingSetSolver, *penalties: float, **more: Any) -> Fit:
        used.append(more["start"])
        return fit(self, *penalties, **more)

    monkeypatch.setattr(WorkingSetSolver, "fit", counted)
    spread = float(((y - y.mean()) ** 2).sum())
    assert solved(problem_of(X, y), 2.0, gap=1e-6 * spread).converged
    assert not used
    found = solved(problem_of(X, y), 2.0, gap=1e-13 * spread)
    assert found.converged
    assert len(used) == 1
    assert found.gap <= 1e-13 * spread


def test_rounds_are_counted_limited_and_reported() -> None:
    X, y = drawn(300, 8)
    seen: list[dict[str, Any]] = []

    def look(state: dict[str, Any]) -> bool:
        seen.append(dict(state))
        return False

    found = solved(problem_of(X, y), 1.0, gap=1e-6, look=look)
    assert [state["round"] for state in seen] == list(range(1, found.rounds + 1))
    assert seen[-1]["gap"] == found.gap <= seen[-1]["goal"] == found.goal
    silent = solved(problem_of(X, y), 1.0, gap=1e-6)
    assert silent.coef.tobytes() == found.coef.tobytes()
    assert silent.rounds == found.rounds
    first = solved(problem_of(X, y), 1.0, gap=1e-6, max_rounds=1)
    assert (first.rounds, first.converged, bool(first.coef.any())) == (1, False, False)
    measured = solved(problem_of(X, y), 1.0, gap=1e-6, max_rounds=0, start=found)
    assert measured.coef.tobytes() == found.coef.tobytes()
    assert solved(problem_of(X, y), 1.0, gap=1e-9, look=lambda state: True).rounds == 1


def test_a_path_continues_from_a_saved_state() -> None:
    X, y = drawn(300, 8)
    with Serial().open() as crew:
        whole = MomentSolver(problem_of(X, y), crew)
        first = whole.fit(20.0, gap=1e-3)
        saved = whole.state()
        wanted = whole.fit(5.0, gap=1e-3, start=first)
        other = MomentSolver(problem_of(X, y), crew)
        found = other.fit(5.0, gap=1e-3, start=other.restore(saved))
    assert found.coef.tobytes() == wanted.coef.tobytes()


def _bits(fit: Fit) -> tuple[Any, ...]:
    return fit.coef.tobytes(), fit.intercept, fit.gap, fit.objective, fit.rounds, fit.epochs, fit.converged, fit.goal


@pytest.mark.parametrize("more", [{}, {"positive": True}, {"intercept": False, "scale": np.arange(1.0, 9.0)}])
def test_penalties_in_one_call_are_those_of_single_fits(more: dict[str, Any]) -> None:
    X, y = drawn(300, 8)
    X[:, 3] = 2.0
    l1s = np.geomspace(300.0, 0.1, 12)
    with Serial().open() as crew:
        together = MomentSolver(problem_of(X, y, **more), crew).fit_path(l1s, 0.1 * l1s, gap=1e-6)
        single = MomentSolver(problem_of(X, y, **more), crew)
        fit, wanted = None, []
        for l1 in l1s.tolist():
            fit = single.fit(l1, 0.1 * l1, gap=1e-6, start=fit)
            wanted.append(_bits(fit))
    assert [_bits(one) for one in together] == wanted
    assert len(together) == 12


def test_penalties_in_one_call_end_where_more_rounds_are_needed() -> None:
    """Newton steps, gaps of the size of rounding, and a fit that may make one round are left to `fit`."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 1)) + 1e-3 * rng.normal(size=(400, 20))
    y = X @ rng.normal(size=20) * 100.0
    l1s = np.array([1e5, 1e-3, 1e-4])
    with Serial().open() as crew:
        solver = MomentSolver(problem_of(X, y), crew)
        [first] = solver.fit_path(l1s, 0.0 * l1s, gap=1e-3)
        assert solver.fit_path(l1s[1:], 0.0 * l1s[1:], gap=1e-3, start=first) == []
        assert solver.fit_path(l1s, 0.0 * l1s, gap=1e-3, max_rounds=1) == []
        assert solver.fit_path(l1s, 0.0 * l1s, gap=1e-16) == []
        single = MomentSolver(problem_of(X, y), crew).fit(1e5, gap=1e-3)
        wanted = MomentSolver(problem_of(X, y), crew).fit(1e-3, gap=1e-3, start=single)
        assert _bits(solver.fit(1e-3, gap=1e-3, start=first)) == _bits(wanted)
    assert wanted.rounds > 2


def test_a_running_fit_continues_from_a_saved_state() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 1)) + 1e-3 * rng.normal(size=(400, 20))
    y = X @ rng.normal(size=20) * 100.0
    states: list[dict[str, Any]] = []
    with Serial().open() as crew:
        solver = MomentSolver(problem_of(X, y), crew)
        keep = lambda: states.append({name: np.array(a) for name, a in solver.state().items()})  # noqa: E731
        wanted = solver.fit(1e-3, gap=1e-3, ended=keep)
        assert len(states) > 1
        for state in states:
            other = MomentSolver(problem_of(X, y), crew)
            assert other.restore(state) is None
            found = other.fit(1e-3, gap=1e-3)
            assert found.coef.tobytes() == wanted.coef.tobytes()
            assert (found.rounds, found.epochs) == (wanted.rounds, wanted.epochs)


def test_which_problems_are_solved_from_moments() -> None:
    assert suits_moments(100, 20)
    assert not suits_moments(72, 7_000)
    assert not suits_moments(1_000_000, 250)
    assert suits_moments(1_000_000, 250, entries=3_000_000)
    assert not suits_moments(1_000_000, 250, entries=80_000_000)
    X, y = drawn(60, 5)
    with Serial().open() as crew:
        assert isinstance(solver_of(problem_of(X, y), crew, profile="exact"), MomentSolver)
        sets = solver_of(problem_of(X, y), crew, profile="exact", schedule=st.schedule.working_sets())
        assert isinstance(sets, WorkingSetSolver)
    assert "sufficient statistics" in st.Lasso().plan(X, y).explain()
    assert "working sets" in st.Lasso().plan(*drawn(20, 400)).explain()


@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"positive": True}, {"standardize": True}])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_estimators_agree_with_working_sets(options: dict[str, Any], dtype: type) -> None:
    X, y = drawn(150, 12)
    weight = np.random.default_rng(5).uniform(0.0, 2.0, 150)
    for sample_weight, sparse in ((None, False), (weight, False), (None, True), (weight, True)):
        given = csc_array((X * (X > 0.5)).astype(dtype)) if sparse else X.astype(dtype)
        model = st.ElasticNet(0.05, l1_ratio=0.7, tol=1e-8, **options).fit(given, y, sample_weight)
        sets = st.ElasticNet(0.05, l1_ratio=0.7, tol=1e-8, schedule=st.schedule.working_sets(), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sets.fit(given, y, sample_weight)
        np.testing.assert_allclose(model.coef_, sets.coef_, rtol=1e-2, atol=1e-3)
        assert model.objective_ == pytest.approx(sets.objective_, rel=1e-6)
