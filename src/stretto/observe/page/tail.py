"""Read a run record while it grows, and keep a summary of bounded size.

    tail = RecordTail(Path("runs/first"))
    tail.poll()              # reads what was added since; whether anything changed
    tail.state("first")      # the summary, as the page takes it

Ten million events take no more memory than a few thousand: epochs are thinned (`Series`), notes and sessions are the
newest ones, and lanes are those of one epoch.
"""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from stretto.observe.folder_lock import owner_runs
from stretto.observe.lanes import LANES
from stretto.observe.log import EVENTS, RUN, no_record

from .series import Series
from .summaries import ClocksSummary, LinksSummary, MemorySummary, StagesSummary

_NOTES = 400  # newest checkpoints, changes of settings and warnings
_TEXT = 100_000  # characters of the plan
_LARGEST = 8 << 20  # bytes of run.json and lanes.json
_READ = 4 << 20  # bytes at a time
_LINE = 1 << 20  # a longer line is skipped


class _Line(msgspec.Struct):
    """What the page takes of an event, of any kind."""

    event: str = ""
    time: float | None = None
    epoch: int = 0
    epochs: int = 0
    name: str = ""
    seconds: float = 0.0
    items: float = 0
    objective: float | None = None
    metrics: dict[str, float | None] = {}
    message: str = ""
    reason: str = ""
    status: str = ""
    path: str = ""
    bytes: int = 0
    width: int = 0
    knob: str = ""
    before: str = ""
    after: str = ""
    kind: str = ""
    loop: str = ""
    schedule: str = ""
    why: str = ""
    window: int = 0
    rule: str = ""
    bound: int | None = None
    clocks: list[int] = []
    staleness: list[int] = []
    waits: list[float] = []
    spread: list[tuple[float, int, int]] = []
    policy: str = ""
    budget: float | None = None
    links: list[tuple[int, int, int]] = []
    limits: list[tuple[int, int, float]] = []
    reasons: dict[str, int] = {}
    rank: str = ""
    first: list[tuple[str, int, int]] = []
    unit: str = ""
    nodes: int = 1
    took: float = 0.0
    iterations: int = 0
    moved: int = 0
    sent: int = 0
    peak: int = 0
    host: int = 0
    step_seconds: float = 0.0
    at: list[float] = []
    kinds: dict[str, list[int]] = {}
    to_host: list[tuple[float, float]] = []
    from_host: list[tuple[float, float]] = []


class RecordTail:
    """The summary of one run record.

    Parameters
    ----------
    folder : Path
        The run record.
    limit : int, default 2048
        Epochs that are kept at most.
    """

    def __init__(self, folder: Path, limit: int = 2048) -> None:
        if not (folder / RUN).is_file() and not (folder / EVENTS).is_file():
            raise no_record(folder)
        self.folder, self._limit = folder, limit
        self._decoder = msgspec.json.Decoder(_Line)
        self._stamps: dict[str, tuple[int, int]] = {}
        self._run: dict[str, Any] = {}
        self._plan = ""
        self._lanes: dict[str, Any] | None = None
        self._begin()

    def _begin(self) -> None:
        """Forget the events; they are read from the first one on."""
        self._offset, self._rest = 0, b""
        self.series = Series(self._limit)
        self.notes: deque[dict[str, Any]] = deque(maxlen=_NOTES)
        self.passes: dict[str, list[float]] = {}  # seconds and number of passes, by name
        self.epochs = 0  # of the whole run
        self.warnings = 0
        self.started: float | None = None  # of the newest session
        self.heard: float | None = None  # time of the newest event
        self.saving = 0.0  # seconds spent on checkpoints
        self._begin_session()

    def _begin_session(self, *, keep: bool = False) -> None:
        """A run measures its clocks, links and stages from its start. keep: the widths of the session before."""
        self.clocks, self.links, self.memory = ClocksSummary(), LinksSummary(), MemorySummary()
        if not keep:
            self.stages = StagesSummary()

    def poll(self) -> bool:
        """Read what is new; whether anything is."""
        changed = self._read_events()
        for name, take in ((RUN, self._take_run), (LANES, self._take_lanes), ("plan.txt", self._take_plan)):
            changed |= self._read_whole(name, take)
        return changed

    @property
    def is_live(self) -> bool:
        """Whether a process still writes to the record."""
        return self._run.get("status", "running") == "running" and owner_runs(self.folder)

    def state(self, name: str) -> dict[str, Any]:
        """The summary as plain values; `name` is the title of the run."""
        run = self._run
        status = str(run.get("status", "running"))
        if status == "running" and not self.is_live:
            status = "interrupted"
        return {
            "name": name,
            "status": status,
            "message": str(run.get("message", "")),
            "started": run.get("started"),
            "ended": run.get("ended"),
            "sessions": run.get("sessions", 1),
            "fingerprint": run.get("fingerprint"),
            "profile": run.get("profile"),
            "config": run.get("config") or {},
            "versions": run.get("versions") or {},
            "machine": run.get("machine") or {},
            "epochs": self.epochs,
            "series": self.series.columns(),
            "passes": {key: [round(total, 6), count] for key, (total, count) in self.passes.items()},
            "notes": list(self.notes),
            "warnings": self.warnings,
            "elapsed": None if self.started is None or self.heard is None else self.heard - self.started,
            "saving": self.saving,
            "plan": self._plan,
            "lanes": self._lanes,
            "clocks": self.clocks.state(),
            "links": self.links.state(),
            "stages": self.stages.state(),
            "memory": self.memory.state(),
        }

    def _read_events(self) -> bool:
        path, changed = self.folder / EVENTS, False
        try:
            size = path.stat().st_size
            if size < self._offset:
                self._begin()
                changed = True
            if size == self._offset:
                return changed
            with path.open("rb") as file:
                file.seek(self._offset)
                while chunk := file.read(_READ):
                    self._offset += len(chunk)
                    *lines, self._rest = (self._rest + chunk).split(b"\n")
                    if len(self._rest) > _LINE:
                        self._rest = b""
                    for line in lines:
                        changed |= self._take_line(line)
        except OSError:
            pass  # the record was moved or removed: the page stays as it is
        return changed

    def _take_line(self, line: bytes) -> bool:
        try:
            event = self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        take = getattr(self, f"_on_{event.event}", None)
        if take is None:
            return False
        self.heard = event.time if event.time is not None else self.heard
        take(event)
        return True

    def _on_RunStarted(self, event: _Line) -> None:
        self.series.rewind(event.epoch)
        self.started = event.time
        self._begin_session(keep=event.epoch > 0)
        if event.epoch:
            self._note(event, "resumed", f"after epoch {event.epoch}")

    def _on_PassDone(self, event: _Line) -> None:
        if event.name in self.passes or len(self.passes) < 50:
            total = self.passes.setdefault(event.name, [0.0, 0])
            total[0] += event.seconds
            total[1] += 1

    def _on_EpochDone(self, event: _Line) -> None:
        self.epochs = event.epochs
        metrics = {name: _number(value) for name, value in list(event.metrics.items())[:50]}
        objective = _number(event.objective)
        self.series.add(event.epoch, seconds=event.seconds, items=event.items, objective=objective, metrics=metrics)

    def _on_CheckpointSaved(self, event: _Line) -> None:
        self.saving += event.seconds
        self._note(event, "checkpoint", f"{event.bytes:,} bytes in {event.seconds:.2f} s")

    def _on_CheckpointRejected(self, event: _Line) -> None:
        self._note(event, "checkpoint rejected", f"{event.path}: {event.reason}")

    def _on_ClocksMeasured(self, event: _Line) -> None:
        self.clocks.measured(event)

    def _on_LinksMeasured(self, event: _Line) -> None:
        self.links.measured(event)

    def _on_StageDone(self, event: _Line) -> None:
        self.stages.ended(event)
        self.clocks.counted(event.staleness)

    def _on_MemoryPlanned(self, event: _Line) -> None:
        self.memory.planned(event)

    def _on_MemoryMeasured(self, event: _Line) -> None:
        self.memory.measured(event)

    def _on_WidthChosen(self, event: _Line) -> None:
        self.stages.chosen(event, self._since(event))
        self._note(event, "threads", f"{event.width}: {event.reason}")

    def _on_SettingTuned(self, event: _Line) -> None:
        self.clocks.tuned(event.knob, event.window, event.before, event.after)
        self._note(event, event.knob, f"{event.before} to {event.after} ({event.kind}): {event.reason}")

    def _on_ScheduleChosen(self, event: _Line) -> None:
        self._note(event, "schedule", f"{event.loop}: {event.schedule}; {event.why}")

    def _on_Warned(self, event: _Line) -> None:
        self.warnings += 1
        self._note(event, "warning", event.message)

    def _on_RunEnded(self, event: _Line) -> None:
        self._note(event, "end", f"{event.status}{': ' * bool(event.message)}{event.message}")

    def _note(self, event: _Line, kind: str, text: str) -> None:
        epoch = event.epoch or int(self.series.last.get("epoch", 0))
        self.notes.append({"kind": kind, "text": text[:2000], "epoch": epoch, "seconds": self._since(event)})

    def _since(self, event: _Line) -> float | None:
        """Seconds from the start of the session to an event."""
        return None if self.started is None or event.time is None else round(event.time - self.started, 3)

    def _read_whole(self, name: str, take: Any) -> bool:
        """Read a file that is replaced whole, if it is another one than the last time."""
        path = self.folder / name
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if self._stamps.get(name) == stamp or found.st_size > _LARGEST:
                return False
            content = path.read_bytes()
        except OSError:
            return False
        self._stamps[name] = stamp
        try:
            take(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        return True

    def _take_run(self, content: bytes) -> None:
        self._run = msgspec.json.decode(content, type=dict)

    def _take_lanes(self, content: bytes) -> None:
        self._lanes = msgspec.json.decode(content, type=dict)

    def _take_plan(self, content: bytes) -> None:
        self._plan = content.decode("utf-8", "replace")[:_TEXT]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
