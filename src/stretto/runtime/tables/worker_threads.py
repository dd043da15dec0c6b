"""Threads of the workers of a job in this process: they take turns, wait for the node, and end together.

At most `threads` of them run at a time (`runtime.tables.turn_order`). One lock guards everything except reads and adds
that need none. A subclass says what a tick means (`tick`) and what follows when a worker ends (`left`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.errors import RunError
from stretto.runtime import kept_threads

from .array_locks import RowAccess
from .job import TableJob, WorkerExit
from .stalls import Stalls, WorkerPosition, warn
from .thread_worker import ThreadWorker
from .turn_order import TurnOrder

POLL_SECONDS = 0.5  # a signal that arrives just before a wait begins is noticed when the wait ends
OURS = -2  # worker number of an error in Stretto itself; −1 is the objective function


class WorkerThreads(ABC):
    """The threads of one run.

    Attributes
    ----------
    node : StoreNode or LocalNode
        The tables; set by the subclass, and so are the others.
    clients : sequence of ThreadWorker
        The workers.
    free : list of bool
        By table: reads and adds need no lock.
    arrays, access : dict
        By shared table: its array, and how its rows are accessed.
    """

    node: Any
    clients: Sequence[ThreadWorker]
    free: list[bool]
    arrays: dict[int, NDArray[Any]]
    access: dict[int, RowAccess]

    def __init__(self, job: TableJob, threads: int) -> None:
        self.job = job
        self.turns = TurnOrder(threads)
        self.lock = self.turns.lock
        self._failure: tuple[int, int, BaseException] | None = None
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._began = time.perf_counter()

    def now(self) -> float:
        """Seconds of the run."""
        return time.perf_counter() - self._began

    # -- for subclasses -----------------------------------------------------------------------------------------------

    @abstractmethod
    def tick(self, client: ThreadWorker) -> None:
        """End a worker's clock."""

    @abstractmethod
    def left(self, client: ThreadWorker) -> None:
        """A worker's function has returned; with the lock held."""

    def waited(self, client: ThreadWorker, what: str, seconds: float) -> None:  # noqa: B027 (may be left out)
        """A worker has waited."""

    def due_in(self) -> float:
        """Seconds until `due` is called; infinity without timers."""
        return float("inf")

    def due(self) -> None:  # noqa: B027
        """A timer has ended; with the lock held."""

    def take(self, event: Any) -> None:  # noqa: B027
        """Handle an event of `_events` other than the end of a thread."""

    # -- the calling thread -------------------------------------------------------------------------------------------

    def start_and_wait(self, before: Callable[[], None], bodies: Sequence[Callable[[], None]] | None = None) -> None:
        """Start threads after `before` (with the lock held); returns when all have ended. bodies: what each does; None:
        each runs the function of one worker.
        """
        if bodies is None:
            bodies = [partial(self._work, client) for client in self.clients if not client.ended]
        threads: list[kept_threads.Running] = []
        try:
            with self.lock:
                before()
            for number, body in enumerate(bodies):
                threads.append(kept_threads.start(f"stretto-worker-{number}", self._body, body))
            self._serve(len(threads))
        except BaseException:
            with self.lock:
                self.turns.end(self.clients)
            raise
        for thread in threads:
            thread.join()

    def raise_failure(self) -> None:
        """Raise the first error of a worker, as `job.blame` says it."""
        if self._failure is not None:
            worker, clock, error = self._failure
            if worker == OURS or not isinstance(error, Exception):
                raise error
            self.job.blame(worker, clock, error)

    def _serve(self, left: int) -> None:
        stalls = Stalls()
        while left:
            warn(stalls.see(time.monotonic(), self._seen()))
            due = self.due_in()
            try:
                event = self._events.get(timeout=max(0.0, min(due, POLL_SECONDS)))
            except Empty:
                if due <= POLL_SECONDS:
                    with self.lock:
                        self.due()
                continue
            if event == "ended":
                left -= 1
            else:
                self.take(event)

    def _seen(self) -> dict[int, WorkerPosition]:
        """The status of all workers; one without a turn waits for one."""
        return {
            s.worker: WorkerPosition(s.clock, "" if s.turn and not s.parked else "turn")
            for s in self.clients
            if not s.ended
        }

    # -- the workers' threads -----------------------------------------------------------------------------------------

    def _body(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._events.put("ended")

    def _work(self, client: ThreadWorker) -> None:
        try:
            with self.lock:
                self.turns.take(client)
            if not self.turns.ending:
                self.job.work(client)
            with self.lock:
                self._leave(client)
        except WorkerExit:
            with self.lock:
                self._leave(client)
        except BaseException as error:
            with self.lock:
                self.fail(client.worker, client.clock, error)
        finally:
            with self.lock:
                self.turns.drop(client)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Hold the lock; wake workers whose wait is over at the end."""
        with self.lock:
            if self.turns.ending:
                raise WorkerExit
            yield
            self.wake()

    def read(self, client: ThreadWorker, table: int, keys: Keys, out: NDArray[Any]) -> None:
        """Read under the lock, and wait while the consistency rule does not allow it."""
        with self.inside():
            began = self.now()
            waited = False
            while not self.node.read(self.now(), client.worker, table, keys, out):
                waited = True
                self.wake()
                self.park(client)
            if waited:
                self.waited(client, "read", self.now() - began)

    def _leave(self, client: ThreadWorker) -> None:
        if self.turns.ending:
            return
        client.ended = True
        self.left(client)
        self.wake()
        self._check_parked()

    def park(self, client: ThreadWorker) -> None:
        """Wait until woken."""
        client.parked = True
        self._check_parked()
        self.turns.park(client)

    def wake(self) -> None:
        """Wake the workers that the node names."""
        woken = self.node.woken
        if woken:
            for worker in woken:
                self.turns.rouse(self.clients[worker])
            woken.clear()

    def expects(self) -> bool:
        """Whether something from outside will wake a worker; otherwise it is a bug if all of them wait."""
        return False

    def _check_parked(self) -> None:
        """Fail if all workers wait for each other: that is a bug in Stretto, and the run must not hang."""
        stuck = [] if self.turns.ending else self.stuck()
        if stuck:
            where = ", ".join(f"{client.worker} at clock {client.clock}" for client in stuck[:5])
            most = max(client.clock for client in stuck)
            self.fail(OURS, most, RunError(f"all workers wait ({where}); please report this"))

    def stuck(self) -> list[ThreadWorker]:
        """Workers that all wait for each other, with nothing on its way to wake them."""
        alive = [client for client in self.clients if not client.ended]
        return alive if all(client.parked for client in alive) and not self.expects() else []

    def fail(self, worker: int, clock: int, error: BaseException) -> None:
        """The first error ends the run."""
        if self._failure is None and not self.turns.ending:
            self._failure = (worker, clock, error)
        self.turns.end(self.clients)
