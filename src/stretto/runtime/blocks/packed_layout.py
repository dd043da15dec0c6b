"""Sort entries into the blocks of a plan through packed words: for blocks of at most 65,536 rows and columns.

The result is that of `layout.scatter` and `layout.arrange`, which also take larger blocks and files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.kernels.factorization.packed_blocks import pack_worker, unpack_worker
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.rotation import independent

from .crew import Crew
from .source import Chunk
from .step import make_step


def lay_out_packed(
    chunk: Chunk,
    rows: BlockPartition,
    cols: BlockPartition,
    visit_of: Ints,
    lists: Order,
    bounds: Ints,
    ptr: Ints,
    at: Ints,
    crew: Crew,
    mean: float,
    scale: float,
) -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.float32], int]:
    """(u, i, r, repeats): the entries of each visit in visiting order, and how many pairs occur more than once.

    Parameters
    ----------
    chunk : tuple of arrays
        Rows, columns and values.
    rows, cols : BlockPartition
        Blocks of both axes.
    visit_of : [R, C] array of int
        The visit of each pair of blocks.
    lists : Order
        The visits, as independent ones.
    bounds : [P + 1] array of int
        Parts of the chunk.
    ptr : [V + 1] array of int
        Where the entries of each visit begin.
    at : [P, V] array of int
        Where those of each part begin; it is overwritten.
    mean, scale : float
        Values become (value − mean) / scale.
    """
    entries = len(chunk[2])
    words = np.empty(entries, np.uint64)
    u, i, bits = np.empty(entries, np.uint16), np.empty(entries, np.uint16), np.empty(entries, np.uint32)
    row_bits, col_bits = (int(cut.sizes.max(initial=1) - 1).bit_length() for cut in (rows, cols))
    units = (np.float32(mean), np.float32(1.0 / scale), np.uint32(col_bits))
    lookup: tuple[Any, ...] = (codes_of(rows), codes_of(cols), visit_of, at)
    views = (words.view(np.uint32), words.view(np.float32))
    args = (bounds, *chunk, *lookup, *units, *views)
    crew.run_here(make_step("pack", pack_worker, independent(len(bounds) - 1), np.diff(bounds), *args), "exact")
    rest = (row_bits + col_bits, col_bits, words, u, i, bits)
    step = make_step("arrange", unpack_worker, lists, np.diff(ptr), ptr, *rest)
    crew.run_here(step, "exact")
    return u, i, bits.view(np.float32), int(step.total())


def codes_of(cut: BlockPartition) -> NDArray[np.uint32]:
    """[n] the block of each row in the upper half, its index inside the block in the lower half."""
    position = np.arange(len(cut), dtype=np.uint32)
    first = ((np.arange(cut.blocks) << 16) - cut.bounds[:-1]).astype(np.uint32)  # modulo 2³²
    return (position + np.repeat(first, cut.sizes))[cut.place]
