"""Runs in progress on the nodes, as the driver tracks them: the current one, and possibly the next.

    runs = Runs(hosts)
    made = runs.make(plan, kept, then, deadline, ending)    # what each node reported of `kept`
    runs.ahead                                              # `then` is started by the nodes without a further message

A run that is certain to follow is announced in advance. A node starts it as soon as it has made its own visits of the
current run; it does not wait for the slowest node or for the driver.

Stopping takes two steps, since some nodes may already be in the next epoch. First every node reports which epoch it has
started, and starts no later one. Then all nodes stop in the latest of these: a node that is still in the epoch before
finishes that one (no node that it depends on has stopped there) and makes no visit of the next. So the nodes' state is
always all visits of some epochs and some visits of the next one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from stretto.errors import RunError
from stretto.runtime.cluster.hosts.calls import HostEvent, HostLost, TaskHosts
from stretto.runtime.cluster.hosts.failure_detector import StallDetector
from stretto.runtime.tables.stalls import AFTER

from .driver_step import CrewPlan, RepeatableRun
from .step_messages import NodeRunResult
from .task import WITHIN

_POLL_SECONDS = 0.2  # seconds between two checks for a requested stop
_CRAWL = 1e5  # bytes per second of a block on the slowest network


class RecoveryLimits(Protocol):
    """The attributes of `ClusterSettings` that are used."""

    @property
    def patience(self) -> str | float: ...


class HostsApi(TaskHosts, Protocol):
    """The methods of `hosts.Hosts` that are used."""

    @property
    def spec(self) -> RecoveryLimits: ...

    def ask(self, what: str, *args: Any, timeout: float | None = None) -> dict[int, Any]: ...
    def ask_one(self, host: int, what: str, *args: Any, timeout: float | None = None) -> Any: ...
    def events(self, wait: float) -> list[HostEvent]: ...


class FinishedRun(NamedTuple):
    """A finished run."""

    ran: dict[int, NodeRunResult]  # by node
    seconds: float
    torn: bool  # the nodes stopped in different epochs


@dataclass(eq=False)
class SentRun:
    """A run that was sent to the nodes, and their reports of it."""

    plan: CrewPlan
    kept: RepeatableRun
    ran: dict[int, NodeRunResult] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return any(one.failed >= 0 for one in self.ran.values())

    def is_for(self, plan: CrewPlan, kept: RepeatableRun) -> bool:
        """Whether it is the run that is requested now."""
        mine = self.kept
        same = plan is self.plan and (kept.epoch, kept.numbers) == (mine.epoch, mine.numbers)
        return same and np.array_equal(kept.finished, mine.finished)


class Runs:
    """Runs that were sent in this incarnation and are not finished.

    Parameters
    ----------
    clock : function() -> seconds
        Virtual time where hosts are simulated.
    """

    def __init__(self, hosts: HostsApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._hosts, self._clock = hosts, clock
        self._sent: list[SentRun] = []
        self._ends_at: int | None = None  # the epoch in which a requested stop takes effect
        self._longest = 0.0  # seconds of the longest visit so far
        self._patience = float(hosts.spec.patience)
        self._still, self._warn_after = StallDetector(self._patience), AFTER
        self._check_at = 0.0

    @property
    def ahead(self) -> bool:
        """Whether a run was announced that the caller has not requested yet."""
        return bool(self._sent)

    def expects(self, plan: CrewPlan, kept: RepeatableRun) -> bool:
        """Whether this run is the announced one, or none was announced."""
        return not self._sent or self._sent[0].is_for(plan, kept)

    def forget(self) -> None:
        """Discard all runs: the incarnation has ended."""
        self._sent.clear()
        self._ends_at = None

    def make(
        self,
        plan: CrewPlan,
        kept: RepeatableRun,
        then: RepeatableRun | None = None,
        deadline: float | None = None,
        ending: Callable[[], bool] = lambda: False,
    ) -> FinishedRun:
        """Make a run, or wait for it if it was announced.

        Parameters
        ----------
        plan, kept : CrewPlan, RepeatableRun
            The step and the run.
        then : RepeatableRun or None
            The run that is certain to follow.
        deadline : float or None
            Time at which to stop.
        ending : function() -> bool
            Whether a stop is requested.
        """
        began = self._clock()
        now = self._send(plan, kept, then)
        self._still, self._warn_after = StallDetector(self._patience), AFTER
        self._check_at = began + min(self._patience, AFTER)
        while not self._over(now):
            left = _POLL_SECONDS
            if deadline is not None and self._ends_at is None:
                left = min(left, max(0.0, deadline - self._clock()))
            for event in self._hosts.events(left):
                self._note(event)
            late = deadline is not None and self._clock() >= deadline
            if now.failed:
                self._end(kept.epoch)  # other nodes may wait for its blocks without end
            elif self._ends_at is None and (late or ending()):
                self._end(self._latest())
            if self._clock() >= self._check_at:
                self._check(plan)
        self._sent.remove(now)
        begun = any(len(one.made) for sent in self._sent for one in sent.ran.values())
        torn = now.failed and begun
        if now.failed or (self._ends_at is not None and not begun):
            self._sent.clear()
        if not self._sent:
            self._ends_at = None
        return FinishedRun(now.ran, self._clock() - began, torn)

    def settle(self, plan: CrewPlan) -> None:
        """Wait for blocks in flight. HostLost if a host that sent some is lost: they may never arrive."""
        began = self._clock()
        while not all(self._hosts.ask("arrived", plan.number, plan.turns, _POLL_SECONDS).values()):
            for event in self._hosts.events(0.0):
                self._note(event)
            if self._clock() - began > WITHIN + plan.block_bytes / _CRAWL:
                raise RunError(
                    f"blocks that nodes have sent to each other have not arrived for {self._clock() - began:.0f} s; "
                    "please report this, with the logs of the hosts"
                )

    def _send(self, plan: CrewPlan, kept: RepeatableRun, then: RepeatableRun | None) -> SentRun:
        """Send the nodes the runs that they do not know; return the requested one."""
        gos = []
        if not self._sent:
            self._sent.append(SentRun(plan, kept))
            gos.append(plan.go(kept))
        now = self._sent[0]
        if then is not None and self._ends_at is None and not now.failed:
            self._sent.append(SentRun(plan, then))
            gos.append(replace(plan.go(then), ahead=True))
        if gos:
            self._hosts.ask("run", *gos)
        return now

    def _over(self, now: SentRun) -> bool:
        """Whether the run is finished. Once a stop is requested, an announced run has to finish too."""
        sent = [now] if self._ends_at is None and not now.failed else self._sent
        return all(len(one.ran) == self._hosts.nodes for one in sent)

    def _note(self, event: HostEvent) -> None:
        if event.what == "failed":
            raise RunError(f"node {event.node} of the cluster, on host {event.host}: {event.value[2]}")
        if event.what == "ran":
            ran: NodeRunResult = event.value
            for sent in self._sent:
                if sent.kept.epoch == ran.epoch:
                    sent.ran[event.node] = ran
            if len(ran.log):
                self._longest = max(self._longest, float((ran.log[:, 3] - ran.log[:, 2]).max()) * 1e-9)

    def _latest(self) -> int:
        """The latest epoch that a node has started; no node starts a later one from now on."""
        first = self._sent[0].kept.epoch
        if len(self._sent) == 1:
            return first
        reached: dict[int, dict[int, int]] = self._hosts.ask("reached", first)
        return max(epoch for nodes in reached.values() for epoch in nodes.values())

    def _end(self, epoch: int) -> None:
        """Have the nodes make no more visits of this epoch or of later ones."""
        if self._ends_at is None or epoch < self._ends_at:
            self._ends_at = epoch
            self._hosts.ask("stop", epoch)

    def _check(self, plan: CrewPlan) -> None:
        """Check that all nodes make progress. HostLost if one does not; RunError if none can."""
        now = self._clock()
        self._check_at = now + min(self._patience, AFTER)
        reports = {node: one for nodes in self._hosts.ask("progress").values() for node, one in nodes.items()}
        self._still.see(now, reports)
        slow, for_seconds = self._still.slowest(now)
        if for_seconds >= self._warn_after:
            self._warn_after = 2 * for_seconds
            warnings.warn(
                f"node {slow}, on host {self._hosts.where[slow]}, has been in one visit for {for_seconds:.0f} s; the "
                f"longest so far took {self._longest:.1f} s. It counts as lost after "
                f"{self._still.limit(self._longest):.0f} s",
                RuntimeWarning,
                stacklevel=2,
            )
        if found := self._still.stuck(now, self._longest):
            node, seconds = found
            raise HostLost(
                self._hosts.where[node],
                f"node {node} has visits to make but has made no progress for {seconds:.0f} s; the longest visit "
                f"so far took {self._longest:.1f} s (if such visits are to be expected, give more patience=)",
            )
        if self._still.idle(now) > WITHIN + plan.block_bytes / _CRAWL:
            raise RunError(
                f"all nodes have waited {self._still.idle(now):.0f} s for blocks that others have sent; please report "
                "this, with the logs of the hosts"
            )
