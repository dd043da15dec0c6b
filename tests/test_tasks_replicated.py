"""Replicated states: copies of parts, what filters hold back, merges, yields, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import stretto as st
from stretto.consistency.replication import Filter, Merge, Replication
from stretto.errors import PlanError, RunError
from stretto.store.replica import Replica
from stretto.testing import check_replay

DRAW = np.random.default_rng(5)
X = DRAW.standard_normal((320, 24))
TRUE = DRAW.standard_normal(24)
Y = X @ TRUE
FILTERS = {
    "none": None,
    "absolute": st.top("absolute", share=0.2),
    "relative": st.top("relative", share=0.2),
    "random": st.random_share(0.2),
    "round-robin": st.round_robin(0.2),
}


def descend(worker: Any, X: Any, y: Any, v: Any) -> Iterator[None]:
    """Five steps of gradient descent on the rows of the part; control is handed over after each."""
    for _ in range(5):
        v.array[:] -= 0.05 * (X.T @ (X @ v.array - y)) / len(y)
        yield


def learn(runtime: Any, filter: Any = None, iterations: int = 20, **options: Any) -> Any:
    v = st.state(np.zeros(24), replicate=True, merge=st.average(), filter=filter)
    st.run(st.unit(descend, X, Y, v, parts=4, iterations=iterations), runtime=runtime, **options)
    return v.array


# -- the copy ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=some.data())
def test_nothing_is_lost_and_the_order_of_replicas_does_not_matter(data: Any) -> None:
    rows, cols, replicas = data.draw(some.integers(1, 12)), data.draw(some.integers(1, 3)), 3
    rank = data.draw(some.sampled_from(["absolute", "relative", "random", "round-robin"]))
    rule = data.draw(some.sampled_from([None, Filter(rank, data.draw(some.sampled_from([0.05, 0.3, 1.0])))]))
    rules = Replication(Merge(0.5), rule)
    table = np.zeros((rows, cols))
    copies = [Replica(rules, rows, cols, np.dtype("f8"), replicas, seed=k) for k in range(replicas)]
    total = np.zeros((rows, cols))
    for _ in range(data.draw(some.integers(1, 6))):
        sent = []
        for copy in copies:
            copy.receive(table)
            change = np.array(data.draw(some.lists(some.integers(-4, 4), min_size=rows * cols, max_size=rows * cols)))
            copy.values += change.reshape(rows, cols)
            total += change.reshape(rows, cols)
            sent.append(copy.send())
            if rule is not None:
                assert len(sent[-1][0]) <= rule.count(rows)
        for keys, changes in data.draw(some.permutations(sent)):
            table[keys] += changes
    for copy in copies:
        copy.receive(table)
    for copy in copies:
        keys, changes = copy.send(everything=True)
        assert not len(copy.unsent[0])
        table[keys] += changes
    assert (table == 0.5 * total).all()  # small integers and halves: exact


def test_a_filter_sends_what_it_says() -> None:
    values = np.array([[0.0], [-8.0], [100.0], [1.0]])
    for rank, first in (("absolute", [1]), ("relative", [0])):
        copy = Replica(Replication(Merge(), Filter(rank, 0.25)), 4, 1, np.dtype("f8"), 2)
        copy.receive(values)
        copy.values += np.array([[1.0], [4.0], [3.0], [0.5]])
        assert copy.send()[0].tolist() == first
    copy = Replica(Replication(Merge(), Filter("round-robin", 0.5)), 4, 1, np.dtype("f8"), 2)
    turns = []
    for _ in range(3):
        copy.receive(values)
        copy.values += 1.0
        turns.append(copy.send()[0].tolist())
    assert turns == [[0, 1], [2, 3], [0, 1]]


# -- units -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(
    "runtime",
    [st.Threads(1), st.Threads(3), st.Simulated(nodes=4, threads=1), st.Simulated(nodes=2, threads=2)],
    ids=repr,
)
def test_the_same_bits_on_every_runtime(name: str, runtime: Any) -> None:
    assert learn(runtime, FILTERS[name]).tobytes() == learn(st.Serial(), FILTERS[name]).tobytes()


def test_the_same_bits_on_a_cluster() -> None:
    cluster = st.Cluster("processes", nodes=2, threads=1)
    assert learn(cluster, FILTERS["relative"]).tobytes() == learn(st.Serial(), FILTERS["relative"]).tobytes()


@pytest.mark.parametrize("name", FILTERS)
def test_it_learns(name: str) -> None:
    assert np.abs(learn(st.Serial(), FILTERS[name], iterations=60) - TRUE).max() < 0.01


def test_averaging_and_adding() -> None:
    def one(worker: Any, v: Any) -> None:
        v.array[:] += 1.0

    found = {}
    for name, merge in {"add": st.add(), "half": st.add(0.5), "average": st.average(), "own": _twice}.items():
        v = st.state(np.zeros(3), replicate=True, merge=merge)
        st.run(st.unit(one, v, parts=4), runtime=st.Threads(2))
        found[name] = v.array.tolist()
    assert found == {"add": [4.0] * 3, "half": [2.0] * 3, "average": [1.0] * 3, "own": [8.0] * 3}


def _twice(changes: Any, replicas: int) -> Any:
    return 2 * changes


@pytest.mark.parametrize("name", ["absolute", "random"])
def test_what_is_held_back_survives_the_division_of_a_unit_into_stages(name: str, tmp_path: Path) -> None:
    v = st.state(np.zeros(24), replicate=True, merge=st.add(0.25), filter=FILTERS[name])
    unit = st.unit(once, X, Y, v, parts=4, iterations=20)
    whole = v.copy()
    st.run(st.unit(once, X, Y, whole, parts=4, iterations=20), runtime=st.Threads(2))
    result = st.run(unit, runtime=st.Threads(2), checkpoint=tmp_path, checkpoint_every="3 iterations")
    assert len(result.stages) == 7
    assert v.array.tobytes() == whole.array.tobytes()


def once(worker: Any, X: Any, y: Any, v: Any) -> None:
    v.array[:] -= 0.05 * (X.T @ (X @ v.array - y)) / len(y)


def test_yields_in_nested_functions_every_third_of_which_is_an_exchange() -> None:
    seen = []

    def inner(v: Any) -> Iterator[None]:
        for _ in range(3):
            v.array[:] += 1.0
            yield

    def outer(worker: Any, v: Any) -> Iterator[None]:
        yield from inner(v)
        if worker.part == 0:
            seen.append(v.array[0])
        yield from inner(v)
        if worker.part == 0:
            seen.append(v.array[0])

    v = st.state(np.zeros(2), replicate=True, every=3)
    st.run(st.unit(outer, v, parts=2), runtime=st.Serial())
    assert seen == [6.0, 12.0]  # both parts: 3 steps each before the first exchange
    assert v.array.tolist() == [12.0, 12.0]


def test_parts_may_yield_differently_often_and_return_a_value() -> None:
    def uneven(worker: Any, v: Any) -> Any:
        for _ in range(1 + 2 * worker.part):
            v.array[:] += 1.0
            yield
        return float(worker.part)

    v = st.state(np.zeros(1), replicate=True)
    result = st.run(st.unit(uneven, v, parts=3), runtime=st.Threads(3))
    assert v.array.tolist() == [9.0]
    assert result.value == 3.0


def test_an_error_between_two_yields_names_the_part() -> None:
    def fails(worker: Any, v: Any) -> Iterator[None]:
        yield
        if worker.part == 1:
            raise ValueError("odd")
        yield

    v = st.state(np.zeros(1), replicate=True)
    with pytest.raises(RunError, match=r"unit fails failed in part 1, iteration 1.*odd"):
        st.run(st.unit(fails, v, parts=2), runtime=st.Threads(2))


def test_a_copy_may_be_assigned_to() -> None:
    def assigns(worker: Any, v: Any) -> None:
        v.array = v.array + 1.0

    v = st.state(np.zeros(3), replicate=True)
    st.run(st.unit(assigns, v, parts=2, iterations=2), runtime=st.Threads(2))
    assert v.array.tolist() == [4.0] * 3


@pytest.mark.parametrize("row", [-1, 3])
def test_rows_that_do_not_exist_are_refused(row: int) -> None:
    def reads(worker: Any, v: Any) -> None:
        v.read([row])

    def adds(worker: Any, v: Any) -> None:
        v.add([row], [1.0])

    for function in (reads, adds):
        with pytest.raises(RunError, match=r"a replicated state with rows 0 to 2"):
            st.run(st.unit(function, st.state(np.zeros(3), replicate=True)), runtime=st.Threads(1))


def test_a_read_only_copy_sends_nothing() -> None:
    def look(worker: Any, rows: Any, v: Any) -> float:
        return float(v.read([0])[0])

    v = st.state(np.ones(1000), replicate=True)
    result = st.run(st.unit(look, np.arange(8), v, parts=8, iterations=2), runtime=st.Simulated(nodes=4, threads=1))
    assert result.value == 8.0
    assert v.array.tolist() == [1.0] * 1000


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1), st.tables.ASP()], ids=repr)
def test_no_update_is_lost_under_delays(sync: Any) -> None:
    def count(worker: Any, v: Any) -> Iterator[None]:
        for row in range(6):
            v.add([row, (row + worker.part) % 6], [1.0, 1.0])
            yield

    v = st.state(np.zeros(6), replicate=True, filter=st.round_robin(0.2))
    runtime = st.Simulated(nodes=3, threads=1, link="10Mbit", latency="1ms", seed=3)
    result = st.run(st.unit(count, v, parts=6, iterations=4, sync=sync), runtime=runtime, record="full")
    assert v.array.sum() == 6 * 4 * 12
    for stage in result.stages:
        check_replay(stage.recording)


# -- partitioned states ------------------------------------------------------------------------------------------------


def own_rows(worker: Any, rows: Any, w: Any) -> None:
    w.add(rows, 0.5 * w.read(rows) + 1.0)


def test_a_state_says_which_node_holds_which_rows() -> None:
    size = 4 * 8192  # four chunks of 64 KiB
    sent = {}
    crossed = lambda rows, nodes: (np.asarray(rows) // 8192 + 1) % nodes  # noqa: E731
    for name, partition in {"rows": "rows", "ranges": [0, 8192, 16384, 24576], "crossed": crossed}.items():
        w = st.state(np.zeros(size), partition=partition)
        unit = st.unit(own_rows, np.arange(size), w, parts=4, iterations=3)
        result = st.run(unit, runtime=st.Simulated(nodes=4, threads=1))
        sent[name] = sum(stage.sent for stage in result.stages)
        assert set(w.array.tolist()) == {4.75}  # x ← 1.5 x + 1 from 0, three times
    assert sent["rows"] == sent["ranges"] < sent["crossed"] / 10  # every part adds to rows that its node holds


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda v: st.unit(once, st.whole(X), st.whole(Y), v, parts=4), "both replicated"),
        (lambda v: st.unit(once, X, Y, v, mode="hogwild"), "a copy for each part"),
        (lambda v: st.state([1.0], merge=st.add()), "replicate=True"),
        (lambda v: st.state([1.0], replicate=True, merge=3), "merge=3"),
        (lambda v: st.state([1.0], replicate=True, filter="top"), "st.top"),
        (lambda v: st.state([1.0], replicate=True, partition="rows"), "contradict"),
        (lambda v: st.state([1.0], partition="columns"), "give a matrix"),
        (lambda v: st.state([1.0], partition=[1, 2]), "beginning with 0"),
        (lambda v: st.top("absolute", share=1.5), "share"),
        (lambda v: st.top("largest"), "largest"),
        (lambda v: st.add(-1.0), "gamma"),
    ],
)
def test_refusals(make: Any, words: str) -> None:
    v = st.state(np.zeros(24), replicate=True)
    with pytest.raises((PlanError, ValueError), match=words):
        make(v)


def test_the_logical_plan_says_how_a_state_is_kept_consistent() -> None:
    v = st.state(np.zeros(24), replicate=True, merge=st.add(0.5), filter=st.top("relative", share=0.2))
    text = st.unit(once, X, Y, v, parts=4).logical()
    assert "a copy for each part, changes are added 0.5 times, sends 20% of its rows in an exchange (relative)" in text
