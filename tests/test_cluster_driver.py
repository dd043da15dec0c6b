"""Jobs over tables on processes of this machine: the same numbers as on threads, whichever host is killed meanwhile."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import RunError
from stretto.runtime.cluster.hosts.failure_detector import lost_one

pytest.importorskip("zmq", reason="the extra stretto[cluster] is not installed")

ROWS = 64


def worker(w: Any) -> None:
    """Some clocks of reading and adding, with a state of its own."""
    x, y = w.table("x"), w.table("y")
    seen = w.local.setdefault("seen", np.zeros(1))
    for clock in w.clocks(24):
        keys = (np.arange(12) * 5 + w.number + clock) % ROWS
        rows = x.read(keys)
        x.add(keys, (0.25 * rows + w.number + 1).astype(np.float32))
        y.add(keys[:3], np.full(3, 1.0 + rows.mean(), np.float32))
        seen += rows.sum()


def slow_worker(w: Any) -> None:
    """The same, but slow enough to be in the middle of it when somebody is killed."""
    x = w.table("x")
    for clock in w.clocks(60):
        time.sleep(0.002)
        keys = (np.arange(12) * 5 + w.number + clock) % ROWS
        rows = x.read(keys)
        x.add(keys, (0.01 * rows + w.number + 1).astype(np.float32))
        w.local["clock"] = clock


def tables() -> Any:
    return {"x": st.tables.Table(rows=ROWS, cols=3), "y": st.tables.Table(rows=ROWS, apply=st.tables.adagrad(0.1))}


def cluster(nodes: int = 2, **more: Any) -> st.Cluster:
    return st.Cluster("processes", nodes=nodes, **more)


def total(view: Any) -> float:
    return float(view["x"].sum())


def same(a: Any, b: Any) -> None:
    for name in a.tables:
        np.testing.assert_array_equal(a.tables[name], b.tables[name])
    assert a.clocks == b.clocks
    assert [(look.clock, look.objective) for look in a.history] == [(look.clock, look.objective) for look in b.history]
    for one, other in zip(a.local, b.local, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.fixture(scope="module")
def reference() -> Any:
    return st.run(worker, workers=4, tables=tables(), watch=total, every=6, runtime=st.Serial())


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_same_bits_as_the_serial_runtime(reference: Any, nodes: Any) -> None:
    same(reference, st.run(worker, workers=4, tables=tables(), watch=total, every=6, runtime=cluster(nodes, threads=2)))


def hosts_of_this_process() -> list[int]:
    """Process numbers of the hosts that this one has started."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat, words = Path(f"/proc/{entry}/stat").read_text(), Path(f"/proc/{entry}/cmdline").read_text()
        except OSError:
            continue
        if int(stat.rsplit(")", 1)[1].split()[1]) == os.getpid() and "local_fleet" in words:
            found.append(int(entry))
    return sorted(found)


class Killer:
    """Watches the objective, and kills -9 a host when the run is at certain clocks."""

    def __init__(self, *clocks: int) -> None:
        self.clocks, self.killed = list(clocks), 0

    def __call__(self, view: Any) -> float:
        if self.clocks and view.clock >= self.clocks[0]:
            self.clocks.pop(0)
            hosts = hosts_of_this_process()
            os.kill(hosts[self.killed % len(hosts)], signal.SIGKILL)
            self.killed += 1
        return total(view)


OPTIONS: dict[str, Any] = {"workers": 4, "tables": {"x": st.tables.Table(rows=ROWS, cols=3)}, "every": 5}


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return st.run(slow_worker, runtime=st.Threads(2), watch=total, **OPTIONS)


def test_killed_hosts_are_replaced_and_the_bits_are_the_same(undisturbed: Any) -> None:
    killer = Killer(10, 30)
    with pytest.warns(RuntimeWarning, match="was lost: .*; the run restarts from clock"):
        found = st.run(slow_worker, runtime=cluster(2, threads=2), watch=killer, **OPTIONS)
    assert killer.killed == 2
    same(undisturbed, found)


def test_the_same_losses_on_simulated_nodes_end_with_the_same_bits(undisturbed: Any) -> None:
    """What decides there is what decides on hosts that are killed."""
    calm = st.Simulated(nodes=2, threads=2, detect="1ms", back_after="1ms")
    seconds = st.run(slow_worker, runtime=calm, watch=total, **OPTIONS).seconds
    crashes = [st.faults.Crash(node, at=share * seconds, back_after="1ms") for node, share in ((0, 0.2), (1, 0.6))]
    found = st.run(
        slow_worker, runtime=replace(calm, faults=crashes), watch=total, record="full", checkpoint_every=5, **OPTIONS
    )
    assert len(found.recording.restarts) == 2
    same(undisturbed, found)


def test_fewer_hosts_go_on_when_none_comes_in_the_place_of_a_lost_one(undisturbed: Any, monkeypatch: Any) -> None:
    from stretto.runtime.cluster.hosts.local_fleet import LocalFleet

    monkeypatch.setattr(LocalFleet, "replace", lambda self, number, within: None)
    killer = Killer(10)
    with (
        pytest.warns(RuntimeWarning, match="was lost"),
        pytest.warns(RuntimeWarning, match=r"host \d was not replaced: no free processors .* share its work"),
    ):
        found = st.run(slow_worker, runtime=cluster(3, threads=2), watch=killer, **OPTIONS)
    assert killer.killed == 1
    same(undisturbed, found)


def test_a_run_that_loses_too_many_hosts_gives_up_and_says_why(undisturbed: Any) -> None:
    with pytest.warns(RuntimeWarning, match="was lost"), pytest.raises(RunError, match=r"restarts=1.*SIGKILL"):
        st.run(slow_worker, runtime=cluster(2, threads=2, restarts=1), watch=Killer(5, 10), **OPTIONS)


def failing(w: Any) -> None:
    for clock in w.clocks(10):
        w.table("x").add(np.array([w.number]), np.ones((1, 3), np.float32))
        if w.number == 1 and clock == 4:
            raise ValueError("the well is dry")


def test_an_error_of_a_worker_says_whose_it_was_and_where() -> None:
    with pytest.raises(RunError, match=r"worker 1 failed at clock 4: ValueError: the well is dry") as caught:
        st.run(failing, workers=4, tables={"x": tables()["x"]}, runtime=cluster(2))
    notes = [note for error in (caught.value, caught.value.__cause__) for note in getattr(error, "__notes__", ())]
    assert any("on host 0 on " in note for note in notes)


def test_until_ends_a_run_with_what_was_looked_at() -> None:
    def enough(look: Any) -> bool:
        return bool(look.clock >= 10)

    found = [
        st.run(slow_worker, watch=total, until=enough, runtime=runtime, **OPTIONS)
        for runtime in (st.Threads(2), cluster(2))
    ]
    assert [result.stopped for result in found] == ["until", "until"]
    assert found[1].history[-1].clock == 10
    assert total(found[1].tables) == found[1].history[-1].objective
    np.testing.assert_array_equal(found[0].tables["x"], found[1].tables["x"])


def test_a_checkpoint_of_a_cluster_is_gone_on_from_on_threads(tmp_path: Any, reference: Any) -> None:
    half = {"workers": 4, "tables": tables(), "watch": total, "every": 6, "checkpoint": tmp_path, "checkpoint_every": 6}
    same(reference, st.run(worker, runtime=cluster(3), **half))
    same(reference, st.run(worker, runtime=st.Threads(2), resume=True, **half))
    same(reference, st.run(worker, runtime=cluster(2), resume=True, **half))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nodes": 0}, "nodes=0 is less than 1"),
        ({"threads": 1.5}, "is not a whole number"),
        ({"address": ""}, "address of a Ray cluster"),
        ({"patience": 0}, "time above zero"),
    ],
)
def test_nonsense_is_refused(given: Any, words: Any) -> None:
    with pytest.raises(ValueError, match=words):
        st.Cluster(**given)


def test_what_cannot_travel_is_said() -> None:
    import threading

    lock = threading.Lock()

    def holds(w: Any) -> None:
        with lock:
            w.tick()

    with pytest.raises(RunError, match=r"cannot be sent to other processes: .*lock.*inside the function"):
        st.run(holds, workers=2, tables=tables(), runtime=cluster(2))


def test_the_host_that_most_others_do_not_hear_is_lost_and_a_busy_one_gets_more_time() -> None:
    cut_off = {(0, 2): 5.5, (1, 2): 6.0, (2, 0): 5.5, (2, 1): 6.0}
    assert lost_one(cut_off, (), 5.0) == (2, 2, 6.0)
    assert lost_one({(0, 1): 5.5, (1, 0): 5.5}, (), 5.0) == (1, 1, 5.5)
    assert lost_one({(0, 1): 29.0}, (1,), 5.0) is None
    assert lost_one({(0, 1): 31.0}, (1,), 5.0) == (1, 1, 31.0)
    assert lost_one({(0, 1): 31.0, (1, 0): 6.0}, (1,), 5.0) == (1, 1, 31.0)
    assert lost_one({}, (), 5.0) is None


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stretto.runtime.cluster.spec.find_spec", lambda name: None)
    with pytest.raises(
        RunError, match=r"needs zmq, cloudpickle, which is not installed: pip install 'stretto\[cluster\]'"
    ):
        st.run(worker, workers=2, tables=tables(), runtime=cluster(2))
