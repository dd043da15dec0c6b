"""Read binary array files: `.npz` (SciPy's and ours) and Parquet."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.convert import as_data
from stretto.data.convert.roles import ColumnChoice, find_roles
from stretto.data.reading.headers import check_extent
from stretto.data.reading.parsing import ReadOptions
from stretto.data.reading.source import open_plain, size_of
from stretto.data.records.data import Data
from stretto.data.records.duplicates import settle
from stretto.data.records.ids import IdMap
from stretto.errors import DataError, FormatError

_AGAIN = "write or download it again"


def load(path: str, format: str, options: ReadOptions, duplicates: str) -> Data:
    """A whole file of one of these kinds."""
    if format == "npz":
        if options.choice != ColumnChoice():
            raise DataError(f"{path}: an .npz file has arrays instead of columns; leave columns=, user=, … out")
        return load_npz(path, duplicates)
    return load_parquet(path, options, duplicates)


def load_npz(path: str, duplicates: str) -> Data:
    """Our `rows, cols, values, shape[, labels, ids]`, or what `scipy.sparse.save_npz` wrote. Nothing is unpickled."""
    arrays = read_archive(path)
    if {"rows", "cols", "values"} <= arrays.keys():
        maps = {k: _ids(path, arrays, k) for k in ("row", "col")}
        shape = _shape(path, arrays["shape"]) if "shape" in arrays else None
        data = Data.from_arrays(
            arrays["rows"], arrays["cols"], arrays["values"], shape, labels=arrays.get("labels"),
            row_ids=maps["row"], col_ids=maps["col"], source=path,
        )  # fmt: skip
        for name, ids, size in (("row", data.row_ids, data.shape[0]), ("column", data.col_ids, data.shape[1])):
            check_extent(path, size, f"{name}s", "the archive has", size_of(path), packed=True)
            if ids is not None and len(ids) != size:
                raise FormatError(path, None, f"there are {len(ids)} ids for {size} {name}s", _AGAIN)
        return settle(data, duplicates)
    if {"format", "shape", "data"} <= arrays.keys():
        return as_data(_from_scipy(path, arrays), source=path)
    have = ", ".join(arrays) or "nothing"
    raise FormatError(
        path,
        None,
        f"no sparse matrix inside (it holds {have})",
        "save rows, cols and values, or use scipy.sparse.save_npz",
    )


def read_archive(path: str) -> dict[str, NDArray[Any]]:
    """The arrays of a zip archive, each compared with the bytes it has before it is allocated."""
    try:
        with open_plain(path) as (stream, _), zipfile.ZipFile(stream) as archive:
            return {
                info.filename.removesuffix(".npy"): _read_array(archive, info)
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
    except DataError as error:
        raise FormatError(path, None, str(error), _AGAIN) from error
    except Exception as error:  # zipfile, zlib and NumPy raise almost anything for a damaged archive
        raise FormatError(path, None, f"the archive is damaged ({error})", _AGAIN) from error


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in {(1, 0), (2, 0)}:
            raise DataError(f"{info.filename} has version {version} of the .npy format")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
        need = dtype.itemsize
        for size in shape:
            need *= size
        if dtype.hasobject or need > info.file_size:
            why = "holds Python objects" if dtype.hasobject else f"promises {need:,} bytes and has {info.file_size:,}"
            raise DataError(f"{info.filename} {why}")
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def _shape(path: str, stored: NDArray[Any]) -> tuple[int, int]:
    if stored.shape != (2,) or stored.dtype.kind not in "iu" or bool((stored < 0).any()):
        raise FormatError(path, None, f"the shape {stored.tolist()!r} is no pair of sizes", _AGAIN)
    return int(stored[0]), int(stored[1])


def _ids(path: str, arrays: dict[str, Any], axis: str) -> IdMap | None:
    start = f"{axis}_ids."
    parts = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
    try:
        return IdMap.from_arrays(parts) if parts else None
    except DataError as error:
        raise FormatError(path, None, str(error)) from error


def _from_scipy(path: str, arrays: dict[str, Any]) -> Any:
    """The matrix that `scipy.sparse.save_npz` stored; the caller checks its structure."""
    from scipy import sparse

    shape = _shape(path, arrays["shape"])
    for name, size in zip(("rows", "columns"), shape, strict=True):
        check_extent(path, size, name, "the archive has", size_of(path), packed=True)
    stored = arrays["format"]
    name = stored.item() if stored.ndim == 0 else stored
    form = name.decode("ascii", errors="replace") if isinstance(name, bytes) else str(name)
    try:
        if form in {"csr", "csc", "bsr"}:
            kind = {"csr": sparse.csr_array, "csc": sparse.csc_array, "bsr": sparse.bsr_array}[form]
            return kind((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
        if form == "coo":
            return sparse.coo_array((arrays["data"], (arrays["row"], arrays["col"])), shape=shape)
        if form == "dia":
            return sparse.dia_array((arrays["data"], arrays["offsets"]), shape=shape)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FormatError(path, None, f"the stored matrix is damaged ({error})", _AGAIN) from error
    raise FormatError(path, None, f"no sparse format {form!r}", "use csr, csc, coo, bsr or dia")


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """A Parquet file as pyarrow has it; an error of pyarrow's becomes one that names the file."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow; install it with: pip install 'stretto[parquet]'"
        ) from error
    try:
        with open_plain(path) as (stream, _):
            yield pyarrow.parquet.ParquetFile(stream)
    except DataError:
        raise
    except Exception as error:  # Arrow's own, and whatever a damaged file makes its parts raise
        raise FormatError(path, None, f"the Parquet file is damaged ({error})", _AGAIN) from error


def parquet_columns(path: str, file: Any, choice: ColumnChoice) -> list[str]:
    """The columns of user, item and, unless every value is 1, rating."""
    names = list(file.schema_arrow.names)
    try:
        return [names[k] for k in find_roles(names, choice) if k >= 0]
    except DataError as error:
        raise FormatError(path, None, str(error)) from None


def load_parquet(path: str, options: ReadOptions, duplicates: str) -> Data:
    """The columns of a Parquet file that hold user, item and rating, as those of a frame."""
    with open_parquet(path) as file:
        columns = parquet_columns(path, file, options.choice)
        table = file.read(columns=columns)
    return as_data(table, columns=columns, duplicates=duplicates, map_ids=not options.raw_ids, source=path)
