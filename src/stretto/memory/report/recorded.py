"""Report the plans of a step, and what it really took, to the listeners of a session: `session=` of `st.memory.step`.

The record holds the bytes on the device over one step, by kind, as predicted; it is what `Report.draw` shows.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

from stretto.checks import wrong
from stretto.observe.events import MemoryMeasured, MemoryPlanned, PlanMade, RunEnded, RunStarted

from .picture import MemoryTimeline, history_of, series_names
from .report import Report

_POINTS = 500  # of the step that are recorded
_COPIES = 500


class StepListener:
    """Reports one step of `st.memory`, from its first plan until `close`.

    Parameters
    ----------
    session : Session
        Where to.
    config : dict
        The settings to record.
    """

    def __init__(self, session: Any, config: dict[str, Any]) -> None:
        self._tell = session.listen()
        self._tell(RunStarted(time.time(), {**config, **session.config}))
        self._plan = ""

    def planned(self, report: Report) -> None:
        """A plan is in use."""
        text = report.explain()
        if text == self._plan:
            return
        self._plan = text
        self._tell(PlanMade("", text, "exact"))
        self._tell(memory_event(report))

    def measured(self, peak: int) -> None:
        """The device reported the most bytes of a step."""
        self._tell(MemoryMeasured(time.time(), peak))

    def close(self) -> None:
        """The step was closed."""
        self._tell(RunEnded(time.time(), "done"))
        self._tell.close()


def check_session(session: Any) -> None:
    """PlanError unless `session` is None or a session with listeners."""
    if session is not None and not hasattr(session, "listen"):
        what = "an st.Session, such as st.Session(record='runs/first'), or None"
        raise wrong("memory.step", "session", what, session)


def memory_event(report: Report) -> MemoryPlanned:
    """The plan as an event: bytes by kind at up to `_POINTS` moments of the step.

    Of the instructions between two moments the one with the most bytes is kept, so that the peak is in it.
    """
    planned, history = report.planned, history_of(report.planned)
    nbytes = np.array(history.nbytes, dtype=np.int64)
    nbytes[:, -1] += report.lifted.borrowed
    places = _highest(nbytes.sum(axis=1), _POINTS)
    kinds = {name: nbytes[places, k].tolist() for k, name in enumerate(series_names()) if nbytes[:, k].any()}
    return MemoryPlanned(
        time.time(),
        budget=planned.settings.budget + report.lifted.borrowed,
        peak=report.peak,
        host=planned.costs.host,
        step_seconds=planned.costs.seconds,
        at=[history.seconds[place] for place in places],
        kinds=kinds,
        to_host=_copies(history, "to_host"),
        from_host=_copies(history, "from_host"),
        text=report.explain(),
    )


def _highest(total: Any, most: int) -> list[int]:
    """At most `most` places of a curve, evenly spread, each where its part of the curve is highest; and the ends."""
    if len(total) <= most:
        return list(range(len(total)))
    cuts = np.linspace(0, len(total), most - 1).astype(int)
    parts = [first + int(np.argmax(total[first:last])) for first, last in itertools.pairwise(cuts)]
    return sorted({0, *parts, len(total) - 1})


def _copies(history: MemoryTimeline, name: str) -> list[tuple[float, float]]:
    """The longest copies, in order."""
    copies = getattr(history, name)
    return sorted(sorted(copies, key=lambda copy: -copy[1])[:_COPIES])
