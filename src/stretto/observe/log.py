"""Write events as lines of JSON, and read them back.

    {"event":"EpochDone","time":1.7e9,"epoch":3,"epochs":20,"seconds":0.21,"items":900188,"objective":0.71,"metrics":{…}}

Arrays are not inlined: they are named by dtype and shape. A number that is not finite becomes null, which reads back as
NaN. A process may die in the middle of a line, so lines that cannot be read are skipped.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from stretto.errors import RunError
from stretto.observe.convergence_svg import convergence_svg
from stretto.observe.events import Event
from stretto.observe.table import Columns, EpochTable
from stretto.text import html_table

RUN, EVENTS = "run.json", "events.jsonl"
_NAMES: dict[str, tuple[str, ...]] = {}  # fields of the kinds of events


@dataclass(frozen=True, slots=True, eq=False)
class RunView:
    """A run record that was read."""

    folder: Path
    run: Mapping[str, Any]  # content of run.json
    epochs: Columns  # the epoch table, one array per column

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.run.get("config") or {})

    @property
    def fingerprint(self) -> str | None:
        return self.run.get("fingerprint")

    def _repr_html_(self) -> str:
        """The settings, the newest numbers and the convergence, for notebooks."""
        newest = {name: f"{column[-1]:.6g}" for name, column in self.epochs.items() if len(column)}
        facts = {"folder": self.folder, "status": self.status, "fingerprint": self.fingerprint or "", **newest}
        rows = [[name, str(value)] for name, value in {**facts, **self.config}.items()]
        picture = convergence_svg(self.epochs, self.folder.name).decode() if len(self.epochs["epoch"]) else ""
        return f'{html_table(("run", ""), rows, "")}<div style="max-width:900px">{picture}</div>'

    @property
    def status(self) -> str:
        """done, early, stopped or failed; "running" also if the process died before it could write another."""
        return str(self.run.get("status", "running"))


def encode(event: Event) -> bytes:
    """One line, without its end."""
    kind = type(event).__name__
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(field.name for field in dataclasses.fields(event))
    return to_json({"event": kind, **{name: getattr(event, name) for name in names}})


def to_json(value: object) -> bytes:
    """JSON of any value. Values that JSON does not support are described in words: this is a report, not storage."""
    return msgspec.json.encode(value, enc_hook=_describe)


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of a record as dicts, oldest first."""
    try:
        raw = (folder / EVENTS).read_bytes()
    except FileNotFoundError:
        return
    for line in raw.splitlines():
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(event, dict):
            yield event


def read_run(folder: Path) -> dict[str, Any]:
    """run.json; empty when there is none."""
    try:
        run: dict[str, Any] = msgspec.json.decode((folder / RUN).read_bytes(), type=dict)
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunError(
            f"{folder / RUN} cannot be read ({error}); restore it from a copy or remove the record"
        ) from error
    return run


def read_table(folder: Path) -> EpochTable:
    """The epoch table, from the events of all sessions; each continues from the epoch it was resumed at."""
    table = EpochTable()
    for event in lines(folder):
        try:
            if event.get("event") == "RunStarted":
                table.rewind(int(event["epoch"]))
            elif event.get("event") == "EpochDone":
                metrics = {name: _number(value) for name, value in event["metrics"].items()}
                seconds, items, objective = event["seconds"], event["items"], _number(event["objective"])
                table.add(int(event["epoch"]), seconds=seconds, items=items, objective=objective, metrics=metrics)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return table


def open_to_append(folder: Path) -> BinaryIO:
    """Open events.jsonl without an incomplete last line. Unbuffered: written lines survive the process."""
    file = open(folder / EVENTS, "a+b", buffering=0)  # noqa: SIM115 (the record closes it)
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 4096)
        file.seek(start)
        found = (file.read(end - start) or b"").rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    file.truncate(end)
    file.seek(0, os.SEEK_END)
    return file


def no_record(folder: Path) -> RunError:
    """The error for a folder that holds no record."""
    return RunError(
        f"{folder} holds no run record ({RUN} is missing); name the folder of a run: what --out or record= named"
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _describe(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": value.shape}
    if isinstance(value, Mapping):
        return {str(key): entry for key, entry in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return repr(value)
