"""Files that hold arrays rather than text: `.npz` (scipy's and our own), Parquet, and dense or complex MatrixMarket
through scipy.
"""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np

from stretto.data.convert import as_data, choose_columns
from stretto.data.data import Data
from stretto.data.duplicates import settle
from stretto.data.ids import IdMap
from stretto.data.parsing import Options
from stretto.data.source import open_plain
from stretto.errors import DataError, FormatError


def load(path: str, format: str, options: Options, duplicates: str) -> Data:
    """A whole file of one of these kinds."""
    if format == "npz":
        return load_npz(path, duplicates)
    if format == "parquet":
        return load_parquet(path, options, duplicates)
    return load_matrix_market(path)


def load_npz(path: str, duplicates: str) -> Data:
    """Our `rows, cols, values, shape[, labels, ids]`, or what `scipy.sparse.save_npz` wrote. Nothing is unpickled."""
    try:
        with open_plain(path) as (stream, _), np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise FormatError(path, None, f"the archive is damaged ({error})", "write or download it again") from error
    if {"rows", "cols", "values"} <= arrays.keys():
        shape = tuple(int(s) for s in arrays["shape"]) if "shape" in arrays else None
        maps = {k: _ids(arrays, k) for k in ("row", "col")}
        data = Data.from_arrays(
            arrays["rows"], arrays["cols"], arrays["values"], (shape[0], shape[1]) if shape else None,
            labels=arrays.get("labels"), row_ids=maps["row"], col_ids=maps["col"], source=path,
        )  # fmt: skip
        return settle(data, duplicates)
    if "format" in arrays and "shape" in arrays:
        import scipy.sparse

        with open_plain(path) as (stream, _):
            return as_data(scipy.sparse.load_npz(stream), source=path)
    have = ", ".join(arrays) or "nothing"
    raise FormatError(
        path,
        None,
        f"no sparse matrix inside (it holds {have})",
        "save rows, cols and values, or use scipy.sparse.save_npz",
    )


def _ids(arrays: dict[str, Any], axis: str) -> IdMap | None:
    start = f"{axis}_ids."
    parts = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
    return IdMap.from_arrays(parts) if parts else None


def load_parquet(path: str, options: Options, duplicates: str) -> Data:
    """Three columns of a Parquet file: by name where known, else the first three."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow; install it with: pip install 'stretto[parquet]'"
        ) from error
    try:
        with open_plain(path) as (stream, _):
            schema = pyarrow.parquet.read_schema(stream)
            stream.seek(0)
            names = _parquet_names(path, list(schema.names), options)
            table = pyarrow.parquet.read_table(stream, columns=names)
    except (pyarrow.ArrowException, OSError) as error:
        raise FormatError(path, None, f"the Parquet file is damaged ({error})", "write or download it again") from error
    columns = [table.column(name) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.null_count:
            raise FormatError(
                path, None, f"column {name!r} has {column.null_count} missing entries", "drop those records first"
            )
    parts = tuple(c.to_numpy() for c in columns)
    if len(parts) == 2:
        parts = (*parts, np.ones(len(parts[0]), dtype=np.float32))
    return as_data(parts, duplicates=duplicates, map_ids=not options.raw_ids, source=path)


def _parquet_names(path: str, names: list[str], options: Options) -> list[str]:
    if options.columns is None:
        if len(names) < 3:
            raise FormatError(path, None, f"expected three columns, found {names}", "pass columns=(row, column)")
        return [names[k] for k in choose_columns(names)]
    chosen = [c if isinstance(c, str) else names[c] for c in options.columns]
    missing = [c for c in chosen if c not in names]
    if missing:
        raise FormatError(path, None, f"there is no column {missing[0]!r}", f"the file has {', '.join(names)}")
    return chosen


def load_matrix_market(path: str) -> Data:
    """Kinds of MatrixMarket that are no plain triples."""
    import scipy.io
    import scipy.sparse

    try:
        with open_plain(path) as (stream, _):
            matrix = scipy.io.mmread(stream)
    except (ValueError, OverflowError, OSError, EOFError) as error:
        raise FormatError(
            path, None, f"scipy cannot read it ({error})", "write it again with scipy.io.mmwrite"
        ) from error
    if np.iscomplexobj(matrix):
        raise FormatError(
            path, None, "the entries are complex numbers", "Stretto learns from real ones; take a part or the size"
        )
    return as_data(matrix if scipy.sparse.issparse(matrix) else scipy.sparse.coo_array(matrix), source=path)
