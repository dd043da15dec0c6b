"""A job over tables on a cluster, from the driver's side.

Hosts run the workers; the driver hears how far they are, puts cuts together, looks at the objective, saves, and begins
again from the last whole cut when a host is lost. Every look is a cut, and every cut is a checkpoint.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.errors import RunError
from stretto.runtime.checkpoint import interval_seconds, writing
from stretto.runtime.interrupts import heeding_ctrl_c
from stretto.runtime.served_cut import Cut, Part, Shelf
from stretto.runtime.serving import FAR, Moment, Outcome, Rest, TableJob, Watched
from stretto.runtime.stalls import Seen, Stalls, warn

from .cutting import Gathering, Pieces, split, whole
from .fleet import HostLost
from .hosting import Told
from .hosts import Hosts
from .spec import Cluster
from .table_events import Lives
from .table_rest import merged
from .table_task import CutPlan, TablePayload, make_table_task

_LOOK = 0.2  # seconds between two looks at the clock
_AHEAD = 0.3  # seconds of clocks by which a cut is planned ahead
_STILL = 60.0  # seconds without any news after which workers are asked what they do


def run(spec: Cluster, job: TableJob) -> Outcome:
    """Run a job to its end."""
    with Hosts(spec) as hosts:
        driver = _Driver(hosts, job)
        with writing(None if job.keeping is None else job.keeping.folder):
            return driver.run()


class _Driver:
    def __init__(self, hosts: Hosts, job: TableJob) -> None:
        self.hosts, self.job = hosts, job
        self.layout = job.layout(hosts.nodes, reserve=True)
        self.shelf = Shelf(job.keeping) if job.keeping is not None else None
        self.first = self.shelf.begin() if self.shelf is not None else Cut(0)
        self.last = self.first  # where it begins again after a loss
        self.history: list[Watched] = list(self.last.history)
        self._lives = Lives()
        self.stopped = "done"
        self._gathering = Gathering(hosts.nodes, job.workers)
        self._began = time.monotonic() - self.last.seconds
        self._watching = 0.0  # seconds spent looking, which do not count
        self._asked = False
        self._furthest = self.last.clock  # the clock that all workers had reached in some life
        self._saved_at, self._save_seconds = time.monotonic(), 0.05

    # -- from start to end -------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ctrl-C: end at the end of a clock."""
        self._asked = True

    def run(self) -> Outcome:
        with heeding_ctrl_c(self) as ctrl_c:
            while True:
                try:
                    self._begin()
                    self._follow()
                    if self.shelf is not None and self.stopped == "done":
                        self._save_end()
                    outcome = self._outcome()
                    if ctrl_c.heard() and outcome.stopped == "done":  # too late to stop anything, and told all the same
                        outcome.stopped = "interrupted"
                    return outcome
                except HostLost as lost:
                    self._lost(lost)

    def now(self) -> float:
        return time.monotonic() - self._began - self._watching

    def _begin(self) -> None:
        cut, job, layout = self.last, self.job, self.layout
        self._gathering.begin()
        self._low = [cut.clock] * layout.nodes
        self._most = cut.clock
        self._drained: set[int] = set()
        self._planned: int | None = None
        self._ending: int | None = None
        self._at_end = False  # the cut of the end is being made
        self._news = time.monotonic()
        self._life = (time.monotonic(), cut.clock)
        while self.history and self.history[-1].clock > cut.clock:
            self.history.pop()
        if not self.history:
            self._look(self._start())
        plain = replace(job, watch=None, until=None, keeping=None)
        every = [] if job.watch is None else [job.every]
        if job.keeping is not None and job.keeping.every is not None:
            every.append(job.keeping.every)
        starts = split(layout, cut.node) if cut.node is not None else None
        began_at = time.time() - self.now()

        def payload(host: int, nodes: list[int]) -> TablePayload:
            workers = [worker for node in nodes for worker in layout.workers_of(node)]
            return TablePayload(
                job=plain,
                layout=layout,
                start=None if starts is None else {node: starts[node] for node in nodes},
                parts={worker: cut.parts[worker] for worker in workers if worker in cut.parts},
                clock=cut.clock,
                cuts=CutPlan(tuple(every), cut.clock),
                began_at=began_at,
            )

        self.hosts.begin(make_table_task, payload)

    def _start(self) -> Pieces:
        """The tables before the first clock."""
        return Pieces(0, {worker: Part() for worker in range(self.job.workers)})

    def _follow(self) -> None:
        """Until all that workers added is at the shards, or somebody said it is enough."""
        stalls, look_at = Stalls(), time.monotonic()
        while len(self._drained) < self.layout.nodes:
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + stalls.after / 4
                self._look_for_stalls(stalls)
            if self.stopped == "until":
                self.hosts.ask("stop", None)
                return
            told = self.hosts.events(_LOOK)
            for event in told:
                self._take(event)
                if self.stopped == "until":
                    break
            if told:
                self._news = time.monotonic()
            elif time.monotonic() - self._news > _STILL:
                self._check_still()
            self._plan()

    def _save_end(self) -> None:
        """All workers have ended: save that, so that a run with more clocks can go on from here."""
        self._gathering.begin()
        self._at_end = all(self.hosts.ask("cut", None).values())
        until = time.monotonic() + _STILL
        while self._at_end and time.monotonic() < until:
            for event in self.hosts.events(_LOOK):
                self._take(event)

    def _lost(self, lost: HostLost) -> None:
        self.hosts.lose(lost, f"the run goes on from clock {self.last.clock}")
        self._lives.restart(self.now(), self.last.clock)

    # -- events ------------------------------------------------------------------------------------------------------

    def _take(self, event: Told) -> None:
        what, node, value = event.what, event.node, event.value
        if what == "moved":
            low, most = value
            self._low[node] = low
            self._most = max(self._most, most)
            if min(self._low) > self._furthest:
                self._furthest = min(self._low)
                self.hosts.progressed()
        elif what == "worker":
            clock, worker, part = value
            self._cut(self._gathering.worker(clock, worker, part))
        elif what == "node":
            clock, residuals = value
            self._cut(self._gathering.node(clock, node, residuals))
        elif what == "shard":
            clock, arrays, _, nbytes = value
            self._cut(self._gathering.shard(clock, node, arrays, self.now(), nbytes))
        elif what == "recorded":
            self._lives.take(node, *value)
        elif what == "drained":
            self._drained.add(node)
        elif what == "failed":
            worker, clock, error = value
            self._stop_quietly()
            if not isinstance(error, Exception):
                raise RunError(f"worker {worker} ended with {error!r} at clock {clock}")
            if hasattr(error, "add_note"):
                error.add_note(f"on {self.hosts.words(event.host)}")
            if worker < 0:
                raise error
            self.job.blame(worker, clock, error)

    def _cut(self, pieces: Pieces | None) -> None:
        """A cut is whole: look at it, keep it, save it if it is time."""
        if pieces is None:
            return
        job = self.job
        if self._at_end:
            pieces.clock = max(part.clock for part in pieces.seats.values()) + 1
        if self._planned == pieces.clock:
            self._planned = None
        if not self._at_end and job.watch is not None and pieces.clock % job.every == 0:
            self._look(pieces)
        self.hosts.progressed()
        self.last = Cut(
            pieces.clock,
            pieces.seats,
            whole(pieces.clock, pieces.shards.values(), pieces.residuals.values()),
            history=list(self.history),
            seconds=self.now(),
        )
        keeping = job.keeping
        if self.shelf is None or keeping is None:
            self._saved_at = time.monotonic()
            return
        by_clock = keeping.every is not None and pieces.clock % keeping.every == 0
        by_time = keeping.every is None and self._due() <= 0
        if by_clock or by_time or self._at_end or pieces.clock == self._ending:
            began = time.monotonic()
            self.shelf.save(self.last)
            self._saved_at = time.monotonic()
            self._save_seconds = self._saved_at - began
        self._at_end = False

    def _due(self) -> float:
        """Seconds until the next cut is worth its price."""
        interval = interval_seconds(self._save_seconds, mean_time_to_failure=86_400.0 / self.layout.nodes)
        return interval - (time.monotonic() - self._saved_at)

    def _plan(self) -> None:
        """Have a cut made when one is due and none is under way, or when the user wants to stop."""
        low = min(self._low)
        if low >= FAR or self._ending is not None or (self._planned is not None and not self._asked):
            return
        timed = self.job.keeping is None or self.job.keeping.every is None
        if not self._asked and not (timed and self._due() <= 0):
            return
        since, first = self._life
        each = (time.monotonic() - since) / max(1, low - first)
        clock = self._most + 2 + math.ceil(_AHEAD / max(each, 1e-6))
        if not all(self.hosts.ask("cut", clock).values()):
            self.hosts.ask("cancel", clock)  # somebody was there before: a little later, then
            return
        self._planned = clock
        if self._asked:
            self.stopped, self._ending = "interrupted", clock
            self.hosts.ask("stop", clock)

    def _stop_quietly(self) -> None:
        with contextlib.suppress(HostLost):  # an error is on its way to the user, and the hosts are ended with it
            self.hosts.halt()

    def _look_for_stalls(self, stalls: Stalls) -> None:
        """Tell the user of workers that do not tick."""
        standing = [seat for seats in self.hosts.ask("standing").values() for seat in seats if not seat.ended]
        warn(stalls.see(time.monotonic(), {seat.worker: Seen(seat.clock, seat.waits) for seat in standing}))

    def _check_still(self) -> None:
        """No news for long: fine while somebody computes; if all wait for each other, that is our mistake."""
        standing = [seat for seats in self.hosts.ask("standing").values() for seat in seats if not seat.ended]
        if any(not seat.waits for seat in standing):
            self._news = time.monotonic()
            return
        where = ", ".join(f"worker {seat.worker} at clock {seat.clock} ({seat.waits})" for seat in standing[:8])
        raise RunError(
            f"the run has stood still for {_STILL:g} s: {where or 'all workers have ended'}; {len(self._drained)} of "
            f"{self.layout.nodes} shards are through; please report this"
        )

    # -- looking -----------------------------------------------------------------------------------------------------

    def _look(self, pieces: Pieces) -> None:
        job = self.job
        if job.watch is None or (self.history and self.history[-1].clock >= pieces.clock):
            return
        began, seconds = time.monotonic(), pieces.seconds or self.now()

        def values(table: int) -> tuple[Keys, NDArray[Any]]:
            spec = self.layout.tables[table]
            if not pieces.shards:
                return np.empty(0, np.int64), np.empty((0, spec.cols), spec.kept)
            parts = pieces.shards.values()
            keys = np.concatenate([part[f"{spec.name}/keys"] for part in parts])
            return keys, np.concatenate([part[f"{spec.name}/values"] for part in parts])

        local = tuple(pieces.seats[worker].local for worker in range(job.workers))
        try:
            moment = Moment(pieces.clock, seconds, pieces.nbytes, values, local)
            look = Watched(pieces.clock, seconds, pieces.nbytes, float(job.watch(moment)))
            self.history.append(look)
            if job.until is not None and job.until(look):
                self.stopped = "until"
        except Exception as error:
            self._stop_quietly()
            job.blame(-1, pieces.clock, error)
        self._watching += time.monotonic() - began

    def _outcome(self) -> Outcome:
        found = self.hosts.ask("final", timeout=_STILL)
        seconds = self.now()
        rests = sorted((rest for nodes in found.values() for rest in nodes.values()), key=lambda rest: rest.node)
        recording = merged(self.layout, self.job.record, rests, self._lives, self.first)
        recording.seconds = seconds
        if self.stopped == "until":  # with what was looked at, not with what came after
            recording.closed = min(rest.closed for rest in rests)
            tables, clocks, local = self._as_cut()
        else:
            tables = tuple(_joined([rest.tables[table] for rest in rests]) for table in range(len(self.layout.tables)))
            clocks = {worker: clock for rest in rests for worker, clock in rest.clocks.items()}
            local = {worker: kept for rest in rests for worker, kept in rest.local.items()}
            self._last_look(tables, max(clocks.values()), local, recording.bytes)
        lag = np.zeros((self.job.workers, 32), np.int64)
        for rest in rests:
            workers = self.layout.workers_of(rest.node)
            lag[workers.start : workers.stop] = rest.staleness
        return Outcome(
            tables,
            tuple(clocks[worker] for worker in range(self.job.workers)),
            seconds,
            tuple(local[worker] for worker in range(self.job.workers)),
            self.stopped,
            self.history,
            lag,
            recording.traffic(),
            recording,
            sum(rest.items for rest in rests),
        )

    def _as_cut(self) -> tuple[tuple[Rest, ...], dict[int, int], dict[int, dict[str, Any]]]:
        """Tables, and the workers' clocks and local values, of the last cut."""
        cut, tables = self.last, []
        for spec in self.layout.tables:
            if cut.node is None:
                tables.append(Rest(np.empty(0, np.int64), np.empty((0, spec.cols), spec.kept)))
                continue
            arrays = {name: cut.node.shard[f"{spec.name}/{name}"] for name in ("keys", "values", "state")}
            state = arrays["state"]
            states = tuple(state[:, which] for which in range(state.shape[1]))
            tables.append(Rest(arrays["keys"], arrays["values"], states))
        parts = {worker: cut.parts.get(worker, Part()) for worker in range(self.job.workers)}
        clocks = {worker: part.clock for worker, part in parts.items()}
        return tuple(tables), clocks, {worker: part.local for worker, part in parts.items()}

    def _last_look(self, tables: tuple[Rest, ...], clock: int, local: dict[int, dict[str, Any]], nbytes: int) -> None:
        if self.stopped != "done" or self.job.watch is None:
            return
        shards: dict[str, NDArray[Any]] = {}
        for spec, rest in zip(self.layout.tables, tables, strict=True):
            shards |= {f"{spec.name}/keys": rest.keys, f"{spec.name}/values": rest.values}
        seats = {worker: Part(kept) for worker, kept in local.items()}
        self._look(Pieces(clock, seats, {}, {0: shards}, self.now(), nbytes))


def _joined(rests: list[Rest]) -> Rest:
    states = zip(*(rest.states for rest in rests), strict=True)
    return Rest(
        np.concatenate([rest.keys for rest in rests]),
        np.concatenate([rest.values for rest in rests]),
        tuple(np.concatenate(parts) for parts in states),
    )
