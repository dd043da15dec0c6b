"""What a door hands to the runtime: passes to run each epoch, arrays to save, and how to read the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from stretto.plan.plan import Plan

from .step import Step


@dataclass(frozen=True)
class Report:
    """How far an epoch got: the objective (lower is better) and named metrics."""

    objective: float
    metrics: dict[str, float] = field(default_factory=dict)


class Job(Protocol):
    """An iterative-convergent model under a plan.

    One may also have `steps_ahead`: True when `steps` of the next epoch and `report` read nothing that is learned, so
    that a crew may begin the next epoch before this one is reported.
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def items(self) -> int:
        """What ratings per second counts: entries processed in an epoch."""
        ...

    def steps(self, epoch: int) -> Sequence[Step]:
        """The passes of an epoch, in order. Their arguments are live arrays: each sees what those before it wrote."""
        ...

    def report(self, epoch: int, steps: Sequence[Step]) -> Report:
        """Read the epoch's result from its finished steps."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything learned, live: saved in checkpoints and restored in place."""
        ...
