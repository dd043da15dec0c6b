"""Jobs over tables on `Serial`: the reference that other runtimes are compared with.

No caches, no shards, no messages. Logical workers take turns, in order of their numbers: each runs until it ticks or
ends. When all have, the clock is complete and the changes are applied, one worker after the other, each row with the
sum of what the worker added to it. A read returns the row as it was when the clock began plus what the reader itself
has added in this clock (where the server function simply adds; otherwise without). That is BSP; SSP and ASP allow it
too, so every rule runs on it.

The server functions are implemented a second time, in NumPy, so that an error in the compiled ones shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import greenlet
import numpy as np
from numpy.typing import NDArray

from stretto.comm.codec import round_f2, travels_short
from stretto.comm.messages import Keys
from stretto.errors import PlanError
from stretto.runtime.interrupts import heeding_ctrl_c
from stretto.store.index import longer
from stretto.store.layout import Layout, TableSpec

from .array_locks import RowAccess
from .job import FAR, ClockState, FinalRows, TableJob, TableOutcome
from .run.evaluations import Evaluate, Evaluations
from .run.table_run import TableRun

Floats = NDArray[Any]


def run(job: TableJob) -> TableOutcome:
    """Run a job to its end."""
    if job.keeping is not None:
        raise PlanError(
            "st.Serial() is a reference to compare with and saves no checkpoints; use st.Threads(1) with checkpoint="
        )
    if job.record is not None:
        raise PlanError(
            "record= was given, but st.Serial() sends no messages that could be recorded; leave out record="
        )
    return _Serial(job).run()


class _Table:
    """Rows in the order of their first use. `at`: key → row number. `old`: the rows when the clock began."""

    def __init__(self, layout: Layout, number: int) -> None:
        self.layout, self.number, self.spec = layout, number, layout.tables[number]
        spec = self.spec
        spec.apply.check(spec.name, spec.dtype)
        self.short = travels_short(spec.dtype, layout.policy.codec)
        self.at: dict[int, int] = {}
        # By row number, with spare capacity for new rows.
        self.values = np.empty((0, spec.cols), dtype=spec.kept)
        self.states = np.empty((0, spec.apply.states, spec.cols), dtype=_real(spec))
        params = spec.apply.params
        if spec.apply.rule == "average":
            params = params or (float(layout.workers),)
        elif spec.apply.rule == "proximal":  # step, threshold, divisor
            step, l1, l2 = params
            params = (step, step * l1, 1.0 + step * l2)
        self.params = np.array(params, dtype=_real(spec))

    def rows(self, keys: Keys) -> NDArray[np.int64]:
        """Row numbers of keys; missing rows are created."""
        new = sorted({key for key in keys.tolist() if key not in self.at})
        if new:
            made = np.array(new)
            values, states = _begin(self.layout, self.number, made)
            first, last = len(self.at), len(self.at) + len(new)
            self.at.update((key, first + place) for place, key in enumerate(new))
            if last > len(self.values):
                capacity = max(last, 2 * len(self.values))
                self.values, self.states = longer(self.values, capacity), longer(self.states, capacity)
            self.values[first:last], self.states[first:last] = values, states
        return np.array([self.at[key] for key in keys.tolist()], dtype=np.int64)

    def apply(self, rows: NDArray[np.int64], g: Floats, old: Floats) -> None:
        """Apply one worker's changes.

        Parameters
        ----------
        rows : [n] array of int
            Row numbers, each once.
        g : [n, cols] array
            Changes.
        old : [n, cols] array
            The rows when the clock began.
        """
        function, params = self.spec.apply, self.params
        w, s = self.values[rows], self.states[rows]
        if function.rule == "add":
            w += g
        elif function.rule == "average":
            w += g / params[0]
        elif function.rule == "adagrad":
            s[:, 0] += g * g
            w -= params[0] / np.sqrt(s[:, 0]) * g
        elif function.rule == "proximal":
            x, zero = w - params[0] * g, params[0] - params[0]
            w = (np.maximum(x - params[1], zero) + np.minimum(x + params[1], zero)) / params[2]
        elif function.rule == "adarevision":
            b = s[:, 0] - old
            before = params[0] / np.sqrt(s[:, 2])
            s[:, 1] += g * g + (g * b + g * b)
            s[:, 2] = np.maximum(s[:, 2], s[:, 1])
            after = params[0] / np.sqrt(s[:, 2])
            w += (before - after) * b - after * g
            s[:, 0] += g
        else:
            w, s = _by_user(function.apply, w, s, g, old if function.versioned else old[:0], params)
        self.values[rows], self.states[rows] = w, s

    def snapshot(self, rows: NDArray[np.int64]) -> Floats:
        which = self.spec.apply.snapshot
        return self.values[rows] if which is None or which < 0 else self.states[rows, which]


class _SerialWorker:
    """A worker that runs until it ticks."""

    node = 0

    def __init__(self, serial: _Serial, worker: int) -> None:
        self.serial, self.worker, self.clock = serial, worker, 0
        self.local: dict[str, Any] = {}
        self.cursors: list[list[int]] = []
        self.own: list[dict[int, Floats]] = [{} for _ in serial.tables]  # key → what this worker added in this clock
        self.items = 0.0
        self.ended = self.unticked = False

    def read(self, table: int, keys: Keys, out: NDArray[Any]) -> None:
        found = self.serial.tables[table]
        rows = found.rows(keys)  # may create new ones
        out[:] = found.values[rows]
        if found.short:
            out[:] = round_f2(out)
        if found.spec.own_writes:
            own = self.own[table]
            for place, key in enumerate(keys.tolist()):
                if key in own:
                    out[place] += own[key]

    def ask(self, table: int, keys: Keys) -> None:
        pass

    def add(self, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        own = self.own[table]
        for place, key in enumerate(keys.tolist()):
            if key in own:
                own[key] += deltas[place]
            else:
                own[key] = deltas[place].copy()

    def announce(self, table: int, keys: Keys, clock: int) -> None:
        pass

    def tick(self) -> None:
        self.clock += 1
        self.serial.turn()

    def work(self, items: float) -> None:
        self.items += items

    def seconds(self) -> None:
        return None

    def shared(self, table: int) -> tuple[NDArray[Any], Any]:
        return self.serial.arrays[table], RowAccess(1, 0)


class _Serial:
    def __init__(self, job: TableJob) -> None:
        self.job, self.layout = job, job.layout(1)
        self.tables = [_Table(self.layout, number) for number in range(len(job.tables))]
        self.arrays = {t: job.whole.start_rows(t, np.arange(job.tables[t].rows or 0)) for t in sorted(job.shared)}
        self.clients = [_SerialWorker(self, worker) for worker in range(job.workers)]
        self.state = TableRun(job.workers, 1, evaluations=Evaluations.of(job, exact=True))
        self._main: Any = greenlet.getcurrent()
        self._began = time.perf_counter()

    def ask(self) -> None:
        """Handle Ctrl-C: end when the clock is complete."""
        self.state.interrupt()

    def turn(self) -> None:
        """Switch to the next worker."""
        self._main.switch()

    def run(self) -> TableOutcome:
        workers = [greenlet.greenlet(self._body(client)) for client in self.clients]
        with heeding_ctrl_c(self) as ctrl_c:
            self._evaluate(self.state.begin(0.0))
            while not self.state.stopped and not all(client.ended for client in self.clients):
                for client, worker in zip(self.clients, workers, strict=True):
                    if not client.ended:
                        worker.switch()
                self._close()
            for worker in workers:
                if not worker.dead:
                    worker.throw()  # it has not finished: this ends it silently
            ctrl_c.heard()
        seconds = time.perf_counter() - self._began
        self._evaluate(self.state.ended())
        return TableOutcome(
            tables=tuple(self._rest(number) for number in range(len(self.tables))),
            clocks=tuple(client.clock for client in self.clients),
            seconds=seconds,
            local=tuple(client.local for client in self.clients),
            stopped=self.state.stopped or "done",
            history=self.state.history,
            items=sum(client.items for client in self.clients),
        )

    def _body(self, client: _SerialWorker) -> Callable[[], None]:
        def body() -> None:
            try:
                self.job.work(client)
            except Exception as error:
                self.job.blame(client.worker, client.clock, error)
            finally:
                client.ended = True

        return body

    def _close(self) -> None:
        """Apply what every worker added in this clock, in the order of their numbers."""
        for number, table in enumerate(self.tables):
            every = sorted({key for client in self.clients for key in client.own[number]})
            old = dict(zip(every, table.snapshot(table.rows(np.array(every, dtype=np.int64))), strict=True))
            for client in self.clients:
                own, client.own[number] = client.own[number], {}
                if not own:
                    continue
                keys = np.array(sorted(own))
                g = np.stack([own[key] for key in keys.tolist()])
                if table.short:  # the worker keeps the rounding residual for the next clock
                    sent = round_f2(g)
                    left = g - sent
                    if not client.ended:
                        client.own[number] = {int(k): row for k, row in zip(keys, left, strict=True) if row.any()}
                    g = sent
                table.apply(table.rows(keys), g, np.stack([old[key] for key in keys.tolist()]))
        for client in self.clients:
            self.state.moved(client.worker, FAR if client.ended else client.clock, client.clock)
        clock = self.state.most
        self.state.time(time.perf_counter() - self._began, clock - 1)  # evaluations that are due now use this clock
        self._evaluate(self.state.closed(clock))

    def _evaluate(self, due: list[Evaluate]) -> None:
        for at in due:
            began = time.perf_counter()
            local = tuple(client.local for client in self.clients)
            try:
                moment = ClockState(at.clock, began - self._began, 0, self._values, local)
                self.state.evaluated(*self.job.evaluate(moment))
            except Exception as error:
                self.job.blame(-1, at.clock, error)
            self._began += time.perf_counter() - began

    def _values(self, number: int) -> tuple[Keys, NDArray[Any]]:
        rest = self._rest(number)
        return rest.keys, rest.values

    def _rest(self, number: int) -> FinalRows:
        if number in self.arrays:
            return FinalRows(np.arange(len(self.arrays[number])), self.arrays[number].copy())
        table = self.tables[number]
        keys = np.array(list(table.at), dtype=np.int64)
        states = tuple(table.states[: len(keys), k].copy() for k in range(table.states.shape[1]))
        return FinalRows(keys, table.values[: len(keys)].copy(), states)


def _begin(layout: Layout, number: int, keys: Keys) -> tuple[Floats, Floats]:
    """values [n, cols] and states [n, states, cols] of new rows."""
    spec = layout.tables[number]
    values, given = layout.start_rows(number, keys), layout.start_states(number, keys)
    states = np.empty((len(keys), spec.apply.states, spec.cols), dtype=_real(spec))
    for k, start in enumerate(spec.apply.starts):
        states[:, k] = start if given is None else given[k]
    if spec.apply.create is not None and given is None:
        from stretto.kernels.tables.server_functions import user_create

        user_create(spec.apply.create)(values, states, keys)
    return values, states


def _real(spec: TableSpec) -> np.dtype[Any]:
    """The dtype of the server function's arrays."""
    return spec.kept if spec.kept.kind == "f" else np.dtype("f8")


def _by_user(apply: Any, w: Floats, s: Floats, g: Floats, old: Floats, params: Floats) -> tuple[Floats, Floats]:
    """A user's function, compiled as the shards compile it: there is no second implementation."""
    from stretto.kernels.tables.server_functions import user_apply

    for array in (g, old, params):
        array.flags.writeable = False
    user_apply(apply)(w, s, np.arange(len(w)), g, old, params, np.ones(len(w)))
    return w, s
