"""`TableRun`: the decisions of a job over tables (evaluations, cuts, restarts, end) as a pure state machine.

Events go in, instructions come out. It has no clock, thread or socket; the drivers of all runtimes use it.

    run = TableRun(workers=4, nodes=2, evaluations=Evaluations(every=5))
    run.begin(now)                      the first incarnation begins: what to evaluate first
    run.moved(member, low, most)        workers have ticked; did the lowest clock advance?
    run.closed(clock)                   all updates below this clock have arrived: what to evaluate
    run.time(now)                       what is due at this second
    run.cut_due(now)                    the clock of a cut that is worth its cost now, or None
    run.worker_part(…), node_part(…), shard_part(…)    a part of a cut has arrived; the cut, if it is complete
    run.keep(cut)                       restart from this cut from now on
    run.restart(now)                    a node was lost: the cut that all workers go back to
    run.drained(node), run.gathered(node)              the end: has every node reported it?

A *cut* is the complete state at one clock: a part of every worker (as it was when it reached the clock), of every node
(rounding residuals of its cache) and of every shard (its rows). With two nodes and two workers, a cut is complete when
six different parts have arrived. A part that arrives twice counts once, and a part of an earlier incarnation does not
count. Nodes decide by themselves which parts they send (`node_cuts`).

An *incarnation* ends when a node is lost. The next begins with the last complete cut. Evaluations of later clocks are
discarded, because these clocks are recomputed; so are the parts of other cuts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from stretto.consistency.clocks import Clocks
from stretto.runtime.cluster.hosts.failure_detector import Losses
from stretto.runtime.tables.job import FAR, TableEvaluation

from .cut_parts import Arrays, CutParts
from .evaluations import Evaluate, Evaluations, KeepClock


class TableRun:
    """The state of a run.

    Parameters
    ----------
    workers, nodes : int
        How many.
    members : int or None
        How many report their clocks to `moved`: workers or nodes.
    evaluations : Evaluations or None
        None if nothing is evaluated.
    begin : CutParts or None
        The cut that the run is resumed from; None for the start.
    interval : function(seconds of saving) -> seconds between two cuts, or None
        None for no cuts by time.
    ahead : float
            Seconds of clocks by which a cut is planned ahead, so that all nodes know of it before a worker reaches its
        clock.
    save_seconds : float
        Estimated seconds of saving before the first measurement.
    losses : Losses or None
        Counts lost nodes and decides when the job gives up.

    Attributes
    ----------
    last : CutParts
        The complete cut to restart from.
    incarnation : int
        Restarts so far.
    low, most : int
        The lowest and the highest clock of the members.
    stopped : str
        "", "until" or "interrupted".
    """

    def __init__(
        self,
        workers: int,
        nodes: int,
        *,
        members: int | None = None,
        evaluations: Evaluations | None = None,
        begin: CutParts | None = None,
        interval: Callable[[float], float] | None = None,
        ahead: float = 0.0,
        save_seconds: float = 0.05,
        losses: Losses | None = None,
    ) -> None:
        self.workers, self.nodes = workers, nodes
        self.evaluations, self.losses = evaluations, losses or Losses()
        self.last = begin or CutParts(0)
        self.incarnation = 0
        self.stopped = ""
        self.save_seconds = save_seconds
        self._members = workers if members is None else members
        self._interval, self._ahead = interval, ahead
        self._furthest = self.last.clock  # the highest value of `low` in any incarnation
        self._saved_at = 0.0
        self._open: dict[int, CutParts] = {}
        self._life(0.0)

    # -- incarnations ------------------------------------------------------------------------------------------------

    def _life(self, now: float) -> None:
        clock = self.last.clock
        self.clocks = Clocks(self._members, clock)
        self.most = max((part.clock for part in self.last.workers.values()), default=clock)
        self.planned: int | None = None  # the clock of a cut by time that is in progress
        self.stop_clock: int | None = None  # workers end at it because the user asked
        self._began = (now, clock)
        self._open.clear()
        self._drained: set[int] = set()
        self._gathered: set[int] = set()

    def begin(self, now: float) -> list[Evaluate]:
        """Begin the first incarnation."""
        self._saved_at = now
        self._life(now)
        return [] if self.evaluations is None else self.evaluations.begin(self.most, now)

    def restart(self, now: float) -> list[Evaluate]:
        """A node was lost, and all restart from `last`. Returned: the evaluation of its clock, if none was made."""
        self.incarnation += 1
        self._life(now)
        if self.evaluations is None:
            return []
        history = self.last.history or self.evaluations.history[:1]  # there is always one of the start
        return self.evaluations.begin(self.most, now, history)

    # -- progress and evaluations ------------------------------------------------------------------------------------

    @property
    def low(self) -> int:
        """The lowest clock of the members."""
        return self.clocks.low

    def moved(self, member: int, low: int, most: int) -> bool:
        """Record the lowest and highest clock of a member; FAR for an ended one. True: the lowest clock of all has
        advanced.
        """
        if self.most < most < FAR:
            self.most = most
        if not self.clocks.advance(member, low):
            return False
        if self.clocks.low > self._furthest:
            self._furthest = self.clocks.low
            self.losses.progressed()
        return True

    def closed(self, clock: int) -> list[Evaluate]:
        """The tables contain all updates of clocks below this one."""
        if self.evaluations is None or self.stopped == "until":
            return []
        return self.evaluations.closed(clock, self.most)

    def time(self, now: float, high: int) -> list[Evaluate | KeepClock]:
        """What is due at this second. `high`: the highest clock that a shard has reached."""
        if self.evaluations is None or self.stopped:
            return []
        return self.evaluations.time(now, self.low, high)

    @property
    def due_at(self) -> float:
        """The second at which the next evaluation by time is due; infinity if there is none."""
        return math.inf if self.evaluations is None or self.stopped else self.evaluations.due_at

    def evaluated(self, look: TableEvaluation, enough: bool) -> None:
        """Record an evaluation. `enough`: it ends the run."""
        assert self.evaluations is not None
        self.evaluations.made(look)
        if enough:
            self.stopped = self.stopped or "until"

    def ended(self) -> list[Evaluate]:
        """The tables contain all changes of the workers: the last evaluation, if it was not made."""
        if self.evaluations is None or self.stopped == "until":
            return []
        return self.evaluations.last(self.most)

    @property
    def history(self) -> list[TableEvaluation]:
        """The evaluations that count."""
        return [] if self.evaluations is None else self.evaluations.history

    def interrupt(self, clock: int | None = None) -> None:
        """The user wants the run to end; workers stop at this clock."""
        self.stopped = self.stopped or "interrupted"
        self.stop_clock = clock

    # -- cuts --------------------------------------------------------------------------------------------------------

    def due_in(self, now: float) -> float:
        """Seconds until a cut by time is worth its cost; infinity if none is to be made."""
        if self._interval is None or self.planned is not None or self.stop_clock is not None or self.low >= FAR:
            return math.inf
        return max(0.0, self._interval(self.save_seconds) - (now - self._saved_at))

    def save_due(self, now: float) -> bool:
        """Whether a cut that is complete now is worth saving, in a run that saves by time."""
        return self._interval is not None and now - self._saved_at >= self._interval(self.save_seconds)

    def cut_due(self, now: float, *, at_once: bool = False) -> int | None:
        """The clock of a cut to start now, if one is due and none is in progress; it then counts as planned.

        Parameters
        ----------
        at_once : bool
            Due in any case, because the user wants to stop.
        """
        if self.low >= FAR or self.stop_clock is not None or (not at_once and self.due_in(now) > 0):
            return None
        self.planned = self.next_clock(now)
        return self.planned

    def next_clock(self, now: float) -> int:
        """A clock that no worker will have reached when all nodes know of it."""
        if self._ahead == 0:
            return self.most + 1
        since, first = self._began
        each = (now - since) / max(1, self.low - first)
        return self.most + 2 + math.ceil(self._ahead / max(each, 1e-6))

    def refused(self, clock: int) -> None:
        """A node had already passed the clock of a planned cut: the cut is cancelled."""
        self._open.pop(clock, None)
        if self.planned == clock:
            self.planned = None
        if self.evaluations is not None:
            self.evaluations.refused(clock)

    def worker_part(self, clock: int, worker: int, part: Any) -> CutParts | None:
        """A worker's part of the cut at this clock has arrived. Returned: the cut, if it is complete now."""
        cut = self._cut(clock)
        if cut is None:
            return None
        cut.workers[worker] = part
        return self._complete(cut)

    def node_part(self, clock: int, node: int, residuals: Arrays) -> CutParts | None:
        """A node's part has arrived: rounding residuals of its cache, all its workers being at the clock."""
        cut = self._cut(clock)
        if cut is None:
            return None
        cut.residuals[node] = residuals
        return self._complete(cut)

    def shard_part(self, clock: int, node: int, arrays: Arrays, now: float, nbytes: int = 0) -> CutParts | None:
        """A shard's part has arrived: its rows, with exactly the updates of clocks below. `nbytes`: sent by the node so
        far.
        """
        cut = self._cut(clock)
        if cut is None:
            return None
        if node not in cut.shards:
            cut.seconds = max(cut.seconds, now)
            cut.nbytes += nbytes
        cut.shards[node] = arrays
        return self._complete(cut)

    def _cut(self, clock: int) -> CutParts | None:
        """The parts of a cut that have arrived; None: it is complete already, or an older one."""
        if clock <= self.last.clock and self.last.shards:
            return None
        return self._open.setdefault(clock, CutParts(clock))

    def _complete(self, cut: CutParts) -> CutParts | None:
        """The cut, if no part of it is missing."""
        if (
            len(cut.workers) < self.workers
            or len(cut.residuals) < self.nodes
            or len(cut.shards) < self.nodes
            or self._open.get(cut.clock) is not cut
        ):
            return None
        del self._open[cut.clock]
        if cut.clock >= FAR:  # the final cut: one clock after the last
            cut.clock = max(part.clock for part in cut.workers.values()) + 1
        return cut

    def at_cut(self, cut: CutParts) -> list[Evaluate]:
        """The evaluation that is due at the clock of a complete cut, for drivers that evaluate cuts."""
        # all ended earlier: `ended` evaluates that
        beyond = all(part.clock < cut.clock for part in cut.workers.values())
        if self.evaluations is None or self.stopped == "until" or beyond:
            return []
        return self.evaluations.at_cut(cut.clock)

    def missed(self, clock: int) -> bool:
        """Whether evaluations of clocks before this one are missing; a restart from it would skip them."""
        return self.evaluations is not None and self.evaluations.missed(clock)

    def keep(self, cut: CutParts) -> None:
        """Restart from this cut from now on; older ones are discarded."""
        cut.history = list(self.history)
        self.last = cut
        self._open = {clock: other for clock, other in self._open.items() if clock > cut.clock}
        if self.planned is not None and self.planned <= cut.clock:
            self.planned = None
        self.losses.progressed()

    def saved(self, now: float, seconds: float) -> None:
        """The last cut is saved, which took `seconds`."""
        self._saved_at, self.save_seconds = now, seconds

    # -- the end -----------------------------------------------------------------------------------------------------

    def drained(self, node: int) -> bool:
        """All changes have arrived at a node's shard. True: and at all others."""
        self._drained.add(node)
        return len(self._drained) == self.nodes

    def gathered(self, node: int) -> bool:
        """A node's results have arrived at the driver. True: and those of all others."""
        self._gathered.add(node)
        return len(self._gathered) == self.nodes
