"""How replicated states exchange: the same bits in every way, lifetimes, losses, quotas, and which way is chosen."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import stretto as st
from stretto.comm.budget import Bucket
from stretto.consistency.exchange import WAYS, ExchangeCost, ExchangeSize, MachineModel, choose, elected
from stretto.consistency.replication import Filter, Merge, Replication
from stretto.errors import PlanError, RunError
from stretto.store.local.grid import ChunkGrid
from stretto.store.local.holdings import DRIVER, Holdings
from stretto.store.replica import Replica
from stretto.testing import check_replay

ROWS = 20_000  # f8: three chunks of 64 KiB
EVERY = (*WAYS, "auto")


def climb(worker: Any, v: Any, by: float) -> Iterator[None]:
    """Changes some rows of the copy by what it reads; control is handed over twice in an iteration."""
    for turn in range(2):
        rows = worker.random(turn).integers(0, v.rows, 40)
        v.add(rows, by * (1.0 + 0.1 * v.read(rows)) * (1 + worker.part) / 7)
        worker.work(10)
        yield


def touch(worker: Any, v: Any) -> None:
    """Changes rows of every chunk, as a unit on one node."""
    v.array[::997] = 0.5 * v.array[::997] + 0.3


def learned(runtime: Any, exchange: str = "auto", filter: Any = None, sync: Any = None, **options: Any) -> Any:
    v = st.state(np.linspace(0.0, 1.0, ROWS), replicate=True, merge=st.add(0.3), filter=filter, exchange=exchange)
    result = st.run(st.unit(climb, v, 0.7, parts=5, iterations=3, sync=sync), runtime=runtime, **options)
    return v.array, result


@pytest.fixture(scope="module")
def serial() -> dict[bool, bytes]:
    """The bits of the serial run, with and without a filter."""
    return {some: learned(st.Serial(), filter=FILTER if some else None)[0].tobytes() for some in (False, True)}


FILTER = st.top("absolute", share=0.001)


# -- bits and bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("exchange", EVERY)
def test_every_way_gives_the_same_bits(exchange: str, filtered: bool, serial: dict[bool, bytes]) -> None:
    for nodes, threads in ((2, 2), (5, 1)):
        found, _ = learned(st.Simulated(nodes=nodes, threads=threads), exchange, FILTER if filtered else None)
        assert found.tobytes() == serial[filtered]
    assert learned(st.Threads(2), exchange, FILTER if filtered else None)[0].tobytes() == serial[filtered]


def test_changes_go_where_the_name_says() -> None:
    pairs = {}
    for exchange in WAYS:
        _, result = learned(st.Simulated(nodes=4, threads=1), exchange, record="full")
        check_replay(result.stages[0].recording)
        sends = [send for send in result.stages[0].recording.sends if send.kind == "Update"]
        pairs[exchange] = {(send.source, send.target) for send in sends}
        rows = {(send.source, send.target) for send in result.stages[0].recording.sends if send.kind == "Rows"}
        assert bool(rows) == (exchange in ("shards", "holder"))  # nothing comes back where every node has all rows
    every = {(a, b) for a in range(4) for b in range(4) if a != b}
    assert pairs["all-to-all"] == every
    assert pairs["ring"] == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert {target for _, target in pairs["holder"]} == {3}  # five parts on four nodes: it has two of them
    assert {target for _, target in pairs["shards"]} == {0, 1, 2}  # three chunks


@pytest.mark.parametrize("sync", [st.tables.SSP(1), st.tables.ASP()], ids=repr)
@pytest.mark.parametrize("exchange", WAYS)
def test_no_update_is_lost_where_parts_do_not_wait(exchange: str, sync: Any) -> None:
    def count(worker: Any, v: Any) -> Iterator[None]:
        for row in range(6):
            v.add([row, (row + worker.part) % 6], [1.0, 1.0])
            yield

    v = st.state(np.zeros(6), replicate=True, filter=st.round_robin(0.2), exchange=exchange)
    runtime = st.Simulated(nodes=3, threads=1, link="10Mbit", latency="1ms", seed=3)
    result = st.run(st.unit(count, v, parts=6, iterations=3, sync=sync), runtime=runtime, record="full")
    assert v.array.sum() == 6 * 3 * 12
    for stage in result.stages:
        check_replay(stage.recording)


@pytest.mark.parametrize("exchange", WAYS)
def test_a_crash_of_a_node_in_the_middle_loses_nothing(exchange: str) -> None:
    """What a filter holds back and where a function has yielded are in no checkpoint: the stage begins anew."""

    def run(runtime: Any, **options: Any) -> tuple[bytes, Any]:
        v = st.state(np.zeros(60), replicate=True, filter=st.round_robin(0.1), exchange=exchange)
        result = st.run(st.unit(climb, v, 0.7, parts=5, iterations=12), runtime=runtime, **options)
        return v.array.tobytes(), result.stages[0]

    reference, _ = run(st.Serial())
    _, whole = run(st.Simulated(nodes=3, threads=1))
    crash = st.faults.Crash(node=1, at=0.7 * whole.seconds)
    cluster = st.Simulated(nodes=3, threads=1, failures=[crash], detect=0.5, back_after=0.5, save="1TB")
    found, stage = run(cluster, record="full")
    assert stage.recording.restarts
    assert found == reference
    check_replay(stage.recording)


def test_several_states_with_several_ways_in_one_unit() -> None:
    def both(worker: Any, a: Any, b: Any, c: Any) -> Iterator[None]:
        for _ in range(2):
            a.array[:] += 0.1 * b.array + worker.part
            b.array[:] -= 0.2 * a.array
            c.add([worker.part], [float(a.array.sum())])
            yield

    def run(runtime: Any, ways: Any) -> bytes:
        a, b = (st.state(np.ones(9), replicate=True, merge=st.average(), exchange=way) for way in ways)
        c = st.zeros(4, "f8")
        st.run(st.unit(both, a, b, c, parts=4, iterations=2), runtime=runtime)
        return b"".join(one.array.tobytes() for one in (a, b, c))

    first = run(st.Serial(), ("auto", "auto"))
    for ways in (("ring", "all-to-all"), ("ring", "shards"), ("holder", "ring")):
        assert run(st.Simulated(nodes=3, threads=1), ways) == first


# -- lifetimes ---------------------------------------------------------------------------------------------------------


def journey(v: Any) -> Any:
    """Units on all nodes, on single ones and on some, in sequence; some nodes get no part."""
    return st.loop(
        st.seq(
            st.unit(climb, v, 0.7, parts=3, iterations=2),
            st.unit(touch, v, placement={1: 1}),
            st.unit(climb, v, 0.4, parts=2, placement={0: 1, 1: 1, 2: 1}),
            st.unit(climb, v, 0.2, parts=4, placement={0: 1, 2: 1}),
        ),
        times=2,
    )


def travelled(runtime: Any, exchange: str) -> tuple[bytes, Any]:
    v = st.state(np.linspace(0.0, 1.0, ROWS), replicate=True, merge=st.add(0.3), exchange=exchange)
    result = st.run(journey(v), runtime=runtime)
    st.run(st.unit(climb, v, 0.1, parts=3), runtime=runtime)  # and again in another task
    return v.array.tobytes(), result


@pytest.mark.parametrize("exchange", ["holder", "all-to-all", "ring"])
def test_a_state_passes_from_unit_to_unit(exchange: str) -> None:
    reference, _ = travelled(st.Simulated(nodes=3, threads=1), "shards")
    found, result = travelled(st.Simulated(nodes=3, threads=1), exchange)
    assert found == reference
    if exchange != "holder":  # each wide stage copies what the one before has changed on other nodes
        moved = [stage.moved for stage in result.stages if len(stage.nodes) > 1]
        assert min(moved) > 0


def test_copies_of_one_stage_serve_the_next() -> None:
    v = st.state(np.zeros(ROWS), replicate=True, exchange="all-to-all")
    units = [st.unit(climb, v, 0.1, parts=3) for _ in range(3)]
    result = st.run(st.seq(*units), runtime=st.Simulated(nodes=3, threads=1))
    assert [stage.moved > 0 for stage in result.stages] == [True, False, False]


def held_states_of(worker: Any, w: Any) -> float:
    """How many states the process of the part holds."""
    import stretto.runtime.stages.held_states as states

    return float(len([key for key in states._held if key[1] >= 0]))


def ones(worker: Any, v: Any) -> Iterator[None]:
    """Adds one to every row, twice in an iteration."""
    for _ in range(2):
        v.array[:] += 1.0
        yield


def test_a_cluster_of_processes_has_the_same_bits_and_frees_its_copies() -> None:
    def run(runtime: Any, ways: Any) -> tuple[list[bytes], float]:
        states = [
            st.state(np.linspace(0.0, 1.0, ROWS), replicate=True, merge=st.add(0.3), exchange=way) for way in ways
        ]
        session = st.Session()
        session.submit(st.seq(*(journey(v) for v in states)), runtime=runtime).result(240)
        session.submit(st.seq(*(st.unit(climb, v, 0.1, parts=3) for v in states))).result(120)  # in another task
        limited = st.state(np.zeros(300), replicate=True, filter=st.top(quota="80kbit"), exchange=ways[0])
        session.submit(st.unit(ones, limited, parts=3, iterations=4)).result(60)
        assert set(limited.array) == {24.0}  # at the end everything is sent, whatever the quota
        left = math.inf
        for _ in range(50):  # a result may come before the nodes have freed what its task used
            left = min(left, session.submit(st.unit(held_states_of, st.zeros(3), parts=3)).result(60).value)
            if left <= 3.0:
                break
        session.close()
        return [v.array.tobytes() for v in states], left

    reference, _ = run(st.Simulated(nodes=3, threads=1), ("shards",) * 3)
    found, left = run(st.Cluster("processes", nodes=3, threads=1), ("all-to-all", "ring", "holder"))
    assert found == reference
    assert left == 3.0  # on each of three nodes only the state of this unit


def dies(worker: Any, v: Any, marker: str) -> Iterator[None]:
    """Kills the process of a part once, between two exchanges."""
    for turn in range(3):
        v.add([worker.part, 7], [1.0, 0.5])
        v.array[50:60] += 1.0  # more than the filter lets through
        yield
        if turn == 1 and worker.part == 1 and worker.iteration == 4:
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("exchange", ["ring", "all-to-all"])
def test_a_killed_process_loses_and_doubles_nothing(exchange: str, tmp_path: Path) -> None:
    """The task goes back to its last values; what filters held back then is sent once, at the end."""
    v = st.state(np.zeros(100), replicate=True, filter=st.round_robin(0.02), exchange=exchange)
    unit = st.unit(dies, v, str(tmp_path / "killed"), parts=2, iterations=6)
    with pytest.warns(RuntimeWarning, match="was lost"):
        st.run(unit, runtime=st.Cluster("processes", nodes=2, threads=1), checkpoint=tmp_path / "saved")
    assert (tmp_path / "killed").exists()
    assert v.array[:2].tolist() == [18.0, 18.0]
    assert v.array[7] == 2 * 18 * 0.5
    assert set(v.array[50:60]) == {36.0}


# -- the copies of chunks ----------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(data=some.data())
def test_copies_reach_every_node_and_come_from_nodes_that_have_them(data: Any) -> None:
    """Stages that mirror, cut, gather and change, in any order: fresh rows are never read from a node without them."""
    holdings, chunks = Holdings(), data.draw(some.integers(1, 5))
    holdings.add(0, ChunkGrid(chunks, 0))
    fresh = {DRIVER: set(range(chunks)), **{node: set[int]() for node in range(4)}}  # by node
    for _ in range(data.draw(some.integers(1, 6))):
        what = data.draw(some.sampled_from(["mirror", "cut", "gather"]))
        nodes = sorted(data.draw(some.sets(some.integers(0, 3), min_size=2)))
        before = holdings.holders(0)
        moves = holdings.gather(0, nodes[0]) if what == "gather" else holdings.spread(0, nodes)
        copies = holdings.mirror(0, nodes, before) if what == "mirror" else []
        if what == "cut":
            holdings.unmirror(0)
        for move in moves:
            assert fresh[move.source] >= set(move.chunks.tolist())
            fresh[move.target] |= set(move.chunks.tolist())
        for copy in copies:
            assert fresh[copy.source] >= set(copy.chunks.tolist())
            fresh[copy.target] |= set(copy.chunks.tolist())
        holders = holdings.holders(0).tolist()
        if what == "mirror":
            assert all(fresh[node] == set(range(chunks)) for node in nodes)
            fresh = {node: set(range(chunks)) if node in nodes else set() for node in fresh}
        else:  # the holders change their chunks
            fresh = {node: {k for k, holder in enumerate(holders) if holder == node} for node in fresh}
            if what == "gather":
                holdings.changed(0, nodes[0], range(chunks))


# -- which way ---------------------------------------------------------------------------------------------------------


def test_who_is_elected() -> None:
    assert elected([0, 1, 1, 2]) == 1  # most parts
    assert elected([0, 1, 2], [2, 2, 0]) == 2  # then most of the state
    assert elected([2, 0, 1]) == 0  # then the lowest
    assert elected([2, 0, 1], [DRIVER, DRIVER]) == 0
    assert elected([2, 0]) == 0  # node 1 has left


def test_the_model_prefers_what_it_should() -> None:
    slow = MachineModel(rate=1e6, latency=1e-4, message_seconds=0.0, byte_seconds=0.0)
    small, large = (ExchangeSize((1,) * 8, rows, 16) for rows in (4, 100_000))
    assert choose(small).way == "all-to-all"  # one step instead of two
    assert choose(large, slow).way == "shards"  # about two vectors a node instead of seven
    sparse = ExchangeSize((1,) * 8, 100_000, 16, share=0.001)
    assert choose(sparse, slow).way == "all-to-all"  # hardly two parts change the same row
    uneven = ExchangeSize((14, 1), 100_000, 16)
    assert choose(uneven, slow).way == "holder"  # the changes of fourteen parts stay where they are
    assert choose(ExchangeSize((3,), 5, 16)).way == "shards"
    assert "all parts are on one node" in choose(ExchangeSize((3,), 5, 16)).reason


@settings(max_examples=100, deadline=None)
@given(
    parts=some.lists(some.integers(1, 5), min_size=2, max_size=8),
    rows=some.integers(1, 10**6),
    share=some.floats(0.001, 1.0),
)
def test_the_choice_is_the_least_and_a_ring_is_never_below_all_to_all(parts: Any, rows: int, share: float) -> None:
    cost = ExchangeCost(ExchangeSize(tuple(parts), rows, 16, share))
    costs = {way: cost.seconds(way) for way in WAYS}
    assert costs[choose(cost.size).way] == min(costs.values())
    assert choose(cost.size, asked="ring").way == "ring"
    if len(set(parts)) == 1:
        assert cost.nbytes("ring") == pytest.approx(cost.nbytes("all-to-all"))


def test_the_plan_says_how_and_why() -> None:
    v = st.state(np.zeros(24), replicate=True)
    text = " ".join(st.unit(climb, v, 0.5, parts=8).plan(workers=4, nodes=4).explain().split())
    assert "exchanges v by all-to-all, least of the four: " in text
    assert "for 24 rows of 16 bytes, 100% of them from each of 8 parts on 4 nodes, at 1000 Mbit and 100 µs" in text
    w = st.state(np.zeros(24), replicate=True, exchange="ring")
    asked = st.unit(climb, w, 0.5, parts=8)
    assert "by ring, asked for: " in " ".join(asked.plan(workers=4, nodes=4).explain().split())
    assert "nothing is sent" in " ".join(asked.plan(workers=4, nodes=1).explain().split())


def test_the_exchange_is_no_part_of_the_fingerprint() -> None:
    plans = {
        st.unit(climb, st.state(np.zeros(24), replicate=True, exchange=way), 0.5, parts=8).plan().fingerprint
        for way in EVERY
    }
    assert len(plans) == 1


# -- quotas ------------------------------------------------------------------------------------------------------------


def test_a_quota_sends_what_the_time_allows() -> None:
    rules = Replication(Merge(), Filter("absolute", None, quota=160.0, asked="160 bytes/s"))
    copy = Replica(rules, 10, 1, np.dtype("f8"), 2)  # rows of 16 bytes: ten a second
    copy.receive(np.zeros((10, 1)))
    copy.begin(5.0)
    copy.values[:, 0] = np.arange(1, 11)
    assert copy.send(now=5.0)[0].tolist() == []
    assert copy.send(now=5.25)[0].tolist() == [8, 9]  # the largest changes; half a row's time is left
    copy.receive(np.array([[0.0]] * 8 + [[9.0], [10.0]]))
    assert copy.send(now=5.35)[0].tolist() == [7]
    copy.receive(np.array([[0.0]] * 7 + [[8.0], [9.0], [10.0]]))
    assert copy.send(now=99.0)[0].tolist() == list(range(7))  # an idle time counts, up to all rows
    assert len(copy.unsent[0]) == 0


@settings(max_examples=60, deadline=None)
@given(steps=some.lists(some.tuples(some.floats(0.0, 2.0), some.integers(0, 40)), min_size=1, max_size=20))
def test_over_any_time_a_quota_is_kept(steps: list[tuple[float, int]]) -> None:
    bucket, now, sent = Bucket(10.0), 0.0, [(0.0, 0.0)]
    for seconds, wanted in steps:
        now += seconds
        some_of = min(wanted, bucket.unused(now, 15.0))
        bucket.spend(some_of)
        sent.append((now, some_of))
    for first in range(len(sent)):
        total = sum(many for _, many in sent[first + 1 :])
        assert total <= 10.0 * (now - sent[first][0]) + 15.0 + 1e-6


@pytest.mark.parametrize("make", [st.random_share, st.round_robin, lambda **how: st.top("relative", **how)])
@pytest.mark.parametrize("exchange", ["shards", "all-to-all"])
def test_a_quota_holds_back_and_loses_nothing(make: Any, exchange: str) -> None:
    def count(worker: Any, v: Any) -> Iterator[None]:
        for _ in range(4):
            v.array[:] += 1.0
            worker.work(100)
            yield

    sent, found = {}, {}
    for quota in ("200kbit", "100Mbit"):
        v = st.state(np.zeros(500), replicate=True, filter=make(quota=quota), exchange=exchange)
        unit = st.unit(count, v, parts=3, iterations=3)
        assert unit.plan().grade == "replayable"
        runs = []
        for _ in range(2):
            v.array[:] = 0.0
            result = st.run(unit, runtime=st.Simulated(nodes=3, threads=1, seconds_per_item=1e-5))
            assert set(v.array) == {36.0}  # everything has been sent at the end
            runs.append((result.stages[0].sent, result.stages[0].seconds))
        assert runs[0] == runs[1]  # virtual time: repeatable
        sent[quota], found[quota] = runs[0]
    assert sent["200kbit"] < 0.6 * sent["100Mbit"]


def test_quotas_on_threads_and_without_time() -> None:
    def count(worker: Any, v: Any) -> Iterator[None]:
        for _ in range(5):
            v.array[:] += 1.0
            yield

    for runtime in (st.Threads(2), st.Serial()):
        v = st.state(np.zeros(200), replicate=True, filter=st.top(quota="8kbit"))
        st.run(st.unit(count, v, parts=2, iterations=4), runtime=runtime)
        assert set(v.array) == {40.0}


# -- yields ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exchange", WAYS)
def test_parts_that_yield_differently_often_exchange_at_the_same_clocks(exchange: str) -> None:
    """The period is that of the states, the same for all parts; a part without yields exchanges after its iteration."""
    seen: dict[int, list[float]] = {}

    def inner(v: Any, times: int) -> Iterator[None]:
        for _ in range(times):
            v.array[0] += 1.0
            yield

    def uneven(worker: Any, v: Any) -> Iterator[None]:
        yield from inner(v, 3 * worker.part)  # the first part makes no step and never yields
        seen.setdefault(worker.part, []).append(float(v.array[0]))

    v = st.state(np.zeros(2), replicate=True, exchange=exchange, every=2)
    st.run(st.unit(uneven, v, parts=3, iterations=2), runtime=st.Simulated(nodes=3, threads=1))
    assert v.array.tolist() == [18.0, 0.0]
    assert seen[0] == [0.0, 4.0]  # after its first iteration: two steps of each other part
    assert len(seen[1]) == len(seen[2]) == 2


def test_a_part_without_data_takes_part() -> None:
    def total(worker: Any, rows: Any, v: Any) -> Iterator[None]:
        for row in rows:
            v.array[0] += float(row)
            yield

    for exchange in WAYS:
        v = st.state(np.zeros(1), replicate=True, exchange=exchange)
        st.run(st.unit(total, np.arange(3.0), v, parts=5, iterations=2), runtime=st.Simulated(nodes=3, threads=1))
        assert v.array.tolist() == [6.0]


@pytest.mark.parametrize("exchange", WAYS)
def test_an_error_between_yields_ends_the_run_and_names_the_part(exchange: str) -> None:
    def fails(worker: Any, v: Any) -> Iterator[None]:
        try:
            v.array[:] += 1.0
            yield
        finally:
            v.array[:] += 1.0
        if worker.part == 2:
            raise ValueError("odd")
        yield

    v = st.state(np.zeros(1), replicate=True, exchange=exchange)
    with pytest.raises(RunError, match=r"unit fails failed in part 2, iteration 1.*odd"):
        st.run(st.unit(fails, v, parts=4), runtime=st.Simulated(nodes=4, threads=1))


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: st.state([1.0], replicate=True, exchange="tree"), "tree"),
        (lambda: st.state([1.0], exchange="ring"), "replicate=True"),
        (lambda: st.top("absolute", share=0.1, quota="1Mbit"), "both of share= and quota="),
        (st.random_share, "neither of share= and quota="),
        (lambda: st.round_robin(quota="fast"), "is not a rate"),
        (lambda: st.unit(touch, st.state([1.0], replicate=True, exchange="ring"), mode="locked"), "copy for each part"),
        (
            lambda: st.unit(
                climb, st.whole(np.ones(3)), st.state([1.0], replicate=True, exchange="all-to-all"), parts=4
            ),
            "both replicated",
        ),
    ],
)
def test_refusals(make: Any, words: str) -> None:
    with pytest.raises((PlanError, ValueError), match=words):
        make()
