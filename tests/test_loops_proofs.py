"""Subscripts that are proven by following a loop statement by statement, and those that must stay checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from loop_bodies import three_ways
from stretto.errors import RunError


def checked(loop: Any, **arguments: Any) -> list[tuple[str, int]]:
    """(array, axis) of the subscripts that compiled code checks."""
    (part,) = loop.plan(**arguments).parts
    return [(site.array, site.axis) for site in part.prepared.lowered.sites]


@st.parallel
def warped(x, y, D):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        for j in range(len(y)):
            cost = abs(x[i] - y[j])
            if i == 0 and j == 0:
                D[i, j] = cost
            elif i == 0:
                D[i, j] = cost + D[i, j - 1]
            elif j == 0:
                D[i, j] = cost + D[i - 1, j]
            else:
                D[i, j] = cost + min(D[i - 1, j], D[i, j - 1], D[i - 1, j - 1])


def test_conditions_prove_subscripts() -> None:
    arguments = {"x": np.arange(7.0), "y": np.arange(5.0), "D": np.zeros((7, 5))}
    assert checked(warped, **arguments) == []
    three_ways(warped, arguments)


@st.parallel
def eliminated(A, b):  # type: ignore[no-untyped-def]
    for u in range(len(A)):
        k = 9
        M = np.zeros((k, k))
        for p in range(k):
            for q in range(p, k):
                M[p, q] = A[u, p] + A[u, q]
        for p in range(k - 1, -1, -1):
            for q in range(p + 1, k):
                M[p, p] += M[p, q]
            b[u, p] = M[p, p]


def test_inner_ranges_and_local_sizes_prove_subscripts() -> None:
    arguments = {"A": np.random.default_rng(0).random((4, 9)), "b": np.zeros((4, 9))}
    assert checked(eliminated, **arguments) == []
    three_ways(eliminated, arguments)


@st.parallel
def left_early(a, c, b):  # type: ignore[no-untyped-def]
    for i in range(len(b)):
        x = 0
        for k in range(3):
            x = 5
            if a[i] > k:
                break
            x = 0
        b[i] = c[x]


@st.parallel
def continued(a, c, b):  # type: ignore[no-untyped-def]
    for i in range(len(b)):
        x = 0
        for k in range(3):
            if a[i] > k:
                x = x + 2
                continue
            x = 0
        b[i] = c[x]


@pytest.mark.parametrize("loop", [left_early, continued])
def test_what_a_loop_leaves_behind_is_checked(loop: Any) -> None:
    for length in (8, 3):
        arguments = {"a": np.array([0, 3, 0, 3]), "c": np.arange(float(length)), "b": np.zeros(4)}
        if length == 8:
            three_ways(loop, arguments)
        else:
            with pytest.raises(RunError, match="of c is outside"):
                loop(**arguments)


@st.parallel
def ring(old, new, shift):  # type: ignore[no-untyped-def]
    for i in range(len(old)):
        new[i] = old[(i - 1) % len(old)] + 2 * old[(i + 1) % len(old)] + 4 * old[(i + shift) % len(old)]


@pytest.mark.parametrize("shift", [-7, -6, -1, 0, 6, 7, 8, 15])
def test_remainders_near_the_ends(shift: int) -> None:
    arguments = {"old": np.arange(7), "new": np.zeros(7, int), "shift": shift}
    assert checked(ring, **arguments) == []
    i = np.arange(7)
    assert (
        three_ways(ring, arguments)["new"].tolist()
        == ((i - 1) % 7 + 2 * ((i + 1) % 7) + 4 * ((i + shift) % 7)).tolist()
    )


@st.parallel
def gathered(at, c, b, other):  # type: ignore[no-untyped-def]
    for i in range(len(b)):
        other[i] = 1.0
        b[i] = c[at[i]]
        other[i] = 2.0


def test_a_worker_leaves_at_a_bad_subscript() -> None:
    arguments = {"at": np.array([0, 9, 0]), "c": np.ones(2), "b": np.zeros(3), "other": np.zeros(3)}
    assert checked(gathered, **arguments) == [("c", 0)]
    with pytest.raises(RunError, match="subscript 9 of c is outside its axis 0, which has 2 elements"):
        gathered(**arguments)
    assert arguments["b"].tolist() == [1.0, 0.0, 0.0]
    assert arguments["other"].tolist() == [2.0, 1.0, 0.0]


@st.parallel
def counted(tokens, counts):  # type: ignore[no-untyped-def]
    for i in range(1, len(tokens)):
        counts[tokens[i], tokens[i - 1]] += 0.1


@pytest.mark.parametrize(("words", "visits"), [(4, 9), (100, 1)])
def test_large_accumulators_have_few_parts(words: int, visits: int) -> None:
    tokens = np.random.default_rng(0).integers(0, words, 2401)
    arguments = {"tokens": tokens, "counts": st.accumulator(np.zeros((words, words)))}
    (part,) = counted.plan(**arguments).parts
    assert len(part.prepared.visits) == visits
    three_ways(counted, arguments)


@st.parallel
def strided(u, f):  # type: ignore[no-untyped-def]
    for i in range(len(u)):
        for j in range(1 + i % 2, u.shape[1] - 1, 2):
            u[i, j] = 0.5 * (u[i, j - 1] + u[i, j + 1]) - f[i, j]


def test_strides() -> None:
    rng = np.random.default_rng(0)
    arguments = {"u": rng.random((5, 40)), "f": rng.random((5, 40))}
    assert checked(strided, **arguments) == []
    three_ways(strided, arguments)
