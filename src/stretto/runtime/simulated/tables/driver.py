"""The driver of a simulated job over tables: it receives cuts, notices lost nodes and restarts the run.

The decisions are those of the cluster: `runtime.tables.run.table_run`, and `runtime.cluster.hosts.failure_detector` for
lost nodes. Only the messages are simulated. A report of a node reaches the driver after the latency, its part of a cut
after the time of saving as well. Reports are lost with their node, and repeated after a connection reset. Where nodes
can fail, an evaluation at a clock uses a cut, as on a cluster: it is made when all parts have arrived, and nodes may be
lost before that.

    a node crashes or stalls → after `detect` the others report its silence → the failure detector decides → the node is
    ended, and is back after a while → all restart from the last complete cut, in a new incarnation

A delay of messages is silence, too, until the first of them arrives. The sender still answers the driver, so it is lost
only after `BUSY` times `detect`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from stretto.errors import RunError
from stretto.runtime.cluster.hosts.failure_detector import BUSY, FailureDetector
from stretto.runtime.files.checkpoint import interval_seconds
from stretto.runtime.simulated.faults import Delay
from stretto.runtime.simulated.settings import drawn
from stretto.runtime.tables.run.cut_parts import CutParts
from stretto.runtime.tables.run.evaluations import Evaluations
from stretto.runtime.tables.run.node_cuts import CutPlan, NodeCuts
from stretto.runtime.tables.run.table_run import TableRun
from stretto.store.node import StoreNode

if TYPE_CHECKING:
    from .job import SimulatedCluster

_DRIVER = -1  # reports a silent node where no other node is left to do so


class NodeReport(NamedTuple):
    """A report of a node to the driver."""

    incarnation: int
    node: int
    what: str  # "worker", "node", "shard": parts of a cut; "refused": that clock has passed; "final": its results
    value: Any


class SimulatedDriver:
    """The driver of one job.

    Attributes
    ----------
    cutting : bool
        Whether cuts are made.
    by_cuts : bool
        Whether evaluations at clocks use cuts; otherwise the shards are read at once.
    lost : set of int
        Nodes that count as lost.
    finished : float or None
        When all updates were at the shards; the results are then being gathered.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster, self._hub = cluster, cluster.hub
        self._spec, job = cluster.spec, cluster.job
        spec = self._spec
        self._latency = float(spec.latency)
        self.by_cuts = spec.can_fail and job.watch is not None and bool(job.every) and job.seconds is None
        asked = {job.every_clocks, job.every if self.by_cuts else None}
        self.every = tuple(sorted(clocks for clocks in asked if clocks))
        self._checkpoint_every = job.every_clocks
        by_time = job.every_clocks is None and spec.can_fail
        self.cutting = bool(self.every) or by_time
        sizes = (
            (table.rows or 0) * table.cols * table.kept.itemsize * (1 + table.apply.states) for table in job.tables
        )
        self.run = TableRun(
            job.workers,
            spec.nodes,
            evaluations=Evaluations.of(job),
            interval=self._interval if by_time else None,
            ahead=2 * self._latency,
            save_seconds=sum(sizes) // spec.nodes / spec.save_rate,
        )
        self.lost: set[int] = set()
        self.finished: float | None = None
        self._detector = FailureDetector(float(spec.detect), grace=0.0)  # all reports arrive at the same time
        self._silent_since: dict[int, float] = {}
        self._began = 0.0  # when this incarnation began
        self._delays = [fault for fault in spec.faults if isinstance(fault, Delay)]
        for fault in self._delays:
            if float(fault.extra) >= BUSY * self._detector.patience:
                self._after(float(fault.at), BUSY, self._report_delay, fault)
        self._back_at: dict[int, float] = {}  # when a lost node is back
        self._restart_at = 0.0
        self._last_reports: dict[int, NodeReport] = {}  # the last report of each node
        self._arrives = [0.0] * spec.nodes  # when the last report of each node arrives
        self._waiting: dict[int, CutParts] = {}  # by clock: complete cuts, while an earlier one is not
        self._handled = 0  # the clock of the last cut that was handled
        self._reports = 0

    def _interval(self, save_seconds: float) -> float:
        mean, saving = self._spec.mean_failure(), max(save_seconds, 1e-6)
        return 10 * saving if mean is None else interval_seconds(saving, mean, self._spec.nodes)

    # -- cuts --------------------------------------------------------------------------------------------------------

    def cuts_of(self, node: StoreNode) -> NodeCuts:
        """The cuts of a node of this incarnation."""
        number = node.number
        return NodeCuts(node, self._plan(), lambda what, value: self.tell(number, what, value))

    def tell(self, node: int, what: str, value: Any, seconds: float = 0.0) -> None:
        """Send a report of a node, which takes `seconds` beyond the latency. Only its results arrive after all others;
        else their order does not matter.
        """
        self._last_reports[node] = report = NodeReport(self.run.incarnation, node, what, value)
        self._reports += 1
        jitter = float(self._spec.jitter) * drawn(self._spec.seed, node, self._reports)
        self._carry(report, self._latency + jitter + seconds)

    def _carry(self, report: NodeReport, seconds: float) -> None:
        node, at = report.node, self._hub.now + seconds
        if report.what == "final":
            at = max(at, self._arrives[node])
        self._arrives[node] = max(self._arrives[node], at)
        self._hub.at(at, self._take, report)

    def save(self, node: StoreNode, cuts: NodeCuts) -> None:
        """Save a shard's parts of complete cuts."""
        shard = node.shard
        while (clock := shard.saving) is not None:
            arrays = shard.saved()
            if arrays is not None and cuts.saved(clock):
                nbytes = sum(array.nbytes for array in arrays.values())
                self.tell(node.number, "shard", (clock, arrays), nbytes / self._spec.save_rate)

    def reset(self, node: int) -> None:
        """A node's connections broke: it does not know whether its last report arrived, and repeats it."""
        if node in self._last_reports:
            self._carry(self._last_reports[node], self._latency)

    def _take(self, report: NodeReport) -> None:
        """Receive a report, unless its node is lost or its incarnation has ended."""
        life, node, what, value = report
        if life != self.run.incarnation or self._cluster.nodes[node] is None:
            return
        run, cut = self.run, None
        if what == "worker":
            cut = run.worker_part(*value)
        elif what == "node":
            cut = run.node_part(value[0], node, value[1])
        elif what == "shard":
            cut = run.shard_part(value[0], node, value[1], self._hub.now)
        elif what == "refused":
            self._refused(value)
        elif self.finished is not None and run.gathered(node) and not self._cluster.down:
            self._hub.over = True
        if cut is not None:
            self._complete(cut)

    def _complete(self, cut: CutParts) -> None:
        """A cut is complete. Those that are evaluated are handled in the order of their clocks."""
        if not self.by_cuts:
            self._keep(cut)
            return
        self._waiting[cut.clock] = cut
        for clock in sorted(self._waiting):
            if self._plan().between(self._handled, clock - 1):
                return  # parts of an earlier one are still on their way
            self._handled, cut = clock, self._waiting.pop(clock)
            self._cluster.evaluator.evaluate(self.run.at_cut(cut), cut)
            self._keep(cut)

    def _keep(self, cut: CutParts) -> None:
        """Restart from a cut from now on, if a checkpoint is due at its clock."""
        run = self.run
        by_clock = self._checkpoint_every is not None and cut.clock % self._checkpoint_every == 0
        if not by_clock and cut.clock != run.planned and cut.clock in self._plan():
            return  # it was made to be evaluated
        if not run.missed(cut.clock):  # the state of a crashed node could not be evaluated
            run.keep(cut)
            run.saved(self._hub.now, cut.size() / self._spec.save_rate)

    def _plan(self) -> CutPlan:
        return CutPlan(self.every, self.run.last.clock)

    def plan(self) -> None:
        """Start a cut, if one by time is due. Nodes take the cuts of their plan by themselves."""
        clock = self.run.cut_due(self._hub.now)
        if clock is not None and clock not in self._plan():
            self._ask(self._open, clock)

    def _ask(self, call: Any, clock: int) -> None:
        for node in range(self.run.nodes):
            self._hub.at(self._hub.now + self._latency, call, (self.run.incarnation, node, clock))

    def _open(self, asked: tuple[int, int, int]) -> None:
        """A node receives a planned cut; it refuses if one of its workers has reached the clock."""
        cluster, (life, node, clock) = self._cluster, asked
        if life != self.run.incarnation or cluster.nodes[node] is None:
            return
        if not cluster.trouble.puts_off(node, self._open, asked):
            workers = (cluster.clients[worker] for worker in cluster.layout.workers_of(node))
            if any(not client.ended and client.clock >= clock for client in workers) or not cluster.cuts[node].open(
                clock
            ):
                self.tell(node, "refused", clock)
            cluster.after(cluster.node(node))

    def _refused(self, clock: int) -> None:
        if self.run.planned == clock:
            self.run.refused(clock)
            self._ask(self._cancel, clock)

    def _cancel(self, asked: tuple[int, int, int]) -> None:
        life, node, clock = asked
        if life == self.run.incarnation and self._cluster.nodes[node] is not None:
            self._cluster.cuts[node].cancel(clock)

    # -- losses ------------------------------------------------------------------------------------------------------

    def crashed(self, node: int, back_after: float) -> None:
        """A node has crashed; the others have not noticed yet."""
        self._back_at[node] = self._hub.now + back_after
        self.silent(node)

    def silent(self, node: int) -> None:
        """From now on the node sends nothing."""
        since = self._hub.now
        self._after(since, 1.0, self._report_silence, (self.run.incarnation, node, since))

    def _after(self, since: float, times: float, call: Any, argument: Any) -> None:
        """Schedule a call for when `times` the patience has passed."""
        seconds = times * self._detector.patience
        when = since + seconds
        while when - since < seconds:  # rounding
            when = math.nextafter(when, math.inf)
        self._hub.at(when, call, argument)

    def _is_silent(self, node: int) -> bool:
        return self._cluster.nodes[node] is None or self._cluster.trouble.paused_until[node] > self._hub.now

    def _report_silence(self, what: tuple[int, int, float]) -> None:
        """Nodes that have not heard another for too long report it, and the failure detector decides."""
        life, node, since = what
        now = self._hub.now
        if life != self.run.incarnation or node in self.lost or not self._is_silent(node):
            return
        self._silent_since[node] = since
        for by in self._answering() or [_DRIVER]:
            self._detector.silent(now, by, node, now - since)
        self._judge()

    def _report_delay(self, fault: Delay) -> None:
        """The receiver of delayed messages has heard nothing of the sender for too long."""
        if fault.b not in self.lost and not self._is_silent(fault.b):
            self._detector.silent(self._hub.now, fault.b, fault.a, self._silence(fault.b, fault.a))
            self._judge()

    def _judge(self) -> None:
        found = self._detector.judge(self._hub.now, self._silence, self._answering())
        if found is not None:
            self._lose(found[0])

    def _answering(self) -> list[int]:
        return [node for node in range(self.run.nodes) if not self._is_silent(node)]

    def _silence(self, by: int, whom: int) -> float:
        """Seconds in which a node has heard nothing of another."""
        now = self._hub.now
        if whom in self.lost:
            return 0.0
        if self._is_silent(whom):
            return now - self._silent_since.get(whom, now)
        late = [(float(one.at), float(one.extra)) for one in self._delays if (one.a, one.b) == (whom, by)]
        return max([now - max(at, self._began) for at, extra in late if at <= now < at + extra], default=0.0)

    def _lose(self, node: int) -> None:
        """A node counts as lost: end it, if it only stalled, and restart when all lost nodes are back."""
        now = self._hub.now
        if self._cluster.nodes[node] is not None:
            self._cluster.lose(node)
            self._back_at[node] = now + float(self._spec.back_after)
        self.lost.add(node)
        why = self.run.losses.lost(node)
        if why:
            raise RunError(
                f"{why}; the last loss was node {node}, after {now:.4g} virtual seconds, and the run had come to clock "
                f"{self.run.last.clock}: nodes fail faster than checkpoints can be taken; take them more often, or "
                "reduce the failures"
            )
        reading = self.run.last.size() / self._spec.save_rate
        self._restart_at = max(now, *(self._back_at[lost] for lost in self.lost)) + reading
        self._hub.at(self._restart_at, self._restart, None)

    def _restart(self, _: None) -> None:
        """Restart all nodes, if all answer."""
        cluster, now = self._cluster, self._hub.now
        if not self.lost or now < self._restart_at:
            return
        gone = [node for node, found in enumerate(cluster.nodes) if found is None and node not in self.lost]
        for node in gone:  # lost as well, which is noticed now
            self._lose(node)
        stalled = max(cluster.trouble.paused_until)
        if not gone and stalled > now:  # wait for their answer, until they count as lost too
            self._hub.at(stalled, self._restart, None)
        elif not gone:
            self.lost.clear()
            self.finished = None
            self._detector.begin()
            self._last_reports.clear()
            self._waiting.clear()
            self._handled, self._began = self.run.last.clock, now
            due = self.run.restart(now)
            self.run.losses.began()
            cluster.restart(self.run.last, due)

    # -- the end -----------------------------------------------------------------------------------------------------

    def drained(self) -> None:
        """All changes are at the shards; a node that is lost now still loses its results."""
        if any(node is None for node in self._cluster.nodes):
            return
        if not self._spec.can_fail:
            self._hub.over = True
            return
        self.finished = self._hub.now
        for node in range(self.run.nodes):
            self.tell(node, "final", None, self.run.last.size() / self._spec.save_rate)
