"""`RatedItems`: the items that each row rated in training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.blocks.source import EntrySource

_NONE = np.zeros(0, np.float32)


@dataclass(frozen=True, eq=False)
class RatedItems:
    """Items that each row rated in training: row i has indices[indptr[i]:indptr[i + 1]], ascending."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]

    @classmethod
    def of(cls, source: EntrySource, scratch: Path | None = None) -> RatedItems:
        """Group the entries of a source by row; in a file if a scratch folder is given."""
        from stretto.kernels.factorization.compress import group_by, sort_rows

        counts = np.zeros(source.shape[0], np.int64)
        for rows, _, _ in source.chunks():
            counts += np.bincount(rows, minlength=len(counts))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        indices = new_array(scratch, "seen", (len(source),), np.int32)
        at = indptr[:-1].copy()
        for rows, cols, _ in source.chunks():
            group_by(rows, cols, _NONE, at, indices, _NONE)
        sort_rows(indptr, indices)
        return cls(indptr, indices)


def new_array(scratch: Path | None, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An empty array: in memory, or mapped from a new file in the scratch folder."""
    if scratch is None or 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(scratch / f"{name}.array", dtype, "w+", shape=shape)
