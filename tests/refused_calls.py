"""Loops that cannot run in parallel, or not at all, for `test_loops_explain`: each with what it is called with."""

# mypy: allow-untyped-defs
# Loops as users write them.
from __future__ import annotations

from typing import Any

import numpy as np

import stretto as st

SCRATCH = np.zeros(4)


@st.parallel(serial=False)
def running_sum(A):
    for i in range(1, len(A)):
        A[i] += A[i - 1]


@st.parallel(serial=False, inspect=False)
def scattered(samples, w):
    for _, (y, features) in samples:
        for f, x in features:
            w[f] -= 0.1 * (w[f] * x - y)


@st.parallel
def carried(A, B):
    s = 0.0
    for i in range(len(A)):
        s = s + A[i]
        B[i] = s


@st.parallel
def kept(A, B):
    for i in range(len(A)):
        if i > 0:
            before = A[i]
        B[i] = before


@st.parallel
def swapped(W):
    for i in range(0, len(W) - 1, 2):
        W[i], W[i + 1] = W[i + 1], W[i]


@st.parallel
def moved_index(A):
    for i in range(len(A)):
        i += 1
        A[i] = 0


@st.parallel
def whole_matrix(W, V):
    for i in range(len(V)):
        V[i] = W * V[i]


@st.parallel
def accumulator_read(A, total):
    for i in range(len(A)):
        total += A[i]
        A[i] = total


@st.parallel
def captured_written(A):
    for i in range(len(A)):
        A[i] = SCRATCH[0]
        SCRATCH[0] = A[i]


@st.parallel
def behind_a_buffer(samples, w, b):
    for _, (y, features) in samples:
        for f, x in features:
            b[f] += x * y
            w[f] = 0.0


@st.parallel
def unknown_name(A):
    for i in range(len(A)):
        A[i] = nowhere  # type: ignore[name-defined] # noqa: F821


@st.parallel
def float_subscript(A, x):
    for i in range(len(A)):
        A[i] = A[x]


@st.parallel
def leaves(A):
    for i in range(len(A)):
        if A[i] > 0:
            break
        A[i] = 1


@st.parallel(cut="j")
def no_such_index(A):
    for i in range(len(A)):
        A[i] = 0


@st.parallel(cut="i")
def badly_cut(ratings, W, H):
    for (i, j), r in ratings:
        W[i] += r * H[j]
        H[j] += r * W[i]


@st.parallel(serial=False, inspect=False)
def anywhere(A):
    n, m = A.shape
    for i in range(n):
        for j in range(m):
            A[i, j] = A[(3 * i) % n, (3 * j) % m]


@st.parallel
def wrong_pattern(ratings, W):
    for i, r in ratings:
        W[i] += r


@st.parallel
def whole_array(ratings, W):
    for (i, _), r in ratings:
        W = W + r * i


def samples() -> Any:
    from scipy.sparse import csr_matrix

    return st.samples(csr_matrix(np.eye(6, dtype="f4")), np.ones(6, "f4"))


def pairs() -> Any:
    return st.Data.from_arrays([0, 1, 2, 2], [0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0], (3, 2))


def _buffered() -> tuple[Any, ...]:
    w = st.zeros(6)
    return samples(), w, st.buffer(w)


CALLS: dict[str, tuple[Any, Any]] = {
    "running_sum": (running_sum, lambda: (st.zeros(9),)),
    "scattered": (scattered, lambda: (samples(), st.zeros(6))),
    "carried": (carried, lambda: (st.zeros(9), st.zeros(9))),
    "kept": (kept, lambda: (st.zeros(9), st.zeros(9))),
    "swapped": (swapped, lambda: (st.zeros((8, 3)),)),
    "moved_index": (moved_index, lambda: (st.zeros(9),)),
    "whole_matrix": (whole_matrix, lambda: (st.zeros((4, 4)), st.zeros((9, 4)))),
    "accumulator_read": (accumulator_read, lambda: (st.zeros(9), st.accumulator(0.0))),
    "captured_written": (captured_written, lambda: (st.zeros(9),)),
    "behind_a_buffer": (behind_a_buffer, _buffered),
    "unknown_name": (unknown_name, lambda: (st.zeros(9),)),
    "float_subscript": (float_subscript, lambda: (st.zeros(9), 1.0)),
    "float_left_out": (float_subscript, lambda: (st.zeros(9),)),
    "leaves": (leaves, lambda: (st.zeros(9),)),
    "no_such_index": (no_such_index, lambda: (st.zeros(9),)),
    "badly_cut": (badly_cut, lambda: (pairs(), st.zeros((3, 2)), st.zeros((2, 2)))),
    "anywhere": (anywhere, lambda: (st.zeros((5, 4)),)),
    "wrong_pattern": (wrong_pattern, lambda: (pairs(), st.zeros(3))),
    "whole_array": (whole_array, lambda: (pairs(), st.zeros(3))),
    "a_list": (running_sum, lambda: ([1.0, 2.0],)),
}
