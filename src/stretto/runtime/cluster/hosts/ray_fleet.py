"""Hosts as Ray actors: one to a bundle of a placement group that is spread over the machines.

Ray finds the room, starts the processes, notices when one ends and says where its log lies. It carries what the driver
and the hosts say to each other, and nothing that workers do. What is large goes in pieces: Ray keeps what it carries in
a store of bounded size, and waits without end for room in it (`_messages`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import re
import time
import warnings
from collections.abc import Generator, Iterable
from typing import Any

import ray
from ray.exceptions import AuthenticationError, GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from stretto.errors import RunError
from stretto.runtime.cluster.spec import Cluster
from stretto.runtime.interrupts import GLANCE, check_ctrl_c

from .fleet import HostLost, NotStarted, Settings, packed, wait_for
from .output import label_workers
from .ray_address import found

_AT_ONCE = 8  # calls that a host works on at the same time
_SOON = 10.0  # seconds after which it is said that there is no room yet
_WORDS = 600  # letters of Ray's reasons at most
_PIECE = 8 << 20  # bytes of a message at most
_TICKET = 8  # bytes that name a call


class HostActor:
    """What Ray starts: a host, and a way to call its methods."""

    def __init__(self, number: int, settings: Settings) -> None:
        from .host import Host

        label_workers()
        self._number = number
        self._arrived: dict[bytes, bytearray] = {}
        self._answers: dict[bytes, bytes] = {}
        self._host = Host(
            number,
            settings.job,
            ip=settings.ip or _here(),
            threads=settings.threads,
            encrypt=settings.encrypt,
            patience=settings.patience,
            log=os.readlink("/proc/self/fd/2") if os.path.exists("/proc/self/fd/2") else "",
        )

    def __repr__(self) -> str:
        """What Ray puts in front of forwarded lines."""
        return f"host {self._number}"

    def call(self, method: str, args: bytes) -> bytes | int:
        """What a method gives, packed. Its length, if it is large: then `piece` gives it."""
        ticket, last = args[:_TICKET], args[_TICKET:]
        before = self._arrived.pop(ticket, None)
        answer = packed(getattr(self._host, method)(*pickle.loads(last if before is None else before + last)))
        if len(answer) <= _PIECE:
            return answer
        self._answers[ticket] = answer
        return len(answer)

    def take(self, ticket: bytes, piece: bytes) -> None:
        """A piece of the arguments of a call to come, in order."""
        self._arrived.setdefault(ticket, bytearray()).extend(piece)

    def piece(self, ticket: bytes, first: int) -> bytes:
        """Of a large answer, which is forgotten after its last piece."""
        found = self._answers[ticket][first : first + _PIECE]
        if first + _PIECE >= len(self._answers[ticket]):
            del self._answers[ticket]
        return found


class RayFleet:
    """Connects to a Ray cluster, or starts one on this machine."""

    def __init__(self, spec: Cluster, settings: Settings) -> None:
        self._spec, self._settings = spec, settings
        self._members: dict[int, _Actor] = {}
        self._group: Any = None
        self._ours = _connect(spec)

    def start(self, numbers: Iterable[int]) -> dict[int, _Actor]:
        numbers = list(numbers)
        spec = self._spec
        deadline = time.monotonic() + float(spec.start_within)
        self._group = placement_group([{"CPU": spec.threads}] * len(numbers), strategy="SPREAD")
        try:
            within = float(spec.start_within)
            if not self._has_room(min(_SOON, within)):
                if within > _SOON:
                    warnings.warn(f"{_no_room(spec, _SOON)}; waiting for {within - _SOON:g} s more", RuntimeWarning, 2)
                if not self._has_room(max(1.0, deadline - time.monotonic())):
                    raise RunError(
                        f"{_no_room(spec, within)}; ask for fewer nodes= or threads=, or wait until others are done"
                    )
            for number in numbers:
                self._members[number] = self._make(number)
        except BaseException:
            self.close()
            raise
        return dict(self._members)

    def _has_room(self, within: float) -> bool:
        """Whether the placement group is there in time."""
        deadline = time.monotonic() + within
        while not self._group.wait(timeout_seconds=GLANCE):
            check_ctrl_c()
            if time.monotonic() > deadline:
                return False
        return True

    def replace(self, number: int, within: float) -> _Actor | None:
        member = self._make(number)
        try:
            wait_for(member.call("address"), within)
        except TimeoutError:
            member.kill()
            return None
        except HostLost:
            member.kill()
            raise
        self._members[number] = member
        return member

    def close(self, keep_logs: bool = False) -> None:
        for member in self._members.values():
            member.kill()
        self._members.clear()
        if self._group is not None:
            with contextlib.suppress(RayError, ValueError):
                remove_placement_group(self._group)
            self._group = None
        if self._ours:
            ray.shutdown()
            self._ours = False

    def _make(self, number: int) -> _Actor:
        where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=number)
        made: Any = ray.remote(HostActor).options(
            name=f"stretto-{self._settings.job}-{number}-{os.urandom(3).hex()}",
            num_cpus=self._spec.threads,
            scheduling_strategy=where,
            max_concurrency=_AT_ONCE,
            max_restarts=0,  # a restarted host needs a new incarnation of the job: the driver makes it
        )
        return _Actor(number, made.remote(number, self._settings))


def _messages(actor: Any, method: str, args: bytes) -> Generator[Any, Any, bytes | bytearray]:
    """A call, message by message: gives what has to be awaited, is sent what came; returns the packed result."""
    ticket = os.urandom(_TICKET)
    last = max(0, len(args) - 1) // _PIECE * _PIECE
    for first in range(0, last, _PIECE):
        yield actor.take.remote(ticket, args[first : first + _PIECE])
    found = yield actor.call.remote(method, ticket + args[last:])
    if isinstance(found, bytes):
        return found
    pieces = bytearray()
    while len(pieces) < found:
        pieces += yield actor.piece.remote(ticket, len(pieces))
    return pieces


class _Answer:
    """What a call gives. Messages after its first are sent while somebody waits for the result."""

    def __init__(self, host: int, messages: Generator[Any, Any, bytes | bytearray]) -> None:
        self._host, self._messages = host, messages
        self._ref = next(messages)

    def result(self, timeout: float | None = None) -> Any:
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    self._ref = self._messages.send(ray.get(self._ref, timeout=left))
                except StopIteration as end:
                    return pickle.loads(end.value)
        except GetTimeoutError as error:
            raise TimeoutError(f"host {self._host} did not answer within {timeout:g} s") from error
        except RayTaskError as error:
            cause = error.cause
            raise (cause if isinstance(cause, Exception) else error) from None
        except RayActorError as error:
            kind = NotStarted if error.actor_init_failed else HostLost
            raise kind(self._host, _reason(str(error), error.actor_init_failed)) from error
        except RayError as error:  # its machine, its disk, or what it was sent
            raise HostLost(self._host, f"{type(error).__name__}: {_first(error)}") from error


class _Actor:
    def __init__(self, number: int, handle: Any) -> None:
        self.number, self._handle = number, handle
        self.note = f"Ray actor {handle._actor_id.hex()[:12]}"

    def call(self, method: str, *args: Any) -> _Answer:
        # Packed here: arrays that Ray unpacks are read-only, and what arrives shall be as it was sent.
        return _Answer(self.number, _messages(self._handle, method, packed(args)))

    def kill(self) -> None:
        with contextlib.suppress(Exception):  # it may be gone, and Ray too
            ray.kill(self._handle, no_restart=True)

    def log(self) -> str:
        return ""  # on its machine: the host itself says where

    def tail(self) -> list[str]:
        return []


def _here() -> str:
    asked: Any = ray.util
    return str(asked.get_node_ip_address())


def _reason(said: str, raised: bool) -> str:
    """Ray's reason in a line: where a constructor raised, what it raised; else all but the names of things in Ray."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if raised:
        return f"{lines[-1]} ({_address(said)})" if _address(said) else lines[-1]
    kept = [line for line in lines if not line.startswith(("class_name:", "actor_id:", "name:", "namespace:"))]
    return " ".join(kept)[:_WORDS]


def _address(said: str) -> str:
    """The process and machine Ray names in a traceback, such as "pid=4711, ip=10.0.0.5"."""
    found = re.search(r"\((?:\w+\.__init__\(\) )?(pid=\d+, ip=[\w.:]+)", said)
    return found[1] if found else ""


def _connect(spec: Cluster) -> bool:
    """Join the cluster a spec asks for, or start one here; whether somebody has to leave it again."""
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": True, "logging_level": logging.ERROR}  # what workers print is forwarded
    address = found(spec.address)
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            cpus = max(spec.workers, os.cpu_count() or 1)
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    except AuthenticationError as error:
        raise RunError(
            f"the Ray cluster at {address or 'this machine'} turned us away: {_first(error)}; set RAY_AUTH_MODE=token "
            "and RAY_AUTH_TOKEN to that cluster's, or give address='local' for one of your own on this machine"
        ) from error
    except (ConnectionError, RayError, RuntimeError) as error:
        if not address:
            raise RunError(
                f"a Ray cluster could not be started on this machine: {_first(error)}; see Ray's logs in {_session()}"
            ) from error
        raise RunError(
            f"the Ray cluster at {address} answers, and could not be joined: {_first(error)}; if it asks for a token, "
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to its own; this machine needs its versions of Ray and Python"
        ) from error
    return True


def _first(error: BaseException) -> str:
    return " ".join(str(error).split())[:_WORDS]


def _session() -> str:
    return os.path.join(os.environ.get("RAY_TMPDIR", "/tmp"), "ray/session_latest/logs")


def _no_room(spec: Cluster, seconds: float) -> str:
    asked: Any = ray
    there, free = asked.cluster_resources(), asked.available_resources()
    machines = sum(bool(node["Alive"]) for node in asked.nodes())
    return (
        f"Cluster: {spec.nodes} nodes with {spec.threads} CPUs each found no room within {seconds:g} s: the "
        f"Ray cluster has {machines} machines with {there.get('CPU', 0):g} CPUs, {free.get('CPU', 0):g} of them free"
    )
