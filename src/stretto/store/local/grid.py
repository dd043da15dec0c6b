"""Chunks: runs of 2**bits rows, in which the rows of a state are locked, moved between nodes, and written to disk.

>>> grid = ChunkGrid.of(rows=1_000_000, row_bytes=8)
>>> grid.chunks, grid.bounds(grid.chunks - 1)
(123, (999424, 1000000))
"""

from __future__ import annotations

from dataclasses import dataclass

# Bytes of a chunk. Measured (`python -m bench chunk_sizes`): smaller ones cost more messages and locks, larger ones
# move rows that are not used.
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class ChunkGrid:
    """rows: of the state. bits: a chunk has 2**bits rows, the last one may have fewer."""

    rows: int
    bits: int

    @classmethod
    def of(cls, rows: int, row_bytes: int) -> ChunkGrid:
        """The grid of a state: as many rows in a chunk as fit into CHUNK_BYTES, at least one."""
        return cls(rows, max(0, (CHUNK_BYTES // max(1, row_bytes)).bit_length() - 1))

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return (self.rows + (1 << self.bits) - 1) >> self.bits

    def bounds(self, chunk: int) -> tuple[int, int]:
        """First row of a chunk, and the row after its last."""
        return chunk << self.bits, min(self.rows, (chunk + 1) << self.bits)

    def rows_of(self, chunk: int) -> int:
        """Rows in a chunk."""
        first, end = self.bounds(chunk)
        return end - first
