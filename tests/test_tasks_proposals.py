"""Proposals of the planner for states: right about cost on simulated nodes, and never a change of results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from bench import state_placements

import stretto as st
from stretto.errors import PlanError
from stretto.runtime.stages.placed_chunks import placed_chunks
from stretto.tasks.proposals.accesses import StateAccess
from stretto.tasks.proposals.costs import Machine, busiest_bytes, seconds_of
from stretto.tasks.proposals.distribution import DISTRIBUTIONS, distribution_of

SIZE = 16 * 8192  # 16 chunks
NODES = st.Simulated(nodes=4, threads=1)


def own_rows(worker: Any, rows: Any, w: Any) -> None:
    w.add(rows, 0.5 * w.read(rows) + 1.0)


def look_up(worker: Any, rows: Any, table: Any, total: Any) -> Iterator[None]:
    total.add([worker.part], [table.read(rows[:3]).sum()])
    yield
    total.add([worker.part], [float(table.read([0])[0])])


def test_proposals_say_where_and_why_and_change_no_bits() -> None:
    w, table, total = st.state(np.ones(SIZE)), st.state(np.ones(SIZE)), st.zeros(4, "f8")
    task = st.seq(
        st.loop(st.unit(own_rows, np.arange(SIZE), w, parts=4, iterations=3), times=2),
        st.unit(look_up, np.arange(SIZE), table, total, parts=4),
    )
    proposals = st.propose(task, NODES)
    assert (w.array == 1.0).all()  # nothing has run on it
    found = {one.name: one for one in proposals}
    assert {name: (one.placement, one.changes) for name, one in found.items()} == {
        "w": ("partitioned", True),
        "table": ("read-only", False),
        "total": ("served", False),
    }
    assert found["w"].seconds["partitioned"] < found["w"].seconds["served"] < found["w"].seconds["replicated"]
    assert found["w"].state is w
    text = str(proposals)
    assert "4 nodes, 1 Gbit, 100 µs" in text
    assert "w: partitioned: 1.0 MiB, of which each of 4 parts reads 25% and changes 25% an iteration" in text
    assert "so each node reads it once and nothing is sent after that" in text
    before = st.run(task, runtime=NODES)
    first, w.array[:] = w.array.copy(), 1.0
    after = st.run(proposals.apply(), runtime=NODES)
    assert (w.array == first).all()
    assert after.seconds < before.seconds / 4


def test_a_state_is_placed_automatically_when_asked() -> None:
    seconds, values = {}, {}
    for placement in (None, "auto"):
        w, other = st.state(np.ones(SIZE), placement=placement), st.state(np.ones(SIZE))
        unit = st.unit(own_rows, np.arange(SIZE), w, parts=4, iterations=3)
        result = st.run(st.seq(unit, st.unit(own_rows, np.arange(SIZE), other, parts=4)), runtime=NODES)
        seconds[placement], values[placement] = result.seconds, w.array.copy()
        placed = {unit.arguments[1].value is w: unit.partition for unit in result.plan.task.units()}
        assert placed == {True: (("w", "range"),) if placement else (), False: ()}  # the other one was not asked for
    assert (values[None] == values["auto"]).all()
    assert seconds["auto"] < seconds[None] / 2
    with pytest.raises(PlanError, match="placement='auto' and partition= contradict"):
        st.state([1.0], placement="auto", partition="rows")


def test_without_measuring_everything_is_assumed() -> None:
    calls = []

    def step(worker: Any, w: Any) -> None:
        calls.append(worker.part)

    w = st.state(np.ones(SIZE))
    (one,) = st.propose(st.unit(step, w, parts=4), NODES, measure=False)
    assert one.placement == "served"
    assert "4 parts assumed to read and change all of its 131,072 rows" in one.reason
    assert not calls
    assert one.reason in " ".join(st.unit(step, w, parts=4).plan(workers=4, nodes=4).explain().split())
    st.propose(st.unit(step, w, parts=4, iterations=50), NODES)
    assert sorted(calls) == [0, 1, 2, 3]  # one iteration


def test_declared_states_and_one_node_stay_as_they_are() -> None:
    def use(worker: Any, v: Any, D: Any, w: Any) -> None:
        w.add([0], [1.0])

    states = (st.state(np.ones(4), replicate=True), st.state(np.ones((2, 4)), partition="columns"), st.zeros(4))
    task = st.unit(use, *states, parts=4)
    assert [one.placement for one in st.propose(task, NODES)] == ["replicated", "declared", "served"]
    local = st.propose(task, st.Threads(2))
    assert [one.placement for one in local] == ["replicated", "declared", "one node"]
    assert not any(one.changes for one in local)
    assert local.apply() is task


def test_the_cost_of_a_placement() -> None:
    access = StateAccess.of(2, SIZE)
    access.read[0][:5] = access.changed[0][:5] = True  # part 0 uses 5 rows of the first chunk
    access.read[1][:2] = True
    away = np.ones(SIZE, np.int64)
    assert busiest_bytes(away, access, [0, 1], 16) == 5 * 16  # to node 1, and back to node 0
    assert busiest_bytes(np.zeros(SIZE, np.int64), access, [0, 1], 16) == 2 * 16  # to node 1, which reads two
    assert busiest_bytes(away, access, [1, 1], 16) == 0
    machine = Machine(2, 1e6, 0.5)
    assert (seconds_of(0, machine), seconds_of(1_000_000, machine)) == (0.0, 2.0)
    assert placed_chunks(5, (0, 3), ranges=True).tolist() == [0, 0, 0, 3, 3]
    assert sorted(np.bincount(placed_chunks(16, (0, 1, 2), ranges=False))) == [5, 5, 6]


@pytest.mark.parametrize(
    "name",
    [
        "own rows and shared ones",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("own rows", "random rows", "reads all, changes ten")),
    ],
)
def test_the_proposal_is_within_a_tenth_of_the_best(name: str) -> None:
    function = state_placements.TASKS[name]
    (one,) = st.propose(state_placements.task_of(function)[0], state_placements.NODES)
    seconds = {
        placement: state_placements.measured(function, placement)[0] for placement in state_placements.PLACEMENTS
    }
    assert seconds[one.placement] <= 1.1 * min(seconds.values())


# -- table 3.1 of the dissertation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["partitioned", "replicated"])
@pytest.mark.parametrize("states", ["partitioned", "replicated"])
def test_distributions_of_data_and_states(data: str, states: str) -> None:
    def use(worker: Any, X: Any, v: Any) -> None:
        pass

    X: Any = np.ones((8, 2)) if data == "partitioned" else st.whole(np.ones((8, 2)))
    for v in (
        [st.state(np.ones(4), replicate=True)]
        if states == "replicated"
        else [st.zeros(4), st.state([1.0], partition="rows")]
    ):
        if (data, states) not in DISTRIBUTIONS:
            with pytest.raises(PlanError, match="both replicated, so all parts would compute the same"):
                st.unit(use, X, v, parts=4)
            continue
        unit = st.unit(use, X, v, parts=4)
        assert distribution_of(unit) == DISTRIBUTIONS[data, states]
        assert DISTRIBUTIONS[data, states] in unit.plan(workers=2).explain()
    assert distribution_of(st.unit(use, X, st.zeros(4), parts=1)) is None


def test_sources_count_as_partitioned() -> None:
    def use(worker: Any, X: Any, v: Any) -> None:
        pass

    X = st.state(st.source(lambda part, parts: part), partition="rows")
    assert distribution_of(st.unit(use, X, st.state(np.ones(4), replicate=True), parts=4)) == "data-parallel"
