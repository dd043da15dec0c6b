"""Report how a run begins and ends, and a run over tables or of a task to the listeners of its session.

with reported(session, plan, {"seed": 0}) as report:
    ...                                  # report.tell is None without a session
    report.ended("done")                 # a value of `stopped`; without this call the run counts as failed
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from stretto.checks import wrong
from stretto.errors import PlanError
from stretto.observe.events import Bus, Listener, PlanMade, RunEnded, RunStarted, Status

_STATUS: dict[str, Status] = {"done": "done", "until": "early", "interrupted": "stopped"}


@dataclass
class Ending:
    """How a run ends, for its record: "failed" unless it is set."""

    status: Status = "failed"
    message: str = ""


@contextmanager
def recorded(tell: Listener, config: Mapping[str, Any], epoch: int = 0) -> Iterator[Ending]:
    """Report that a run begins, after `epoch` epochs, and how it ends."""
    tell(RunStarted(time.time(), config, epoch))
    ending = Ending()
    try:
        yield ending
    except BaseException as error:
        if ending.status == "failed":
            ending.message = ending.message or f"{type(error).__name__}: {error}"
        raise
    finally:
        tell(RunEnded(time.time(), ending.status, ending.message))


class ListeningSession(Protocol):
    """What a run needs of `st.Session`."""

    @property
    def config(self) -> Mapping[str, Any]: ...
    def listen(self, unit: str = "", step: str = "epoch") -> Bus: ...


class ExplainedPlan(Protocol):
    """A plan in words."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def grade(self) -> str: ...
    def explain(self) -> str: ...


class RunReport:
    """Where a run is reported to. tell: None without a session."""

    def __init__(self, tell: Bus | None, ending: Ending) -> None:
        self.tell, self._ending = tell, ending

    def with_listener(self, listener: Listener | None) -> Bus:
        """The listeners of the session, and another one."""
        return Bus(*filter(None, (self.tell, listener)))

    def ended(self, why: str) -> None:
        """Note that the run ended, and why."""
        self._ending.status = _STATUS.get(why, "done")


@contextmanager
def reported(
    session: ListeningSession | None, plan: ExplainedPlan, config: Mapping[str, Any], *, unit: str, step: str
) -> Iterator[RunReport]:
    """Report the start, the plan and the end of a run. unit, step: what is counted per second, and an epoch's name."""
    if session is None:
        yield RunReport(None, Ending())
        return
    with session.listen(unit, step) as tell, recorded(tell, {**config, "unit": unit, **session.config}) as ending:
        tell(PlanMade(plan.fingerprint, plan.explain(), getattr(plan, "profile", "") or plan.grade))
        yield RunReport(tell, ending)


def check_session(session: Any) -> None:
    """PlanError unless `session` is one that a run of tables or of a task can use."""
    if session is None:
        return
    if not hasattr(session, "listen"):
        raise wrong("run", "session", "an st.Session, such as st.Session(record='runs/first'), or None", session)
    if session.saving is not None or session.resume:
        raise PlanError(
            "run: session= has saving= or resume=, which are for estimators and programs; leave them out of it "
            "and give st.run checkpoint= and resume="
        )
