"""The driver's calls of the hosts that are members of a job, and what their silence means.

A host that does not answer within `patience` and some slack is lost. While a call takes long, its host counts as lost
only when it does not answer the thread that asks for its events either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .calls import Address, HostEvent
from .fleet import HostLost, Member, wait_for

ASKING = 0.5  # seconds that a host waits for an event before it answers
SLACK = 20.0  # seconds beyond patience for the driver's own calls


class MemberCalls:
    """Calls of members.

    Parameters
    ----------
    patience : float
        Seconds without an answer after which a host is suspected.

    Attributes
    ----------
    members : dict of Member
        The hosts that have a process, by number.
    answered : dict of float
        When a host last answered the thread that asks for its events.
    """

    def __init__(self, patience: float) -> None:
        self.members: dict[int, Member] = {}
        self.answered: dict[int, float] = {}
        self.seconds = patience + SLACK  # of a call
        self._patience = patience

    def call(self, number: int, method: str, *args: Any) -> Any:
        """Call a host without waiting; its answer is read with `result`."""
        member = self.members.get(number)
        if member is None:
            raise HostLost(number, "its process has ended")
        return member.call(method, *args)

    def result(self, number: int, answer: Any, timeout: float | None = None) -> Any:
        """The answer of a call; HostLost after `timeout` seconds."""
        seconds = self.seconds if timeout is None else timeout
        try:
            return wait_for(answer, seconds)
        except TimeoutError:
            raise HostLost(number, f"did not answer the driver within {seconds:g} s") from None

    def heard_result(self, number: int, answer: Any, timeout: float | None = None) -> Any:
        """Like `result`, but without a deadline while the host answers the thread that asks for its events."""
        began = time.monotonic()
        seconds = self.seconds if timeout is None else timeout
        while True:
            try:
                return wait_for(answer, ASKING)
            except TimeoutError:
                now = time.monotonic()
                silent = now - max(began, self.answered.get(number, began))
                if silent > self.seconds:
                    raise HostLost(number, f"has not answered the driver for {silent:.0f} s") from None
                if now - began > seconds:
                    raise HostLost(number, f"did not answer the driver within {seconds:g} s") from None

    def listen(self, member: Member, tell: Callable[[HostEvent], None]) -> HostLost | None:
        """Ask a host for events until it is replaced, which returns None, or lost, which returns how."""
        number = member.number
        while self.members.get(number) is member:
            try:
                for told in member.call("events", ASKING).result(self.seconds):
                    tell(told)
                self.answered[number] = time.monotonic()
            except TimeoutError:
                return HostLost(number, "does not answer the driver any more")
            except HostLost as lost:
                return lost
            except Exception as error:
                return HostLost(number, f"{type(error).__name__}: {error}")
        return None

    def drop(self, number: int) -> None:
        """Kill a host, if it has a process."""
        if (gone := self.members.pop(number, None)) is not None:
            gone.kill()

    def answering(self) -> list[int]:
        """The hosts that have answered of late."""
        now, recent = time.monotonic(), self._patience / 2 + ASKING
        return [host for host, when in self.answered.items() if now - when < recent]

    def silence(self, by: int, whom: int, within: float) -> float:
        """Seconds for which a host has not heard another; 0 if one of them is lost or does not answer."""
        if by not in self.members or whom not in self.members:
            return 0.0
        try:
            return float(self.call(by, "heard", whom).result(within))
        except (HostLost, TimeoutError):
            return 0.0

    def words(self, host: int, address: Address | None, member: Member | None = None) -> str:
        """A host in words: its machine, and its log unless that is empty."""
        member = member or self.members.get(host)
        log = ("" if member is None else member.log()) or ("" if address is None else address.log)
        at = f" on {address.machine}" if address is not None else f" ({member.note})" if member is not None else ""
        return f"host {host}{at}{log and f' (log: {log})'}"
