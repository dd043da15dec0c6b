"""Accumulators: folding in, in place, with any operator."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stretto
from stretto.errors import DataError

numbers = st.lists(st.integers(-1000, 1000), max_size=20)


@given(numbers)
def test_addition_in_place(some: list[int]) -> None:
    total = stretto.accumulator(0.0)
    kept = total
    for x in some:
        total += x
    assert total is kept
    assert total.get() == total.value == float(total) == float(sum(some))
    total.reset()
    assert total.get() == 0.0
    total.reset(4)
    total -= 1
    assert total.get() == 3.0


def test_a_function_that_is_not_decorated_changes_it() -> None:
    def epoch(loss: Any) -> None:
        for x in (1.0, 2.0):
            loss += x

    loss = stretto.accumulator(0.0)
    epoch(loss)
    epoch(loss)
    assert loss.get() == 6.0  # kept across loops


@pytest.mark.parametrize(
    ("op", "start", "expected", "identity"),
    [
        (max, -np.inf, 5.0, -np.inf),
        (min, np.inf, -3.0, np.inf),
        (np.maximum, 7.0, 7.0, -np.inf),
        (operator.mul, 1.0, -15.0, 1.0),
        (operator.add, 1.0, 4.0, 0.0),
        (math.hypot, 0.0, math.sqrt(35), 0.0),
    ],
)
def test_operators(op: Any, start: float, expected: float, identity: float) -> None:
    made = stretto.accumulator(start, op=op, identity=0.0 if op is math.hypot else None)
    for x in (5.0, -3.0, 1.0):
        made += x
    assert made.get() == pytest.approx(expected)
    assert made.identity == identity
    before = made.get()
    made.fold(made.blank(3))
    assert made.get() == pytest.approx(before, abs=0)


def test_types_follow_the_start() -> None:
    assert stretto.accumulator(0.0).dtype == np.float64
    assert stretto.accumulator(0).dtype == np.int64
    assert stretto.accumulator(np.float32(0)).dtype == np.float32
    assert isinstance(stretto.accumulator(0).get(), int)
    count = stretto.accumulator(0)
    count += np.int32(3)
    assert int(count) == 3
    count -= np.uint8(1)
    assert int(count) == 2
    with pytest.raises(DataError, match="int64 cannot take float64"):
        count += 0.5
    assert stretto.accumulator(0, op=max).identity == np.iinfo(np.int64).min
    assert stretto.accumulator(np.int8(0), op=min).identity == 127


def test_shaped() -> None:
    hist = stretto.accumulator(np.zeros((2, 3)))
    hist[1] += np.ones(3)
    hist[0, 2] += 5
    hist += [[1.0, 0, 0], [0, 0, 0]]
    hist[1][0] += 1
    assert hist.get().tolist() == [[1, 0, 5], [2, 1, 1]]
    assert hist.shape == (2, 3)
    copied = hist.get()
    copied[...] = 0
    assert np.asarray(hist).sum() == 10
    hist.reset()
    assert not hist.get().any()
    assert len(hist) == 2


@pytest.mark.parametrize("op", [max, lambda a, b: a if a > b else b])
def test_shaped_with_another_operator(op: Any) -> None:
    best = stretto.accumulator(np.full(3, -np.inf), op=op, identity=-np.inf)
    kept = best
    best[1] += 4.0
    best[1] += 2.0
    best += [0.0, 1.0, 2.0]
    best[0:2] += 3.0
    assert best is kept
    assert best.get().tolist() == [3.0, 4.0, 2.0]
    assert float(best[1]) == 4.0
    assert np.asarray(best[0:2]).tolist() == [3.0, 4.0]


@given(st.lists(st.floats(-1e6, 1e6), max_size=12), st.sampled_from([None, max, "own"]))
def test_folding_parts_is_folding_in_order(parts: list[float], op: Any) -> None:
    chosen: Any = (lambda a, b: a + b) if op == "own" else op
    one = stretto.accumulator(0.5, op=chosen, identity=0.0 if op == "own" else None)
    two = stretto.accumulator(0.5, op=chosen, identity=0.0 if op == "own" else None)
    one.fold(np.array(parts))
    for part in parts:
        two += part
    assert one.get() == two.get()


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match="pass identity="):
        stretto.accumulator(0.0, op=lambda a, b: a)
    with pytest.raises(DataError, match="holds numbers"):
        stretto.accumulator("x")
    worst = stretto.accumulator(0.0, op=max)
    with pytest.raises(DataError, match="needs addition"):
        worst -= 1.0
    assert "op=maximum" in repr(worst)
