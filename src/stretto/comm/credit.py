"""How much may be on its way: bytes from one node to another that were released and are not acknowledged.

    >>> credit = Credit(limit_bytes=100)
    >>> credit.sent(1, 80)
    >>> credit.may_send(40), credit.may_send(20)
    (False, True)
    >>> credit.acknowledged(1)
    80
    >>> credit.may_send(1000)                     # one message may always go, or a large one never would
    True

The limit keeps a slow receiver's memory, and ours, in bounds whatever the sockets in between would take. It counts each
message once: when a link sends one again, it was released before and passes (`released`).
"""

from __future__ import annotations

from collections import deque


class Credit:
    """Of one ordered pair of nodes. Sequences are those of the link, counted from 1."""

    __slots__ = ("_flying", "in_flight", "limit", "released")

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self._flying: deque[tuple[int, int]] = deque()  # (sequence, bytes), oldest first
        self.in_flight = 0  # bytes in _flying
        self.released = 0  # the highest sequence ever sent

    def may_send(self, nbytes: int) -> bool:
        """Whether a new message of so many bytes may go now."""
        return not self._flying or self.in_flight + nbytes <= self.limit

    def sent(self, sequence: int, nbytes: int) -> None:
        """It went. One that was released before changes nothing."""
        if sequence > self.released:
            self.released = sequence
            self._flying.append((sequence, nbytes))
            self.in_flight += nbytes

    def acknowledged(self, sequence: int) -> int:
        """The other side has everything up to here; bytes that are free again."""
        flying, before = self._flying, self.in_flight
        while flying and flying[0][0] <= sequence:
            self.in_flight -= flying.popleft()[1]
        return before - self.in_flight

    def reset(self) -> None:
        """Begin again from nothing."""
        self._flying.clear()
        self.in_flight = self.released = 0
