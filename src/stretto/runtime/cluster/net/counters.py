"""Counters of a host's wire: messages, bytes, rejected and malformed input.

Every problem with a message is counted but logged only the first time: otherwise a peer could fill the disk through the
log.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

_log = logging.getLogger("stretto.cluster")


@dataclass
class Counters:
    """What one wire has counted so far."""

    sent: int = 0  # messages
    received: int = 0  # messages
    bytes_sent: int = 0  # as given to ZeroMQ
    bytes_received: int = 0  # as received from ZeroMQ
    malformed: int = 0  # messages
    strangers: int = 0  # messages from or for a key or host that is not on the roster
    refused: int = 0  # rejected connections
    dropped: int = 0  # messages of another incarnation
    resent: int = 0  # frames that links sent again
    reconnects: int = 0  # connections that were lost and re-established
    failures: int = 0  # exceptions of callbacks
    reasons: dict[str, int] = field(default_factory=dict)  # malformed messages by what was wrong

    def wrong(self, host: int, reason: str) -> None:
        """Count a malformed message; log the first one of each reason."""
        self.malformed += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if self.reasons[reason] == 1:
            say(host, f"a malformed message was dropped: {reason}")

    def stranger(self, host: int) -> None:
        """Count a message from or for a host that is not on the roster."""
        self.strangers += 1
        if self.strangers == 1:
            say(host, "a message from or for a host that is not on the roster was dropped")


def say(host: int, text: str) -> None:
    """Log the first occurrence of a problem."""
    _log.warning("host %d: %s (further ones are only counted)", host, text)
