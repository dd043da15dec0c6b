"""The timeline of workers' visits, as a Chrome trace for Perfetto or chrome://tracing.

One lane per worker with a slice per visit, above them a lane of passes and one of checkpoints. A long run has more
visits than a viewer opens, so the trace keeps at most `limit`: when they grow past it, every second of the epochs kept
so far is dropped and from then on only every second one is taken. What remains is whole epochs, evenly spread over the
run.

Visits come in nanoseconds of a clock with any origin; the trace starts at 0. A resumed run starts where the trace
before ended.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.observe.events import CheckpointSaved, PassDone

Ints = NDArray[np.int64]
_RUN, _WORKERS = 1, 2  # the two groups of lanes
_PASSES, _CHECKPOINTS = 1, 2  # the lanes of the first
_GAP_NS = 1_000_000  # drawn between two sessions of one run


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """One pass of the trace."""

    epoch: int
    name: str
    visits: Ints  # [n, 4] visit, worker, start, end in nanoseconds of the trace


@dataclass(frozen=True, slots=True)
class _Saved:
    start_ns: int
    end_ns: int
    epoch: int
    path: str


class Trace:
    """Collects passes and checkpoints; `json()` gives the file. blocks [V, 2]: row and column block of each visit."""

    def __init__(self, limit: int = 200_000) -> None:
        if limit < 1:
            raise ValueError(f"limit={limit}: a trace must hold at least one visit")
        self.limit = limit
        self.blocks: Ints | None = None
        self._every = 1  # epochs kept: those divisible by it
        self._passes: list[_Pass] = []
        self._visits = 0  # in them
        self._saves: list[_Saved] = []
        self._origin: int | None = None  # what the visits' clock shows at 0 of the trace
        self._end = 0
        self._last: tuple[float, int] | None = None  # the time and the trace's nanoseconds at the end of the last pass

    def __len__(self) -> int:
        """Visits kept."""
        return self._visits

    def _keep(self, passes: list[_Pass]) -> None:
        self._passes, self._visits = passes, sum(len(one.visits) for one in passes)

    def add_pass(self, event: PassDone) -> None:
        if event.visits is None or not len(event.visits):
            return
        visits = np.array(event.visits, dtype=np.int64)  # a copy: the ring buffer it comes from is reused
        if self._origin is None:
            self._origin = int(visits[:, 2].min()) - (self._end + _GAP_NS if self._end else 0)
        visits[:, 2:] -= self._origin
        self._end = max(self._end, int(visits[:, 3].max()))
        self._last = (event.time, self._end)
        begun = bool(self._passes) and self._passes[-1].epoch == event.epoch
        if event.epoch % self._every and self._passes and not begun:
            return
        self._passes.append(_Pass(event.epoch, event.name, visits))
        self._visits += len(visits)
        self._thin()

    def add_checkpoint(self, event: CheckpointSaved) -> None:
        """Add a checkpoint, placed by its time after the last pass: visits are measured by another clock."""
        if self._last is None:
            return
        end = self._last[1] + max(0, round((event.time - self._last[0]) * 1e9))
        start = max(self._last[1], end - round(event.seconds * 1e9))
        self._saves.append(_Saved(start, end, event.epoch, event.path))

    def rewind(self, epoch: int) -> None:
        """A new session continues after `epoch`: it has another clock, and repeats later epochs."""
        self._origin = self._last = None
        self._keep([one for one in self._passes if one.epoch <= epoch])

    def _thin(self) -> None:
        while len(self) > self.limit and len({one.epoch for one in self._passes}) > 1:
            self._every *= 2
            kept = [one for one in self._passes if one.epoch % self._every == 0]
            self._keep(kept or [one for one in self._passes if one.epoch == self._passes[0].epoch])
        if len(self) > self.limit:  # a single epoch larger than the limit: its beginning
            room = self.limit
            for place, one in enumerate(self._passes):
                first = np.sort(np.argsort(one.visits[:, 2], kind="stable")[:room])
                self._passes[place] = _Pass(one.epoch, one.name, one.visits[first])
                room -= len(first)
            self._keep(self._passes)

    def json(self) -> bytes:
        """The whole trace, as bytes of one valid JSON object."""
        lanes = [_lane("process_name", _RUN, 0, "run"), _lane("process_name", _WORKERS, 0, "workers")]
        lanes.append(_lane("thread_name", _RUN, _PASSES, "passes"))
        if self._saves:
            lanes.append(_lane("thread_name", _RUN, _CHECKPOINTS, "checkpoints"))
        workers = sorted({int(worker) for one in self._passes for worker in np.unique(one.visits[:, 1])})
        lanes += [_lane("thread_name", _WORKERS, worker, f"worker {worker}") for worker in workers]
        lines = [json.dumps(lane) for lane in lanes]
        for one in self._passes:
            lines += self._pass_lines(one)
        for save in self._saves:
            args = {"epoch": save.epoch, "path": save.path}
            lines.append(_slice(f"checkpoint {save.epoch}", _CHECKPOINTS, save.start_ns, save.end_ns, args))
        notes = {"one epoch in": self._every, "visits": len(self)}
        head = '{"displayTimeUnit": "ms", "otherData": ' + json.dumps(notes) + ', "traceEvents": [\n'
        return (head + ",\n".join(lines) + "\n]}\n").encode()

    def _pass_lines(self, one: _Pass) -> list[str]:
        """The lines of a pass. Up to `limit` visits are written at the end, so all are formatted by one operation."""
        if not len(one.visits):
            return []
        start, end = int(one.visits[:, 2].min()), int(one.visits[:, 3].max())
        lines = [_slice(f"{one.name} {one.epoch}", _PASSES, start, end, {"epoch": one.epoch, "name": one.name})]
        row, col = self._blocks_of(one.visits[:, 0]).T
        visit, worker, begin, stop = one.visits.T
        took = stop - begin
        columns = (row, col, worker, begin // 1000, begin % 1000, took // 1000, took % 1000, visit, row, col)
        name = json.dumps(one.name).replace("%", "%%")
        line = (
            f'{{"cat": "visit", "ph": "X", "pid": {_WORKERS}, "name": "%d,%d", "tid": %d, "ts": %d.%03d, "dur": %d.%03d'
            f', "args": {{"visit": %d, "row block": %d, "column block": %d, "epoch": {one.epoch}, "pass": {name}}}}}'
        )
        numbers = np.column_stack(columns).ravel().tolist()
        lines.append(",\n".join([line] * len(visit)) % tuple(numbers))
        return lines

    def _blocks_of(self, visits: Ints) -> Ints:
        """[n, 2] row and column block of each visit; -1 where the plan did not say."""
        blocks = np.full((len(visits), 2), -1, dtype=np.int64)
        if self.blocks is not None:
            known = (visits >= 0) & (visits < len(self.blocks))
            blocks[known] = self.blocks[visits[known]]
        return blocks

    @classmethod
    def load(cls, path: Path, limit: int = 200_000) -> Trace:
        """The trace of an earlier session, to be continued; an empty one if there is none or it cannot be read."""
        trace = cls(limit)
        try:
            whole = json.loads(path.read_bytes())
            trace._every = int(whole["otherData"]["one epoch in"])
            groups: dict[tuple[int, str], list[tuple[int, int, int, int]]] = {}
            for event in whole["traceEvents"]:
                if event["ph"] != "X":
                    continue
                args, start = event["args"], round(event["ts"] * 1e3)
                end = start + round(event["dur"] * 1e3)
                trace._end = max(trace._end, end)
                if event["pid"] == _WORKERS:
                    groups.setdefault((args["epoch"], args["pass"]), []).append(
                        (args["visit"], event["tid"], start, end)
                    )
                elif event["tid"] == _CHECKPOINTS:
                    trace._saves.append(_Saved(start, end, args["epoch"], args["path"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls(limit)
        trace._keep([_Pass(epoch, name, np.array(rows, dtype=np.int64)) for (epoch, name), rows in groups.items()])
        trace._thin()
        return trace


def _lane(kind: str, group: int, lane: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": group, "tid": lane, "args": {"name": name}}


def _slice(name: str, lane: int, start_ns: int, end_ns: int, args: dict[str, Any]) -> str:
    event = {"name": name, "cat": "run", "ph": "X", "pid": _RUN, "tid": lane}
    return json.dumps(event | {"ts": start_ns / 1e3, "dur": (end_ns - start_ns) / 1e3, "args": args})
