"""Transactions: applied once, in order, atomically for each part, with the same bits on every runtime."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import stretto as st
from stretto.errors import PlanError, RunError
from stretto.tasks.transactions.messages import decode, encode
from stretto.testing import check_replay
from task_runtimes import RUNTIMES, runtime_named

ROWS, PARTS = 40, 4
NO_FUNCTION: Any = 3


# -- what holders do ---------------------------------------------------------------------------------------------------


def take_some(values: Any, rows: Any, wanted: Any) -> Any:
    """A bounded decrement: no more than there is."""
    given = np.minimum(values[rows], wanted)
    values[rows] -= given
    return given


def replace_if(values: Any, rows: Any, expected: Any, new: Any) -> Any:
    """Compare and set."""
    same = values[rows] == expected
    values[rows[same]] = new[same]
    return same


def keep_largest(values: Any, rows: Any, candidates: Any) -> None:
    values[rows] = np.maximum(values[rows], candidates)


def largest_of_each(rows: Any, candidates: Any) -> Any:
    once, at = np.unique(rows, return_inverse=True)
    largest = np.full(len(once), -np.inf)
    np.maximum.at(largest, at, candidates)
    return once, largest


def merge_top(values: Any, rows: Any, sketch: Any) -> None:
    """values [own, k]: the k largest numbers seen, of each row."""
    both = np.concatenate([values[rows], sketch], axis=1)
    values[rows] = -np.sort(-both, axis=1)[:, : values.shape[1]]


take = st.transaction(take_some)
cas = st.transaction(replace_if, name="compare and set")
largest = st.transaction(keep_largest, combine=largest_of_each)
top = st.transaction(merge_top, prepare=lambda rows, numbers: -np.sort(-np.asarray(numbers), axis=1)[:, :3])


def buy(worker: Any, stock: Any, sold: Any) -> Iterator[None]:
    for turn in range(3):
        rows = worker.random(turn, 0).choice(ROWS, 12, replace=False)
        order = stock.submit(take, rows, worker.random(turn, 1).random(12))
        yield
        assert (order.value >= 0).all()
        assert stock.returned[0].tolist() == order.value.tolist()
        sold.add([worker.part], [order.value.sum()])


def change(worker: Any, marks: Any, best: Any, sketch: Any) -> None:
    """All parts try to be the first in a row, and report numbers."""
    if worker.iteration:
        (won,) = marks.returned
        worker.local["won"] = worker.local.get("won", 0) + int(won.sum())
    rows = worker.random(0).choice(ROWS, 10, replace=False)
    marks.submit(cas, rows, np.full(10, -1.0), np.full(10, worker.part + 0.1))
    for _ in range(3):
        mine = worker.random(1, _).integers(ROWS, size=20)
        best.submit(largest, mine, worker.random(2, _).standard_normal(20))
    sketch.submit("merge_top", [worker.part, 5], worker.random(3).standard_normal((2, 8)))


@cache
def bought(name: str) -> tuple[bytes, bytes]:
    stock, sold = st.state(np.full(ROWS, 2.3), transactions=[take]), st.zeros(PARTS, "f8")
    st.run(st.unit(buy, stock, sold, parts=PARTS, iterations=3), runtime=runtime_named(name))
    assert (stock.array >= 0).all()
    assert (stock.array == 0).any()  # the bound mattered
    assert np.isclose(stock.array.sum() + sold.array.sum(), 2.3 * ROWS)
    return stock.array.tobytes(), sold.array.tobytes()


@cache
def changed(name: str) -> tuple[bytes, ...]:
    marks = st.state(np.full(ROWS, -1.0), partition=[0, 7, 8, 30], transactions=[cas])
    best = st.state(np.full(ROWS, -np.inf), transactions=[largest])
    sketch = st.state(np.full((6, 3), -9.0, "f4"), transactions=[top])
    st.run(st.unit(change, marks, best, sketch, parts=PARTS, iterations=4), runtime=runtime_named(name))
    assert set(np.unique(marks.array)) <= {-1.0, 0.1, 1.1, 2.1, 3.1}  # the numbers themselves, to the last bit
    assert (np.diff(sketch.array[5]) <= 0).all()
    return marks.array.tobytes(), best.array.tobytes(), sketch.array.tobytes()


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_bounded_decrement_has_the_same_bits_everywhere(name: str) -> None:
    assert bought(name) == bought("serial")


@pytest.mark.parametrize("name", RUNTIMES)
def test_compare_and_set_maximum_and_sketches_have_the_same_bits_everywhere(name: str) -> None:
    assert changed(name) == changed("serial")


def test_the_order_is_that_of_parts_and_then_of_calls() -> None:
    @st.transaction
    def note(values: Any, rows: Any, digit: Any) -> None:
        values[rows] = 10 * values[rows] + digit

    def call(worker: Any, log: Any) -> None:
        log.submit(note, [0], 2 * worker.part + 1)
        log.submit(note, [0], 2 * worker.part + 2)

    log = st.state(np.zeros(1, "i8"), transactions=[note])
    for runtime in (st.Serial(), st.Threads(2), st.Simulated(nodes=2, threads=1)):
        log.array[:] = 0
        st.run(st.unit(call, log, parts=3), runtime=runtime)
        assert log.array.tolist() == [123456]


def test_no_reader_sees_half_of_a_transaction() -> None:
    def move(values: Any, rows: Any, amount: Any) -> None:
        values[rows[0]] -= amount
        values[rows[1]] += amount

    moves = st.transaction(move)

    def work(worker: Any, accounts: Any) -> Iterator[None]:
        for turn in range(5):
            total = accounts.read()
            assert total.sum() == 80
            holder = int(worker.random(turn).integers(4)) * 2
            accounts.submit(moves, [holder, holder + 1], int(worker.random(turn, 1).integers(1, 9)))
            yield

    for runtime in (st.Serial(), st.Threads(2), st.Simulated(nodes=2, threads=2)):
        accounts = st.state(np.full(8, 10, "i8"), transactions=[moves])
        st.run(st.unit(work, accounts, parts=4, iterations=2), runtime=runtime)
        assert accounts.array.sum() == 80
        assert len(set(accounts.array.tolist())) > 1


def test_parts_that_yield_less_still_hold_their_rows() -> None:
    @st.transaction
    def count(values: Any, rows: Any) -> Any:
        values[rows] += 1
        return values[rows]

    def work(worker: Any, counts: Any) -> Iterator[None]:
        for turn in range(1 + 2 * worker.part):
            pending = counts.submit(count, np.arange(6))
            yield
            assert (pending.value > turn).all()

    for runtime in (st.Serial(), st.Threads(2), st.Simulated(nodes=3, threads=1)):
        counts = st.state(np.zeros(6, "i4"), transactions=[count])
        st.run(st.unit(work, counts, parts=3), runtime=runtime)
        assert counts.array.tolist() == [9] * 6


def test_long_messages_take_several_clocks() -> None:
    size = 100_000

    @st.transaction
    def put(values: Any, rows: Any, new: Any) -> Any:
        old = values[rows]
        values[rows] = new
        return old

    def work(worker: Any, w: Any) -> Iterator[None]:
        if worker.part == 1:
            pending = w.submit(put, np.arange(size), np.arange(size) / 3.0)
        yield
        if worker.part == 1:
            assert (pending.value == 7.0).all()

    w = st.state(np.full(size, 7.0), transactions=[put])
    result = st.run(st.unit(work, w, parts=8), runtime=st.Threads(2))
    assert (w.array == np.arange(size) / 3.0).all()
    assert len(result.stages) == 1


def test_results_come_back_in_the_next_iteration_also_in_another_stage(tmp_path: Path) -> None:
    def learn(folder: Path | None) -> Any:
        stock, sold = st.state(np.full(ROWS, 2.3), transactions=[take]), st.zeros(PARTS, "f8")

        def sell(worker: Any, stock: Any, sold: Any) -> None:
            for amounts in stock.returned:
                sold.add([worker.part], [amounts.sum()])
            stock.submit(take, worker.random().choice(ROWS, 9, replace=False), np.full(9, 0.4))

        options: dict[str, Any] = (
            {} if folder is None else {"checkpoint": str(folder), "checkpoint_every": "1 iterations"}
        )
        result = st.run(st.unit(sell, stock, sold, parts=PARTS, iterations=5), runtime=st.Threads(2), **options)
        return stock.array.tobytes(), sold.array.tobytes(), len(result.stages)

    once, divided = learn(None), learn(tmp_path / "run")
    assert (once[2], divided[2]) == (1, 5)
    assert once[:2] == divided[:2]


@pytest.mark.parametrize("seed", range(3))
def test_doubled_and_lost_messages_change_nothing(seed: int) -> None:
    faults = [st.faults.Reset(k % 3, (k + 1) % 3, at=0.0006 * (k + 1), lost=k % 3, doubled=2) for k in range(6)]
    nodes = st.Simulated(nodes=3, threads=1, seed=seed, jitter=0.5, faults=faults)
    stock, sold = st.state(np.full(ROWS, 2.3), transactions=[take]), st.zeros(PARTS, "f8")
    result = st.run(st.unit(buy, stock, sold, parts=PARTS, iterations=3), runtime=nodes, record="full")
    assert (stock.array.tobytes(), sold.array.tobytes()) == bought("serial")
    for stage in result.stages:
        check_replay(stage.recording)


# -- states and messages -----------------------------------------------------------------------------------------------


def test_a_state_with_transactions_starts_anew_and_is_copied() -> None:
    stock = st.state([0.1, 0.1], transactions=[take])
    assert stock.copy().transactions == (take,)
    sold = st.zeros(2, "f8")

    def sell(worker: Any, stock: Any, sold: Any) -> Iterator[None]:
        pending = stock.submit(take, [worker.part], 0.04)
        yield
        sold.add([worker.part], pending.value)

    st.run(st.loop(st.unit(sell, stock, sold, parts=2, fresh=[stock]), times=5), runtime=st.Threads(2))
    assert stock.array.tolist() == [0.1 - 0.04] * 2
    assert np.allclose(sold.array, 0.2)


@settings(max_examples=50, deadline=None)
@given(some.lists(some.tuples(some.integers(0, 9), some.lists(some.integers(0, 5), max_size=3)), max_size=4))
def test_messages_are_what_was_sent(shapes: list[tuple[int, list[int]]]) -> None:
    kinds = ["f8", "i4", "?", "f4"]
    entries = [
        (number, [np.arange(n * 2).reshape(n, 2).astype(kinds[n % 4]) for n in sizes]) for number, sizes in shapes
    ]
    found = decode(encode(entries))
    assert [number for number, _ in found] == [number for number, _ in entries]
    for (_, sent), (_, received) in zip(entries, found, strict=True):
        for a, b in zip(sent, received, strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: st.transaction(NO_FUNCTION), "cannot be called"),
        (lambda: st.transaction(take_some, combine=NO_FUNCTION), "combine=3"),
        (lambda: st.state([1.0], transactions=[take_some]), r"give a list of st\.transaction"),
        (lambda: st.state([1.0], transactions=[take, take]), "two have one name"),
        (lambda: st.state([1.0], transactions=[take], replicate=True), "no holder"),
        (lambda: st.state([[1.0]], transactions=[take], partition="columns"), "holders of rows"),
        (lambda: st.state(np.zeros(2, "f2"), transactions=[take]), "f4, f8, i4 or i8"),
        (lambda: st.unit(buy, st.state([1.0], transactions=[take]), st.zeros(1), mode="locked"), "leave out mode="),
        (lambda: st.unit(buy, st.state([1.0], transactions=[take]), st.zeros(1), sync=st.SSP(1)).plan(), "sync=SSP"),
        (
            lambda: st.loop(
                st.unit(buy, st.state([1.0], transactions=[take]), st.zeros(1)), times=2, sync=st.ASP()
            ).plan(),
            "end of a clock",
        ),
    ],
)
def test_refusals(make: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        make()


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda w: w.add([0], [1.0]), "changed by its transactions alone"),
        (lambda w: w.submit("give", [0]), "there is no transaction 'give'"),
        (lambda w: w.submit(take, [0, 0], 1.0), "a row occurs twice"),
        (lambda w: w.submit(take, [9], 1.0), "integers from 0 to 3"),
        (lambda w: w.submit(take, [0, 1], [1.0, 2.0, 3.0]), r"\[\[3\]\] for 2 rows"),
        (lambda w: w.submit(take, [0], "much"), "send numbers"),
        (lambda w: w.submit(take, [0], 1.0).value, "comes with the next exchange"),
        (lambda w: w.submit("fails", [3]), "transaction fails of part 0 failed at part 1, which holds its rows"),
        (lambda w: w.submit("wrong", [3]), "return one for each row"),
        (lambda w: w.submit("lost", [2, 3]), "each of its rows once"),
    ],
)
def test_wrong_uses(use: Any, words: str) -> None:
    fails = st.transaction(lambda values, rows: 1 / 0, name="fails")
    wrong = st.transaction(lambda values, rows: np.zeros(5), name="wrong")
    lost = st.transaction(lambda values, rows: None, combine=lambda rows: rows[:1], name="lost")

    def work(worker: Any, w: Any) -> None:
        if worker.part == 0:
            use(w)

    w = st.state(np.zeros(4), transactions=[take, fails, wrong, lost])
    with pytest.raises(RunError, match=words):
        st.run(st.unit(work, w, parts=2), runtime=st.Serial())
