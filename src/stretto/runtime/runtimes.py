"""Where a plan runs: `Serial`, the truth, and `Threads`, the default.

Both hand the same compiled worker the same arrays. Serial makes the visits one after another in the order's own
numbering; Threads starts one worker per thread, and the workers claim ready visits by themselves. Python only starts
them and waits.

    with Threads(2).open() as crew:
        done = crew.run(step, profile="exact")

A crew lives as long as a run: threads are started once, nothing is global, so two fits at once and a fork in between
are safe.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.kernels import claims
from stretto.kernels.clock import read_cycles
from stretto.schedule.order import Ints

from . import passes
from .cpus import workers_from
from .step import Done, Step


class Crew:
    """The threads of one run."""

    def __init__(self, workers: int, serial: bool) -> None:
        self.workers = workers
        self.serial = serial
        # Even one worker gets a thread of its own, so that the main thread stays free to notice Ctrl-C.
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="stretto")
        self._running: claims.Pass | None = None

    def run(self, step: Step, profile: str, finished: Ints | None = None, seconds: float | None = None) -> Done:
        """Make every visit of the step; those in `finished` are already made.

        Ctrl-C (KeyboardInterrupt), or `seconds` gone by, stops the claiming; running visits end, and the result says
        what was finished. `step.before` is called first, `step.after` when all visits are made.
        """
        if step.before is not None:
            step.before(finished is None)
        script = None
        if self.serial:
            script = np.setdiff1d(np.arange(len(step.order)), finished if finished is not None else [])
        pass_ = passes.start(step.order, step.weight, finished=finished, script=script)
        compiled = step.kernel[profile]
        interrupted = False
        self._running = pass_
        began, cycles = time.perf_counter_ns(), read_cycles()
        futures: list[Future[Any]] = [
            self._pool.submit(compiled, pass_, worker, step.out, *step.args) for worker in range(self.workers)
        ]
        try:
            if wait(futures, timeout=seconds).not_done:
                self.stop()
                wait(futures)
        except KeyboardInterrupt:
            interrupted = True
            self.stop()
            wait(futures)
        nanoseconds, cycles_gone = time.perf_counter_ns() - began, read_cycles() - cycles
        self._running = None
        for future in futures:
            future.result()
        log = passes.logged(pass_)
        log[:, 2:] = (log[:, 2:] - cycles) * (nanoseconds / max(1, cycles_gone))
        made = log[:, 0] if finished is None else np.union1d(log[:, 0], finished)
        whole = len(made) == len(step.order) and not interrupted
        if whole and step.after is not None:
            step.after()
        failed = int(pass_.control[claims.FAILED])
        return Done(
            step,
            seconds=nanoseconds / 1e9,
            log=log,
            finished=None if whole else np.sort(made),
            failed=failed - 1 if failed else None,
            interrupted=interrupted,
        )

    def stop(self) -> None:
        """Ask the running step to end after the visits now being made."""
        if self._running is not None:
            self._running.control[claims.STOP] = 1

    def close(self) -> None:
        self._pool.shutdown(wait=True)


@dataclass(frozen=True)
class Serial:
    """One visit after another: the truth every other runtime is compared with."""

    @property
    def workers(self) -> int:
        return 1

    @contextmanager
    def open(self) -> Iterator[Crew]:
        crew = Crew(1, serial=True)
        try:
            yield crew
        finally:
            crew.close()


@dataclass(frozen=True)
class Threads:
    """`n` threads of this process over shared arrays; None takes every core the process may use."""

    n: int | None = None

    @property
    def workers(self) -> int:
        return workers_from(self.n)

    @contextmanager
    def open(self) -> Iterator[Crew]:
        crew = Crew(self.workers, serial=False)
        try:
            yield crew
        finally:
            crew.close()


Runtime = Serial | Threads
