"""A shard written down in dictionaries, layouts and short ways to talk to a cache, for tests of caches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import (
    Demand,
    Dropped,
    Fetch,
    NodeClock,
    Rows,
    ShardClock,
    ToCache,
    ToShard,
    Update,
)
from stretto.comm.policy import Eager, Policy
from stretto.consistency.rules import SSP, Rule
from stretto.store.cache.cache import Cache
from stretto.store.layout import Layout, TableSpec
from stretto.store.shard.functions import ServerFunction, add


def layout_of(
    apply: ServerFunction = add,
    *,
    nodes: int = 2,
    workers: int = 3,
    rule: Rule | None = None,
    policy: Policy | None = None,
    witness: bool = False,
    reserve: bool = False,
    **spec: Any,
) -> Layout:
    """One table, "w"; even keys are in shard 0, odd ones in shard 1. Workers 0 and 1 are on node 0 by default."""
    usual: dict[str, Any] = {"rows": 100, "cols": 2, "partition": lambda keys, n: keys % n}
    table = TableSpec("w", apply, **(usual | spec))
    rule = SSP(1) if rule is None else rule
    return Layout((table,), nodes, workers, rule, Eager() if policy is None else policy, witness, reserve)


def keys_of(*keys: int) -> NDArray[np.int64]:
    return np.array(keys, np.int64)


def rows_of(layout: Layout, keys: Sequence[int], values: Any, *, through: int = 0, seen: int = 0, **more: Any) -> Rows:
    """A message with these rows, each filled with one number or given as it is; of the shard of the first."""
    spec = layout.tables[0]
    shard = int(layout.shard_of(0, keys_of(keys[0]))[0])
    filled = np.empty((len(keys), spec.cols), spec.kept)
    filled[:] = np.asarray(values).reshape(len(keys), -1)
    return Rows(0, shard, keys_of(*keys), filled, through, seen, 0, **more)


def read_of(cache: Cache, worker: int, keys: Sequence[int]) -> list[list[float]] | None:
    """What a worker reads, None where it may not."""
    spec = cache.layout.tables[0]
    out = np.full((len(keys), spec.cols), 99, spec.kept)
    if cache.read(worker, 0, keys_of(*keys), out):
        return out.tolist()  # type: ignore[no-any-return]
    assert (out == 99).all()
    return None


def add_to(cache: Cache, worker: int, keys: Sequence[int], deltas: Any) -> None:
    spec = cache.layout.tables[0]
    filled = np.empty((len(keys), spec.cols), spec.kept)
    filled[:] = np.asarray(deltas).reshape(len(keys), -1)
    cache.add(worker, 0, keys_of(*keys), filled)


def holding(layout: Layout, keys: Sequence[int], value: float = 0.0, *, locks: bool = False, **more: Any) -> Cache:
    """The cache of node 0, which holds these rows through clock 0."""
    cache = Cache(layout, 0, locks)
    cache.want(0, 0, keys_of(*keys))
    cache.waiting.clear()
    for shard in range(layout.nodes):
        of = [key for key in keys if layout.shard_of(0, keys_of(key))[0] == shard]
        if of:
            cache.receive(rows_of(layout, of, [value] * len(of), reply=True, **more))
    return cache


def updates_in(messages: Iterable[tuple[int, ToShard]]) -> list[Update]:
    return [message for _, message in messages if isinstance(message, Update)]


def said(messages: list[tuple[int, ToShard]]) -> list[tuple[Any, ...]]:
    """Messages in short: (shard, "clock", c), or (shard, clock, worker, number, {key: first column})."""
    short: list[tuple[Any, ...]] = []
    for shard, message in messages:
        if isinstance(message, NodeClock):
            short.append((shard, "clock", message.clock))
        elif isinstance(message, Update):
            rows = dict(zip(message.keys.tolist(), message.deltas[:, 0].tolist(), strict=True))
            short.append((shard, message.clock, message.worker, message.number, rows))
        else:
            short.append((shard, type(message).__name__, *message.keys.tolist()))
    return short


def asked(messages: list[tuple[int, Fetch]]) -> list[tuple[int, int, list[int]]]:
    return [(shard, fetch.need, fetch.keys.tolist()) for shard, fetch in messages]


class PlainShard:
    """A shard as dictionaries by key, of one table whose changes add up. Only node 0 holds rows of it.

    others: what of a row came from other nodes than 0. out: (message, others of its rows [n, width]) in order.
    """

    def __init__(self, layout: Layout, number: int) -> None:
        self.layout, self.number = layout, number
        self.spec, self.exact, self.lazy = layout.tables[0], layout.rule.exact, layout.policy.lazy
        self.clock = 0
        self.nodes = [0] * layout.nodes
        self.seen = [0] * layout.nodes
        self.rows: dict[int, NDArray[Any]] = {}
        self.others: dict[int, NDArray[Any]] = {}
        self.counts: dict[int, NDArray[np.int32]] = {}
        self.held: dict[tuple[int, int, int], tuple[NDArray[Any], NDArray[np.int32], int, int]] = {}
        self.holds: set[int] = set()
        self.stale: set[int] = set()
        self.parked: list[Fetch] = []
        self.demanded = 0
        self.out: list[tuple[ToCache, NDArray[Any]]] = []

    def row(self, key: int) -> NDArray[Any]:
        return self.rows.setdefault(key, np.zeros(self.spec.cols, self.spec.kept))

    def apply(self, node: int, key: int, delta: NDArray[Any], counts: NDArray[np.int32]) -> None:
        self.row(key)
        self.rows[key] = self.rows[key] + delta
        if node != 0:
            self.others[key] = self.others.get(key, np.zeros_like(delta)) + delta
        self.counts[key] = self.counts.get(key, np.zeros(self.layout.witnesses, np.int32)) + counts
        if key in self.holds:
            self.stale.add(key)

    def receive(self, message: ToShard) -> None:
        if isinstance(message, Update):
            self._update(message)
        elif isinstance(message, NodeClock):
            assert message.clock > self.nodes[message.node]
            self.nodes[message.node] = message.clock
            if min(self.nodes) > self.clock:
                self._advance()
        elif isinstance(message, Fetch):
            if message.need <= self.clock:
                self.send(message.keys.tolist(), reply=True)
            else:
                self.parked.append(message)
                if self.lazy and self.demanded < message.need:
                    self.demanded = message.need
                    self.out.append((Demand(self.number, message.need), np.empty((0, self.spec.cols))))
        elif isinstance(message, Dropped):
            self.holds -= set(message.keys.tolist())
            self.stale -= set(message.keys.tolist())

    def _update(self, update: Update) -> None:
        assert update.clock >= self.nodes[update.node], "an Update after its clock was over"
        assert (np.diff(update.keys) > 0).all()
        counts = update.witness
        if counts is None:
            counts = np.zeros((len(update.keys), 0), np.int32)
        for key, delta, count in zip(update.keys.tolist(), update.deltas, counts, strict=True):
            if self.exact:
                self.held[update.clock, update.worker, key] = delta.copy(), count.copy(), update.node, update.number
            else:
                self.apply(update.node, key, delta, count)
        if not self.exact:
            assert update.number == self.seen[update.node] + 1
            self.seen[update.node] = update.number

    def _advance(self) -> None:
        self.clock = min(self.nodes)
        for at in sorted(at for at in self.held if at[0] < self.clock):
            delta, counts, node, number = self.held.pop(at)
            self.apply(node, at[2], delta, counts)
            self.seen[node] = max(self.seen[node], number)
        ready = [fetch for fetch in self.parked if fetch.need <= self.clock]
        self.parked = [fetch for fetch in self.parked if fetch.need > self.clock]
        for fetch in ready:
            self.send(fetch.keys.tolist(), reply=True)
        if not self.lazy:
            self.push()
        nothing = np.empty((0, self.spec.cols))
        self.out.append((ShardClock(self.number, self.clock, self.seen[0]), nothing))

    def push(self) -> None:
        """All that changed of what node 0 holds."""
        if self.stale:
            self.send(sorted(self.stale), reply=False)

    def send(self, keys: list[int], reply: bool) -> None:
        values = np.array([self.row(key) for key in keys]).reshape(len(keys), -1)
        none = np.zeros(self.layout.witnesses, np.int32)
        counts = np.array([self.counts.get(key, none) for key in keys], np.int32).reshape(len(keys), -1)
        zero = np.zeros(self.spec.cols, self.spec.kept)
        others = np.array([self.others.get(key, zero) for key in keys]).reshape(len(keys), -1)
        self.holds |= set(keys)
        self.stale -= set(keys)
        witness = counts if self.layout.witness else None
        message = Rows(0, self.number, keys_of(*keys), values, self.clock, self.seen[0], 0, reply, witness=witness)
        self.out.append((message, others))
