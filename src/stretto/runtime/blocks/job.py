"""The interface of a model that runs epoch by epoch: steps of an epoch, arrays to save, how to read the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from stretto.plan.plan import Plan

from .step import BlockStep


@dataclass(frozen=True)
class EpochReport:
    """The result of an epoch: the objective (lower is better) and named metrics."""

    objective: float
    metrics: dict[str, float] = field(default_factory=dict)


class Job(Protocol):
    """An iterative-convergent model under a plan.

    A job may also have `steps_ahead`: True if `steps` of the next epoch and `report` do not read what is learned, so
    that a crew may start the next epoch before this one is reported.
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def items(self) -> int:
        """Entries processed in an epoch, for the rate per second."""
        ...

    def steps(self, epoch: int) -> Sequence[BlockStep]:
        """The passes of an epoch, in order. Their arguments are live arrays: each sees what those before it wrote."""
        ...

    def report(self, epoch: int, steps: Sequence[BlockStep]) -> EpochReport:
        """Read the epoch's result from its finished steps."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything learned, as live arrays: saved in checkpoints and restored in place."""
        ...
