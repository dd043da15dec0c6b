"""Prints a hash of what compiled loops compute; run it under several processor settings and compare.

NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES= python tests/isa_loops.py 32 21 150
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np

import stretto as st


@st.parallel
def factors(ratings: Any, W: Any, H: Any, lr: float, loss: Any) -> None:
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        g = np.maximum(np.exp(-abs(W[i])), 0.25)
        W[i], H[j] = W[i] + lr * (e * H[j] - 0.02 * g * W[i]), H[j] + lr * (e * W[i] - 0.02 * H[j])


@st.parallel
def grid(A: Any, B: Any, seed: int) -> None:
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            x = st.normal(seed, i, j)
            B[i, j] = np.log(1.0 + x * x) / (1.0 + np.sqrt(abs(A[i, j]))) + st.uniform(i, j) - st.integers(7, i, j)


def unit(w: Any) -> Any:
    """A plain function of a row."""
    return w / np.sqrt(w @ w + 1.0)


@st.parallel
def blocks(A: Any, X: Any, S: Any, out: Any) -> None:
    for i in range(len(X)):
        u = unit(X[i])
        A[i] += np.outer(A[i] @ u, u) - 0.5 * np.tanh(S)
        C = A[i] @ S.T
        w = np.ones(np.argmax(u) + 1)
        out[i] = np.sum(C) + np.mean(A[i]) + np.var(u) + np.sum(w) + np.max(np.sum(A[i], axis=0)) + S[:, 0] @ C[1]


def results(width: int) -> list[Any]:
    """Every array the loops make from one small problem; rows of `width` numbers."""
    rng = np.random.default_rng(0)
    data = st.Data.from_arrays(rng.integers(0, 60, 3000), rng.integers(0, 50, 3000), rng.normal(size=3000))
    made: list[Any] = []
    for dtype in ("f4", "f8"):
        W, H = st.random((60, width), 0.3, seed=1, dtype=dtype), st.random((50, width), 0.3, seed=2, dtype=dtype)
        loss = st.accumulator(0.0)
        for _ in range(2):
            factors(data, W, H, 0.02, loss)
        A, B = st.random((40, 30), seed=3, dtype=dtype), st.zeros((40, 30), dtype)
        grid(A, B, 5)
        A3, X = st.random((20, 3, width), seed=6, dtype=dtype), st.random((20, width), seed=7, dtype=dtype)
        S, out = st.random((3, width), seed=8, dtype=dtype), st.zeros(20, dtype)
        blocks(A3, X, S, out)
        made += [W.array, H.array, loss.array, B.array, A3.array, out.array]
    return made


def digest(widths: list[int]) -> str:
    """One hash over all bits."""
    total = hashlib.sha256()
    for width in widths:
        for array in results(width):
            total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


if __name__ == "__main__":
    print(digest([int(width) for width in sys.argv[1:]]))
