"""The run record: a folder with the settings, data, events, history and results of one run.

    runs/first/
      run.json           configuration, versions, machine, seed, fingerprint, profile, status, last metrics
      events.jsonl       every event, one a line, written as it happens: the source of the others
      plan.txt           the text of the plan's `explain()`
      trace.json         the workers' timeline, for Perfetto
      lanes.json         the visits of the newest epoch, for the live page
      convergence.csv    the epoch table
      convergence.svg    the same, drawn

`events.jsonl` grows line by line; all other files are replaced whole, so that each is valid whenever the process dies.
During a run, `trace.json` and `convergence.csv` are written each time they have doubled, and once more at its end;
`lanes.json` at most once a second.

A record must not end a run: when the disk fails while training, the user is warned once and training continues. One
process writes a record at a time (`folder_lock`).
"""

from __future__ import annotations

import contextlib
import datetime
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from stretto.errors import RunError
from stretto.observe.convergence_svg import convergence_svg
from stretto.observe.events import CheckpointSaved, EpochDone, Event, PassDone, PlanMade, RunEnded, RunStarted
from stretto.observe.files import replace
from stretto.observe.folder_lock import FolderLock
from stretto.observe.lanes import LANES, Lanes
from stretto.observe.log import EVENTS, RUN, RunView, encode, no_record, open_to_append, read_run, read_table, to_json
from stretto.observe.machine import machine, versions
from stretto.observe.trace import Trace

_OURS = (RUN, EVENTS, LANES, "plan.txt", "trace.json", "convergence.csv", "convergence.svg")
_FIRST = 8192  # visits before the trace is written for the first time: a short run should write it only once


class RunRecord:
    """A listener that keeps the record of a run in `folder`.

    An existing record is refused unless `exist_ok`, which continues it: events and rows of the table are appended.

    warn : called once when the disk fails; `warnings.warn` unless given.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        exist_ok: bool = False,
        visits: int = 20_000,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._warn = warn or (lambda message: warnings.warn(message, RuntimeWarning, stacklevel=2))
        self._lost = False
        self._rows = self._visits = 0  # in convergence.csv and trace.json as last written
        self._lanes = Lanes()
        self._log: BinaryIO | None = None
        self._lock: FolderLock | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(self.folder, "this run")
            present = [name for name in _OURS if (self.folder / name).exists()]
            if present and not exist_ok:
                raise RunError(
                    f"{self.folder} already holds the record of a run ({', '.join(present)}); "
                    f"name another folder, resume that run, or remove it"
                )
            self._run: dict[str, Any] = read_run(self.folder) if present else {}
            self._table = read_table(self.folder)
            self._trace = Trace.load(self.folder / "trace.json", visits) if present else Trace(visits)
            self._log = open_to_append(self.folder)
        except OSError as error:
            self.close()
            raise RunError(
                f"cannot keep a run record in {self.folder}: {error.strerror or error}; name a folder you may write to"
            ) from error
        except BaseException:
            self.close()
            raise

    def __call__(self, event: Event, /) -> None:
        self._take_in(event)
        if not self._lost:
            with self._forgiving():
                self._write(event)
        if isinstance(event, RunEnded):
            self._finish()

    def close(self) -> None:
        """Close the files. Without a `RunEnded` event, they stay as they were last written."""
        self._close_log()
        if self._lock is not None:
            lock, self._lock = self._lock, None
            with contextlib.suppress(OSError):
                lock.release()

    def _close_log(self) -> None:
        if self._log is not None:
            log, self._log = self._log, None
            with contextlib.suppress(OSError):
                log.close()

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> RunView:
        """Read a record, of a run that ended, was interrupted, or still runs."""
        folder = Path(folder)
        if not (folder / RUN).is_file():
            raise no_record(folder)
        return RunView(folder, read_run(folder), read_table(folder).columns())

    def _take_in(self, event: Event) -> None:
        """Store the content of an event in memory; nothing is written."""
        if isinstance(event, RunStarted):
            self._table.rewind(event.epoch)
            self._trace.rewind(event.epoch)
            started = self._run.get("started") if event.epoch else None
            self._run |= {
                "config": dict(event.config),
                "versions": versions(),
                "machine": machine(),
                "status": "running",
            }
            self._run |= {key: event.config[key] for key in ("seed", "profile") if key in event.config}
            self._run |= {"started": started or _date(event.time), "sessions": self._run.get("sessions", 0) + 1}
            for old in ("ended", "message"):
                self._run.pop(old, None)
        elif isinstance(event, PlanMade):
            self._run |= {"fingerprint": event.fingerprint, "profile": event.profile}
            self._trace.blocks = None if event.blocks is None else np.asarray(event.blocks, dtype=np.int64)
        elif isinstance(event, PassDone):
            self._trace.add_pass(event)
        elif isinstance(event, EpochDone):
            self._table.add(
                event.epoch,
                seconds=event.seconds,
                items=event.items,
                objective=event.objective,
                metrics=event.metrics,
            )
        elif isinstance(event, CheckpointSaved):
            self._trace.add_checkpoint(event)
            self._run["checkpoint"] = {"path": event.path, "epoch": event.epoch, "bytes": event.bytes}
        elif isinstance(event, RunEnded):
            self._run |= {"status": event.status, "message": event.message, "ended": _date(event.time)}
            self._run["final"] = dict(self._table.last)

    def _write(self, event: Event) -> None:
        if self._log is not None:
            self._log.write(encode(event) + b"\n")
        if isinstance(event, PlanMade):
            replace(self.folder / "plan.txt", event.text.rstrip("\n").encode() + b"\n")
        if isinstance(event, (RunStarted, PlanMade)):
            self._write_run()
        if (lanes := self._lanes.take(event)) is not None:
            replace(self.folder / LANES, lanes)
        if len(self._table) > 2 * self._rows:
            self._write_table()
        if len(self._trace) >= 2 * self._visits + _FIRST:
            self._write_trace()

    def _write_run(self) -> None:
        replace(self.folder / RUN, msgspec.json.format(to_json(self._run), indent=2) + b"\n")

    def _write_table(self) -> None:
        self._rows = len(self._table)
        replace(self.folder / "convergence.csv", self._table.csv().encode())

    def _write_trace(self) -> None:
        self._visits = len(self._trace)
        replace(self.folder / "trace.json", self._trace.json())

    def _finish(self) -> None:
        """Write all files at the end, even after the disk failed before: it may have space again."""
        with self._forgiving():
            self._write_run()
            self._write_table()
            self._write_trace()
            if (lanes := self._lanes.newest()) is not None:
                replace(self.folder / LANES, lanes)
            if len(self._table):
                columns, name = self._table.columns(), self.folder.resolve().name
                replace(self.folder / "convergence.svg", convergence_svg(columns, name))
        self.close()

    @contextlib.contextmanager
    def _forgiving(self) -> Iterator[None]:
        """Turn any exception into one warning, so that the run continues; nothing more is written until the end.

        This covers all exceptions, not only those of the disk: a plot that fails must not lose the model.
        """
        try:
            yield
        except Exception as error:
            self._close_log()
            if not self._lost:
                self._lost = True
                reason = error.strerror if isinstance(error, OSError) and error.strerror else repr(error)
                self._warn(f"the run record in {self.folder} is incomplete: {reason}; the run itself continues")


def _date(time: float) -> str:
    return datetime.datetime.fromtimestamp(time, datetime.UTC).isoformat(timespec="seconds")
