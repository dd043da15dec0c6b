"""The driver's view of all hosts of a job: start, calls, events, placement of nodes, loss and replacement.

    with Hosts(spec) as hosts:
        hosts.begin(make, payloads)         # halts running tasks, replaces lost hosts, starts tasks on all hosts
        for event in hosts.events(1.0): …   # HostLost: begin again

A host is lost when its process has ended, when it does not answer the driver, or when the others have not heard from it
for longer than `patience`. It is killed first, and everything it may still have sent belongs to an incarnation that all
hosts ignore. The same holds while a job starts: a host that is lost then is replaced too, unless that happens
repeatedly or a replacement would fail for the same reason.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from stretto.errors import RunError
from stretto.runtime.cluster.settings import ClusterSettings
from stretto.runtime.interrupts import GLANCE, check_ctrl_c, deferring_ctrl_c, shielding_ctrl_c

from .calls import Address, BeginTask, HostEvent
from .choose_fleet import fleet_of
from .failure_detector import STARTS, FailureDetector, Losses
from .fleet import HostLost, HostSettings, Member, NotStarted, SentValue, wait_for
from .host_checks import check_versions, killed_for_memory, last_loss
from .member_calls import MemberCalls

_GRACE = 1.0  # seconds in which reports of silent hosts are collected
_BEGIN = 300.0  # seconds for a task to start: the first time everything is compiled
_STARVED = 3  # times that a host may run out of memory


class _Beside:
    """A task of `begin_beside`: its events, and the answers of hosts that may not have begun yet."""

    def __init__(self, begun: dict[int, Any]) -> None:
        self.events: SimpleQueue[HostEvent | tuple[Member, HostLost]] = SimpleQueue()
        self.begun = begun  # shared by tasks that begin with the same calls


class Hosts:
    """Starts one host per node; there are fewer when lost hosts cannot be replaced."""

    def __init__(self, spec: ClusterSettings) -> None:
        self.spec = spec
        self.nodes = spec.nodes
        self.incarnation = 0
        self.where: tuple[int, ...] = tuple(range(spec.nodes))
        self.addresses: dict[int, Address] = {}
        self.losses: list[tuple[float, str, str]] = []  # (seconds since the start, host, reason)
        self.began = time.monotonic()
        self._patience = float(spec.patience)
        settings = HostSettings(os.urandom(8).hex(), spec.threads, spec.encrypt, self._patience)
        self._fleet = fleet_of(spec, settings)
        self._calls = MemberCalls(self._patience)
        self._gone: dict[int, bool] = {}  # hosts without a process → whether replacing it has failed before
        self._events: SimpleQueue[HostEvent | tuple[Member, HostLost]] = SimpleQueue()
        self._beside: dict[int, _Beside] = {}  # by incarnation of `begin_beside`
        self._left: set[int] = set()  # hosts that have left
        self._ended: dict[int, list[int]] = {}  # by host: incarnations that have ended and that it may still hold
        self._changing = threading.RLock()  # members and incarnations, where several threads begin tasks
        self._sent: deque[Any] = deque()  # answers of calls without a waiting caller
        self._detector = FailureDetector(self._patience, _GRACE)
        self._sent_roster: tuple[dict[int, Address], Any] = {}, SentValue({})  # as it was sent last
        self.counted = Losses(spec.restarts)
        self._starved: Counter[int] = Counter()  # losses for lack of memory

    def __enter__(self) -> Self:
        try:
            with deferring_ctrl_c():
                self._start()
        except BaseException as error:
            self._end(isinstance(error, Exception))
            raise
        return self

    def _start(self) -> None:
        deadline = time.monotonic() + float(self.spec.start_within)
        self._calls.members = dict(self._fleet.start(range(self.nodes)))
        for number in list(self._calls.members):
            try:
                self._greet(number, max(1.0, deadline - time.monotonic()))
            except TimeoutError as error:
                raise RunError(
                    f"{self.words(number)} did not start within {self.spec.start_within:g} s; give it longer with "
                    "start_within=, or check the load of its machine"
                ) from error
            except NotStarted as error:
                raise RunError(f"{self.words(number)} did not start: {error.why}") from error
            except HostLost as lost:
                self.lose(lost, "a replacement is started")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with shielding_ctrl_c():
            members, self._calls.members = self._calls.members, {}
            if kind is None:
                for answer in [member.call("close") for member in members.values()]:
                    try:
                        answer.result(5.0)
                    except Exception:
                        break  # they are killed below in any case
            self._end(isinstance(error, Exception))

    def _end(self, failed: bool) -> None:
        """Kill the remaining hosts. Logs are kept if the job failed, not if the user stopped it."""
        with shielding_ctrl_c():
            self._calls.members = {}
            self._fleet.close(keep_logs=failed)

    # -- incarnations ------------------------------------------------------------------------------------------------

    def begin(self, make: Callable[..., Any], payloads: Mapping[int, Any] | Callable[[int, list[int]], Any]) -> None:
        """Start a task on every host, in a new incarnation; over again where a host is lost meanwhile and replaced.

        Parameters
        ----------
        make : function(host, begin) -> Task
            Creates the task on its host.
        payloads : mapping or function(host, nodes) -> payload
            A mapping is by node: a host gets those of its nodes.
        """
        while True:
            self.incarnation += 1
            self._replace()
            self._sent.clear()
            self._detector.begin()
            try:
                begins = {number: self._begin(number, make, payloads) for number in self._calls.members}
                answers = [(number, self._calls.call(number, "begin", begin)) for number, begin in begins.items()]
                for number, answer in answers:
                    self._calls.result(number, answer, _BEGIN)
                self.counted.began()
                return
            except HostLost as lost:
                self.lose(lost)

    def begin_beside(
        self,
        tasks: Sequence[tuple[Callable[..., Any], Sequence[int], Mapping[int, Any]]],
        ends: Sequence[int] = (),
    ) -> list[int]:
        """Start tasks beside those that run, each on some nodes; return their incarnations.

        Does not wait for the hosts: `events_beside` raises what went wrong there.

        Parameters
        ----------
        tasks : sequence of (make, nodes, payloads)
            make: creates the task on a host. nodes: those that take part, numbered from 0 inside the task. payloads: by
            position in `nodes`; a host gets those of its nodes.
        ends : sequence of int
            Incarnations that have ended: hosts forget them first.
        """
        with self._changing:
            self._replace()
            begins: dict[int, list[BeginTask]] = {}
            begun: dict[int, Any] = {}
            numbers = []
            for make, nodes, payloads in tasks:
                self.incarnation += 1
                number = self.incarnation
                numbers.append(number)
                self._beside[number] = _Beside(begun)
                where = tuple(self.where[node] for node in nodes)
                for host in dict.fromkeys(where):
                    mine = {place: payloads[place] for place, at in enumerate(where) if at == host}
                    begins.setdefault(host, []).append(
                        BeginTask(number, self._roster(), where, make, mine, min(self._beside))
                    )
            self.end_beside(ends)
            for host, tasks_of_host in begins.items():
                begun[host] = self._calls.call(host, "begin_beside", tasks_of_host, self._ended.pop(host, []))
        self.counted.began()
        return numbers

    def end_beside(self, incarnations: Sequence[int]) -> None:
        """Tasks of `begin_beside` have ended. Their hosts forget them when the next task begins there."""
        with self._changing:
            for number in incarnations:
                if self._beside.pop(number, None) is not None:
                    for host in self._calls.members:
                        self._ended.setdefault(host, []).append(number)

    def ask_beside(
        self, incarnation: int, hosts: Sequence[int], what: str, *args: Any, timeout: float | None = None
    ) -> dict[int, Any]:
        """Call a task of `begin_beside` on several hosts at the same time."""
        answers = {host: self._calls.call(host, "ask_task", incarnation, what, *args) for host in hosts}
        return {host: self._calls.result(host, answer, timeout) for host, answer in answers.items()}

    def events_beside(self, incarnation: int, wait: float) -> list[HostEvent]:
        """Events of a task of `begin_beside`, after `wait` seconds at most. Raises HostLost."""
        mine = self._beside[incarnation]
        found = self._take_events(mine.events, incarnation, wait)
        if wait and not found:
            for host, answer in list(mine.begun.items()):
                with contextlib.suppress(TimeoutError):  # it has not begun yet
                    answer.result(0.0)
                    del mine.begun[host]
        return found

    def states_each(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call `Host.states` on several hosts at the same time. requests: (host, what, *arguments) each."""
        answers = [(host, self._calls.call(host, "states", what, *args)) for host, what, *args in requests]
        return [self._calls.result(host, answer) for host, answer in answers]

    def _roster(self) -> Any:
        """The addresses of all hosts, by host, to be sent."""
        now = {host: self.addresses[host] for host in self._calls.members}
        if now != self._sent_roster[0]:
            # What only the driver checks is left out: every task of every host gets the roster.
            self._sent_roster = now, SentValue({host: replace(at, versions={}) for host, at in now.items()})
        return self._sent_roster[1]

    def _begin(self, number: int, make: Callable[..., Any], payloads: Any) -> BeginTask:
        nodes = [node for node, at in enumerate(self.where) if at == number]
        payload = payloads(number, nodes) if callable(payloads) else {node: payloads[node] for node in nodes}
        return BeginTask(self.incarnation, self._roster(), self.where, make, payload)

    def _replace(self) -> None:
        """Replace lost hosts, or give their nodes to others."""
        for number, failed_before in sorted(self._gone.items()):
            within = 2.0 if failed_before else float(self.spec.replace_within)
            why = self._try_to_replace(number, within)
            if not why:
                del self._gone[number]
                continue
            if not failed_before and len(self._gone) < self.nodes - len(self._left):
                self._warn(f"host {number} was not replaced: {why}; the others share its work")
            self._gone[number] = True
        left = sorted(self._calls.members)
        if not left:
            raise RunError(f"no host of the cluster is left; {self.story()}")
        self.where = tuple(node if node in left else left[node % len(left)] for node in range(self.nodes))

    def _try_to_replace(self, number: int, within: float) -> str:
        """Start a replacement; return why there is none, "" on success."""
        deadline, why = time.monotonic() + within, ""
        for _ in range(STARTS):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            before = self.addresses.get(number)
            try:
                member = self._fleet.replace(number, left)
                if member is None:
                    return f"no free processors for it within {within:g} s"
                self._calls.members[number] = member
                self._greet(number, self._calls.seconds)
            except NotStarted as lost:
                return lost.why
            except RunError as error:
                self._calls.drop(number)
                return str(error)
            except (HostLost, TimeoutError) as lost:
                why = str(lost)
                self._calls.drop(number)
                continue
            self._check_out_of_memory(number, before)
            return ""
        return why or f"no replacement started within {within:g} s"

    def _check_out_of_memory(self, number: int, before: Address | None) -> None:
        """Warn if the previous host ran out of memory: the kernel counter of its machine has increased."""
        killed = killed_for_memory(before, self.addresses[number])
        if not killed:
            return
        self._starved[number] += 1
        what = (
            f"{self.words(number)} was lost when that machine ran out of memory: its "
            f"kernel has killed {killed} processes there since it started"
        )
        if self._starved[number] >= _STARVED:
            raise RunError(f"{what}, and this was the third time; use more nodes, or machines with more memory")
        self._warn(what)

    def lose(self, lost: HostLost, then: str = "its work is repeated") -> None:
        """Kill and record a lost host and warn the user; RunError if the job gives up.

        Parameters
        ----------
        then : str
            How the job goes on, for the warning.
        """
        with self._changing:
            member = self._calls.members.pop(lost.host, None)
            if member is None:
                return
            member.kill()
            self._gone[lost.host] = False
        at = self.words(lost.host, member)
        self.losses.append((time.monotonic() - self.began, at, lost.why))
        why = self.counted.lost(lost.host)
        if why:
            printed = "".join(f"\n    {line}" for line in member.tail())
            raise RunError(f"{why}; {self.story()}{printed and f'. What it printed last:{printed}'}") from lost
        self._warn(f"{at} was lost: {lost.why}; {then}")

    def join(self, within: float) -> int:
        """Start one more host, which holds one more node; returns its number. RunError if there is no space for it."""
        with self._changing:
            number = self.nodes
            why = self._try_to_replace(number, within)
            if why:
                raise RunError(f"no node could be added: {why}")
            self.nodes += 1
            self.where = (*self.where, number)
            return number

    def leave(self, number: int) -> None:
        """End a host. Nothing may be placed on its node any more."""
        with self._changing:
            member = self._calls.members.pop(number, None)
            self._gone.pop(number, None)
            self.addresses.pop(number, None)
            self._left.add(number)
        if member is not None:
            with contextlib.suppress(Exception):  # it is killed in any case
                wait_for(member.call("close"), 5.0)
            member.kill()

    def progressed(self) -> None:
        """The job has got further than ever before."""
        self.counted.progressed()

    def words(self, host: int, member: Member | None = None) -> str:
        """A host in words: its machine, and its log unless that is empty."""
        return self._calls.words(host, self.addresses.get(host), member)

    def _warn(self, text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=4)

    def story(self) -> str:
        """The last loss of a host, in words."""
        return last_loss(self.losses)

    # -- calls -------------------------------------------------------------------------------------------------------

    def ask(self, what: str, *args: Any, timeout: float | None = None) -> dict[int, Any]:
        """Call the task on all hosts at the same time; return the results by host."""
        answers = {number: self._calls.call(number, "ask", what, *args) for number in self._calls.members}
        return {number: self._calls.result(number, answer, timeout) for number, answer in answers.items()}

    def ask_one(self, host: int, what: str, *args: Any, timeout: float | None = None) -> Any:
        """Call the task on one host."""
        return self._calls.result(host, self._calls.call(host, "ask", what, *args), timeout)

    def ask_each(
        self, what: str, args: Mapping[int, tuple[Any, ...]], *, timeout: float | None = None
    ) -> dict[int, Any]:
        """Call the task on several hosts at the same time, each with its own arguments.

        A call may take long: a host counts as lost only when it also answers no other calls.
        """
        answers = {number: self._calls.call(number, "ask", what, *mine) for number, mine in args.items()}
        return {number: self._calls.heard_result(number, answer, timeout) for number, answer in answers.items()}

    def send(self, host: int, what: str, *args: Any) -> None:
        """Call the task on one host without waiting; `events` raises what the call raised."""
        self._sent.append(self._calls.call(host, "ask", what, *args))

    def _check_sent(self) -> None:
        while self._sent:
            try:
                self._sent[0].result(0.0)
            except TimeoutError:
                return
            except HostLost:
                pass  # the host's listening thread reports the loss
            self._sent.popleft()

    def halt(self) -> None:
        """Halt the task on all hosts."""
        for number, answer in [(number, self._calls.call(number, "halt")) for number in self._calls.members]:
            self._calls.result(number, answer)

    def events(self, wait: float) -> list[HostEvent]:
        """Events of this incarnation, after `wait` seconds at most. Raises HostLost."""
        return self._take_events(self._events, self.incarnation, wait)

    def _take_events(self, queue: SimpleQueue[Any], incarnation: int, wait: float) -> list[HostEvent]:
        found: list[HostEvent] = []
        deadline = time.monotonic() + wait
        while True:
            check_ctrl_c()
            left = 0.0 if found else max(0.0, deadline - time.monotonic())
            try:
                told = queue.get(timeout=min(left, GLANCE)) if left else queue.get_nowait()
            except Empty:
                self._check_sent()
                self._judge()
                if found or time.monotonic() >= deadline:
                    return found
                continue
            if not isinstance(told, HostEvent):
                member, lost = told
                if self._calls.members.get(lost.host) is member:
                    raise lost
            elif told.what == "silent":
                self._detector.silent(time.monotonic(), told.host, int(told.value[0]), float(told.value[1]))
            elif told.incarnation == incarnation:
                found.append(told)

    def _judge(self) -> None:
        """Let the failure detector decide; it asks the reporting hosts again."""
        calls = self._calls
        silence_of = partial(calls.silence, within=_GRACE)
        if found := self._detector.judge(time.monotonic(), silence_of, calls.answering()):
            whom, votes, silence = found
            raise HostLost(whom, f"{votes} other hosts have heard nothing of it for {silence:.1f} s")

    # -- listening ---------------------------------------------------------------------------------------------------

    def _greet(self, number: int, within: float) -> None:
        """Read a new host's address and start listening to it."""
        member = self._calls.members[number]
        address: Address = wait_for(member.call("address"), within)
        check_versions(address, self.addresses.values())
        self.addresses[number] = address
        threading.Thread(target=self._listen, args=(member,), name=f"stretto-events-{number}", daemon=True).start()

    def _listen(self, member: Member) -> None:
        """Take a host's events until it is lost or replaced; on one thread for each host."""
        lost = self._calls.listen(member, self._tell)
        if lost is not None:
            self._report(member, lost)

    def _tell(self, told: HostEvent) -> None:
        """Hand an event to the driver of its task."""
        mine = self._beside.get(told.incarnation)
        (self._events if mine is None else mine.events).put(told)

    def _report(self, member: Member, lost: HostLost) -> None:
        """Report a lost host to every driver that waits for events."""
        for queue in (self._events, *(mine.events for mine in self._beside.copy().values())):
            queue.put((member, lost))
