"""Flow control: bytes from one node to another that were released and are not yet acknowledged.

    >>> credit = Credit(limit_bytes=100)
    >>> credit.sent(1, 80)
    >>> credit.may_send(40), credit.may_send(20)
    (False, True)
    >>> credit.acknowledged(1)
    80
    >>> credit.may_send(1000)                     # one message may always go, or a large one never would
    True

The limit bounds the memory of a slow receiver and of the sender, whatever the sockets in between would buffer. It
counts each message once: a message that a link sends again was released before and passes (`released`).
"""

from __future__ import annotations

from collections import deque


class Credit:
    """Flow control of one ordered pair of nodes. Sequence numbers are those of the link, from 1."""

    __slots__ = ("_unacknowledged", "in_flight", "limit", "released")

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self._unacknowledged: deque[tuple[int, int]] = deque()  # (sequence, bytes), oldest first
        self.in_flight = 0  # bytes in _unacknowledged
        self.released = 0  # the highest sequence ever sent

    def may_send(self, nbytes: int) -> bool:
        """Whether a new message of nbytes may be sent now."""
        return not self._unacknowledged or self.in_flight + nbytes <= self.limit

    def sent(self, sequence: int, nbytes: int) -> None:
        """Count a message that was sent. One that was released before changes nothing."""
        if sequence > self.released:
            self.released = sequence
            self._unacknowledged.append((sequence, nbytes))
            self.in_flight += nbytes

    def acknowledged(self, sequence: int) -> int:
        """The other side has everything up to this number; returns the bytes that are free again."""
        flying, before = self._unacknowledged, self.in_flight
        while flying and flying[0][0] <= sequence:
            self.in_flight -= flying.popleft()[1]
        return before - self.in_flight

    def reset(self) -> None:
        """Forget all messages and start counting again."""
        self._unacknowledged.clear()
        self.in_flight = self.released = 0
