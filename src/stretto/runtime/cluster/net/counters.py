"""What a wire counts. Whatever is wrong with a message is counted, and logged the first time only: whoever can make a
host write to its log a million times can fill its disk."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

_log = logging.getLogger("stretto.cluster")


@dataclass
class Counters:
    """sent, received: messages, with their bytes as given to ZeroMQ. dropped: of another incarnation. strangers: from a
    key or host that is not on the roster. refused: connections turned away. resent: frames that links sent again.
    reconnects: connections that were lost and came again. reasons: malformed messages by what was wrong."""

    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    malformed: int = 0
    strangers: int = 0
    refused: int = 0
    dropped: int = 0
    resent: int = 0
    reconnects: int = 0
    failures: int = 0  # of callbacks
    reasons: dict[str, int] = field(default_factory=dict)

    def wrong(self, host: int, reason: str) -> None:
        """A malformed message came to a host."""
        self.malformed += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if self.reasons[reason] == 1:
            say(host, f"a malformed message was dropped: {reason}")

    def stranger(self, host: int) -> None:
        """A message came from, or was meant for, somebody who is not on the roster."""
        self.strangers += 1
        if self.strangers == 1:
            say(host, "a message from or for a host that is not on the roster was dropped")


def say(host: int, text: str) -> None:
    """Log the first of a kind."""
    _log.warning("host %d: %s (further ones are only counted)", host, text)
