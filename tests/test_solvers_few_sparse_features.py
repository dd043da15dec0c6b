"""Logistic regression with few sparse features: the optimum, its true duality gap, and the same bits everywhere."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

import stretto as st
from linear_problems import Made, assert_optimal, objective, problems
from stretto.data.design.design import Design
from stretto.data.design.row_design import RowDesign
from stretto.errors import DataError
from stretto.kernels.newton import sparse_fit
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.solvers.linear.few_features.choice import suits_sparse_newton
from stretto.solvers.linear.few_features.solver import FewFeaturesSolver
from stretto.solvers.linear.moments.solver import solver_of
from stretto.solvers.linear.regression import Fit, RegressionProblem
from stretto.solvers.linear.working_sets import WorkingSetSolver
from working_made import Floats


def problem_of(X: Any, y: Floats, weight: Floats | None = None, **more: Any) -> RegressionProblem:
    weight = np.ones(len(y)) if weight is None else weight
    return RegressionProblem(RowDesign.of(sp.csr_array(X)), y, weight, "logistic", **({"intercept": True} | more))


def solved(problem: RegressionProblem, l1: float, l2: float = 0.0, runtime: Runtime | None = None, **more: Any) -> Fit:
    with (runtime or Serial()).open() as crew:
        return FewFeaturesSolver(problem, crew).fit(l1, l2, **more)


def best_of(problem: RegressionProblem, l1: float, l2: float, gap: float) -> Fit:
    assert isinstance(problem.design, RowDesign)
    by_columns = RegressionProblem(
        problem.design.columns, problem.y, problem.weight, "logistic", problem.intercept, scale=problem.scale
    )
    with Serial().open() as crew:
        return WorkingSetSolver(by_columns, crew).fit(l1, l2, gap=gap)


def drawn(n: int, p: int, seed: int = 0, binary: bool = False) -> tuple[Any, Floats]:
    """Sparse X whose columns differ in frequency, and classes."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, p)) < 0.6 / np.sqrt(np.arange(1, p + 1)), rng.standard_normal((n, p)), 0.0)
    X = (X != 0.0).astype(np.float64) if binary else X
    score = X[:, 0] - 2.0 * X[:, p // 2] + rng.logistic(size=n)
    return sp.csr_array(X), np.where(score > 0.3, 1.0, -1.0)


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
    "kind", ["binary", "scaled", "full", "separable", "copies", "float32", "penalty factors", "rare", "heavy", "empty"]
)
def test_awkward_data(kind: str, penalty: tuple[float, float]) -> None:
    l1, l2 = penalty
    X, y = drawn(300, 12, seed=3, binary=kind == "binary")
    weight, scale = np.ones(300), None
    if kind == "scaled":
        X = sp.csr_array(X @ sp.diags_array(10.0 ** np.arange(-6.0, 6.0)))
    elif kind == "full":  # every cell is stored, and the means are far from zero
        X = sp.csr_array(X.toarray() + 1e3)
    elif kind == "separable":
        y = np.where(X.toarray()[:, 3] > 0.2, 1.0, -1.0)
    elif kind == "copies":
        dense = X.toarray()
        dense[:, 4:8], dense[:, 9] = dense[:, :4], 7.0
        X = sp.csr_array(dense)
    elif kind == "float32":
        X = X.astype(np.float32)
    elif kind == "penalty factors":
        scale = np.linspace(0.1, 5.0, 12)
    elif kind == "rare":
        y[:] = -1.0
        y[:4] = 1.0
    elif kind == "heavy":
        weight = 10.0 ** np.random.default_rng(0).uniform(-8.0, 8.0, 300)
    elif kind == "empty":  # columns and rows without entries
        dense = X.toarray()
        dense[:, ::3], dense[::5] = 0.0, 0.0
        X = sp.csr_array(dense)
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
    for binary in (False, True):
        X, y = drawn(3000, 60, binary=binary)
        with Serial().open() as crew:
            for l1, l2 in ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0), (20.0, 0.0)):
                solver = FewFeaturesSolver(problem_of(X, y), crew)
                found = solver.fit(l1, l2, gap=1e-8)
                assert found.converged
                assert found.rounds <= 11
                assert solver._sets is None


def test_working_sets_continue_where_steps_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stretto.solvers.linear.few_features.solver._STEPS", 2)
    X, y = drawn(300, 12)
    found = solved(problem_of(X, y), 0.1, gap=1e-8)
    assert found.converged
    assert found.rounds > 3
    assert found.objective == pytest.approx(best_of(problem_of(X, y), 0.1, 0.0, 1e-9).objective, abs=1e-7)


@pytest.mark.parametrize("profile", ["exact", "fast"])
def test_threads_callbacks_and_saved_states_change_no_bit(profile: str) -> None:
    X, y = drawn(3000, 40)
    found, states = [], []
    for runtime in (Serial(), Threads(1), Threads(2)):
        for look in (None, lambda state: False):
            with runtime.open() as crew:
                found.append(FewFeaturesSolver(problem_of(X, y), crew, profile=profile).fit(1.0, gap=1e-6, look=look))
    with Serial().open() as crew:
        solver = FewFeaturesSolver(problem_of(X, y), crew, profile=profile)
        keep = lambda: states.append({name: np.array(a) for name, a in solver.state().items()})  # noqa: E731
        found.append(solver.fit(1.0, gap=1e-6, ended=keep))
        assert len(states) > 2
        for state in states:
            other = FewFeaturesSolver(problem_of(X, y), crew, profile=profile)
            assert other.restore(state) is None
            found.append(other.fit(1.0, gap=1e-6))
        # The arrays of the start are used once; a second fit from zero has arrays of its own.
        found.append(solver.fit(1.0, gap=1e-6))
    assert len({fit.coef.tobytes() for fit in found}) == 1
    assert len({(fit.intercept, fit.gap, fit.objective, fit.rounds, fit.epochs) for fit in found}) == 1


def test_formats_give_the_same_bits() -> None:
    X, y = drawn(500, 20)
    again = sp.coo_array(X)
    order = np.random.default_rng(0).permutation(X.nnz)
    again = sp.coo_array((again.data[order], (again.row[order], again.col[order])), shape=X.shape)
    twice = sp.csr_array((np.repeat(0.5 * X.data, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    before = [X.data.copy(), twice.data.copy()]
    fits = [st.LogisticRegression(l1_ratio=0.5).fit(made, y) for made in (X, X.tocsc(), again, twice, sp.csr_matrix(X))]
    assert len({fit.coef_.tobytes() for fit in fits}) == 1
    assert np.array_equal(before[0], X.data)
    assert np.array_equal(before[1], twice.data)


def test_which_problems_are_solved_by_newton_steps() -> None:
    assert suits_sparse_newton(30_000, 200, 100_000)
    assert not suits_sparse_newton(30_000, 20_000, 100_000)
    assert not suits_sparse_newton(50_000, 280, 5_000_000)
    X, y = drawn(100, 12)
    with Serial().open() as crew:
        for design in (RowDesign.of(X), Design.of(X)):
            problem = RegressionProblem(design, y, np.ones(100), "logistic", True)
            assert isinstance(solver_of(problem, crew, profile="exact"), FewFeaturesSolver)
    assert "Newton steps" in st.LogisticRegression().plan(X, y).explain()
    assert "Newton steps" in st.LogisticRegression().explain(X, y)


def test_a_fit_reads_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit is one compiled call, and CSR is not converted."""
    calls = []
    given = sparse_fit.fit["exact"]

    def counted(*args: Any) -> None:
        calls.append(1)
        given(*args)

    monkeypatch.setattr(sparse_fit, "fit", {"exact": counted})
    monkeypatch.setattr(RowDesign, "columns", None)
    X, y = drawn(300, 12)
    assert st.LogisticRegression(l1_ratio=1.0).fit(X, y).n_iter_[0] > 2
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
def test_values_that_cannot_be_computed_with_are_refused(value: float) -> None:
    X, y = drawn(300, 12)
    X = X.tolil()
    X[70, 5] = value
    with pytest.raises(DataError, match="row 70, column 5"):
        st.LogisticRegression().fit(X.tocsr(), y)


@pytest.mark.parametrize("seed", [26, 29])
def test_a_shortened_step_is_not_the_longest_acceptable(seed: int) -> None:
    """Rare columns and few positives: the minima of the first models are far from the solution."""
    rng = np.random.default_rng(seed)
    X = (rng.random((2_000, 120)) < np.minimum(0.5, 0.003 * rng.pareto(1.0, 120) + 0.002)).astype(np.float64)
    X = np.maximum(X, (rng.random((2_000, 1)) < 0.1) * (rng.random((2_000, 120)) < 0.15))
    score = X @ (6.0 * rng.standard_normal(120))
    score += rng.logistic(size=2_000)
    y = np.where(score > np.quantile(score, 0.97), 1.0, -1.0)
    for design in (X, sp.csr_array(X)):
        model = st.LogisticRegression(l1_ratio=1.0, tol=1e-3, n_jobs=1).fit(design, y)
        assert model.dual_gap_[0] <= 1e-3 * model.objective_[0]
        assert model.n_iter_[0] <= 7  # nine where a step was halved only until it was acceptable
