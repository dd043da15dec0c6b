"""Virtual time: a discrete-event loop with a heap of events, and greenlets that sleep in virtual time.

    hub = Hub()
    hub.at(1.5, call, argument)       # call(argument) at time 1.5
    one = hub.spawn(body)             # body() runs when the hub does; inside it:
    hub.sleep(one, 0.2)               #     other events happen for 0.2 virtual seconds
    hub.park(one)                     #     … until hub.wake(one) is called
    hub.run()                         # until hub.over is set, or no event is left

Events of the same time happen in the order in which they were scheduled, so a run is deterministic. Nothing runs
concurrently.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import greenlet


class Sleeper:
    """A greenlet of the hub and its state."""

    __slots__ = ("ended", "parked", "resume_at", "thread")

    def __init__(self, thread: greenlet.greenlet) -> None:
        self.thread = thread
        self.parked = False  # until it is woken
        self.resume_at = -1.0  # when it continues by itself; −1: it does not sleep
        self.ended = False


class Hub:
    """The virtual clock and the event loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.over = False
        self.events = 0
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._asked = 0
        self._ready: deque[Sleeper] = deque()
        self._main: greenlet.greenlet = greenlet.getcurrent()

    def at(self, when: float, call: Callable[[Any], None], argument: Any) -> None:
        """Schedule call(argument) for this time."""
        self._asked += 1
        heappush(self._heap, (when, self._asked, call, argument))

    def spawn(self, body: Callable[[], None]) -> Sleeper:
        """Create a greenlet that runs body() as soon as the hub continues."""

        def run() -> None:
            try:
                body()
            finally:
                sleeper.ended = True

        sleeper = Sleeper(greenlet.greenlet(run, self._main))
        self._ready.append(sleeper)
        return sleeper

    def sleep(self, sleeper: Sleeper, seconds: float) -> None:
        """Called by the sleeper itself: let virtual time pass."""
        sleeper.resume_at = when = self.now + seconds
        self.at(when, self._resume, sleeper)
        self._main.switch()

    def _resume(self, sleeper: Sleeper) -> None:
        if sleeper.ended or sleeper.resume_at < 0:
            return
        if sleeper.resume_at > self.now:  # it was delayed meanwhile
            self.at(sleeper.resume_at, self._resume, sleeper)
            return
        sleeper.resume_at = -1.0
        sleeper.thread.switch()

    def hold_up(self, sleeper: Sleeper, seconds: float) -> None:
        """Extend its sleep by this time."""
        if sleeper.resume_at >= 0:
            sleeper.resume_at += seconds

    def park(self, sleeper: Sleeper) -> None:
        """Called by the sleeper itself: wait to be woken."""
        sleeper.parked = True
        self._main.switch()

    def wake(self, sleeper: Sleeper) -> None:
        """Let a parked sleeper continue at the current time; no effect on one that is not parked."""
        if sleeper.parked:
            sleeper.parked = False
            self._ready.append(sleeper)

    def end(self, sleeper: Sleeper, error: BaseException) -> None:
        """Called from outside any sleeper: end it by raising `error` in it."""
        sleeper.parked = False
        sleeper.resume_at = -1.0
        if not sleeper.ended:
            if not sleeper.thread:  # never started: there is nothing to unwind
                sleeper.ended = True
                return
            sleeper.thread.throw(error)

    def advance(self, until: float, most: int) -> bool:
        """Run events until `over` is set, virtual time is `until`, or `most` events have happened.

        False if no event is left before `until`. For callers that drive a hub from outside and have no sleepers.
        """
        heap = self._heap
        for _ in range(most):
            if self.over:
                return True
            if not heap or heap[0][0] > until:
                self.now = max(self.now, until)
                return False
            self.now, _, call, argument = heappop(heap)
            self.events += 1
            call(argument)
        return True

    @property
    def idle(self) -> bool:
        """Whether no event is left."""
        return not self._heap

    def run(self) -> bool:
        """Run events until `over` is set; False: no event is left although it is not set."""
        heap, ready = self._heap, self._ready
        while not self.over:
            if ready:
                sleeper = ready.popleft()
                if not sleeper.ended:
                    sleeper.thread.switch()
            elif heap:
                self.now, _, call, argument = heappop(heap)
                self.events += 1
                call(argument)
            else:
                return False
        return True
