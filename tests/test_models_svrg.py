"""`solver="svrg"`: lazy steps are the eager ones, the optimum of other solvers, the same bits at any width."""

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
from sklearn.linear_model import LogisticRegression as Reference
from sklearn.multiclass import OneVsRestClassifier

import stretto as st
from stretto.errors import PlanError
from stretto.kernels.core.compile import kernel
from stretto.kernels.samples.lazy_steps import POWERS, fill_powers, lazy_steps
from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.linear.row_problem import RowProblem
from stretto.solvers.linear.svrg import METHODS, SvrgOptions, SvrgState, evaluate, full_gradient, stochastic_epoch
from stretto.solvers.softmax.rows import DesignRows

MASK = (1 << 64) - 1


def problem_of(n: int, p: int, density: float = 1.0, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < density)
    return X, X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=n) > 0.2


X, Y = problem_of(300, 12, 0.4)


# --- lazy steps -------------------------------------------------------------------------------------------------------


@kernel
def many_steps(
    w: Any, v: Any, t: Any, a: Any, drift: Any, l1: Any, share: Any, pull: Any, powers: Any, out: Any
) -> None:
    """`lazy_steps` for Python."""
    out[0], out[1] = lazy_steps(w, v, t, a, drift, l1, share, pull, powers)


def one_by_one(
    w: float, v: float, t: int, a: float, drift: float, l1: float, share: float, rest: float, pull: float
) -> tuple[float, float]:
    for _ in range(t):
        u = w - drift
        w = a * float(np.sign(u)) * max(abs(u) - l1, 0.0)
        v = rest * v + share * w + pull
    return w, v


@settings(max_examples=300, deadline=None)
@given(
    some.floats(-2, 2),
    some.floats(-2, 2),
    some.integers(0, 60),
    some.sampled_from([1.0, 0.999, 0.9, 0.5]),
    some.floats(-0.3, 0.3),
    some.sampled_from([0.0, 0.01, 0.1, 0.3]),
    some.sampled_from([(0.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.2, 0.3, 0.5), (0.5, 0.0, -0.2)]),
)
def test_lazy_steps_are_single_steps(
    w: float, v: float, t: int, a: float, drift: float, l1: float, coupling: tuple[float, float, float]
) -> None:
    share, rest, pull = coupling
    powers, out = np.empty((61, POWERS)), np.empty(2)
    fill_powers.exact(a, rest, powers)
    many_steps.exact(w, v, t, a, drift, l1, share, pull, powers, out)
    wanted = one_by_one(w, v, t, a, drift, l1, share, rest, pull)
    np.testing.assert_allclose(out[0], wanted[0], rtol=1e-9, atol=1e-11)
    if share:
        np.testing.assert_allclose(out[1], wanted[1], rtol=1e-9, atol=1e-10)


def scramble(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def entry_hash(row: int, col: int, bits: int) -> int:
    return scramble(scramble(((row << 32) + col + 0x9E3779B97F4A7C15) & MASK) ^ bits)


def drawn(state: SvrgState, n: int, positive: int, seed: int, step: int, r: int) -> int:
    """The sample that the kernel draws."""
    bits = entry_hash(step, r, entry_hash(positive, 1, seed))
    slot = ((bits >> 32) * n) >> 32
    chance, other = state.draw
    return slot if np.float32(bits & 0xFFFFFFFF) * np.float32(2.0**-32) < chance[slot] else int(other[slot])


def posed(data: Any, loss: str, l1: float = 0.0, *, free: bool = True) -> RowProblem:
    weight = np.linspace(0.1, 0.5, 300)
    free = free and loss == "logistic"
    return RowProblem(DesignRows.of(data), Y.astype(np.int64), np.array([1]), weight, loss, 1.0, l1, 1.0 - l1, free)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("l1", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("batch", [1, 5])
def test_an_epoch_is_that_of_a_plain_program(loss: str, l1: float, batch: int) -> None:
    """Every step on all features, in NumPy, with the samples that the kernel draws."""
    if loss == "squared_hinge" and l1 == 1.0:
        return  # its intercept has the L2 penalty
    problem = posed(scipy.sparse.csr_array(X), loss, l1)
    with Serial().open() as crew:
        state = SvrgState.start(problem, crew, SvrgOptions("svrg", batch), seed=3)
        full_gradient(problem, state, crew)
        evaluate(problem, state, tol=0.0)
        snapshot, slopes, mass = state.snapshot[0].copy(), state.slopes[0].copy(), problem.weight.sum()
        mu = state.gradient[0] / mass
        stochastic_epoch(problem, state, crew)
    wide, signs, w = np.hstack([X, np.ones((300, 1))]), np.where(Y, 1.0, -1.0), snapshot.copy()
    # What the full gradient is, by NumPy.
    margin = signs * (wide @ snapshot)
    plain = -signs / (1 + np.exp(margin)) if loss == "logistic" else -2 * signs * np.maximum(0, 1 - margin)
    np.testing.assert_allclose(slopes, plain, atol=1e-12)
    gradient = wide.T @ (problem.weight * plain) / mass
    np.testing.assert_allclose(mu, gradient, atol=1e-12)
    eta, l2 = state.step, problem.l2 / mass
    for s in range(-(-600 // batch)):
        g = mu.copy()
        for r in range(batch):
            i = drawn(state, 300, 1, 3, s, r)
            m = signs[i] * (wide[i] @ w)
            now = -signs[i] / (1 + np.exp(m)) if loss == "logistic" else -2 * signs[i] * max(0, 1 - m)
            g += (now - slopes[i]) * state.factor[i] / batch * wide[i]
        w -= eta * g
        penalised = slice(None, -1) if problem.free else slice(None)
        w[:-1] = np.sign(w[:-1]) * np.maximum(np.abs(w[:-1]) - eta * problem.l1 / mass, 0.0)
        w[penalised] /= 1 + eta * l2
    np.testing.assert_allclose(state.w[0], w, atol=1e-10)
    assert np.array_equal(state.w[0] == 0.0, w == 0.0)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("l1", [0.0, 0.5])
def test_lazy_is_eager(loss: str, method: str, l1: float) -> None:
    """In a dense matrix every step meets every feature, so nothing is postponed."""
    found = []
    for data in (X, scipy.sparse.csr_array(X)):
        problem = posed(data, loss, l1)
        with Serial().open() as crew:
            state = SvrgState.start(problem, crew, SvrgOptions(method), seed=1)
            for _ in range(4):
                full_gradient(problem, state, crew)
                evaluate(problem, state, tol=0.0)
                stochastic_epoch(problem, state, crew)
        found.append(state)
    np.testing.assert_allclose(found[0].w, found[1].w, atol=1e-9)
    np.testing.assert_allclose(found[0].snapshot, found[1].snapshot, atol=1e-9)
    np.testing.assert_allclose(found[0].gap, found[1].gap, rtol=1e-6, atol=1e-9)


# --- the optimum ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("batch", [1, 16])
def test_logistic_regression_reaches_the_optimum(method: str, ratio: float, batch: int) -> None:
    options: dict[str, Any] = {"solver": "svrg", "variance_reduction": method, "batch_size": batch, "max_iter": 400}
    model = st.LogisticRegression(0.5, l1_ratio=ratio, tol=1e-7, **options).fit(X, Y)
    best = st.LogisticRegression(0.5, l1_ratio=ratio, tol=1e-10).fit(X, Y)
    assert model.dual_gap_[0] <= 1e-7 * model.objective_[0]
    assert best.objective_[0] - 1e-9 <= model.objective_[0] <= best.objective_[0] + model.dual_gap_[0] + 1e-9
    np.testing.assert_allclose(model.coef_, best.coef_, atol=2e-3)
    np.testing.assert_allclose(model.intercept_, best.intercept_, atol=2e-3)
    if ratio == 1.0:
        assert np.count_nonzero(model.coef_) < 12


def test_optimum_of_scikit_learn() -> None:
    weight = np.random.default_rng(1).random(300)
    ours = st.LogisticRegression(2.0, solver="svrg", tol=1e-9, max_iter=500, class_weight="balanced")
    theirs = Reference(C=2.0, tol=1e-10, max_iter=10_000, class_weight="balanced")
    ours.fit(scipy.sparse.csc_array(X), Y, sample_weight=weight)
    theirs.fit(X, Y, sample_weight=weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_support_vector_machines_reach_the_optimum(method: str) -> None:
    classes = np.digitize(X[:, 0], [-0.3, 0.3])
    model = st.LinearSVC(0.3, solver="svrg", variance_reduction=method, tol=1e-7, max_iter=500).fit(X, classes)
    best = st.LinearSVC(0.3, tol=1e-10, max_iter=10_000).fit(X, classes)
    np.testing.assert_allclose(model.objective_, best.objective_, rtol=2e-7)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=2e-3)


def test_standardize_intercept_and_warm_start() -> None:
    wide = X * np.linspace(0.1, 9.0, 12)
    options: dict[str, Any] = {"standardize": True, "l1_ratio": 0.3, "fit_intercept": False}
    model = st.LogisticRegression(solver="svrg", tol=1e-8, max_iter=500, **options).fit(scipy.sparse.csr_array(wide), Y)
    best = st.LogisticRegression(tol=1e-10, **options).fit(wide, Y)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-3)
    assert model.intercept_ == 0.0
    again = st.LogisticRegression(solver="svrg", tol=1e-5, warm_start=True, **options).fit(wide, Y)
    first = int(again.n_iter_[0])
    again.fit(wide, Y)
    assert again.n_iter_[0] <= 1 < first


def test_each_against_the_rest() -> None:
    classes = np.digitize(X[:, 0], [-0.3, 0.3])
    with pytest.raises(PlanError, match="solver='svrg' learns two classes"):
        st.LogisticRegression(solver="svrg").fit(X, classes)
    model = OneVsRestClassifier(st.LogisticRegression(solver="svrg", tol=1e-6, max_iter=300)).fit(X, classes)
    best = OneVsRestClassifier(st.LogisticRegression(tol=1e-9)).fit(X, classes)
    np.testing.assert_array_equal(model.predict(X), best.predict(X))
    for mine, other in zip(model.estimators_, best.estimators_, strict=True):
        np.testing.assert_allclose(mine.objective_, other.objective_, rtol=2e-6)


# --- bits, input, refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("density", [1.0, 0.1])
def test_same_bits_at_any_number_of_threads(method: str, density: float) -> None:
    wide, y = problem_of(6000, 40, density, seed=2)
    data = wide if density == 1.0 else scipy.sparse.csr_array(wide)
    options: dict[str, Any] = {"solver": "svrg", "variance_reduction": method, "tol": 1e-3, "l1_ratio": 0.2}
    one, *others = (
        st.LogisticRegression(0.1, runtime=runtime, **options).fit(data, y)
        for runtime in (Serial(), Threads(1), Threads(2), Threads(3))
    )
    for other in others:
        for name in ("coef_", "intercept_", "dual_gap_", "objective_", "n_iter_"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@settings(max_examples=30, deadline=None)
@given(
    some.integers(2, 30),
    some.integers(1, 20),
    some.sampled_from([0.0, 0.2, 1.0]),
    some.sampled_from(["f4", "f8", "i8", "bool"]),
    some.sampled_from(["i4", "i8", None]),
    some.sampled_from(METHODS),
    some.sampled_from([0.0, 0.5, 1.0]),
    some.integers(1, 40),
    some.integers(0, 2**32 - 1),
)
def test_any_numbers_and_indices(
    n: int, p: int, density: float, dtype: str, index: str | None, method: str, ratio: float, batch: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plain = (rng.integers(-3, 4, (n, p)) * (rng.random((n, p)) < density)).astype(dtype)
    y = rng.integers(0, 2, n)
    y[:2] = 0, 1
    data: Any = plain
    if index is not None:
        data = scipy.sparse.csr_array(plain)
        data.indices, data.indptr = data.indices.astype(index), data.indptr.astype(index)
    options: dict[str, Any] = {"variance_reduction": method, "batch_size": batch, "max_iter": 60}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = st.LogisticRegression(0.3, solver="svrg", l1_ratio=ratio, n_jobs=2, **options).fit(data, y)
    best = st.LogisticRegression(0.3, l1_ratio=ratio, tol=1e-8).fit(plain, y)
    assert np.all(np.isfinite(model.coef_))
    least = best.objective_[0] - best.dual_gap_[0]
    assert least - 1e-9 <= model.objective_[0] <= best.objective_[0] + model.dual_gap_[0] + 1e-9


def test_a_step_size_that_is_too_long_is_halved() -> None:
    problem = posed(X, "logistic")
    with Serial().open() as crew:
        state = SvrgState.start(problem, crew, SvrgOptions(step=1000.0))
        for _ in range(40):
            full_gradient(problem, state, crew)
            evaluate(problem, state, tol=1e-4)
            if state.done:
                break
            stochastic_epoch(problem, state, crew)
    assert state.done
    assert state.counts[1] > 2


def test_refusals() -> None:
    with pytest.raises(PlanError, match="batch_size=4 has no effect with solver='auto'"):
        st.LogisticRegression(batch_size=4).fit(X, Y)
    with pytest.raises(PlanError, match="variance_reduction"):
        st.LogisticRegression(solver="svrg", variance_reduction="saga").fit(X, Y)
    with pytest.raises(PlanError, match="batch_size"):
        st.LogisticRegression(solver="svrg", batch_size=0).fit(X, Y)
    with pytest.raises(PlanError, match=r"learning_rate=0\.1 has no effect with solver='svrg'"):
        st.LogisticRegression(solver="svrg", learning_rate=0.1).fit(X, Y)
    with pytest.raises(PlanError, match="loss='hinge' has none at 1"):
        st.LinearSVC(solver="svrg", loss="hinge").fit(X, Y)
    with pytest.raises(PlanError, match="drawn from all samples in one memory"):
        st.LogisticRegression(solver="svrg", runtime=st.Simulated(nodes=2)).fit(X, Y)
    with pytest.raises(PlanError, match="schedule= has no effect"):
        st.LogisticRegression(solver="svrg", schedule=st.schedule.cyclic()).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter=1 epochs"):
        st.LogisticRegression(solver="svrg", tol=1e-9, max_iter=1).fit(X, Y)


def test_plan_and_explanation_name_the_solver() -> None:
    model = st.LogisticRegression(solver="svrg", variance_reduction="katyusha", batch_size=8)
    assert "Katyusha" in model.explain(X, Y)
    assert "batch_size=8" in model.plan(X, Y).explain()
    assert "batch_size" not in st.LogisticRegression().plan(X, Y).explain()
    assert model.fit(X, Y).fingerprint_ == model.plan(X, Y).fingerprint


def test_a_fit_resumes(tmp_path: Path) -> None:
    options: dict[str, Any] = {"solver": "svrg", "variance_reduction": "katyusha", "tol": 1e-9, "max_iter": 500}

    class Interrupt:
        """Ends the fit by an exception after some epochs, as a crash would."""

        def setup(self, estimator: Any, context: Any) -> None: ...

        def teardown(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any) -> bool:
            if metadata and metadata.get("round", 0) == 5:
                raise ZeroDivisionError
            return False

    whole = st.LogisticRegression(0.1, **options).fit(X, Y)
    session = st.Session(saving=st.Saving(tmp_path, every_epochs=2))
    with pytest.raises(ZeroDivisionError):
        st.LogisticRegression(0.1, **options).set_callbacks(Interrupt()).fit(X, Y, session=session)
    resumed = st.Session(saving=st.Saving(tmp_path, every_epochs=2), resume=True)
    again = st.LogisticRegression(0.1, **options).fit(X, Y, session=resumed)
    np.testing.assert_array_equal(whole.coef_, again.coef_)
    np.testing.assert_array_equal(whole.n_iter_, again.n_iter_)
