"""What runs on the simulated cluster are compared by: curves, what they need to a target, how often rows travel.

    run = Run.of("BS", result, clocks=2)         two clocks a pass
    run.epochs_to(-7.6), run.seconds_to(-7.6), run.bytes_to(-7.6)
    run.save(folder); Run.load(folder, "BS")

Seconds are virtual. An objective that rises is meant; give its negative where it falls.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Look:
    """After so many passes over the data: virtual seconds, bytes of all nodes, the objective."""

    epoch: float
    seconds: float
    bytes: int
    objective: float


@dataclass(frozen=True)
class Run:
    """A run, as it is kept.

    reasons : {reason: (messages, rows, bytes)}. stale : [32] rows read that lagged 0, 1, … clocks behind the reader.
    sends : [rows] how often each row of the first table travelled; empty where it was not counted.
    waited : virtual seconds that workers waited, the mean over workers, by reason. spent : seconds of real time.
    """

    name: str
    nodes: int
    workers: int
    clocks: int
    looks: tuple[Look, ...]
    reasons: dict[str, tuple[int, int, int]]
    stale: tuple[int, ...]
    sends: tuple[int, ...]
    waited: dict[str, float]
    spent: float

    @classmethod
    def of(
        cls, name: str, result: Any, nodes: int, clocks: int, spent: float, *, sends: bool = False, late: bool = False
    ) -> Run:
        """From a result; `clocks` make a pass. sends: the run counted how often rows travelled.

        An evaluation has the time at which the shards heard that everybody had ended a pass. late: they hear of it
        much later (Lazy), so the time is when the last worker ended it, and bytes are those that had been sent by then.
        """
        looks = tuple(Look(at.clock / clocks, at.seconds, at.bytes, at.objective) for at in result.history)
        recording = result.recording  # None where nothing travels
        if late:
            ended = {least / clocks: seconds for seconds, least, _ in recording.clocks}
            heard, sent = [look.seconds for look in looks], [look.bytes for look in looks]
            looks = tuple(
                replace(look, seconds=when, bytes=int(np.interp(when, heard, sent)))
                for look in looks
                for when in [ended.get(look.epoch, look.seconds if look.epoch else 0.0)]
            )
        return cls(
            name=name,
            nodes=nodes,
            workers=len(result.clocks),
            clocks=clocks,
            looks=looks,
            reasons={} if recording is None else recording.by_reason(),
            stale=tuple(int(n) for n in result.staleness.sum(axis=0)),
            sends=tuple(int(n) for n in recording.row_sends(0)) if sends else (),
            waited={} if recording is None else {why: float(each.mean()) for why, each in recording.waits.items()},
            spent=spent,
        )

    def save(self, folder: Path) -> None:
        """Keep it as NAME.json."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), separators=(",", ":"))
        (folder / f"{self.name}.json").write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, name: str) -> Run | None:
        """What was kept under this name, None where nothing was."""
        file = folder / f"{name}.json"
        if not file.exists():
            return None
        kept = json.loads(file.read_text(encoding="utf-8"))
        kept["looks"] = tuple(Look(**look) for look in kept["looks"])
        kept["reasons"] = {reason: tuple(three) for reason, three in kept["reasons"].items()}
        for part in ("stale", "sends"):
            kept[part] = tuple(kept[part])
        return cls(**kept)

    # -- to a target ------------------------------------------------------------------------------------------------

    def _to(self, target: float, of: Callable[[Look], float]) -> float:
        for before, after in pairwise(self.looks):
            if after.objective >= target:
                way = after.objective - before.objective
                share = (target - before.objective) / way if way > 0 else 1.0
                return of(before) + max(0.0, share) * (of(after) - of(before))
        return math.inf

    def epochs_to(self, target: float) -> float:
        """Passes until the objective is `target`, between two looks by interpolation; infinite if it never is."""
        return self._to(target, lambda look: look.epoch)

    def seconds_to(self, target: float) -> float:
        """Virtual seconds until then."""
        return self._to(target, lambda look: look.seconds)

    def bytes_to(self, target: float) -> float:
        """Bytes of all nodes until then."""
        return self._to(target, lambda look: look.bytes)

    def at(self, epoch: float) -> Look:
        """The evaluation of this pass; the last one if the run ended before."""
        return next((look for look in self.looks if look.epoch >= epoch), self.looks[-1])

    # -- a pass -----------------------------------------------------------------------------------------------------

    def pace(self, mark: int) -> float:
        """Virtual seconds of a pass from the second to the mark: caches begin empty, and the first fills them."""
        return (self.at(mark).seconds - self.at(1).seconds) / (self.at(mark).epoch - 1)

    @property
    def per_epoch(self) -> float:
        """Virtual seconds of a pass."""
        return self.looks[-1].seconds / self.looks[-1].epoch

    @property
    def bytes_per_epoch(self) -> float:
        """Bytes that a node sends in a pass, the mean over nodes and passes."""
        return self.looks[-1].bytes / self.looks[-1].epoch / self.nodes

    def scaled(self, name: str, speed: float) -> Run:
        """The same run, so many times faster."""
        return replace(self, name=name, looks=tuple(replace(look, seconds=look.seconds / speed) for look in self.looks))

    # -- rows -------------------------------------------------------------------------------------------------------

    def shares(self, most: float = 0.1) -> tuple[float, float]:
        """The share of all transfers that the most often sent rows take, and the mean of transfers a row."""
        sends = np.sort(np.array(self.sends))[::-1]
        return float(sends[: int(most * len(sends))].sum() / sends.sum()), float(sends.mean())

    @property
    def lag(self) -> float:
        """Clocks that rows lagged behind their reader, on average."""
        counts = np.array(self.stale)
        return float((counts * np.arange(len(counts))).sum() / max(1, counts.sum()))

    def lags(self, upto: int) -> list[float]:
        """[upto + 1] shares of the rows read that lagged 0, 1, …, `upto` and more clocks."""
        counts = np.array(self.stale) / max(1, sum(self.stale))
        return [*map(float, counts[:upto]), float(counts[upto:].sum())]


def said(number: float, digits: int = 1) -> str:
    """A number, or "not reached"."""
    return f"{number:,.{digits}f}" if math.isfinite(number) else "not reached"


def times(above: float, below: float, digits: int = 2) -> str:
    """How many times as much, as text."""
    return f"{above / below:.{digits}f}×" if math.isfinite(above) and math.isfinite(below) else "–"
