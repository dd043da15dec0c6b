"""The driver of a program's rounds on a cluster: assigns updates to hosts, aggregates, recovers from lost hosts.

    HostRounds(pipeline, work, hosts, make_rounds_task, pack=packed).run()

The schedule, `aggregate` and the objective run in the driver. A node holds its parts of the data. For each round it
receives the changed parameters and the jobs. It reports results as events, so that several rounds are in progress.

When a host is lost, all hosts restart: updates that were not reported are assigned again, with the parameters that
their rounds read. Where parts have state, nodes start from the last saved states and repeat all updates since; those
that were reported before are not reported twice. The bits are the same.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from numpy.typing import NDArray

from stretto.data.parts.placement import holder
from stretto.errors import RunError
from stretto.runtime.cluster.hosts.calls import HostEvent, HostLost, TaskHosts
from stretto.runtime.pickled import pickled
from stretto.runtime.rounds.rounds import RoundsRun, RoundWork
from stretto.schedule.pipeline import AGGREGATE, CHOOSE, STAGES, UPDATE, Pipeline, StageTask

from .node import AssignUpdates, ChooseRound, LoadWork, NodeWork, SaveStates, UpdateOutcome, UpdateReport
from .patches import PatchLog
from .remote_choices import RemoteChoices

_LOADING = 600.0  # seconds for a host to load its parts of the data


class RemoteWork(RoundWork, Protocol):
    """What is done in a round, where nodes make the updates.

    Attributes
    ----------
    parts : int
        Parts of the data; 0: every node holds all of it.
    stateful : bool
        Whether parts have state.
    schedulers : int
        Schedulers on nodes of their own, the last ones; they are parts as well, after those of the data. 0: the driver
        chooses.
    choices : RemoteChoices
        Rounds that schedulers on nodes were asked for.
    """

    parts: int
    stateful: bool
    schedulers: int
    choices: RemoteChoices

    def request(self, number: int) -> bytes | None:
        """What the scheduler of a round needs to choose it; None: there is no such round."""
        ...

    def received(self, number: int, outcome: UpdateOutcome) -> None:
        """A scheduler has chosen a round; raises if it failed."""
        ...

    def assignment(self, number: int, update: int) -> tuple[Any, int]:
        """(job, part) of an update; the part is −1 where data are not partitioned."""
        ...

    def checks(self, number: int, update: int) -> str:
        """How an update is checked, "" for no check; for `NodeWork.update`."""
        ...

    def params(self, number: int) -> Mapping[str, NDArray[Any]]:
        """The parameters that a round reads."""
        ...

    def node_work(self, parts: Sequence[int], updates: bool) -> NodeWork:
        """The work of a node with these parts. `updates`: whether it makes updates where data are not partitioned."""
        ...

    def returned(self, number: int, update: int, outcome: UpdateOutcome) -> None:
        """An update was made; raises if it failed."""
        ...

    def saves(self, number: int) -> bool:
        """Whether the state of parts is saved after this round."""
        ...

    def saved(self, number: int, states: dict[int, UpdateOutcome]) -> None:
        """The states of all parts after a round have arrived."""
        ...

    def states(self) -> tuple[int, Mapping[int, bytes] | None]:
        """The round after which states were saved last, and the states; None: they are created from the parts."""
        ...


class RoundsHosts(TaskHosts, Protocol):
    """The methods of `hosts.Hosts` that are used."""

    def send(self, host: int, what: str, *args: Any) -> None: ...
    def events(self, wait: float) -> list[HostEvent]: ...


class HostRounds(RoundsRun):
    """A run of rounds on hosts.

    Parameters
    ----------
    pipeline : Pipeline
        Which rounds may be in progress.
    work : RemoteWork
        The functions of the program.
    hosts : RoundsHosts
        The hosts, started.
    make : function(host, begin) -> StageTask
        Creates the task of a host.
    pack : function(NodeWork) -> bytes or NodeWork
        Serializes the work of a node.
    clock, cpu : function() -> seconds
        Time, and processor time of the driver; virtual where hosts are simulated.
    wait : float
        Seconds between two checks for a requested stop.

    Attributes
    ----------
    halting : bool
        Whether the run ends because a stop was requested.
    """

    work: RemoteWork

    def __init__(
        self,
        pipeline: Pipeline,
        work: RemoteWork,
        hosts: RoundsHosts,
        make: Callable[..., Any],
        *,
        pack: Callable[[NodeWork], NodeWork | bytes],
        clock: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.thread_time,
        wait: float = 0.2,
    ) -> None:
        super().__init__(pipeline, work)
        self.hosts = hosts
        self.halting = False
        self._make_task, self._pack = make, pack
        self._clock, self._cpu, self._wait = clock, cpu, wait
        self._log = PatchLog(work.params(pipeline.done + 1))
        self._out: list[StageTask] = []  # updates to be assigned
        self._stamps: dict[int, int] = {}  # by round: the version of the parameters that it reads
        self._assigned: dict[int, list[tuple[int, Any, int]]] = {}  # by round, since states were saved
        self._states: dict[int, dict[int, UpdateOutcome]] = defaultdict(
            dict
        )  # by round and part: states that have arrived
        self._numbers: Counter[int] = Counter()  # messages sent to each host
        self._has: dict[int, int] = {}  # by host: its version of the parameters
        self._choices = work.choices

    def clock(self) -> float:
        return self._clock()

    def _make(self) -> None:
        self._begin()
        while not self._over():
            try:
                self._advance()
            except HostLost as lost:
                self.hosts.lose(lost)
                self._begin()

    def _over(self) -> bool:
        if not self.pipeline.settled:
            return False
        awaited = any(number <= self.pipeline.done for number in self._assigned if self.work.saves(number))
        return self.asked or bool(self._errors) or self._interrupt is not None or not awaited

    def _advance(self) -> None:
        """Run the pipeline's tasks; if there are none, assign updates and wait for reports."""
        if self.asked:
            self.pipeline.halt()
            self.halting = True
        self._request()
        while (task := self.pipeline.take()) is not None:
            if task.stage == UPDATE:
                self._out.append(task)
            elif task.stage == AGGREGATE or self._choices.ready(task.round):
                self._do(task)
            else:
                self._choices.waiting = task
            self._request()
        self._flush()
        if not self._over():
            for event in self.hosts.events(self._wait):
                self._hear(event)

    def _do(self, task: StageTask) -> None:
        """Run a task of the driver itself."""
        began = self._cpu()
        try:
            if task.stage == CHOOSE:
                self._choices.check(task.round)
                self.pipeline.chosen(task, *self.work.choose(task.round))
            else:
                self._aggregate(task)
        except BaseException as error:
            self._fail(task, error)
        self.spent[STAGES[task.stage]] += self._cpu() - began

    def _aggregate(self, task: StageTask) -> None:
        last = self.pipeline.last_job(task)
        self.work.aggregate(task.round, task.job, last)
        if last:
            began = self._cpu()
            if self.work.enough(task.round):
                self.pipeline.stop(after=task.round)
            self.spent[STAGES[AGGREGATE]] -= self._cpu() - began
        self.pipeline.aggregated(task)
        if last:
            self.hosts.progressed()
            self._forget()

    # -- schedulers on nodes -----------------------------------------------------------------------------------------

    def _request(self) -> None:
        """Ask schedulers for rounds whose predecessors are known, before the pipeline needs them."""
        choices = self._choices
        while choices.schedulers and choices.asked < self.pipeline.done + self.pipeline.depth:
            request = self.work.request(choices.asked + 1)
            if request is None:
                return
            self._choose(choices.ask(request))

    def _choose(self, number: int) -> None:
        choices = self._choices
        scheduler = (number - 1) % choices.schedulers
        message = ChooseRound(
            number, self.work.parts + scheduler, choices.requests[number], silent=number in choices.received
        )
        self._send(self.hosts.where[self._workers + scheduler], message)

    def _chosen(self, number: int, outcome: UpdateOutcome) -> None:
        """A scheduler has chosen a round."""
        choices = self._choices
        if number in choices.received:
            return
        choices.received[number] = outcome.result
        task, choices.waiting = choices.waiting, None
        try:
            self.work.received(number, outcome)
        except Exception as error:
            choices.failed[number] = error
        if task is not None and choices.ready(task.round):
            self._do(task)
        else:
            choices.waiting = task

    @property
    def _workers(self) -> int:
        """The number of nodes that make updates; they are the first ones."""
        return self.hosts.nodes - self.work.schedulers

    # -- assigning ---------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Assign the collected updates."""
        out, self._out = self._out, []
        for number, tasks in groupby(out, key=lambda task: task.round):
            updates = [(task.job, *self.work.assignment(number, task.job)) for task in tasks]
            if self.work.stateful:
                self._assigned[number] = updates
                if self.work.saves(number):
                    self._choices.saving[number] = self._choices.asked
            self._assign(number, updates)

    def _assign(self, number: int, updates: list[tuple[int, Any, int]], silent: frozenset[int] = frozenset()) -> None:
        stamp = self._stamp(number)
        shares: dict[int, list[tuple[int, Any, int]]] = defaultdict(list)
        for update in updates:
            shares[self._host_of(*update)].append(update)
        for host, share in shares.items():
            base, patches = self._log.since(self._has.get(host), stamp)
            self._has[host] = stamp
            mine = silent.intersection(update for update, _, _ in share)
            checks = {update: how for update, _, _ in share if (how := self.work.checks(number, update))}
            self._send(host, AssignUpdates(number, base, patches, _packed(number, share), mine, checks))
        if self.work.stateful and self.work.saves(number):
            for host, parts in self._parts().items():
                self._send(host, SaveStates(number, tuple(parts)))

    def _stamp(self, number: int) -> int:
        """The version of the parameters that a round reads. Jobs that wait for each other read the newest."""
        if number not in self._stamps or self.pipeline.in_turns(number):
            self._stamps[number] = self._log.advance(self.work.params(number))
        return self._stamps[number]

    def _forget(self) -> None:
        """Discard what is not needed to repeat an update."""
        last = self.work.states()[0] if self.work.stateful else self.pipeline.done
        for number in [number for number in self._stamps if number <= last]:
            del self._stamps[number]
            self._assigned.pop(number, None)
        self._log.trim(min(self._stamps.values(), default=self._log.stamp))

    def _host_of(self, update: int, job: Any, part: int) -> int:
        nodes = self._workers
        return self.hosts.where[update % nodes if part < 0 else holder(part, self.work.parts, nodes)]

    def _parts(self) -> dict[int, list[int]]:
        """The parts that each host holds."""
        found: dict[int, list[int]] = {host: [] for host in sorted(set(self.hosts.where))}
        for part in range(self.work.parts):
            found[self._host_of(0, None, part)].append(part)
        for scheduler in range(self.work.schedulers):
            found[self.hosts.where[self._workers + scheduler]].append(self.work.parts + scheduler)
        return found

    def _send(self, host: int, message: Any) -> None:
        number = self._numbers[host]
        self._numbers[host] += 1
        self.hosts.send(host, "do", self.hosts.incarnation, number, message)

    # -- events -----------------------------------------------------------------------------------------------------

    def _hear(self, event: HostEvent) -> None:
        if event.what == "failed":
            if isinstance(event.value, RunError):
                raise event.value
            raise RunError(
                f"host {event.host} could not load its part of the program: {type(event.value).__name__}: "
                f"{event.value}; what the program refers to must be importable on every node"
            ) from event.value
        report: UpdateReport = event.value
        for outcome in report.outcomes:
            if report.choice:
                self._chosen(report.round, outcome)
            elif report.states:
                self._states[report.round][outcome.number] = outcome
            else:
                self._returned(StageTask(UPDATE, report.round, outcome.number), outcome)
        self.spent[STAGES[UPDATE]] += report.seconds
        self._adopt()

    def _adopt(self) -> None:
        """Keep the newest complete states: those of all parts, after updates that are all reported."""
        for number in sorted(self._states):
            waits = any(task.stage == UPDATE and task.round <= number for task in self.pipeline.running)
            if waits or len(self._states[number]) < self.work.parts + self.work.schedulers:
                return
            if not self._choices.complete(number):
                return
            self.work.saved(number, self._states.pop(number))
            self._choices.forget(number)
            self._forget()

    def _returned(self, task: StageTask, outcome: UpdateOutcome) -> None:
        try:
            self.work.returned(task.round, task.job, outcome)
        except Exception as error:
            self._fail(task, error)
        else:
            self.pipeline.updated(task)

    # -- start and restart ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        while True:
            try:
                self.hosts.begin(self._make_task, dict.fromkeys(range(self.hosts.nodes)))
                self._load()
                self._assign_again()
                return
            except HostLost as lost:
                self.hosts.lose(lost)

    def _load(self) -> None:
        self._numbers.clear()
        self._has.clear()
        self._states.clear()
        _, states = self.work.states()
        loads = {}
        for host, parts in self._parts().items():
            mine = None if states is None else {part: states[part] for part in parts}
            updates = host in self.hosts.where[: self._workers]
            loads[host] = (self.hosts.incarnation, 0, LoadWork(self._pack(self.work.node_work(parts, updates)), mine))
            self._numbers[host] = 1
        self.hosts.ask_each("do", loads, timeout=_LOADING)

    def _assign_again(self) -> None:
        """Assign unreported updates again; where parts have state, all updates since it was saved.

        Schedulers choose all rounds again that they chose since, and save their states between the same two of them.
        """
        requests, saving = deque(sorted(self._choices.requests)), self._choices.saving
        running = {task for task in self.pipeline.running if task.stage == UPDATE}
        for number, updates in sorted(self._assigned.items()):
            while requests and requests[0] <= saving.get(number, 0):
                self._choose(requests.popleft())
            again = {update for update, _, _ in updates if StageTask(UPDATE, number, update) in running}
            self._assign(number, updates, frozenset(update for update, _, _ in updates if update not in again))
        for number in requests:
            self._choose(number)
        self._out = sorted((task for task in running if task.round not in self._assigned), key=lambda task: task.key)


def _packed(number: int, share: list[tuple[int, Any, int]]) -> bytes:
    """Pickle the jobs of a round."""
    what, advice = f"the jobs of round {number}", "have the schedule return numbers, text, or tuples of these"
    return pickled(share, lambda error: RunError(f"{what} cannot be pickled to be sent to nodes: {error}; {advice}"))
