"""Joint models of sparse data with an L2 penalty: few iterations, true gaps, and the same bits everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import stretto as st
from stretto.models.linear.softmax_fit import joint_problem, unpack
from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.linear.fit_saving import FitSaving
from stretto.solvers.softmax import ridge, solver
from stretto.solvers.softmax.ridge import suits_ridge


def drawn(n: int, p: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    """Positive sparse values, as weights of words are, and classes."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, p)) < 0.6 / np.sqrt(np.arange(1, p + 1)), 0.5 + rng.random((n, p)), 0.0)
    score = X[:, : p // 2] @ rng.standard_normal(p // 2) + 0.5 * rng.standard_normal(n)
    return sp.csr_array(X), np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))


def problem_of(X: Any, y: Any, C: float = 1.0, **more: Any) -> Any:
    return joint_problem(st.LogisticRegression(C, **more), X, y, int(y.max()) + 1, np.ones(len(y)))


def solved(problem: Any, gap: float, runtime: Any = None, **more: Any) -> Any:
    with (runtime or Serial()).open() as crew:
        return solver.solve(problem, crew, gap=gap, max_rounds=100, **more)


class Kept(FitSaving):
    """Keeps the state after every round. found : a state to continue from"""

    def __init__(self, found: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._found, self.states = dict(found or {}), list[dict[str, Any]]()

    @property
    def ended(self) -> Any:
        return lambda: self.states.append(
            {f"{level}/{key}": np.array(a) for level, state in self._levels.items() for key, a in state().items()}
        )


@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("standardize", [True, False])
def test_the_gap_bounds_what_quasi_newton_steps_find(
    C: float, intercept: bool, standardize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = drawn(400, 150, 4)
    problem = problem_of(X, y, C, fit_intercept=intercept, standardize=standardize)
    assert suits_ridge(problem)
    found = {gap: solved(problem, gap * problem.empty) for gap in (1e-2, 1e-4, 1e-8)}
    monkeypatch.setattr(solver, "suits_ridge", lambda problem: False)
    best = solved(problem, 1e-9 * problem.empty)
    for gap, one in found.items():
        assert one.converged
        assert one.gap <= gap * problem.empty
        assert -1e-9 * problem.empty <= one.objective - best.objective <= one.gap * (1 + 1e-9)
    coef, intercepts = unpack(found[1e-8].W, problem)
    others = unpack(best.W, problem)
    assert np.allclose(coef, others[0], atol=1e-3 * np.abs(best.W).max())
    assert np.allclose(intercepts, others[1], atol=1e-3 * np.abs(best.W).max())


def test_few_iterations_find_the_intercepts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    given = ridge.ridge_step

    def counted(*args: Any) -> Any:
        made.append(given(*args))
        return made[-1]

    monkeypatch.setattr(solver, "ridge_step", counted)
    X, y = drawn(3_000, 300, 5)
    problem = problem_of(X, y, 0.3)
    assert solved(problem, 1e-4 * problem.empty).converged
    assert len(made) <= 6
    assert sum(iterations for _, iterations in made) <= 40  # without centring, 150


def test_steps_that_need_many_iterations_are_left_to_quasi_newton_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MOST", 2)
    monkeypatch.setattr(ridge, "MOST", 2)
    X, y = drawn(300, 100, 3)
    problem = problem_of(X, y, 10.0)
    phases: list[str] = []

    def look(state: dict[str, Any]) -> bool:
        phases.append(state["phase"])
        return False

    found = solved(problem, 1e-6 * problem.empty, look=look)
    assert found.converged
    assert "quasi" in phases


def test_threads_and_saved_states_change_no_bit() -> None:
    X, y = drawn(3_000, 300, 5)
    problem = problem_of(X, y)
    gap = 1e-7 * problem.empty
    fits = [solved(problem, gap, runtime) for runtime in (Serial(), Threads(1), Threads(2), Threads(4))]
    saved = Kept()
    fits.append(solved(problem, gap, saved=saved))
    assert len(saved.states) > 1
    fits += [solved(problem, gap, saved=Kept(state)) for state in saved.states]
    assert len({fit.W.tobytes() for fit in fits}) == 1
    assert len({(fit.gap, fit.objective, fit.rounds, fit.passes) for fit in fits}) == 1


def test_float32_and_hard_classes() -> None:
    X, y = drawn(500, 200, 6)
    y[:3] = 6  # a rare class
    for A in (X, X.astype(np.float32)):
        model = st.LogisticRegression(100.0, tol=1e-6).fit(A, y)
        assert model.dual_gap_[0] <= 1e-6 * 500 * 100.0 * np.log(7)
