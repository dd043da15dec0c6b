"""Shards against dictionaries that do what the protocol says, one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shard_made import (
    FAST,
    Sender,
    by_key,
    cut_rows,
    dropped,
    ended,
    fetch,
    one_table,
)
from stretto.comm.messages import Rows, ShardClock, ToCache
from stretto.comm.policy import Eager, Lazy, Policy
from stretto.consistency.rules import ASP, BSP, SSP, Rule
from stretto.store.shard.shard import Shard

# --- against a naive model --------------------------------------------------------------------------------------------

Answers = list[tuple[int, ToCache]]
NODES, KEYS = 3, 8


class ShardMachine(RuleBasedStateMachine):
    """Dictionaries that do what the protocol says, one row at a time; changes are whole numbers, so sums are exact."""

    @initialize(rule_=st.sampled_from([BSP(), SSP(0), SSP(2), ASP()]), policy=st.sampled_from([Eager(), Lazy(), FAST]))
    def begin(self, rule_: Rule, policy: Policy) -> None:
        self.layout = one_table(nodes=NODES, cols=1, dtype="f8", rule=rule_, policy=policy, witness=True)
        self.shard = Shard(self.layout, 0)
        self.senders = [Sender(self.layout, node) for node in range(NODES)]
        self.clocks = [0] * NODES
        self.changes: list[tuple[int, int, int, float]] = []  # (clock, node, key, delta): all that were sent
        self.running: dict[tuple[int, int, int], float] = {}  # exact: (clock, node, key) -> the last one
        self.held: list[dict[int, float]] = [{} for _ in range(NODES)]  # what each node was last sent of rows it holds
        self.parked: list[tuple[int, int, tuple[int, ...]]] = []
        self.cuts: list[int] = []
        self.known = [0] * NODES

    @property
    def exact(self) -> bool:
        return self.layout.rule.exact

    def values(self, before: int | None = None) -> dict[int, float]:
        """What rows hold: everything that came, or of exact runs and cuts the clocks before one."""
        rows = dict.fromkeys(range(KEYS), 0.0)
        if self.exact:
            before = min(self.clocks) if before is None else before
            for (clock, _, key), delta in self.running.items():
                rows[key] += delta if clock < before else 0.0
        else:
            for clock, _, key, delta in self.changes:
                rows[key] += delta if before is None or clock < before else 0.0
        return rows

    def take(self, answers: Answers) -> None:
        """Every row as it should be, to somebody who is to have it."""
        now, through = self.values(), min(self.clocks)
        for node, message in answers:
            if isinstance(message, Rows):
                assert message.through == through
                assert message.seen == (self.senders[node].number if not self.exact else message.seen)
                for key, row in zip(message.keys.tolist(), message.values, strict=True):
                    if not message.reply:
                        assert self.held[node][key] != now[key] or not self.exact
                        assert not self.layout.policy.lazy
                    assert row[0] == now[key]
                    self.held[node][key] = now[key]
            elif isinstance(message, ShardClock):
                assert message.clock == through > self.known[node]
                self.known[node] = message.clock
                if not self.layout.policy.lazy:
                    assert self.held[node] == {key: now[key] for key in self.held[node]}

    @rule(
        node=st.integers(0, NODES - 1),
        ahead=st.integers(0, 2),
        keys=st.sets(st.integers(0, KEYS - 1), min_size=1),
        delta=st.integers(-5, 5),
    )
    def update(self, node: int, ahead: int, keys: set[int], delta: int) -> None:
        clock = self.clocks[node] + ahead
        chosen = sorted(keys)
        witness = np.eye(NODES, dtype=np.int32)[[node] * len(chosen)]
        answers = self.shard.receive(
            self.senders[node](clock, chosen, [delta] * len(chosen), worker=node if self.exact else -1, witness=witness)
        )
        for key in chosen:
            self.changes.append((clock, node, key, delta))
            self.running[clock, node, key] = delta
        assert answers == []

    @rule(node=st.integers(0, NODES - 1))
    def tick(self, node: int) -> None:
        self.clocks[node] += 1
        answers = self.shard.receive(ended(node, self.clocks[node]))
        for _, reader, keys in [entry for entry in self.parked if entry[0] <= min(self.clocks)]:
            for key in keys:
                self.held[reader][key] = np.nan  # must be sent
        self.parked = [entry for entry in self.parked if entry[0] > min(self.clocks)]
        self.take(answers)
        assert not any(np.isnan(value) for mine in self.held for value in mine.values())

    @rule(node=st.integers(0, NODES - 1), keys=st.sets(st.integers(0, KEYS - 1), min_size=1), ahead=st.integers(0, 2))
    def read(self, node: int, keys: set[int], ahead: int) -> None:
        need = min(self.clocks) + ahead
        answers = self.shard.receive(fetch(node, sorted(keys), need=need))
        if ahead:
            self.parked.append((need, node, tuple(keys)))
            assert all(not isinstance(message, Rows) for _, message in answers)
        else:
            self.held[node] |= dict.fromkeys(keys, np.nan)
            self.take(answers)
            assert not any(np.isnan(value) for value in self.held[node].values())

    @precondition(lambda self: any(self.held))
    @rule(node=st.integers(0, NODES - 1), keys=st.sets(st.integers(0, KEYS - 1), min_size=1))
    def drop(self, node: int, keys: set[int]) -> None:
        gone = sorted(keys & set(self.held[node]))
        assert self.shard.receive(dropped(node, gone)) == []
        for key in gone:
            del self.held[node][key]

    @rule(limit=st.integers(1, 10))
    def pick(self, limit: int) -> None:
        answers = self.shard.pick(limit)
        assert sum(len(rows.keys) for _, rows in answers) <= max(limit, NODES)
        self.take(list(answers))
        if self.exact or not self.layout.policy.managed:
            assert not answers

    @rule(ahead=st.integers(1, 3))
    def checkpoint(self, ahead: int) -> None:
        clock = max([max(self.clocks), *(change[0] for change in self.changes)]) + ahead
        if clock not in self.cuts:
            self.cuts.append(clock)
            self.shard.checkpoint(clock)

    @rule(limit=st.one_of(st.none(), st.integers(1, 5)))
    def save(self, limit: int | None) -> None:
        due = min(self.cuts, default=None)
        if due is None or due > min(self.clocks):
            assert self.shard.saved() is None
            return
        self.cuts.remove(due)
        found: dict[int, list[Any]] = {}
        while self.shard.saving == due:
            arrays = self.shard.saved() if limit is None else self.shard.saved_piece(limit)
            assert arrays is not None
            assert int(arrays["clock"]) == due
            found |= cut_rows(arrays)
        wanted = self.values(before=due)
        assert {key: row[0] for key, row in found.items()} == {key: wanted[key] for key in found}
        assert all(value == 0 for key, value in wanted.items() if key not in found)

    @invariant()
    def rows_are_sums(self) -> None:
        if not hasattr(self, "shard"):
            return
        wanted = self.values()
        found = {key: row[0] for key, row in by_key(*self.shard.table(0)).items()}
        assert found == {key: wanted[key] for key in found}
        assert self.shard.clock == min(self.clocks)

    @invariant()
    def witnesses_count_calls(self) -> None:
        if not hasattr(self, "shard"):
            return
        least = min(self.clocks)
        for key, counts in by_key(*self.shard.witness(0)).items():
            if self.exact:
                wanted = [
                    sum(1 for c, n, k in self.running if (n, k) == (node, key) and c < least) for node in range(NODES)
                ]
            else:
                wanted = [sum(1 for _, n, k, _ in self.changes if (n, k) == (node, key)) for node in range(NODES)]
            assert counts == wanted


ShardMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestShardAgainstDictionaries = ShardMachine.TestCase
