"""`LoopPlan`: the plan of a call of an `st.parallel` function, which explains itself and runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stretto.errors import PlanError
from stretto.plan.planned import Runner
from stretto.schedule.orders.order import Ints

from .explain import explain
from .layout.plan_order import in_order
from .layout.round_visits import lay_rounds
from .planned_call import PlannedCall


@dataclass(frozen=True, eq=False, repr=False)
class LoopPlan(PlannedCall):
    """The plan of a call of a parallel loop.

    Attributes
    ----------
    loop : Loop
        The loop.
    held : BoundValues
        The arguments, by kind.
    parts : tuple of PlannedLoop
        One for each loop of the function.
    runtime : runtime
        Where it will run.
    arguments : tuple or None
        Arguments of the call as they were given.
    runner : callable or None
        What `run` calls.
    title : str
        The plan in a few words, without its fingerprint.
    settings : dict
        What the fingerprint is made of, by name.
    grade : str
        The weakest grade of the loops.
    cost : Cost
        What the loops cost together.
    plans : tuple of Plan
        One plan for each loop.
    fingerprint : str
        A short hash of everything that can change a number.
    """

    @property
    def runner(self) -> Runner | None:  # type: ignore[override]
        """What `run` calls."""
        return None if self.arguments is None else partial(self.loop.run_plan, self)

    def explain(self) -> str:
        """Everything that was found and decided, in words."""
        return explain(self)

    def order(self, data: Any = None, loop: int | None = None) -> Iterator[Any]:
        """The iterations in the order of the plan's visits: a serial run in this order gives the plan's result.

        Records of `data` are what the undecorated function takes in place of `data`. For a loop over ranges the
        iterations are the values of its indices: `for i, j in plan.order():` and the body of the loop after it.

        Buffers are driven as the plan drives them: a visit sees the state as of the start of its wave.

        Parameters
        ----------
        data : object, default None
            Data that a loop of the plan runs over; None for a loop over ranges.
        loop : int or None, default None
            Number of the loop among those over the data, or over ranges; needed if there are several.
        """
        known = self.held.data
        sources = [part.prepared.analysis.space.source for part in self.parts]
        fitting = [
            part
            for part, source in zip(self.parts, sources, strict=True)
            if (known[source] is data if source else data is None)
        ]
        if not fitting:
            named = ", ".join(dict.fromkeys(source for source in sources if source))
            over = f"its loops run over {named}; pass that" if named else "its loops run over ranges; pass no data"
            raise PlanError(f"plan.order: none of the loops of this plan runs over these data; {over}")
        if len(fitting) > 1 and loop is None:
            over = "ranges" if data is None else "these data"
            raise PlanError(f"plan.order: several loops run over {over}; say which with loop=0, 1, …")
        part = fitting[loop or 0]
        return in_order(part.prepared, self.held, part.known)


def recorded(plan: LoopPlan, rounds: Sequence[Ints]) -> LoopPlan:
    """The plan of rounds that have run."""
    if not rounds:
        raise PlanError(f"{plan.loop.plain.__name__} has made no rounds; give it a schedule= and call it first")
    part = plan.parts[0]
    size = len(part.prepared.analysis.space)
    if max(int(jobs.max()) for jobs in rounds) >= size:
        raise PlanError(f"the last call of {plan.loop.plain.__name__} was over more than {size} iterations")
    made = replace(part.prepared, visits=lay_rounds(part.prepared.analysis, rounds))
    return replace(plan, parts=(replace(part, prepared=made),), arguments=None)
