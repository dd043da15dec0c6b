"""Forms of loops that are compiled differently to run faster: each has the bits of the reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from loop_bodies import function, three_ways
from stretto.errors import RunError


def prepared(loop: Any, **arguments: Any) -> Any:
    return loop.plan(**arguments).parts[0].prepared


SHORT = """
def loop(X, C, near, out):
    for i in range(len(X)):
        best = np.inf
        for k in range(len(C)):
            d = X[i] - C[k]
            far = np.sqrt(d @ d) + np.sum(abs(-d)) / 3
            if far < best:
                best = far
                near[i] = k
        out[i] += (X[i] - C[near[i]]) / (1 + best)
        out[i], X[i] = X[i], -out[i]
"""


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_short_rows_are_scalars_with_the_bits_of_lanes(dtype: str, width: int) -> None:
    draw = np.random.default_rng(width)
    X, C = draw.normal(size=(40, width)).astype(dtype), draw.normal(size=(7, width)).astype(dtype)
    X[3], C[2], X[5, 0], X[6, 0] = -0.0, 0.0, np.inf, np.nan
    given = {"X": X, "C": C, "near": np.zeros(40, np.int64), "out": np.full((40, width), -0.0, dtype)}
    loop = st.parallel(function(SHORT))
    assert ".load" not in prepared(loop, **given).lowered.source
    three_ways(loop, given)


def test_sums_of_negative_zeros_are_zero() -> None:
    loop = st.parallel(function("def loop(X, s):\n    for i in range(len(X)):\n        s[i] = np.sum(X[i])\n"))
    for width in (1, 2, 3, 4):
        after = three_ways(loop, {"X": np.full((5, width), -0.0), "s": np.ones(5)})
        assert not np.signbit(after["s"]).any()


def test_short_rows_with_other_operations_stay_in_lanes() -> None:
    source = "def loop(X, s):\n    for i in range(len(X)):\n        s[i] = np.max(X[i]) + np.sum(np.exp(X[i]))\n"
    loop = st.parallel(function(source))
    given = {"X": np.random.default_rng(0).normal(size=(9, 3)), "s": np.zeros(9)}
    assert "vx.load_part" in prepared(loop, **given).lowered.source
    three_ways(loop, given)


def test_rows_whose_length_is_a_number_of_the_call_stay_in_lanes() -> None:
    source = """
def loop(X, s):
    k = X.shape[1]
    for i in range(len(X)):
        w = np.zeros(k)
        w += X[i] * 2.0
        M = np.eye(k) * 0.5
        M += np.outer(X[i], X[i])
        s[i] = np.sum(M @ w)
"""
    loop = st.parallel(function(source))
    for width in (2, 3, 5):
        three_ways(loop, {"X": np.random.default_rng(0).normal(size=(9, width)), "s": np.zeros(9)})


EDGES = """
def loop(x, D, last):
    for i in range(len(D)):
        for j in range(first, D.shape[1]):
            near = x[j] if not (j != 0) else x[j - 1]
            if i == 0 and j == 0:
                D[i, j] = near
            elif 0 == j or i == 0:
                D[i, j] = near + (D[i - 1, j] if i > 0 else 0.0)
            else:
                D[i, j] = near + min(D[i - 1, j], D[i, j - 1]) * (1.5 if 2 <= j else 0.5)
            if j > 2 and i > 1 or j < 1:
                D[i, j] -= 0.25
"""


@pytest.mark.parametrize("first", [0, 1, 3])
def test_tests_near_the_start_are_decided_before_the_loop(first: int) -> None:
    loop = st.parallel(function(EDGES, first=first))
    for size in (1, 2, 3, 40):
        given = {"x": np.random.default_rng(1).random(size), "D": np.ones((30, size)), "last": 1}
        made = prepared(loop, **given)
        if len(made.analysis.space):
            assert made.lowered.source.count("for j_ in") == 2
        three_ways(loop, given)


CHAINED = """
def loop(at, into, x):
    for i in range(len(at)):
        x[into[i]] = 0.5 * x[into[i]] + x[at[i]] + i
"""


def scattered(n: int = 4000) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {"at": draw.integers(0, n, n), "into": draw.integers(0, n, n), "x": draw.random(n)}


def test_one_worker_runs_an_inspected_loop_in_its_own_order() -> None:
    given = scattered()
    loop = st.parallel(inspect=True, runtime=st.Threads(1))(function(CHAINED))
    made = prepared(loop, **given)
    assert made.analysis.strategy.name == "inspected"
    assert made.alone.lowered is not made.lowered
    assert "index0" not in made.alone.lowered.source
    three_ways(loop, given)


def test_one_worker_reads_subscripts_that_have_changed() -> None:
    given, other = scattered(), scattered()
    loop = st.parallel(inspect=True, runtime=st.Threads(1))(function(CHAINED))
    for change in (0, 0, 1, 2):
        given["into"][:] = np.roll(given["into"], change)
        other["into"][:] = given["into"]
        loop(**given)
        loop.plain(**other)
        assert np.array_equal(given["x"], other["x"])
    given["into"][17] = 4000
    with pytest.raises(RunError, match="subscript 4000 of x"):
        loop(**given)


def test_two_inspected_loops_in_one_function() -> None:
    backwards = CHAINED.replace("range(len(at))", "range(len(at) - 1, -1, -1)").split("\n", 2)[2]
    loop = st.parallel(inspect=True)(function(CHAINED + backwards))
    expect = scattered()
    for _ in range(3):
        loop.plain(**expect)
    for workers in (1, 2):
        given = scattered()
        one = loop.using(runtime=st.Threads(workers))
        for _ in range(3):
            one(**given)
        assert np.array_equal(given["x"], expect["x"])


def test_only_loops_that_allocate_count_references() -> None:
    assert not prepared(st.parallel(function(CHAINED)), **scattered()).worker.allocates
    source = """
def loop(at, x):
    for i in range(len(at)):
        w = np.zeros(3)
        w[at[i]] = 1.0
        x[i] += w[0]
"""
    given = {"at": np.arange(12) % 3, "x": np.zeros(12)}
    assert prepared(st.parallel(function(source)), **given).worker.allocates
    three_ways(st.parallel(function(source)), given)
