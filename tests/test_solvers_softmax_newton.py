"""Newton solvers of softmax regression: the optimum, true gaps, and the same bits in any steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stretto.kernels.newton.softmax_descent import cheapest_shift
from stretto.models.linear.logistic import LogisticRegression
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.solvers.softmax import few_features, solver
from stretto.solvers.softmax.few_features import NewtonFit, suits_newton
from stretto.solvers.softmax.point import SoftmaxProblem
from stretto.solvers.softmax.rows import DesignRows
from stretto.solvers.softmax.working_sets import by_columns

Floats = NDArray[np.float64]


def drawn(
    n: int, p: int, k: int, *, seed: int = 0, share: float = 1.0, mean: float = 2.0
) -> tuple[Floats, NDArray[np.int64]]:
    """Columns of different units, far from zero, and classes of different sizes."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, p)) + mean) * (rng.random((n, p)) < share)
    few = min(p, max(3, p // 4))
    score = X[:, :few] @ rng.normal(size=(few, k)) + np.linspace(0.0, 2.0, k)
    return X * 10.0 ** rng.uniform(-2, 2, p), np.argmax(score + rng.gumbel(size=(n, k)), axis=1)


def problem_of(X: Any, y: Any, *, l1: float = 0.0, ridge: float = 0.0, intercept: bool = True) -> SoftmaxProblem:
    rows, p = DesignRows.of(X), X.shape[1]
    weight = np.random.default_rng(1).uniform(0.0, 2.0, len(y))
    penalties = np.append(np.full(p, l1), 0.0), np.append(np.full(p, ridge), 0.0)
    return SoftmaxProblem(rows, y, int(y.max()) + 1, weight, intercept, *penalties)


def solved(problem: SoftmaxProblem, gap: float, runtime: Runtime | None = None, **more: Any) -> solver.SoftmaxFit:
    with (runtime or Serial()).open() as crew:
        return solver.solve(problem, crew, gap=gap, max_rounds=300, **more)


def objective(problem: SoftmaxProblem, W: Floats) -> float:
    k = problem.classes
    rows = problem.rows
    if rows.csr is not None:
        indptr, indices, values = rows.csr
        dense = sp.csr_array((values, indices, indptr), shape=rows.shape).toarray()
    else:
        dense = rows.parts[0]
    z = dense @ W[:-1, :k] + W[-1, :k]
    top = z.max(axis=1)
    loss = np.log(np.exp(z - top[:, None]).sum(axis=1)) + top - z[np.arange(len(z)), problem.y]
    size = np.abs(W[:, :k]) * problem.l1[:, None] + 0.5 * problem.ridge[:, None] * W[:, :k] ** 2
    return float((problem.weight * loss).sum() + size.sum())


@pytest.fixture
def quasi(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Leave all problems to the general solver."""
    monkeypatch.setattr(solver, "suits_newton", lambda *shape: False)
    monkeypatch.setattr(solver, "by_columns", lambda problem: False)
    return monkeypatch


SHAPES = [(40, 3, 3), (700, 12, 5), (530, 1, 3), (30, 45, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("l1", "ridge"), [(0.0, 0.5), (3.0, 0.0), (1.0, 1.0)])
@pytest.mark.parametrize("intercept", [True, False])
def test_few_features_reach_the_optimum(shape: tuple[int, int, int], l1: float, ridge: float, intercept: bool) -> None:
    problem = problem_of(*drawn(*shape), l1=l1, ridge=ridge, intercept=intercept)
    assert suits_newton(*problem.rows.shape, problem.classes)
    for tol in (1e-2, 1e-8):
        found = solved(problem, tol * problem.empty)
        assert found.converged
        assert found.objective == pytest.approx(objective(problem, found.W), rel=1e-10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "suits_newton", lambda *shape: False)
        other = solved(problem, 1e-8 * problem.empty)
    assert abs(found.objective - other.objective) <= max(found.gap, other.gap) + 1e-12 * problem.empty


@pytest.mark.parametrize("l1", [0.0, 1.0])
def test_steps_one_by_one_and_resumed_give_the_same_bits(l1: float) -> None:
    problem = problem_of(*drawn(300, 9, 4), l1=l1, ridge=0.1)
    gap = 1e-9 * problem.empty
    whole, each = NewtonFit(problem, "exact"), list[float]()

    def look(seen: dict[str, Any]) -> bool:
        each.append(seen["gap"])
        return False

    with Serial().open() as crew:
        few_features.run(whole, crew, gap, 100, None, None)
        steps = NewtonFit(problem, "exact")
        few_features.run(steps, crew, gap, 100, look, None)
        halted = NewtonFit(problem, "exact")
        few_features.run(halted, crew, gap, 3, None, lambda: None)
        resumed = NewtonFit(problem, "exact")
        resumed.restore({name: array.copy() for name, array in halted.state().items()})
        few_features.run(resumed, crew, gap, 100, None, lambda: None)
    assert len(each) == whole.count[0] == steps.count[0] == resumed.count[0] > 3
    for other in (steps, resumed):
        assert other.W.tobytes() == whole.W.tobytes()
        assert other.gap == whole.gap


def test_a_warm_start_of_few_features_needs_no_step() -> None:
    problem = problem_of(*drawn(300, 9, 4), l1=1.0)
    first = solved(problem, 1e-8 * problem.empty)
    again = solved(problem, 2e-8 * problem.empty, start=first.W)
    assert again.rounds == 1
    np.testing.assert_allclose(again.W, first.W, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("share", [0.1, 1.0], ids=["sparse", "full"])
@pytest.mark.parametrize(("l1", "ridge", "intercept"), [(4.0, 0.0, True), (0.5, 0.0, False), (1.0, 1.0, True)])
@pytest.mark.parametrize("k", [3, 6, 35])
def test_working_sets_reach_the_optimum_alone(
    share: float, l1: float, ridge: float, intercept: bool, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = drawn(300, 40, k, share=share, mean=2.0 if intercept else 0.0)
    problem = problem_of(sp.csr_array(X), y, l1=l1, ridge=ridge, intercept=intercept)
    general = solved(problem_of(X, y, l1=l1, ridge=ridge, intercept=intercept), 1e-7 * problem.empty)
    monkeypatch.setattr(solver.SoftmaxSolver, "_quasi", None)
    monkeypatch.setattr(solver.SoftmaxSolver, "_newton", None)
    for parts in (0.0, 2.0):  # one Newton step a round, or a problem of the chosen features
        monkeypatch.setattr(solver, "SMALL", parts)
        found = solved(problem, 1e-5 * problem.empty)
        assert found.converged
        assert found.objective == pytest.approx(objective(problem, found.W), rel=1e-9)
        assert abs(found.objective - general.objective) <= found.gap + general.gap


def test_columns_far_from_zero_take_no_more_rounds() -> None:
    """The intercepts are eliminated from the model, so that a mean changes nothing."""
    X, y = drawn(400, 60, 4, share=0.2)
    rounds = []
    for shift in (0.0, 20.0):
        far = sp.csr_array(X / X.std(axis=0) + shift)
        rounds.append(solved(problem_of(far, y, l1=1.0), 1e-6 * 400).rounds)
    assert rounds[1] <= 2 * rounds[0]


def test_dense_columns_are_converted_where_the_metric_would_be_diagonal() -> None:
    X, y = drawn(40, 600, 3)
    problem = problem_of(X, y, l1=1.0)
    assert by_columns(problem)
    assert not by_columns(problem_of(X, y, ridge=1.0))
    assert not by_columns(problem_of(*drawn(400, 60, 3), l1=1.0))
    assert by_columns(problem_of(*drawn(400, 60, 3, share=0.1), l1=1.0))
    sparse = solved(problem_of(sp.csr_array(X), y, l1=1.0), 1e-6 * problem.empty)
    assert solved(problem, 1e-6 * problem.empty).W.tobytes() == sparse.W.tobytes()


@pytest.mark.parametrize(("l1", "ridge"), [(0.0, 0.5), (2.0, 0.0)])
def test_the_general_solver_of_dense_data(l1: float, ridge: float, quasi: pytest.MonkeyPatch) -> None:
    X, y = drawn(900, 60, 5)
    problem = problem_of(X / X.std(axis=0), y, l1=l1, ridge=ridge)
    serial, threads = (solved(problem, 1e-6 * problem.empty, where) for where in (Serial(), Threads(2)))
    assert serial.converged
    assert serial.W.tobytes() == threads.W.tobytes()
    quasi.undo()
    found = solved(problem, 1e-6 * problem.empty)
    assert abs(found.objective - serial.objective) <= max(found.gap, serial.gap)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_cheapest_shift(ridge: float) -> None:
    rng = np.random.default_rng(0)
    for k in (1, 3, 4, 7, 8):
        for _ in range(30):
            x = np.round(rng.normal(size=k), 1) * (rng.random(k) < 0.7)
            t = cheapest_shift(x, k, 0.7, ridge, np.empty(k))
            tried = np.append(np.linspace(-4, 4, 801), [*x, t])
            away = x[None] - tried[:, None]
            cost = (0.7 * np.abs(away) + 0.5 * ridge * away**2).sum(axis=1)
            assert cost[-1] <= cost.min() + 1e-12
            if ridge == 0.0:
                assert abs(t) <= np.abs(tried[cost <= cost.min() + 1e-12]).min() + 1e-12


def test_a_fit_of_many_values_does_not_suit_one_thread() -> None:
    assert not suits_newton(1_000_000, 28, 4)
    assert not suits_newton(100, 200, 3)
    X, y = drawn(60, 4, 3)
    model = LogisticRegression(0.1, l1_ratio=1.0)
    assert "Newton steps of all features" in model.explain(X, y)
    assert "working sets of features" in model.explain(sp.csr_array(X), y)


@pytest.mark.parametrize("seed", range(3))
def test_constants_of_all_classes_do_not_stay_in_the_model(seed: int) -> None:
    """With a weak L1 penalty all classes of a feature enter; along a constant for all, only the penalty changes."""
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((1_000, 20)) + 3.0, rng.standard_normal((20, 3))
    y = np.argmax(0.5 * (X - 3.0) @ W + rng.gumbel(size=(1_000, 3)), axis=1)
    for C in (1.0, 10.0, 100.0):
        model = LogisticRegression(C, l1_ratio=1.0, n_jobs=1).fit(X, y)
        assert model.n_iter_[0] <= 8  # twelve to fifteen at C = 10 without moves along the constants
        middle = np.median(model.coef_, axis=0)
        assert np.all(np.abs(middle) <= 1e-2)
