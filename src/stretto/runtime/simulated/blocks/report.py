"""`RotationReport`: what a static plan did on simulated nodes, in virtual time (seconds, bytes moved, waiting)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .hosts import NodeLoss


@dataclass(frozen=True, eq=False)
class PassReport:
    """One pass over the visits of a step, in virtual time.

    Attributes
    ----------
    name : str
        Name of the step.
    began : float
        Virtual seconds from the opening of the crew to the driver's request.
    elapsed : float
        Seconds until the driver had every node's report, with sending data and recovery.
    seconds : float
        Seconds of the pass itself.
    computed : float
        Seconds that workers of all nodes made visits.
    moved : int
        Bytes of column blocks that nodes sent to each other.
    waited : ndarray of float64 [nodes]
        Seconds that the workers of each node waited for blocks, added up.
    """

    name: str
    began: float  # virtual seconds from the opening of the crew to the driver's request
    elapsed: float  # until the driver had every node's report, with sending data and recovery
    seconds: float  # of the pass itself, as in `StepOutcome.seconds`
    computed: float  # seconds that workers of all nodes made visits
    moved: int  # bytes of column blocks that nodes sent to each other
    waited: NDArray[np.float64]  # [nodes] seconds that the workers of each node waited for blocks, summed


@dataclass(eq=False)
class RotationReport:
    """What a job on simulated nodes did, in virtual time. It grows during a run.

    Attributes
    ----------
    nodes : int
        Nodes of the cluster.
    threads : int
        Threads of each node.
    seconds : float
        Virtual seconds, with sending data to the nodes and gathering results.
    passes : list of PassReport
        The passes.
    driver_bytes : int
        Bytes between the driver and the nodes.
    losses : list of NodeLoss
        Nodes that were lost.
    moved : int
        Bytes of column blocks that nodes sent to each other.
    waited : ndarray of float64 [nodes]
        Seconds that the workers of each node waited for blocks, added up.
    computing : float
        Share of all cores' time, during passes, that was spent in visits.
    """

    nodes: int
    threads: int
    seconds: float = 0.0
    passes: list[PassReport] = field(default_factory=list)
    driver_bytes: int = 0
    losses: list[NodeLoss] = field(default_factory=list)

    @property
    def moved(self) -> int:
        """Bytes of column blocks that nodes sent to each other."""
        return sum(one.moved for one in self.passes)

    @property
    def waited(self) -> NDArray[np.float64]:
        """[nodes] seconds that the workers of each node waited for blocks, added up."""
        return np.sum([one.waited for one in self.passes], axis=0) if self.passes else np.zeros(self.nodes)

    @property
    def computing(self) -> float:
        """Share of all cores' time, during passes, that was spent making visits."""
        during = sum(one.seconds for one in self.passes) * self.nodes * self.threads
        return sum(one.computed for one in self.passes) / during if during else 0.0

    def __str__(self) -> str:
        cluster, passes = f"{self.nodes} nodes of {self.threads} threads", len(self.passes)
        driver = f"{self.driver_bytes / 1e6:,.1f} MB to and from the driver"
        lines = [f"{cluster}: {self.seconds:.3f} virtual seconds; {driver}"]
        if self.passes:
            longest, most = max(one.seconds for one in self.passes), int(self.waited.argmax())
            lines = [
                f"{cluster}: {passes} passes in {self.seconds:.3f} virtual seconds, the longest {longest:.3f}",
                f"computing {self.computing:.0%} of all cores' time; {self.moved / 1e6:,.1f} MB between nodes, "
                f"{driver}",
                f"node {most} waited longest: {self.waited[most]:.3f} seconds of its workers",
            ]
        lines += [f"lost at {loss.seconds:.3f}: node {loss.node}, {loss.why}" for loss in self.losses]
        return "\n".join(lines)
