"""Loops of the measurement `loops_speed`: each as a user writes it, by hand for Numba, and its body given to Numba.

`loop` is decorated by `st.parallel`; `strict` is what a user who knows Numba writes, with inner loops over elements,
compiled with `error_model="numpy"`; `naive` is the body of `loop` as it stands, with rows as NumPy expressions. Data
are drawn with fixed seeds. Arguments are made anew for each of the three, so that all start alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import stretto as st

Args = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One loop three times."""

    loop: Any  # under `st.parallel`
    strict: Callable[..., Any]  # by hand
    naive: Callable[..., Any]  # the body as it stands
    ours: Callable[[], Args]  # arguments of `loop`
    theirs: Callable[[], Args]  # arguments of the other two


def _ratings() -> Any:
    return st.generate_ratings(200_000, 6000, 4000, seed=1).data


def _factors(rank: int = 32) -> tuple[Any, Any]:
    draw = np.random.default_rng(1)
    return tuple((0.1 * draw.random((n, rank))).astype("f4") for n in (6000, 4000))  # type: ignore[return-value]


# --- matrix factorization: that of the README ---


@st.parallel
def mf(ratings: Any, W: Any, H: Any, lr: float, lam: float, loss: Any) -> None:
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * (e * H[j] - lam * W[i]), H[j] + lr * (e * W[i] - lam * H[j])


def mf_naive(rows: Any, cols: Any, values: Any, W: Any, H: Any, lr: float, lam: float) -> float:
    loss = 0.0
    for t in range(len(values)):
        i, j, r = rows[t], cols[t], values[t]
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * (e * H[j] - lam * W[i]), H[j] + lr * (e * W[i] - lam * H[j])
    return loss


def mf_strict(rows: Any, cols: Any, values: Any, W: Any, H: Any, lr: Any, lam: Any) -> float:
    loss = 0.0
    for t in range(len(values)):
        i, j, r = rows[t], cols[t], values[t]
        s = np.float32(0)
        for f in range(W.shape[1]):
            s += W[i, f] * H[j, f]
        e = r - s
        loss += e * e
        for f in range(W.shape[1]):
            w, h = W[i, f], H[j, f]
            W[i, f] = w + lr * (e * h - lam * w)
            H[j, f] = h + lr * (e * w - lam * h)
    return loss


def _records() -> Args:
    data = _ratings()
    return data.rows, data.cols, data.values


def mf_theirs() -> Args:
    return (*_records(), *_factors(), np.float32(0.01), np.float32(0.05))


# --- expectation step of a Gaussian mixture with diagonal covariances, with its sums ---


@st.parallel
def mixture(X: Any, mean: Any, inverse: Any, offset: Any, count: Any, first: Any, second: Any, total: Any) -> None:
    for i in range(len(X)):
        p = np.empty(len(offset))
        for k in range(len(offset)):
            d = X[i] - mean[k]
            p[k] = offset[k] - 0.5 * ((d * d) @ inverse[k])
        top = max(p)
        p[:] = np.exp(p - top)
        s = sum(p)
        total += top + math.log(s)
        for k in range(len(offset)):
            r = p[k] / s
            count[k] += r
            first[k] += r * X[i]
            second[k] += r * X[i] * X[i]


def mixture_naive(X: Any, mean: Any, inverse: Any, offset: Any, count: Any, first: Any, second: Any) -> float:
    total = 0.0
    for i in range(len(X)):
        p = np.empty(len(offset))
        for k in range(len(offset)):
            d = X[i] - mean[k]
            p[k] = offset[k] - 0.5 * ((d * d) @ inverse[k])
        top = np.max(p)
        p[:] = np.exp(p - top)
        s = np.sum(p)
        total += top + math.log(s)
        for k in range(len(offset)):
            r = p[k] / s
            count[k] += r
            first[k] += r * X[i]
            second[k] += r * X[i] * X[i]
    return total


def mixture_strict(X: Any, mean: Any, inverse: Any, offset: Any, count: Any, first: Any, second: Any) -> float:
    total = 0.0
    K, D = mean.shape
    p = np.empty(K)
    for i in range(len(X)):
        top = -np.inf
        for k in range(K):
            s = 0.0
            for f in range(D):
                d = X[i, f] - mean[k, f]
                s += d * d * inverse[k, f]
            p[k] = offset[k] - 0.5 * s
            top = max(top, p[k])
        s = 0.0
        for k in range(K):
            p[k] = math.exp(p[k] - top)
            s += p[k]
        total += top + math.log(s)
        for k in range(K):
            r = p[k] / s
            count[k] += r
            for f in range(D):
                x = X[i, f]
                first[k, f] += r * x
                second[k, f] += r * x * x
    return total


def _mixture_arrays() -> Args:
    draw = np.random.default_rng(2)
    X, mean = draw.standard_normal((20_000, 16)), draw.standard_normal((8, 16))
    return X, mean, 0.5 + draw.random((8, 16)), draw.standard_normal(8)


def mixture_ours() -> Args:
    zeros = [st.accumulator(np.zeros(shape)) for shape in ((8,), (8, 16), (8, 16))]
    return (*_mixture_arrays(), *zeros, st.accumulator(0.0))


def mixture_theirs() -> Args:
    return (*_mixture_arrays(), np.zeros(8), np.zeros((8, 16)), np.zeros((8, 16)))


# --- gradient of logistic regression over dense rows ---


@st.parallel
def gradient(X: Any, y: Any, w: Any, g: Any) -> None:
    for i in range(len(X)):
        p = 1.0 / (1.0 + math.exp(-(X[i] @ w)))
        g += (p - y[i]) * X[i]


def gradient_naive(X: Any, y: Any, w: Any, g: Any) -> None:
    for i in range(len(X)):
        p = 1.0 / (1.0 + math.exp(-(X[i] @ w)))
        g += (p - y[i]) * X[i]


def gradient_strict(X: Any, y: Any, w: Any, g: Any) -> None:
    for i in range(len(X)):
        s = 0.0
        for f in range(len(w)):
            s += X[i, f] * w[f]
        p = 1.0 / (1.0 + math.exp(-s)) - y[i]
        for f in range(len(w)):
            g[f] += p * X[i, f]


def _gradient_arrays() -> Args:
    draw = np.random.default_rng(3)
    return draw.standard_normal((40_000, 30)), (draw.random(40_000) < 0.5).astype("f8"), draw.standard_normal(30)


# --- stencils ---


@st.parallel
def heat1(A: Any, c: float) -> None:
    steps, n = A.shape
    for t in range(1, steps):
        for x in range(1, n - 1):
            A[t, x] = A[t - 1, x] + c * (A[t - 1, x - 1] - 2.0 * A[t - 1, x] + A[t - 1, x + 1])


def heat1_strict(A: Any, c: float) -> None:
    steps, n = A.shape
    for t in range(1, steps):
        for x in range(1, n - 1):
            A[t, x] = A[t - 1, x] + c * (A[t - 1, x - 1] - 2.0 * A[t - 1, x] + A[t - 1, x + 1])


@st.parallel
def jacobi(A: Any, B: Any) -> None:
    n, m = A.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            B[i, j] = 0.25 * (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])


def jacobi_strict(A: Any, B: Any) -> None:
    n, m = A.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            B[i, j] = 0.25 * (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])


@st.parallel
def seidel(A: Any) -> None:
    n, m = A.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            A[i, j] = 0.25 * (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])


def seidel_strict(A: Any) -> None:
    n, m = A.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            A[i, j] = 0.25 * (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])


def _grid(n: int, m: int) -> Any:
    return np.random.default_rng(4).random((n, m))


# --- assignment of k-means ---


@st.parallel
def assign(X: Any, centre: Any, label: Any, loss: Any) -> None:
    for i in range(len(X)):
        best = np.inf
        which = 0
        for k in range(len(centre)):
            d = X[i] - centre[k]
            s = d @ d
            if s < best:
                best = s
                which = k
        label[i] = which
        loss += best


def assign_naive(X: Any, centre: Any, label: Any) -> float:
    loss = 0.0
    for i in range(len(X)):
        best = np.inf
        which = 0
        for k in range(len(centre)):
            d = X[i] - centre[k]
            s = d @ d
            if s < best:
                best = s
                which = k
        label[i] = which
        loss += best
    return loss


def assign_strict(X: Any, centre: Any, label: Any) -> float:
    loss = 0.0
    for i in range(len(X)):
        best = np.inf
        which = 0
        for k in range(len(centre)):
            s = 0.0
            for f in range(X.shape[1]):
                d = X[i, f] - centre[k, f]
                s += d * d
            if s < best:
                best = s
                which = k
        label[i] = which
        loss += best
    return loss


def _points() -> Args:
    draw = np.random.default_rng(5)
    return draw.random((20_000, 20)), draw.random((16, 20)), np.zeros(20_000, np.int64)


# --- logistic regression over sparse samples, weights behind a buffer ---


@st.parallel
def sparse(samples: Any, w: Any, dw: Any, lr: float) -> None:
    for _, (y, features) in samples:
        s = 0.0
        for f, x in features:
            s += w[f] * x
        p = 1.0 / (1.0 + math.exp(-s))
        for f, x in features:
            dw[f] -= lr * (p - y) * x


def sparse_strict(ptr: Any, feature: Any, value: Any, y: Any, w: Any, lr: float) -> None:
    for t in range(len(y)):
        s = 0.0
        for q in range(ptr[t], ptr[t + 1]):
            s += w[feature[q]] * value[q]
        p = 1.0 / (1.0 + math.exp(-s))
        for q in range(ptr[t], ptr[t + 1]):
            w[feature[q]] -= lr * (p - y[t]) * value[q]


def _sparse_matrix(n: int, m: int, each: int) -> Any:
    import scipy.sparse

    draw = np.random.default_rng(6)
    ptr = np.arange(n + 1) * each
    feature = np.minimum((draw.random(n * each) ** 3 * m).astype(np.int64), m - 1)
    X = scipy.sparse.csr_matrix((draw.standard_normal(n * each), feature, ptr), shape=(n, m))
    X.sum_duplicates()
    return X, (draw.random(n) < 0.5).astype("f8")


def _sparse_ours(n: int, m: int, each: int) -> Args:
    X, y = _sparse_matrix(n, m, each)
    w = np.zeros(m)
    return st.samples(X, y), w, st.buffer(w), 1e-3


def _sparse_theirs(n: int, m: int, each: int) -> Args:
    X, y = _sparse_matrix(n, m, each)
    return X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data, y, np.zeros(m), 1e-3


# --- PageRank, pushing ---


@st.parallel
def push(edges: Any, rank: Any, degree: Any, new: Any) -> None:
    for (i, j), _ in edges:
        new[j] += 0.85 * rank[i] / degree[i]


def push_strict(rows: Any, cols: Any, rank: Any, degree: Any, new: Any) -> None:
    for t in range(len(rows)):
        new[cols[t]] += 0.85 * rank[rows[t]] / degree[rows[t]]


def _graph() -> Args:
    draw = np.random.default_rng(7)
    return draw.integers(0, 50_000, 500_000), draw.integers(0, 50_000, 500_000), draw.random(50_000)


def push_ours() -> Args:
    rows, cols, rank = _graph()
    edges = st.Data.from_arrays(rows, cols, np.ones(len(rows), "f4"), shape=(50_000, 50_000))
    return edges, rank, np.full(50_000, 10.0), np.zeros(50_000)


def push_theirs() -> Args:
    rows, cols, rank = _graph()
    return rows, cols, rank, np.full(50_000, 10.0), np.zeros(50_000)


# --- skip-gram with negative samples ---


@st.parallel
def skipgram(pairs: Any, W: Any, C: Any, lr: float, loss: Any) -> None:
    for (i, j), y in pairs:
        p = 1.0 / (1.0 + math.exp(-(W[i] @ C[j])))
        g = lr * (y - p)
        loss += abs(y - p)
        W[i], C[j] = W[i] + g * C[j], C[j] + g * W[i]


def skipgram_naive(rows: Any, cols: Any, values: Any, W: Any, C: Any, lr: float) -> float:
    loss = 0.0
    for t in range(len(values)):
        i, j, y = rows[t], cols[t], values[t]
        p = 1.0 / (1.0 + math.exp(-(W[i] @ C[j])))
        g = lr * (y - p)
        loss += abs(y - p)
        W[i], C[j] = W[i] + g * C[j], C[j] + g * W[i]
    return loss


def skipgram_strict(rows: Any, cols: Any, values: Any, W: Any, C: Any, lr: Any) -> float:
    loss = 0.0
    for t in range(len(values)):
        i, j, y = rows[t], cols[t], values[t]
        s = np.float32(0)
        for f in range(W.shape[1]):
            s += W[i, f] * C[j, f]
        p = 1.0 / (1.0 + math.exp(-s))
        g = np.float32(lr * (y - p))
        loss += abs(y - p)
        for f in range(W.shape[1]):
            w = W[i, f]
            W[i, f] = w + g * C[j, f]
            C[j, f] += g * w
    return loss


# --- matrix by vector ---


@st.parallel
def product(A: Any, x: Any, y: Any) -> None:
    for i in range(len(A)):
        y[i] = A[i] @ x


def product_strict(A: Any, x: Any, y: Any) -> None:
    for i in range(len(A)):
        s = 0.0
        for j in range(len(x)):
            s += A[i, j] * x[j]
        y[i] = s


def _system() -> Args:
    draw = np.random.default_rng(8)
    return draw.random((1500, 1500)), draw.random(1500), np.zeros(1500)


# --- all shortest paths ---


@st.parallel
def shortest(D: Any) -> None:
    n = len(D)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                D[i, j] = min(D[i, j], D[i, k] + D[k, j])


def shortest_strict(D: Any) -> None:
    n = len(D)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                D[i, j] = min(D[i, j], D[i, k] + D[k, j])


# --- edit distance ---


@st.parallel
def edit(a: Any, b: Any, D: Any) -> None:
    n, m = len(a), len(b)
    for i in range(1, n):
        for j in range(1, m):
            same = 0 if a[i] == b[j] else 1
            D[i, j] = min(D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + same)


def edit_strict(a: Any, b: Any, D: Any) -> None:
    n, m = len(a), len(b)
    for i in range(1, n):
        for j in range(1, m):
            same = 0 if a[i] == b[j] else 1
            D[i, j] = min(D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + same)


def _words() -> Args:
    draw = np.random.default_rng(9)
    D = np.zeros((1000, 1000), np.int64)
    D[0], D[:, 0] = np.arange(1000), np.arange(1000)
    return draw.integers(0, 4, 1000), draw.integers(0, 4, 1000), D


# --- ten iterations: what a call costs ---


@st.parallel
def tiny(x: Any, c: float) -> None:
    for i in range(len(x)):
        x[i] = c * x[i]


def tiny_strict(x: Any, c: float) -> None:
    for i in range(len(x)):
        x[i] = c * x[i]


CASES = {
    "matrix factorization, rank 32": Case(
        mf, mf_strict, mf_naive, lambda: (_ratings(), *_factors(), 0.01, 0.05, st.accumulator(0.0)), mf_theirs
    ),
    "Gaussian mixture, row accumulators": Case(mixture, mixture_strict, mixture_naive, mixture_ours, mixture_theirs),
    "logistic gradient, dense": Case(
        gradient, gradient_strict, gradient_naive,
        lambda: (*_gradient_arrays(), st.accumulator(np.zeros(30))), lambda: (*_gradient_arrays(), np.zeros(30)),
    ),
    "heat in one dimension, skewed": Case(
        heat1, heat1_strict, heat1_strict, lambda: (_grid(500, 4000), 0.2), lambda: (_grid(500, 4000), 0.2)
    ),
    "Jacobi in two dimensions": Case(
        jacobi, jacobi_strict, jacobi_strict,
        lambda: (_grid(1000, 1000), _grid(1000, 1000)), lambda: (_grid(1000, 1000), _grid(1000, 1000)),
    ),
    "Gauss-Seidel in two dimensions": Case(
        seidel, seidel_strict, seidel_strict, lambda: (_grid(1000, 1000),), lambda: (_grid(1000, 1000),)
    ),
    "k-means assignment": Case(
        assign, assign_strict, assign_naive, lambda: (*_points(), st.accumulator(0.0)), _points
    ),
    "logistic regression, buffer": Case(
        sparse, sparse_strict, sparse_strict,
        lambda: _sparse_ours(20_000, 5000, 20), lambda: _sparse_theirs(20_000, 5000, 20),
    ),
    "logistic regression, 2 million weights": Case(
        sparse, sparse_strict, sparse_strict,
        lambda: _sparse_ours(20_000, 2_000_000, 20), lambda: _sparse_theirs(20_000, 2_000_000, 20),
    ),
    "PageRank, pushing": Case(push, push_strict, push_strict, push_ours, push_theirs),
    "skip-gram, rank 32": Case(
        skipgram, skipgram_strict, skipgram_naive, lambda: (_ratings(), *_factors(), 0.01, st.accumulator(0.0)),
        lambda: (*_records(), *_factors(), np.float32(0.01)),
    ),
    "matrix by vector": Case(product, product_strict, product.plain, _system, _system),
    "all shortest paths": Case(
        shortest, shortest_strict, shortest_strict, lambda: (_grid(160, 160),), lambda: (_grid(160, 160),)
    ),
    "edit distance": Case(edit, edit_strict, edit_strict, _words, _words),
    "ten iterations": Case(tiny, tiny_strict, tiny_strict, lambda: (np.ones(10), 1.5), lambda: (np.ones(10), 1.5)),
}  # fmt: skip
