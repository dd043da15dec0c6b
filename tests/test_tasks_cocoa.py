"""CoCoA as a task: its invariants, its bits, its optimum, and adding against averaging."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import stretto as st
from stretto.errors import DataError, PlanError

SAMPLES, FEATURES = 120, 40
KINDS: dict[str, dict[str, Any]] = {
    "lasso": {"alpha": 0.05},
    "elastic net": {"alpha": 0.05, "l1_ratio": 0.5},
    "ridge": {"alpha": 0.05, "l1_ratio": 0.0},
    "logistic": {"loss": "logistic", "C": 0.3},
    "sparse logistic": {"loss": "logistic", "C": 0.3, "l1_ratio": 0.7},
    "hinge": {"loss": "hinge", "C": 0.01},
    "squared hinge": {"loss": "squared_hinge", "C": 0.01},
}


def data(seed: int = 0, correlated: float = 0.0) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((SAMPLES, FEATURES)) + correlated * draw.standard_normal((SAMPLES, 1))
    return X, X[:, :4] @ [1.0, -2.0, 0.5, 1.0] + 0.1 * draw.standard_normal(SAMPLES)


def make(kind: str, X: Any, y: Any, **options: Any) -> Any:
    given = {"local_passes": 1} | KINDS[kind] | options
    return st.cocoa(X, y if given.get("loss", "squared") == "squared" else y > 0, **given)


def run(task: Any, runtime: Any = None, **options: Any) -> Any:
    return st.run(task, runtime=runtime or st.Serial(), **options)


def shared_again(task: Any, kind: str, X: Any, y: Any) -> Any:
    """The shared vector from the variables."""
    if task.by_columns:
        return X @ task.variables
    signs = np.ones(len(y)) if kind == "ridge" else np.where(y > 0, 1.0, -1.0)
    return X.T @ (signs * task.variables) / (0.05 if kind == "ridge" else 1.0)


def objective(kind: str, X: Any, y: Any, w: Any) -> float:
    """As the documentation writes it."""
    given = KINDS[kind]
    z, signs = X @ w, np.where(y > 0, 1.0, -1.0)
    share = given.get("l1_ratio", 1.0 if kind == "lasso" else 0.0)
    penalty = share * np.abs(w).sum() + 0.5 * (1 - share) * w @ w
    if "alpha" in given:
        return float(((y - z) ** 2).sum() / (2 * len(y)) + given["alpha"] * penalty)
    slack = np.maximum(0.0, 1 - signs * z)
    losses = {"hinge": slack, "squared hinge": slack**2}.get(kind, np.logaddexp(0.0, -signs * z))
    return float(given["C"] * losses.sum() + penalty)


@pytest.mark.parametrize("kind", KINDS)
def test_the_shared_vector_is_that_of_the_variables_after_every_round(kind: str) -> None:
    X, y = data()
    task = make(kind, X, y, parts=4, max_rounds=1, tol=0.0, gamma=0.5)
    scales = []
    for _ in range(6):  # running a task again continues it
        share = run(task).value
        wanted = shared_again(task, kind, X, y)
        assert np.abs(task.shared - wanted).max() <= 1e-12 * max(1.0, np.abs(wanted).max())
        assert task.objective == pytest.approx(objective(kind, X, y, task.coef), rel=1e-12)
        assert task.gap >= -1e-12 * task.objective
        assert share == task.gap / task.objective
        scales.append(task.objective - task.gap)  # the dual value
    assert len(set(scales)) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_the_gap_bounds_the_distance_to_the_optimum(kind: str) -> None:
    X, y = data()
    task = make(kind, X, y, parts=3, tol=1e-9, local_passes=10, max_rounds=500, gap_every=2)
    result = run(task)
    best = objective(kind, X, y, task.coef)
    assert 0.0 <= result.value < 1e-9
    assert min(result.history("gap")) > -1e-12
    early = make(kind, X, y, parts=3, tol=0.1)
    run(early)
    assert best - 1e-9 <= early.objective <= best + early.gap


@pytest.mark.parametrize("kind", KINDS)
def test_it_converges_to_the_objective_of_the_estimator(kind: str) -> None:
    X, y = data()
    plain: dict[str, Any] = {"fit_intercept": False, "tol": 1e-10}
    task = make(kind, X, y, parts=1, sigma=1.0, tol=1e-7, local_passes=20)
    run(task)
    if kind == "ridge":
        w = np.linalg.solve(X.T @ X / SAMPLES + 0.05 * np.eye(FEATURES), X.T @ y / SAMPLES)
        assert task.objective == pytest.approx(objective(kind, X, y, w), rel=1e-6)
        return
    model: Any = {
        "lasso": st.Lasso(0.05, **plain),
        "elastic net": st.ElasticNet(0.05, l1_ratio=0.5, **plain),
        "logistic": st.LogisticRegression(C=0.3, **plain),
        "sparse logistic": st.LogisticRegression(C=0.3, l1_ratio=0.7, **plain),
        "hinge": st.LinearSVC(C=0.01, loss="hinge", **plain),
        "squared hinge": st.LinearSVC(C=0.01, **plain),
    }[kind]
    model.fit(X, y if "alpha" in KINDS[kind] else y > 0)
    assert task.objective == pytest.approx(float(np.squeeze(model.objective_)), rel=1e-6)
    assert np.abs(task.coef - np.squeeze(model.coef_)).max() < 2e-3


def test_one_part_is_plain_coordinate_descent() -> None:
    X, y = data()
    task = make("elastic net", X, y, parts=1, shuffle=False, max_rounds=1, tol=0.0)
    w, square = np.zeros(FEATURES), (X * X).sum(0) / SAMPLES
    for _ in range(3):
        run(task)
        for j in range(FEATURES):
            rest = X[:, j] @ (y - X @ w + X[:, j] * w[j]) / SAMPLES
            w[j] = np.sign(rest) * max(0.0, abs(rest) - 0.025) / (square[j] + 0.025)
        assert np.abs(task.coef - w).max() < 1e-13


def test_one_part_is_plain_dual_coordinate_descent() -> None:
    X, y = data()
    signs = np.where(y > 0, 1.0, -1.0)
    task = make("hinge", X, y, parts=1, shuffle=False, max_rounds=1, tol=0.0)
    b, w = np.zeros(SAMPLES), np.zeros(FEATURES)
    for _ in range(3):
        run(task)
        for i in range(SAMPLES):
            new = min(max(b[i] + (1 - signs[i] * X[i] @ w) / (X[i] @ X[i]), 0.0), 0.01)
            w, b[i] = w + (new - b[i]) * signs[i] * X[i], new
        assert np.abs(task.variables - b).max() < 1e-13
        assert np.abs(task.coef - w).max() < 1e-13


def test_a_part_solves_its_subproblem() -> None:
    """The logistic step of one sample, the quadratic term with σ′, and γ: against a fine grid."""
    x, s, sigma, gamma = np.array([[0.7, -1.1]]), 0.3, 2.0, 0.5
    task = st.cocoa(
        np.vstack([x, -x]),
        [1, 0],
        loss="logistic",
        C=s,
        parts=2,
        gamma=gamma,
        sigma=sigma,
        max_rounds=1,
        tol=0.0,
        local_passes=1,
    )
    run(task)
    share = np.linspace(1e-6, 1 - 1e-6, 2_000_001)
    value = -s * (share * np.log(share) + (1 - share) * np.log(1 - share)) - sigma / 2 * (s * share) ** 2 * (x @ x.T)[0]
    assert np.allclose(task.variables, gamma * s * share[value.argmax()], atol=1e-6)


@pytest.mark.parametrize("kind", ["lasso", "logistic"])
def test_the_same_bits_on_every_runtime(kind: str) -> None:
    X, y = data()
    found = set()
    for runtime in (st.Serial(), st.Threads(1), st.Threads(3), st.Simulated(nodes=4, threads=1)):
        task = make(kind, X, y, parts=6, max_rounds=5, tol=0.0)
        values = run(task, runtime).history("gap")
        found.add((task.shared.tobytes(), task.variables.tobytes(), tuple(values), task.objective))
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["elastic net", "hinge"])
def test_sparse_and_dense_data_agree(kind: str) -> None:
    X, y = data()
    X = X * (np.random.default_rng(1).random(X.shape) < 0.2)
    tasks = [make(kind, given, y, parts=5, max_rounds=10, tol=0.0) for given in (X, sp.csr_array(X), sp.coo_array(X))]
    for task in tasks:
        run(task)
        assert np.allclose(task.coef, tasks[0].coef, rtol=1e-12, atol=1e-14)
    single = make(kind, X.astype("f4"), y, parts=5, max_rounds=10, tol=0.0)
    run(single)
    assert np.allclose(single.coef, tasks[0].coef, atol=1e-5)


@pytest.mark.parametrize("kind", ["hinge", "ridge"])
def test_adding_needs_fewer_rounds_than_averaging(kind: str) -> None:
    X, y = data()
    X /= np.linalg.norm(X, axis=1)[:, None]
    adding = make(kind, X, y, parts=8, tol=1e-2)
    averaging = make(kind, X, y, parts=8, tol=1e-2, gamma=1 / 8)
    assert (adding.sigma, averaging.sigma) == (8.0, 1.0)
    rounds = [len(run(task).history("gap")) for task in (adding, averaging)]
    assert 2 * rounds[0] < rounds[1]


def test_the_overlap_of_parts_gives_a_smaller_sigma() -> None:
    """Blocks of columns that share no sample do not disturb each other: σ′ = γ, and one round is as good as alone."""
    draw = np.random.default_rng(0)
    X = sp.block_diag([draw.standard_normal((30, 10)) for _ in range(4)], format="csr")
    y = X @ draw.standard_normal(40)
    task = st.cocoa(X, y, alpha=0.01, parts=4, sigma="data")
    careful = st.cocoa(X, y, alpha=0.01, parts=4)
    assert (task.sigma, careful.sigma) == (1.0, 4.0)
    assert not task.heuristic
    assert len(run(task).history("gap")) < len(run(careful).history("gap"))


def test_a_sigma_that_is_too_small_is_noticed() -> None:
    X, y = data(correlated=0.5)
    task = make("elastic net", X, y, parts=8, sigma=1.0, tol=1e-2)
    assert task.heuristic
    with pytest.warns(UserWarning, match=r"gap rose from \S+ to \S+ with sigma=1; it is too small and is now 8"):
        result = run(task)
    assert task.sigma == 8.0
    assert result.value < 1e-2


@pytest.mark.parametrize("sync", [st.tables.SSP(1), st.tables.ASP()])
def test_stale_reads_end_at_the_optimum(sync: Any) -> None:
    X, y = data()
    task = make("elastic net", X, y, parts=4, sync=sync, gap_every=3, tol=1e-6)
    assert task.heuristic
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether σ′ grows depends on the network
        result = run(task, st.Simulated(nodes=4, threads=1, jitter="1ms"))
    assert result.value < 1e-6
    assert np.allclose(task.shared, X @ task.coef, rtol=1e-10, atol=1e-10)
    careful = make("elastic net", X, y, parts=4, tol=1e-6)
    run(careful)
    assert task.objective == pytest.approx(careful.objective, rel=2e-6)


def test_columns_of_zeros_and_samples_without_features() -> None:
    X, y = data()
    X[:, 3] = 0.0
    X[7] = 0.0
    lasso, svc = make("lasso", X, y, parts=4), make("hinge", X, y, parts=4)
    run(lasso)
    run(svc)
    assert lasso.coef[3] == 0.0
    assert svc.variables[7] == 0.01  # its loss is 1 whatever w is
    strong = st.cocoa(X, y, alpha=1e3, parts=4)
    assert len(run(strong).history("gap")) == 1
    assert not strong.coef.any()
    assert strong.gap == pytest.approx(0.0, abs=1e-12 * strong.objective)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": 0.1, "parts": 4}, r"gamma must be .*got 0\.1"),
        ({"gamma": 1.5}, r"gamma must be .*got 1\.5"),
        ({"sigma": 0.5}, r"sigma must be .*got 0\.5"),
        ({"sigma": "best"}, r"sigma must be one of 'data'"),
        ({"parts": 41}, r"parts=41, and X has 40 features"),
        ({"parts": 121, "l1_ratio": 0.0}, r"parts=121, and X has 120 samples"),
        ({"loss": "huber"}, r"loss must be one of"),
        ({"loss": "hinge", "l1_ratio": 0.5}, r"l1_ratio=0\.5 with loss='hinge'"),
        ({"loss": "hinge", "alpha": 0.5}, r"alpha=0\.5 is not used with loss='hinge'; give C="),
        ({"C": 0.5}, r"C=0\.5 is not used with loss='squared'; give alpha="),
        ({"alpha": 0.0}, r"alpha must be"),
        ({"local_passes": 0}, r"local_passes=0"),
    ],
)
def test_what_is_refused(options: dict[str, Any], words: str) -> None:
    X, y = data()
    with pytest.raises(PlanError, match=words):
        st.cocoa(X, y > 0 if "loss" in options else y, **options)


def test_labels_are_checked() -> None:
    X, y = data()
    with pytest.raises(DataError, match=r"y has shape \(119,\) and X 120 samples"):
        st.cocoa(X, y[1:])
    with pytest.raises(DataError, match=r"needs two classes, and y has 120"):
        st.cocoa(X, y, loss="hinge")
    with pytest.raises(DataError, match=r"y holds NaN"):
        st.cocoa(X, np.where(y > 0, y, np.nan))
    named = st.cocoa(X, np.where(y > 0, "b", "a"), loss="logistic")
    assert named.classes is not None
    assert named.classes.tolist() == ["a", "b"]


def test_rounds_that_end_too_early_are_told() -> None:
    draw = np.random.default_rng(0)
    X = draw.standard_normal((200, 10))
    y = np.where(X[:, 0] + draw.standard_normal(200) > 0.0, 1.0, -1.0)
    task = st.cocoa(X, y, loss="hinge", parts=4, tol=1e-9, max_rounds=3)
    with pytest.warns(UserWarning, match="ended with a duality gap of .* tol asks for 1e-09; raise max_rounds"):
        st.run(task, runtime=st.Serial())
    assert task.gap > 0.0
