"""Run the steps of a static plan on the nodes of a cluster: the driver's executor (`ClusterCrew`).

    with st.Cluster(nodes=4).open() as crew:
        done = crew.run(step, "exact")      # a step with a spec: on the nodes; any other: on the driver's threads
        crew.gather()                       # the driver's arrays hold what was learned

Constant data (entries) is sent once, states when the driver's copy has changed; both stay on the nodes from run to run.
The driver's arrays are older than those of the nodes until they are gathered. That happens when the caller or a step on
the driver reads them, and periodically, so that little has to be recomputed when a host is lost. After a loss all nodes
start from what was gathered last and repeat the runs since; the bits are the same. Where the caller reads nothing
between two steps the nodes do not wait for the driver in between (`runtime.cluster.blocks.driver_runs`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from stretto.data.parts.placement import parts_read_by
from stretto.errors import RunError
from stretto.kernels.core import claims
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import BlockStep, StepOutcome
from stretto.runtime.cluster.hosts.calls import HostLost
from stretto.runtime.cluster.parts.driver import RemoteParts
from stretto.runtime.cluster.parts.task import make_parts_task
from stretto.runtime.cpus import workers_from
from stretto.runtime.files.checkpoint import interval_seconds
from stretto.runtime.interrupts import GLANCE, check_ctrl_c, deferring_ctrl_c, heeding_ctrl_c, raising_ctrl_c
from stretto.schedule.orders.order import Ints

from .driver_runs import FinishedRun, HostsApi, Runs
from .driver_step import CrewPlan, RepeatableRun
from .step_messages import NodeRunResult, turns_of
from .task import WITHIN
from .threads import make_ring_task

_FAILURE_SECONDS = 86_400.0  # mean time between losses of one host
_SLOW = 5e6  # bytes per second of the slowest control connection
_READ = 2e5  # bytes of entries per second that the slowest node reads from a file and sorts into blocks
_APPLY = 86_400.0  # seconds for a host to count its share of the files; it is alive as long as others hear it
_COMPILE = 600.0  # seconds for the slowest machine to compile a worker
_PLANS = 8  # steps whose entries stay on the nodes at most
_KEPT_BYTES = 1 << 28  # bytes of served elements kept for repeating lost runs; beyond it, the arrays are gathered


class ClusterCrew(Crew):
    """A crew that drives hosts.

    Parameters
    ----------
    hosts : HostsApi
        `hosts.Hosts`, entered.
    clock : function() -> seconds
        For intervals and patience; virtual where hosts are simulated.

    Attributes
    ----------
    ran : dict of int to NodeRunResult
        What each node reported of the last run.
    """

    runs_ahead = True
    needs_spec = True
    _make_task = staticmethod(make_ring_task)

    def __init__(self, hosts: HostsApi, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(workers_from(None), serial=False)
        self.hosts = hosts
        self.ran: dict[int, NodeRunResult] = {}
        self._clock = clock
        self._runs = Runs(hosts, clock)
        self._plans: dict[int, CrewPlan] = {}  # by the id of the spec, which the plan keeps alive
        self._plan: CrewPlan | None = None  # the plan that ran last
        self._numbered = 0
        self._parts: RemoteParts | None = None
        self._begun = False
        self._ending = False
        self._gathered_at = self._clock()
        self._gather_seconds = 0.1

    def run(
        self,
        step: BlockStep,
        profile: str,
        finished: Ints | None = None,
        seconds: float | None = None,
        *,
        drain: bool = False,
        again: bool = False,
        then: BlockStep | None = None,
    ) -> StepOutcome:
        """Run a step as `Crew.run` does; on the nodes if it has a spec.

        The nodes start `then` without waiting for the driver if nothing that this step returns to the driver can change
        it.
        """
        if step.spec is None:
            if self._plan is not None and self._plan.is_ahead_of(step.args):
                self.gather()
            return super().run(step, profile, finished, seconds, drain=drain, again=again)
        self._ending = False
        if not drain:
            try:
                with deferring_ctrl_c():
                    return self._run(step, profile, finished, seconds, drain, again, then)
            except KeyboardInterrupt:
                self._forget()  # a partial result must not be taken for a complete one
                raise
        with heeding_ctrl_c(self) as ctrl_c:
            done = self._run(step, profile, finished, seconds, drain, again, then)
            interrupted = ctrl_c.heard()
        return replace(done, interrupted=done.finished is not None) if interrupted else done

    def _run(
        self,
        step: BlockStep,
        profile: str,
        finished: Ints | None,
        seconds: float | None,
        drain: bool,
        again: bool,
        then: BlockStep | None,
    ) -> StepOutcome:
        if step.gathers:
            self._gather()
        if step.before is not None:
            step.before(finished is None)
        if not again:
            with raising_ctrl_c():
                _compile_here(step, profile)
        started = np.zeros(0, np.int64) if finished is None else np.asarray(finished, np.int64)
        if step.spec is not None and step.spec.waves is not None:
            return self._run_wave(step, self._switch(step, profile))
        plan, turns = self._switch(step, profile), turns_of(step.order, started)
        if plan.ahead and not np.array_equal(turns, plan.turns):
            self.gather()
        plan.take(step, turns)
        kept = plan.next_run(started)
        if not self._runs.expects(plan, kept):
            self._forget()  # the step that was announced is not the one requested
        after = None if then is None or self._due() else plan.run_after(then)
        deadline = None if seconds is None else self._clock() + seconds

        def ending() -> bool:
            return (self._ending and (drain or seconds is not None)) or (drain and self.asked)

        while True:
            try:
                self._ready(plan, ending)
                over = self._make(plan, kept, after, deadline, ending)
                break
            except HostLost as lost:
                self._lost(lost)
            except _StopRequested:
                self._forget()
                return StepOutcome(step, 0.0, np.zeros((0, claims.LOG_COLUMNS), np.int64), started, None, drain)
        self.hosts.progressed()
        self.ran = over.ran
        failed = plan.collect(over.ran)
        log = np.concatenate([one.log for one in over.ran.values()])
        made = np.union1d(log[:, 0], started).astype(np.int64)
        whole = len(made) == len(step.order)
        if over.torn:
            self._forget()
        else:
            plan.advance(kept, made, whole)
            if failed is not None or not whole or (self._due() and not self.told_ahead):
                self.gather()
        if whole and failed is None and step.after is not None:
            if step.gathers:
                self._gather()
            step.after()
        return StepOutcome(
            step,
            over.seconds,
            log[np.argsort(log[:, 2], kind="stable")],
            finished=None if whole else made,
            failed=failed,
            interrupted=drain and self.asked and not whole,
        )

    def _run_wave(self, step: BlockStep, plan: CrewPlan) -> StepOutcome:
        """Make the visits of one wave, phase by phase: send what they touch, make them, take back what they wrote."""
        assert step.visits is not None
        started = plan.started(step.visits)
        turns = turns_of(plan.order, started)
        if plan.ahead and not np.array_equal(turns, plan.turns):
            self.gather()
        plan.take(step, turns, within=bool(len(started)))
        logs, seconds, failed, ran = [], 0.0, None, {}
        for phase in plan.phases(step.visits):
            kept = plan.next_run(started, phase)
            if not self._runs.expects(plan, kept):
                self._forget()
            while True:
                try:
                    self._ready(plan)
                    over = self._make(plan, kept)
                    break
                except HostLost as lost:
                    self._lost(lost)
            self.hosts.progressed()
            ran, seconds = over.ran, seconds + over.seconds
            failed = plan.collect(over.ran)
            logs += [one.log for one in over.ran.values()]
            started = np.union1d(started, np.concatenate([one.made for one in over.ran.values()])).astype(np.int64)
            plan.advance(kept, started, len(started) == len(plan.order))
            if not plan.learns:
                plan.settle()
            elif failed is not None or self._due() or plan.kept_bytes > _KEPT_BYTES:
                self.gather()
            if failed is not None:
                break
        self.ran = ran
        place = np.zeros(len(plan.order), np.int64)
        place[step.visits] = np.arange(len(step.visits))
        log = np.concatenate(logs)
        log[:, 0] = place[log[:, 0]]
        made = np.sort(log[:, 0])
        failed = None if failed is None else int(place[failed])
        finished = None if len(made) == len(step.visits) else made
        return StepOutcome(step, seconds, log[np.argsort(log[:, 2], kind="stable")], finished=finished, failed=failed)

    @property
    def apart(self) -> int:  # type: ignore[override]
        """The number of hosts."""
        return len(set(self.hosts.where))

    def shares(self, count: int, readers: Ints | None = None) -> list[Sequence[int]]:
        """One share for each host that has one."""
        hosts = self.apart if readers is not None else min(self.apart, count)
        return [parts_read_by(host, self.apart, count, readers) for host in range(hosts)]

    def apply(self, function: Callable[[Any, Crew], Any], items: Sequence[Any]) -> list[Any]:
        """Apply a function to items on the hosts. It must be pure: items of a lost host are repeated."""
        self.gather()
        while True:
            found: list[Any] = [None] * len(items)

            def call(host: int, mine: Sequence[int], found: list[Any] = found) -> None:
                answers = self.hosts.ask_one(host, "apply", function, [items[k] for k in mine], timeout=_APPLY)
                for k, answer in zip(mine, answers, strict=True):
                    found[k] = answer

            try:
                self._begin()
                hosts = sorted(set(self.hosts.where))
                shares = [(host, parts_read_by(k, len(hosts), len(items))) for k, host in enumerate(hosts)]
                self._together([partial(call, host, mine) for host, mine in shares if mine], lambda: False)
                self.hosts.progressed()
                return found
            except HostLost as lost:
                self._lost(lost)

    def gather(self) -> None:
        """Copy what the nodes learned into the driver's arrays."""
        with deferring_ctrl_c():
            self._gather()

    def _gather(self) -> None:
        plan = self._plan
        if plan is None or not plan.ahead:
            return
        if self.told_ahead:
            self._forget()  # the nodes are in an epoch that was not requested: they restart and stop before it
        began = self._clock()
        while True:
            try:
                self._ready(plan)
                self._runs.settle(plan)
                timeout = WITHIN + plan.state_bytes / _SLOW
                answers = self.hosts.ask("fetch", plan.number, plan.turns, timeout=timeout)
                break
            except HostLost as lost:
                self._lost(lost)
        plan.gathered([pieces for answer in answers.values() for pieces in answer.values()])
        self._gathered_at = self._clock()
        self._gather_seconds = self._gathered_at - began

    def parts(self) -> RemoteParts:
        """The parts of a data set on the nodes. The results of earlier steps are gathered first."""
        if self._parts is None:
            self._parts = self._make_parts()
        return self._parts

    def _make_parts(self) -> RemoteParts:
        return RemoteParts(self.hosts, make_parts_task, self._leave_steps)

    def _leave_steps(self) -> None:
        """Gather results and release the nodes for another kind of task."""
        self.gather()
        self._forget()

    @property
    def told_ahead(self) -> bool:
        """Whether the nodes have been announced a step that the caller has not requested yet."""
        return self._runs.ahead

    def stop(self) -> None:
        """Ask the running step to stop after the visits in progress."""
        self._ending = True
        super().stop()

    # -- preparing the nodes ------------------------------------------------------------------------------------------

    def _switch(self, step: BlockStep, profile: str) -> CrewPlan:
        """The plan of a step. The results of another plan are gathered first, because they may share arrays."""
        plan = self._plans.get(id(step.spec))
        if plan is not self._plan or (plan is not None and plan.other_arrays(step)):
            self.gather()
        if plan is None:
            plan = CrewPlan.of(self._numbered, step, profile, self.hosts.nodes)
            plan.memory = None if self._walk is None else self._walk.disk.budget
            self._numbered += 1
            for oldest in list(self._plans)[: 1 - _PLANS]:
                self._drop(self._plans.pop(oldest))
            self._plans[id(step.spec)] = plan
        self._plan = plan
        return plan

    def _drop(self, plan: CrewPlan) -> None:
        """Free a plan on the nodes that is not expected to be used again."""
        try:
            if self._begun and plan.loaded:
                self.hosts.ask("drop", plan.number)
        except HostLost as lost:
            self._lost(lost)

    def _begin(self) -> None:
        if not self._begun:
            self.hosts.begin(self._make_task, dict.fromkeys(range(self.hosts.nodes)))
            self._begun = True

    def _ready(self, plan: CrewPlan, ending: Callable[[], bool] = lambda: False) -> None:
        """Send the nodes everything that a run needs, and repeat lost runs."""
        self._begin()
        if not plan.loaded:
            # Nodes that read files read all of them, on processors that may be shared.
            rate = _SLOW if plan.spec.reader is None else _READ
            self._send("load", plan.loads(self.hosts.nodes), WITHIN + plan.entry_bytes / rate, ending)
            plan.loaded = True
        if plan.stale or not plan.settled:
            self._send("put", plan.puts(self.hosts.nodes), WITHIN + plan.state_bytes / _SLOW, ending)
            plan.stale.clear()
            plan.settled = True
        while plan.made < len(plan.since):
            self._make(plan, plan.since[plan.made], again=True)
            plan.made += 1

    def _send(self, what: str, values: dict[int, Any], within: float, ending: Callable[[], bool]) -> None:
        """Send every host what its nodes need.

        Parameters
        ----------
        within : float
            Seconds after which a host that does not answer is lost.
        """
        hosts = sorted(set(self.hosts.where))
        shares = {host: {n: v for n, v in values.items() if self.hosts.where[n] == host} for host in hosts}
        self._together(
            [partial(self.hosts.ask_one, host, what, shares[host], timeout=within) for host in hosts], ending
        )

    def _lost(self, lost: HostLost) -> None:
        """A host is lost, and with it the nodes' state: all nodes restart."""
        self.hosts.lose(lost)
        self._forget()

    def _forget(self) -> None:
        self._begun = False
        self._runs.forget()
        for plan in self._plans.values():
            plan.forget()

    def _due(self) -> bool:
        """Whether repeating the runs since the last gathering would cost more than gathering, in expectation."""
        mean = self._failure_seconds() / self.hosts.nodes
        interval = interval_seconds(self._gather_seconds, mean_time_to_failure=mean)
        return self._clock() - self._gathered_at > interval

    def _failure_seconds(self) -> float:
        """Mean time between losses of one host."""
        return _FAILURE_SECONDS

    def _together(self, calls: list[Callable[[], Any]], ending: Callable[[], bool]) -> None:
        """Call several hosts at the same time; _Stopped when a stop is requested meanwhile."""
        _together(calls, ending)

    def _make(
        self,
        plan: CrewPlan,
        kept: RepeatableRun,
        then: RepeatableRun | None = None,
        deadline: float | None = None,
        ending: Callable[[], bool] = lambda: False,
        *,
        again: bool = False,
    ) -> FinishedRun:
        """Make one run on all nodes, see `Runs.make`. `again`: it repeats a run that was lost."""
        if kept.served and (serves := plan.serves(kept, again=again)):
            nbytes = sum(found.nbytes for one in serves.values() for found in one.elements.values())
            self._send("serve", serves, WITHIN + nbytes / _SLOW, ending)
        if not plan.warm:
            self._together([partial(self.hosts.ask, "warm", plan.go(kept), timeout=_COMPILE)], ending)
            plan.warm = True
        try:
            return self._runs.make(plan, kept, then, deadline, ending)
        except RunError:
            self._forget()
            raise


class _StopRequested(Exception):
    """A stop was requested before anything was started."""


def _together(calls: list[Callable[[], Any]], ending: Callable[[], bool]) -> None:
    """Make long calls at the same time, each on a thread; _Stopped when a stop is requested meanwhile."""
    pool = ThreadPoolExecutor(len(calls))
    try:
        left: Collection[Future[Any]] = [pool.submit(call) for call in calls]
        while left:
            done, left = wait(left, timeout=GLANCE, return_when=FIRST_EXCEPTION)
            for one in done:
                one.result()
            check_ctrl_c()
            if left and ending():
                raise _StopRequested
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _compile_here(step: BlockStep, profile: str) -> None:
    """Compile the worker in this process first.

    An error is then raised in the caller, and other processes of this machine find the machine code in the cache.
    """
    step.kernel[profile](claims.stopped(), 0, step.out, *step.args)
