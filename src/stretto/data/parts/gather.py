"""Read several files into memory: `read` for a folder, a glob or a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stretto.data.parts.numbering import merge
from stretto.data.parts.source import open_parts
from stretto.data.records.arrays import INT32_MAX
from stretto.data.records.data import Data
from stretto.data.records.duplicates import settle


def read_files(paths: Any, duplicates: str, affordable: Callable[[str, int], None], **options: Any) -> Data:
    """All records of all files, in their order.

    Parameters
    ----------
    paths : str, Path, or a list of them
        A folder, a glob or files.
    duplicates : str
        What becomes of a repeated pair.
    affordable : function of (source, bytes)
        Called before memory is allocated; raises where there is too little.
    options
        Those of `open_parts`.
    """
    parts = open_parts(paths, **options).parts(1)
    numbering = merge([part.census() for part in parts])
    source = parts[0].path if len(parts) == 1 else f"{parts[0].path} and {len(parts) - 1} more files"
    index = [np.int32 if size <= INT32_MAX else np.int64 for size in numbering.shape]
    affordable(source, numbering.nnz * sum(np.dtype(one).itemsize for one in (*index, np.float32)))
    rows, cols = (np.empty(numbering.nnz, dtype=one) for one in index)
    values = np.empty(numbering.nnz, dtype=np.float32)
    at = 0
    for part in parts:
        for r, c, v in part.entries(numbering):
            here = slice(at, at + len(v))
            rows[here], cols[here], values[here] = r, c, v
            at += len(v)
    data = Data.from_arrays(
        rows, cols, values, numbering.shape, labels=numbering.labels, row_ids=numbering.row_ids,
        col_ids=numbering.col_ids, source=source,
    )  # fmt: skip
    return settle(data, duplicates)
