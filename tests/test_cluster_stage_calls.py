"""Calls of a transition between stages: hosts get one call to begin a stage, and report its end by themselves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.runtime.cluster.hosts import local_fleet
from stretto.runtime.cluster.hosts.hosts import Hosts
from stretto.runtime.cluster.stages import session

NODES, TURNS = 3, 4


def spread(worker: Any, rows: Any, w: Any) -> None:
    w.add(np.asarray(rows), np.ones(len(rows)))


def nudge(worker: Any, w: Any) -> None:
    w.add(np.arange(w.rows), 0.5 * w.read())


@pytest.mark.parametrize("rows", [100, 40_000])  # one chunk, which stays; five, which are gathered and cut again
def test_a_stage_takes_one_call_to_each_of_its_hosts(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    calls: list[tuple[str, int]] = []
    events: Counter[str] = Counter()
    call, take = local_fleet._Process.call, Hosts._take_events

    def counted(self: Any, method: str, *args: Any) -> Any:
        if method != "events":  # hosts answer these when they have something to report
            calls.append((method, self.number))
        return call(self, method, *args)

    def taken(self: Any, *args: Any) -> Any:
        found = take(self, *args)
        events.update(event.what for event in found)
        return found

    monkeypatch.setattr(local_fleet._Process, "call", counted)
    monkeypatch.setattr(Hosts, "_take_events", taken)
    w = st.zeros(rows, "f8")
    turn = st.seq(st.unit(spread, np.arange(rows), w, parts=6), st.unit(nudge, w, placement={0: 1}))
    stages = st.run(st.loop(turn, times=TURNS), runtime=st.Cluster("processes", nodes=NODES)).stages

    assert len(stages) == 2 * TURNS
    by_method = Counter(method for method, _ in calls)
    moves = [sum(stage.moved for stage in stages if stage.unit == unit) for unit in ("spread", "nudge")]
    assert all(moves) if rows > 10_000 else not any(moves)
    # A transfer begins with the stage that needs it, on the hosts of both.
    narrow = 1 if rows < 10_000 else NODES
    assert by_method["begin_beside"] == TURNS * (NODES + narrow)
    assert not set(by_method) - {"open", "address", "begin_beside", "states", "close"}
    assert events == {"drained": TURNS * NODES, "ended": TURNS}


def test_states_are_collected_from_all_hosts_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round of calls goes to all hosts that still have chunks; a call has one chunk here."""
    rounds: list[list[int]] = []
    each = Hosts.states_each

    def counted(self: Any, requests: Any) -> Any:
        if requests[0][1] == "read":
            rounds.append([host for host, *_ in requests])
        return each(self, requests)

    monkeypatch.setattr(Hosts, "states_each", counted)
    monkeypatch.setattr(session, "_READ_BYTES", 1)
    large, small = st.zeros(40_000, "f8"), st.zeros(100, "f8")
    units = [st.unit(spread, np.arange(len(state.array)), state, parts=6) for state in (large, small)]
    st.run(st.seq(*units), runtime=st.Cluster("processes", nodes=NODES))
    assert rounds == [[0, 1, 2], [0, 1], [0]]  # 2, 2 and 1 chunks of the large state, and the small one
    assert (large.array == 1.0).all()
    assert (small.array == 1.0).all()
