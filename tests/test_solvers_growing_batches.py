"""Mini-batches that grow in three phases: steps as in NumPy, progress, a valid gap, the same bits at any width."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import stretto as st
from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.linear.growing_batches import (
    BatchState,
    batch_sizes,
    evaluate,
    large_batches,
    small_batches,
    solve_growing,
)
from stretto.solvers.linear.row_problem import RowProblem
from stretto.solvers.softmax.rows import DesignRows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 20)) * (RNG.random((3000, 20)) < 0.3)
SCORE = X[:, 0] - X[:, 1] + 0.3 * RNG.normal(size=3000)


def posed(data: Any, loss: str, classes: int = 2) -> RowProblem:
    y = np.digitize(SCORE, [0.0] if classes == 2 else [-0.5, 0.5])
    positive = np.array([1]) if classes == 2 else np.arange(3)
    return RowProblem(DesignRows.of(data), y, positive, np.full(3000, 0.05), loss, 1.0)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("phase", [small_batches, large_batches])
def test_an_epoch_is_that_of_a_plain_program(loss: str, phase: Any) -> None:
    problem = posed(scipy.sparse.csr_array(X), loss)
    with Serial().open() as crew:
        state = BatchState.start(problem, crew, seed=4)
        order, shrink = state.shuffled(), float(state.shrink[0])
        phase(problem, state, crew, 400)
    wide, signs = np.hstack([X, np.ones((3000, 1))]), np.where(problem.y == 1, 1.0, -1.0)
    w, alpha, path = np.zeros(21), np.zeros(3000), []
    for first in range(0, 3000, 400):
        own = order[first : first + 400]
        slack = np.maximum(0.0, 1.0 - signs[own] * (wide[own] @ w))
        pull = (slack > 0) * 1.0 if loss == "hinge" else 2.0 * slack
        move = shrink * 3000 / len(own) * 0.05 * pull
        w = (1 - shrink) * w + wide[own].T @ (move * signs[own])
        alpha *= 1 - shrink
        alpha[own] += move
        path.append(w)
    np.testing.assert_allclose(state.scale[0] * state.u[0], w, atol=1e-10)
    np.testing.assert_allclose(state.scale[0] * state.a[0], alpha, atol=1e-12)
    if phase is large_batches:
        np.testing.assert_allclose(state.mean[0], np.mean(path, axis=0), atol=1e-10)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_comes_near_the_optimum(loss: str) -> None:
    problem = posed(X, loss)
    assert batch_sizes(problem) == [3, 30, 300]
    values: list[float] = []

    def look(state: dict[str, Any]) -> bool:
        values.append(state["objective"])
        return False

    with Serial().open() as crew:
        fit = solve_growing(problem, crew, tol=1e-3, epochs=300, look=look)
    best = st.LinearSVC(0.05, loss=loss, tol=1e-6, max_iter=20_000).fit(X, problem.y)
    assert best.objective_[0] <= fit.objective[0] <= 1.01 * best.objective_[0]
    assert fit.objective[0] - fit.gap[0] <= best.objective_[0] + 1e-9  # the gap is a proof, if a loose one
    assert values == sorted(values, reverse=True)  # epochs that raised it were undone


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_same_bits_at_any_number_of_threads(loss: str) -> None:
    problem, found = posed(scipy.sparse.csr_array(X), loss, classes=3), []
    for runtime in (Serial(), Threads(1), Threads(2), Threads(3)):
        with runtime.open() as crew:
            found.append(solve_growing(problem, crew, tol=1e-3, epochs=40))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].w, other.w)
        np.testing.assert_array_equal(found[0].gap, other.gap)


def test_a_state_resumes() -> None:
    problem = posed(X, "hinge")
    with Serial().open() as crew:
        state = BatchState.start(problem, crew)
        for _ in range(3):
            small_batches(problem, state, crew, 30)
            evaluate(problem, state, crew, tol=0.0)
        again = BatchState.start(problem, crew)
        again.restore({name: array.copy() for name, array in state.arrays().items()})
        for one in (state, again):
            large_batches(problem, one, crew, 300)
            evaluate(problem, one, crew, tol=0.0)
    for name, array in state.arrays().items():
        np.testing.assert_array_equal(array, again.arrays()[name])


def test_as_an_option_of_the_estimator() -> None:
    classes = np.digitize(SCORE, [-0.5, 0.5])
    model = st.LinearSVC(0.05, loss="hinge", solver="sgd", tol=1e-2).fit(X, classes)
    best = st.LinearSVC(0.05, loss="hinge").fit(X, classes)
    assert np.all(model.objective_ <= 1.05 * best.objective_)
    assert "three phases" in model.explain(X, classes)
    np.testing.assert_array_equal(
        model.coef_, st.LinearSVC(0.05, loss="hinge", solver="sgd", tol=1e-2, n_jobs=1).fit(X, classes).coef_
    )
