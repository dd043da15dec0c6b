"""Which node would hold which chunk of a new state, for plans: as `moved_states` places them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stretto.store.local.grid import ChunkGrid
from stretto.store.local.holdings import Holdings


def chunk_bits(rows: int, row_bytes: int) -> int:
    """A chunk of a state with these rows has two to this power of them."""
    return ChunkGrid.of(rows, row_bytes).bits


def placed_chunks(chunks: int, nodes: Sequence[int], *, ranges: bool) -> NDArray[np.int64]:
    """[chunks] the node of each chunk: a range for each node, or even shares as `Holdings` deals them out."""
    if ranges:
        return np.asarray(nodes, np.int64)[np.arange(chunks) * len(nodes) // max(1, chunks)]
    holdings = Holdings()
    holdings.add(0, ChunkGrid(chunks, 0))
    holdings.spread(0, nodes)
    return holdings.holders(0)
