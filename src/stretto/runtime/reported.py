"""Report a run over tables, or of a task, to the listeners of its session.

with reported(session, plan, {"seed": 0}) as report:
    ...                                  # report.tell is None without a session
    report.ended("done")                 # a value of `stopped`; without this call the run counts as failed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from stretto.checks import wrong
from stretto.errors import PlanError
from stretto.observe.events import Bus, PlanMade, Status

from .session import Ending, Session, recorded

_STATUS: dict[str, Status] = {"done": "done", "until": "early", "interrupted": "stopped"}


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

    def ended(self, why: str) -> None:
        """Note that the run ended, and why."""
        self._ending.status = _STATUS.get(why, "done")


@contextmanager
def reported(
    session: Session | None, plan: ExplainedPlan, config: Mapping[str, Any], *, unit: str, step: str
) -> Iterator[RunReport]:
    """Report the start, the plan and the end of a run. unit, step: what is counted per second, and an epoch's name."""
    if session is None:
        yield RunReport(None, Ending())
        return
    with session.listen(unit, step) as tell, recorded(tell, {**config, "unit": unit, **session.config}) as ending:
        tell(PlanMade(plan.fingerprint, plan.explain(), getattr(plan, "profile", "") or plan.grade))
        yield RunReport(tell, ending)


def check_session(session: Any, owner: str = "run") -> None:
    """PlanError unless `session` is one that a run of tables or of a task can use."""
    if session is None:
        return
    if not isinstance(session, Session):
        raise wrong(owner, "session", "an st.Session, such as st.Session(record='runs/first'), or None", session)
    if session.saving is not None or session.resume:
        raise PlanError(
            f"{owner}: session= has saving= or resume=, which are for estimators and programs; leave them out of it "
            "and give st.run checkpoint= and resume="
        )
