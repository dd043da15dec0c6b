"""`TableRun`: the course of a job over tables, as decisions. Events go in, instructions come out; it has no clock, no
thread and no socket of its own, and the driver of every runtime asks it the same questions.

    run = TableRun(workers=4, nodes=2, evaluations=Evaluations(every=5))
    run.begin(now)                      a life begins: what to evaluate first
    run.moved(member, low, most)        workers have ticked; did the lowest clock move?
    run.closed(clock)                   all updates below this clock have arrived: what to evaluate
    run.time(now)                       what is due at this second
    run.cut_due(now)                    the clock of a cut that is worth its price now, or None
    run.worker_part(…), node_part(…), shard_part(…)    a part of a cut has arrived; the cut, if it is complete
    run.keep(cut)                       restart from this cut from now on
    run.restart(now)                    a node was lost: the cut that all workers go back to
    run.drained(node), run.gathered(node)              the end: has that been said of every node?

A *cut* is everything at one clock: a part of every worker (as it was when it reached the clock), of every node (what
rounding left in its cache) and of every shard (its rows). With nodes 0 and 1, a cut at clock 10 is complete when six
different parts have arrived, if there are two workers. A part that arrives twice counts once, and a part of an earlier
life does not count. Nodes decide by themselves which parts they owe (`node_cuts`).

A *life* (incarnation) ends when a node is lost. The next begins with the last complete cut. Evaluations of later clocks
are void, for these clocks are recomputed; so is every part that has arrived of other cuts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from stretto.consistency.clocks import Clocks
from stretto.runtime.cluster.hosts.failure_detector import Losses
from stretto.runtime.tables.job import FAR, Watched

from .cut_parts import Arrays, CutParts
from .evaluations import Evaluate, Evaluations, KeepClock


class TableRun:
    """The state of a run.

    workers, nodes : how many. members : how many report their clocks to `moved`: workers or nodes
    evaluations : None if nothing is evaluated
    begin : the cut that the run goes on from; None for the start
    interval : from the seconds that saving takes to the seconds between two cuts; None for no cuts by time
    ahead : seconds of clocks by which a cut is planned ahead, so that nobody reaches its clock before being told
    losses : counts lost nodes and says when a job gives up

    Attributes
    ----------
    last : the complete cut to restart from. incarnation : lives before this one
    low, most : the lowest and the highest clock of the members. stopped : "", "until" or "interrupted"
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
        self._furthest = self.last.clock  # the lowest clock in any life
        self._saved_at = 0.0
        self._open: dict[int, CutParts] = {}
        self._life(0.0)

    # -- lives -------------------------------------------------------------------------------------------------------

    def _life(self, now: float) -> None:
        clock = self.last.clock
        self.clocks = Clocks(self._members, clock)
        self.most = max((part.clock for part in self.last.workers.values()), default=clock)
        self.planned: int | None = None  # the clock of a cut by time that is under way
        self.stop_clock: int | None = None  # workers end there, since the user asked
        self._began = (now, clock)
        self._open.clear()
        self._drained: set[int] = set()
        self._gathered: set[int] = set()

    def begin(self, now: float) -> list[Evaluate]:
        """The first life begins."""
        self._saved_at = now
        self._life(now)
        return [] if self.evaluations is None else self.evaluations.begin(self.most, now)

    def restart(self, now: float) -> list[Evaluate]:
        """A node was lost, and all begin again from `last`. The evaluation of its clock, where none was made."""
        self.incarnation += 1
        self._life(now)
        if self.evaluations is None:
            return []
        history = self.last.history or self.evaluations.history[:1]  # of the start there is one
        return self.evaluations.begin(self.most, now, history)

    # -- progress and evaluations ------------------------------------------------------------------------------------

    @property
    def low(self) -> int:
        """The lowest clock of the members."""
        return self.clocks.low

    def moved(self, member: int, low: int, most: int) -> bool:
        """The lowest and the highest clock of a member; FAR for one that has ended. True: the lowest of all moved."""
        if self.most < most < FAR:
            self.most = most
        if not self.clocks.advance(member, low):
            return False
        if self.clocks.low > self._furthest:
            self._furthest = self.clocks.low
            self.losses.progressed()
        return True

    def closed(self, clock: int) -> list[Evaluate]:
        """The tables hold all updates of clocks below this one."""
        if self.evaluations is None or self.stopped == "until":
            return []
        return self.evaluations.closed(clock, self.most)

    def time(self, now: float, high: int) -> list[Evaluate | KeepClock]:
        """What is due at this second. high: the highest clock that a shard has reached."""
        if self.evaluations is None or self.stopped:
            return []
        return self.evaluations.time(now, self.low, high)

    @property
    def due_at(self) -> float:
        """The second at which the next evaluation by time is due; infinity if there is none."""
        return math.inf if self.evaluations is None or self.stopped else self.evaluations.due_at

    def evaluated(self, look: Watched, enough: bool) -> None:
        """An evaluation was made. enough: it ends the run."""
        assert self.evaluations is not None
        self.evaluations.made(look)
        if enough:
            self.stopped = self.stopped or "until"

    def ended(self) -> list[Evaluate]:
        """The tables hold all that workers added: the last evaluation, if that was not made."""
        if self.evaluations is None or self.stopped == "until":
            return []
        return self.evaluations.last(self.most)

    @property
    def history(self) -> list[Watched]:
        """The evaluations that count."""
        return [] if self.evaluations is None else self.evaluations.history

    def interrupt(self, clock: int | None = None) -> None:
        """The user wants the run to end; workers do so at this clock."""
        self.stopped = self.stopped or "interrupted"
        self.stop_clock = clock

    # -- cuts --------------------------------------------------------------------------------------------------------

    def due_in(self, now: float) -> float:
        """Seconds until a cut by time is worth its price; infinity if none is to be made."""
        if self._interval is None or self.planned is not None or self.stop_clock is not None or self.low >= FAR:
            return math.inf
        return max(0.0, self._interval(self.save_seconds) - (now - self._saved_at))

    def save_due(self, now: float) -> bool:
        """Whether a cut that is complete now is worth saving, of a run that saves by time."""
        return self._interval is not None and now - self._saved_at >= self._interval(self.save_seconds)

    def cut_due(self, now: float, *, at_once: bool = False) -> int | None:
        """The clock of a cut to be made now, if one is due and none is under way; then it counts as planned.

        at_once : due in any case, for the user wants to stop
        """
        if self.low >= FAR or self.stop_clock is not None or (not at_once and self.due_in(now) > 0):
            return None
        self.planned = self.next_clock(now)
        return self.planned

    def next_clock(self, now: float) -> int:
        """A clock that nobody will have reached when all nodes have been told of it."""
        if self._ahead == 0:
            return self.most + 1
        since, first = self._began
        each = (now - since) / max(1, self.low - first)
        return self.most + 2 + math.ceil(self._ahead / max(each, 1e-6))

    def refused(self, clock: int) -> None:
        """A node had reached the clock of a planned cut before it was told: there will be none."""
        self._open.pop(clock, None)
        if self.planned == clock:
            self.planned = None
        if self.evaluations is not None:
            self.evaluations.refused(clock)

    def worker_part(self, clock: int, worker: int, part: Any) -> CutParts | None:
        """A worker's part of the cut at this clock. Returned: the cut, if it is complete now."""
        cut = self._cut(clock)
        if cut is None:
            return None
        cut.workers[worker] = part
        return self._complete(cut)

    def node_part(self, clock: int, node: int, residuals: Arrays) -> CutParts | None:
        """A node's part: what rounding had left in its cache, all its workers being at the clock."""
        cut = self._cut(clock)
        if cut is None:
            return None
        cut.residuals[node] = residuals
        return self._complete(cut)

    def shard_part(self, clock: int, node: int, arrays: Arrays, now: float, nbytes: int = 0) -> CutParts | None:
        """A shard's part: its rows, with exactly the updates of clocks below. nbytes: sent by the node so far."""
        cut = self._cut(clock)
        if cut is None:
            return None
        if node not in cut.shards:
            cut.seconds = max(cut.seconds, now)
            cut.nbytes += nbytes
        cut.shards[node] = arrays
        return self._complete(cut)

    def _cut(self, clock: int) -> CutParts | None:
        """The parts that have arrived of a cut; None: it is complete already, or an older one."""
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
        if cut.clock >= FAR:  # of the end: one clock after the last
            cut.clock = max(part.clock for part in cut.workers.values()) + 1
        return cut

    def at_cut(self, cut: CutParts) -> list[Evaluate]:
        """The evaluation that is due at the clock of a complete cut, for those who evaluate cuts."""
        beyond = all(part.clock < cut.clock for part in cut.workers.values())  # all ended before: `ended` comes
        if self.evaluations is None or self.stopped == "until" or beyond:
            return []
        return self.evaluations.at_cut(cut.clock)

    def missed(self, clock: int) -> bool:
        """Whether evaluations of clocks before this one are missing, which a restart from there would leave out."""
        return self.evaluations is not None and self.evaluations.missed(clock)

    def keep(self, cut: CutParts) -> None:
        """Restart from this cut from now on; older ones are not waited for any more."""
        cut.history = list(self.history)
        self.last = cut
        self._open = {clock: other for clock, other in self._open.items() if clock > cut.clock}
        if self.planned is not None and self.planned <= cut.clock:
            self.planned = None
        self.losses.progressed()

    def saved(self, now: float, seconds: float) -> None:
        """The last cut is safe, and saving it took so long."""
        self._saved_at, self.save_seconds = now, seconds

    # -- the end -----------------------------------------------------------------------------------------------------

    def drained(self, node: int) -> bool:
        """All that anybody added has arrived at a node's shard. True: and at all others."""
        self._drained.add(node)
        return len(self._drained) == self.nodes

    def gathered(self, node: int) -> bool:
        """A node's results have arrived at the driver. True: and those of all others."""
        self._gathered.add(node)
        return len(self._gathered) == self.nodes
