"""`JobPlan`: the plan of work without a block grid, such as coordinate descent, programs and workers over tables.

A front end adds its own lines as `facts`; `explain()` prints them between the grade and the cost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stretto.cached import cached_property
from stretto.errors import PlanError

from .cost import Cost, show_bytes, show_flops
from .explain import PROFILE, PROMISE, WIDTH, memory, runs_on, show
from .plan import Physical
from .planned import BasePlan, Runner


@dataclass(frozen=True, eq=False, repr=False)
class JobPlan(BasePlan):
    """The plan of work without a grid of blocks: linear models, programs, tables.

    Attributes
    ----------
    program : str
        What it runs, such as "lasso" or "tables/average".
    about : str
        What it works on, in a few words.
    values : mapping
        Everything that can change a number, by name; its hash is the fingerprint.
    cost : Cost
        Estimated bytes and operations.
    grade : str
        What it promises: "identical", "replayable" or "statistical".
    why : str
        Why it has this grade; "" for the general reason.
    profile : str
        Numeric profile; "" where the arithmetic is the user's own.
    facts : tuple of pairs
        What `explain()` prints between the grade and the cost.
    physical : Physical
        Where it runs; changes no number.
    undrawn : str
        Why there is no picture.
    picture : callable or None
        function(heading) -> SVG text, where there is a picture.
    each : str
        What `cost` counts: one round, sweep or clock.
    counted : str
        What `cost.entries` counts.
    known : str
        The fingerprint, where the front end has its own; "" hashes the values.
    runner : callable or None
        What `run` calls.
    fingerprint : str
        A short hash of everything that can change a number.
    settings : dict
        What the fingerprint is made of, by name.
    title : str
        The plan in a few words, without its fingerprint.
    """

    program: str  # such as "lasso" or "tables/average"
    about: str  # what it works on, in a few words
    values: Mapping[str, Any]  # plain values by name
    cost: Cost
    grade: str = "identical"
    why: str = ""  # why it has this grade; "" for the promise in general words
    profile: str = ""  # numeric profile; "" where the arithmetic is the user's own
    facts: tuple[tuple[str, str], ...] = ()
    physical: Physical = field(default_factory=Physical)
    undrawn: str = "it has no block grid"  # why there is no picture
    picture: Callable[[str], str] | None = None  # from a heading: SVG text, where there is one
    each: str = "round"  # what `cost` counts: one round, sweep, clock
    counted: str = "entries"  # what `cost.entries` counts
    known: str = ""  # the fingerprint, where the front end has its own; "" hashes the values
    runner: Runner | None = None

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of everything that can change a number."""
        if self.known:
            return self.known
        text = json.dumps([self.program, dict(self.values)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def settings(self) -> dict[str, Any]:
        """What the fingerprint is made of, by name."""
        return {"program": self.program, **self.values}

    @property
    def title(self) -> str:
        """The plan in a few words, without its fingerprint."""
        return f"{self.program} on {self.about}, {self.grade}, {runs_on(self.physical)}"

    def explain(self) -> str:
        """The plan in words: a heading, then one fact a line."""
        return "\n".join([f"plan {self.fingerprint}: {self.program} on {self.about}", *show(self._lines(), WIDTH)])

    def draw(self, path: str | None = None, workers: int | None = None) -> str:
        """The plan as SVG text, where there is a picture.

        Parameters
        ----------
        path : str or None, default None
            File to write it to (.svg).
        workers : int or None, default None
            Not used.

        Raises
        ------
        PlanError
            If there is nothing to draw.
        """
        if self.picture is not None:
            text = self.picture(f"plan {self.fingerprint}: {self.program}")
            if path is not None:
                target = Path(path)
                if target.suffix != ".svg":
                    raise PlanError(f"cannot draw this plan as {target.suffix or 'a file without suffix'}; use .svg")
                target.write_text(text, encoding="utf-8")
            return text
        raise PlanError(f"plan {self.fingerprint} has no picture: {self.undrawn}; explain() has it in words")

    def _lines(self) -> list[tuple[str, str]]:
        cost = self.cost
        lines = [("grade", f"{self.grade}: {self.why or PROMISE[self.grade]}")]
        if self.profile:
            lines.append(("profile", f"{self.profile}: {PROFILE[self.profile]}"))
        lines += self.facts
        lines.append(("memory", memory(cost, self.counted) if cost.entry_bytes else show_bytes(cost.state_bytes)))
        if cost.moved_bytes:
            flops = f", {show_flops(cost.flops)}" if cost.flops else ""
            lines.append((f"per {self.each}", f"{show_bytes(cost.moved_bytes)} read and written{flops}"))
        return [*lines, ("runs on", runs_on(self.physical))]
