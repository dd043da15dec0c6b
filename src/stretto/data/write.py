"""`write`: write `Data` to a file in a format that `read` understands, atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.atomic import replacing
from stretto.data.reading.cache import id_arrays
from stretto.data.reading.source import as_path
from stretto.data.records.arrays import SLICE
from stretto.data.records.data import Data
from stretto.errors import DataError

SUFFIXES = {
    ".npz": "npz",
    ".mtx": "mm",
    ".mm": "mm",
    ".csv": "csv",
    ".parquet": "parquet",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
}
FORMATS = ("triples", "csv", "movielens", "svmlight", "mm", "npz", "parquet")


def write(data: Data, path: str | os.PathLike[str], format: str = "auto") -> None:
    """Write data to a local file.

    Delimited formats write the ids of rows and columns. svmlight is written in row order with indices from 1.

    Parameters
    ----------
    data : Data
        The records.
    path : str or path
        The file.
    format : str, default "auto"
        The format, as for `st.read`; "auto" goes by the suffix, and writes tab-separated triples for others.

    Examples
    --------
    >>> import os, tempfile
    >>> import stretto as st
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "ratings.csv")
    ...     st.write(st.as_data(([0, 1], [2, 0], [4.0, 5.0])), path)
    ...     print(st.read(path).shape)
    (2, 2)
    """
    path = as_path(path)
    if not isinstance(data, Data):
        raise DataError(f"write takes Data, got {type(data).__name__}; st.as_data makes it of frames and matrices")
    if format == "auto":
        format = SUFFIXES.get(os.path.splitext(path)[1].lower(), "triples")
    if format not in FORMATS:
        raise DataError(f"cannot write {format!r}; there are {', '.join(FORMATS)}")
    try:
        with replacing(os.path.abspath(path)) as fresh, fresh.open("wb") as out:
            if format == "npz":
                np.savez(out, **_plain_arrays(data))
            elif format == "parquet":
                _parquet(data, out)
            else:
                for part in _text(data, format):
                    out.write(part.encode())
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: str, error: OSError) -> DataError:
    """The error of a file that cannot be written."""
    return DataError(f"{path}: cannot be written ({error}); check the folder, its permissions and the free space")


def _text(data: Data, format: str) -> Iterator[str]:
    if format == "svmlight":
        yield from _svmlight(data)
        return
    if format == "mm":
        yield f"%%MatrixMarket matrix coordinate real general\n{data.shape[0]} {data.shape[1]} {len(data)}\n"
    sep, tail = {"movielens": ("::", "::0"), "mm": (" ", ""), "csv": (",", "")}.get(format, ("\t", ""))
    if format != "mm":
        _check_names(data, sep)
    for lo in range(0, len(data), SLICE):
        part = slice(lo, lo + SLICE)
        rows, cols = (data.rows[part] + 1, data.cols[part] + 1) if format == "mm" else _outside(data, part)
        records = zip(rows.tolist(), cols.tolist(), data.values[part], strict=True)
        yield "".join(f"{i}{sep}{j}{sep}{number(v)}{tail}\n" for i, j, v in records)


def _check_names(data: Data, sep: str) -> None:
    """Raise for text ids that `read` would not return unchanged."""
    for ids in (data.row_ids, data.col_ids):
        if ids is not None and ids.is_text and len(ids):
            names = ids.ids.tolist()
            bad = next((name for name in names if not _stands(name, sep)), None)
            if bad is None and all(_looks_like_a_number(name) for name in names):
                bad = names[0]  # all of them would be taken for numbers
            if bad is not None:
                raise DataError(f"the id {bad!r} cannot stand in a text file; write npz or parquet instead")


def _stands(name: str, sep: str) -> bool:
    odd = any(c in name for c in "\n\r\0") or sep in name or name.startswith(('"', "#", "%")) or name != name.strip()
    return bool(name) and not odd


def _looks_like_a_number(name: str) -> bool:
    return name.removeprefix("-").replace(".", "", 1).isdecimal()


def _svmlight(data: Data) -> Iterator[str]:
    order = np.lexsort((data.cols, data.rows))
    counts = np.bincount(data.rows, minlength=data.shape[0])
    labels = np.zeros(data.shape[0]) if data.labels is None else data.labels
    ends = np.cumsum(counts)
    for i in range(data.shape[0]):
        mine = order[ends[i] - counts[i] : ends[i]]
        pairs = zip((data.cols[mine] + 1).tolist(), data.values[mine], strict=True)
        yield " ".join([f"{float(labels[i])!r}".removesuffix(".0"), *(f"{j}:{number(v)}" for j, v in pairs)]) + "\n"


def number(value: Any) -> str:
    """The shortest text that reads back as the same 32-bit float."""
    return str(np.float32(value)).removesuffix(".0")


def _outside(data: Data, part: slice) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = data.rows[part] if data.row_ids is None else data.row_ids.decode(data.rows[part])
    cols = data.cols[part] if data.col_ids is None else data.col_ids.decode(data.cols[part])
    return rows, cols


def _plain_arrays(data: Data) -> dict[str, Any]:
    arrays = {
        "rows": data.rows,
        "cols": data.cols,
        "values": data.values,
        "shape": np.array(data.shape),
        **id_arrays(data),
    }
    return arrays if data.labels is None else {**arrays, "labels": data.labels}


def _parquet(data: Data, out: Any) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError("writing Parquet needs pyarrow; install it with: pip install 'stretto[parquet]'") from error
    rows, cols = _outside(data, slice(None))
    table = pyarrow.table({"row": rows.tolist(), "col": cols.tolist(), "value": data.values})
    pyarrow.parquet.write_table(table, out)
