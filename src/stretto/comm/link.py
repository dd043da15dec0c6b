"""Reliable link between two nodes: every message arrives once and in order, whatever happens to the connection.

Each frame with a message has a number, counted from 1. The receiver acknowledges all frames up to a number, on its own
frames or, when it has no message to send, on a frame without one. The sender keeps frames that are not acknowledged and
sends all of them again after a reset of the connection.

    frame = here.send(message)              to be carried to the other side
    messages = there.receive(frame)         in order, each once
    there.replies                           frames to carry back, drained after every receive
    frames = here.reset()                   the connection was lost and is up again: frames to send again
    here.tend(now)                          for networks that do not report lost connections: fills `replies`

A frame that arrived before is dropped. A frame that arrives too early is dropped too: that is a gap, and one frame asks
for everything after the last that arrived in order. Every connection belongs to an *incarnation* of the run. Frames of
an older one are ignored. A newer one means that the other side has restarted: this side forgets its state and restarts
as well, which is right only if its node does the same (see `Link.receive`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from stretto.errors import RunError

from .messages import Message

BARE = 32  # bytes of a frame without a message; a message counts those of its frame itself
EVERY = 8  # frames after which an acknowledgement is sent without a message
# For `tend`, in seconds: SOON, how long an acknowledgement may wait for a message to travel with; ASK_AGAIN and
# SEND_AGAIN, the first time-outs of requests and of frames, which double each time up to SELDOM.
SOON = 0.02
ASK_AGAIN, SEND_AGAIN, SELDOM = 0.25, 1.0, 8.0
SLOW = 1 << 20  # bytes per second: a frame on its way is not missed before it would have arrived on a link like this


@dataclass(slots=True, eq=False)
class Frame:
    """What a connection carries: a message, an acknowledgement, or both."""

    incarnation: int  # of the run
    source: int  # the node that sent it
    sequence: int  # number of the message; 0 without one
    acknowledges: int  # everything up to this number has arrived
    message: Message | None
    asks: bool  # send again everything after `acknowledges`
    nbytes: int  # size on the wire


def by_target(frames: Iterable[tuple[int, Frame]]) -> dict[int, list[Frame]]:
    """The frames for each node, in their order: those for one node travel together."""
    found: dict[int, list[Frame]] = {}
    for target, frame in frames:
        if target in found:
            found[target].append(frame)
        else:
            found[target] = [frame]
    return found


class Link:
    """One side of a connection between two nodes.

    Parameters
    ----------
    node, peer : int
        This node and the node at the other end.
    incarnation : int
        Of the run.
    every : int
        Acknowledge after this many frames. It must be at most half the sender's window, or the sender could wait for an
        acknowledgement while the receiver waits for more frames: `Link(..., every=acknowledge_every(window))`.
    """

    __slots__ = (
        "_asked",
        "_asks_after",
        "_asks_at",
        "_every",
        "_kept",
        "_oldest",
        "_owed",
        "_owes_at",
        "_received",
        "_sends_after",
        "_sends_at",
        "_tried",
        "duplicates",
        "gaps",
        "ignored",
        "incarnation",
        "node",
        "peer",
        "replies",
        "sent",
    )

    def __init__(self, node: int, peer: int, incarnation: int = 0, every: int = EVERY) -> None:
        self.node, self.peer, self._every = node, peer, every
        self.replies: list[Frame] = []
        self.duplicates = self.gaps = self.ignored = 0  # frames dropped: seen before, too early, of an older run
        self.restart(incarnation)

    def restart(self, incarnation: int) -> None:
        """Forget all frames and start counting again."""
        self.incarnation = incarnation
        self.sent = 0  # the number of the last frame sent
        self._kept: deque[Frame] = deque()  # sent and not acknowledged, oldest first
        self._received = 0  # all up to here have arrived
        self._owed = 0  # frames that arrived since the last acknowledgement
        self._asked = 0  # the missing frame that was requested last
        self._owes_at = self._asks_at = self._sends_at = inf  # when `tend` has something to do
        self._asks_after, self._sends_after = ASK_AGAIN, SEND_AGAIN
        self._oldest = 0  # the oldest unacknowledged frame at the last call of `tend`
        self._tried = 0  # the last frame sent when the oldest was sent again; 0 after an answer
        self.replies.clear()

    @property
    def unacknowledged(self) -> int:
        """Messages sent that the other side has not acknowledged."""
        return len(self._kept)

    def send(self, message: Message) -> Frame:
        """The frame that carries a message. It may be lost; `reset` and `replies` give it again."""
        self.sent = sequence = self.sent + 1
        self._owed, self._owes_at = 0, inf
        frame = Frame(self.incarnation, self.node, sequence, self._received, message, False, message.nbytes)
        self._kept.append(frame)
        return frame

    def receive(self, frame: Frame) -> list[Message]:
        """The message of this frame, or none. `replies` then holds the frames to send back.

        A frame of a newer incarnation makes this link restart under it. A node must not be surprised by that: it
        compares `frame.incarnation` first, and drops the frame if it has not restarted itself. The other side keeps the
        frame and sends it again after the reset that comes with the restart.
        """
        if frame.source != self.peer:
            raise RunError(f"a frame of node {frame.source} reached the link of node {self.node} to node {self.peer}")
        if frame.incarnation != self.incarnation:
            if frame.incarnation < self.incarnation:
                self.ignored += 1
                return []
            self.restart(frame.incarnation)
        acknowledges = frame.acknowledges
        if acknowledges > self.sent:
            raise RunError(
                f"node {self.peer} acknowledges frame {acknowledges} of node {self.node}, which has sent "
                f"{self.sent} in incarnation {self.incarnation}"
            )
        kept = self._kept
        before = len(kept)
        while kept and kept[0].sequence <= acknowledges:
            kept.popleft()
        if frame.asks:
            self._tried = 0
            self.replies += self._again()
        elif self._tried and len(kept) < before:
            # Frames arrive in the order they were sent: those sent before the oldest was repeated have arrived or were
            # lost. (A frame that was only slow arrives twice.)
            last, self._tried = self._tried, 0
            self.replies += self._again(last)
        message = frame.message
        if message is None:
            return []
        if frame.sequence == self._received + 1:
            self._received += 1
            self._asked, self._asks_at = 0, inf
            self._owed += 1
            if self._owed >= self._every:
                self.replies.append(self._bare())
            return [message]
        if frame.sequence <= self._received:
            self.duplicates += 1
            self._owed += 1
            if self._owed >= self._every:
                self.replies.append(self._bare())
            return []
        self.gaps += 1
        if self._asked != self._received + 1:
            self._asked, self._asks_after = self._received + 1, ASK_AGAIN
            self.replies.append(self._bare(asks=True))
        return []

    def acknowledgement(self) -> Frame | None:
        """The acknowledgement that is owed to the other side, if any: for a timer, and before going idle.

        While a frame is missing it repeats the request, which may have been lost.
        """
        if self._asked:
            return self._bare(asks=True)
        return self._bare() if self._owed else None

    def reset(self) -> list[Frame]:
        """The connection was lost and is up again: the frames to send again, in order."""
        self._asked, self._asks_at = 0, inf
        self.replies.clear()
        return self._again()

    def tend(self, now: float) -> float:
        """Put frames that are due into `replies`, and return when to call again.

        For networks that do not report lost connections. Due are an acknowledgement that is owed for a while, a request
        without an answer, and the oldest unacknowledged frame after a time-out: the answer to it shows what else was
        lost. Call it after every receive, and regularly while frames are unacknowledged. Time-outs start at the call
        that notices their cause.
        """
        if self._asked:
            if self._asks_at == inf:
                self._asks_at = now + self._asks_after
            elif self._asks_at <= now:
                self._asks_after = min(2 * self._asks_after, SELDOM)
                self._asks_at = now + self._asks_after
                self.replies.append(self._bare(asks=True))
        elif self._owed:
            if self._owes_at == inf:
                self._owes_at = now + SOON
            elif self._owes_at <= now:
                self.replies.append(self._bare())
        if not self._kept:
            self._oldest, self._sends_at = 0, inf
        elif self._kept[0].sequence != self._oldest:
            self._oldest, self._sends_after = self._kept[0].sequence, SEND_AGAIN + self._kept[0].nbytes / SLOW
            self._sends_at = now + self._sends_after
        elif self._sends_at <= now:
            self._sends_after = max(self._sends_after, min(2 * self._sends_after, SELDOM))
            self._sends_at = now + self._sends_after
            self._tried = self.sent
            self.replies += self._again(self._oldest)
        return min(self._asks_at, self._owes_at, self._sends_at)

    def _again(self, last: int | None = None) -> list[Frame]:
        """What is kept, up to a frame."""
        # New frames: the old ones may still be on their way, and what they acknowledge has changed.
        if self._kept:
            self._owed, self._owes_at = 0, inf
        return [
            Frame(self.incarnation, self.node, kept.sequence, self._received, kept.message, False, kept.nbytes)
            for kept in self._kept
            if last is None or kept.sequence <= last
        ]

    def _bare(self, asks: bool = False) -> Frame:
        self._owed, self._owes_at = 0, inf
        return Frame(self.incarnation, self.node, 0, self._received, None, asks, BARE)


def acknowledge_every(window: int | None) -> int:
    """Frames between acknowledgements, for a window of unacknowledged messages; None for no window.

    >>> [acknowledge_every(window) for window in (1, 6, 32, None)]
    [1, 3, 8, 8]
    """
    return EVERY if window is None else max(1, min(EVERY, window // 2))
