"""Logistic regression with an L2 penalty, by sparse rows: the optimum, its duality gap, the same bits everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from sklearn.linear_model import LogisticRegression as Peer

import stretto as st
from linear_problems import Made, assert_optimal, objective, problems
from stretto.data.design.row_design import RowDesign
from stretto.errors import DataError
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.solvers.linear.few_features import storage
from stretto.solvers.linear.few_features.choice import suits_rows, suits_sparse_newton
from stretto.solvers.linear.few_features.solver import FewFeaturesSolver
from stretto.solvers.linear.moments.solver import solver_of
from stretto.solvers.linear.regression import Fit, RegressionProblem
from stretto.solvers.linear.working_sets import WorkingSetSolver
from working_made import Floats


def problem_of(X: Any, y: Floats, weight: Floats | None = None, **more: Any) -> RegressionProblem:
    weight = np.ones(len(y)) if weight is None else weight
    return RegressionProblem(RowDesign.of(sp.csr_array(X)), y, weight, "logistic", **({"intercept": True} | more))


def by_rows(problem: RegressionProblem, crew: Any, profile: str = "exact") -> FewFeaturesSolver:
    """The solver with conjugate gradients, whatever the shape."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "suits_sparse_newton", lambda *shape, smooth: False)
        return FewFeaturesSolver(problem, crew, profile=profile, smooth=True)


def solved(problem: RegressionProblem, l2: float, runtime: Runtime | None = None, **more: Any) -> Fit:
    with (runtime or Serial()).open() as crew:
        return by_rows(problem, crew).fit(0.0, l2, **more)


def best_of(problem: RegressionProblem, l2: float, gap: float) -> Fit:
    assert isinstance(problem.design, RowDesign)
    by_columns = RegressionProblem(
        problem.design.columns, problem.y, problem.weight, "logistic", problem.intercept, scale=problem.scale
    )
    with Serial().open() as crew:
        return WorkingSetSolver(by_columns, crew).fit(0.0, l2, gap=gap)


def drawn(n: int, p: int, seed: int = 0) -> tuple[Any, Floats]:
    """Sparse X whose columns differ in frequency, and classes."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, p)) < 0.6 / np.sqrt(np.arange(1, p + 1)), rng.standard_normal((n, p)), 0.0)
    score = 2.0 * X[:, : p // 4].sum(axis=1) + rng.logistic(size=n)
    return sp.csr_array(X), np.where(score > 0.3, 1.0, -1.0)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_objective_and_gap_are_true(made: Made) -> None:
    """The reported objective is that of the coefficients, and no solution is better by more than the gap."""
    y, size = made.signs, float(made.weight.sum())
    for l2, intercept in ((1.0, True), (0.01, True), (2.0, False)):
        problem = problem_of(made.X, y, made.weight, intercept=intercept)
        for gap in (1e-2 * size, 1e-7 * size):
            found = solved(problem, l2, gap=gap)
            value = objective(made.X, y, made.weight, found.coef, found.intercept, 0.0, l2, "logistic")
            assert found.converged
            assert found.gap <= gap
            assert found.objective == pytest.approx(value, rel=1e-9, abs=1e-9 * size)
            best = best_of(problem, l2, 1e-9 * size)
            assert -2e-9 * size <= found.objective - best.objective <= found.gap + 1e-12 * size
        assert_optimal(
            made, y, made.weight, found.coef, found.intercept, 0.0, l2, found.gap, loss="logistic",
            fit_intercept=intercept,
        )  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["scaled", "full", "separable", "copies", "float32", "penalty factors", "rare", "heavy", "empty"]
)
@pytest.mark.parametrize("l2", [1e-3, 1.0])
def test_awkward_data(kind: str, l2: float) -> None:
    X, y = drawn(300, 24, seed=3)
    weight, scale = np.ones(300), None
    if kind == "scaled":
        X = sp.csr_array(X @ sp.diags_array(10.0 ** np.linspace(-6.0, 6.0, 24)))
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
        scale = np.linspace(0.1, 5.0, 24)
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
    found, best = solved(problem, l2, gap=1e-6 * size), best_of(problem, l2, 1e-8 * size)
    assert found.converged
    assert -2e-8 * size <= found.objective - best.objective <= found.gap + 1e-9 * size
    if kind == "copies":
        assert found.coef[9] == 0.0


def test_usual_data_need_few_steps_and_no_working_sets() -> None:
    X, y = drawn(3_000, 60)
    with Serial().open() as crew:
        for l2 in (100.0, 1.0, 0.01):
            solver = by_rows(problem_of(X, y), crew)
            found = solver.fit(0.0, l2, gap=1e-6)
            assert found.converged
            assert found.rounds <= 11
            assert found.epochs <= 80  # passes over the data
            assert solver._sets is None


@pytest.mark.parametrize("profile", ["exact", "fast"])
def test_threads_callbacks_and_saved_states_change_no_bit(profile: str) -> None:
    X, y = drawn(1_000, 700)
    found, states = [], []
    for runtime in (Serial(), Threads(1), Threads(2)):
        for look in (None, lambda state: False):
            with runtime.open() as crew:
                found.append(by_rows(problem_of(X, y), crew, profile).fit(0.0, 1.0, gap=1e-6, look=look))
    with Serial().open() as crew:
        solver = by_rows(problem_of(X, y), crew, profile)
        keep = lambda: states.append({name: np.array(a) for name, a in solver.state().items()})  # noqa: E731
        found.append(solver.fit(0.0, 1.0, gap=1e-6, ended=keep))
        assert len(states) > 2
        for state in states:
            other = by_rows(problem_of(X, y), crew, profile)
            assert other.restore(state) is None
            found.append(other.fit(0.0, 1.0, gap=1e-6))
        found.append(solver.fit(0.0, 1.0, gap=1e-6))  # again, from zero
    assert len({fit.coef.tobytes() for fit in found}) == 1
    assert len({(fit.intercept, fit.gap, fit.objective, fit.rounds, fit.epochs) for fit in found}) == 1


def test_a_path_starts_each_fit_from_the_last_one() -> None:
    X, y = drawn(2_000, 700)
    with Serial().open() as crew:
        solver, last = by_rows(problem_of(X, y), crew), None
        for l2 in (100.0, 30.0, 10.0):
            last = solver.fit(0.0, l2, gap=1e-6, start=last)
            alone = by_rows(problem_of(X, y), crew).fit(0.0, l2, gap=1e-6)
            assert last.objective == pytest.approx(alone.objective, abs=2e-6)
            assert last.rounds <= alone.rounds


def test_which_problems_are_solved_by_rows() -> None:
    assert suits_rows(4_000, 55_000, 400_000, smooth=True)
    assert not suits_rows(4_000, 55_000, 400_000, smooth=False)
    assert not suits_rows(10**6, 10**6, 10**9, smooth=True)
    X, y = drawn(100, 600)
    assert not suits_sparse_newton(100, 600, X.nnz, smooth=True)
    with Serial().open() as crew:
        for smooth, kind in ((True, FewFeaturesSolver), (False, WorkingSetSolver)):
            assert isinstance(solver_of(problem_of(X, y), crew, profile="exact", smooth=smooth), kind)
    for found in (st.LogisticRegression().plan(X, y).explain(), st.LogisticRegression().explain(X, y)):
        assert "conjugate gradients over the rows" in " ".join(str(found).split())
    assert "conjugate gradients" not in str(st.LogisticRegression(l1_ratio=1.0).explain(X, y))


def test_formats_and_jobs_give_the_same_bits_and_no_columns_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowDesign, "columns", None)
    X, y = drawn(400, 700)
    made = [(A, jobs) for A in (X, X.tocsc(), X.tocoo(), sp.csr_matrix(X)) for jobs in (1, 2, 4)]
    fits = [st.LogisticRegression(n_jobs=jobs).fit(A, y) for A, jobs in made]
    assert len({fit.coef_.tobytes() + fit.intercept_.tobytes() for fit in fits}) == 1


@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"class_weight": "balanced"}, {"C": 1e4}])
def test_estimators_agree_with_scikit_learn(options: dict[str, Any]) -> None:
    X, y = drawn(400, 700)
    found = st.LogisticRegression(tol=1e-9, **options).fit(X, y)
    peer = Peer(solver="newton-cg", tol=1e-10, max_iter=1_000, **options).fit(X, y)
    assert np.allclose(found.coef_, peer.coef_, atol=1e-3 * np.abs(peer.coef_).max())
    assert np.allclose(found.predict_proba(X), peer.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e80])
def test_values_that_cannot_be_computed_with_are_refused(value: float) -> None:
    X, y = drawn(300, 700)
    X = X.tolil()
    X[70, 5] = value
    with pytest.raises(DataError, match="row 70, column 5"):
        st.LogisticRegression().fit(X.tocsr(), y)
