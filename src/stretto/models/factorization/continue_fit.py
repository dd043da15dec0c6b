"""Continue from an earlier fit: map its rows and columns to the new data, and combine the ratings of all fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.data import Data
from stretto.data.records.ids import IdMap
from stretto.errors import DataError, PlanError
from stretto.runtime.blocks.source import Chunk, EntrySource
from stretto.solvers.factorization.problem import FactorizationProblem, parameter_of
from stretto.solvers.factorization.rated_items import RatedItems

Longs = NDArray[np.int64]
# Choices that two fits must share for the second to continue from the first.
_ALIKE = ("rank", "loss", "biases", "implicit")


def refuse_unlike(problem: FactorizationProblem, earlier: FactorizationProblem, way: str) -> None:
    """PlanError if a fit cannot continue from one with other choices. way: "warm_start=True" or "partial_fit"."""
    for name in _ALIKE:
        now, then = getattr(problem, name), getattr(earlier, name)
        if now != then:
            own = parameter_of(name)
            raise PlanError(
                f"{way} goes on from a fit with {own}={then!r}, and {own} is {now!r} now; set it back, or fit anew "
                "with warm_start=False"
            )


def moved(old: IdMap | None, new: IdMap | None, sizes: tuple[int, int], what: str) -> Longs:
    """[old size] new index of each old row (or column), −1 if it is missing."""
    before, now = sizes
    if (old is None) != (new is None):
        by = ("index", "id") if old is None else ("id", "index")
        raise DataError(
            f"the earlier fit knew {what}s by {by[0]}, and these data name them by {by[1]}; give them the same names, "
            "or fit anew with warm_start=False"
        )
    if old is None or new is None:
        index = np.arange(before, dtype=np.int64)
        return np.where(index < now, index, -1)
    return new.encode(old.ids, unknown="mark").astype(np.int64)


def grown(data: Data, ids: tuple[IdMap | None, IdMap | None], shape: tuple[int, int]) -> Data:
    """Data in a numbering of a model's rows and columns, with these ids and this shape, and new ones."""
    sides = [
        _grown(index, own, known, size, count, what)
        for index, own, known, size, count, what in zip(
            (data.rows, data.cols), data.ids, ids, shape, data.shape, ("row", "column"), strict=True
        )
    ]
    (rows, row_ids, m), (cols, col_ids, n) = sides
    return replace(data, rows=rows, cols=cols, row_ids=row_ids, col_ids=col_ids, shape=(m, n))


def _grown(
    index: NDArray[Any], own: IdMap | None, known: IdMap | None, size: int, count: int, what: str
) -> tuple[NDArray[Any], IdMap | None, int]:
    if known is not None:
        if own is None:
            raise DataError(
                f"the model knows {what}s by id, and these data have indices; give a table with ids, as at first"
            )
        union = IdMap.of(_joined(known, own)) if len(own) else known
        return union.encode(own.ids)[index], union, len(union)
    if own is None:
        return index, None, max(size, count)
    if own.is_text or (len(own) and (int(own.ids[0]) < 0 or int(own.ids.max()) >= size)):
        raise DataError(
            f"the model knows {what}s by index, 0 to {size - 1}, and these data have other ids, such as "
            f"{own.ids.tolist()[-1]!r}; begin with partial_fit on a table, so that the model knows them by id"
        )
    return own.ids[index].astype(np.int32), None, size


def _joined(known: IdMap, own: IdMap) -> NDArray[Any]:
    if known.is_text != own.is_text:
        kinds = ("text", "integers") if known.is_text else ("integers", "text")
        raise DataError(f"the model knows ids that are {kinds[0]}, and these are {kinds[1]}; convert them first")
    return np.concatenate([known.ids, own.ids])


@dataclass(frozen=True, eq=False)
class RatingBatches:
    """An `EntrySource` of all ratings of several fits, in one numbering."""

    parts: tuple[Chunk, ...]
    shape: tuple[int, int]
    whole: bool = True  # whether the values are known too

    @classmethod
    def of(cls, source: EntrySource | None, seen: RatedItems | None) -> RatingBatches:
        """From the training data of a model; for a loaded model, from the pairs alone."""
        if isinstance(source, RatingBatches):
            return source
        if source is not None:
            return cls(tuple(source.chunks()), source.shape)
        assert seen is not None
        rows = np.repeat(np.arange(len(seen.indptr) - 1, dtype=np.int32), np.diff(seen.indptr))
        size = int(seen.indices.max(initial=-1)) + 1
        return cls(((rows, seen.indices, np.zeros(len(rows), np.float32)),), (len(seen.indptr) - 1, size), whole=False)

    def __len__(self) -> int:
        return sum(len(values) for _, _, values in self.parts)

    def chunks(self) -> Iterator[Chunk]:
        yield from self.parts

    def joined(self, rows: Longs, cols: Longs, data: Data) -> RatingBatches:
        """Add the ratings of data. rows, cols: indices that rows and columns of this source have in data."""
        if not _identity(rows) or not _identity(cols):
            parts = tuple((rows[r].astype(np.int32), cols[c].astype(np.int32), values) for r, c, values in self.parts)
        else:
            parts = self.parts
        return RatingBatches((*parts, (data.rows, data.cols, data.values)), data.shape, self.whole)


def _identity(index: Longs) -> bool:
    return bool((index == np.arange(len(index))).all())
