"""Run a job over tables on a simulated cluster: nodes, network, workers, faults and checkpoints.

The interface is `stretto.runtime.tables.job`: TableJob in, Outcome out, a client for each worker
(`workers.SimulatedWorker`).

    from stretto.runtime.simulated.tables.job import run
    outcome = run(Simulated(nodes=4), job)

After every call of a node, `SimulatedCluster.after(node)` handles its output: frames go to the network, woken workers
continue, the next poll is scheduled, and waiters for a shard's clock are notified.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stretto.comm.link import by_target
from stretto.consistency.clocks import Clocks
from stretto.errors import RunError
from stretto.runtime.interrupts import heeding_ctrl_c
from stretto.runtime.simulated.network import FrameBatch, Network
from stretto.runtime.simulated.settings import SimulatedSettings
from stretto.runtime.simulated.virtual_time import Hub
from stretto.runtime.tables.job import FAR, TableJob, TableMeasure, TableOutcome, WorkerExit
from stretto.runtime.tables.run.cut_parts import CutParts
from stretto.runtime.tables.run.evaluations import Evaluate
from stretto.runtime.tables.run.node_cuts import NodeCuts
from stretto.store.node import NodePart, StoreNode
from stretto.store.recording import Recording

from .driver import SimulatedDriver
from .evaluations import Evaluator
from .fault_injection import FaultInjector
from .workers import SimulatedWorker

WIRE = 32  # bytes that the network adds to a frame


def run(spec: SimulatedSettings, job: TableJob) -> TableOutcome:
    """Run a job to its end."""
    cluster = SimulatedCluster(spec, job)
    try:
        return cluster.run()
    finally:
        cluster.close()


class SimulatedCluster:
    """The complete state of a running job."""

    def __init__(self, spec: SimulatedSettings, job: TableJob) -> None:
        self.spec, self.job = spec, job
        self.layout = layout = job.layout(spec.nodes)
        self.recording = Recording(layout, job.record)
        self.hub = Hub()
        self.network = Network(spec, self.hub, self._arrived, self._connection_reset)
        self.driver = SimulatedDriver(self)
        self.state = self.driver.run
        self._cutting = self.driver.cutting
        self.evaluator = Evaluator(self)
        self.nodes: list[StoreNode | None] = []
        self.cuts: list[NodeCuts] = []
        self.clients: list[SimulatedWorker] = []
        self.spent = [0.0] * spec.nodes  # seconds that handling messages took
        self.waiting: dict[int, tuple[str, int]] = {}  # worker → (what it waits for, table)
        self.items = 0.0
        self.failure: tuple[int, int, Exception] | None = None
        self._poll_at = [math.inf] * spec.nodes
        self._message_cost = spec.message_cost  # seconds for a message and for a byte
        self._lag = np.zeros((layout.workers, 32), dtype=np.int64)
        # Workers of a node share its cores when there are more of them than cores.
        self._per_item = [
            spec.seconds_per_item * max(1.0, len(layout.workers_of(node)) / spec.threads) / speed
            for node, speed in enumerate(spec.speeds)
        ]
        self.trouble = FaultInjector(self)

    # -- from start to end ------------------------------------------------------------------------------------------

    def run(self) -> TableOutcome:
        """Run until every worker has ended and all changes are at the shards, or the run is stopped."""
        due = self.state.begin(0.0)
        self._begin(self.state.last)
        self.evaluator.evaluate(due)
        self.evaluator.await_time()
        with heeding_ctrl_c(self) as ctrl_c:
            if not self.hub.run():
                raise self._stuck()
            ctrl_c.heard()
        if self.failure is None and not self.state.stopped:
            self.evaluator.evaluate(self.state.ended())
        if self.failure is not None:
            self.job.blame(*self.failure)
        return self._outcome()

    def ask(self) -> None:
        """Handle Ctrl-C: end with the current state; while a node is lost, after all have restarted from a
        checkpoint.
        """
        self.state.interrupt()
        self.hub.over = not self.down

    @property
    def down(self) -> bool:
        """Whether a node is lost."""
        return any(node is None for node in self.nodes)

    @property
    def now(self) -> float:
        """Virtual seconds of the run, without gathering the results."""
        return self.hub.now if self.driver.finished is None else self.driver.finished

    def close(self) -> None:
        """End all workers that still run."""
        for client in self.clients:
            self._end(client)

    def _begin(self, cut: CutParts) -> None:
        """Create nodes and workers, at the start or from a cut."""
        layout, clock = self.layout, cut.clock
        self.nodes, self.cuts = [], []
        for number in range(layout.nodes):
            saved = NodePart(clock, cut.shards[number], cut.residuals[number]) if cut.shards else None
            life = self.state.incarnation
            node = StoreNode(layout, number, incarnation=life, recording=self.recording, saved=saved)
            self.evaluator.watch(node)
            self.nodes.append(node)
            self.cuts.append(self.driver.cuts_of(node))
        self.shards = Clocks(layout.nodes, clock)
        self.clients = []
        for worker in range(layout.workers):
            node = self.node(layout.node_of(worker))
            client = SimulatedWorker(self, worker, node, clock, cut.workers.get(worker))
            client.sleeper = self.hub.spawn(self._body(client))
            self.clients.append(client)
        self.driver.plan()

    def _body(self, client: SimulatedWorker) -> Callable[[], None]:
        def body() -> None:
            try:
                if not client.ended:
                    self.job.work(client)
            except WorkerExit:
                return
            except Exception as error:
                self.fail(client.worker, client.clock, error)
                return
            if self.clients[client.worker] is client and self.nodes[client.node] is not None:
                self._left(client)

        return body

    def lose(self, number: int) -> None:
        """A node and its workers are lost."""
        for worker in self.layout.workers_of(number):
            self._end(self.clients[worker])
        self.nodes[number] = None
        self.trouble.end(number)

    def restart(self, cut: CutParts, due: list[Evaluate]) -> None:
        """Restart all nodes from a cut."""
        self._count_lag()
        self.close()
        self.trouble.forget()
        self._poll_at = [math.inf] * self.layout.nodes
        self.recording.restarted(self.hub.now, cut.clock, self.state.incarnation)
        self._begin(cut)
        self.evaluator.evaluate(due)
        self.evaluator.await_time()
        self.hub.over = self.hub.over or bool(self.state.stopped)

    def _end(self, client: SimulatedWorker) -> None:
        client.gone()
        self.waiting.pop(client.worker, None)
        self.hub.end(client.sleeper, WorkerExit())

    def node(self, number: int) -> StoreNode:
        """A node that is not lost."""
        node = self.nodes[number]
        if node is None:
            raise RunError(f"node {number} was used after it crashed")
        return node

    # -- called by workers ------------------------------------------------------------------------------------------

    def work_seconds(self, node: int, items: float) -> float:
        """Seconds that a worker of a node computes for this number of items, if it begins now."""
        now = self.hub.now
        self.items += items
        seconds = items * self._per_item[node] * self.spec.slowness(node, now)
        return seconds + max(0.0, self.trouble.paused_until[node] - now)

    def tick(self, client: SimulatedWorker) -> bool:
        """End a worker's clock; return whether it may continue at once."""
        node, cuts = self.node(client.node), self.cuts[client.node]
        cuts.open_to(client.clock + 1)
        free = node.tick(self.hub.now, client.worker)
        client.clock += 1
        cuts.reached(client.worker, client.clock, client.part)
        self._moved(client.worker, client.clock, client.clock, node)
        return free

    def _left(self, client: SimulatedWorker) -> None:
        """A worker's function has returned."""
        client.ended = True
        node = self.node(client.node)
        self.cuts[client.node].reached(client.worker, FAR, client.part)
        node.leave(self.hub.now, client.worker)
        self._moved(client.worker, FAR, client.clock, node)

    def _moved(self, worker: int, low: int, most: int, node: StoreNode) -> None:
        """A worker's clock has advanced."""
        self.cuts[node.number].look()
        if self.state.moved(worker, low, most):
            if self.state.low < FAR:
                self.recording.moved_on(self.hub.now, self.state.low, self.state.most)
                if self.job.monitor is not None:
                    self.job.monitor.moved(self._measured)
            self.driver.plan()
        self.after(node)

    def _measured(self) -> TableMeasure:
        """What is known of the run, for listeners."""
        recording = self.recording
        waits = list(sum(recording.waits.values(), np.zeros(self.layout.workers)))
        lag = self._lag.sum(axis=0)
        for node in self.nodes:
            if node is not None:
                lag = lag + node.cache.staleness.sum(axis=0)
        clocks = [client.clock for client in self.clients]
        return TableMeasure(self.now, clocks, lag.tolist(), waits, recording.traffic())

    # -- nodes and the network --------------------------------------------------------------------------------------

    def after(self, node: StoreNode) -> None:
        """Handle the output of a node."""
        if node.frames:
            self._ship(node)
        if node.woken:
            for worker in node.woken:
                self.hub.wake(self.clients[worker].sleeper)
            node.woken.clear()
        number = node.number
        if self._cutting and node.shard.saving is not None:
            self.driver.save(node, self.cuts[number])
        wake_at = node.wake_at
        if wake_at < self._poll_at[number]:
            self._poll_at[number] = wake_at
            hub = self.hub
            hub.at(wake_at if wake_at > hub.now else hub.now, self._poll, node)
        if node.shard.clock != self.shards.values[number]:
            self._shard_moved(node)

    def _ship(self, node: StoreNode) -> None:
        """Give a node's frames to the network; those with the same target travel together."""
        frames, node.frames = node.frames, []
        number, send, total = node.number, self.network.send, 0
        per_message, per_byte = self._message_cost
        if len(frames) == 1:
            target, frame = frames[0]
            total = WIRE + frame.nbytes
            send(number, target, [frame], total)
            self.spent[number] += per_message + per_byte * total
            return
        for target, train in by_target(frames).items():
            size = WIRE * len(train)
            for frame in train:
                size += frame.nbytes
            total += size
            send(number, target, train, size)
        self.spent[number] += per_message * len(frames) + per_byte * total

    def _arrived(self, train: FrameBatch) -> None:
        number = train.target
        node = self.nodes[number]
        if node is None or self.driver.finished is not None:
            return
        if self.trouble.stalls and self.trouble.puts_off(number, self._arrived, train):
            return
        per_message, per_byte = self._message_cost
        frames = train.frames
        self.spent[number] += per_message * len(frames) + per_byte * train.nbytes
        if self._cutting:
            self.cuts[number].ahead(frames)
        node.receive(self.hub.now, train.source, *frames)
        self.after(node)

    def _poll(self, node: StoreNode) -> None:
        number = node.number
        if self.nodes[number] is not node or self.driver.finished is not None:
            return
        if self.trouble.stalls and self.trouble.puts_off(number, self._poll, node):
            return
        now = self.hub.now
        if now < self._poll_at[number]:
            return  # an earlier call came in between and scheduled a later one
        self._poll_at[number] = math.inf
        if node.wake_at <= now:
            node.poll(now)
        self.after(node)

    def _connection_reset(self, ends: tuple[int, int]) -> None:
        """A node notices that its connection to another was lost and re-established."""
        number, peer = ends
        node = self.nodes[number]
        if (
            node is None
            or self.driver.finished is not None
            or self.trouble.puts_off(number, self._connection_reset, ends)
        ):
            return
        self.driver.reset(number)
        node.reset(self.hub.now, peer)
        self.after(node)

    def _shard_moved(self, node: StoreNode) -> None:
        """The clock of a node's shard has advanced."""
        if not self.shards.advance(node.number, node.shard.clock):
            return
        if not self.down and not self.driver.by_cuts:  # while a node is lost, rows are missing; the clock is recomputed
            self.evaluator.evaluate(self.state.closed(self.shards.low))
        if self.shards.low >= FAR:
            self.driver.drained()

    # -- the end ----------------------------------------------------------------------------------------------------

    def fail(self, worker: int, clock: int, error: Exception) -> None:
        """The first error ends the run."""
        self.failure = self.failure or (worker, clock, error)
        self.hub.over = True

    def _outcome(self) -> TableOutcome:
        recording = self.recording
        recording.seconds = self.now
        nodes = [node for node in self.nodes if node is not None]
        recording.closed = min(node.shard.clock for node in nodes) if self.state.stopped else None
        tables = []
        for table in range(len(self.layout.tables)):
            tables.append(self.evaluator.rest(table))
            if recording.full:  # the current one, whatever clock was evaluated
                there = [node for node in nodes if self.layout.stores(table, node.number)]
                keys, counts = zip(*(node.shard.witness(table) for node in there), strict=True)
                recording.final[table] = np.concatenate(keys), np.concatenate(counts)
                recording.final_values[table] = np.concatenate([node.shard.table(table)[1] for node in there])
        self._count_lag()
        return TableOutcome(
            tuple(tables),
            tuple(client.clock for client in self.clients),
            self.now,
            tuple(client.local for client in self.clients),
            self.state.stopped or "done",
            self.state.history,
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
        """The error if workers wait and no event is left, which is a bug in Stretto."""
        shards = [node.shard.clock if node is not None else None for node in self.nodes]
        stuck = [
            f"worker {worker} at clock {self.clients[worker].clock} ({reason}, table {table})"
            for worker, (reason, table) in list(self.waiting.items())[:5]
        ]
        return RunError(
            f"the simulated cluster makes no progress at {self.hub.now:.6f} s: {len(self.waiting)} workers wait, "
            f"such as {'; '.join(stuck) or 'none'}; shard clocks are {shards[:20]}; please report it with "
            f"seed {self.spec.seed}"
        )
