"""Inspected loops: grouped by what their data touch, with the result of the serial loop itself."""
# ruff: noqa: B007  the loops are written as users write them

from __future__ import annotations

import itertools
import math
from typing import Any

import hypothesis.strategies as some
import numpy as np
import pytest
from hypothesis import given, settings

import stretto as st
from loop_bodies import function
from stretto.errors import LoopError, PlanError
from stretto.loops.layout.loop_visits import LoopVisits
from stretto.loops.layout.traversal import iterations
from stretto.loops.loop_plan import LoopPlan
from stretto.testing.arithmetic import same_bits
from stretto.testing.loops import reference


@st.parallel(inspect=True)
def logistic(samples, w, lr, loss):  # type: ignore[no-untyped-def]
    for i, (y, features) in samples:
        z = 0.0
        for f, x in features:
            z += w[f] * x
        g = 1.0 / (1.0 + math.exp(-z)) - y
        loss += g * g
        for f, x in features:
            w[f] -= lr * g * x


def sparse(n: int, columns: int, each: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    X = np.zeros((n, columns))
    X[np.repeat(np.arange(n), each), rng.integers(0, columns, n * each)] = rng.random(n * each)
    return st.samples(X, rng.integers(0, 2, n))


def visits_of(plan: LoopPlan) -> LoopVisits:
    return plan.parts[0].prepared.visits


@pytest.mark.parametrize(("columns", "several"), [(4000, False), (150, True)])
def test_logistic_regression_gives_the_bits_of_the_reference_and_the_numbers_of_the_serial_loop(
    columns: int, several: bool
) -> None:
    data = sparse(400, columns, 3)
    start = st.random((columns,), scale=0.1).array
    plan = logistic.plan(data, start.copy(), 0.1, st.accumulator(0.0))
    visits = visits_of(plan)
    assert (len(visits.waves) > 1) == several
    assert visits.found.startswith("parallelism ")
    expect = reference(plan)
    for runtime in (st.Serial(), st.Threads(1), st.Threads(3)):
        w, loss = start.copy(), st.accumulator(0.0)
        logistic.using(runtime=runtime)(data, w, 0.1, loss)
        assert same_bits(expect.arrays["w"], w)
        assert same_bits(expect.accumulators["loss"], loss.array)
    in_plan_order, serial = start.copy(), start.copy()
    logistic.plain(plan.order(data), in_plan_order, 0.1, st.accumulator(0.0))
    logistic.plain(data, serial, 0.1, st.accumulator(0.0))
    # Iterations that meet keep their order, so the order of the plan and that of the data leave the same bits.
    assert same_bits(in_plan_order, serial)
    np.testing.assert_allclose(w, serial, rtol=1e-5, atol=1e-7)


@st.parallel(inspect=True, serial=False)
def spread(samples, table, w, n):  # type: ignore[no-untyped-def]
    for i, features in samples:
        s = 0.0
        for f, x in features:
            if f % 3 == 0:
                continue
            s += w[table[f]]
        for f, x in features:
            if w[table[f]] > 0.3:
                w[(table[f] + n) % 40] = s


@settings(max_examples=15)
@given(some.lists(some.lists(some.integers(0, 39), max_size=3), max_size=25), some.integers(0, 5))
def test_no_two_visits_of_a_wave_meet(rows: list[list[int]], n: int) -> None:
    rows = [*rows, [0], [39]]  # the same range of features, and so the same compiled loop, every time
    X = np.zeros((len(rows), 40))
    for k, row in enumerate(rows):
        X[k, row] = 1.0
    table = np.arange(40)[::-1].copy()
    data = st.samples(X)
    start = np.linspace(0, 1, 40)
    try:
        plan = spread.plan(data, table, start.copy(), n)
    except LoopError:
        with pytest.raises(LoopError, match="too little"):
            spread.plan(data, table, start.copy(), n)
        return
    visits, space = visits_of(plan), plan.parts[0].prepared.analysis.space
    seen: list[int] = []
    for wave in visits.waves:
        touched = []
        for v in wave.tolist():
            mine = [index[0] for index, _ in iterations(visits, space, v)]
            seen += mine
            reads = {int(table[f]) for at in mine for f in np.flatnonzero(X[at])}
            touched.append((reads, {(e + n) % 40 for e in reads}))
        for (reads, writes), (others, theirs) in itertools.combinations(touched, 2):
            assert not writes & (others | theirs)
            assert not theirs & (reads | writes)
    assert sorted(seen) == list(range(len(rows)))
    w, serial = start.copy(), start.copy()
    spread.using(runtime=st.Threads(2))(data, table, w, n)
    spread.plain(data, table, serial, n)
    np.testing.assert_allclose(w, serial, rtol=1e-12)


def test_groups_are_made_anew_when_a_number_or_table_behind_the_subscripts_changes() -> None:
    table, w = np.arange(40), np.linspace(0, 1, 40)
    X = np.zeros((8, 40))
    X[np.arange(8), np.arange(8) * 5] = 1.0
    data = st.samples(X)
    first = visits_of(spread.plan(data, table, w, 1))
    assert visits_of(spread.plan(data, table, w, 1)) is first
    other = visits_of(spread.plan(data, table, w, 2))
    assert other is not first
    assert other.weight.sum() == first.weight.sum()
    again = visits_of(spread.plan(data, table, w, 1))
    table[:] = table[::-1].copy()
    assert visits_of(spread.plan(data, table, w, 1)) is not again


@st.parallel(inspect=True)
def scattered(ratings, w, c):  # type: ignore[no-untyped-def]
    for (i, j), r in ratings:
        w[c[i], c[j]] += r


def test_sparse_data_and_two_subscripts() -> None:
    rng = np.random.default_rng(0)
    data = st.Data.from_arrays(rng.integers(0, 60, 500), rng.integers(0, 60, 500), rng.random(500))
    w, serial, c = np.zeros((30, 30)), np.zeros((30, 30)), rng.integers(0, 30, 60)
    plan = scattered.plan(data, w, c)
    expect = reference(plan)
    scattered.using(runtime=st.Threads(2))(data, w, c)
    assert same_bits(expect.arrays["w"], w)
    scattered.plain(data, serial, c)
    assert same_bits(serial, w)


@st.parallel(inspect=True)
def over_a_range(w, c):  # type: ignore[no-untyped-def]
    for i in range(2, 90, 2):
        w[c[i]] += 1.0 * i


def test_a_loop_over_a_range() -> None:
    c = np.random.default_rng(0).permutation(90)
    w, serial = np.zeros(90), np.zeros(90)
    over_a_range(w, c)
    over_a_range.plain(serial, c)
    assert same_bits(w, serial)


@st.parallel(inspect=True)
def with_a_buffer(samples, w, total):  # type: ignore[no-untyped-def]
    for i, features in samples:
        for f, x in features:
            w[f] += x
            total[0] += x


def test_buffered_writes_do_not_count_as_conflicts() -> None:
    data, w, total = st.samples(np.eye(30)), np.zeros(30), np.zeros(1)
    plan = with_a_buffer.plan(data, w, st.buffer(total))
    assert plan.parts[0].prepared.analysis.strategy.name == "inspected"
    with_a_buffer(data, w, st.buffer(total))
    np.testing.assert_array_equal(w, np.ones(30))
    assert total[0] == 30.0


def test_an_intercept_is_refused_with_the_figure() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([np.ones((200, 1)), np.eye(200)], axis=1)
    with pytest.raises(PlanError) as problem:
        logistic.using(serial=False).plan(st.samples(X, rng.integers(0, 2, 200)), np.zeros(201), 0.1)
    said = str(problem.value)
    assert "parallelism 1.00 of at most 16" in said
    assert "w[0] alone is shared by 200 of 200 iterations (100%)" in said
    assert "exempt the writes to w" in said
    assert "leave w[0] out of the data" in said


@st.parallel(inspect=True)
def linked(samples, w, u):  # type: ignore[no-untyped-def]
    for i, features in samples:
        for f, x in features:
            w[u[f]] += x
            u[f] = f


def test_subscripts_that_the_loop_itself_makes_are_refused() -> None:
    with pytest.raises(LoopError, match=r"(?s)it is not known: it depends on u.*exempt the writes to w"):
        linked.using(serial=False).plan(st.samples(np.eye(9)), np.zeros(9), np.zeros(9, np.int64))


def test_no_records_at_all() -> None:
    w = np.zeros(3)
    logistic(st.samples(np.zeros((0, 3)), np.zeros(0)), w, 0.1, st.accumulator(0.0))
    assert not w.any()


@pytest.mark.parametrize("body", ["W[at[i]] += X[i]", "t = at[i]\n        for k in range(5): W[t, k] += X[i, k]"])
def test_rows_are_grouped_as_their_elements_are(body: str) -> None:
    """Whole rows are listed as one element, with the work of all of theirs."""
    source = f"def loop(W, X, at):\n    for i in range(len(at)):\n        {body}\n"
    rng = np.random.default_rng(0)
    W, X, at = np.zeros((300, 5)), rng.random((400, 5)), rng.integers(0, 300, 400)
    made = st.parallel(function(source))
    plan = made.plan(W, X, at)
    visits = visits_of(plan)
    other = st.parallel(function(source.replace(body, "W[at[i], 0:5] = W[at[i], 0:5] + X[i]")))
    wanted = visits_of(other.plan(W, X, at))
    assert plan.parts[0].prepared.analysis.strategy.name == "inspected"
    assert visits.weight.tolist() == wanted.weight.tolist()
    assert visits.weight.sum() == 400 * (1 + 5)
    assert all(np.array_equal(visits.arrays[key], array) for key, array in wanted.arrays.items())
    made(W, X, at)
    serial = np.zeros((300, 5))
    made.plain(serial, X, at)
    np.testing.assert_array_equal(W, serial)
