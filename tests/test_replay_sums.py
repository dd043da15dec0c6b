"""The replay checker's sums: rows summed in any order and grouping pass, and anything rounding cannot explain is found.

Healthy rows are made here by a random tree of additions in the table's own dtype, and the bound is worked out a second
time in exact fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.comm.policy import Eager
from stretto.consistency.rules import ASP, SSP
from stretto.store.layout import Layout, TableSpec
from stretto.store.recording import Recording
from stretto.store.shard.functions import add
from stretto.testing import check_replay

UNIT = {"f4": Fraction(1, 2**24), "f8": Fraction(1, 2**53)}


def recorded(
    dtype: str,
    terms: list[list[float]],
    values: list[Any],
    start: float = 0.0,
    workers: int = 2,
    codec: str | None = None,
) -> Recording:
    """Rows of one column, each with its terms added by workers in turn, read and left at the end with these values."""
    spec = TableSpec("t", add, rows=len(terms), cols=1, dtype=dtype, start=start)
    recording = Recording(Layout((spec,), 1, workers, ASP(), Eager(codec), witness=True), record="full")
    counts = np.zeros((len(terms), workers), np.int32)
    for key, numbers in enumerate(terms):
        for place, number in enumerate(numbers):
            delta = np.array([[number]], spec.kept)
            recording.added(0.0, place % workers, 0, 0, np.array([key]), delta)
            counts[key, place % workers] += 1
    keys, found = np.arange(len(terms)), np.array(values, spec.kept).reshape(-1, 1)
    recording.read(1.0, 0, 0, 0, keys, counts, found)
    recording.final[0], recording.final_values[0] = (keys, counts), found
    return recording


def summed(rng: np.random.Generator, dtype: str, start: float, terms: list[float]) -> Any:
    """The start and the terms, added in a random order, two at a time."""
    left = [np.dtype(dtype).type(x) for x in (start, *terms)]
    with np.errstate(all="ignore"):
        while len(left) > 1:
            a, b = left.pop(rng.integers(len(left))), left.pop(rng.integers(len(left)))
            left.append(a + b)
    return left[0]


def bound(dtype: str, start: float, terms: list[float]) -> Fraction:
    """n u / (1 − n u) · Σ|terms|."""
    errors = len(terms) * UNIT[dtype]
    return errors / (1 - errors) * sum(abs(Fraction(float(x))) for x in (start, *terms))


def wrong_rows(recording: Recording) -> set[int]:
    """Rows of the recording whose values are reported."""
    report = check_replay(recording, raises=False)
    assert set(report.broken) <= {"value"}, str(report)
    return {int(str(found).split("row ")[1].split()[0]) for found in report.violations}


def numbers(dtype: str) -> st.SearchStrategy[float]:
    """Of all sizes: floats as hypothesis likes them, few digits, and sums that cancel."""
    width: Literal[32, 64] = 32 if dtype == "f4" else 64
    top = 2.0**100 if dtype == "f4" else 2.0**960
    return st.one_of(
        st.floats(-top, top, width=width),
        st.floats(-1, 1, width=width),
        st.integers(-100, 100).map(float),
        st.sampled_from([1e8, -1e8, 1e8 + 1, 0.1, -0.1, 2.0**-100, 1e25, -1e25, 0.0, -0.0]).map(
            lambda x: float(np.dtype(dtype).type(x))
        ),
    )


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_order_of_additions_is_healthy(dtype: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    start = data.draw(numbers(dtype))
    terms = data.draw(st.lists(st.lists(numbers(dtype), max_size=12), min_size=1, max_size=4))
    values = [summed(rng, dtype, start, row) for row in terms]
    assert wrong_rows(recorded(dtype, terms, values, start)) == set()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_what_rounding_cannot_explain_is_found(dtype: str, data: st.DataObject) -> None:
    """A row that is off by just more than the bound, or by a bit where nothing was rounded, beside much larger rows."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    kind = np.dtype(dtype).type
    start = data.draw(numbers(dtype))
    terms = data.draw(st.lists(numbers(dtype), min_size=1, max_size=12))
    other = [[1e30, -1e30, 1e-30], [float(kind(0.1))] * 20]
    exact, allowed = sum(map(Fraction, (start, *terms)), Fraction(0)), bound(dtype, start, terms)
    value = _beyond(kind, exact, allowed, up=data.draw(st.booleans()))
    if not math.isfinite(value):
        return
    values = [value, *(summed(rng, dtype, start, row) for row in other)]
    assert wrong_rows(recorded(dtype, [terms, *other], values, start)) == {0}


def _beyond(kind: Any, exact: Fraction, allowed: Fraction, up: bool) -> Any:
    """The number nearest to the sum that is further away than the bound, which the checker has to nine digits."""
    sign = 1 if up else -1
    allowed *= 1 + Fraction(1, 10**8)
    with np.errstate(over="ignore"):
        value = kind(float(exact + sign * allowed))
        while math.isfinite(value) and abs(Fraction(float(value)) - exact) <= allowed:
            value = np.nextafter(value, kind(sign * np.inf))
    return value


@pytest.mark.parametrize(
    ("dtype", "terms"),
    [
        ("f4", [1.0, 2.0, 3.0]),
        ("f4", [2.0**23, 1.0, -3.0]),
        ("f4", [0.5, 0.25, -0.125]),
        ("f4", [2.0**100, 2.0**90, -(2.0**95)]),
        ("f8", [2.0**52, 1.0, -3.0]),
        ("f8", [2.0 ** (k - 1000) for k in range(20)]),
    ],
)
def test_sums_of_few_digits_must_be_right_to_the_last_bit(dtype: str, terms: list[float]) -> None:
    kind = np.dtype(dtype).type
    value = kind(math.fsum(terms))
    noise = [float(kind(0.1))] * 9  # other rows may be rounded
    right = summed(np.random.default_rng(0), dtype, 0.0, noise)
    assert wrong_rows(recorded(dtype, [terms, noise], [value, right])) == set()
    for off in (np.nextafter(value, kind(np.inf)), np.nextafter(value, kind(-np.inf))):
        assert wrong_rows(recorded(dtype, [terms, noise], [off, right])) == {0}


@pytest.mark.parametrize(("dtype", "bits"), [("i4", 32), ("i8", 64)])
def test_integers_wrap_around(dtype: str, bits: int) -> None:
    top = 2 ** (bits - 1) - 1
    with np.errstate(over="ignore"):
        value = np.array(top, dtype) + np.array(5, dtype)
    recording = recorded(dtype, [[top, 5]], [0])
    for found in (recording.reads[0].values, recording.final_values[0]):
        found[:] = value
    assert wrong_rows(recording) == set()
    recording.final_values[0][:] = value + 1
    assert wrong_rows(recording) == {0}


@pytest.mark.parametrize(
    ("terms", "value", "found"),
    [
        ([np.inf, 1.0], np.inf, False),
        ([np.inf, 1.0], np.nan, True),
        ([np.inf, 1.0], 5.0, True),
        ([np.inf, -np.inf], np.nan, False),
        ([np.inf, -np.inf], np.inf, True),
        ([np.nan, 1.0], np.nan, False),
        ([np.nan, 1.0], 1.0, True),
        ([1.0, 2.0], np.nan, True),
        ([1.0, 2.0], np.inf, True),
        ([3e38, 3e38, -3e38], np.inf, False),  # overflowed on the way; another order gives 3e38
        ([3e38, 3e38, -3e38], 3e38, False),
    ],
)
def test_values_that_are_not_finite(terms: list[float], value: float, found: bool) -> None:
    with np.errstate(over="ignore"):
        assert wrong_rows(recorded("f4", [terms, [1.0]], [value, 1.0])) == ({0} if found else set())


@pytest.mark.parametrize("dtype", ["f2", "f4"])
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_sixteen_bits(dtype: str, data: st.DataObject) -> None:
    """Rounded changes, leftovers that stay behind, and one more rounding on the way back."""
    terms = data.draw(st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=8))
    left, shard = np.float32(0), np.float32(0)
    for term in terms:  # as one sender would
        change = np.float32(term) + left
        sent = np.float32(np.float16(change))
        left = change - sent
        shard += sent
    read = np.float32(np.float16(shard))
    if not np.isfinite(read):
        return
    made = recorded(dtype, [terms], [shard], codec="f2")
    made.reads[0].values[:] = read
    assert wrong_rows(made) == set()
    size = sum(map(abs, terms))
    made.final_values[0][:] = shard + np.float32(size * 2.0**-9 + 2.0**-19)
    assert wrong_rows(made) == {0}


def test_a_thousand_rows_of_doubles() -> None:
    """The smallest run in which one running sum over all rows cried wolf."""
    import stretto

    def worker(w: Any) -> None:
        table = w.table("t")
        for clock in w.clocks(2):
            table.read()
            table.add(np.arange(1000), w.random(clock).standard_normal((1000, 4)))

    result = stretto.run(
        worker, workers=2, tables={"t": stretto.tables.Table(rows=1000, cols=4, dtype="f8")}, record="full"
    )
    report = check_replay(result.recording)
    assert report.numbers["valued"] == 4000
    assert report.numbers["summed"] == 1000


def test_a_small_read_of_a_row_that_grows_large() -> None:
    """What a row held early is checked to its own size, whatever was added to it later."""
    spec = TableSpec("t", add, rows=1, cols=1, dtype="f8", start=-3.0)
    made = Recording(Layout((spec,), 1, 1, SSP(0), Eager(), witness=True), record="full")
    key = np.array([0])
    for before, delta in enumerate((0.1, 1e-20, 1e120, 1e-150)):
        expect = [-3.0, -3.0 + 0.1, -3.0 + 0.1, 1e120][before]
        made.read(0.0, 0, 0, 0, key, np.array([[before]], np.int32), np.array([[expect]]))
        made.added(0.0, 0, 0, 0, key, np.array([[delta]]))
    made.final[0], made.final_values[0] = (key, np.array([[4]], np.int32)), np.array([[1e120]])
    assert check_replay(made).ok
    made.reads[0].values[:] = np.nextafter(-3.0, 0)
    made.reads[1].values[:] = -3.0 + 0.1 + 2e-15
    assert check_replay(made, raises=False).broken == {"value": 2}
