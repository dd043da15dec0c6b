"""The parameter store from outside: promises that a second reader doubted, and misuse that went unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stretto as st
from cache_made import add_to, keys_of, layout_of
from stretto.comm.messages import Announce, Dropped, Fetch, Rows, Update
from stretto.comm.policy import Managed
from stretto.consistency.rules import BSP, SSP
from stretto.errors import PlanError, RunError
from stretto.runtime.simulated.faults import Crash, Delay
from stretto.store.cache.cache import Cache
from stretto.store.node import StoreNode
from stretto.store.recording import Pick
from stretto.testing import check_replay

SIMULATED = st.Simulated(nodes=2, threads=2, seconds_per_item=1e-5)
TABLES = {"x": st.tables.Table(rows=20)}

# --- announcements ----------------------------------------------------------------------------------------------------


def speculate(worker: Callable[[Any], Any], workers: int = 4) -> Any:
    result = st.run(
        worker, workers=workers, tables=TABLES, sync=st.tables.SSP(0, speculate=True), runtime=SIMULATED, record="full"
    )
    check_replay(result.recording)
    return result


def test_a_worker_that_leaves_without_a_word_is_not_left_out_of_the_announcement() -> None:
    """What it added in the clock it left in belongs to what its node adds in that clock."""

    def worker(w: Any) -> None:
        x = w.table("x")
        if w.number % 2 == 0:
            x.add([7, w.number], [1.0, 1.0])
            return
        for _ in w.clocks(4):
            x.announce([w.number])
            w.work(100 * w.number)
            x.add([w.number], [1.0])
            x.read([w.number, 7, 12])

    result = speculate(worker)
    assert result.tables["x"][[0, 1, 2, 3, 7]].tolist() == [1.0, 4.0, 1.0, 4.0, 2.0]


@pytest.mark.parametrize("workers", [2, 4])
def test_announcing_a_clock_twice_is_the_workers_mistake(workers: int) -> None:
    def worker(w: Any) -> None:
        x = w.table("x")
        x.announce([1])
        x.announce([1])  # nothing new: no harm
        x.announce([2])

    with pytest.raises(RunError, match=r"worker \d, clock 0, table 'x': .*announced.*at once"):
        speculate(worker, workers)


def test_nobody_is_told_what_nobody_asked_for() -> None:
    """Without speculate=True announcements are of no use, and cost nothing."""
    node = StoreNode(layout_of(rule=SSP(1)), 0)
    node.announce(0.0, 0, 0, keys_of(1), 0)
    node.announce(0.0, 1, 0, keys_of(1), 0)
    assert node.frames == []
    other = StoreNode(layout_of(rule=SSP(1, speculate=True)), 0)
    other.announce(0.0, 0, 0, keys_of(1), 0)
    other.announce(0.0, 1, 0, keys_of(1), 0)
    assert [type(frame.message) for _, frame in other.frames] == [Announce]


# --- ranks ------------------------------------------------------------------------------------------------------------


def picked(updates: list[tuple[int, Update]]) -> list[int]:
    return [key for _, update in updates for key in update.keys.tolist()]


def test_round_robin_goes_on_after_what_was_sent_and_not_after_what_was_ranked() -> None:
    """A clock that ends throws away what was ranked and not sent; these rows must not lose their turn."""
    policy = Managed("1MB", rank="round-robin")
    cache = Cache(layout_of(nodes=1, workers=1, rule=SSP(1), policy=policy), 0)
    sent = []
    for _ in range(10):
        add_to(cache, 0, range(100), [1.0] * 100)
        sent += picked(cache.pick(10))
        cache.tick(0)
    assert sent == list(range(100))


def test_a_full_recording_tells_at_which_rank_a_row_was_sent() -> None:
    def worker(w: Any) -> None:
        x = w.table("x")
        for _ in w.clocks(3):
            keys = np.arange(w.number, 60, 2)
            x.read(np.arange(60))
            x.add(keys, (1.0 + keys)[:, None] * np.ones(16))
            w.work(5000)

    result = st.run(
        worker,
        workers=4,
        tables={"x": st.tables.Table(rows=60, cols=16)},
        sync=st.tables.SSP(2),
        comm=st.tables.Managed("1Mbit", burst=(4, 4), rank="absolute"),
        runtime=SIMULATED,
        record="full",
    )
    picks: list[Pick] = result.recording.picks
    check_replay(result.recording)
    assert {pick.side for pick in picks} == {"updates", "rows"}
    for pick in picks:
        assert len(pick.keys) == len(pick.ranks) == len(np.unique(pick.ranks)) > 0
        assert 0 <= pick.ranks.min() <= pick.ranks.max() < pick.among <= 60
    # The first choice of a node: rows that changed by 1, 2, 3 …, the one that changed most at rank 0.
    first = next(pick for pick in picks if pick.side == "updates" and pick.node == 0)
    assert first.ranks.tolist() == list(range(len(first.keys)))
    assert first.keys.tolist() == sorted(first.keys.tolist(), reverse=True)
    # Every row that left by rank was picked before, by the same node and side.
    rows = {(pick.node, pick.side, key) for pick in picks for key in pick.keys.tolist()}
    sends = [send for send in result.recording.sends if send.reason == "rank"]
    assert sends
    assert all((send.source, send.side, key) in rows for send in sends for key in send.keys.tolist())


# --- what rounding leaves, in checkpoints -----------------------------------------------------------------------------


def third(n: int) -> NDArray[np.float32]:
    """A change that a 16-bit float does not hold."""
    return np.full((n, 2), 1.0 / 3.0, np.float32)


def lost(node: StoreNode, worker: int) -> dict[int, float]:
    found = node.cache.residuals()
    keys, rows = found.get(f"w/{worker}/keys", np.empty(0)), found.get(f"w/{worker}/rows", np.empty((0, 2)))
    return dict(zip(keys.tolist(), rows[:, 0].tolist(), strict=True))


def test_a_checkpoint_keeps_leftovers_that_an_early_send_of_its_clock_has_taken() -> None:
    """The early send belongs to a clock that the checkpoint does not hold: after a restart it is repeated."""
    layout = layout_of(nodes=1, workers=2, rule=SSP(1), policy=Managed(1000.0, codec="f2"))
    node = StoreNode(layout, 0)
    out = np.empty((1, 2), np.float32)
    assert node.read(0.0, 0, 0, keys_of(5), out)
    node.add(0.0, 0, 0, keys_of(5), third(1))
    node.tick(0.0, 0)
    node.tick(0.0, 1)  # clock 0 has ended, and left something of row 5
    left = lost(node, -1)[5]
    assert left != 0
    now = 100.0
    node.add(now, 0, 0, keys_of(8), third(1))  # takes up the budget of the moment
    node.add(now, 0, 0, keys_of(5), third(1))
    before = node.cache.dirty
    node.poll(now + 100.0)  # row 5 goes early, in clock 1, and what was left of it with it
    assert before
    assert lost(node, -1) == {5: left}
    node.tick(now + 100.0, 0)
    node.tick(now + 100.0, 1)
    after = lost(node, -1)[5]
    values = dict(zip(*(column.tolist() for column in node.shard.table(0)), strict=True))
    assert values[5][0] + after == pytest.approx(2.0 / 3.0, rel=1e-7)
    assert after != left


@pytest.mark.parametrize("rule", [BSP(), SSP(9)])
def test_a_checkpoint_of_a_clock_that_was_jumped_over_has_what_rounding_left_then(rule: Any) -> None:
    """Worker 0 leaves in clock 0 while worker 1, which never reads, is in clock 4: the node's clock goes from 0 to 4.
    What was sent in clocks before C and what was left then make up what was added in them, for every C."""
    cache = Cache(layout_of(nodes=1, workers=2, rule=rule, policy=st.tables.Eager(codec="f2")), 0)
    draw = np.random.default_rng(3)
    deltas = draw.normal(size=(4, 10, 2)).astype("f4")
    for clock in range(4):
        cache.add(1, 0, np.arange(10), deltas[clock])
        cache.tick(1)
    updates = [message for _, message in cache.leave(0) if isinstance(message, Update)]
    assert sorted({update.clock for update in updates}) == [0, 1, 2, 3]
    for clock in (1, 2, 3, 4):
        total = np.zeros((10, 2))
        for update in updates:
            if update.clock < clock:
                total[update.keys] += update.deltas
        found = cache.residuals(clock)
        (who,) = {name.split("/")[1] for name in found}
        total[found[f"w/{who}/keys"]] += found[f"w/{who}/rows"]
        assert np.abs(total - deltas[:clock].astype("f8").sum(axis=0)).max() < 1e-6, clock


# --- looking ----------------------------------------------------------------------------------------------------------


def uneven(**more: Any) -> tuple[list[Any], Any]:
    """Two workers read rows of shard 0 only, so that they run ahead of shard 2, which hears of worker 1 late."""
    seen: list[Any] = []

    def worker(w: Any) -> None:
        x = w.table("x")
        for _ in w.clocks(8):
            x.read([0])
            x.add([0, 1], [1.0, 0.5])
            w.work(1000)

    def watch(view: Any) -> float:
        seen.append((view.clock, view["x"][:2].tolist()))
        return float(view.clock)

    tables = {
        "x": st.tables.Table(rows=4, shards=(0, 2), partition=lambda keys, n: keys % n, apply=st.tables.adagrad(0.1))
    }
    result = st.run(worker, workers=2, tables=tables, watch=watch, **more)
    return seen, result


LATE = st.Simulated(nodes=3, threads=1, seconds_per_item=1e-5, faults=[Delay(1, 2, at=0.0, seconds=0.06, extra=0.05)])
CRASHES = st.Simulated(
    nodes=3, threads=1, seconds_per_item=1e-5, faults=[*LATE.faults, Crash(0, at=0.03, back_after=0.01)], detect=0.01
)


@pytest.mark.parametrize("runtime", [LATE, CRASHES, st.Threads(2)])
@pytest.mark.parametrize("every", [1, 3])
def test_under_bsp_a_look_shows_the_clocks_before_it_and_no_others(runtime: Any, every: int) -> None:
    truth, _ = uneven(runtime=st.Serial(), every=every)
    seen, _ = uneven(runtime=runtime, every=every)
    assert dict(seen) == dict(truth)
    if runtime is not CRASHES:  # which looks again at what was lost
        assert seen == truth


@pytest.mark.parametrize("runtime", [LATE, CRASHES, st.Threads(2)])
def test_under_bsp_a_run_that_is_ended_early_ends_with_the_same_bits(runtime: Any) -> None:
    _, truth = uneven(runtime=st.Serial(), until=lambda look: look.clock >= 2)
    _, result = uneven(runtime=runtime, until=lambda look: look.clock >= 2)
    assert result.stopped == truth.stopped == "until"
    assert result.tables["x"].tobytes() == truth.tables["x"].tobytes()
    kept = [run.table("x").states[0] for run in (result, truth)]  # what AdaGrad has summed
    assert kept[0](np.arange(2)).tobytes() == kept[1](np.arange(2)).tobytes()


def test_under_bsp_clocks_that_a_leaving_worker_ends_together_are_looked_at_one_by_one() -> None:
    """Worker 1 never reads and is in clock 6 when worker 0, still in clock 0, leaves."""

    def run(runtime: Any, until: Any = None) -> tuple[list[Any], NDArray[Any]]:
        ahead = Event()

        def worker(w: Any) -> None:
            x = w.table("x")
            if w.number == 0:
                if isinstance(runtime, st.Threads):
                    assert ahead.wait(30)
                x.add([0], [1.0])
                return
            for clock in w.clocks(6):
                x.add([clock], [1.0])
            ahead.set()

        tables = {"x": st.tables.Table(rows=6)}
        result = st.run(worker, workers=2, tables=tables, watch=lambda v: v["x"].sum(), until=until, runtime=runtime)
        return [(look.clock, look.objective) for look in result.history], result.tables["x"]

    truth, _ = run(st.Serial())
    assert [clock for clock, _ in truth] == list(range(7))
    for runtime in (st.Threads(2), st.Simulated(nodes=2, threads=1)):
        assert run(runtime)[0] == truth
        enough, early = run(runtime, lambda look: look.clock >= 3)
        assert enough == truth[:4]
        assert early.tolist() == [2.0, 1.0, 1.0, 0.0, 0.0, 0.0]


# --- the bound of a cache --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("apply", [st.tables.add, st.tables.adarevision(0.1)])
def test_rows_that_only_an_ended_clock_used_do_not_stay_beyond_the_bound(apply: Any) -> None:
    """Changes that name their versions are on their way before the shard hears that they were let go."""
    cache = Cache(layout_of(apply, nodes=1, workers=1, rule=SSP(1), cache_rows=10), 0)
    keys = np.arange(60)
    (_, fetch), *_ = cache.want(0, 0, keys)
    versions = np.full(60, 3, np.int32) if apply.versioned else None
    cache.receive(Rows(0, 0, fetch.keys, np.ones((60, 2), np.float32), 0, 0, 0, reply=True, versions=versions))
    assert read(cache, keys)
    cache.add(0, 0, keys, np.ones((60, 2), np.float32))
    sent = cache.tick(0)
    assert sum(len(message.keys) for _, message in sent if isinstance(message, Update)) == 60
    assert cache._tables[0].pool.held <= 10
    gone = [message for _, message in cache.outgoing if isinstance(message, Dropped)]  # goes after what tick gave
    assert sum(len(message.keys) for message in gone) >= 50


# --- bursts -----------------------------------------------------------------------------------------------------------


def test_no_message_is_longer_than_a_burst_of_rows() -> None:
    """Questions and what is given back travel in one bucket with rows, so they keep to its burst too."""
    policy = Managed("1MB", burst=(10, 10))
    layout = layout_of(rule=SSP(1), policy=policy, rows=10_000, cache_rows=50)
    cache = Cache(layout, 0)
    most = 48 + 10 * (8 + 4 + 2 * 4)
    fetches = cache.want(0, 0, np.arange(5000))
    asked = [fetch.keys for _, fetch in fetches if isinstance(fetch, Fetch)]
    assert max(fetch.nbytes for _, fetch in fetches) <= most
    assert np.sort(np.concatenate(asked)).tolist() == list(range(5000))
    for shard in (0, 1):
        keys = np.concatenate([fetch.keys for to, fetch in fetches if to == shard])
        rows = np.zeros((len(keys), 2), np.float32)
        cache.receive(Rows(0, shard, keys, rows, 0, 0, 0, reply=True))
    assert read(cache, np.arange(5000))
    cache.tick(0)
    cache.tick(1)
    gone = [message for _, message in cache.outgoing if isinstance(message, Dropped)]
    assert sum(len(message.keys) for message in gone) >= 4900
    assert max(message.nbytes for message in gone) <= most


def read(cache: Cache, keys: NDArray[np.int64]) -> bool:
    return cache.read(0, 0, keys, np.empty((len(keys), 2), np.float32))


# --- what a new user does wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (st.tables.Managed, {"burst": 100}, r"burst=100.*\(updates, rows\)"),
        (st.tables.Managed, {"burst": (10.5, 3)}, "burst="),
        (st.tables.Managed, {"window": 2.5}, "window=2.5"),
        (st.tables.Managed, {"window": "8"}, "window='8'"),
        (st.tables.Managed, {"split": "half"}, "split='half'"),
        (st.tables.Managed, {"links": {0: "1Mbit"}}, r"\(from node, to node\)"),
        (st.tables.Managed, {"links": [(0, 1)]}, r"\(from node, to node\)"),
        (st.tables.Managed, {"links": {(0, 0): "1Mbit"}}, r"\(from node, to node\)"),
        (st.tables.Eager, {"codec": "f16"}, r"codec='f16'.*'f2'"),
        (st.tables.Lazy, {"codec": "zip"}, r"codec='zip'.*'f2'"),
        (st.tables.SSP, {"speculate": "yes"}, "speculate must be True or False; got 'yes'"),
        (st.Simulated, {"faults": Crash(0, 1.0)}, "a list"),
        (st.Simulated, {"failures": Crash(0, 1.0)}, "a list"),
        (st.Simulated, {"stragglers": {"share": "a", "slow": 2, "seconds": 1}}, "stragglers="),
    ],
)
def test_values_that_cannot_be(kind: Any, given: dict[str, Any], said: str) -> None:
    if kind is st.tables.Managed:
        given = {"budget": "1Mbit", **given}
    with pytest.raises(PlanError, match=said):
        kind(**given)


def test_a_link_between_nodes_that_are_not_there() -> None:
    with pytest.raises(PlanError, match=r"links=.*\(0, 9\).*nodes 0 to 1"):
        st.run(
            lambda w: None,
            tables=TABLES,
            comm=st.tables.Managed("1Mbit", links={(0, 1): "1Mbit", (0, 9): "1Mbit"}),
            runtime=SIMULATED,
        )
    # On threads nothing travels: the policy of the cluster does no harm there.
    st.run(
        lambda w: None, tables=TABLES, comm=st.tables.Managed("1Mbit", links={(0, 9): "1Mbit"}), runtime=st.Threads(1)
    )


def test_a_worker_that_would_never_run_is_refused() -> None:
    def generator(w: Any) -> Any:
        yield w.tick()

    async def coroutine(w: Any) -> None:
        w.tick()

    for worker in (generator, coroutine):
        with pytest.raises(PlanError, match=r"worker.*only makes a"):
            st.run(worker, tables=TABLES)


@pytest.mark.parametrize("runtime", [st.Threads(1), st.Serial(), SIMULATED])
@pytest.mark.parametrize("items", [-5, float("nan"), float("inf"), "many"])
def test_work_that_cannot_be(runtime: Any, items: Any) -> None:
    with pytest.raises(RunError, match=r"worker 0, clock 0: work\(.*\); give how many items"):
        st.run(lambda w: w.work(items), tables=TABLES, runtime=runtime)


@pytest.mark.parametrize("n", ["3", 2.5, None])
def test_clocks_that_cannot_be(n: Any) -> None:
    with pytest.raises(RunError, match=r"worker 0, clock 0: clocks\(.*\); give a whole number"):
        st.run(lambda w: list(w.clocks(n)), tables=TABLES, runtime=st.Threads(1))


def test_keys_of_an_asynchronous_read_are_those_it_was_asked_with() -> None:
    seen = []

    def worker(w: Any) -> None:
        x = w.table("x")
        x.add(np.arange(20), np.arange(20))
        w.tick()
        keys = np.array([3, 4])
        later = x.read_async(keys)
        keys[:] = 9  # the worker goes on with its array
        seen.append(later.get().tolist())

    st.run(worker, tables=TABLES, runtime=SIMULATED)
    assert seen == [[3.0, 4.0]]


def test_what_a_start_function_gives_is_checked() -> None:
    table = st.tables.Table(rows=20, cols=3, start=lambda keys: np.zeros((2, 3)))
    with pytest.raises(RunError, match=r"table 'x': start\(keys\) gave float64 \[2, 3\] for \d+ keys; .*, 3\]"):
        st.run(lambda w: w.table("x").read(), tables={"x": table}, runtime=SIMULATED)


@pytest.mark.parametrize("seed", [12701, 13615, 14640])
def test_of_three_needs_for_one_row_the_middle_one_is_not_forgotten(seed: Any) -> None:
    """While a row was asked for, two workers came to need it at different clocks; only the later was remembered, and it
    could not be answered before the earlier had gone on."""
    from stretto.testing.schedules import run_seed

    run_seed(seed)
