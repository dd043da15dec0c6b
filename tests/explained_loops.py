"""Small loops for `test_loops_explain`: one for each strategy and each thing that `explain` has to say.

Each function `NAME` comes with what it is called with, `CALLS["NAME"]`; numbers and accumulators are left out where a
user may leave them out.
"""

# mypy: allow-untyped-defs
# Loops as users write them.
from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.sparse import random_array

import stretto as st

TABLE = np.linspace(0.0, 1.0, 8)


@st.parallel
def scaled(A, s):
    for i in range(len(A)):
        A[i] = s * A[i] + TABLE[2]


@st.parallel
def factors(ratings, W, H, lr, lam, loss):
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * (e * H[j] - lam * W[i]), H[j] + lr * (e * W[i] - lam * H[j])


@st.parallel
def latest(ratings, last):
    for (i, j), _ in ratings:
        last[i] = j


@st.parallel
def last_of_all(ratings, last):
    for (_, j), _ in ratings:
        last[0] = j


@st.parallel(ordered=True)
def five_points(A):
    n, m = A.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            A[i, j] = 0.25 * (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])


@st.parallel
def nine_points(A):
    n, m = A.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            cross = A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]
            A[i, j] = 0.125 * (cross + A[i - 1, j - 1] + A[i - 1, j + 1] + A[i + 1, j - 1] + A[i + 1, j + 1])


@st.parallel
def time_steps(A):
    n, m = A.shape
    for i in range(1, n):
        for j in range(m):
            A[i, j] = A[i - 1, (3 * j) % m]


@st.parallel
def shortest_paths(D):
    n = len(D)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                D[i, j] = min(D[i, j], D[i, k] + D[k, j])


@st.parallel
def heat(U):
    for t in range(U.shape[0] - 1):
        for i in range(1, U.shape[1] - 1):
            for j in range(1, U.shape[2] - 1):
                U[t + 1, i, j] = 0.25 * (U[t, i - 1, j] + U[t, i + 1, j] + U[t, i, j - 1] + U[t, i, j + 1])


@st.parallel
def latest_of_both(ratings, last, total):
    for (i, j), r in ratings:
        last[i] = j
        total[j] += r


@st.parallel
def sparse_logistic(samples, w, step, lr):
    for _, (y, features) in samples:
        s = 0.0
        for f, x in features:
            s += w[f] * x
        p = 1.0 / (1.0 + math.exp(-s))
        for f, x in features:
            step[f] -= lr * (p - y) * x


def adagrad(w, d, g):
    g += d * d
    return w - 0.1 * d / math.sqrt(g), g


@st.parallel
def counted(tokens, topic, docs, totals, changes):
    for (d, _), p in tokens:
        k = topic[p]
        docs[d, k] += totals[k]
        changes[k] += 1


@st.parallel
def two_loops(A, B, C):
    n = len(A)
    for i in range(0, n, 2):
        B[i] = A[i] + 1
    for i in range(n):
        C[i, 1:3] = B[0]


def ratings() -> Any:
    return st.generate_ratings(20_000, 600, 400, seed=0).data


def samples() -> Any:
    X = random_array((2000, 300), density=0.02, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    return st.samples(X, (np.arange(2000) % 2).astype("f4"))


def tokens() -> Any:
    draw = np.random.default_rng(0)
    return st.Data.from_arrays(draw.integers(50, size=900), draw.integers(40, size=900), np.ones(900, "f4"), (50, 40))


def _logistic() -> tuple[Any, ...]:
    w = st.zeros(300)
    return samples(), w, st.buffer(w)


def _adagrad() -> tuple[Any, ...]:
    w, G = st.zeros(300), st.full(300, 1e-6)
    return samples(), w, st.buffer(w, apply=adagrad, with_=(G,), every=8)


def _counted() -> tuple[Any, ...]:
    total = st.zeros(5, "i4")
    given = tokens().numbered(values=False)
    return given, st.zeros(len(given), "i4"), st.zeros((50, 5), "i4"), total, st.buffer(total)


CALLS: dict[str, tuple[Any, Any]] = {
    "independent": (scaled, lambda: (st.zeros((1000, 8)),)),
    "factors": (factors, lambda: (ratings(), st.zeros((600, 16)), st.zeros((400, 16)))),
    "factors-ordered": (factors.using(ordered=True), lambda: (ratings(), st.zeros((600, 16)), st.zeros((400, 16)))),
    "factors-cut": (factors.using(cut=("j", "i")), lambda: (ratings(), st.zeros((600, 16)), st.zeros((400, 16)))),
    "one-dimension": (latest, lambda: (ratings(), st.zeros(600, "i4"))),
    "chain": (last_of_all, lambda: (ratings(), st.zeros(1, "i4"))),
    "wavefront": (five_points, lambda: (st.zeros((130, 130)),)),
    "transformed": (nine_points, lambda: (st.zeros((130, 130)),)),
    "time-steps": (time_steps, lambda: (st.zeros((20, 500)),)),
    "order-kept": (shortest_paths, lambda: (st.zeros((40, 40)),)),
    "order-given-up": (shortest_paths.using(ordered=False), lambda: (st.zeros((40, 40)),)),
    "three-ranges": (heat, lambda: (st.zeros((20, 66, 66)),)),
    "overwritten": (latest_of_both, lambda: (ratings(), st.zeros(600, "i4"), st.zeros(400))),
    "buffered": (sparse_logistic, _logistic),
    "buffered-apply": (sparse_logistic, _adagrad),
    "waves": (counted, _counted),
    "two-loops": (two_loops, lambda: (st.zeros(1000), st.zeros(1000), st.zeros((1000, 4)))),
}
