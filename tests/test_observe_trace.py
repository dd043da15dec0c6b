"""The timeline: lanes, slices, and how a long run is thinned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stretto.observe.events import CheckpointSaved, PassDone
from stretto.observe.trace import Trace


def one_pass(epoch: int, visits: int = 4, *, name: str = "sgd", origin: int = 10**15) -> PassDone:
    start = origin + epoch * 10**6 + np.arange(visits) * 1000
    log = np.stack([np.arange(visits), np.arange(visits) % 2, start, start + 500], axis=1)
    return PassDone(100.0 + epoch, epoch, name, 0.001, 10, log)


def events(trace: Trace) -> list[dict[str, Any]]:
    return json.loads(trace.json())["traceEvents"]  # type: ignore[no-any-return]


def visits(trace: Trace) -> list[dict[str, Any]]:
    return [event for event in events(trace) if event.get("cat") == "visit"]


def test_one_lane_per_worker_and_one_slice_per_visit() -> None:
    trace = Trace()
    trace.blocks = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])
    trace.add_pass(one_pass(1))
    trace.add_checkpoint(CheckpointSaved(101.5, "here", 1, 10, 0.25))
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events(trace) if e["name"] == "thread_name"}
    assert set(lanes.values()) == {"passes", "checkpoints", "worker 0", "worker 1"}
    slices = visits(trace)
    assert [lanes[one["pid"], one["tid"]] for one in slices] == ["worker 0", "worker 1", "worker 0", "worker 1"]
    assert [one["ts"] for one in slices] == [0, 1, 2, 3]
    assert {one["dur"] for one in slices} == {0.5}
    assert [one["name"] for one in slices] == ["0,0", "1,1", "0,1", "1,0"]
    assert slices[2]["args"] == {"visit": 2, "row block": 0, "column block": 1, "epoch": 1, "pass": "sgd"}
    [saved] = [e for e in events(trace) if e["name"] == "checkpoint 1"]
    assert saved["ts"] == pytest.approx(3.5 + 0.25e6)
    assert saved["dur"] == pytest.approx(0.25e6)


def test_an_empty_trace_is_valid() -> None:
    trace = Trace()
    trace.add_pass(PassDone(1.0, 1, "sgd", 0.1, 1))
    trace.add_pass(PassDone(1.0, 1, "sgd", 0.1, 1, np.empty((0, 4), np.int64)))
    trace.add_checkpoint(CheckpointSaved(1.0, "p", 1, 1, 0.1))
    assert visits(trace) == []
    with pytest.raises(ValueError, match="limit"):
        Trace(0)


def test_the_ring_may_be_used_again() -> None:
    trace, event = Trace(), one_pass(1)
    assert event.visits is not None
    trace.add_pass(event)
    before = trace.json()
    event.visits[:] = 0
    assert trace.json() == before


@settings(deadline=None, max_examples=200)
@given(
    limit=some.integers(1, 60),
    sizes=some.lists(some.integers(0, 12), min_size=1, max_size=60),
    passes=some.integers(1, 3),
)
def test_a_long_run_keeps_whole_epochs_within_the_limit(limit: int, sizes: list[int], passes: int) -> None:
    trace = Trace(limit)
    whole = {}
    for epoch, size in enumerate(sizes, start=1):
        for number in range(passes):
            trace.add_pass(one_pass(epoch, size, name=f"p{number}"))
        whole[epoch] = size * passes
    assert len(trace) <= limit
    kept = [one["args"]["epoch"] for one in visits(trace)]
    epochs = sorted(set(kept))
    if len(epochs) > 1:
        assert all(kept.count(epoch) == whole[epoch] for epoch in epochs)
    if sum(whole.values()) <= limit:
        assert len(kept) == sum(whole.values())


def test_thinning_is_even() -> None:
    trace = Trace(100)
    for epoch in range(1, 1001):
        trace.add_pass(one_pass(epoch, 4))
    epochs = sorted({one["args"]["epoch"] for one in visits(trace)})
    assert len(epochs) >= 12
    assert len(set(np.diff(epochs))) == 1


def test_load_and_go_on(tmp_path: Path) -> None:
    trace = Trace()
    for epoch in (1, 2, 3):
        trace.add_pass(one_pass(epoch))
        trace.add_checkpoint(CheckpointSaved(100.0 + epoch, "p", epoch, 1, 0.0))
    path = tmp_path / "trace.json"
    path.write_bytes(trace.json())
    again = Trace.load(path)
    assert again.json() == trace.json()
    again.rewind(2)
    again.add_pass(one_pass(3, origin=77))  # after a restart of the machine the clock starts anew
    slices = visits(again)
    assert [one["args"]["epoch"] for one in slices] == [1] * 4 + [2] * 4 + [3] * 4
    assert slices[8]["ts"] > max(one["ts"] for one in visits(trace))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"traceEvents": 3}', b'{"otherData": {}, "traceEvents": [{}]}']
)
def test_a_trace_that_cannot_be_read_is_started_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.json"
    assert len(Trace.load(path)) == 0
    path.write_bytes(content)
    assert len(Trace.load(path)) == 0
