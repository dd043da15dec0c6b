"""Stages on simulated nodes take the ways that they take on a cluster: local stores, chunks on demand, few moves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import RunError

ROWS = 40_000  # of float64: five chunks
KEYS = np.array([3, 9_000, 39_999])


def step(worker: Any, w: Any) -> None:
    """Reads and changes three rows."""
    worker.work(100)
    w.add(KEYS, 0.5 + 0.25 * w.read(KEYS))


def nothing(worker: Any, w: Any) -> None:
    """Leaves the state cut over the nodes that it runs on."""


def run(cluster: Any, before: bool = True, **options: Any) -> tuple[Any, Any]:
    """A stage after one on all nodes; its record, and the state."""
    w = st.zeros(ROWS, "f8")
    unit = st.unit(step, w, parts=4, iterations=5, **options)
    wide = st.unit(nothing, w, parts=4, placement=dict.fromkeys(range(4), 1))
    result = st.run(st.seq(wide, unit) if before else unit, runtime=cluster)
    return result.stages[-1], w.array


def cluster(**options: Any) -> Any:
    return st.Simulated(nodes=4, threads=4, **options)


def test_a_stage_on_one_node_sends_nothing() -> None:
    stage, _ = run(cluster(), before=False, workers=4)
    assert stage.seconds == pytest.approx(5 * 100e-6)  # computing alone
    assert stage.moved == 0
    served, _ = run(cluster(), workers=4, preparation="served")
    assert served.seconds > 2 * stage.seconds  # changes go to the shards and back in every iteration


def test_chunks_come_whole_or_on_demand() -> None:
    whole, first = run(cluster(), workers=4, preparation="whole")
    demand, second = run(cluster(), workers=4, preparation="on-demand")
    served, third = run(cluster(), workers=4, preparation="served")
    spread, fourth = run(cluster(), placement={0: 1, 2: 3})
    assert first.tobytes() == second.tobytes() == third.tobytes() == fourth.tobytes()
    assert first[KEYS].min() > 0
    assert [stage.preparation for stage in (whole, demand, served, spread)] == ["whole", "on-demand", "served", ""]
    assert 0 < demand.moved < whole.moved < 8 * ROWS
    assert demand.transition < whole.transition
    assert demand.seconds > whole.seconds == pytest.approx(5 * 100e-6)


def test_faults_of_nodes_act_in_stages_on_one_node() -> None:
    plain, first = run(cluster(), workers=4)
    slow, second = run(cluster(faults=[st.faults.SlowNode(node, factor=3.0) for node in range(4)]), workers=4)
    assert 3 * plain.seconds <= slow.seconds < 4 * plain.seconds  # and the messages that faults could act on
    assert first.tobytes() == second.tobytes()


def test_sub_stages_stay_on_their_nodes() -> None:
    w = st.zeros(ROWS, "f8")
    result = st.run(st.unit(step, w, parts=16, iterations=60, workers="auto"), runtime=cluster())
    nodes = [set(stage.nodes) for stage in result.stages]
    assert len(nodes) > 2
    assert all(one & other for one, other in pairwise(nodes))


def test_an_error_in_a_stage_on_one_node_names_the_part() -> None:
    def wrong(worker: Any, w: Any) -> None:
        if worker.part == 2:
            raise ValueError("no such thing")

    with pytest.raises(RunError, match=r"unit wrong failed in part 2, iteration 0: ValueError: no such thing"):
        st.run(st.unit(wrong, st.zeros(4, "f8"), parts=4, workers=2), runtime=cluster())
