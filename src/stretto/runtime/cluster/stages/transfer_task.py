"""The task of a host in a transfer of states: nodes request chunks of states from the nodes that hold them.

    request     Block(state, REQUEST, chunks of the state, 0, (chunk numbers,))
    rows        Block(state, ROWS, chunk, 0, (the rows,))

Before a stage that needs all rows, a node requests every chunk that it lacks, some at a time, and the stage waits
(`HeldState.ready`). Where a stage takes chunks on demand, the transfer goes on as long as the stage, and chunks are
requested when they are first used.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.link import Frame
from stretto.errors import RunError
from stretto.runtime.cluster.blocks.ring import Block
from stretto.runtime.cluster.hosts.calls import STATES, BeginTask, HostApi, HostEvent
from stretto.runtime.cluster.hosts.remote_errors import portable
from stretto.runtime.cluster.net.frame_checks import Malformed, NoCheck, RowFormat
from stretto.runtime.cluster.net.task_links import TaskLinks
from stretto.runtime.stages.held_states import HeldState, StateShape, held_state

REQUEST, ROWS = 0, 1
AT_ONCE = 64  # chunks that a node requests of another at a time


@dataclass(frozen=True, eq=False)
class TransferPayload:
    """What one node does in a transfer."""

    owner: str  # of the states, with the number of the node: several nodes may be in one process
    shapes: Mapping[int, StateShape]  # by state
    fresh: Mapping[int, NDArray[np.bool_]]  # by state [chunks]: whether the node holds its fresh rows
    most_bytes: int | None = None  # of a state in memory
    puts: Mapping[int, tuple[NDArray[np.int64], list[NDArray[Any]]]] = field(default_factory=dict)  # from the driver
    fills: Mapping[int, tuple[NDArray[np.int64], float]] = field(default_factory=dict)  # chunks with one number
    wants: Mapping[int, NDArray[np.int64]] = field(
        default_factory=dict
    )  # by state [chunks]: where each is, −1: no need
    whole: bool = True  # request all of them before the stage; otherwise those that are used
    reports: bool = False  # tell the driver when all have arrived; a stage waits for them by itself
    # States of which holders keep what they send: on demand a chunk may be read and not changed, and others are copied.
    keeps: frozenset[int] = frozenset()


def make_transfer_task(host: HostApi, begin: BeginTask) -> TransferTask:
    """Create the task of a `BeginTask` whose payload is {node: TransferPayload}."""
    return TransferTask(host, begin)


class TransferCheck(NoCheck):
    """Accepts requests for chunks that exist, and rows of the right size."""

    def __init__(self, shapes: Mapping[int, StateShape]) -> None:
        self._shapes = shapes

    def table(self, number: int) -> RowFormat | None:
        raise Malformed("a table where there are states")

    def block(self, plan: int, block: int, sizes: Sequence[int]) -> None:
        shape = self._shapes.get(plan)
        if shape is None or len(sizes) != 1:
            raise Malformed("no such state")
        chunks = shape.grid.chunks
        if block == chunks:  # a request
            if sizes[0] % 4 or not 0 < sizes[0] <= 4 * chunks:
                raise Malformed("a request of another size")
        elif not 0 <= block < chunks or sizes[0] != shape.chunk_bytes(block):
            raise Malformed("a chunk of another size")


class TransferTask:
    """The nodes of a host in one transfer."""

    channel = STATES

    def __init__(self, host: HostApi, begin: BeginTask) -> None:
        payloads: dict[int, TransferPayload] = begin.payload
        self._host, self._begin = host, begin
        shapes: dict[int, StateShape] = {}
        for payload in payloads.values():
            shapes.update(payload.shapes)
        self.check = TransferCheck(shapes)
        self._links = TaskLinks(host, begin, STATES)
        self._lock = threading.Lock()
        self._nodes = {node: _TransferNode(self, node, payload) for node, payload in payloads.items()}

    def start(self) -> None:
        """Request the chunks that the stage waits for."""
        for node in self._nodes.values():
            node.start()

    def arrived(self, node: int) -> None:
        """Report that a node has all chunks that were to be brought."""
        self._host.tell(HostEvent(self._begin.incarnation, self._host.number, "arrived", node))

    def halt(self) -> None:
        """Send nothing any more."""
        self._links.halt()

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Answer requests and take rows. On the network thread."""
        node = self._nodes.get(target)
        if node is None:
            return
        for block in self._links.receive(source, target, frames):
            try:
                node.take(source, block)
            except Exception as error:
                event = HostEvent(self._begin.incarnation, self._host.number, "failed", target, portable(error))
                self._host.tell(event)

    def tend(self, now: float) -> float:
        """Run the timers of the links."""
        return self._links.tend(now)

    def reset(self, now: float, nodes: Sequence[int]) -> None:
        """The lost connection to these nodes was re-established."""
        self._links.reset(nodes)

    def ask(self, what: str, *args: Any) -> Any:
        """A transfer has no calls."""
        raise RunError(f"a host was asked for {what!r}, and transfers have no such call; please report this")

    def send(self, node: int, to: int, block: Block) -> None:
        """Send a block of a node."""
        self._links.send(node, to, block)


class _TransferNode:
    """One node: what it holds, and what it waits for."""

    def __init__(self, task: TransferTask, node: int, payload: TransferPayload) -> None:
        self._task, self._node, self._payload = task, node, payload
        self._held: dict[int, HeldState] = {
            number: held_state(payload.owner, number, shape, payload.most_bytes)
            for number, shape in payload.shapes.items()
        }
        for number, fresh in payload.fresh.items():
            # What was taken on demand and not changed may have been changed elsewhere since.
            self._held[number].present[:] = fresh
        for number, (chunks, rows) in payload.puts.items():
            for chunk, given in zip(chunks.tolist(), rows, strict=True):
                self._held[number].put(chunk, given)
        for number, (chunks, value) in payload.fills.items():
            self._held[number].fill(chunks, value)
        self._lock = threading.Lock()
        self._queues: dict[tuple[int, int], deque[int]] = {}  # by state and source: chunks that were not requested
        self._flying: dict[tuple[int, int], int] = {}  # requested and not arrived
        self._left: dict[int, int] = {}  # by state: chunks that a stage waits for
        for number, where in payload.wants.items():
            held = self._held[number]
            held.source = self
            lacking = np.flatnonzero((where >= 0) & ~held.present)
            if not payload.whole or not len(lacking):
                continue
            held.ready.clear()
            self._left[number] = len(lacking)
            for source in np.unique(where[lacking]).tolist():
                self._queues[number, source] = deque(lacking[where[lacking] == source].tolist())

    def start(self) -> None:
        """Send the first requests."""
        if self._payload.reports and not self._left:
            self._task.arrived(self._node)
        for key in list(self._queues):
            self._request_next(*key)

    def request(self, number: int, chunks: list[int]) -> None:
        """Request chunks now: a stage uses them."""
        where = self._payload.wants[number]
        for source in np.unique(where[chunks]).tolist():
            if source < 0:
                raise RunError(f"state {number}: a chunk has no holder; please report this")
            self._request(number, source, [chunk for chunk in chunks if where[chunk] == source])

    def take(self, source: int, block: Block) -> None:
        """A request, or rows."""
        number, held = block.plan, self._held[block.plan]
        if block.epoch == REQUEST:
            chunks = block.parts[0].view(np.int32).astype(np.int64)
            for chunk in chunks.tolist():
                rows = np.ascontiguousarray(held.rows(chunk)).copy()
                self._task.send(self._node, source, Block(number, ROWS, chunk, 0, (rows.reshape(-1).view(np.uint8),)))
            if number not in self._payload.keeps:
                held.drop(chunks)
            return
        rows = block.parts[0].view(held.shape.dtype).reshape(-1, held.shape.cols)
        if held.arrives is not None:
            held.arrives(block.block, rows)
            return
        held.put(block.block, rows)
        with self._lock:
            key = number, source
            self._flying[key] = self._flying.get(key, 0) - 1
            self._left[number] = self._left.get(number, 0) - 1
            done, more = self._left[number] == 0, self._flying[key] <= AT_ONCE // 2 and self._queues.get(key)
            every = not any(self._left.values())
        if more:
            self._request_next(number, source)
        if done:
            held.ready.set()
        if every and self._payload.reports:
            self._task.arrived(self._node)

    def _request_next(self, number: int, source: int) -> None:
        with self._lock:
            queue = self._queues[number, source]
            chunks = [queue.popleft() for _ in range(min(AT_ONCE, len(queue)))]
            self._flying[number, source] = self._flying.get((number, source), 0) + len(chunks)
        if chunks:
            self._request(number, source, chunks)

    def _request(self, number: int, source: int, chunks: list[int]) -> None:
        asked = np.array(chunks, np.int32).view(np.uint8)
        grid = self._held[number].grid
        self._task.send(self._node, source, Block(number, REQUEST, grid.chunks, 0, (asked,)))
