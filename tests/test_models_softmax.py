"""The joint softmax solver, against scikit-learn's optimum; the same bits at any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

import stretto as st
from stretto.models.softmax_point import Problem
from stretto.models.softmax_rows import Rows
from stretto.models.softmax_solver import SoftmaxFit, solve


def made(n: int = 300, p: int = 12, k: int = 4, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[np.abs(X) < 0.8] = 0.0
    y = np.argmax(X @ rng.normal(size=(p, k)) + rng.gumbel(size=(n, k)), axis=1)
    return X, y


def problem(X: Any, y: Any, C: float = 1.0, l1: float = 0.0) -> Problem:
    p = X.shape[1]
    free = np.r_[np.ones(p), 0.0]
    return Problem(
        Rows.of(X), y.astype(np.int64), int(y.max()) + 1, np.full(len(y), C), True, l1 * free, (1 - l1) * free
    )


def solved(given: Problem, threads: int = 1, share: float = 1e-7) -> SoftmaxFit:
    with st.Threads(threads).open() as crew:
        return solve(given, crew, gap=share * given.empty, max_rounds=200)


def objective(X: Any, y: Any, coef: Any, intercept: Any, C: float, l1: float) -> float:
    z = X @ coef.T + intercept
    top = z.max(axis=1, keepdims=True)
    loss = (np.log(np.exp(z - top).sum(axis=1)) + top[:, 0] - z[np.arange(len(y)), y]).sum()
    return float(C * loss + l1 * np.abs(coef).sum() + 0.5 * (1 - l1) * (coef**2).sum())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("C", "l1"), [(1.0, 0.0), (0.05, 0.0), (0.2, 1.0), (1.0, 0.5)])
def test_the_optimum_is_that_of_scikit_learn(C: float, l1: float, sparse: bool) -> None:
    X, y = made()
    peer = LogisticRegression(C=C, l1_ratio=l1, solver="lbfgs" if l1 == 0 else "saga", tol=1e-9, max_iter=20_000)
    peer.fit(X, y)
    best = objective(X, y, peer.coef_, peer.intercept_, C, l1)
    fit = solved(problem(csr_array(X) if sparse else X, y, C, l1))
    assert fit.converged
    k = 4
    mine = objective(X, y, fit.W[:-1, :k].T, fit.W[-1, :k], C, l1)
    assert mine == pytest.approx(fit.objective, rel=1e-9)
    assert mine == pytest.approx(best, rel=2e-6)
    assert mine - best <= fit.gap + 1e-6 * best


@pytest.mark.parametrize("l1", [0.0, 1.0])
def test_the_same_bits_at_any_number_of_threads(l1: float) -> None:
    X, y = made(2000, 30, 5, seed=1)
    one, two, three = (solved(problem(X, y, 0.1, l1), threads, 1e-5).W for threads in (1, 2, 3))
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)
