"""Virtual time: a heap of what happens when, and greenlets that sleep until it does.

    hub = Hub()
    hub.at(1.5, call, argument)       # call(argument) when it is 1.5
    one = hub.spawn(body)             # body() runs when the hub does; inside it:
    hub.sleep(one, 0.2)               #     other things happen for 0.2 virtual seconds
    hub.park(one)                     #     … until somebody calls hub.wake(one)
    hub.run()                         # until somebody sets hub.over, or nothing is left

What is due at the same time happens in the order in which it was asked for, so a run depends on nothing but what was
asked. Nothing here runs at the same time as anything else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import greenlet


class Sleeper:
    """A greenlet of the hub and where it stands."""

    __slots__ = ("ended", "parked", "resume_at", "thread")

    def __init__(self, thread: greenlet.greenlet) -> None:
        self.thread = thread
        self.parked = False  # until somebody wakes it
        self.resume_at = -1.0  # when it goes on by itself; −1: it does not sleep
        self.ended = False


class Hub:
    """The clock and the loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.over = False
        self.events = 0
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._asked = 0
        self._ready: deque[Sleeper] = deque()
        self._main: greenlet.greenlet = greenlet.getcurrent()

    def at(self, when: float, call: Callable[[Any], None], argument: Any) -> None:
        """Have call(argument) happen at this time."""
        self._asked += 1
        heappush(self._heap, (when, self._asked, call, argument))

    def spawn(self, body: Callable[[], None]) -> Sleeper:
        """A greenlet that will run body() as soon as the hub goes on."""

        def run() -> None:
            try:
                body()
            finally:
                sleeper.ended = True

        sleeper = Sleeper(greenlet.greenlet(run, self._main))
        self._ready.append(sleeper)
        return sleeper

    def sleep(self, sleeper: Sleeper, seconds: float) -> None:
        """Called by the sleeper itself: let virtual time go by."""
        sleeper.resume_at = when = self.now + seconds
        self.at(when, self._rise, sleeper)
        self._main.switch()

    def _rise(self, sleeper: Sleeper) -> None:
        if sleeper.ended or sleeper.resume_at < 0:
            return
        if sleeper.resume_at > self.now:  # it was held up meanwhile
            self.at(sleeper.resume_at, self._rise, sleeper)
            return
        sleeper.resume_at = -1.0
        sleeper.thread.switch()

    def hold_up(self, sleeper: Sleeper, seconds: float) -> None:
        """Whatever it sleeps for takes so much longer."""
        if sleeper.resume_at >= 0:
            sleeper.resume_at += seconds

    def park(self, sleeper: Sleeper) -> None:
        """Called by the sleeper itself: wait to be woken."""
        sleeper.parked = True
        self._main.switch()

    def wake(self, sleeper: Sleeper) -> None:
        """Let a parked sleeper go on, before time does; nothing happens to one that is not parked."""
        if sleeper.parked:
            sleeper.parked = False
            self._ready.append(sleeper)

    def end(self, sleeper: Sleeper, error: BaseException) -> None:
        """Called from outside any sleeper: end it by raising `error` where it stands."""
        sleeper.parked = False
        sleeper.resume_at = -1.0
        if not sleeper.ended:
            if not sleeper.thread:  # never begun: there is nothing to unwind
                sleeper.ended = True
                return
            sleeper.thread.throw(error)

    def advance(self, until: float, most: int) -> bool:
        """Let things happen until somebody sets `over`, virtual time is `until`, or `most` of them have happened; False
        if nothing is left to happen before `until`. For those who drive a hub from outside and have no sleepers."""
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
        """Whether nothing is left to happen, ever."""
        return not self._heap

    def run(self) -> bool:
        """Let things happen until somebody sets `over`; False: nothing is left to happen although nobody has."""
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
