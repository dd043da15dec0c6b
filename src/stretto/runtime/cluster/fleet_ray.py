"""Hosts as Ray actors: one to a bundle of a placement group that is spread over the machines.

Ray finds the room, starts the processes, notices when one ends and says where its log lies. It carries what the driver
and the hosts say to each other, and nothing that workers do.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import time
from collections.abc import Iterable
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from stretto.errors import RunError

from .fleet import HostLost, Settings, packed
from .spec import Cluster

_AT_ONCE = 8  # calls that a host works on at the same time


class HostActor:
    """What Ray starts: a host, and a way to call its methods."""

    def __init__(self, number: int, settings: Settings) -> None:
        from .host import Host

        self._host = Host(
            number,
            settings.job,
            ip=settings.ip or _here(),
            threads=settings.threads,
            encrypt=settings.encrypt,
            patience=settings.patience,
            log=os.readlink("/proc/self/fd/2") if os.path.exists("/proc/self/fd/2") else "",
        )

    def call(self, method: str, args: bytes) -> bytes:
        return packed(getattr(self._host, method)(*pickle.loads(args)))


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
            if not self._group.wait(timeout_seconds=max(1.0, deadline - time.monotonic())):
                raise RunError(_no_room(spec))
            for number in numbers:
                self._members[number] = self._make(number)
            for member in self._members.values():
                try:
                    member.call("address").result(max(1.0, deadline - time.monotonic()))
                except (HostLost, TimeoutError) as error:
                    why = str(error) or f"no answer within {spec.start_within:g} s"
                    raise RunError(f"host {member.number} of the cluster did not start: {why}") from error
        except BaseException:
            self.close()
            raise
        return dict(self._members)

    def replace(self, number: int, within: float) -> _Actor | None:
        member = self._make(number)
        try:
            member.call("address").result(within)
        except (HostLost, TimeoutError):
            member.kill()
            return None
        self._members[number] = member
        return member

    def close(self) -> None:
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


class _Answer:
    def __init__(self, host: int, ref: Any) -> None:
        self._host, self._ref = host, ref

    def result(self, timeout: float | None = None) -> Any:
        try:
            return pickle.loads(ray.get(self._ref, timeout=timeout))
        except GetTimeoutError as error:
            raise TimeoutError(f"host {self._host} did not answer within {timeout:g} s") from error
        except RayTaskError as error:
            cause = error.cause
            raise (cause if isinstance(cause, Exception) else error) from None
        except RayActorError as error:
            raise HostLost(self._host, " ".join(str(error).split())) from error


class _Actor:
    def __init__(self, number: int, handle: Any) -> None:
        self.number, self._handle = number, handle
        self.note = f"Ray actor {handle._actor_id.hex()[:12]}"

    def call(self, method: str, *args: Any) -> _Answer:
        # Packed here: arrays that Ray unpacks are read-only, and what arrives shall be as it was sent.
        return _Answer(self.number, self._handle.call.remote(method, packed(args)))

    def kill(self) -> None:
        with contextlib.suppress(Exception):  # it may be gone, and Ray too
            ray.kill(self._handle, no_restart=True)


def _here() -> str:
    asked: Any = ray.util
    return str(asked.get_node_ip_address())


def _connect(spec: Cluster) -> bool:
    """Whether a Ray of our own was started."""
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(address=spec.address, **quiet)
        return True
    except ConnectionError as error:
        if spec.address != "auto" or os.environ.get("RAY_ADDRESS"):
            where = os.environ.get("RAY_ADDRESS") if spec.address == "auto" else spec.address
            raise RunError(
                f"no Ray cluster answers at {where}: {error}; check the address and, where the cluster asks for it, "
                "RAY_AUTH_MODE and RAY_AUTH_TOKEN"
            ) from error
    ray.init(num_cpus=max(spec.workers, os.cpu_count() or 1), include_dashboard=False, **quiet)
    return True


def _no_room(spec: Cluster) -> str:
    asked: Any = ray
    there, free = asked.cluster_resources(), asked.available_resources()
    machines = sum(bool(node["Alive"]) for node in asked.nodes())
    return (
        f"Cluster: {spec.nodes} nodes with {spec.threads} CPUs each found no room within {spec.start_within:g} s: the "
        f"Ray cluster has {machines} machines with {there.get('CPU', 0):g} CPUs, {free.get('CPU', 0):g} of them free; "
        "ask for fewer nodes= or threads=, or wait until others are done"
    )
