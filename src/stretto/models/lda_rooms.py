"""The tile of a topic model that is in memory: its tokens, its documents' rows, its words' rows, and who comes next.

Each of the three has two rooms. While a tile is worked on, one thread writes back what the tile before it changed and
reads the tile that follows into the rooms that got free. Where a tile is a whole panel, the words stay in one room and
have no file. Lengths of rows, totals and changes of totals are always in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.topic_rows import Counts, Tokens
from stretto.plan.plan import Logical
from stretto.runtime.blockfile import FlatFile, Pieces, Resident, Window
from stretto.schedule.order import Ints

from .lda_cut import AHEAD, CutTokens
from .lda_layout import pointers
from .lda_shape import Shape
from .lda_tiles import PanelTiles, turns

_AT_ONCE = 1 << 20  # numbers written together where a file is filled
_TOKENS = ("doc", "topic", "run_word", "run_length")


class TileRooms:
    """Rooms for the tiles of a plan, over files of a folder; `remove` takes the files away."""

    def __init__(self, logical: Logical, shape: Shape, laid: CutTokens, tiles: PanelTiles, folder: Path) -> None:
        self.logical, self.shape, self.laid, self.tiles = logical, shape, laid, tiles
        K, order = shape.topics, logical.order
        self.doc_length = np.zeros(len(shape.doc_tokens), np.int32)
        self.word_length = np.where(shape.word_plain, -1, 0).astype(np.int32)
        self.total = np.zeros(K, np.int64)
        self.row_moved, self.col_moved = np.zeros((order.rows, K), np.int32), np.zeros((order.cols, K), np.int32)
        self.doc_groups, self.word_groups = tiles.bounds(logical.rows.bounds), tiles.bounds(logical.cols.bounds)
        self._widest_block = int(logical.rows.sizes.max())
        walk = [tiles.groups_of(tile) for tile in range(len(tiles))]
        self._turns = tuple(turns(groups) for groups in (range(len(tiles)), *zip(*walk, strict=True)))
        self._tokens = {name: self._token_window(name) for name in _TOKENS}
        self.docs = self._row_window(folder / "doc_rows.counts", shape.doc_at, self.doc_groups, shape.doc_dtype)
        if not shape.plain:
            _fill(self.docs.file, shape.padding)
        self.words: Window | Resident = Resident(np.zeros(int(shape.word_at[-1]), np.uint32))
        if tiles.groups > 1:
            self.words = self._row_window(folder / "word_rows.counts", shape.word_at, self.word_groups, np.uint32)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="stretto-read")
        self._ahead: Future[None] | None = None

    def _token_window(self, name: str) -> Window:
        laid, tiles = self.laid, self.tiles
        ptr = laid.run_ptr if name.startswith("run") else laid.ptr
        pieces: Callable[[int], Pieces] = lambda tile: [(int(ptr[a]), int(ptr[b])) for a, b in tiles.runs(tile)]  # noqa: E731
        spare = AHEAD if name == "doc" else 0
        most = tiles.heaviest(np.diff(ptr))
        return Window(laid.files[name], pieces, rooms=min(2, len(tiles)), widest=most, spare=spare)

    def _row_window(self, path: Path, at: Ints, groups: Ints, dtype: Any) -> Window:
        starts = at[groups]
        file = FlatFile(path, dtype, int(at[-1]))
        pieces: Callable[[int], Pieces] = lambda group: [(int(starts[group]), int(starts[group + 1]))]  # noqa: E731
        return Window(file, pieces, rooms=min(2, len(starts) - 1), widest=int(np.diff(starts).max()))

    # --- coming and going -------------------------------------------------------------------------------------------

    def _rooms(self, epoch: int, tile: int) -> tuple[int, int, int]:
        """Which rooms a tile's tokens, documents and words have."""
        tokens, docs, words = (rooms[tile] ^ (epoch & changing) for rooms, changing in self._turns)
        return tokens, docs, words

    def _bring(self, epoch: int, tile: int) -> None:
        rooms, (row_group, col_group) = self._rooms(epoch, tile), self.tiles.groups_of(tile)
        for window in self._tokens.values():
            window.bring(tile, rooms[0])
        self.docs.bring(row_group, rooms[1])
        self.words.bring(col_group, rooms[2])

    def _wait(self) -> None:
        """Until nothing is being read or written; a disk that failed is heard of here."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.result()

    def enter(self, epoch: int, tile: int) -> None:
        """Have a tile in memory, and begin to read the one that follows."""
        self._wait()
        self._bring(epoch, tile)
        rooms = self._rooms(epoch, tile)
        for window, room in zip((self._tokens["topic"], self.docs, self.words), rooms, strict=True):
            window.change(room)
        if len(self.tiles) > 1:
            following = (epoch, tile + 1) if tile + 1 < len(self.tiles) else (epoch + 1, 0)
            self._ahead = self._reader.submit(self._bring, *following)

    def settle(self) -> None:
        """Write back all that changed and hold nothing but resident words: the files have it all."""
        self._wait()
        for window in (*self._tokens.values(), self.docs, self.words):
            window.settle()

    def groups(self, window: Window | Resident, bounds: Ints) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """(first, last + 1, rows) of one group of documents or words after the other, the next one read meanwhile."""
        self.settle()
        for group in range(len(bounds) - 1):
            room = group % len(window.rooms)
            self._wait()
            window.bring(group, room)
            if group + 1 < len(bounds) - 1:
                self._ahead = self._reader.submit(window.bring, group + 1, (group + 1) % len(window.rooms))
            yield int(bounds[group]), int(bounds[group + 1]), window.rooms[room]
        self._wait()

    # --- what is there ----------------------------------------------------------------------------------------------

    def tokens(self, epoch: int, tile: int) -> Tokens:
        """The tokens of a tile; they are there while it is."""
        room, (row_group, col_group) = self._rooms(epoch, tile)[0], self.tiles.groups_of(tile)
        logical, visits = self.logical, self.tiles.visits(tile)
        rows, cols = logical.order.row_block[visits], logical.order.col_block[visits]
        doc, topic, run_word, run_length = (self._tokens[name].rooms[room] for name in _TOKENS)
        return Tokens(
            pointers(self.laid.ptr[visits + 1] - self.laid.ptr[visits]),
            doc,
            topic,
            pointers(self.laid.run_ptr[visits + 1] - self.laid.run_ptr[visits]),
            run_word,
            run_length,
            visits,
            rows,
            cols,
            logical.rows.bounds[rows] - self.doc_groups[row_group],
            logical.cols.bounds[cols] - self.word_groups[col_group],
        )

    def span(self, tile: int) -> tuple[int, int]:
        """Positions (first, last + 1) of a tile's documents."""
        group = self.tiles.groups_of(tile)[0]
        return int(self.doc_groups[group]), int(self.doc_groups[group + 1])

    def counts(self, epoch: int, tile: int) -> Counts:
        """The rows of a tile's documents and words, and the totals; they are there while it is."""
        rooms, shape = self._rooms(epoch, tile), self.shape
        (d, d_end), group = self.span(tile), self.tiles.groups_of(tile)[1]
        w, w_end = int(self.word_groups[group]), int(self.word_groups[group + 1])
        # Looking ahead across the end of a visit, the samplers ask for a document of the next visit's row block as if
        # it were of this one's: there must be something to ask for.
        doc_at = np.zeros(d_end - d + self._widest_block, np.int64)
        doc_at[: d_end - d] = shape.doc_at[d:d_end] - shape.doc_at[d]
        return Counts(
            doc_at,
            self.doc_length[d:d_end],
            self.docs.rooms[rooms[1]],
            shape.word_at[w:w_end] - shape.word_at[w],
            self.word_length[w:w_end],
            self.words.rooms[rooms[2]],
            self.total,
            self.row_moved,
            self.col_moved,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it under the names it has in memory; what is large is mapped from disk."""
        self.settle()
        return {
            "topic": self._tokens["topic"].live(),
            "doc_length": self.doc_length,
            "doc_rows": self.docs.live(),
            "word_length": self.word_length,
            "word_rows": self.words.live(),
            "total": self.total,
            "row_moved": self.row_moved,
            "col_moved": self.col_moved,
        }

    def remove(self) -> None:
        """Stop reading ahead and take the files away."""
        self._reader.shutdown(wait=True)
        self.laid.remove()
        self.docs.remove()
        self.words.remove()


def _fill(file: FlatFile, value: int) -> None:
    some = np.full(min(_AT_ONCE, file.length), value, file.dtype)
    for first in range(0, file.length, _AT_ONCE):
        file.write(first, some[: file.length - first])
