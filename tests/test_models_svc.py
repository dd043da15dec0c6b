"""`LinearSVC`: the optimum of scikit-learn's, its conditions, the same bits at any number of threads, any input."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as some
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC as Reference

import stretto as st
from stretto.errors import DataError, PlanError
from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.linear.dual_descent import DualState, evaluate, solve_dual, sweep
from stretto.solvers.linear.row_problem import RowProblem
from stretto.solvers.softmax.rows import DesignRows

LOSSES = ("hinge", "squared_hinge")


def problem_of(n: int, p: int, *, density: float = 1.0, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < density)
    return X, X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=n)


X, TARGET = problem_of(200, 15)
TWO = np.where(TARGET > 0, "up", "down")
THREE = np.digitize(TARGET, [-1.0, 1.0])


def objective(X: Any, signs: Any, cost: Any, w: Any, v: float, bias: float, loss: str) -> float:
    slack = np.maximum(0.0, 1.0 - signs * (X @ w + bias * v))
    return float(0.5 * (w @ w + v * v) + np.sum(cost * (slack if loss == "hinge" else slack**2)))


# --- the optimum ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"intercept_scaling": 7.0}])
def test_optimum_of_scikit_learn(loss: str, C: float, options: dict[str, Any]) -> None:
    ours = st.LinearSVC(C, loss=loss, tol=1e-9, max_iter=100_000, **options).fit(X, TWO)
    theirs = Reference(C=C, loss=loss, dual=True, tol=1e-9, max_iter=1_000_000, random_state=0, **options).fit(X, TWO)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-4)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("loss", LOSSES)
def test_several_classes_are_each_against_the_rest(loss: str) -> None:
    model = st.LinearSVC(0.1, loss=loss, tol=1e-9, max_iter=100_000).fit(X, THREE)
    assert model.coef_.shape == (3, 15)
    assert model.decision_function(X).shape == (200, 3)
    for k in range(3):
        alone = st.LinearSVC(0.1, loss=loss, tol=1e-9, max_iter=100_000).fit(X, k == THREE)
        np.testing.assert_allclose(model.coef_[k], alone.coef_[0], atol=2e-4)
        np.testing.assert_allclose(model.objective_[k], alone.objective_[0], rtol=1e-8)
    theirs = Reference(C=0.1, loss=loss, dual=True, tol=1e-9, max_iter=1_000_000, random_state=0).fit(X, THREE)
    np.testing.assert_array_equal(model.predict(X), theirs.predict(X))


@pytest.mark.parametrize("loss", LOSSES)
def test_objective_and_gap_are_what_they_say(loss: str) -> None:
    weight = np.random.default_rng(1).random(200)
    model = st.LinearSVC(0.5, loss=loss, tol=1e-3, intercept_scaling=2.0).fit(X, TWO, sample_weight=weight)
    signs = np.where(TWO == "up", 1.0, -1.0)
    value = objective(X, signs, 0.5 * weight, model.coef_[0], float(model.intercept_[0]) / 2.0, 2.0, loss)
    np.testing.assert_allclose(model.objective_, value, rtol=1e-12)
    best = st.LinearSVC(0.5, loss=loss, tol=1e-9, max_iter=100_000, intercept_scaling=2.0)
    least = float(best.fit(X, TWO, sample_weight=weight).objective_[0])
    assert least <= value <= least + float(model.dual_gap_[0]) + 1e-9
    assert model.dual_gap_[0] <= 1e-3 * value


def test_weights_count_as_repetitions() -> None:
    times = np.random.default_rng(2).integers(0, 3, 200)
    options: dict[str, Any] = {"tol": 1e-10, "max_iter": 100_000}
    weighted = st.LinearSVC(0.1, **options).fit(X, TWO, sample_weight=times)
    repeated = st.LinearSVC(0.1, **options).fit(np.repeat(X, times, axis=0), np.repeat(TWO, times))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-5)
    balanced = st.LinearSVC(0.1, class_weight="balanced", **options).fit(X, THREE)
    share = 200 / (3 * np.bincount(THREE))
    by_hand = st.LinearSVC(0.1, class_weight=dict(enumerate(share)), **options).fit(X, THREE)
    np.testing.assert_array_equal(balanced.coef_, by_hand.coef_)


# --- the solver -------------------------------------------------------------------------------------------------------


def posed(X: Any, loss: str, positive: Any = (1,), C: float = 0.3, bias: float = 1.0) -> RowProblem:
    n = X.shape[0]
    y = THREE[:n] if len(positive) > 1 else (TARGET[:n] > 0).astype(np.int64)
    return RowProblem(DesignRows.of(X), y, np.array(positive), np.full(n, C), loss, bias)


@pytest.mark.parametrize("loss", LOSSES)
def test_optimality_conditions(loss: str) -> None:
    """At the end: α in its box, w = Σ α y x, and margins on the side that α demands."""
    problem = posed(X, loss)
    state_tol = 1e-9
    with Serial().open() as crew:
        state = DualState.start(problem, crew)
        while not state.done.all():
            sweep(problem, state, crew, tol=state_tol, max_sweeps=100_000)
            evaluate(problem, state, crew, tol=state_tol)
    signs, alpha = np.where(problem.y == 1, 1.0, -1.0), state.alpha[0]
    wide = np.hstack([X, np.ones((200, 1))])
    np.testing.assert_allclose(state.w[0], wide.T @ (alpha * signs), atol=1e-10)
    margin = signs * (wide @ state.w[0])
    assert np.all(alpha >= 0)
    if loss == "hinge":
        assert np.all(alpha <= 0.3)
        assert np.all(margin[alpha == 0] >= 1 - 1e-3)
        assert np.all(margin[alpha == 0.3] <= 1 + 1e-3)
        inside = (alpha > 1e-6) & (alpha < 0.3 - 1e-6)
        np.testing.assert_allclose(margin[inside], 1.0, atol=1e-3)
        assert 0 < inside.sum() < 200
    else:
        np.testing.assert_allclose(alpha, 0.6 * np.maximum(0.0, 1.0 - margin), atol=1e-3)
    dual = alpha.sum() - 0.5 * state.w[0] @ state.w[0] - (0 if loss == "hinge" else (alpha**2).sum() / 1.2)
    np.testing.assert_allclose(state.objective[0] - dual, state.gap[0], atol=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
def test_first_sweep_is_that_of_a_plain_program(loss: str) -> None:
    """One sweep over the samples, replayed in NumPy in the order that the kernel used."""
    problem = posed(X[:40], loss)
    with Serial().open() as crew:
        state = DualState.start(problem, crew, seed=5)
        sweep(problem, state, crew, tol=0.0, max_sweeps=1)
    signs = np.where(problem.y == 1, 1.0, -1.0)
    wide = np.hstack([X[:40], np.ones((40, 1))])
    alpha, w, extra = np.zeros(40), np.zeros(16), 0.0 if loss == "hinge" else 1 / 0.6
    for i in state.order[0]:  # nothing is skipped in the first sweep
        g = signs[i] * (wide[i] @ w) - 1.0 + extra * alpha[i]
        new = max(0.0, alpha[i] - g / (wide[i] @ wide[i] + extra))
        new = min(new, 0.3) if loss == "hinge" else new
        w += (new - alpha[i]) * signs[i] * wide[i]
        alpha[i] = new
    np.testing.assert_allclose(state.alpha[0], alpha, atol=1e-13)
    np.testing.assert_allclose(state.w[0], w, atol=1e-13)
    assert sorted(state.order[0]) == list(range(40))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("density", [1.0, 0.2])
def test_same_bits_at_any_number_of_threads(loss: str, density: float) -> None:
    wide, target = problem_of(3000, 60, density=density, seed=3)
    classes = np.digitize(target, [-1.0, 0.0, 1.0])
    data = wide if density == 1.0 else scipy.sparse.csr_array(wide)
    one, *others = (
        st.LinearSVC(0.1, loss=loss, runtime=runtime).fit(data, classes)
        for runtime in (Serial(), Threads(1), Threads(2), Threads(3))
    )
    for other in others:
        for name in ("coef_", "intercept_", "dual_gap_", "objective_", "n_iter_"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    again = st.LinearSVC(0.1, loss=loss, random_state=7).fit(data, classes)
    assert not np.array_equal(one.coef_, again.coef_)  # the order of the samples is another
    np.testing.assert_allclose(one.coef_, again.coef_, atol=0.05)


def test_phases_are_the_fit() -> None:
    problem = posed(X, "squared_hinge", positive=(0, 1, 2))
    with Threads(2).open() as crew:
        fit = solve_dual(problem, crew, tol=1e-6, max_sweeps=1000, seed=3)
    with Threads(1).open() as narrow, Threads(3).open() as wide:
        state, turn = DualState.start(problem, narrow, seed=3), 0
        while not state.done.all():  # the width changes from phase to phase
            turn += 1
            sweep(problem, state, (narrow, wide)[turn % 2], tol=1e-6, max_sweeps=1000)
            evaluate(problem, state, (wide, narrow)[turn % 2], tol=1e-6)
    np.testing.assert_array_equal(fit.w, state.w)
    np.testing.assert_array_equal(fit.rounds, state.swept)


# --- what comes in ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_sparse_is_dense(loss: str) -> None:
    thin, target = problem_of(300, 20, density=0.3, seed=4)
    thin[17] = 0.0  # an empty row
    y = target > 0
    dense = st.LinearSVC(0.2, loss=loss, tol=1e-6).fit(thin, y)
    sparse = [scipy.sparse.csr_array(thin), scipy.sparse.csc_matrix(thin), scipy.sparse.coo_array(thin)]
    for matrix in sparse:
        found = st.LinearSVC(0.2, loss=loss, tol=1e-6).fit(matrix, y)
        np.testing.assert_allclose(found.coef_, dense.coef_, atol=1e-9)
        np.testing.assert_allclose(found.decision_function(matrix), dense.decision_function(thin), atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    some.integers(2, 40),
    some.integers(1, 30),
    some.sampled_from([0.0, 0.1, 0.5, 1.0]),
    some.sampled_from(["f4", "f8", "i1", "i8", "bool"]),
    some.sampled_from(["i4", "i8", None]),
    some.sampled_from(LOSSES),
    some.booleans(),
    some.integers(2, 4),
    some.integers(0, 2**32 - 1),
)
def test_any_numbers_and_indices(
    n: int, p: int, density: float, dtype: str, index: str | None, loss: str, intercept: bool, classes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plain = (rng.integers(-3, 4, (n, p)) * (rng.random((n, p)) < density)).astype(dtype)
    y = rng.integers(0, min(classes, n), n)
    y[:2] = 0, 1
    data: Any = plain
    if index is not None:
        data = scipy.sparse.csr_array(plain)
        data.indices, data.indptr = data.indices.astype(index), data.indptr.astype(index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = st.LinearSVC(0.5, loss=loss, fit_intercept=intercept, max_iter=200, n_jobs=1).fit(data, y)
        same = st.LinearSVC(0.5, loss=loss, fit_intercept=intercept, max_iter=200, n_jobs=2).fit(
            plain.astype(np.float64), y
        )
    assert np.all(np.isfinite(model.coef_))
    assert np.all(model.dual_gap_ >= 0)
    # Both are within their gap of the smallest objective, which is strongly convex.
    for k in range(len(model.coef_)):
        apart = np.sum((model.coef_[k] - same.coef_[k]) ** 2)
        assert apart <= 4.0 * (model.dual_gap_[k] + same.dual_gap_[k]) + 1e-9
    assert set(model.predict(data)) <= set(y)


def test_data_are_not_changed_and_not_copied_dense() -> None:
    wide = scipy.sparse.random(50, 300_000, density=6e-5, format="csr", random_state=0)  # 120 MB if dense
    parts = [wide.data.copy(), wide.indices.copy(), wide.indptr.copy()]
    st.LinearSVC(max_iter=5, tol=0.5).fit(wide, np.arange(50) % 2)
    for before, after in zip(parts, (wide.data, wide.indices, wide.indptr), strict=True):
        np.testing.assert_array_equal(before, after)


# --- refusals and the rest --------------------------------------------------------------------------------------------


def test_refusals() -> None:
    with pytest.raises(DataError, match="needs samples of at least 2 classes; the data contain one class: 'up'"):
        st.LinearSVC().fit(X, np.full(200, "up"))
    with pytest.raises(PlanError, match="loss"):
        st.LinearSVC(loss="log").fit(X, TWO)
    with pytest.raises(PlanError, match="without one use fit_intercept=False"):
        st.LinearSVC(intercept_scaling=0).fit(X, TWO)
    with pytest.raises(PlanError, match="C"):
        st.LinearSVC(0).fit(X, TWO)
    with pytest.raises(PlanError, match="samples are visited in random order in one memory"):
        st.LinearSVC(runtime=st.Simulated(nodes=2)).fit(X, TWO)
    broken = X.copy()
    broken[3, 4] = np.nan
    with pytest.raises(DataError, match="NaN or inf: nan at row 3, column 4"):
        st.LinearSVC().fit(broken, TWO)
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter=1 sweeps at a duality gap of"):
        st.LinearSVC(tol=1e-9, max_iter=1).fit(X, TWO)


def test_plan_explains_and_runs(capsys: Any) -> None:
    model = st.LinearSVC(0.5, loss="hinge", verbose=1)
    plan = model.plan(X, THREE)
    assert "dual coordinate descent" in plan.explain()
    plan.run()
    assert model.fingerprint_ == plan.fingerprint
    assert "round 1  sweep 10  objective" in capsys.readouterr().err
    said = model.explain(scipy.sparse.csc_array(X), THREE)
    assert "CSC turned into CSR once" in said
    assert "for each of 3 classes against the rest" in said


def test_a_fit_resumes(tmp_path: Path) -> None:
    options: dict[str, Any] = {"tol": 1e-12, "max_iter": 400, "n_jobs": 1}

    class Interrupt:
        """Stops the fit by an exception after some rounds, as a crash would."""

        def setup(self, estimator: Any, context: Any) -> None: ...

        def teardown(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any) -> bool:
            if metadata and metadata.get("round", 0) == 4:
                raise ZeroDivisionError
            return False

    whole = st.LinearSVC(0.1, **options).fit(X, THREE)
    session = st.Session(saving=st.Saving(tmp_path, every_epochs=2))
    with pytest.raises(ZeroDivisionError):
        st.LinearSVC(0.1, **options).set_callbacks(Interrupt()).fit(X, THREE, session=session)
    resumed = st.Session(saving=st.Saving(tmp_path, every_epochs=2), resume=True)
    again = st.LinearSVC(0.1, **options).fit(X, THREE, session=resumed)
    np.testing.assert_array_equal(whole.coef_, again.coef_)
    np.testing.assert_array_equal(whole.n_iter_, again.n_iter_)
