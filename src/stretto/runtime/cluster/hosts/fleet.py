"""The processes of a job, as the driver sees them: started, called, lost, replaced. What starts them is a fleet.

    members = fleet.start(range(4))
    answer = members[0].call("address")
    answer.result(10.0)                     # HostLost when the process is gone, TimeoutError when it does not answer
    members[0] = fleet.replace(0, within=30.0)

Every wait has a deadline.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import cloudpickle

from stretto.errors import RunError
from stretto.runtime.interrupts import GLANCE, check_ctrl_c

from .calls import HostLost, NotStarted

if TYPE_CHECKING:
    from stretto.runtime.cluster.spec import Cluster

__all__ = ["Answer", "Fleet", "HostLost", "Member", "NotStarted", "Settings", "fleet_of", "packed", "wait_for"]


@dataclass(frozen=True)
class Settings:
    """What every host of a job is made with. ip: to listen on; "": the one its machine is known by."""

    job: str
    threads: int
    encrypt: bool
    patience: float
    ip: str = ""


def packed(content: Any) -> bytes:
    """What is sent to another process, as bytes; functions and what they refer to go along."""
    try:
        found: bytes = cloudpickle.dumps(content, protocol=5)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise RunError(
            f"what the job refers to cannot be sent to other processes: {error}; open files, connections and locks "
            "inside the function that runs there"
        ) from error
    return found


class Answer(Protocol):
    """What a call will give."""

    def result(self, timeout: float | None = None) -> Any: ...


def wait_for(answer: Answer, seconds: float) -> Any:
    """What an answer gives; TimeoutError when it has not come in time. Ctrl-C ends the waiting."""
    deadline = time.monotonic() + seconds
    while True:
        check_ctrl_c()
        left = deadline - time.monotonic()
        try:
            return answer.result(max(0.0, min(left, GLANCE)))
        except TimeoutError:
            if left <= GLANCE:
                raise


class Member(Protocol):
    """One host. note: what is known about it, for messages: machine, process."""

    number: int
    note: str

    def call(self, method: str, *args: Any) -> Answer:
        """Have a method of `host.Host` called; does not wait."""

    def kill(self) -> None:
        """End it now, whatever it does; it never comes back."""

    def log(self) -> str:
        """Where its log lies, "" if there is nothing in it."""

    def tail(self) -> list[str]:
        """The last lines that it has printed, as far as they are known here."""


class Fleet(Protocol):
    """Starts hosts."""

    def start(self, numbers: Iterable[int]) -> Mapping[int, Member]:
        """Start all of them, or RunError if there is no room; they may still be starting when it returns."""

    def replace(self, number: int, within: float) -> Member | None:
        """Another one in the place of a member that is gone, which answers; None if there was no room for it in time.
        Raises HostLost if it ended while it started."""

    def close(self, keep_logs: bool = False) -> None:
        """End all that are left, and remove their logs, unless they are to be kept and there is something in them."""


def fleet_of(spec: Cluster, settings: Settings) -> Fleet:
    """The fleet a spec asks for."""
    if spec.address == "processes":
        from .local_fleet import LocalFleet

        return LocalFleet(settings)
    from .ray_fleet import RayFleet

    return RayFleet(spec, settings)
