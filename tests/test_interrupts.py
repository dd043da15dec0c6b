"""Ctrl-C at every point of a job: it is never lost, never tears anything apart, and leaves Python's handler in place.

Signals are raised by a profile hook at chosen calls of the main thread, so that a point that failed once fails always.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest

import stretto as st
from jobs import some_ratings
from ring_fleet import InProcess
from stretto.runtime import interrupts
from stretto.runtime.blocks.team import Team, TeamCall
from stretto.runtime.interrupts import (
    check_ctrl_c,
    deferring_ctrl_c,
    heeding_ctrl_c,
    raising_ctrl_c,
    shielding_ctrl_c,
)

DATA = some_ratings(3000, 100, 80)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


class Job:
    """Something that can be asked."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert interrupts._Running.now is None


# --- the blocks -------------------------------------------------------------------------------------------------------


def inside(block: Any, *actions: Callable[[], Any]) -> tuple[int, bool]:
    """How many of these were done in a block, and whether KeyboardInterrupt came out of it."""
    done = 0
    try:
        with block:
            for action in actions:
                action()
                done += 1
    except KeyboardInterrupt:
        return done, True
    return done, False


def nothing() -> None:
    pass


def test_at_once_where_it_is_raised() -> None:
    assert inside(raising_ctrl_c(), press, nothing) == (0, True)


class Dropping:
    """A finalizer in which Ctrl-C is pressed: Python prints the exception and goes on."""

    def __del__(self) -> None:
        press()


def drop() -> None:
    Dropping()
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("block", [raising_ctrl_c, deferring_ctrl_c])
def test_one_that_was_dropped_is_raised_later(block: Any) -> None:
    """At the next check, at the end of the block, or when another begins."""
    assert inside(block(), drop, nothing, check_ctrl_c, nothing) == (2, True)
    assert inside(block(), drop, nothing) == (2, True)
    job = Job()
    assert inside(block(), drop, lambda: inside_of_another(job), nothing) == (1, True)
    assert not job.asked


def inside_of_another(job: Job) -> None:
    with heeding_ctrl_c(job):
        raise AssertionError("a job must not begin")


def test_deferred_until_it_is_checked() -> None:
    assert inside(deferring_ctrl_c(), press, nothing, check_ctrl_c, nothing) == (2, True)
    assert inside(deferring_ctrl_c(), press, nothing) == (2, True)


def test_a_second_one_is_raised_at_once() -> None:
    for block in (deferring_ctrl_c(), shielding_ctrl_c(), heeding_ctrl_c(Job())):
        assert inside(block, press, nothing, press, nothing) == (2, True)


def test_a_job_is_asked_and_whoever_opened_the_block_is_told() -> None:
    job = Job()
    with heeding_ctrl_c(job) as ctrl_c:
        assert not ctrl_c.heard()
        press()
        check_ctrl_c()  # it is heeded
        assert ctrl_c.heard()
    assert job.asked == 1


def test_one_that_came_too_late_to_be_heard_is_raised() -> None:
    job = Job()
    ctrl_c = heeding_ctrl_c(job)
    assert inside(ctrl_c, ctrl_c.heard, press) == (2, True)
    assert job.asked == 1


def test_the_outermost_job_is_asked() -> None:
    outer, inner = Job(), Job()
    with raising_ctrl_c(), heeding_ctrl_c(outer) as first, deferring_ctrl_c(), heeding_ctrl_c(inner) as second:
        press()
        check_ctrl_c()
        assert (first.heard(), second.heard()) == (True, False)
    assert (outer.asked, inner.asked) == (1, 0)


def test_a_job_inside_a_block_that_raises() -> None:
    """Heeded by the job alone: the block around it has nothing left to raise."""
    job, reached = Job(), []
    with raising_ctrl_c():
        with heeding_ctrl_c(job) as ctrl_c:
            press()
            assert ctrl_c.heard()
        check_ctrl_c()
        reached.append(1)
        with deferring_ctrl_c():
            reached.append(2)
    assert (job.asked, reached) == (1, [1, 2])


def test_tidying_up_is_not_kept_from_beginning() -> None:
    tidied = []

    def work() -> None:
        try:
            press()
        finally:
            with shielding_ctrl_c():
                tidied.append(1)

    assert inside(raising_ctrl_c(), work) == (0, True)
    assert tidied == [1]


def test_an_error_is_not_replaced() -> None:
    def fail() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        inside(deferring_ctrl_c(), press, fail)


def test_another_thread_has_no_signals() -> None:
    found: list[Any] = []

    def body() -> None:
        with raising_ctrl_c(), deferring_ctrl_c(), heeding_ctrl_c(Job()) as ctrl_c:
            found.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
            check_ctrl_c()
            found.append(ctrl_c.heard())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert found == [True, False]


def test_a_handler_of_somebody_else_stays() -> None:
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with raising_ctrl_c(), heeding_ctrl_c(Job()) as ctrl_c:
            press()
            check_ctrl_c()
            assert not ctrl_c.heard()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


def test_a_handler_that_was_installed_meanwhile_stays() -> None:
    def other(number: int, frame: Any) -> None:
        pass

    try:
        with raising_ctrl_c():
            signal.signal(signal.SIGINT, other)
        assert signal.getsignal(signal.SIGINT) is other
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# --- waiting for workers ----------------------------------------------------------------------------------------------


def test_interrupted_between_taking_the_lock_and_saying_so() -> None:
    """The moment at which a wait used to keep the lock that everybody after it waits for."""
    team = Team(1)
    try:
        call = team.call(lambda: None, [()])
        assert call.wait(10)
        call._over = cast(Any, _Taken())
        call._ended = False
        with pytest.raises(KeyboardInterrupt):
            call.wait()
        call._ended = True  # as the last member says before it lets go of the lock
        assert call.wait(10)
    finally:
        team.close()


class _Taken:
    def acquire(self, timeout: float) -> bool:
        raise KeyboardInterrupt


def test_waits_for_so_long_and_no_longer() -> None:
    team, go = Team(2), threading.Event()
    try:
        call: TeamCall = team.call(lambda: go.wait(60), [(), ()])
        assert not call.wait(0.0)
        assert not call.wait(0.01)
        go.set()
        assert call.wait(60)
        assert call.wait(0.0)
    finally:
        go.set()
        team.close()


# --- at every point of a job ------------------------------------------------------------------------------------------


class At:
    """Presses Ctrl-C at the n-th call that the main thread makes, of Python or C functions; counts them without one."""

    def __init__(self, point: int = -1) -> None:
        self.point, self.calls, self.where = point, 0, ""

    def __enter__(self) -> At:
        sys.setprofile(self._hook)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _hook(self, frame: Any, event: str, arg: Any) -> None:
        if event not in ("call", "c_call"):
            return
        self.calls += 1
        if self.calls == self.point:
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} {event} {getattr(arg, '__name__', '')}"
            press()


def factorise(runtime: Any) -> Callable[[], Any]:
    return lambda: st.MatrixFactorization(n_components=4, max_iter=6, random_state=0, runtime=runtime).fit(DATA)


def sweep(x: Any, y: Any) -> None:
    for i in range(200):
        for j in range(3):
            x[i, j] = x[i, j] * 0.5 + y[j]


def loop(runtime: Any) -> Callable[[], Any]:
    made = st.parallel(runtime=runtime)(sweep)
    x, y = np.ones((200, 3)), np.ones(3)

    def run() -> None:
        for _ in range(5):
            made(x, y)

    return run


def lasso(runtime: Any) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 20)), rng.standard_normal(60)
    model: Any = st.Lasso(alpha=0.05, runtime=runtime)
    return lambda: model.fit(X, y)


def tables(runtime: Any) -> Callable[[], Any]:
    def worker(w: Any) -> None:
        for _ in w.clocks(20):
            w.table("x").add([w.number], [1.0])
            w.table("x").read()

    def run() -> None:
        result = st.run(worker, workers=3, tables={"x": st.tables.Table(rows=3)}, runtime=runtime)
        if result.stopped == "interrupted":
            raise KeyboardInterrupt

    return run


JOBS = {
    "factorise on threads": (factorise, lambda: st.Threads(2)),
    "factorise in serial": (factorise, st.Serial),
    "factorise on nodes": (factorise, lambda: InProcess(2)),
    "loop on threads": (loop, lambda: st.Threads(2)),
    "loop on nodes": (loop, lambda: InProcess(2)),
    "lasso on threads": (lasso, lambda: st.Threads(2)),
    "tables on threads": (tables, lambda: st.Threads(2)),
    "tables in serial": (tables, st.Serial),
    "tables simulated": (tables, lambda: st.Simulated(nodes=2)),
}


@contextmanager
def nothing_dropped_unseen() -> Iterator[list[Any]]:
    """Exceptions that Python can only print."""
    found: list[Any] = []
    before, sys.unraisablehook = sys.unraisablehook, found.append
    try:
        yield found
    finally:
        sys.unraisablehook = before


# Between `open` and `with` the file is nobody's: the collector closes it, with this warning.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("points", [25, pytest.param(400, marks=pytest.mark.slow)])
def test_at_any_call_of_a_job(name: str, points: int) -> None:
    made, runtime = JOBS[name]
    run: Callable[[], Any] = made(cast(Any, runtime)())
    run()  # what has to be compiled is compiled
    with At() as counting:
        run()
    assert counting.calls > 100
    rng = np.random.default_rng(points)
    for point in sorted(rng.choice(np.arange(1, counting.calls), min(points, counting.calls - 1), replace=False)):
        at = At(int(point))
        try:
            with nothing_dropped_unseen(), at:
                run()
        except KeyboardInterrupt:
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, at.where
            continue
        # Fewer calls than were counted: a thread was quicker this time, and the point was never reached.
        assert not at.where, f"Ctrl-C was lost at call {point} of {counting.calls}: {at.where}"
        assert at.calls < point
    run()
