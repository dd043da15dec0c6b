"""Functions over parts that nodes hold: results in the order of the parts, losses, errors that name the node."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import stretto as st
from ring_fleet import InProcess, QueueHosts
from stretto.errors import DataError, RunError
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.cluster.blocks.block_executor import ClusterCrew
from stretto.runtime.cluster.parts.driver import RemoteParts
from stretto.runtime.runtimes import Serial

COUNT = 7


def numbered(crew: Crew, own: Mapping[int, float], step: float) -> dict[int, np.ndarray]:
    return {part: np.arange(4.0) * step + start for part, start in own.items()}


def times(crew: Crew, value: np.ndarray, own: float | None, factor: float) -> np.ndarray:
    return value * factor + (0.0 if own is None else own)


def failing(crew: Crew, value: np.ndarray, own: None, at: float, kind: type[Exception]) -> None:
    if value[0] == at:
        raise kind("a number that is wrong")


def not_readable(crew: Crew, own: Mapping[int, float]) -> dict[int, float]:
    if 6 in own:
        raise DataError("data.svm: it is not what the driver has read")
    return dict(own)


@contextmanager
def parts_on(runtime: Any) -> Iterator[tuple[RemoteParts, ClusterCrew]]:
    with runtime.open() as crew:
        parts = crew.parts()
        assert isinstance(parts, RemoteParts)
        yield parts, crew


def expected(factor: float) -> list[list[float]]:
    return [((np.arange(4.0) * 0.5 + start) * factor).tolist() for start in range(COUNT)]


def told(found: Mapping[int, Any]) -> list[list[float]]:
    assert list(found) == sorted(found)
    return [one.tolist() for one in found.values()]


@pytest.mark.parametrize(
    "runtime",
    [InProcess(1), InProcess(3), InProcess(9), st.Simulated(nodes=4, threads=2)],
    ids=["one", "three", "nine", "simulated"],
)
def test_results_come_in_the_order_of_the_parts(runtime: Any) -> None:
    with parts_on(runtime) as (parts, _):
        held = parts.make(numbered, [float(k) for k in range(COUNT)], 0.5)
        assert held.count == COUNT
        assert told(held.map(times, 3.0)) == expected(3.0)
        some = held.map(times, 1.0, each={5: 10.0, 2: 20.0})
        assert {part: one[0] for part, one in some.items()} == {2: 22.0, 5: 15.0}
        assert held.map(times, 1.0, each={}) == {}
        other = held.derive(times, 2.0)
        assert told(other.map(times, 3.0)) == expected(6.0)
        assert told(held.map(times, 1.0)) == expected(1.0), "those that others were made of are as they were"


def test_in_one_memory_there_are_no_parts() -> None:
    with Serial().open() as crew:
        assert crew.parts() is None


def test_a_host_receives_what_is_shared_once_and_only_if_it_has_a_part() -> None:
    asked: list[tuple[str, int]] = []
    with parts_on(InProcess(3)) as (parts, crew):
        hosts: Any = crew.hosts
        held = parts.make(numbered, [0.0] * COUNT, 0.5)
        ask = hosts.ask_one

        def noting(host: int, what: str, *args: Any) -> Any:
            asked.append((what, host))
            return ask(host, what, *args)

        hosts.ask_one = noting
        held.map(times, 2.0)
        held.map(times, 2.0, each={0: 1.0})
    assert asked == [("map", 0), ("map", 1), ("map", 2), ("map", 0)]


@pytest.mark.parametrize("seed", range(30))
def test_hosts_are_lost(seed: int) -> None:
    draw = random.Random(seed)
    runtime, lost = InProcess(3), []

    def prepare(hosts: QueueHosts) -> None:
        at, count = {draw.randrange(1, 24) for _ in range(3)}, [0]
        hosts.replaces = seed % 2 == 0

        def before(what: str) -> None:
            count[0] += 1
            alive = [number for number, host in hosts.hosts.items() if not host.dead]
            if count[0] in at and len(alive) > 1:
                lost.append(what)
                hosts.kill(draw.choice(alive))

        hosts.before = before

    runtime.prepare = prepare
    with parts_on(runtime) as (parts, _):
        held = parts.make(numbered, [float(k) for k in range(COUNT)], 0.5)
        assert told(held.map(times, 3.0)) == expected(3.0)
        other = held.derive(times, 2.0)
        for factor in (1.0, 3.0):
            assert told(other.map(times, factor)) == expected(2.0 * factor)
            assert told(held.map(times, factor)) == expected(factor)
    assert lost


def test_values_that_nobody_refers_to_are_forgotten() -> None:
    with parts_on(InProcess(2)) as (parts, crew):
        hosts: Any = crew.hosts
        held = parts.make(numbered, [0.0] * COUNT, 0.5)
        other = held.derive(times, 2.0)
        task = hosts.hosts[0].task
        assert sorted(task._values) == [held.number, other.number]
        del other
        gc.collect()
        held.map(times, 1.0)
        assert sorted(task._values) == [held.number]


@pytest.mark.parametrize("runtime", [InProcess(3), st.Simulated(nodes=3, threads=1)], ids=["queues", "simulated"])
def test_errors_name_the_node(runtime: Any) -> None:
    with parts_on(runtime) as (parts, _):
        held = parts.make(numbered, [float(k) for k in range(COUNT)], 0.5)
        with pytest.raises(
            RunError, match=r"node 1 of the cluster, on host 1, part 4 of 7: KeyError: 'a number"
        ) as caught:
            held.map(failing, 4.0, KeyError)
        assert "in failing" in "".join(getattr(caught.value.__cause__, "__notes__", []))
        with pytest.raises(DataError, match="node 0 of the cluster, on host 0, part 0 of 7: a number that is wrong"):
            held.map(failing, 0.0, DataError)
        assert told(held.map(times, 3.0)) == expected(3.0), "it goes on"
        with pytest.raises(DataError, match=r"node 2 of the cluster, on host 2: data\.svm: it is not what"):
            parts.make(not_readable, [0.0] * COUNT)


def test_virtual_time_goes_by_for_items_and_bytes() -> None:
    seconds = []
    for items, size in ((0.0, 1), (4e6, 1), (0.0, 1_000_000)):
        runtime = st.Simulated(nodes=2, threads=2, seconds_per_item=1e-6, link="1Gbit")
        with parts_on(runtime) as (parts, _):
            held = parts.make(numbered, [0.0] * 4, 0.5)
            before = runtime.report.seconds
            held.map(times, np.ones(4), each=dict.fromkeys(range(4), 0.0), items=items)
            held.derive(_keep, np.zeros(size))
            seconds.append(runtime.report.seconds - before)
    assert seconds[1] - seconds[0] == pytest.approx(4e6 * 1e-6 / 4, rel=0.01)
    assert seconds[2] - seconds[0] == pytest.approx(2 * 8e6 / 125e6, rel=0.1), "the driver's link sends it twice"
    assert [one.name for one in runtime.report.passes] == ["numbered", "times", "_keep"]


def _keep(crew: Crew, value: np.ndarray, own: None, other: np.ndarray) -> np.ndarray:
    return value
