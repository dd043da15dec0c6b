"""From one node to another and back: every message arrives once and in order, whatever happens to the connection.

Each frame with a message has a number, counted from 1. The receiver says up to which number it has everything, on its
own frames or, when it has nothing to say, on a frame without a message; the sender keeps what is not acknowledged, and
after a reset of the connection all of it goes again.

    frame = here.send(message)              to be carried to the other side
    messages = there.receive(frame)         in order, each once
    there.replies                           frames to carry back, drained after every receive
    frames = here.reset()                   the connection was lost and is there again: all to be sent again

A frame that was seen before is dropped, one that comes too early too: that is a gap, and one frame asks for everything
after the last that arrived in order. Every connection belongs to an *incarnation* of the run. Frames of an older one
are ignored. A newer one means that the other side has begun again: this side forgets what it had and begins again as
well, which is right only if the node behind it does the same (see `Link.receive`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from stretto.errors import RunError

from .messages import Message

BARE = 32  # bytes of a frame without a message; those of one with are in the message's own count
EVERY = 8  # frames after which an acknowledgement goes by itself


@dataclass(slots=True, eq=False)
class Frame:
    """What a connection carries. sequence: 0 where there is no message. acknowledges: everything up to this number has
    arrived. asks: send again all that comes after it."""

    incarnation: int
    source: int
    sequence: int
    acknowledges: int
    message: Message | None
    asks: bool
    nbytes: int


class Link:
    """One side of a connection between two nodes.

    every: acknowledge after this many frames. It must be no more than half the sender's window, or the sender could
    wait for an acknowledgement while the receiver waits for more frames: `Link(..., every=acknowledge_every(window))`.
    """

    __slots__ = (
        "_asked",
        "_every",
        "_kept",
        "_owed",
        "_received",
        "_sequence",
        "duplicates",
        "gaps",
        "ignored",
        "incarnation",
        "node",
        "peer",
        "replies",
    )

    def __init__(self, node: int, peer: int, incarnation: int = 0, every: int = EVERY) -> None:
        self.node, self.peer, self._every = node, peer, every
        self.replies: list[Frame] = []
        self.duplicates = self.gaps = self.ignored = 0  # frames dropped: seen before, too early, of an older run
        self.restart(incarnation)

    def restart(self, incarnation: int) -> None:
        """Begin again from nothing."""
        self.incarnation = incarnation
        self._sequence = 0  # of the last frame sent
        self._kept: deque[Frame] = deque()  # sent and not acknowledged, oldest first
        self._received = 0  # all up to here have arrived
        self._owed = 0  # frames that arrived since the last acknowledgement
        self._asked = 0  # the missing frame that was asked for last
        self.replies.clear()

    @property
    def unacknowledged(self) -> int:
        """Messages sent that the other side has not acknowledged."""
        return len(self._kept)

    def send(self, message: Message) -> Frame:
        """The frame that carries a message. It may be lost; `reset` and `replies` give it again."""
        self._sequence += 1
        self._owed = 0
        frame = Frame(self.incarnation, self.node, self._sequence, self._received, message, False, message.nbytes)
        self._kept.append(frame)
        return frame

    def receive(self, frame: Frame) -> list[Message]:
        """What arrived with this frame: one message, or none. `replies` then holds what has to be sent back.

        A frame of a newer incarnation makes this link begin again under it. A node must not let that happen to itself
        by surprise: it compares `frame.incarnation` first, and drops the frame if it has not begun again; the other
        side keeps it, and sends it again after the reset that comes with the restart.
        """
        if frame.source != self.peer:
            raise RunError(f"a frame of node {frame.source} reached the link of node {self.node} to node {self.peer}")
        if frame.incarnation != self.incarnation:
            if frame.incarnation < self.incarnation:
                self.ignored += 1
                return []
            self.restart(frame.incarnation)
        if frame.acknowledges > self._sequence:
            raise RunError(
                f"node {self.peer} acknowledges frame {frame.acknowledges} of node {self.node}, which has sent "
                f"{self._sequence} in incarnation {self.incarnation}"
            )
        kept = self._kept
        while kept and kept[0].sequence <= frame.acknowledges:
            kept.popleft()
        if frame.asks:
            self.replies += self._again()
        message = frame.message
        if message is None:
            return []
        if frame.sequence == self._received + 1:
            self._received += 1
            self._asked = 0
            self._owe()
            return [message]
        if frame.sequence <= self._received:
            self.duplicates += 1
            self._owe()
            return []
        self.gaps += 1
        if self._asked != self._received + 1:
            self._asked = self._received + 1
            self.replies.append(self._bare(asks=True))
        return []

    def acknowledgement(self) -> Frame | None:
        """What the other side should be told, if it has not been: for a timer, and before going idle.

        While a frame is missing it asks again, so that a question that was lost does not stay unanswered.
        """
        if self._asked:
            return self._bare(asks=True)
        return self._bare() if self._owed else None

    def reset(self) -> list[Frame]:
        """The connection was lost and is there again: what has to be sent again, in order."""
        self._asked = 0
        self.replies.clear()
        return self._again()

    def _again(self) -> list[Frame]:
        # New frames: the old ones may still be on their way, and what they acknowledge has changed.
        if self._kept:
            self._owed = 0
        return [
            Frame(self.incarnation, self.node, kept.sequence, self._received, kept.message, False, kept.nbytes)
            for kept in self._kept
        ]

    def _owe(self) -> None:
        self._owed += 1
        if self._owed >= self._every:
            self.replies.append(self._bare())

    def _bare(self, asks: bool = False) -> Frame:
        self._owed = 0
        return Frame(self.incarnation, self.node, 0, self._received, None, asks, BARE)


def acknowledge_every(window: int | None) -> int:
    """Frames between acknowledgements, for a window of unacknowledged messages; None for no window.

    >>> [acknowledge_every(window) for window in (1, 6, 32, None)]
    [1, 3, 8, 8]
    """
    return EVERY if window is None else max(1, min(EVERY, window // 2))
