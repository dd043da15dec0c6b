"""Shards: checkpoints while training goes on, and reads past the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shard_made import (
    Sender,
    announce,
    by_key,
    cut_rows,
    ended,
    fetch,
    one_table,
    rows_in,
    saving,
    told,
    versions_in,
)
from stretto.consistency.rules import BSP, SSP
from stretto.errors import RunError
from stretto.store.shard.functions import adarevision, server_function
from stretto.store.shard.shard import Shard

# --- 10: checkpoints --------------------------------------------------------------------------------------------------


def test_a_cut_holds_the_clocks_before_it_and_nothing_else() -> None:
    layout = one_table(nodes=2, rule=SSP(3))
    shard, zero, one = Shard(layout, 0), Sender(layout, 0), Sender(layout, 1)
    shard.receive(zero(0, [1, 2], [1.0, 1.0]))
    shard.checkpoint(2)
    shard.receive(zero(2, [1, 3], [10.0, 10.0]))  # beyond it: row 1 is copied aside
    shard.receive(one(1, [1, 4], [0.5, 0.5]))  # before it: the row and the copy
    shard.receive(one(3, [2], [10.0]))
    shard.receive(ended(0, 2))
    assert shard.saved() is None
    assert saving(shard) is None
    shard.receive(ended(1, 2))
    assert saving(shard) == 2
    shard.receive(zero(4, [4, 9], [10.0, 10.0]))  # after it was complete
    arrays = shard.saved()
    assert cut_rows(arrays) == {1: [1.5, 1.5], 2: [1.0, 1.0], 3: [0.0, 0.0], 4: [0.5, 0.5]}
    assert shard.saved() is None
    assert by_key(*shard.table(0))[1] == [11.5, 11.5]


def test_a_cut_is_saved_in_pieces_while_training_goes_on() -> None:
    layout = one_table(nodes=1, rule=SSP(2))
    shard, send = Shard(layout, 0), Sender(layout, 0)
    keys = list(range(90))
    shard.receive(send(0, keys, np.ones((90, 2))))
    shard.checkpoint(1)
    shard.receive(ended(0, 1))
    pieces: dict[int, list[Any]] = {}
    sizes = []
    while shard.saving == 1:
        piece = shard.saved_piece(32)
        assert piece is not None
        sizes.append(len(piece["w/keys"]))
        pieces |= by_key(piece["w/keys"], piece["w/values"])
        shard.receive(send(1, keys, np.ones((90, 2))))
        copied = [part._count for cut in shard._cuts for part in cut._parts]
        assert copied == ([90 - 32] if shard.saving else [])  # what was saved first is not copied aside
    assert sizes == [32, 32, 26]
    assert pieces == {key: [1.0, 1.0] for key in keys}
    assert by_key(*shard.table(0))[0] == [4.0, 4.0]


def test_an_exact_run_is_cut_between_its_clocks() -> None:
    layout = one_table(rule=BSP(), nodes=1)
    shard, send = Shard(layout, 0), Sender(layout, 0)
    shard.checkpoint(1)
    for clock in range(2):
        shard.receive(send(clock, [1], [1.0], worker=0))
    shard.receive(ended(0, 2))  # both at once
    assert cut_rows(shard.saved()) == {1: [1.0, 1.0]}
    assert by_key(*shard.table(0)) == {1: [2.0, 2.0]}


def test_a_cut_asked_for_too_late_is_refused() -> None:
    layout = one_table()
    shard, send = Shard(layout, 0), Sender(layout, 0)
    shard.receive(send(3, [1], [1.0]))
    with pytest.raises(
        RunError, match=r"shard 0: a checkpoint at clock 3 was asked for in clock 0, when changes of clock 3"
    ):
        shard.checkpoint(3)
    shard.checkpoint(4)


def test_going_on_from_a_checkpoint() -> None:
    """States and versions too; nobody holds anything, updates are counted from 1."""
    layout = one_table(adarevision(0.1), nodes=2, cols=1, dtype="f8", witness=True)
    shard, send = Shard(layout, 0), Sender(layout, 0)
    for node in (0, 1):
        shard.receive(fetch(node, [1, 2]))
    shard.checkpoint(1)
    seen = np.array([[1, 0]])
    shard.receive(send(0, [1], [[3.0]], versions=[0], witness=seen))
    shard.receive(ended(0, 1))
    shard.receive(ended(1, 1))
    arrays = shard.saved()
    assert arrays is not None
    assert int(arrays["clock"]) == 1
    again = Shard.restore(layout, 0, arrays, 1)
    assert again.clock == 1
    assert by_key(*again.table(0)) == by_key(*shard.table(0))
    assert by_key(*again.witness(0)) == {1: [1, 0], 2: [0, 0]}
    assert [state.tolist() for state in again.states(0)] == [state.tolist() for state in shard.states(0)]
    answers = again.receive(fetch(1, [1, 2], need=1))
    assert told(answers) == ["1 reply 1,2 =1 seen 0"]
    assert versions_in(answers, 1) == {1: 1, 2: 0}
    fresh = Sender(layout, 1)
    again.receive(fresh(1, [1], [[4.0]], versions=[1], witness=seen))
    shard.receive(Sender(layout, 1)(1, [1], [[4.0]], versions=[1], witness=seen))
    assert by_key(*again.table(0)) == by_key(*shard.table(0))
    again.checkpoint(2)
    again.receive(ended(0, 2))
    assert told(again.receive(ended(1, 2))) == ["1 rows 1 =2 seen 1", "1 clock 2 seen 1", "0 clock 2 seen 0"]
    assert saving(again) == 2


def test_states_of_a_cut_go_with_their_rows() -> None:
    """AdaRevision with early and late updates: the cut is what a shard has that never saw the early ones."""
    layout = one_table(adarevision(0.5), nodes=2, dtype="f8", rule=SSP(3))
    shard, only = Shard(layout, 0), Shard(layout, 0)
    rng = np.random.default_rng(4)
    shard.checkpoint(1)
    for k in range(20):
        clock = k % 3
        node = k % 2
        deltas = rng.normal(size=(3, 2))
        keys = rng.choice(6, 3, replace=False).tolist()
        shard.receive(Sender(layout, node)(clock, keys, deltas))
        if clock < 1:
            only.receive(Sender(layout, node)(clock, keys, deltas))
    for node in (0, 1):
        shard.receive(ended(node, 1))
    arrays = shard.saved()
    assert arrays is not None
    wanted = dict(zip(only.table(0)[0].tolist(), np.stack(only.states(0), axis=1).tolist(), strict=True))
    for key, values, state in zip(arrays["w/keys"].tolist(), arrays["w/values"], arrays["w/state"], strict=True):
        if key in wanted:
            assert values.tolist() == by_key(*only.table(0))[key]
            assert state.tolist() == wanted[key]


# --- speculation ------------------------------------------------------------------------------------------------------


def test_rows_that_no_missing_update_touches_are_served_early() -> None:
    layout = one_table(rule=SSP(0, speculate=True))
    shard = Shard(layout, 0)
    shard.receive(ended(0, 2))
    assert shard.receive(fetch(0, [1, 2, 3], need=2)) == []
    assert shard.receive(announce(1, 0, [2])) == []  # clock 1 of node 1 is not known
    assert told(shard.receive(announce(1, 1, [3, 4]))) == ["0 reply 1 =2 seen 0"]
    assert told(shard.receive(ended(1, 1))) == ["1 clock 1 seen 0", "0 clock 1 seen 0", "0 reply 2 =2 seen 0"]
    send = Sender(layout, 1)
    shard.receive(send(1, [3], [5.0]))
    answers = shard.receive(ended(1, 2))
    assert told(answers) == ["1 clock 2 seen 1", "0 reply 3 =2 seen 0", "0 clock 2 seen 0"]
    assert rows_in(answers) == {3: [5.0, 5.0]}


def test_a_row_served_early_is_pushed_when_it_changes() -> None:
    layout = one_table(rule=SSP(0, speculate=True))
    shard = Shard(layout, 0)
    shard.receive(ended(0, 1))
    shard.receive(announce(1, 0, []))
    assert told(shard.receive(fetch(0, [1], need=1))) == ["0 reply 1 =1 seen 0"]
    shard.receive(ended(1, 1))
    shard.receive(Sender(layout, 1)(1, [1], [1.0]))
    shard.receive(ended(0, 2))
    assert "0 rows 1 =2 seen 0" in told(shard.receive(ended(1, 2)))


def test_the_readers_own_node_has_to_announce_too() -> None:
    layout = one_table(rule=SSP(0, speculate=True), nodes=1, workers=2)
    shard = Shard(layout, 0)
    assert shard.receive(fetch(0, [1], need=1)) == []
    assert told(shard.receive(announce(0, 0, [2]))) == ["0 reply 1 =1 seen 0"]


def test_a_change_that_was_not_announced_is_an_error() -> None:
    layout = one_table(rule=SSP(1, speculate=True), nodes=2, workers=4)
    shard, send = Shard(layout, 0), Sender(layout, 1)
    shard.receive(announce(1, 0, [1, 2]))
    shard.receive(send(0, [2], [1.0]))
    shard.receive(send(1, [7], [1.0]))  # nothing was announced for this clock
    with pytest.raises(
        RunError, match=r"node 1 \(workers 2 to 3\) announced 2 rows of table 'w' for clock 0 but added to row 3"
    ):
        shard.receive(send(0, [2, 3], [1.0, 1.0]))
    assert by_key(*shard.table(0))[2] == [1.0, 1.0]
    shard.receive(announce(1, 0, [2]))  # says nothing new
    with pytest.raises(RunError, match=r"node 1 announced clock 0 twice"):
        shard.receive(announce(1, 0, [5]))


def test_announcements_are_forgotten() -> None:
    layout = one_table(rule=SSP(1, speculate=True), nodes=1)
    shard = Shard(layout, 0)
    for clock in range(20):
        shard.receive(announce(0, clock, [clock, 99]))
        shard.receive(ended(0, clock + 1))
    announced = shard._announced
    assert announced is not None
    assert not announced._slots
    assert not announced._waiting
    assert shard.receive(announce(0, 3, [1])) == []
    assert not announced._slots


def test_a_users_function_can_fail_in_a_copy_without_harm() -> None:
    """An update that goes to the row and to the copy of a checkpoint is made in both or in neither."""

    def picky(row, state, delta, old, params):  # type: ignore[no-untyped-def]
        if row[0] == 0.0 and delta[0] == 2.0:
            raise ValueError("not from zero")
        row[0] += delta[0]
        return 1.0

    layout = one_table(server_function(picky), nodes=1, rule=SSP(3), cols=1)
    shard, send = Shard(layout, 0), Sender(layout, 0)
    shard.checkpoint(1)
    shard.receive(send(1, [5], [1.0]))  # the row is 1, its copy 0
    with pytest.raises(RunError, match="not from zero"):
        shard.receive(send(0, [5], [2.0]))
    assert by_key(*shard.table(0)) == {5: [1.0]}
    shard.receive(ended(0, 1))
    assert cut_rows(shard.saved()) == {5: [0.0]}
