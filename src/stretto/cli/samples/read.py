"""Read samples X [n, p], their targets y [n] and the names of the features from one file.

.npz        arrays X and y, and names if there are any; or a matrix of scipy.sparse.save_npz with an array y
.parquet    a table: one column is the target, the others are features
svmlight    the label of each line is the target; features are numbered as in the file
else        delimited text (.csv, .tsv), with a line of names or without
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError, FormatError

from .columns import Table, features_of


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples in memory."""

    X: Any  # [n, p] float64: a dense array in Fortran order, or CSC
    y: NDArray[Any]  # [n] numbers, or names of classes
    names: list[str]  # [p] of the features

    def part(self, which: NDArray[np.bool_]) -> Samples:
        """Some of the samples."""
        if isinstance(self.X, np.ndarray):
            return Samples(np.asfortranarray(self.X[which]), self.y[which], self.names)
        return Samples(self.X.tocsr()[which].tocsc(), self.y[which], self.names)


def read_samples(path: str, *, target: str | None, drop: tuple[str, ...] = (), on_error: str = "raise") -> Samples:
    """The samples of a file.

    Parameters
    ----------
    path : str
        The file.
    target : str or None
        The column that is predicted, by name or position from 0; None for a well-known name.
    drop : tuple of str
        Columns that are left out.
    on_error : {"raise", "skip"}
        What to do with a row that has a missing value.
    """
    suffix = os.path.splitext(path.removesuffix(".gz").removesuffix(".xz").removesuffix(".bz2"))[1].lower()
    table: Table | None = None
    if suffix == ".npz":
        found = _from_npz(path)
    elif suffix in {".parquet", ".pq"}:
        from .parquet_table import read_parquet

        table = read_parquet(path)
    elif suffix in {".svm", ".svmlight", ".libsvm"} or _is_svmlight(path):
        found = _from_svmlight(path, on_error)
    else:
        from .text_table import read_text_table

        table = read_text_table(path)
    if table is not None:
        X, y, names = features_of(table, target=target, drop=drop, on_error=on_error)
        found = Samples(X, y, names)
    elif target is not None or drop:
        raise DataError(f"{path}: has no columns with names; leave --target and --drop out")
    if not len(found.y) or not found.names:
        raise DataError(f"{path}: holds {len(found.y)} samples of {len(found.names)} features; check how it was made")
    return found


def _is_svmlight(path: str) -> bool:
    """Whether the first lines look like `label index:value …`."""
    from stretto.data.reading.source import open_plain

    with open_plain(path) as (stream, _):
        lines = stream.read(4096).decode("utf-8", "replace").splitlines()[:5]
    words = [line.split("#")[0].split()[1:] for line in lines if line.split("#")[0].strip()]
    pairs = [word for line in words for word in line]
    return bool(pairs) and all(":" in word and "::" not in word for word in pairs)


def _from_svmlight(path: str, on_error: str) -> Samples:
    from scipy.sparse import csc_array

    from stretto.data.reading.read import read

    data = read(path, "svmlight", on_error=on_error)
    if data.labels is None:
        raise DataError(f"{path}: holds no labels; give svmlight lines, `label index:value …`")
    X = csc_array((data.values.astype(np.float64), (data.rows, data.cols)), shape=data.shape)
    return Samples(X, _whole(data.labels), [str(j) for j in range(data.shape[1])])


def _from_npz(path: str) -> Samples:
    from stretto.data.reading.array_files import load_npz, read_archive

    arrays = read_archive(path)
    y = arrays.get("y", arrays.get("labels"))
    if y is None:
        raise FormatError(path, None, f"there is no array y (it holds {', '.join(arrays)})", "save X and y together")
    if "X" in arrays:
        X = arrays["X"]
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise FormatError(path, None, f"X is {X.dtype} of shape {X.shape}", "save numbers [samples, features]")
        if not np.isfinite(X).all():
            row, column = np.argwhere(~np.isfinite(X))[0]
            raise FormatError(path, None, f"X[{row}, {column}] is {X[row, column]}", "fill it, or leave the row out")
        X = np.asfortranarray(X, np.float64)
    else:
        from scipy.sparse import csc_array

        data = load_npz(path, "sum")
        X = csc_array((data.values.astype(np.float64), (data.rows, data.cols)), shape=data.shape)
    if y.shape != X.shape[:1]:
        raise FormatError(path, None, f"y has shape {y.shape} for {X.shape[0]} samples", "save one target for each")
    names = [str(name) for name in arrays["names"]] if "names" in arrays else [str(j) for j in range(X.shape[1])]
    if len(names) != X.shape[1]:
        raise FormatError(path, None, f"there are {len(names)} names for {X.shape[1]} features", "save one for each")
    return Samples(X, _whole(y), names)


def _whole(y: NDArray[Any]) -> NDArray[Any]:
    """Labels that are whole numbers as integers, so that classes are named 1 and not 1.0."""
    if y.dtype.kind == "f" and np.isfinite(y).all() and (np.abs(y) < 2**53).all() and (y == np.trunc(y)).all():
        return y.astype(np.int64)
    return y
