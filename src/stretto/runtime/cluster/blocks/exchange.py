"""Exchange matrix entries between nodes while they load a step; the messages are blocks of the ring."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from stretto.runtime.blocks.parted import Exchange
from stretto.runtime.blocks.source import Chunk

from .ring import ENTRIES, TAKEN, Block, raw


def entries_fit(sizes: Sequence[int]) -> bool:
    """Whether arrays of these sizes in bytes can be rows, columns (four or eight bytes each) and values."""
    return len(sizes) == 3 and sizes[2] % 4 == 0 and all(size in (sizes[2], 2 * sizes[2]) for size in sizes[:2])


class Exchanges:
    """The exchanges of one node, by the number of the step. Other nodes may start theirs earlier."""

    def __init__(self, node: int, send: Callable[[int, Block], None]) -> None:
        self._node, self._send = node, send
        self._lock = threading.Lock()
        self._halted = False
        self._exchanges: dict[int, Exchange] = {}
        self._early: dict[int, list[tuple[int, Block]]] = {}  # blocks that arrived before their exchange began
        self._over: set[int] = set()

    def begin(self, plan: int, nodes: int) -> Exchange:
        """Start an exchange among n nodes."""

        def send(to: int, part: int, chunk: Chunk | None) -> None:
            parts = () if chunk is None else tuple(raw(array) for array in chunk)
            self._send(to, Block(ENTRIES, plan, part, int(chunk is None), parts))

        made = Exchange(self._node, nodes, send, lambda source: self._send(source, Block(TAKEN, plan, 0, 0, ())))
        with self._lock:
            self._exchanges[plan] = made
            for source, block in self._early.pop(plan, []):
                _deliver(made, source, block)
            if self._halted:
                made.halt()
        return made

    def end(self, plan: int) -> None:
        """End an exchange: everything has arrived."""
        with self._lock:
            self._exchanges.pop(plan, None)
            self._over.add(plan)

    def arrives(self, source: int, block: Block) -> None:
        """Receive a block; on the network thread. block.epoch is the number of the step."""
        with self._lock:
            exchange = self._exchanges.get(block.epoch)
            if exchange is not None:
                _deliver(exchange, source, block)
            elif block.epoch not in self._over:
                self._early.setdefault(block.epoch, []).append((source, block))

    def halt(self) -> None:
        """Release all waiting threads."""
        with self._lock:
            self._halted = True
            for exchange in self._exchanges.values():
                exchange.halt()


def _deliver(exchange: Exchange, source: int, block: Block) -> None:
    if block.plan == TAKEN:
        exchange.was_taken(source)
    elif block.turn:
        exchange.arrives(source, block.block, None)
    else:
        rows, cols, values = block.parts
        count = len(values) // 4
        index = [np.int32 if len(one) == 4 * count else np.int64 for one in (rows, cols)]
        exchange.arrives(source, block.block, (rows.view(index[0]), cols.view(index[1]), values.view(np.float32)))
