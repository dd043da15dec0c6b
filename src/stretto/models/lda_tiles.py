"""How a topic model larger than memory is walked: tiles of the grid, what they need, and whose turn a room is.

The order is a row of panels, each a rotation of B row blocks over the same B column blocks. In the exchange pattern an
aligned tile of m × m blocks is visited for m steps by itself, so a panel is walked tile by tile: with G = B / m groups
on either side, sweep s takes row group g to column group g XOR s. With B = 4 and m = 2 one panel is

    tile         0      1      2      3
    groups     0 → 0  1 → 1  0 → 1  1 → 0

With m = B a panel is one tile, and the words never leave memory. The side m changes no number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stretto.kernels.topic_rows import GROUP
from stretto.plan.cost import refuse_if_over
from stretto.plan.plan import Logical, Physical
from stretto.runtime.layout import index_type
from stretto.schedule.order import Ints, Order
from stretto.schedule.rotation import rotation

from .lda_base import token_bytes
from .lda_shape import Shape

# Kept for every document and word: its tokens, the place of its row, its length, its place in the plan, its block.
_PER_INDEX = 40
# Of K topics, a worker keeps about a dozen numbers each, with alias tables twice as many.
_PER_TOPIC, _PER_TOKEN_OF_RUN, _PER_ENTRY = 128, 8, 8


class PanelTiles:
    """The walk over `panels(B, P)` in tiles of side m."""

    def __init__(self, order: Order, side: int) -> None:
        self.blocks, self.side = order.cols, side
        self.panels, self.groups = order.rows // order.cols, order.cols // side
        self.order: Order = rotation(side)

    def __len__(self) -> int:
        return self.panels * self.groups * self.groups

    @property
    def row_groups(self) -> int:
        return self.panels * self.groups

    def groups_of(self, tile: int) -> tuple[int, int]:
        """(row group, column group) of a tile; row groups are counted through all panels."""
        panel, rest = divmod(tile, self.groups * self.groups)
        sweep, group = divmod(rest, self.groups)
        return panel * self.groups + group, group ^ sweep

    def visits(self, tile: int) -> Ints:
        """[m²] the plan's visits of a tile, in the tile's own order."""
        panel, rest = divmod(tile, self.groups * self.groups)
        sweep, group = divmod(rest, self.groups)
        step, row = np.divmod(np.arange(self.side * self.side, dtype=np.int64), self.side)
        first = panel * self.blocks * self.blocks + group * self.side
        return first + (sweep * self.side + step) * self.blocks + row

    def runs(self, tile: int) -> list[tuple[int, int]]:
        """Runs of neighbouring visits (first, last + 1) that make up a tile: one where it is a whole panel."""
        visits = self.visits(tile)
        if self.groups == 1:
            return [(int(visits[0]), int(visits[-1]) + 1)]
        return [(first, first + self.side) for first in visits[:: self.side].tolist()]

    def heaviest(self, weight: Ints) -> int:
        """The most of weight [V], one number for each of the plan's visits, that one tile has."""
        parts = weight.reshape(self.panels, self.groups, self.side, self.groups, self.side)
        return int(parts.sum(axis=(2, 4)).max(initial=0))

    def bounds(self, blocks: Ints) -> Ints:
        """[groups + 1] where groups of m blocks begin; blocks [blocks + 1]: where blocks begin."""
        return np.ascontiguousarray(blocks[:: self.side])


def turns(groups: Sequence[int]) -> tuple[list[int], int]:
    """Which of two rooms each group is brought to when its turn comes, and whether rooms change from epoch to epoch.

    Neighbours in the walk that are different groups have different rooms, from the last of an epoch to the first of
    the next one too: one is read while the other is worked on. A group that is in a room already stays there.

    >>> turns([0, 1, 1, 2, 1])
    ([0, 1, 1, 0, 1], 0)
    >>> turns([0, 1, 2])
    ([0, 1, 0], 1)
    """
    rooms: list[int] = []
    held = [-1, -1]
    for group in groups:
        room = held.index(group) if group in held else 1 - (rooms[-1] if rooms else 1)
        held[room] = group
        rooms.append(room)
    changing = (rooms[0] == rooms[-1]) != (groups[0] == groups[-1])
    return rooms, int(changing)


def most_runs(entries: Ints, tokens: Ints, logical: Logical) -> Ints:
    """[V] no visit has more runs than this: it has no more words than entries, nor than its column block."""
    words: Ints = logical.cols.sizes[logical.order.col_block]
    return np.minimum(np.minimum(entries, tokens), words)


def run_bytes(logical: Logical) -> int:
    """Bytes of one run: its word and its length."""
    return np.dtype(index_type(logical.cols)).itemsize + 4


def need(logical: Logical, shape: Shape, side: int, entries: Ints, tokens: Ints, workers: int) -> int:
    """Bytes held while tiles of this side are worked on; entries, tokens [V]: of the plan's visits.

    Two tiles' tokens and document rows; the words of two column groups, or all of them, and then also the topics that
    are handed over at the end; totals; the workers' own numbers; and a little for every document and word.
    """
    tiles, order = PanelTiles(logical.order, side), logical.order
    of_tile = tiles.heaviest(tokens) * token_bytes(logical, shape)
    of_tile += tiles.heaviest(most_runs(entries, tokens, logical)) * run_bytes(logical)
    documents, words = (
        int(np.diff(at[tiles.bounds(cut.bounds)]).max(initial=0))
        for at, cut in ((shape.doc_at, logical.rows), (shape.word_at, logical.cols))
    )
    held = min(2, len(tiles)) * of_tile
    held += min(2, tiles.row_groups) * documents * np.dtype(shape.doc_dtype).itemsize
    held += 2 * words * 4 if tiles.groups > 1 else words * 12
    longest_run = min(int(tokens.max(initial=0)), int(shape.word_tokens.max(initial=0)))
    own = _PER_TOPIC * (shape.topics + GROUP) + _PER_TOKEN_OF_RUN * longest_run + _PER_ENTRY * shape.longest
    totals = (order.rows + order.cols + 2) * shape.topics * 4
    return int(held + workers * own + totals + _PER_INDEX * (len(logical.rows) + len(logical.cols)))


def choose_side(logical: Logical, shape: Shape, entries: Ints, tokens: Ints, physical: Physical, extra: int = 0) -> int:
    """The largest tile that fits the budget beside `extra` bytes; refuses when not even one block does."""
    side, budget = logical.order.cols, physical.memory
    while True:
        wanted = extra + need(logical, shape, side, entries, tokens, physical.workers)
        if budget is None or wanted <= budget or side == 1:
            break
        side //= 2
    refuse_if_over(wanted, budget, "raise the budget, use fewer topics, or raise width= for smaller blocks")
    return side
