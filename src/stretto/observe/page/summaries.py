"""What the page shows of clocks, links, widths and memory: each from its events, in a bounded size.

Every summary has `state()`: plain values for the page, or None where the record has nothing for its pane.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Sequence
from typing import Any

from .samples import Samples

_POINTS = 400  # of a curve
_STAGES = 1500
_WHY = 100  # newest stages, with their reasons
_WORKERS = 256
_BINS = 64
_LINKS = 64
_CURVES = 6  # links with a curve
_APART = 1 / 60  # of the run, at least, between two points of a rate

Sent = dict[tuple[int, int], int]  # bytes by link


class ClocksSummary:
    """Staleness of reads, clocks of workers over time, and what they waited."""

    def __init__(self) -> None:
        self._newest: Any = None
        self._spread: Samples[list[float]] = Samples(_POINTS)
        self._counted: list[int] = []  # of the stages of a task
        self._bounds: dict[str, Samples[list[float | None]]] = {}

    def measured(self, event: Any) -> None:
        """An event `ClocksMeasured`."""
        self._newest = event
        if event.spread:
            self._spread.clear()
        elif event.clocks:
            self._spread.add([event.seconds, min(event.clocks), max(event.clocks)])
        for row in event.spread:
            self._spread.add(list(row))

    def counted(self, staleness: list[int]) -> None:
        """Rows that a stage read, by how many clocks they were behind."""
        more = len(staleness[:_BINS]) - len(self._counted)
        self._counted += [0] * max(0, more)
        for place, rows in enumerate(staleness[:_BINS]):
            self._counted[place] += rows

    def tuned(self, knob: str, window: int, before: str, after: str) -> None:
        """A loop has another staleness from now on."""
        if not knob.startswith("staleness") or (knob not in self._bounds and len(self._bounds) >= _CURVES):
            return
        if knob not in self._bounds:
            self._bounds[knob] = Samples(_POINTS)
            self._bounds[knob].add([0, _bound(before)])
        self._bounds[knob].add([window, _bound(after)])

    def state(self) -> dict[str, Any] | None:
        """The summary; None if there is nothing."""
        one = self._newest
        staleness = list(one.staleness[:_BINS]) if one is not None else self._counted.copy()
        while staleness and not staleness[-1]:
            staleness.pop()
        if one is None and len(staleness) < 2 and not self._bounds:
            return None
        return {
            "rule": "" if one is None else one.rule,
            "bound": None if one is None else one.bound,
            "seconds": 0.0 if one is None else one.seconds,
            "workers": [] if one is None else list(one.clocks[:_WORKERS]),
            "waits": [] if one is None else list(one.waits[:_WORKERS]),
            "staleness": staleness,
            "spread": self._spread.rows(),
            "bounds": {knob: rows.rows() for knob, rows in self._bounds.items()},
        }


class LinksSummary:
    """Bytes by link and by reason, and the rate of the busiest links over time."""

    def __init__(self) -> None:
        self._newest: Any = None
        self._sent: Samples[tuple[float, Sent]] = Samples(_POINTS // 2)

    def measured(self, event: Any) -> None:
        """An event `LinksMeasured`."""
        self._newest = event
        self._sent.add((event.seconds, {(source, target): sent for source, target, sent in event.links[:_LINKS]}))

    def state(self) -> dict[str, Any] | None:
        """The summary; None if nothing was sent."""
        one = self._newest
        if one is None:
            return None
        most = sorted(one.links[:_LINKS], key=lambda link: -link[2])
        rows = _apart([(0.0, {}), *self._sent.rows()])
        links = [row for row in rows if not any(source >= 0 > target for source, target in row[1])]
        nodes = [(seconds, _by_node(sent)) for seconds, sent in rows]
        return {
            "policy": one.policy,
            "seconds": one.seconds,
            "budget": one.budget,
            "limits": [list(limit) for limit in one.limits[:_LINKS]],
            "rank": one.rank,
            "first": [list(row) for row in one.first[:20]],
            "reasons": dict(list(one.reasons.items())[:20]),
            "links": [list(link) for link in most],
            "rates": {
                "links": _rates(links, [(link[0], link[1]) for link in most if min(link[:2]) >= 0]),
                "nodes": _rates(nodes, sorted(nodes[-1][1], key=lambda node: -nodes[-1][1][node])),
            },
        }


class StagesSummary:
    """Widths of stages over time and why, or the number of threads where that was chosen."""

    def __init__(self) -> None:
        self._stages: Samples[list[Any]] = Samples(_STAGES)
        self._why: deque[list[Any]] = deque(maxlen=_WHY)

    def ended(self, event: Any) -> None:
        """An event `StageDone`."""
        begin, end = max(0.0, event.seconds - event.took), event.seconds
        self._stages.add([event.unit[:80], begin, end, event.width])
        sent = event.moved + event.sent
        more = [event.took, event.iterations, sent, event.reason[:400]]
        self._why.append([event.unit[:80], begin, event.width, event.nodes, *more])

    def chosen(self, event: Any, since: float | None) -> None:
        """An event `WidthChosen`; since: seconds of the run."""
        begin = since or 0.0
        self._stages.add(["threads", begin, None, event.width])
        self._why.append(["threads", begin, event.width, 1, None, event.epoch, 0, event.reason[:400]])

    def state(self) -> dict[str, Any] | None:
        """The summary; None if there are no stages."""
        if not len(self._stages):
            return None
        return {"count": len(self._stages), "stages": self._stages.rows(), "why": list(self._why)}


class MemorySummary:
    """The newest plan of a step of `st.memory`, and what a step really took."""

    def __init__(self) -> None:
        self._newest: Any = None
        self._plans, self._measured = 0, None

    def planned(self, event: Any) -> None:
        """An event `MemoryPlanned`."""
        self._newest = event
        self._plans += 1

    def measured(self, event: Any) -> None:
        """An event `MemoryMeasured`."""
        self._measured = event.peak

    def state(self) -> dict[str, Any] | None:
        """The summary; None without a plan."""
        one = self._newest
        if one is None:
            return None
        count = min([2000, len(one.at), *map(len, one.kinds.values())])
        return {
            "plans": self._plans,
            "budget": one.budget or 0.0,
            "peak": one.peak,
            "host": one.host,
            "measured": self._measured,
            "seconds": one.step_seconds,
            "at": list(one.at[:count]),
            "kinds": {name[:80]: list(values[:count]) for name, values in list(one.kinds.items())[:6]},
            "to_host": [list(copy) for copy in one.to_host[:1000]],
            "from_host": [list(copy) for copy in one.from_host[:1000]],
        }


def _by_node(sent: Sent) -> dict[int, int]:
    """Bytes that each node has sent."""
    found: dict[int, int] = {}
    for (source, _), nbytes in sent.items():
        if source >= 0:
            found[source] = found.get(source, 0) + nbytes
    return found


def _apart(rows: Sequence[tuple[float, Sent]]) -> list[tuple[float, Sent]]:
    """Rows that are far enough from each other for a rate, with the last one: messages arrive in bursts."""
    found = [rows[0]]
    for row in rows[1:]:
        if row[0] - found[-1][0] >= rows[-1][0] * _APART and row[0] > found[-1][0]:
            found.append(row)
    if found[-1] is not rows[-1] and rows[-1][0] > 0:
        found = [*(found[:-1] if len(found) > 1 else found), rows[-1]]
    return found


def _rates(rows: Sequence[tuple[float, dict[Any, int]]], names: Sequence[Any]) -> dict[str, Any]:
    """Bytes per second between each two rows, of the first few names; `at` is when the second of two rows was."""
    steps = list(itertools.pairwise(rows))
    curves = {
        " to ".join(map(str, name if isinstance(name, tuple) else (name,))): [
            max(0, sent.get(name, 0) - before.get(name, 0)) / (end - begin) for (begin, before), (end, sent) in steps
        ]
        for name in names[:_CURVES]
    }
    return {"at": [end for _, (end, _) in steps], "curves": dict(sorted(curves.items()))}


def _bound(words: str) -> float | None:
    """The staleness of a setting in words; None for ASP, which has no bound.

    >>> _bound("BSP"), _bound("SSP(4)"), _bound("ASP")
    (0.0, 4.0, None)
    """
    found = re.search(r"SSP\((\d{1,9})", words)
    return float(found[1]) if found else 0.0 if words == "BSP" else None
