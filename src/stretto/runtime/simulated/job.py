"""A job over tables on a simulated cluster: nodes, network, workers, faults and checkpoints put together.

What the door hands over and gets back, and what a worker's handle sits on, is `stretto.runtime.serving`: TableJob in,
Outcome out, a Seat for each worker (here `seats.SimulatedSeat`).

    from stretto.runtime.simulated.job import run
    outcome = run(Simulated(nodes=4), job)

Whenever something has been done with a node, `Cluster.after(node)` carries out what it said: frames go to the network,
woken workers go on, the next poll is asked for, and whoever waits for a shard's clock is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.link import Frame
from stretto.comm.messages import Keys
from stretto.consistency.clocks import Clocks
from stretto.errors import RunError
from stretto.runtime.interrupts import heeding_ctrl_c
from stretto.runtime.serving import FAR, Ended, Moment, Outcome, Rest, TableJob, Watched
from stretto.store.node import Node, NodePart
from stretto.store.recording import Recording
from stretto.store.shard import Past

from .hub import Hub
from .network import Network, Train
from .recovery import Checkpoint, Recovery
from .seats import SimulatedSeat
from .spec import Simulated
from .trouble import Trouble

WIRE = 32  # bytes that the network adds to a frame


def run(spec: Simulated, job: TableJob) -> Outcome:
    """Run a job to its end."""
    cluster = Cluster(spec, job)
    try:
        return cluster.run()
    finally:
        cluster.close()


class Cluster:
    """Everything that is there while a job runs."""

    def __init__(self, spec: Simulated, job: TableJob) -> None:
        self.spec, self.job = spec, job
        self.layout = layout = job.layout(spec.nodes)
        self.recording = Recording(layout, job.record)
        self.hub = Hub()
        self.network = Network(spec, self.hub, self._arrived, self._told)
        self.recovery = _recovery(spec, job)
        self.nodes: list[Node | None] = []
        self.seats: list[SimulatedSeat] = []
        self.spent = [0.0] * spec.nodes  # seconds that handling messages took
        self.waiting: dict[int, tuple[str, int]] = {}  # worker → (what it is parked for, table)
        self.history: list[Watched] = []
        self.items = 0.0
        self._stopped = ""
        self._exact = job.watch is not None and job.rule.exact
        self._at: int | None = None  # the clock that is looked at, where shards may be ahead of it
        self._failure: tuple[int, int, Exception] | None = None
        self._poll_at = [math.inf] * spec.nodes
        self._lag = np.zeros((layout.workers, 32), dtype=np.int64)
        # Workers of a node share its cores when there are more of them than cores.
        self._per_item = [
            spec.seconds_per_item * max(1.0, len(layout.workers_of(node)) / spec.threads) / speed
            for node, speed in enumerate(spec.speeds)
        ]
        self.trouble = Trouble(self)

    # -- from start to end ------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Until every worker has ended and all they added is at the shards, or somebody says it is enough."""
        self._begin(self.recovery.complete)
        self._look(0)
        with heeding_ctrl_c(self) as ctrl_c:
            if not self.hub.run():
                raise self._stuck()
            ctrl_c.heard()
        if self._failure is None and not self._stopped:
            self._look(max(seat.clock for seat in self.seats))
        if self._failure is not None:
            self.job.blame(*self._failure)
        return self._outcome()

    def ask(self) -> None:
        """Ctrl-C: end with what is there; while a node is down, as soon as everybody has gone back to a checkpoint."""
        self._stopped = self._stopped or "interrupted"
        self.hub.over = not self.recovery.down

    def close(self) -> None:
        """End whoever still runs."""
        for seat in self.seats:
            self._end(seat)

    def _begin(self, checkpoint: Checkpoint) -> None:
        """Make nodes and workers, at the start or from a checkpoint."""
        layout, clock = self.layout, checkpoint.clock
        self.nodes = []
        for number in range(layout.nodes):
            saved = None
            if checkpoint.shards:
                saved = NodePart(clock, checkpoint.shards[number], checkpoint.nodes[number])
            life = self.recovery.incarnation
            self.nodes.append(Node(layout, number, incarnation=life, recording=self.recording, saved=saved))
        if self._exact:
            for node in self.nodes:
                assert node is not None
                node.shard.keep_past(self.job.every)
        self._shards = Clocks(layout.nodes, clock)
        self._clocks = Clocks(layout.workers, clock)
        self._most = clock
        self.seats = []
        for worker in range(layout.workers):
            node = self._node(layout.node_of(worker))
            seat = SimulatedSeat(self, worker, node, clock, checkpoint.seats.get(worker))
            self.seats.append(seat)
            seat.sleeper = self.hub.spawn(self._body(seat))
        self._plan_checkpoint()

    def _body(self, seat: SimulatedSeat) -> Callable[[], None]:
        def body() -> None:
            try:
                if not seat.ended:
                    self.job.work(seat)
            except Ended:
                return
            except Exception as error:
                self._fail(seat.worker, seat.clock, error)
                return
            if self.seats[seat.worker] is seat and self.nodes[seat.node] is not None:
                self._left(seat)

        return body

    def lose(self, number: int) -> None:
        """A node and its workers are gone."""
        for worker in self.layout.workers_of(number):
            self._end(self.seats[worker])
        self.nodes[number] = None

    def restart(self, checkpoint: Checkpoint) -> None:
        """Everybody begins again from a checkpoint."""
        self._count_lag()
        self.close()
        self._poll_at = [math.inf] * self.layout.nodes
        while self.history and self.history[-1].clock > checkpoint.clock:
            self.history.pop()
        self.recording.restarted(self.hub.now, checkpoint.clock, self.recovery.incarnation)
        self._begin(checkpoint)
        self.hub.over = self.hub.over or bool(self._stopped)

    def _end(self, seat: SimulatedSeat) -> None:
        seat.gone()
        self.waiting.pop(seat.worker, None)
        self.hub.end(seat.sleeper, Ended())

    def _node(self, number: int) -> Node:
        node = self.nodes[number]
        if node is None:
            raise RunError(f"node {number} was used after it crashed")
        return node

    # -- what workers do --------------------------------------------------------------------------------------------

    def work_seconds(self, node: int, items: float) -> float:
        """How long a worker of a node computes so many items, if it begins now."""
        now = self.hub.now
        self.items += items
        seconds = items * self._per_item[node] * self.spec.slowness(node, now)
        return seconds + max(0.0, self.trouble.paused_until[node] - now)

    def ticked(self, seat: SimulatedSeat) -> None:
        """A worker has made a tick."""
        node, clock = self._node(seat.node), seat.clock
        self._most = max(self._most, clock)
        opened = self.recovery.open
        if opened is not None and opened.clock == clock:
            self.recovery.worker_part(seat.worker, seat.part())
        self._moved(seat.worker, clock, node)

    def _left(self, seat: SimulatedSeat) -> None:
        """A worker's function has returned."""
        seat.ended = True
        node = self._node(seat.node)
        opened = self.recovery.open
        if opened is not None and seat.worker not in opened.seats:
            self.recovery.worker_part(seat.worker, seat.part())
        node.leave(self.hub.now, seat.worker)
        self._moved(seat.worker, FAR, node)

    def _moved(self, worker: int, clock: int, node: Node) -> None:
        """A worker's clock has moved on."""
        opened = self.recovery.open
        if opened is not None and node.number not in opened.nodes and node.clock >= opened.clock:
            self.recovery.node_part(node.number, node.cache.residuals(opened.clock))
        if self._clocks.advance(worker, clock):
            if self._clocks.low < FAR:
                self.recording.moved_on(self.hub.now, self._clocks.low, self._most)
            self._plan_checkpoint()
        self.after(node)

    # -- nodes and the network --------------------------------------------------------------------------------------

    def after(self, node: Node) -> None:
        """Carry out what a node said."""
        if node.frames:
            self._ship(node)
        if node.woken:
            for worker in node.woken:
                self.hub.wake(self.seats[worker].sleeper)
            node.woken.clear()
        number = node.number
        if node.wake_at < self._poll_at[number]:
            self._poll_at[number] = node.wake_at
            self.hub.at(max(node.wake_at, self.hub.now), self._poll, node)
        if node.shard.clock != self._shards.values[number]:
            self._shard_moved(node)

    def _ship(self, node: Node) -> None:
        """Give a node's frames to the network; those with the same target travel together."""
        frames, node.frames = node.frames, []
        number, send, total = node.number, self.network.send, 0
        trains: dict[int, list[Frame]] = {}
        for target, frame in frames:
            if target in trains:
                trains[target].append(frame)
            else:
                trains[target] = [frame]
        for target, train in trains.items():
            size = WIRE * len(train)
            for frame in train:
                size += frame.nbytes
            total += size
            send(number, target, train, size)
        per_message, per_byte = self.spec.message_cost
        self.spent[number] += per_message * len(frames) + per_byte * total

    def _arrived(self, train: Train) -> None:
        number = train.target
        node = self.nodes[number]
        if node is None or self.trouble.puts_off(number, self._arrived, train):
            return
        per_message, per_byte = self.spec.message_cost
        self.spent[number] += per_message * len(train.frames) + per_byte * train.nbytes
        node.receive(self.hub.now, train.source, *train.frames)
        self.after(node)

    def _poll(self, node: Node) -> None:
        number = node.number
        if self.nodes[number] is not node or self.trouble.puts_off(number, self._poll, node):
            return
        if self.hub.now < self._poll_at[number]:
            return  # an earlier call came in between and asked for a later one
        self._poll_at[number] = math.inf
        if node.wake_at <= self.hub.now:
            node.poll(self.hub.now)
        self.after(node)

    def _told(self, ends: tuple[int, int]) -> None:
        """A node learns that its connection to another was lost and is there again."""
        number, peer = ends
        node = self.nodes[number]
        if node is None or self.trouble.puts_off(number, self._told, ends):
            return
        node.reset(self.hub.now, peer)
        self.after(node)

    def _shard_moved(self, node: Node) -> None:
        """The clock of a node's shard is another one."""
        number, clock = node.number, node.shard.clock
        opened = self.recovery.open
        if opened is not None and clock >= opened.clock and number not in opened.shards:
            arrays = node.shard.saved()
            seconds = None if arrays is None else self.recovery.shard_part(number, arrays)
            if seconds is not None:
                self.hub.at(self.hub.now + seconds, self._saved, opened)
        before = self._shards.low
        if not self._shards.advance(number, clock):
            return
        least = self._shards.low
        if self._exact:
            self._look_back(before, min(least, self._most))
        if least >= FAR:
            self.hub.over = self.hub.over or not self.recovery.down  # what a lost node had is lost even now
        elif least // self.job.every > before // self.job.every and not self._exact:
            self._look(least)

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def _plan_checkpoint(self) -> None:
        if self._clocks.low >= FAR:
            return
        clock = self.recovery.plan(self.hub.now, self._clocks.low, self._most)
        if clock is None:
            return
        for node in self.nodes:
            if node is not None:
                node.shard.checkpoint(clock)
                if node.clock >= clock:  # its workers have ended, or it has none
                    self.recovery.node_part(node.number, node.cache.residuals(clock))
        for seat in self.seats:
            if seat.ended:
                self.recovery.worker_part(seat.worker, seat.part())

    def _saved(self, checkpoint: Checkpoint) -> None:
        if self.recovery.saved(checkpoint):
            self._plan_checkpoint()

    # -- watching, and what is told at the end ----------------------------------------------------------------------

    def _look_back(self, before: int, clock: int) -> None:
        """Exact runs: look at every clock that all shards have passed, at each of them as it was then."""
        every = self.job.every
        for at in range((before // every + 1) * every, clock + 1, every):
            if not self._stopped:  # what was enough stays to be looked at
                self._at = at
                self._look(at)
            if not self._stopped:
                self._at = None
                for node in self.nodes:
                    if node is not None:
                        node.shard.past.pop(at, None)

    def _look(self, clock: int) -> None:
        job, now, nbytes = self.job, self.hub.now, self.recording.bytes
        if job.watch is None or self._stopped or (self.history and self.history[-1].clock >= clock):
            return
        if self.recovery.down:  # rows of a lost node are missing; the clock will be recomputed
            return
        try:
            moment = Moment(clock, now, nbytes, self._values, tuple(seat.local for seat in self.seats))
            seen = Watched(clock, now, nbytes, float(job.watch(moment)))
            self.history.append(seen)
            if job.until is not None and job.until(seen):
                self._stopped = "until"
                self.hub.over = True
        except Exception as error:
            self._fail(-1, clock, error)

    def _fail(self, worker: int, clock: int, error: Exception) -> None:
        """The first error ends the run."""
        self._failure = self._failure or (worker, clock, error)
        self.hub.over = True

    def _then(self, table: int) -> list[Past]:
        """What each shard holds of a table, at the clock that is looked at or now."""
        found = []
        for node in self.nodes:
            if node is not None:
                view = None if self._at is None else node.shard.past.get(self._at)
                found.append((*node.shard.table(table), node.shard.states(table)) if view is None else view[table])
        return found

    def _values(self, table: int) -> tuple[Keys, NDArray[Any]]:
        """keys [n] and rows [n, cols] that the shards hold, at the clock that is looked at or now."""
        keys, rows, _ = zip(*self._then(table), strict=True)
        return np.concatenate(keys), np.concatenate(rows)

    def _outcome(self) -> Outcome:
        recording = self.recording
        recording.seconds = self.hub.now
        nodes = [node for node in self.nodes if node is not None]
        recording.closed = min(node.shard.clock for node in nodes) if self._stopped else None
        tables = []
        for table in range(len(self.layout.tables)):
            states = zip(*(states for _, _, states in self._then(table)), strict=True)
            tables.append(Rest(*self._values(table), tuple(np.concatenate(parts) for parts in states)))
            if recording.full:  # as it is now, whatever clock was looked at
                keys, counts = zip(*(node.shard.witness(table) for node in nodes), strict=True)
                recording.final[table] = np.concatenate(keys), np.concatenate(counts)
                recording.final_values[table] = np.concatenate([node.shard.table(table)[1] for node in nodes])
        self._count_lag()
        return Outcome(
            tuple(tables),
            tuple(seat.clock for seat in self.seats),
            self.hub.now,
            tuple(seat.local for seat in self.seats),
            self._stopped or "done",
            self.history,
            self._lag,
            recording.traffic(),
            recording,
            self.items,
        )

    def _count_lag(self) -> None:
        for node in self.nodes:
            if node is not None:
                workers = self.layout.workers_of(node.number)
                self._lag[workers.start : workers.stop] += node.cache.staleness

    def _stuck(self) -> RunError:
        """Nothing is left to happen, and workers wait: that is our own mistake."""
        shards = [node.shard.clock if node is not None else None for node in self.nodes]
        told = [
            f"worker {worker} at clock {self.seats[worker].clock} ({reason}, table {table})"
            for worker, (reason, table) in list(self.waiting.items())[:5]
        ]
        return RunError(
            f"the simulated cluster stands still at {self.hub.now:.6f} s: {len(self.waiting)} workers wait, such as "
            f"{'; '.join(told) or 'none'}; shard clocks are {shards[:20]}; please report it with seed {self.spec.seed}"
        )


def _recovery(spec: Simulated, job: TableJob) -> Recovery:
    every = job.every_clocks
    if every is None and not spec.can_fail:
        every = 0
    sizes = ((table.rows or 0) * table.cols * table.kept.itemsize * (1 + table.apply.states) for table in job.tables)
    return Recovery(
        spec.nodes,
        job.workers,
        every=every,
        mean_failure=spec.mean_failure(),
        save=spec.save_rate,
        expected=sum(sizes) // spec.nodes,
    )
