"""The shipped programs, first part: factorization, logistic regression, PageRank, k-means.

Each loop gives the bits of the reference interpreter at any number of workers, and what plain Python gives for the
function as it was written. The tolerance there is for a few hundred updates of float32 numbers that build on each
other, some ten operations each: 8 ulp an operation would allow 1e-3, and 1e-4 holds. Loops in float64 get 1e-10.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import realdata
import stretto as st
from examples_run import EXAMPLES, lines_written, load, prepares_once, strategies, three_ways

Make = Callable[[], Sequence[Any]]

RATINGS = st.generate_ratings(600, 60, 45, rank=2, noise=0.1, seed=1).data
SAMPLES = load("logistic").generate(240, 60)
SPARSE = load("logistic_inspected").generate(240, 600, 3)
WEB = load("pagerank").generate(250, 60)
PAGES = st.Data.from_arrays(WEB.rows, WEB.cols, WEB.values, (60, 60)).group_by(1)


def points(dtype: str = "f8") -> NDArray[Any]:
    made: NDArray[Any] = load("kmeans").generate(400, 4, 5).astype(dtype)
    return made


def factors(width: int = 6) -> tuple[st.State, st.State]:
    return st.random((60, width), scale=0.3, seed=0), st.random((45, width), scale=0.3, seed=1)


def mf() -> Sequence[Any]:
    return RATINGS, *factors(), 3.0, 0.02, 0.05, st.accumulator(0.0)


def mf_adarevision() -> Sequence[Any]:
    return RATINGS, *factors(), st.full((60, 6), 1.0), st.full((45, 6), 1.0), 3.0, 0.1, 0.05, st.accumulator(0.0)


def logistic() -> Sequence[Any]:
    w = st.random(60, scale=0.1, seed=0)
    return SAMPLES, w, st.buffer(w), 0.05, st.accumulator(0.0)


STEP = load("logistic_adarevision").adarevision(0.3)


def logistic_adarevision() -> Sequence[Any]:
    w, z, zmax, total = st.random(60, scale=0.1, seed=0), st.full(60, 1.0), st.full(60, 1.0), st.zeros(60)
    gradient = st.buffer(w, apply=STEP, with_=(z, zmax, total), snapshot=total)
    return SAMPLES, w, gradient, st.accumulator(0.0)


def logistic_inspected() -> Sequence[Any]:
    return SPARSE, st.random(600, scale=0.1, seed=0), 0.1, st.accumulator(0.0)


def pagerank() -> Sequence[Any]:
    rank = st.full(60, 1 / 60, "f8")
    out = np.bincount(WEB.rows, minlength=60)
    return PAGES, rank / np.maximum(out, 1), rank, 0.85, 0.0025, st.accumulator(0.0)


def kmeans(dtype: str = "f8") -> Sequence[Any]:
    X = points(dtype)
    sums, counts = st.accumulator(np.zeros((4, 5), dtype)), st.accumulator(np.zeros(4, int))
    return X, X[:4].copy(), st.zeros(len(X), "i4"), sums, counts, st.accumulator(0.0)


# So few iterations would be one visit; `blocks` makes many of them.
PROGRAMS = [
    (mf, "epoch", "2d unordered", {"blocks": 5}, 1e-4),
    (mf_adarevision, "epoch", "2d unordered", {"blocks": 5}, 1e-4),
    (logistic, "epoch", "buffered", {"blocks": 40}, 1e-4),
    (logistic_adarevision, "epoch", "buffered", {"blocks": 40}, 1e-4),
    (logistic_inspected, "epoch", "inspected", {}, 1e-4),
    (pagerank, "sweep", "independent", {"blocks": 7}, 1e-10),
    (kmeans, "assign", "independent", {"blocks": 7}, 1e-10),
]


@pytest.mark.parametrize(("make", "loop", "strategy", "options", "rtol"), PROGRAMS)
def test_every_way_gives_the_same(make: Make, loop: str, strategy: str, options: dict[str, Any], rtol: float) -> None:
    decorated = getattr(load(make.__name__), loop)
    plan = three_ways(decorated.using(**options), make, rtol=rtol, atol=rtol / 10)
    assert strategies(plan) == [strategy]
    assert len(plan.parts[0].prepared.visits) > 6
    prepares_once(decorated, make)


@pytest.mark.parametrize("make", [logistic, logistic_adarevision])
def test_buffered_visits_of_many_samples(make: Make) -> None:
    """As shipped, so few samples are visited one at a time; here a visit builds on writes of its own."""
    three_ways(load(make.__name__).epoch.using(blocks=6, width=3), make, atol=1e-5)


def test_points_in_single_precision() -> None:
    three_ways(load("kmeans").assign.using(blocks=7), lambda: kmeans("f4"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("program", "most"),
    [("mf", 25), ("mf_adarevision", 30), ("logistic", 30), ("logistic_adarevision", 45), ("logistic_inspected", 30),
     ("pagerank", 35), ("kmeans", 40)],
)  # fmt: skip
def test_lines_a_user_writes(program: str, most: int) -> None:
    assert lines_written(program) <= most


@pytest.mark.parametrize(("program", "lr"), [("mf", 0.05), ("mf_adarevision", 0.2)])
def test_factorization_learns(program: str, lr: float, capsys: pytest.CaptureFixture[str]) -> None:
    W, H = load(program).train(RATINGS, rank=4, epochs=25, lr=lr, lam=0.01)
    said = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(said) == 25
    found = RATINGS.values.mean() + np.einsum("nk,nk->n", W[RATINGS.rows], H[RATINGS.cols])
    assert np.sqrt(np.mean((RATINGS.values - found) ** 2)) <= said[-1] < 0.4 * RATINGS.values.std()


def accuracy(w: st.State, X: Any, y: NDArray[Any]) -> float:
    return float(np.mean(np.sign(X @ w[: X.shape[1]]) == y))


@pytest.mark.parametrize(("program", "lr"), [("logistic", 0.05), ("logistic_adarevision", 0.3)])
def test_logistic_regression_learns(program: str, lr: float, capsys: pytest.CaptureFixture[str]) -> None:
    """As well as scikit-learn's, on the samples it was trained with."""
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(3)
    X = (draw.random((1500, 30)) < 0.2).astype("f4")
    y = np.where(X @ draw.standard_normal(30) + draw.logistic(size=1500) > 0, 1, -1)
    w = load(program).train(st.samples(X, y), epochs=20, lr=lr)
    said = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert said[-1] < said[0] < np.log(2) + 0.1
    theirs = LogisticRegression(fit_intercept=False).fit(X, y)
    assert accuracy(w, X, y) > theirs.score(X, y) - 0.02


def test_adarevision_without_delay_is_adagrad() -> None:
    w, z, total = 0.5, 1.0, 3.0
    assert STEP(w, 2.0, z, z, total, total) == (w - 0.3 / np.sqrt(5.0) * 2.0, 5.0, 5.0, 5.0)


def test_adarevision_ends_where_gradients_in_order_end() -> None:
    """Two gradients that were computed from the same weight, and come one after the other."""
    first = STEP(0.0, 1.0, 1.0, 1.0, 0.0, 0.0)
    late = STEP(first[0], 1.0, *first[1:], 0.0)
    assert late[1] == 1.0 + (1.0 + 1.0) ** 2  # as one gradient of both
    assert late[0] == pytest.approx(-0.3 / np.sqrt(5.0) * 2.0)


def test_inspected_logistic_regression_learns(capsys: pytest.CaptureFixture[str]) -> None:
    w = load("logistic_inspected").train(SPARSE, epochs=30, lr=0.3)
    scores = {i: (y, sum(w[f] * x for f, x in features)) for i, (y, features) in SPARSE}
    assert np.mean([np.sign(score) == y for y, score in scores.values() if y]) > 0.95
    assert "loss" in capsys.readouterr().out


def test_pagerank_is_the_leading_eigenvector(capsys: pytest.CaptureFixture[str]) -> None:
    rank = load("pagerank").pagerank(WEB)
    A = np.zeros((60, 60))
    A[WEB.cols, WEB.rows] = 1.0
    out = A.sum(axis=0)
    A = np.where(out > 0, A / np.maximum(out, 1), 1 / 60)
    values, vectors = np.linalg.eig(0.85 * A + 0.15 / 60)
    first = np.abs(vectors[:, np.argmax(values.real)].real)
    np.testing.assert_allclose(rank, first / first.sum(), atol=1e-9)
    assert len(capsys.readouterr().out.splitlines()) < 100


def test_kmeans_does_what_lloyd_does(capsys: pytest.CaptureFixture[str]) -> None:
    from sklearn.cluster import KMeans

    X = points()
    centres, label = load("kmeans").kmeans(X, 4, passes=50, seed=0)
    start = X[np.random.default_rng(0).choice(len(X), 4, replace=False)]
    theirs = KMeans(4, init=start, n_init=1, algorithm="lloyd", tol=0, max_iter=50).fit(X)
    np.testing.assert_array_equal(label, theirs.labels_)
    np.testing.assert_allclose(centres, theirs.cluster_centers_)
    said = float(capsys.readouterr().out.split()[-1])
    assert said == pytest.approx(theirs.inertia_ / len(X), abs=1e-4)


@pytest.mark.parametrize("program", ["logistic", "logistic_adarevision"])
def test_census_income(program: str) -> None:
    """The a9a samples: scikit-learn gets 0.850 of the test part right."""
    train = st.read(realdata.find("a9a", "a9a.trn.libsvm.xz"))
    test = st.read(realdata.find("a9a", "a9a.tst.libsvm.xz"))
    assert test.labels is not None
    w = load(program).train(train.samples(), epochs=3)
    assert accuracy(w, test.to_csr(), test.labels) > 0.84


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", ["mf", "mf_adarevision", "logistic", "logistic_adarevision", "logistic_inspected", "pagerank", "kmeans"]
)
def test_programs_run_from_the_shell(program: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{program}.py")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 10
