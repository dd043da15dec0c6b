"""Calls like earlier ones: nothing is bound again, and every change since is noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import PlanError, RunError
from stretto.loops.layout.joined import joined
from stretto.loops.parallel import Loop

RATE = 2.0


@st.parallel
def scale(x: Any, c: Any) -> None:
    n = len(x)
    for i in range(n):
        x[i] = RATE * c * x[i]


@st.parallel
def total(x: Any, out: Any) -> None:
    for i in range(len(x)):
        out += x[i]


@st.parallel
def gather(entries: Any, x: Any, out: Any) -> None:
    for (i, _), r in entries:
        out += r * x[i]


@st.parallel
def heat(A: Any) -> None:
    steps, n = A.shape
    for t in range(1, steps):
        for x in range(1, n - 1):
            A[t, x] = 0.25 * (A[t - 1, x - 1] + 2.0 * A[t - 1, x] + A[t - 1, x + 1])


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets an entry for each call that was bound."""
    found: list[int] = []
    bind = Loop._bind

    def counting(self: Loop, *args: Any, **kwargs: Any) -> Any:
        found.append(1)
        return bind(self, *args, **kwargs)

    monkeypatch.setattr(Loop, "_bind", counting)
    return found


def test_a_second_call_is_not_bound_and_takes_new_numbers_and_accumulators(bound: list[int]) -> None:
    x, loop = np.arange(1.0, 9.0), scale.using(runtime=st.Threads(2))
    for c in (1.0, 3.0, 0.5):
        loop(x, c)
    assert x.tolist() == (np.arange(1.0, 9.0) * 8.0 * 1.5).tolist()
    loop(c=1.0, x=x)
    assert len(bound) == 1
    sums, adder = [st.accumulator(0.0) for _ in range(3)], total.using()
    for out in sums:
        adder(x, out)
    assert [out.get() for out in sums] == [x.sum()] * 3
    assert len(bound) == 2


def test_short_and_long_passes_give_the_same_bits() -> None:
    x = np.random.default_rng(0).random(100_000)
    found = []
    for workers in (1, 2, 3):
        loop, out = total.using(runtime=st.Threads(workers)), st.accumulator(0.0)
        for _ in range(4):
            out.reset()
            loop(x, out)
            found.append(out.get())
    out = st.accumulator(0.0)
    total.using(runtime=st.Serial())(x, out)
    assert set(found) == {out.get()}


def test_other_types_and_arrays_are_bound(bound: list[int]) -> None:
    x, loop = np.ones(4), scale.using()
    loop(x, 1.0)
    loop(x, np.float32(1.0))
    loop(np.ones(4), 1.0)
    assert len(bound) == 3
    loop(x, 2**60)
    with pytest.raises(PlanError, match="does not fit"):
        loop(x, 2**70)


def test_changes_around_the_function_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, loop = np.ones(4), scale.using()
    loop(x, 1.0)
    loop(x, 1.0)
    assert x.tolist() == [4.0] * 4
    monkeypatch.setitem(globals(), "RATE", 10.0)
    loop(x, 1.0)
    assert x.tolist() == [40.0] * 4


def test_an_array_that_changed_in_place_is_noticed() -> None:
    x, loop = np.ones(6), scale.using()
    loop(x, 1.0)
    x.flags.writeable = False
    with pytest.raises(PlanError, match="read-only"):
        loop(x, 1.0)
    x.flags.writeable = True
    loop(x, 1.0)
    A = np.random.default_rng(1).random((6, 10))
    B, loop = A.copy(), heat.using()
    loop(A)
    A.shape = (10, 6)
    B = B.reshape(6, 10)
    heat.using()(B)
    B = B.reshape(10, 6)
    loop(A)
    heat.using()(B)
    assert np.array_equal(A, B)


def test_records_that_changed_in_place_are_noticed() -> None:
    values = np.ones(5, np.float32)
    rows = np.arange(5)
    entries, x, loop = st.Data.from_arrays(rows, rows, values, shape=(5, 5)), np.ones(5), gather.using()
    for factor in (1.0, 3.0):
        values[:] = factor
        out = st.accumulator(0.0)
        loop(entries, x, out)
        assert out.get() == 5.0 * factor


def test_arrays_are_not_kept_alive() -> None:
    import gc
    import weakref

    x, loop = np.ones(1000), scale.using()
    loop(x, 1.0)
    loop(x, 1.0)
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None


def test_a_subscript_out_of_range_still_stops_the_loop() -> None:
    @st.parallel
    def pick(x: Any, at: Any, y: Any) -> None:
        for i in range(len(at)):
            y[i] = x[at[i]]

    x, at, y = np.arange(3.0), np.array([0, 1, 2]), np.zeros(3)
    pick(x, at, y)
    pick(x, at, y)
    at[1] = 7
    with pytest.raises(RunError, match="subscript 7 of x"):
        pick(x, at, y)


def test_joined_blocks_hold_the_same_iterations_and_give_the_same_bits() -> None:
    A = np.random.default_rng(2).random((40, 300))
    part = heat.plan(A).parts[0].prepared
    larger = joined(part.analysis, part.visits)
    assert larger is not None
    assert len(larger) < len(part.visits)
    assert larger.weight.sum() == part.visits.weight.sum()
    results = []
    for runtime in (st.Serial(), st.Threads(1), st.Threads(2)):
        B, loop = A.copy(), heat.using(runtime=runtime)
        for _ in range(3):
            B[1:] = A[1:]
            loop(B)
        results.append(B)
    plain = A.copy()
    heat.plain(plain)
    assert all(np.array_equal(results[0], B) for B in results[1:])
    assert np.allclose(plain, results[0], rtol=1e-14)


DRAWS = np.random.default_rng(5)


@st.parallel
def noisy(x: Any) -> None:
    c = DRAWS.random()
    for i in range(len(x)):
        x[i] += c


def test_lines_before_the_loops_run_once_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for run in (noisy.using(), noisy.plain):
        monkeypatch.setitem(globals(), "DRAWS", np.random.default_rng(5))
        x = np.zeros(3)
        for _ in range(4):
            run(x)
        found.append(x.tolist())
    assert found[0] == found[1]


@st.parallel(ordered=False)
def renew(c: Any, values: Any, entries: Any, W: Any, H: Any) -> None:
    for k in range(len(values)):
        values[k] = c * (k + 1)
    for (i, j), r in entries:
        W[i] += r * H[j]
        H[j] += r * W[i]


def test_records_that_the_first_loop_of_a_call_writes_are_noticed() -> None:
    rng = np.random.default_rng(0)
    rows, cols, values = rng.integers(0, 8, 60), rng.integers(0, 8, 60), np.ones(60, np.float32)
    entries, loop = st.Data.from_arrays(rows, cols, values, shape=(8, 8)), renew.using()
    W, H = np.ones(8), np.ones(8)
    for c in (0.001, 0.002, 0.003):
        W[:], H[:], V, G = 1.0, 1.0, np.ones(8), np.ones(8)
        loop(c, values, entries, W, H)
        renew.using()(c, values, entries, V, G)
        assert np.array_equal(W, V)
        assert np.array_equal(H, G)


def test_a_name_that_was_deleted_has_no_value() -> None:
    rate = 2.0

    def forget() -> None:
        nonlocal rate
        del rate

    @st.parallel
    def grow(x: Any) -> None:
        for i in range(len(x)):
            x[i] *= rate

    x = np.ones(3)
    grow(x)
    forget()
    with pytest.raises(PlanError, match="grow uses rate, which has no value"):
        grow(x)
    rate = 3.0
    grow(x)
    assert x.tolist() == [6.0] * 3
