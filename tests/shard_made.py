"""Layouts, messages and short ways to read answers, for tests of shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Announce, Dropped, Fetch, NodeClock, Rows, ShardClock, ToCache, Update
from stretto.comm.policy import Eager, Managed, Policy
from stretto.consistency.rules import SSP, Rule
from stretto.store.layout import Layout, TableSpec
from stretto.store.shard.functions import ServerFunction, add
from stretto.store.shard.shard import Shard

FAST = Managed("1Gbit", burst=(100, 100), rank="absolute")


def one_table(
    apply: ServerFunction = add,
    *,
    nodes: int = 2,
    workers: int | None = None,
    rule: Rule | None = None,
    policy: Policy | None = None,
    witness: bool = False,
    **spec: Any,
) -> Layout:
    """A layout with one table, "w", all of whose rows are in shard 0."""
    table = TableSpec("w", apply, shards=(0,), **({"rows": 100, "cols": 2} | spec))
    return Layout(
        (table,),
        nodes,
        nodes if workers is None else workers,
        SSP(1) if rule is None else rule,
        Eager() if policy is None else policy,
        witness,
    )


class Sender:
    """Makes the Updates of a node, counted as they should be."""

    def __init__(self, layout: Layout, node: int) -> None:
        self.layout, self.node, self.number = layout, node, 0

    def __call__(
        self,
        clock: int,
        keys: Sequence[int],
        deltas: Any,
        *,
        worker: int = -1,
        versions: Sequence[int] | None = None,
        table: int = 0,
        witness: Any = None,
    ) -> Update:
        self.number += 1
        spec = self.layout.tables[table]
        values = np.asarray(deltas, dtype=spec.kept)
        if values.ndim < 2:
            values = np.broadcast_to(values.reshape(-1, 1), (len(keys), spec.cols))
        return Update(
            table,
            self.node,
            self.number,
            clock,
            worker,
            np.array(keys, dtype=np.int64),
            np.ascontiguousarray(values),
            nbytes=0,
            running=worker >= 0,
            versions=None if versions is None else np.array(versions, dtype=np.int32),
            witness=None if witness is None else np.array(witness, dtype=np.int32),
        )


def fetch(node: int, keys: Sequence[int], need: int = 0, table: int = 0) -> Fetch:
    return Fetch(node, table, np.array(keys, dtype=np.int64), need)


def ended(node: int, clock: int, released: dict[int, int] | None = None, table: int = 0) -> NodeClock:
    """The node's clock, giving back {key: version}."""
    given = released or {}
    keys = np.array(list(given), dtype=np.int64)
    versions = np.array(list(given.values()), dtype=np.int32)
    return NodeClock(node, clock, ((table, keys, versions),) if given else ())


def told(answers: Sequence[tuple[int, ToCache]]) -> list[str]:
    """Answers in short: '1 rows 3,5 =2 seen 4' for pushed rows, 'reply' for replies; '0 clock 2 seen 4'."""
    found = []
    for node, message in answers:
        if isinstance(message, Rows):
            kind = "reply" if message.reply else "rows"
            keys = ",".join(map(str, message.keys.tolist()))
            found.append(f"{node} {kind} {keys} ={message.through} seen {message.seen}")
        elif isinstance(message, ShardClock):
            found.append(f"{node} clock {message.clock} seen {message.seen}")
        else:
            found.append(f"{node} demand {message.need}")
    return found


def rows_in(answers: Sequence[tuple[int, ToCache]], node: int | None = None) -> dict[int, list[Any]]:
    """{key: row as a list} of all Rows for a node; later ones win."""
    found: dict[int, list[Any]] = {}
    for target, message in answers:
        if isinstance(message, Rows) and node in (None, target):
            found |= dict(zip(message.keys.tolist(), message.values.tolist(), strict=True))
    return found


def versions_in(answers: Sequence[tuple[int, ToCache]], node: int) -> dict[int, int]:
    """{key: version} of all Rows for a node."""
    found: dict[int, int] = {}
    for target, message in answers:
        if isinstance(message, Rows) and target == node:
            assert message.versions is not None
            found |= dict(zip(message.keys.tolist(), message.versions.tolist(), strict=True))
    return found


def is_dirty(shard: Shard) -> bool:
    return shard.dirty


def saving(shard: Shard) -> int | None:
    return shard.saving


def dropped(node: int, keys: Sequence[int], versions: Sequence[int] | None = None) -> Dropped:
    given = None if versions is None else np.array(versions, dtype=np.int32)
    return Dropped(node, 0, np.array(keys, dtype=np.int64), given)


def announce(node: int, clock: int, keys: Sequence[int]) -> Announce:
    return Announce(node, 0, clock, np.array(keys, dtype=np.int64))


def cut_rows(arrays: dict[str, Any] | None) -> dict[int, list[Any]]:
    """{key: row as a list} of table "w" in a checkpoint."""
    assert arrays is not None
    return by_key(arrays["w/keys"], arrays["w/values"])


def by_key(keys: NDArray[np.int64], values: NDArray[Any]) -> dict[int, list[Any]]:
    """{key: row as a list}."""
    return dict(zip(keys.tolist(), values.tolist(), strict=True))
