"""Quadratics with an absolute-value penalty: factors, the gang that shares their loops, and the minimum itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stretto.kernels.core import atomics, gang
from stretto.kernels.numeric import blocked_cholesky
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.solvers.linear.newton import violations
from stretto.solvers.linear.subproblem import Minimum, minimise
from working_made import Floats

# --- factors ----------------------------------------------------------------------------------------------------------


@numba.njit  # type: ignore[untyped-decorator]
def solve(U: Any, inverse: Any, x: Any) -> None:
    """Factorise U in place, block by block, and solve for x."""
    size = x.shape[0]
    for top in range(0, size, blocked_cholesky.BLOCK):
        last = min(top + blocked_cholesky.BLOCK, size)
        blocked_cholesky.diagonal(U, inverse, top, last, size)
        for piece in range((size - last + blocked_cholesky.CHUNK - 1) // blocked_cholesky.CHUNK):
            blocked_cholesky.finish(U, inverse, top, last, piece, size)
        for piece in range((size - last) // blocked_cholesky.STRIP):
            blocked_cholesky.trail(U, top, last, piece, size)
    blocked_cholesky.substitute(U, inverse, x, size)


def solved(A: Floats, right: Floats, spare: int = 0) -> tuple[Floats, Floats, Floats]:
    """U [k, k], the inverse pivots and the solution; padded to whole tiles, in rows that are longer by `spare`."""
    k = len(A)
    size = -(-k // 32) * 32
    U, x = np.full((size, size + spare), np.nan), np.zeros(size)
    U[:, :size] = np.triu(np.eye(size))
    U[:k, :k] = np.where(np.triu(np.ones((k, k), bool)), A, np.nan)  # the lower triangle is nobody's business
    x[:k] = right
    inverse = np.diagonal(U[:, :size]).copy()
    solve(U, inverse, x)
    return np.triu(U[:k, :k]), inverse[:k], x[:k]


@pytest.mark.parametrize("k", [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 97, 128, 200, 300])
@pytest.mark.parametrize("spare", [0, 48])
def test_the_factor_is_that_of_numpy(k: int, spare: int) -> None:
    rng = np.random.default_rng(k)
    root = rng.normal(size=(k + 10, k))
    A, right = root.T @ root, rng.normal(size=k)
    U, inverse, x = solved(A, right, spare)
    np.testing.assert_allclose(U, np.linalg.cholesky(A).T, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(inverse, 1.0 / np.diagonal(U))
    np.testing.assert_allclose(U.T @ U, A, rtol=0, atol=1e-13 * k * A.max())
    np.testing.assert_allclose(x, np.linalg.solve(A, right), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("k", [2, 20, 64, 70, 150, 300])
@pytest.mark.parametrize("kind", ["duplicates", "low rank", "zeros"])
def test_what_hangs_on_others_is_left_at_zero(k: int, kind: str) -> None:
    """A system that has many solutions gets one of them."""
    rng = np.random.default_rng(k)
    root = rng.normal(size=(2 * k, k))
    if kind == "duplicates":
        root[:, k // 2 :] = root[:, : k - k // 2].copy()
    elif kind == "low rank":
        root[:, 1 + k // 3 :] = root[:, : 1 + k // 3] @ rng.normal(size=(1 + k // 3, k - 1 - k // 3))
    else:
        root[:, k // 2 :] = 0.0
    A = root.T @ root
    right = A @ rng.normal(size=k)
    _, inverse, x = solved(A, right)
    rank = 1 + k // 3 if kind == "low rank" else k // 2 if kind == "zeros" else max(k // 2, k - k // 2)
    assert int(np.count_nonzero(inverse)) == rank
    assert not x[inverse == 0.0].any()
    np.testing.assert_allclose(A @ x, right, rtol=0, atol=1e-7 * np.abs(right).max())


# --- the gang ---------------------------------------------------------------------------------------------------------


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def lead_or_help(control: Any, pieces: Any, made: Any, early: Any, spin: int) -> None:
    """The leader goes through len(pieces) loops, each of which counts its chunks in a row of `made`; early[0]: loops
    that were left before all was made.
    """
    if gang.lead(control):
        for loop in range(pieces.shape[0]):
            gang.announce(control, loop, pieces[loop])
            piece = gang.take(control)
            while piece >= 0:
                made[loop, piece] += 1
                gang.made(control)
                piece = gang.take(control)
            gang.wait(control)
            for piece in range(pieces[loop]):
                if made[loop, piece] != 1:
                    early[0] += 1
        gang.end(control)
        return
    while True:
        piece = gang.take(control)
        if piece == gang.OVER:
            return
        if piece >= 0:
            loop = gang.kind(control)
            for _ in range(spin):
                atomics.rest()
            made[loop, piece] += 1
            gang.made(control)
        else:
            atomics.rest()


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("spin", [0, 3])
def test_no_piece_is_lost_or_made_twice(workers: int, spin: int) -> None:
    """Loops so small that helpers are always late: some take a chunk of the loop after the one they saw."""
    pieces = np.random.default_rng(workers).integers(0, 8, 4000)
    made, early = np.zeros((len(pieces), 8), np.int64), np.zeros(1, np.int64)
    control = np.zeros(gang.CONTROL, np.int64)
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(lead_or_help, control, pieces, made, early, spin) for _ in range(workers)]:
            future.result()
    np.testing.assert_array_equal(made, np.arange(8) < pieces[:, None])
    assert early[0] == 0


# --- the minimum ------------------------------------------------------------------------------------------------------


def value(H: Floats, q: Floats, l1: Floats, b: Floats) -> float:
    return float(0.5 * b @ H @ b - q @ b + l1 @ np.abs(b))


def descended(H: Floats, q: Floats, l1: Floats, positive: bool, sweeps: int) -> Floats:
    """Plain coordinate descent, many times over."""
    b, h = np.zeros(len(q)), np.zeros(len(q))
    for _ in range(sweeps):
        for j in np.flatnonzero(np.diagonal(H) > 0.0):
            pull = q[j] - h[j] + H[j, j] * b[j]
            new = np.sign(pull) * max(0.0, abs(pull) - l1[j]) / H[j, j]
            new = max(0.0, new) if positive else new
            if new != b[j]:
                h += (new - b[j]) * H[j]
                b[j] = new
    return b


def minimised(
    H: Floats, q: Floats, l1: Floats, *, start: Floats | None = None, tolerance: float = 1e-9, positive: bool = False,
    unit: Floats | None = None, runtime: Runtime | None = None,
) -> Minimum:  # fmt: skip
    k = len(q)
    padded = np.zeros((k, -(-k // 16) * 16))
    padded[:, :k] = H
    b = np.zeros(k) if start is None else start
    with (runtime or Serial()).open() as crew:
        return minimise(
            crew, "exact", padded, q, l1, np.ones(k) if unit is None else unit, b, tolerance, positive=positive
        )


def check(H: Floats, q: Floats, l1: Floats, found: Minimum, tolerance: float, positive: bool = False) -> None:
    """0 is in the subdifferential, to the tolerance: that is what a minimum of a convex function is."""
    if positive:
        assert np.all(found.b >= 0.0)
    rounding = 1e-12 * float(np.max(np.abs(H) @ np.abs(found.b) + np.abs(q), initial=0.0))
    assert float(np.max(violations(found.b, q - H @ found.b, l1, positive), initial=0.0)) <= tolerance + rounding
    assert found.worst <= tolerance


@some.composite
def quadratics(draw: some.DrawFn) -> tuple[Floats, Floats, Floats, str]:
    """H = XᵀX and q = Xᵀy of few samples and many columns or the reverse, with duplicated, collinear, nearly collinear
    and empty columns, penalties that differ, some of them zero.
    """
    k = draw(some.sampled_from([1, 2, 7, 16, 25, 60]))
    n = draw(some.sampled_from([3, 30, 100]))
    seed = draw(some.integers(0, 2**31))
    kinds = draw(some.lists(some.sampled_from(["duplicate", "zero", "collinear", "near", "huge"]), max_size=5))
    free = draw(some.sampled_from(["none", "some", "all"]))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, k))
    for kind in kinds:
        i, j, m = rng.integers(0, k, 3)
        X[:, i] = {
            "duplicate": X[:, j],
            "zero": np.zeros(n),
            "collinear": X[:, j] - 0.5 * X[:, m],
            "near": X[:, j] + 0.01 * rng.normal(size=n),
            "huge": 30.0 * X[:, j],
        }[kind]
    y = X[:, :5] @ rng.normal(size=min(5, k)) + rng.normal(size=n)
    q = X.T @ y
    l1 = draw(some.sampled_from([0.5, 0.1, 0.01])) * float(np.abs(q).max()) * rng.uniform(0.5, 1.0, k)
    l1[rng.random(k) < {"none": 0.0, "some": 0.2, "all": 1.0}[free]] = 0.0
    return X.T @ X, q, l1, f"{n} × {k}, seed {seed}, {kinds}, {free} free"


@settings(max_examples=150)
@given(problem=quadratics(), positive=some.booleans(), warm=some.booleans())
def test_the_minimum_is_one(problem: tuple[Floats, Floats, Floats, str], positive: bool, warm: bool) -> None:
    H, q, l1, _ = problem
    start = np.random.default_rng(0).normal(size=len(q)) if warm else np.zeros(len(q))
    start[np.diagonal(H) == 0.0] = 0.0
    if positive:
        start = np.abs(start)
    tolerance = 1e-8 * max(1.0, float(np.abs(q).max()))
    found = minimised(H, q, l1, start=start, tolerance=tolerance, positive=positive)
    # A call makes a bounded number of steps, too few from a start as wild as this where samples are few.
    for _ in range(5):
        if found.worst > tolerance:
            found = minimised(H, q, l1, start=found.b, tolerance=tolerance, positive=positive)
    check(H, q, l1, found, tolerance, positive)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_columns_that_are_thousands_of_times_others(share: float) -> None:
    """Three samples, some coefficients without a penalty: with the same proximal term for all of them this took steps
    that were thousands of times too short.
    """
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3, 7)) * np.array([3e4, 1.0, 1.0, 30.0, 900.0, 1.0, 1.0])
    y = X[:, :5] @ rng.normal(size=5) + rng.normal(size=3)
    H, q = X.T @ X, X.T @ y
    l1 = share * float(np.abs(q).max()) * np.array([0.9, 0.0, 0.0, 0.8, 0.9, 0.0, 0.7])
    tolerance = 1e-8 * float(np.abs(q).max())
    found = minimised(H, q, l1, tolerance=tolerance)
    check(H, q, l1, found, tolerance)
    assert found.newtons < 20


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("free", [False, True])
def test_the_minimum_is_that_of_plain_descent(positive: bool, free: bool) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 20))
    q, H = X.T @ rng.normal(size=60), X.T @ X
    l1 = np.zeros(20) if free else rng.uniform(0.5, 4.0, 20)
    found = minimised(H, q, l1, positive=positive)
    slow = descended(H, q, l1, positive, 2000)
    np.testing.assert_allclose(found.b, slow, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(found.b == 0.0, slow == 0.0)
    assert value(H, q, l1, found.b) == pytest.approx(value(H, q, l1, slow), rel=1e-12)


def test_columns_that_are_the_same_share_one_column_s_weight() -> None:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(30, 6))
    q, l1 = X.T @ (X[:, 0] * 3.0 - X[:, 4]), np.full(6, 0.5)
    alone = minimised(X.T @ X, q, l1)
    twice = minimised(np.tile(X.T @ X, (3, 3)), np.tile(q, 3), np.tile(l1, 3))
    np.testing.assert_allclose(twice.b.reshape(3, 6).sum(axis=0), alone.b, rtol=1e-7, atol=1e-8)


def test_a_column_without_length_stays_where_it_is() -> None:
    H, q, l1 = np.diag([2.0, 0.0, 1.0]), np.array([4.0, 0.0, -3.0]), np.array([1.0, 1.0, 1.0])
    np.testing.assert_allclose(minimised(H, q, l1).b, [1.5, 0.0, -2.0])
    np.testing.assert_allclose(minimised(H, q, l1, positive=True).b, [1.5, 0.0, 0.0])
    np.testing.assert_array_equal(minimised(np.zeros((3, 3)), np.zeros(3), l1).b, np.zeros(3))


def test_units_say_how_a_violation_counts() -> None:
    """In units a thousand times as large a thousand times as much is left."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 30))
    H, q, l1 = X.T @ X, X.T @ rng.normal(size=40), np.full(30, 0.1)
    loose, close = minimised(H, q, l1, tolerance=1e-3, unit=np.full(30, 1e3)), minimised(H, q, l1, tolerance=1e-3)
    assert loose.worst <= 1e-3
    assert float(violations(loose.b, q - H @ loose.b, l1, False).max()) == pytest.approx(1e3 * loose.worst)
    assert close.sweeps + close.newtons > loose.sweeps + loose.newtons


def hard(k: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Neighbouring columns nearly the same: sweeps alone would never end."""
    rng = np.random.default_rng(seed)
    X = np.cumsum(rng.normal(size=(k + 20, k)), axis=1)
    return X.T @ X, X.T @ rng.normal(size=k + 20), np.full(k, 0.05)


@pytest.mark.parametrize("k", [40, 150, 330])
@pytest.mark.parametrize("positive", [False, True])
def test_threads_change_no_bit(k: int, positive: bool) -> None:
    """Systems below, at and well beyond the size from which the loops are shared."""
    H, q, l1 = hard(k)
    found = [
        minimised(H, q, l1, tolerance=1e-6, positive=positive, runtime=runtime)
        for runtime in (Serial(), Threads(1), Threads(2), Threads(4))
    ]
    check(H, q, l1, found[0], 1e-6, positive)
    assert found[0].newtons > 0
    for other in found[1:]:
        np.testing.assert_array_equal(other.b, found[0].b)
        assert (other.worst, other.sweeps, other.newtons) == (found[0].worst, found[0].sweeps, found[0].newtons)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("positive", [False, True])
def test_columns_that_are_nearly_the_same_take_a_few_calls(seed: int, positive: bool) -> None:
    """One call may give up early where columns differ by a ten-thousandth; the next goes on from there, downhill."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100, 16))
    X[:, 1], X[:, 5], X[:, 7] = X[:, 0] + 1e-4 * rng.normal(size=100), X[:, 4], 30.0 * X[:, 4]
    H, q = X.T @ X, X.T @ (X[:, :5] @ rng.normal(size=5) + rng.normal(size=100))
    l1, tolerance = 0.01 * float(np.abs(q).max()) * rng.uniform(0.5, 1.0, 16), 1e-9 * float(np.abs(q).max())
    found, before = minimised(H, q, l1, tolerance=tolerance, positive=positive), 0.0
    for _ in range(4):
        now = value(H, q, l1, found.b)
        assert now <= before + 1e-12 * abs(before)
        before = now
        found = minimised(H, q, l1, start=found.b, tolerance=tolerance, positive=positive)
    check(H, q, l1, found, tolerance, positive)


def test_what_is_good_enough_is_left_alone() -> None:
    H, q, l1 = hard(50)
    first = minimised(H, q, l1, tolerance=1e-6)
    again = minimised(H, q, l1, start=first.b, tolerance=1e-6)
    np.testing.assert_array_equal(again.b, first.b)
    assert (again.sweeps, again.newtons) == (0, 0)
