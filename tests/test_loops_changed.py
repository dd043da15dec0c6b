"""What a loop checked is what it uses: data, arrays and captured values that change between two calls.

Data share the arrays that they were made from. Every case runs first as it was made, then after the owner of an array
has changed it: within what was promised, and then the answer is that of plain Python over the data as they are now; or
beyond it, and then an error says so, and no memory is touched that is not ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stretto as st
from loop_bodies import function
from stretto import keyed
from stretto.errors import DataError, PlanError, RunError
from stretto.loops.layout.unchanged_records import summed
from stretto.loops.parallel import Loop
from stretto.loops.types.typed_tree import MOST_CHOICES

Array = np.ndarray[Any, Any]
N, M, COUNT = 30, 20, 600
FAR = 10**8

SOURCES = {
    "rotation": """
        def loop(d, W, H):
            for (i, j), x in d:
                W[i] += x * H[j]
                H[j] += x
        """,
    "one dimension": """
        def loop(d, W, H):
            for (i, j), x in d:
                W[i] = 2 * W[i] + x * j
        """,
    "chain": """
        def loop(d, W, H):
            for (i, j), x in d:
                W[0] = x + i
        """,
    "as they come": """
        def loop(d, W, H, b):
            for (i, j), x in d:
                b[i] += x * H[j]
        """,
}


class Sparse:
    """Sparse data, with the arrays they share."""

    def __init__(self, source: str) -> None:
        rng = np.random.default_rng(0)
        self.rows, self.cols = (rng.integers(0, size, COUNT).astype("i4") for size in (N, M))
        self.values = rng.integers(1, 6, COUNT).astype("f4")
        self.data = st.Data.from_arrays(self.rows, self.cols, self.values, (N, M))
        self.loop: Loop = st.parallel(blocks=4)(function(source))
        self.buffered = ", b)" in source

    def run(self, way: Callable[..., Any], data: Any) -> list[Array]:
        W, H = np.zeros(N), np.ones(M)
        way(data, W, H, *([st.buffer(W)] if self.buffered else []))
        return [W, H]

    def same_as_plain(self) -> None:
        found = self.run(self.loop, self.data)
        W, H = np.zeros(N), np.ones(M)
        buffers = [st.buffer(W)] if self.buffered else []
        plan = self.loop.plan(self.data, W, H, *buffers)
        self.loop.plain(plan.order(self.data), W, H, *buffers)
        for a, b in zip(found, (W, H), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        assert found[0].any()


@pytest.mark.parametrize("name", SOURCES)
def test_sparse_records_that_change_are_seen(name: str) -> None:
    case = Sparse(SOURCES[name])
    case.same_as_plain()
    case.values[:] = case.values[::-1].copy()
    case.same_as_plain()
    case.rows[:] = (case.rows + 7) % N
    case.same_as_plain()
    case.cols[[3, 4]] = case.cols[[4, 3]]  # two records change places
    case.values[[3, 4]] = case.values[[4, 3]]
    case.rows[[3, 4]] = case.rows[[4, 3]]
    case.same_as_plain()


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("bad", [FAR, -FAR, N, -1])
@pytest.mark.parametrize("name", SOURCES)
def test_sparse_records_that_left_their_shape_are_refused(name: str, bad: int, first: bool) -> None:
    """Before the first call or after it, in either index."""
    case = Sparse(SOURCES[name])
    if first:
        case.same_as_plain()
    case.rows[17] = bad
    with pytest.raises(DataError, match=f"d: record 17 has i = {bad}, and there are {N}; .* have changed since"):
        case.run(case.loop, case.data)
    case.rows[17], case.cols[5] = 0, M + abs(bad)
    with pytest.raises(DataError, match="d: record 5 has j = "):
        case.run(case.loop, case.data)
    case.cols[5] = 0
    case.same_as_plain()


RAGGED = """
    def loop(samples, w, s):
        for i, (y, features) in samples:
            for f, x in features:
                s[i] += w[f] * x * y
"""


@pytest.mark.parametrize("inspect", [True, False])
def test_ragged_records_that_change_are_seen(inspect: bool) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    X = sparse.random_array((400, 3000), density=0.001, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    y = np.ones(400)
    samples = st.samples(X, y)
    source = RAGGED.replace("s[i] += w[f] * x * y", "w[f] = 2 * w[f] + x * y") if inspect else RAGGED
    loop = st.parallel(inspect=inspect)(function(source))

    def check() -> None:
        found, plain = ([np.ones(3000), np.zeros(400)] for _ in range(2))
        loop(samples, *found)
        loop.plain(samples, *plain)
        for a, b in zip(found, plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)

    check()
    X.data *= 3
    check()
    y[::2] = -5
    check()
    X.indices[:] = (X.indices + 11) % 3000
    check()
    X.indices[3] = FAR
    with pytest.raises(RunError, match="subscript 100000000 of w is outside"):
        loop(samples, np.ones(3000), np.zeros(400))


def test_elements_of_an_array_that_change_are_seen() -> None:
    """Dense data are read where they are; a loop that was inspected has a copy, and looks again."""
    A = np.arange(1000) % 400
    source = "def loop(d, s):\n    for i, k in d:\n        s[k] = 2 * s[k] + i\n"
    loop = st.parallel(inspect=True)(function(source))
    data = st.dense(A)
    for change in (0, 3, 7):
        A[:] = (A * 5 + change) % 400
        found, plain = np.zeros(400), np.zeros(400)
        loop(data, found)
        loop.plain(data, plain)
        assert found.tolist() == plain.tolist()
    A[9] = 400
    with pytest.raises(RunError, match="subscript 400 of s"):
        loop(data, np.zeros(400))


def test_index_arrays_that_change_are_seen() -> None:
    """An array of subscripts among the arguments: checked as the loop runs, and inspected anew."""
    at = np.random.default_rng(0).permutation(5000)
    source = "def loop(at, s, n):\n    for i in range(n):\n        s[at[i]] = 2 * s[at[i]] + i\n"
    loop = st.parallel(inspect=True)(function(source))
    for k in range(3):
        at[k] = at[k + 1]
        found, plain = np.zeros(5000), np.zeros(5000)
        loop(at, found, 5000)
        loop.plain(at, plain, 5000)
        assert found.tolist() == plain.tolist()
    for bad in (FAR, -1):
        at[2] = bad
        with pytest.raises(RunError, match=f"subscript {bad} of s"):
            loop(at, np.zeros(5000), 5000)


def test_arrays_are_looked_at_in_every_call() -> None:
    """Shape, type, layout, whether it may be written, whether two share memory: none is remembered."""
    source = "def loop(A, B, n):\n    for i in range(n):\n        A[i, 0] += B[i, 1]\n"
    loop = st.parallel(function(source))
    A, B = np.zeros((8, 3)), np.arange(24.0).reshape(8, 3)
    loop(A, B, 8)
    locked = np.zeros((8, 3))
    locked.flags.writeable = False
    with pytest.raises(PlanError, match="read-only"):
        loop(locked, B, 8)
    with pytest.raises(PlanError, match="share memory"):
        loop(A, A[::-1], 8)
    folded = np.lib.stride_tricks.as_strided(np.zeros(30), (8, 3), (8, 8))
    with pytest.raises(PlanError, match="some of its elements share memory"):
        loop(folded, B, 8)
    with pytest.raises(RunError, match="outside its axis 0, which has 5 elements"):
        loop(A, B[:5].copy(), 8)
    for other in (B.astype("i4"), np.asfortranarray(B), B[:, ::-1][:, ::-1], np.vstack([B, B])[::2]):
        found, plain = np.zeros((8, 3)), np.zeros((8, 3))
        loop(found, other, 8)
        loop.plain(plain, other, 8)
        assert found.tolist() == plain.tolist()


def test_arrays_that_only_look_like_arrays_are_refused() -> None:
    loop = st.parallel(function("def loop(A, s, n):\n    for i in range(n):\n        s[i] = A[i, 0]\n"))
    with pytest.raises(PlanError, match="A is a masked array"):
        loop(np.ma.masked_array(np.ones((3, 1)), mask=[[True], [False], [False]]), np.zeros(3), 3)
    with pytest.raises(PlanError, match="A is a NumPy matrix"):
        loop(np.ones((3, 1)).view(np.matrix), np.zeros(3), 3)


def test_sums_tell_arrays_apart() -> None:
    """Any one bit, and any two elements that change places, near or far, in one lane or in two."""
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 15, 16, 33, 1000, 4099, 1_100_003):
        values = rng.integers(0, 2**31, size).astype("i4")
        before = summed(values)
        assert summed(values.copy()) == before
        for at in {0, size // 2, size - 1}:
            other = values.copy()
            other[at] ^= 1 << int(rng.integers(0, 31))
            assert summed(other) != before
        for a, b in rng.integers(0, size, (50, 2)):
            other = values.copy()
            other[[a, b]] = other[[b, a]]
            assert (summed(other) == before) == (values[a] == values[b])


def test_large_arrays_are_summed_by_all_workers() -> None:
    values = np.arange(3_000_000)
    with st.Threads(1).open() as one, st.Threads(3).open() as three:
        before = summed(values, three)
        assert summed(values.copy(), one) == before  # whichever way it is read
        values[2_000_001] += 1
        assert summed(values, three) != before


def test_choices_that_there_are_none_of() -> None:
    """The number of values of st.integers is checked as a subscript is."""
    assert MOST_CHOICES == keyed.MOST
    loop = st.parallel(function("def loop(k, s, n):\n    for i in range(n):\n        s[i] = st.integers(k[i], 1, i)\n"))
    s = np.zeros(4, np.int64)
    loop(np.array([1, 5, 2**31, 3]), s, 4)
    assert s.tolist() == [st.integers(k, 1, i) for i, k in enumerate((1, 5, 2**31, 3))]
    for bad in (0, -4, 2**31 + 1):
        with pytest.raises(RunError, match=f"1 to 2147483648 numbers, and was asked for {bad}"):
            loop(np.array([1, 5, bad, 3]), s, 4)
