"""Handle Ctrl-C during a job: it is never lost, and never interrupts code that must not be interrupted.

Python's own handler raises KeyboardInterrupt between any two instructions of the main thread. Inside a finalizer or a
callback of compiled code the exception is printed and dropped, and the job goes on; between taking an event out of a
queue and recording it, the event is lost, and the job hangs. So a job installs its own handler, which records that
Ctrl-C was pressed. What happens then depends on the running code:

    with raising_ctrl_c(): …            raise KeyboardInterrupt at once: user code, compiling
    with deferring_ctrl_c(): …          nothing until `check_ctrl_c()`, which waiting code calls repeatedly
    with shielding_ctrl_c(): …          nothing until the block has ended: clean-up
    with heeding_ctrl_c(job): …         job.ask(): it stops where that is safe; only the outermost job is asked

They may be nested. If other code drops a KeyboardInterrupt, the next `check_ctrl_c()` raises it again, at the latest
the end of the outermost block. A second Ctrl-C always raises at once.

Python delivers signals to the main thread only. In other threads, and where another handler is installed, these blocks
have no effect.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

GLANCE = 0.2  # seconds: a signal that arrives just before the main thread begins to wait is noticed when it wakes up

RAISE, DEFER, ASK = "raise", "defer", "ask"
_FRAGILE = (__file__, contextlib.__file__)
_NEAR = 12  # frames to check: those of a block, of what it calls, and of a generator that is inside one


class Stoppable(Protocol):
    """A crew or rounds that can be asked to stop as soon as it is safe. A signal handler calls it: it only sets
    flags.
    """

    def ask(self) -> None: ...


class CtrlC:
    """The job that runs in the main thread."""

    def __init__(self) -> None:
        self.pressed = 0  # how often, since it was last handled
        self.modes: list[tuple[str, Callable[[], None] | None]] = []  # of the open blocks, the outermost first

    @property
    def asked(self) -> Callable[[], None] | None:
        """The function to call: that of the outermost job that wants it."""
        return next((ask for mode, ask in self.modes if mode == ASK), None)

    def handle(self, number: int, frame: Any) -> None:
        """The signal handler."""
        self.pressed += 1
        ask = self.asked
        at_once = self.pressed > 1 or (ask is None and self.modes[-1][0] == RAISE)
        if at_once and not _entering_or_leaving(frame):
            raise KeyboardInterrupt
        if self.pressed == 1 and ask is not None:
            ask()


def _entering_or_leaving(frame: Any) -> bool:
    """Whether the main thread is entering or leaving a block: an exception there would leave the block open.

    It is raised at the next check instead.
    """
    for _ in range(_NEAR):
        if frame is None:
            return False
        if frame.f_code.co_filename in _FRAGILE:
            return True
        frame = frame.f_back
    return False


class _Running:
    """The outermost job of this process; of the main thread only."""

    now: CtrlC | None = None


def check_ctrl_c() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed and no job handles it."""
    now = _Running.now
    if now is not None and now.pressed and now.asked is None and _in_main_thread():
        raise KeyboardInterrupt


class _Block:
    """A block of code with a mode; the outermost installs the handler and removes it again."""

    _checks = True

    def __init__(self, mode: str, ask: Callable[[], None] | None = None) -> None:
        self._mode = mode, ask
        self._now: CtrlC | None = None  # None: another handler is installed
        self._outermost = False

    def __enter__(self) -> Self:
        if not _in_main_thread():
            return self
        if self._checks:
            check_ctrl_c()  # pressed before, and dropped by other code
        now = _Running.now
        if now is None:
            if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
                return self
            self._outermost, now = True, CtrlC()
            now.modes.append(self._mode)
            signal.signal(signal.SIGINT, now.handle)  # from this line on no signal is lost
            _Running.now = now
        else:
            now.modes.append(self._mode)
        self._now = now
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        now = self._now
        if now is None:
            return
        self._over(now)
        if not self._outermost:
            now.modes.pop()
            if kind is None and self._checks:
                check_ctrl_c()
            return
        now.modes[:] = [(DEFER, None)]
        _Running.now = None  # before the handler is removed: the previous one may raise anywhere
        if signal.getsignal(signal.SIGINT) == now.handle:  # otherwise other code has installed another one meanwhile
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is None and now.pressed:
            raise KeyboardInterrupt

    def _over(self, now: CtrlC) -> None:
        """The block has ended."""


class raising_ctrl_c(_Block):
    """Ctrl-C raises KeyboardInterrupt at once, and again later if that was dropped."""

    def __init__(self) -> None:
        super().__init__(RAISE)


class deferring_ctrl_c(_Block):
    """Ctrl-C raises KeyboardInterrupt where `check_ctrl_c` is called, at the latest at the end of the block."""

    def __init__(self) -> None:
        super().__init__(DEFER)


class shielding_ctrl_c(_Block):
    """Ctrl-C has no effect until the block has ended, also if it was pressed before it began."""

    _checks = False

    def __init__(self) -> None:
        super().__init__(DEFER)


class heeding_ctrl_c(_Block):
    """The first Ctrl-C asks the job to stop where that is safe, a second one stops it at once.

    The code that opens the block checks at its end whether Ctrl-C was `heard`, and reports it to the caller of the job,
    even if it came too late to stop the job. A later one raises KeyboardInterrupt at the end of the block.
    """

    def __init__(self, job: Stoppable) -> None:
        super().__init__(ASK, self._ask)
        self._job = job
        self._pressed = self._heard = False

    def heard(self) -> bool:
        """Whether Ctrl-C was pressed so far; the caller then handles it."""
        self._heard = self._pressed
        return self._heard

    def _ask(self) -> None:
        self._pressed = True
        self._job.ask()

    def _over(self, now: CtrlC) -> None:
        if self._heard:
            now.pressed = 0


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
