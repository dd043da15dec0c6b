"""Hosts as Ray actors, one in each bundle of a placement group that is spread over the machines.

Ray finds free processors, starts the processes, reports when one ends and where its log is. Calls between driver and
hosts go through Ray; messages between workers do not. Large calls are split into chunks: Ray stores their content in an
object store of bounded size and would wait without a limit for space in it (`_messages`).
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
from stretto.runtime.cluster.settings import ClusterSettings
from stretto.runtime.interrupts import GLANCE, check_ctrl_c

from .fleet import HostLost, HostSettings, NotStarted, answers, packed
from .output import label_workers
from .ray_address import found

_CONCURRENT_CALLS = 8  # calls that a host handles concurrently
_WARN_SECONDS = 10.0  # seconds after which a warning says that processors are missing
_WORDS = 600  # characters of Ray's error texts at most
_CHUNK = 8 << 20  # bytes of a message at most
_TICKET = 8  # bytes of the id of a call


class HostActor:
    """The Ray actor: creates a host and calls its methods."""

    def __init__(self, number: int, settings: HostSettings) -> None:
        from .host import Host

        label_workers()
        self._number = number
        self._arrived: dict[bytes, bytearray] = {}
        self._answers: dict[bytes, bytes] = {}
        self._host = Host(
            number,
            settings.job,
            ip=settings.ip or _own_ip(),
            threads=settings.threads,
            encrypt=settings.encrypt,
            patience=settings.patience,
            log=os.readlink("/proc/self/fd/2") if os.path.exists("/proc/self/fd/2") else "",
        )

    def __repr__(self) -> str:
        """The prefix that Ray puts in front of forwarded lines."""
        return f"host {self._number}"

    def call(self, method: str, args: bytes) -> bytes | int:
        """Call a method and return the packed result; its length if it is large: then `chunk` returns it in chunks."""
        ticket, last = args[:_TICKET], args[_TICKET:]
        before = self._arrived.pop(ticket, None)
        answer = packed(getattr(self._host, method)(*pickle.loads(last if before is None else before + last)))
        if len(answer) <= _CHUNK:
            return answer
        self._answers[ticket] = answer
        return len(answer)

    def take(self, ticket: bytes, chunk: bytes) -> None:
        """Receive a chunk of the arguments of a later call, in order."""
        self._arrived.setdefault(ticket, bytearray()).extend(chunk)

    def chunk(self, ticket: bytes, first: int) -> bytes:
        """Return a chunk of a large result, which is discarded after its last chunk."""
        found = self._answers[ticket][first : first + _CHUNK]
        if first + _CHUNK >= len(self._answers[ticket]):
            del self._answers[ticket]
        return found


class RayFleet:
    """Connects to a Ray cluster, or starts one on this machine."""

    def __init__(self, spec: ClusterSettings, settings: HostSettings) -> None:
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
            if not self._placed_within(min(_WARN_SECONDS, within)):
                if within > _WARN_SECONDS:
                    warnings.warn(
                        f"{_too_few_cpus(spec, _WARN_SECONDS)}; waiting for {within - _WARN_SECONDS:g} s more",
                        RuntimeWarning,
                        2,
                    )
                if not self._placed_within(max(1.0, deadline - time.monotonic())):
                    raise RunError(
                        f"{_too_few_cpus(spec, within)}; reduce nodes= or threads=, or wait until other jobs end"
                    )
            for number in numbers:
                self._members[number] = self._make(number)
        except BaseException:
            self.close()
            raise
        return dict(self._members)

    def _placed_within(self, within: float) -> bool:
        """Wait for the placement group; False if it is not ready in time."""
        deadline = time.monotonic() + within
        while not self._group.wait(timeout_seconds=GLANCE):
            check_ctrl_c()
            if time.monotonic() > deadline:
                return False
        return True

    def replace(self, number: int, within: float) -> _Actor | None:
        member = self._make(number)
        if not answers(member, within):
            return None
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
        where: Any = "SPREAD"  # of a host that joins later: wherever processors are free
        if number < self._spec.nodes:
            where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=number)
        made: Any = ray.remote(HostActor).options(
            name=f"stretto-{self._settings.job}-{number}-{os.urandom(3).hex()}",
            num_cpus=self._spec.threads,
            scheduling_strategy=where,
            max_concurrency=_CONCURRENT_CALLS,
            max_restarts=0,  # a restarted host needs a new incarnation of the job, which the driver starts
        )
        return _Actor(number, made.remote(number, self._settings))


def _messages(actor: Any, method: str, args: bytes) -> Generator[Any, Any, bytes | bytearray]:
    """A call in chunks: yields the references to wait for, is sent their values, returns the packed result."""
    ticket = os.urandom(_TICKET)
    last = max(0, len(args) - 1) // _CHUNK * _CHUNK
    for first in range(0, last, _CHUNK):
        yield actor.take.remote(ticket, args[first : first + _CHUNK])
    found = yield actor.call.remote(method, ticket + args[last:])
    if isinstance(found, bytes):
        return found
    chunks = bytearray()
    while len(chunks) < found:
        chunks += yield actor.chunk.remote(ticket, len(chunks))
    return chunks


class _RayAnswer:
    """The future result of a call. Further chunks are sent while the caller waits for the result."""

    def __init__(self, host: int, messages: Generator[Any, Any, bytes | bytearray]) -> None:
        self._host, self._messages = host, messages
        self._ref = next(messages)
        self._found: bytes | bytearray | None = None  # the packed result: it may be read several times

    def result(self, timeout: float | None = None) -> Any:
        if self._found is not None:
            return pickle.loads(self._found)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    self._ref = self._messages.send(ray.get(self._ref, timeout=left))
                except StopIteration as end:
                    found: bytes | bytearray = end.value
                    self._found = found
                    return pickle.loads(found)
        except GetTimeoutError as error:
            raise TimeoutError(f"host {self._host} did not answer within {timeout:g} s") from error
        except RayTaskError as error:
            cause = error.cause
            raise (cause if isinstance(cause, Exception) else error) from None
        except RayActorError as error:
            kind = NotStarted if error.actor_init_failed else HostLost
            raise kind(self._host, _reason(str(error), error.actor_init_failed)) from error
        except RayError as error:  # its machine, its disk, or the content of the call
            raise HostLost(self._host, f"{type(error).__name__}: {_first(error)}") from error


class _Actor:
    def __init__(self, number: int, handle: Any) -> None:
        self.number, self._handle = number, handle
        self.note = f"Ray actor {handle._actor_id.hex()[:12]}"

    def call(self, method: str, *args: Any) -> _RayAnswer:
        # Packed by us: arrays that Ray unpacks are read-only, and received arrays must be writable like those sent.
        return _RayAnswer(self.number, _messages(self._handle, method, packed(args)))

    def kill(self) -> None:
        with contextlib.suppress(Exception):  # the actor, or Ray itself, may have ended
            ray.kill(self._handle, no_restart=True)

    def log(self) -> str:
        return ""  # on its machine: the host reports the path

    def tail(self) -> list[str]:
        return []


def _own_ip() -> str:
    asked: Any = ray.util
    return str(asked.get_node_ip_address())


def _reason(said: str, raised: bool) -> str:
    """Ray's error text in one line: the exception of a constructor, or the text without Ray's internal names."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if raised:
        return f"{lines[-1]} ({_address(said)})" if _address(said) else lines[-1]
    kept = [line for line in lines if not line.startswith(("class_name:", "actor_id:", "name:", "namespace:"))]
    return " ".join(kept)[:_WORDS]


def _address(said: str) -> str:
    """The process and machine in a Ray traceback, such as "pid=4711, ip=10.0.0.5"."""
    found = re.search(r"\((?:\w+\.__init__\(\) )?(pid=\d+, ip=[\w.:]+)", said)
    return found[1] if found else ""


def _connect(spec: ClusterSettings) -> bool:
    """Join the cluster that a spec asks for, or start one on this machine; return whether to shut it down at the
    end.
    """
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": True, "logging_level": logging.ERROR}  # forwards what workers print
    address = found(spec.address)
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            cpus = max(spec.workers, os.cpu_count() or 1)
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    except AuthenticationError as error:
        raise RunError(
            f"the Ray cluster at {address or 'this machine'} rejected the connection: {_first(error)}; set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to that cluster's, or start one with address='local'"
        ) from error
    except (ConnectionError, RayError, RuntimeError) as error:
        if not address:
            raise RunError(
                f"a Ray cluster could not be started on this machine: {_first(error)}; see Ray's logs in {_session()}"
            ) from error
        raise RunError(
            f"the Ray cluster at {address} answers but could not be joined: {_first(error)}; if it asks for a token, "
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to its own; this machine needs its versions of Ray and Python"
        ) from error
    return True


def _first(error: BaseException) -> str:
    return " ".join(str(error).split())[:_WORDS]


def _session() -> str:
    return os.path.join(os.environ.get("RAY_TMPDIR", "/tmp"), "ray/session_latest/logs")


def _too_few_cpus(spec: ClusterSettings, seconds: float) -> str:
    asked: Any = ray
    there, free = asked.cluster_resources(), asked.available_resources()
    machines = sum(bool(node["Alive"]) for node in asked.nodes())
    return (
        f"Cluster: {spec.nodes} nodes with {spec.threads} CPUs each did not fit within {seconds:g} s: the "
        f"Ray cluster has {machines} machines with {there.get('CPU', 0):g} CPUs, {free.get('CPU', 0):g} of them free"
    )
