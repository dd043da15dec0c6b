"""`st.Simulated`: run on a simulated cluster.

    st.Simulated(nodes=64, threads=16, link="1Gbit", latency="100us", failures="20h", seed=1)

Values and convergence are real; only time is simulated. A worker with tables takes `items · seconds_per_item / speed`
when it calls `w.work(items)`; everything else takes no time. Where blocks rotate (estimators, parallel loops) a visit
takes that time for its items. A message waits at the sender's link, at the uplinks of the racks if it leaves its rack,
and at the receiver's link, passes each at its rate, and takes the latency on top.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stretto.errors import RunError
from stretto.runtime.opening import OpensCrew

from .settings import SimulatedSettings

if TYPE_CHECKING:
    from stretto.runtime.cluster.rounds.driver import RemoteWork
    from stretto.runtime.rounds.rounds import RoundsRun
    from stretto.runtime.rounds.started import StartedNodes
    from stretto.runtime.tables.job import TableJob, TableOutcome
    from stretto.schedule.pipeline import Pipeline

    from .blocks.report import RotationReport


@dataclass(frozen=True)
class Simulated(SimulatedSettings, OpensCrew):
    """A simulated cluster in one process. Deterministic for a seed; times are virtual seconds.

    Parameters
    ----------
    nodes : int, default 64
        Machines.
    threads : int, default 16
        Cores of each machine. Logical workers of a node share them if there are more workers than cores.
    link : str, float or sequence, default "1Gbit"
        Rate of a node's link, each way; a sequence gives one for each node.
    latency : str or float, default "100us"
        Time from link to link.
    speed : float or sequence of float, default 1.0
        Speed of the nodes, where 1 takes `seconds_per_item`; a number, or one for each node.
    stragglers : dict, callable or None, default None
        {"share": 0.1, "slow": 3.0, "seconds": 2.0}: in each interval of 2 seconds, another tenth of the nodes is 3
        times slower. Or function(node, seconds) -> how many times slower.
    failures : str, float, sequence of Crash or None, default None
        Mean time to failure of a node, such as "5h", or a list of `st.faults.Crash`.
    seed : int, default 0
        Seed of everything that is drawn: stragglers, failures, jitter.
    racks : int, sequence of int or None, default None
        Number of racks (nodes are distributed in order), or the rack of each node.
    uplink : str, float or None, default None
        Rate between a rack and the others, each way; None for no limit.
    seconds_per_item : float, default 1e-06
        Seconds to compute one item.
    message_cost : tuple of float, default (1.5e-05, 1e-09)
        (seconds per message, seconds per byte) that a core spends at either end; the workers of the node lose this
        time.
    jitter : str or float, default 0.0
        The most that is added at random to the time of a message. Messages between two nodes keep their order.
    faults : sequence of faults, default ()
        A list of `st.faults.Pause`, `st.faults.SlowNode`, `st.faults.SlowLink`, `st.faults.Delay`, `st.faults.Reset`
        and `st.faults.Crash`.
    detect : str or float, default 5.0
        A node that is silent for longer is lost, and the run continues from the last checkpoint.
    back_after : str or float, default 10.0
        Time until a failed node is back.
    save : str or float, default "200MB"
        Rate at which a node saves its part of a checkpoint.

    Examples
    --------
    >>> import stretto as st
    >>> cluster = st.Simulated(nodes=8, threads=4, link="10Gbit", racks=2)
    >>> cluster.workers, cluster.rack_of
    (32, (0, 0, 0, 0, 1, 1, 1, 1))
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_reports", [])  # not a field: it is not a property of the cluster

    @property
    def report(self) -> RotationReport:
        """Report of the last job, in virtual time: a fit, calls of a parallel loop, or a program (without passes)."""
        reports: list[RotationReport] = self._reports  # type: ignore[attr-defined]
        if not reports:
            raise RunError(
                "Simulated.report: this runtime has not run blocks or a program yet; fit an estimator, "
                "call a parallel loop or run a program with runtime= set to this same object (st.run returns the "
                "report of a job over tables)"
            )
        return reports[-1]

    def _ran(self, report: RotationReport) -> None:
        """Record the report of a crew that was opened."""
        self._reports[:] = [report]  # type: ignore[attr-defined]

    @contextmanager
    def crew(self) -> Iterator[Any]:
        """Open a crew that runs passes over blocks on simulated nodes. The caller handles signals."""
        from .blocks.block_executor import SimulatedCrew

        with closing(SimulatedCrew(self)) as crew:
            self._ran(crew.report)
            yield crew

    def serve(self, job: TableJob) -> TableOutcome:
        """Run a job over tables.

        Parameters
        ----------
        job : TableJob
            The worker function and its tables, checked.
        """
        from .tables.job import run  # imported late: it imports greenlet

        return run(self, job)

    @contextmanager
    def rounds(self, pipeline: Pipeline, work: RemoteWork) -> Iterator[RoundsRun]:
        """Open the rounds of a program whose updates run on simulated nodes.

        What the driver computes takes no virtual time.

        Parameters
        ----------
        pipeline : Pipeline
            Which rounds may be in progress.
        work : RemoteWork
            The functions of the program.
        """
        with self.started() as nodes, nodes.rounds(pipeline, work) as rounds:
            yield rounds

    @contextmanager
    def started(self) -> Iterator[StartedNodes]:
        """Start the simulated nodes, for several programs one after another. Virtual time goes on between them."""
        from stretto.runtime.cluster.rounds.driver import HostRounds
        from stretto.runtime.rounds.started import StartedNodes

        from .blocks.hosts import VirtualHosts
        from .blocks.report import RotationReport
        from .rounds.task import make_virtual_rounds

        hosts = VirtualHosts(self)
        options: Any = {"pack": lambda work: work, "clock": hosts.now, "cpu": lambda: 0.0, "wait": math.inf}

        def rounds(pipeline: Pipeline, work: RemoteWork) -> RoundsRun:
            made = HostRounds(pipeline, work, hosts, make_virtual_rounds, **options)
            hosts.asked = lambda: made.asked and not made.halting
            return made

        report = RotationReport(self.nodes, self.threads)
        self._ran(report)
        try:
            yield StartedNodes(self, rounds)
        finally:
            report.seconds, report.driver_bytes, report.losses = hosts.now(), hosts.carried, list(hosts.losses)
