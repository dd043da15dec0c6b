"""Partition an axis into blocks of equal work.

The rows are first permuted by the seed, then cut where the running count of entries passes k/B of the total. This
balances skewed data, and neighbours in the file are not neighbours in a block. A cut depends on the counts, the seed
and the number of blocks; never on threads, cache or memory.

    cut(counts=[4, 1, 1, 2], blocks=2, seed=0, axis=0)      # two blocks with about four entries each
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import PlanError

# Below this many entries in an average visit, scheduling a visit costs as much as running it.
FEWEST_PER_VISIT = 256


@dataclass(frozen=True, eq=False)
class BlockPartition:
    """A partition of an axis: row r has position place[r]; block b holds positions bounds[b] to bounds[b + 1]."""

    place: NDArray[np.int32]  # [n]
    bounds: NDArray[np.int64]  # [B + 1]

    @property
    def blocks(self) -> int:
        return len(self.bounds) - 1

    def __len__(self) -> int:
        return len(self.place)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[B] rows in each block."""
        return np.diff(self.bounds)

    def block_of(self) -> NDArray[Any]:
        """[n] the block of each row, in the smallest integer type; computed once, read-only."""
        return self._block_of

    @cached_property
    def _block_of(self) -> NDArray[Any]:
        dtype = np.int16 if self.blocks <= 1 << 15 else np.int32
        by_position = np.repeat(np.arange(self.blocks, dtype=dtype), self.sizes)
        return by_position[self.place]

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle, without cached values."""
        return {"place": self.place, "bounds": self.bounds}


def hashed(seed: int, axis: int, n: int) -> NDArray[np.uint64]:
    """[n] one 64-bit number for each row, from its index, the axis and the seed alone (SplitMix64)."""
    with np.errstate(over="ignore"):
        x = np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64((seed * 0xD1B54A32D192ED03 + (axis + 1) * 0x8CB92BA72F3D8DD7) % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x ^= x >> np.uint64(shift)
            x *= np.uint64(factor)
        x ^= x >> np.uint64(31)
    return x


def sorting_order(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """[n] the positions of keys, all different, in ascending order of the keys.

    NumPy sorts 16-bit numbers by radix, in linear time: two such sorts by the upper half of the keys are faster than
    one by whole keys. The few keys that agree in their upper half are sorted again.
    """
    upper = (keys >> np.uint64(32)).astype(np.uint32)
    order = np.argsort(upper.astype(np.uint16), kind="stable")
    order = order[np.argsort((upper >> np.uint32(16)).astype(np.uint16)[order], kind="stable")]
    upper = upper[order]
    same = upper[1:] == upper[:-1]
    if same.any():
        at = np.flatnonzero(np.append(same, False) | np.append(False, same))
        order[at] = order[at][np.argsort(keys[order[at]], kind="stable")]
    return order


def cut(counts: NDArray[np.int64], blocks: int, *, seed: int, axis: int) -> BlockPartition:
    """Cut an axis whose row r has counts[r] entries into `blocks` parts of nearly equal counts."""
    if blocks < 1:
        raise PlanError(f"an axis is cut into at least one block, got {blocks}")
    n = len(counts)
    order = sorting_order(hashed(seed, axis, n))
    place = np.empty(n, dtype=np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    running = np.concatenate([[0], np.cumsum(counts[order])])
    goal = running[-1] * np.arange(1, blocks) / blocks
    # The boundary nearest to the goal; `running` is sorted, so the boundaries are too.
    right = np.searchsorted(running, goal)
    left = np.maximum(right - 1, 0)
    inner = np.where(goal - running[left] < running[np.minimum(right, n)] - goal, left, np.minimum(right, n))
    bounds = np.concatenate([[0], np.maximum.accumulate(inner), [n]]).astype(np.int64)
    return BlockPartition(place, bounds)


def cut_evenly(counts: NDArray[np.int64], blocks: int, *, seed: int, axis: int) -> BlockPartition:
    """Cut an axis with a few very heavy rows: these are placed first, each in the block with the fewest entries.

    A row that holds a hundredth of all entries would unbalance any cut of neighbours. The heaviest rows (those above a
    sixteenth of a block) are placed one by one, heaviest first; the others fill the blocks, in an order drawn from the
    seed. No block holds two heavy rows that could be in different blocks.

    >>> cut_evenly(np.array([8, 8, 1, 1, 1, 1]), 2, seed=0, axis=1).sizes.tolist()
    [3, 3]
    """
    if blocks < 1:
        raise PlanError(f"an axis is cut into at least one block, got {blocks}")
    n = len(counts)
    if blocks == 1:
        return cut(counts, 1, seed=seed, axis=axis)
    drawn = sorting_order(hashed(seed, axis, n))
    whole = int(counts.sum())
    heavy = counts[drawn] * (16 * blocks) > whole
    block = np.zeros(n, np.int64)
    loads = [(0, b) for b in range(blocks)]
    first = drawn[heavy]
    for row in first[np.argsort(-counts[first], kind="stable")].tolist():
        load, b = heapq.heappop(loads)
        block[row] = b
        heapq.heappush(loads, (load + int(counts[row]), b))
    held = np.zeros(blocks, np.int64)
    for load, b in loads:
        held[b] = load
    # The light rows fill what each block has left of an equal share, one block after the other.
    light = drawn[~heavy]
    left = np.maximum(whole / blocks - held, 0.0)
    goal = np.cumsum(left) * (counts[light].sum() / max(left.sum(), 1e-300))
    running = np.cumsum(counts[light]) - counts[light] / 2
    block[light] = np.minimum(np.searchsorted(goal, running), blocks - 1)
    order = drawn[np.argsort(block[drawn], kind="stable")]
    place = np.empty(n, dtype=np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=blocks))]).astype(np.int64)
    return BlockPartition(place, bounds)


def straight(counts: NDArray[np.int64], blocks: int) -> BlockPartition:
    """Cut an axis without permuting it: for passes whose rows do not wait for each other."""
    running = np.concatenate([[0], np.cumsum(counts)])
    inner = np.searchsorted(running, running[-1] * np.arange(1, blocks) / blocks)
    bounds = np.concatenate([[0], np.minimum(inner, len(counts)), [len(counts)]]).astype(np.int64)
    return BlockPartition(np.arange(len(counts), dtype=np.int32), bounds)


def choose_blocks(entries: int, shape: tuple[int, int], width: int, fewest: int = FEWEST_PER_VISIT) -> int:
    """Blocks along each axis: 2·width, as a power of two, fewer when there is little data.

    fewest : the fewest entries of an average visit that are worth its overhead.

    >>> choose_blocks(1_000_000, (6040, 3449), 16), choose_blocks(500, (20, 20), 16)
    (32, 1)
    """
    if width < 1:
        raise PlanError(f"width must be at least 1, got {width}")
    cap = min(2 * width, max(1, min(shape)), max(1, int((entries / fewest) ** 0.5)))
    return 1 << (cap.bit_length() - 1)
