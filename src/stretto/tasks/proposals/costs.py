"""What a placement of a state costs in an iteration of a unit: bytes over the busiest link, and seconds.

A row that a part changes goes to the node that holds it, one message entry for each part. A changed row then goes from
its holder to every node whose parts read it. Rows that no part changes stay in the caches after their first read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .accesses import StateAccess

KEY_BYTES = 8  # of a row in a message


@dataclass(frozen=True)
class Machine:
    """What proposals assume of the nodes."""

    nodes: int
    link: float = 125e6  # bytes a second, each way: 1 Gbit
    latency: float = 1e-4  # seconds

    def words(self) -> str:
        """The machine in words."""
        return f"{self.nodes} nodes, {self.link * 8 / 1e9:g} Gbit, {self.latency * 1e6:g} µs"


def busiest_bytes(holders: NDArray[np.int64], access: StateAccess, homes: Sequence[int], size: int) -> int:
    """Bytes that pass the busiest link in one direction in an iteration.

    Parameters
    ----------
    holders : array [rows]
        The node of each row, or chunk.
    access : StateAccess
        The rows, or chunks, that each part reads and changes.
    homes : sequence of int
        The node of each part.
    size : int
        Bytes of a row, or chunk, in a message.
    """
    traffic = _Traffic(holders, size)
    changed = np.logical_or.reduce(access.changed)
    for part, node in enumerate(homes):
        traffic.to_holders(node, access.changed[part])
    for node, read in _read_by_node(access, homes).items():
        traffic.from_holders(node, changed & read)
    return traffic.busiest


def first_bytes(holders: NDArray[np.int64], access: StateAccess, homes: Sequence[int], size: int) -> int:
    """Bytes that pass the busiest link when every node reads its rows for the first time."""
    traffic = _Traffic(holders, size)
    for node, read in _read_by_node(access, homes).items():
        traffic.from_holders(node, read)
    return traffic.busiest


def _read_by_node(access: StateAccess, homes: Sequence[int]) -> dict[int, NDArray[np.bool_]]:
    return {
        node: np.logical_or.reduce([access.read[part] for part, home in enumerate(homes) if home == node])
        for node in sorted(set(homes))
    }


class _Traffic:
    """Bytes that each node sends and receives."""

    def __init__(self, holders: NDArray[np.int64], size: int) -> None:
        self._holders, self._size = holders, size
        self._out: Counter[int] = Counter()
        self._into: Counter[int] = Counter()

    def to_holders(self, node: int, rows: NDArray[np.bool_]) -> None:
        """A node sends changes of rows to those that hold them."""
        for holder, nbytes in self._away(node, rows):
            self._out[node] += nbytes
            self._into[holder] += nbytes

    def from_holders(self, node: int, rows: NDArray[np.bool_]) -> None:
        """A node receives rows from those that hold them."""
        for holder, nbytes in self._away(node, rows):
            self._into[node] += nbytes
            self._out[holder] += nbytes

    def _away(self, node: int, rows: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
        holders, counts = np.unique(self._holders[rows & (self._holders != node)], return_counts=True)
        yield from zip(holders.tolist(), (counts * self._size).tolist(), strict=True)

    @property
    def busiest(self) -> int:
        """Bytes of the busiest link in one direction."""
        return max([*self._out.values(), *self._into.values()], default=0)


def seconds_of(nbytes: int, machine: Machine) -> float:
    """Seconds of an iteration with this many bytes over the busiest link, which wait for the latency twice."""
    return nbytes / machine.link + (2 * machine.latency if nbytes else 0.0)
