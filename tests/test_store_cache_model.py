"""The cache against a model of it in dictionaries, with shards that answer when hypothesis says so.

Deltas are whole numbers, so every sum is exact and what a read must give is known to the last bit:

    exact        the shard's row, and what the worker's own slip holds for it
    otherwise    what other nodes' changes make of the row as it last came, and all that this node ever added to it; or
                 the row as it came where changes do not simply add up
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as some
import numpy as np
import pytest
from hypothesis import note, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

from cache_made import PlainShard, keys_of, layout_of
from stretto.comm.messages import Dropped, Fetch, NodeClock, Rows, ShardClock, ToCache, ToShard, Update
from stretto.comm.policy import Eager, Lazy, Managed, Policy
from stretto.consistency.rules import ASP, BSP, SSP, Rule
from stretto.store.cache.cache import Cache
from stretto.store.shard.functions import add

KEYS = 4
OTHER = 2  # the worker of the other node
BOUNDED: list[Rule] = [SSP(0), SSP(2), ASP()]
RANKS = ("random", "round-robin", "absolute", "relative", "effective")
some_keys = some.lists(some.integers(0, KEYS - 1), min_size=1, max_size=5)
# Beyond 2048 a 16-bit float has no odd numbers.
some_deltas = some.lists(some.integers(-5000, 5000), min_size=10, max_size=10)


def f2(x: NDArray[Any]) -> NDArray[Any]:
    return x.astype(np.float16).astype(x.dtype)


class CacheMachine(RuleBasedStateMachine):
    syncs: Sequence[Rule] = ()
    policies: Sequence[Policy] = ()

    @initialize(
        data=some.data(),
        additive=some.sampled_from([True, True, True, False]),
        reserve=some.booleans(),
        locks=some.booleans(),
        bound=some.sampled_from([None, None, None, 1, 2]),
    )
    def begin(self, data: some.DataObject, additive: bool, reserve: bool, locks: bool, bound: int | None) -> None:
        choice, policy = data.draw(some.sampled_from(self.syncs)), data.draw(some.sampled_from(self.policies))
        apply = replace(add, additive=additive)
        self.layout = layout_of(
            apply, rule=choice, policy=policy, witness=True, reserve=reserve, rows=KEYS, dtype="f8", cache_rows=bound
        )
        self.exact, self.lazy, self.short = choice.exact, policy.lazy, policy.codec == "f2"
        self.additive, self.bound = additive, bound
        self.cache = Cache(self.layout, 0, locks)
        self.shards = [PlainShard(self.layout, number) for number in (0, 1)]
        self.to_shard: list[deque[ToShard]] = [deque(), deque()]
        self.to_cache: list[deque[tuple[ToCache, NDArray[Any]]]] = [deque(), deque()]
        # The model.
        self.clocks = [0, 0, 0]
        self.known = [0, 0]
        self.held: dict[int, tuple[NDArray[Any], NDArray[np.int32], NDArray[Any], int]] = {}
        self.own: Counter[int] = Counter()  # key -> all that node 0 added
        self.calls = np.zeros((KEYS, 3), np.int64)
        self.slips: dict[tuple[int, int], dict[int, tuple[NDArray[Any], int]]] = {}  # (clock, worker) -> key -> sum
        self.applied = np.zeros((KEYS, 2))  # exact runs: what the shards should end up with
        self.other: dict[int, tuple[NDArray[Any], int]] = {}
        self.numbers = [0, 0]
        self.parked: dict[int, list[int]] = {}
        self.woken: dict[int, list[int]] = {}  # may read now, and have not
        self.asked: Counter[int] = Counter()
        self.ages = np.zeros((2, 32), np.int64)
        self.dropped = 0

    # -- sending and receiving ---------------------------------------------------------------------------------------

    def post(self, messages: list[tuple[int, Any]]) -> None:
        outgoing, self.cache.outgoing = self.cache.outgoing, []
        for shard, message in [*messages, *outgoing]:
            if isinstance(message, Fetch):
                for key in message.keys.tolist():
                    self.asked[key] += 1
                    assert self.lazy or self.asked[key] == 1, "a row was asked for twice"
            if isinstance(message, Dropped):
                for key in message.keys.tolist():
                    del self.held[key]
                    assert key not in self.pinned()
                    self.dropped += 1
            if isinstance(message, Update):
                assert message.nbytes > 48
                assert len(message.keys) <= (3 if self.layout.policy.managed else KEYS)
            self.to_shard[shard].append(message)

    def collect(self) -> None:
        for shard, queue in zip(self.shards, self.to_cache, strict=True):
            queue.extend(shard.out)
            shard.out.clear()

    @precondition(lambda self: any(self.to_shard))
    @rule(which=some.integers(0, 1))
    def shard_receives(self, which: int) -> None:
        which = which if self.to_shard[which] else 1 - which
        self.shards[which].receive(self.to_shard[which].popleft())
        self.collect()

    @rule()
    def all_is_delivered(self) -> None:
        while any(self.to_shard) or any(self.to_cache):
            if any(self.to_shard):
                self.shard_receives(0)
            if any(self.to_cache):
                self.cache_receives(0)

    @precondition(lambda self: any(self.to_cache))
    @rule(which=some.integers(0, 1))
    def cache_receives(self, which: int) -> None:
        which = which if self.to_cache[which] else 1 - which
        message, others = self.to_cache[which].popleft()
        woken = self.cache.receive(message)
        if isinstance(message, ShardClock):
            self.known[which] = message.clock
        elif isinstance(message, Rows):
            assert message.witness is not None
            for key, value, counts, other in zip(
                message.keys.tolist(), message.values, message.witness, others, strict=True
            ):
                if message.reply:
                    self.asked[key] -= 1
                if message.reply or key in self.held:
                    through = max(message.through, self.held[key][3] if key in self.held else 0)
                    self.held[key] = value, counts, other, through
        expected = sorted(worker for worker, keys in self.parked.items() if self.allowed(worker, keys))
        assert sorted(woken) == expected
        for worker in woken:
            self.woken[worker] = self.parked.pop(worker)
        self.post([])
        if isinstance(message, Rows):
            self.check_bound()

    # -- what workers do ---------------------------------------------------------------------------------------------

    def through(self, key: int) -> int:
        own = self.held[key][3]
        return own if self.lazy else max(own, self.known[key % 2])

    def allowed(self, worker: int, keys: list[int]) -> bool:
        need = self.layout.rule.need(self.clocks[worker])
        return all(key in self.held and self.through(key) >= need for key in keys)

    def expected(self, worker: int, key: int) -> tuple[NDArray[Any], NDArray[Any]]:
        value, counts, other, _ = self.held[key]
        if not self.additive:
            return value, counts
        if self.exact:
            mine, calls = self.slips.get((self.clocks[worker], worker), {}).get(key, (np.zeros(2), 0))
            counts = counts.copy()
            counts[worker] += calls
            return value + mine, counts
        counts = counts.copy()
        counts[:2] = self.calls[key, :2]
        return other + self.total(key), counts

    def total(self, key: int) -> NDArray[Any]:
        return np.array([self.own[2 * key], self.own[2 * key + 1]], float)

    @rule(worker=some.integers(0, 1), keys=some_keys)
    def read(self, worker: int, keys: list[int]) -> None:
        if self.is_busy(worker):
            return
        self.reads(worker, keys)

    def is_busy(self, worker: int) -> bool:
        """Whether it has to wait; if it waited and need not any more, what it waited for is read first."""
        if worker in self.woken:
            self.reads(worker, self.woken.pop(worker))
            assert worker not in self.parked, "woken without need"
        return worker in self.parked

    def reads(self, worker: int, keys: list[int]) -> None:
        out, seen = np.full((len(keys), 2), 0.5), np.full((len(keys), 3), -1, np.int32)
        done = self.cache.read(worker, 0, keys_of(*keys), out, seen)
        assert done == self.allowed(worker, keys)
        if not done:
            assert (out == 0.5).all()
            assert (seen == -1).all()
            self.parked[worker] = keys
            self.post(self.cache.want(worker, 0, keys_of(*keys)))
            return
        for place, key in enumerate(keys):
            value, counts = self.expected(worker, key)
            assert out[place].tolist() == value.tolist()
            assert seen[place].tolist() == counts.tolist()
            self.ages[worker, self.clocks[worker] - self.through(key)] += 1

    @rule(worker=some.integers(0, 2), keys=some_keys, deltas=some_deltas)
    def add(self, worker: int, keys: list[int], deltas: list[int]) -> None:
        given = np.array(deltas[: 2 * len(keys)], float).reshape(-1, 2)
        if worker == OTHER:
            self.other_adds(keys, given)
            return
        if self.is_busy(worker):
            return
        self.cache.add(worker, 0, keys_of(*keys), given)
        self.post([])
        slip = self.slips.setdefault((self.clocks[worker], worker), {})
        for key, delta in zip(keys, given, strict=True):
            self.own[2 * key] += int(delta[0])
            self.own[2 * key + 1] += int(delta[1])
            self.calls[key, worker] += 1
            before, calls = slip.get(key, (np.zeros(2), 0))
            slip[key] = before + delta, calls + 1

    @rule(worker=some.integers(0, 2))
    def tick(self, worker: int) -> None:
        if worker == OTHER:
            self.other_ticks()
            return
        if self.is_busy(worker):
            return
        slip = self.slips.get((self.clocks[worker], worker), {})
        self.clocks[worker] += 1
        if self.exact:
            for key, (total, _) in slip.items():
                sent = f2(total) if self.short else total
                self.applied[key] += sent
                if (total - sent).any():
                    self.slips.setdefault((self.clocks[worker], worker), {})[key] = total - sent, 0
        before = min(self.cache.clocks)
        messages = self.cache.tick(worker)
        assert self.cache.clocks == self.clocks[:2]
        if min(self.cache.clocks) == before:
            assert messages == []
            self.post([])
        else:
            self.post(messages)
            self.check_bound()

    @precondition(lambda self: self.layout.policy.managed)
    @rule(rows=some.integers(1, 6), shut=some.sampled_from([None, None, 0, 1]))
    def pick(self, rows: int, shut: int | None) -> None:
        self.cache.open = None if shut is None else np.arange(2) != shut
        updates = self.cache.pick(rows)
        self.cache.open = None
        assert sum(len(update.keys) for _, update in updates) <= rows
        assert all(shard != shut for shard, _ in updates)
        assert all(update.running == self.exact and (update.worker >= 0) == self.exact for _, update in updates)
        self.post(updates)

    # -- the other node, which sends without delay ---------------------------------------------------------------------

    def other_adds(self, keys: list[int], deltas: NDArray[Any]) -> None:
        for key, delta in zip(keys, deltas, strict=True):
            before, calls = self.other.get(key, (np.zeros(2), 0))
            self.other[key] = before + delta, calls + 1
            self.calls[key, OTHER] += 1
        if not self.exact:
            self.other_sends()

    def other_sends(self) -> None:
        for shard in (0, 1):
            keys = sorted(key for key in self.other if key % 2 == shard)
            if not keys:
                continue
            self.numbers[shard] += 1
            deltas = np.array([self.other[key][0] for key in keys])
            counts = np.zeros((len(keys), 3), np.int32)
            counts[:, OTHER] = [self.other[key][1] for key in keys]
            worker = OTHER if self.exact else -1
            clock = self.clocks[OTHER]
            self.shards[shard].receive(
                Update(0, 1, self.numbers[shard], clock, worker, keys_of(*keys), deltas, 0, self.exact, None, counts)
            )
            self.applied[keys] += deltas
        self.other.clear()

    def other_ticks(self) -> None:
        self.other_sends()
        self.clocks[OTHER] += 1
        for shard in self.shards:
            shard.receive(NodeClock(1, self.clocks[OTHER]))
        self.collect()

    @precondition(lambda self: not self.exact and not self.lazy)
    @rule(which=some.integers(0, 1))
    def shard_pushes(self, which: int) -> None:
        self.shards[which].push()
        self.collect()

    # -- what must always hold -----------------------------------------------------------------------------------------

    def pinned(self) -> set[int]:
        return {key for keys in (*self.parked.values(), *self.woken.values()) for key in keys}

    def check_bound(self) -> None:
        if self.bound is not None:
            assert len(self.held) <= self.bound or self.held.keys() <= self.pinned()

    def teardown(self) -> None:
        """Everything is delivered, everybody goes on until nobody waits, and nothing is lost."""
        if not hasattr(self, "cache"):
            return
        for _ in range(200):
            self.all_is_delivered()
            level = max(self.clocks)
            late = [worker for worker in range(3) if self.clocks[worker] < level and worker not in self.parked]
            if late:
                self.tick(late[0])
            elif self.parked:
                assert any(self.clocks[worker] == level for worker in range(3) if worker not in self.parked), (
                    "everybody waits for everybody"
                )
                free = [worker for worker in range(3) if worker not in self.parked]
                self.tick(free[0])
            else:
                break
        assert not self.parked
        for worker in range(3):
            self.tick(worker)
        self.post(self.cache.flush())
        while any(self.to_shard):
            self.shard_receives(0)
        note(f"{self.layout.rule} {self.layout.policy}")
        self.check_sums()
        assert self.cache.staleness.tolist() == self.ages.tolist()

    def check_sums(self) -> None:
        left = np.zeros((KEYS, 2))
        residuals = self.cache.residuals()
        if not self.exact and self.short:
            left[residuals["w/-1/keys"]] = residuals["w/-1/rows"]
        for key in range(KEYS):
            shard = self.shards[key % 2]
            total = shard.rows.get(key, np.zeros(2))
            counts = shard.counts.get(key, np.zeros(3, np.int32))
            assert counts.tolist() == self.calls[key].tolist(), "an update was lost or doubled"
            if self.exact:
                assert total.tolist() == self.applied[key].tolist()
            else:
                other = shard.others.get(key, np.zeros(2))
                assert (total + left[key]).tolist() == (other + self.total(key)).tolist()


class Exact(CacheMachine):
    syncs = (BSP(),)
    policies = (Eager(), Lazy(), Managed("1Gbit", (3, 3), "absolute"), Managed("1Gbit", (3, 3), "relative", "f2"))


class Bounded(CacheMachine):
    syncs = BOUNDED
    policies = (Eager(), Lazy(), *(Managed("1Gbit", (3, 3), rank) for rank in RANKS))


class Rounded(CacheMachine):
    syncs = BOUNDED
    policies = (Managed("1Gbit", (3, 3), "relative", "f2"),)


@pytest.mark.parametrize("machine", [Exact, Bounded, Rounded])
def test_a_cache_does_what_dictionaries_do(machine: type[CacheMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=100, stateful_step_count=50))


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Exact, Bounded, Rounded])
def test_a_cache_does_what_dictionaries_do_for_longer(machine: type[CacheMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=2000, stateful_step_count=80))
