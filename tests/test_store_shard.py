"""Shards, by the points of the protocol: clocks, reads, exact runs, dtypes. What comes out for what goes in."""

from __future__ import annotations

import numpy as np
import pytest

from shard_made import (
    Sender,
    by_key,
    dropped,
    ended,
    fetch,
    one_table,
    rows_in,
    told,
)
from stretto.comm.messages import Rows
from stretto.comm.policy import Lazy, Managed
from stretto.consistency.rules import ASP, BSP, SSP, Rule
from stretto.errors import RunError
from stretto.store.shard.functions import adarevision
from stretto.store.shard.shard import Shard

# --- 4 and 5: bounded staleness --------------------------------------------------------------------------------------


def test_a_run_of_two_nodes_message_by_message() -> None:
    """Golden: who receives what, in which order, under SSP(1) and the eager policy."""
    layout = one_table(start=5.0)
    shard, zero, one = Shard(layout, 0), Sender(layout, 0), Sender(layout, 1)
    log: list[str] = []
    for message in (
        fetch(0, [1, 2]),
        fetch(1, [2]),
        zero(0, [1, 2, 3], [1.0, 1.0, 1.0]),
        ended(0, 1),
        fetch(0, [3], need=1),  # node 1 is still in clock 0
        one(0, [3], [10.0]),
        ended(1, 1),
        ended(0, 2),
        ended(1, 2),  # nothing changed
    ):
        log += [f"{type(message).__name__}:", *told(shard.receive(message))]
    assert log == [
        "Fetch:", "0 reply 1,2 =0 seen 0",
        "Fetch:", "1 reply 2 =0 seen 0",
        "Update:", "NodeClock:", "Fetch:", "Update:",
        "NodeClock:", "1 rows 2 =1 seen 1", "1 clock 1 seen 1",
        "0 reply 3 =1 seen 1", "0 rows 1,2 =1 seen 1", "0 clock 1 seen 1",
        "NodeClock:",
        "NodeClock:", "1 clock 2 seen 1", "0 clock 2 seen 1",
    ]  # fmt: skip
    assert by_key(*shard.table(0)) == {1: [6.0, 6.0], 2: [6.0, 6.0], 3: [16.0, 16.0]}


def test_updates_are_applied_on_arrival_and_counted() -> None:
    layout = one_table()
    shard, send = Shard(layout, 0), Sender(layout, 0)
    shard.receive(send(0, [1], [1.0]))
    shard.receive(send(3, [1], [1.0]))  # of a later clock: fresher than the floor is allowed
    answers = shard.receive(fetch(0, [1]))
    assert told(answers) == ["0 reply 1 =0 seen 2"]
    assert rows_in(answers) == {1: [2.0, 2.0]}
    assert told(shard.receive(fetch(1, [1]))) == ["1 reply 1 =0 seen 0"]


def test_a_row_is_pushed_once_for_each_change_and_only_to_holders() -> None:
    layout = one_table(nodes=3)
    shard, send = Shard(layout, 0), Sender(layout, 0)
    shard.receive(fetch(1, [1]))
    shard.receive(send(0, [1, 2], [1.0, 1.0]))
    for node in range(3):
        answers = shard.receive(ended(node, 1))
    assert told(answers) == ["1 rows 1 =1 seen 0", "1 clock 1 seen 0", "2 clock 1 seen 0", "0 clock 1 seen 1"]
    shard.receive(dropped(1, [1]))
    shard.receive(send(1, [1], [1.0]))
    for node in range(3):
        answers = shard.receive(ended(node, 2))
    assert not rows_in(answers)


def test_parked_reads_wait_for_the_clock_they_need() -> None:
    layout = one_table(rule=SSP(0))
    shard = Shard(layout, 0)
    for need in (2, 1, 2):
        assert shard.receive(fetch(0, [need + 10], need=need)) == []
    shard.receive(ended(0, 2))
    assert told(shard.receive(ended(1, 1))) == ["1 clock 1 seen 0", "0 reply 11 =1 seen 0", "0 clock 1 seen 0"]
    assert told(shard.receive(ended(1, 2)))[1:3] == ["0 reply 12 =2 seen 0", "0 reply 12 =2 seen 0"]


def test_clock_0_is_served_from_start_values() -> None:
    start = np.arange(200.0, dtype="f4").reshape(100, 2)
    shard = Shard(one_table(start=start, rule=BSP()), 0)
    assert rows_in(shard.receive(fetch(1, [99, 0]))) == {99: [198.0, 199.0], 0: [0.0, 1.0]}


def test_asp_never_waits() -> None:
    layout = one_table(rule=ASP())
    shard, send = Shard(layout, 0), Sender(layout, 0)
    shard.receive(send(7, [1], [1.0]))
    assert told(shard.receive(fetch(1, [1], need=ASP().need(9)))) == ["1 reply 1 =0 seen 0"]


def test_a_node_without_workers_holds_nobody_back() -> None:
    layout = one_table(nodes=3, workers=2)
    assert [len(layout.workers_of(node)) for node in range(3)] == [1, 1, 0]
    shard = Shard(layout, 0)
    shard.receive(ended(0, 1))
    assert "2 clock 1 seen 0" in told(shard.receive(ended(1, 1)))


def test_lazy_sends_rows_only_when_asked_and_asks_for_updates_once() -> None:
    layout = one_table(nodes=3, policy=Lazy(), rule=SSP(0))
    shard, send = Shard(layout, 0), Sender(layout, 2)
    assert told(shard.receive(fetch(0, [1]))) == ["0 reply 1 =0 seen 0"]
    shard.receive(ended(0, 1))
    assert told(shard.receive(fetch(0, [1], need=1))) == ["1 demand 1", "2 demand 1"]
    assert shard.receive(fetch(0, [2], need=1)) == []
    shard.receive(send(0, [1], [2.0]))
    shard.receive(ended(1, 1))
    answers = shard.receive(ended(2, 1))
    assert told(answers)[-3:] == ["0 reply 1 =1 seen 0", "0 reply 2 =1 seen 0", "0 clock 1 seen 0"]
    assert rows_in(answers, 0) == {1: [2.0, 2.0], 2: [0.0, 0.0]}
    shard.receive(send(1, [1], [2.0]))
    for node in range(3):
        answers = shard.receive(ended(node, 2))
    assert not rows_in(answers)  # node 0 has the row, and receives nothing


# --- 4: exact runs ----------------------------------------------------------------------------------------------------


def test_a_clock_is_applied_in_the_order_of_workers() -> None:
    """In f4, 1e8 + 1 − 1e8 is 0 and 1e8 − 1e8 + 1 is 1: order shows."""
    layout = one_table(rule=BSP(), workers=4)
    shard, zero, one = Shard(layout, 0), Sender(layout, 0), Sender(layout, 1)
    shard.receive(one(0, [1], [1.0], worker=3))
    shard.receive(one(0, [1], [-1e8], worker=2))
    shard.receive(ended(1, 1))
    shard.receive(zero(0, [1], [0.0], worker=1))
    shard.receive(zero(0, [1], [1e8], worker=0))
    assert len(shard.table(0)[0]) == 0  # nothing before the clock closes
    shard.receive(ended(0, 1))
    assert by_key(*shard.table(0)) == {1: [1.0, 1.0]}
    shard.receive(zero(1, [1], [1e8], worker=0))
    shard.receive(zero(1, [1], [1.0], worker=1))
    shard.receive(one(1, [1], [-1e8], worker=2))
    shard.receive(ended(0, 2))
    shard.receive(ended(1, 2))
    assert by_key(*shard.table(0)) == {1: [0.0, 0.0]}


def test_early_sends_of_an_exact_run_are_replaced() -> None:
    """The same rows with and without them, however many there were, and only of their own worker and clock."""
    rng = np.random.default_rng(1)
    layout = one_table(rule=BSP(), nodes=1, workers=3, dtype="f4", witness=True)
    plain, early = Shard(layout, 0), Shard(layout, 0)
    send_plain, send_early = Sender(layout, 0), Sender(layout, 0)
    for clock in range(3):
        for worker in range(3):
            keys = rng.choice(100, 10, replace=False).tolist()
            final = rng.normal(size=(10, 2))
            witness = np.eye(3, dtype=np.int32)[[worker] * 10]
            early.receive(send_early(clock, keys[:5], final[:5], worker=worker, witness=witness[:5]))
            for _ in range(20):  # more than are kept apart
                some = rng.choice(keys[5:], 3, replace=False).tolist()
                early.receive(send_early(clock, some, rng.normal(size=(3, 2)), worker=worker, witness=witness[:3] * 9))
            early.receive(send_early(clock, keys[5:], final[5:], worker=worker, witness=witness[5:]))
            plain.receive(send_plain(clock, keys, final, worker=worker, witness=witness))
        first, second = plain.receive(ended(0, clock + 1)), early.receive(ended(0, clock + 1))
        assert told(second)[-1] == f"0 clock {clock + 1} seen {send_early.number}"
        assert told(first)[-1] == f"0 clock {clock + 1} seen {send_plain.number}"
    assert by_key(*plain.table(0)) == by_key(*early.table(0))
    assert by_key(*plain.witness(0)) == by_key(*early.witness(0))


def test_held_messages_do_not_pile_up() -> None:
    layout = one_table(rule=BSP(), nodes=1)
    shard, send = Shard(layout, 0), Sender(layout, 0)
    for k in range(1000):
        shard.receive(send(0, [1, 2, 3], [k, k, k], worker=0))
    held = shard._held
    assert held is not None
    assert sum(len(batch.keys) for batch in held.batches(0, 0, None)) <= 30
    shard.receive(ended(0, 1))
    assert by_key(*shard.table(0)) == {key: [999.0, 999.0] for key in (1, 2, 3)}


def test_a_clock_closes_in_batches_of_whole_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = one_table(rule=BSP(), nodes=1, workers=6)
    whole, cut = Shard(layout, 0), Shard(layout, 0)
    rng = np.random.default_rng(5)
    updates = [(worker, rng.choice(100, 30, replace=False).tolist(), rng.normal(size=(30, 2))) for worker in range(6)]
    for shard in (whole, cut):
        send = Sender(layout, 0)
        for worker, keys, deltas in updates:
            shard.receive(send(0, keys, deltas, worker=worker))
    held = cut._held
    assert held is not None
    assert [len(batch.keys) for batch in held.batches(0, 0, 50)] == [60, 60, 60]
    monkeypatch.setattr("stretto.store.shard.shard._BATCH", 50)
    cut.receive(ended(0, 1))
    monkeypatch.undo()
    whole.receive(ended(0, 1))
    assert by_key(*whole.table(0)) == by_key(*cut.table(0))


@pytest.mark.parametrize("batch", [1, 1000])
def test_versioned_rows_of_an_exact_run_are_as_the_clock_opened_them(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the versions were named: else bits would depend on when a push came."""
    monkeypatch.setattr("stretto.store.shard.shard._BATCH", batch)
    layout = one_table(adarevision(1.0), rule=BSP(), nodes=1, workers=2, cols=1, dtype="f8")
    shard, send = Shard(layout, 0), Sender(layout, 0)
    sums, w, z, largest = 0.0, 0.0, 1.0, 1.0
    rng = np.random.default_rng(0)
    for clock in range(4):
        opened = sums
        for worker in (0, 1):
            g = float(rng.normal())
            shard.receive(send(clock, [1], [[g]], worker=worker))
            b, before = sums - opened, 1 / np.sqrt(largest)
            z += g * g + 2 * g * b
            largest = max(largest, z)
            w += (before - 1 / np.sqrt(largest)) * b - g / np.sqrt(largest)
            sums += g
        answers = shard.receive(ended(0, clock + 1))
        assert all(not isinstance(message, Rows) or message.versions is None for _, message in answers)
    assert shard.table(0)[1][0, 0] == pytest.approx(w, rel=1e-14)
    assert shard.tables[0].snapshots is None


def test_an_exact_run_takes_changes_of_single_workers_only() -> None:
    layout = one_table(rule=BSP())
    with pytest.raises(RunError, match=r"node 1 sent changes of clock 0 that name no worker"):
        Shard(layout, 0).receive(Sender(layout, 1)(0, [1], [1.0]))


# --- dtypes, sizes, space ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "i4", "i8", "f4", "f2"])
@pytest.mark.parametrize("rule_", [SSP(1), BSP()], ids=["SSP", "BSP"])
def test_dtypes(dtype: str, rule_: Rule) -> None:
    layout = one_table(dtype=dtype, rule=rule_, nodes=1, start=3)
    shard, send = Shard(layout, 0), Sender(layout, 0)
    large = {"i8": 2**60, "i4": 2**30, "f8": 2.0**-50, "f4": 2.0**-20, "f2": 2.0**-20}[dtype]
    shard.receive(fetch(0, [1]))
    shard.receive(send(0, [1], np.array([[large, 1]]), worker=0 if rule_.exact else -1))
    answers = shard.receive(ended(0, 1))
    rows = next(message for _, message in answers if isinstance(message, Rows))
    assert rows.values.dtype == layout.tables[0].kept
    assert shard.table(0)[1].tolist() == [[3 + large, 4]]
    assert rows.values.tolist() == [[3.0 if dtype == "f2" else 3 + large, 4]]  # f2 tables are summed as f4
    value = {"f2": 2, "i4": 4, "f4": 4}.get(dtype, 8)
    assert rows.nbytes == 48 + 8 + 2 * value


def test_rows_travel_as_16_bit_floats_and_are_kept_as_they_are() -> None:
    layout = one_table(policy=Managed("1Gbit", codec="f2"), start=0.1)
    shard = Shard(layout, 0)
    [(_, rows)] = shard.receive(fetch(0, [1]))
    assert isinstance(rows, Rows)
    assert rows.values.tolist() == [[float(np.float16(0.1))] * 2]
    assert rows.nbytes == 48 + 8 + 2 * 2
    assert shard.table(0)[1].tolist() == [[float(np.float32(0.1))] * 2]


def test_messages_hold_copies() -> None:
    layout = one_table()
    shard, send = Shard(layout, 0), Sender(layout, 0)
    first = shard.receive(fetch(0, [1]))
    update = send(0, [1], [1.0])
    shard.receive(update)
    update.deltas[:] = 99
    assert rows_in(first) == {1: [0.0, 0.0]}
    assert by_key(*shard.table(0)) == {1: [1.0, 1.0]}


def test_any_keys_and_many_of_them() -> None:
    layout = one_table(rows=None, cols=1, dtype="i8", nodes=3)
    shard, send = Shard(layout, 0), Sender(layout, 0)
    rng = np.random.default_rng(0)
    keys = rng.integers(-(2**63), 2**63 - 1, size=5000)
    keys[:2] = (-(2**63), 2**63 - 1)
    for part in np.array_split(keys, 7):
        shard.receive(send(0, part.tolist(), part[:, None] // 2))
        shard.receive(fetch(2, part.tolist()))
    assert by_key(*shard.table(0)) == {key: [key // 2] for key in keys.tolist()}
    shard.receive(send(0, keys.tolist(), np.ones((5000, 1), dtype=np.int64)))
    for node in range(3):
        answers = shard.receive(ended(node, 1))
    assert rows_in(answers, 2) == {key: [key // 2 + 1] for key in keys.tolist()}
