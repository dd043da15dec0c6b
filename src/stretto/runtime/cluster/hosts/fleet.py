"""Start, call, kill and replace host processes: the interface of `ray_fleet` and `local_fleet`.

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
from typing import Any, Protocol

import cloudpickle

from stretto.errors import RunError
from stretto.runtime.interrupts import GLANCE, check_ctrl_c

from .calls import HostLost, NotStarted

__all__ = [
    "Answer",
    "Fleet",
    "HostLost",
    "HostSettings",
    "Member",
    "NotStarted",
    "SentValue",
    "answers",
    "packed",
    "wait_for",
]


@dataclass(frozen=True)
class HostSettings:
    """Settings that all hosts of a job share."""

    job: str  # an unguessable id
    threads: int  # of each host
    encrypt: bool  # messages between hosts
    patience: float  # seconds of silence after which a host is reported
    ip: str = ""  # address to listen on; "": the address by which its machine is known


def packed(content: Any) -> bytes:
    """Serialize content for another process, functions and what they refer to included."""
    try:
        found: bytes = cloudpickle.dumps(content, protocol=5)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise RunError(
            f"what the job refers to cannot be sent to other processes: {error}; open files, connections and locks "
            "inside the function that runs there"
        ) from error
    return found


class SentValue:
    """A value that several hosts get: it is pickled once, and in another process it is the value itself."""

    def __init__(self, value: Any) -> None:
        self._value, self._body = value, b""

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        self._body = self._body or packed(self._value)
        return pickle.loads, (self._body,)


class Answer(Protocol):
    """The future result of a call."""

    def result(self, timeout: float | None = None) -> Any: ...


def wait_for(answer: Answer, seconds: float) -> Any:
    """Wait for the result of a call; TimeoutError when it is late. Ctrl-C ends the wait."""
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
    """One host process. `note` says its machine and process, for messages."""

    number: int
    note: str

    def call(self, method: str, *args: Any) -> Answer:
        """Call a method of `host.Host`; does not wait."""

    def kill(self) -> None:
        """Kill the process at once and permanently."""

    def log(self) -> str:
        """The path of its log, "" if the log is empty."""

    def tail(self) -> list[str]:
        """The last lines that it printed, as far as the driver has them."""


def answers(member: Member, within: float) -> bool:
    """Wait until a new member answers. If it does not, kill it: False when it is late, HostLost when it has ended."""
    try:
        wait_for(member.call("address"), within)
    except TimeoutError:
        member.kill()
        return False
    except HostLost:
        member.kill()
        raise
    return True


class Fleet(Protocol):
    """Starts and replaces host processes."""

    def start(self, numbers: Iterable[int]) -> Mapping[int, Member]:
        """Start all of them; RunError if there are not enough free processors. They may still be starting on return."""

    def replace(self, number: int, within: float) -> Member | None:
        """Start a replacement for a lost member and wait until it answers.

        None if there was no capacity for it in time. Raises HostLost if it ended while it started.
        """

    def close(self, keep_logs: bool = False) -> None:
        """Kill all members and remove their logs, except non-empty ones if `keep_logs`."""
