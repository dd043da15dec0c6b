"""Buffered loops whose waves run in one compiled call, with copies of what a visit touches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import stretto as st
from stretto.errors import RunError
from stretto.testing.loops import reference


@st.parallel
def learn(samples: Any, w: Any, dw: Any, lr: float, loss: Any) -> None:
    for _, (y, features) in samples:
        s = 0.0
        for f, x in features:
            s += w[f] * x
        loss += (s - y) * (s - y)
        for f, x in features:
            dw[f] -= lr * (s - y) * x
        for f, x in features:
            loss += w[f] * x  # what this visit has written is seen at once


@st.parallel
def tally(at: Any, c: Any, dc: Any) -> None:
    for i in range(len(at)):
        dc[at[i]] += 1


def samples(n: int, m: int, each: int) -> Any:
    draw = np.random.default_rng(0)
    rows = np.repeat(np.arange(n), each)
    X = scipy.sparse.csr_matrix((draw.standard_normal(n * each), (rows, draw.integers(0, m, n * each))), shape=(n, m))
    return st.samples(X, draw.standard_normal(n))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_every_number_of_workers_gives_the_bits_of_the_reference(dtype: str) -> None:
    data = samples(600, 80, 5)

    def start() -> Any:
        w = np.random.default_rng(1).standard_normal(80).astype(dtype)
        return w, st.buffer(w)

    w, dw = start()
    loop = learn.using(width=4)
    plan = loop.plan(data, w, dw, 0.01, st.accumulator(0.0))
    runner = plan.parts[0].prepared.waves
    assert runner is not None
    assert len(plan.parts[0].prepared.visits.waves) > 10
    exact = reference(plan)
    for runtime in (st.Serial(), st.Threads(1), st.Threads(2), st.Threads(3)):
        w, dw = start()
        loss = st.accumulator(0.0)
        loop.using(runtime=runtime)(data, w, dw, 0.01, loss)
        assert np.array_equal(w, exact.arrays["w"])


def test_later_calls_reuse_memory_and_begin_with_nothing_written() -> None:
    data = samples(600, 80, 5)
    results = []
    for calls in ([learn.using(runtime=st.Threads(2))] * 4, [learn.using(runtime=st.Threads(2)) for _ in range(4)]):
        w = np.zeros(80)
        for loop in calls:
            loop(data, w, st.buffer(w), 0.01, st.accumulator(0.0))
        results.append(w)
    assert np.array_equal(results[0], results[1])


def test_memory_is_that_of_what_visits_write() -> None:
    w = np.zeros(3_000_000)
    data = samples(400, len(w), 4)
    loop = learn.using(runtime=st.Threads(2))
    loop(data, w, st.buffer(w), 0.01, st.accumulator(0.0))
    prepared = loop.plan(data, w, st.buffer(w), 0.01, st.accumulator(0.0)).parts[0].prepared
    assert prepared.waves is not None
    ((workers, (memory,)),) = prepared.waves.idle.items()
    assert workers == 2
    assert memory["where", "dw"].shape == (2, len(w))  # pages that are not written take no memory
    assert sum(array.nbytes for (what, _), array in memory.items() if what != "where") < 1e6
    assert np.count_nonzero(w) > 1000


def test_a_subscript_out_of_range_ends_the_call_and_the_next_one_is_right() -> None:
    at, c = np.zeros(1000, np.int64), np.zeros(3, np.int64)
    loop = tally.using(runtime=st.Threads(2))
    loop(at, c, st.buffer(c))
    assert c.tolist() == [1000, 0, 0]
    at[500] = 7
    with pytest.raises(RunError, match="subscript 7 of dc"):
        loop(at, c, st.buffer(c))
    at[500], c[:] = 2, 0
    loop(at, c, st.buffer(c))
    assert c.tolist() == [999, 0, 1]
