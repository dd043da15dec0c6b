"""Shards: versions and their snapshots, and what is pushed between clocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shard_made import (
    FAST,
    Sender,
    dropped,
    ended,
    fetch,
    is_dirty,
    one_table,
    rows_in,
    told,
    versions_in,
)
from stretto.comm.messages import Rows
from stretto.comm.policy import Eager, Lazy, Managed, Policy
from stretto.consistency.rules import BSP, SSP, Rule
from stretto.errors import RunError
from stretto.store.layout import Layout, TableSpec
from stretto.store.shard.functions import adarevision
from stretto.store.shard.shard import Shard
from stretto.store.shard.table import ShardTable

# --- 7: versions ------------------------------------------------------------------------------------------------------


def versioned(
    nodes: int = 2, snapshots: int | None = None, policy: Policy = FAST, **spec: Any
) -> tuple[Shard, list[Sender], ShardTable]:
    layout = one_table(adarevision(0.1, snapshots), nodes=nodes, policy=policy, **spec)
    shard = Shard(layout, 0)
    return shard, [Sender(layout, node) for node in range(nodes)], shard.tables[0]


def kept(table: ShardTable) -> list[tuple[int, int, int]]:
    """(key, version, nodes)."""
    assert table.snapshots is not None
    assert len(table.snapshots) == len(table.snapshots.kept())
    return [(int(table.keys[slot]), version, nodes) for slot, version, nodes in table.snapshots.kept()]


def test_a_version_is_given_when_a_changed_row_is_sent() -> None:
    shard, (zero, _), table = versioned()
    assert versions_in(shard.receive(fetch(0, [5])), 0) == {5: 0}
    assert versions_in(shard.receive(fetch(1, [5])), 1) == {5: 0}  # not changed: the same version
    assert kept(table) == [(5, 0, 2)]
    shard.receive(zero(0, [5], [1.0], versions=[0]))
    shard.receive(zero(0, [5], [1.0], versions=[0]))  # nobody has seen what was in between
    assert versions_in(shard.pick(10), 1) == {5: 1}
    assert kept(table) == [(5, 0, 2), (5, 1, 2)]


def test_a_snapshot_goes_with_its_last_reference() -> None:
    shard, (zero, one), table = versioned()
    for node in (0, 1):
        shard.receive(fetch(node, [5]))
    shard.receive(zero(0, [5], [1.0], versions=[0]))
    shard.pick(10)
    shard.receive(ended(0, 1, released={5: 0}))
    assert kept(table) == [(5, 0, 1), (5, 1, 2)]
    shard.receive(one(0, [5], [1.0], versions=[0]))  # node 1 may still
    shard.receive(ended(1, 1, released={5: 0}))  # its row is pushed as version 2 in answer
    assert kept(table) == [(5, 1, 2), (5, 2, 2)]
    with pytest.raises(
        RunError, match=r"node 1 sent a change of row 5 computed from version 0, of which nothing is kept"
    ):
        shard.receive(one(1, [5], [1.0], versions=[0]))
    shard.receive(dropped(1, [5], [1]))  # version 2, under way to it, with it
    assert kept(table) == [(5, 1, 1), (5, 2, 1)]
    shard.receive(ended(0, 2, released={5: 1}))
    shard.receive(dropped(0, [5], [2]))
    assert kept(table) == []


def test_a_reference_is_counted_once_however_often_a_version_is_sent() -> None:
    shard, _, table = versioned(policy=Lazy())
    for _ in range(3):
        shard.receive(fetch(0, [5]))
    assert kept(table) == [(5, 0, 1)]
    shard.receive(ended(0, 1, released={5: 0}))
    shard.receive(ended(0, 2, released={5: 0}))  # twice does no harm
    assert kept(table) == []
    assert versions_in(shard.receive(fetch(0, [5])), 0) == {5: 0}  # and can be taken up again
    assert kept(table) == [(5, 0, 1)]


def test_a_change_without_a_version_saw_the_row_as_it_is() -> None:
    shard, (zero, one), _ = versioned(cols=1, dtype="f8")
    shard.receive(fetch(0, [5]))
    shard.receive(zero(0, [5], [[3.0]], versions=[0]))
    shard.receive(one(0, [5], [[4.0]], versions=[-1]))  # b = 0: z = 1 + 9 + 16
    assert shard.states(0)[1].tolist() == [[26.0]]


def test_between_clocks_the_bound_on_snapshots_is_kept() -> None:
    shard, (zero, _), table = versioned(snapshots=5)
    for node in (0, 1):
        shard.receive(fetch(node, [1, 2, 3]))
    shard.receive(zero(0, [1, 2, 3], [1.0, 3.0, 2.0], versions=[0, 0, 0]))
    assert is_dirty(shard)
    assert versions_in(shard.pick(100), 0) == {2: 1, 3: 1}  # the two that went farthest
    assert shard.pick(100) == []
    assert not is_dirty(shard)
    shard.receive(ended(0, 1))
    assert len(kept(table)) == 5
    assert versions_in(shard.receive(ended(1, 1, released={2: 0})), 0) == {1: 1}  # the end of a clock asks nobody
    shard.receive(zero(1, [1, 2], [1.0, 2.0], versions=[1, 1]))
    assert len(kept(table)) == 6
    assert shard.pick(100) == []
    shard.receive(ended(0, 2, released={1: 0, 2: 0, 3: 0}))  # row 2 as 0 was the last one's
    assert is_dirty(shard)
    assert len(kept(table)) == 5
    assert shard.pick(100) == []
    shard.receive(dropped(1, [3], [0]))
    assert len(kept(table)) == 4
    assert versions_in(shard.pick(100), 1) == {1: 2}  # its step was 1/√3, that of row 2 was 2/√14


def test_no_snapshot_leaks() -> None:
    """Thousands of versions of many rows come and go; nothing is left, and no space is reserved for all of them."""
    rng = np.random.default_rng(2)
    shard, senders, table = versioned(nodes=9)
    holds: list[dict[int, list[int]]] = [{} for _ in senders]

    def take(answers: Any) -> None:
        for node, message in answers:
            if isinstance(message, Rows):
                assert message.versions is not None
                for key, version in zip(message.keys.tolist(), message.versions.tolist(), strict=True):
                    if version not in holds[node].setdefault(key, []):
                        holds[node][key].append(version)

    for node in range(9):
        take(shard.receive(fetch(node, list(range(40)))))
    for clock in range(1, 30):
        for node, send in enumerate(senders):
            keys = rng.choice(40, 15, replace=False).tolist()
            shard.receive(send(clock - 1, keys, rng.normal(size=(15, 2)), versions=[holds[node][k][-1] for k in keys]))
            take(shard.pick(200))
        for node in range(9):
            old = {key: mine.pop(0) for key, mine in holds[node].items() if len(mine) > 1}
            while old:
                shard.tables[0].release(
                    node, *(np.array(x) for x in (list(old), np.array(list(old.values()), np.int32)))
                )
                old = {key: mine.pop(0) for key, mine in holds[node].items() if len(mine) > 1}
            take(shard.receive(ended(node, clock)))
    assert table.snapshots is not None
    assert int(table.columns.version[: table.used].max()) > 100
    assert len(table.snapshots._data) <= 1024
    for node, mine in enumerate(holds):
        for key, versions in mine.items():
            for version in versions:
                shard.receive(ended(node, 30, released={key: version}))
    assert len(table.snapshots) == 0
    assert table.snapshots.kept() == []


# --- 8: between clocks ------------------------------------------------------------------------------------------------


def managed(rank: Any = "absolute", nodes: int = 3, **given: Any) -> tuple[Shard, Sender]:
    layout = one_table(nodes=nodes, policy=Managed("1Gbit", rank=rank), **given)
    return Shard(layout, 0), Sender(layout, 0)


def test_the_weightiest_changes_go_first_to_every_holder() -> None:
    shard, send = managed()
    shard.receive(fetch(0, [1, 2, 3]))
    shard.receive(fetch(2, [2, 3]))
    shard.receive(send(0, [1, 2, 3], [5.0, -7.0, 1.0]))
    assert is_dirty(shard)
    assert told(shard.pick(3)) == ["0 rows 2,1 =0 seen 1", "2 rows 2 =0 seen 0"]
    assert told(shard.pick(3)) == ["0 rows 3 =0 seen 1", "2 rows 3 =0 seen 0"]
    assert not is_dirty(shard)
    assert shard.pick(3) == []
    shard.receive(send(0, [3], [1.0]))
    for node in range(3):
        answers = shard.receive(ended(node, 1))
    assert rows_in(answers, 0) == rows_in(answers, 2) == {3: [2.0, 2.0]}  # what was picked is not sent again


def test_small_steps_add_up() -> None:
    shard, send = managed()
    shard.receive(fetch(0, [1, 2]))
    for sign in (1, -1, 1, -1):
        shard.receive(send(0, [1], [sign * 2.0]))
    shard.receive(send(0, [2], [3.0]))
    assert told(shard.pick(1)) == ["0 rows 1 =0 seen 5"]


def test_relative_to_what_a_row_holds() -> None:
    start = np.zeros((100, 2), "f4")
    start[1], start[2] = 100.0, 1.0
    shard, send = managed("relative", start=start)
    shard.receive(fetch(0, [1, 2, 3]))
    shard.receive(send(0, [1, 2, 3], [10.0, 1.0, 0.2]))  # 20/220, 2/4, and 0.4 / 0.4
    assert [list(rows.keys) for _, rows in shard.pick(1)] == [[3]]
    assert [list(rows.keys) for _, rows in shard.pick(1)] == [[2]]


def test_in_turn() -> None:
    shard, send = managed("round-robin")
    shard.receive(fetch(0, list(range(10))))
    for _ in range(3):
        shard.receive(send(0, list(range(10)), np.ones((10, 2))))
    assert [rows.keys.tolist() for _, rows in shard.pick(4)] == [[0, 1, 2, 3]]
    shard.receive(send(0, [0, 1], [9.0, 9.0]))
    assert [rows.keys.tolist() for _, rows in shard.pick(4)] == [[4, 5, 6, 7]]
    assert [rows.keys.tolist() for _, rows in shard.pick(4)] == [[8, 9, 0, 1]]


def test_at_random_but_the_same_each_time() -> None:
    picks = []
    for _ in range(2):
        shard, send = managed("random")
        shard.receive(fetch(0, list(range(50))))
        shard.receive(send(0, list(range(50)), np.ones((50, 2))))
        picks.append([rows.keys.tolist() for _ in range(3) for _, rows in shard.pick(5)])
    assert picks[0] == picks[1]
    assert len({key for keys in picks[0] for key in keys}) == 15


def test_a_rank_of_the_users() -> None:
    shard, send = managed(lambda moved, size: -size[:, 0])
    shard.receive(fetch(0, [1, 2]))
    shard.receive(send(0, [1, 2], [5.0, 1.0]))
    assert [rows.keys.tolist() for _, rows in shard.pick(1)] == [[2]]


def test_links_that_are_closed_are_left_out() -> None:
    shard, send = managed()
    for node in range(3):
        shard.receive(fetch(node, [1, 2]))
    shard.receive(send(0, [1, 2], [5.0, 1.0]))
    shard.open = np.array([True, True, False])
    assert told(shard.pick(2)) == ["0 rows 1 =0 seen 1", "1 rows 1 =0 seen 0"]
    shard.receive(send(0, [1], [1.0]))
    shard.open[:] = True
    assert rows_in(shard.pick(100), 2) == {1: [6.0, 6.0], 2: [1.0, 1.0]}


def test_tables_take_turns() -> None:
    specs = tuple(TableSpec(name, one_table().tables[0].apply, rows=10, shards=(0,)) for name in ("a", "b"))
    layout = Layout(specs, 1, 1, SSP(1), FAST)
    shard, send = Shard(layout, 0), Sender(layout, 0)
    for table in (0, 1):
        shard.receive(fetch(0, list(range(10)), table=table))
        shard.receive(send(0, list(range(10)), np.ones((10, 1)), table=table))
    assert [[rows.table for _, rows in shard.pick(5)] for _ in range(4)] == [[0], [1], [0], [1]]
    shard.receive(send(0, [1], [1.0], table=0))
    shard.receive(send(0, [1], [1.0], table=1))
    assert sorted(rows.table for _, rows in shard.pick(5)) == [0, 1]


@pytest.mark.parametrize(("rule_", "policy"), [(BSP(), FAST), (SSP(1), Eager()), (SSP(1), Lazy())])
def test_otherwise_nothing_is_picked(rule_: Rule, policy: Policy) -> None:
    layout = one_table(rule=rule_, policy=policy, nodes=1)
    shard, send = Shard(layout, 0), Sender(layout, 0)
    shard.receive(fetch(0, [1]))
    shard.receive(send(0, [1], [1.0], worker=0 if rule_.exact else -1))
    assert not is_dirty(shard)
    assert shard.pick(10) == []


def test_bursts_bound_messages() -> None:
    layout = one_table(policy=Managed("1Gbit", burst=(7, 3)))
    shard, send = Shard(layout, 0), Sender(layout, 0)
    replies = shard.receive(fetch(0, list(range(8))))
    assert [len(rows.keys) for _, rows in replies if isinstance(rows, Rows)] == [3, 3, 2]
    shard.receive(send(0, list(range(8)), np.ones((8, 2))))
    shard.receive(ended(0, 1))
    pushed = [message for _, message in shard.receive(ended(1, 1)) if isinstance(message, Rows)]
    assert [len(rows.keys) for rows in pushed] == [3, 3, 2]
    assert rows_in([(0, rows) for rows in pushed]) == {key: [1.0, 1.0] for key in range(8)}
