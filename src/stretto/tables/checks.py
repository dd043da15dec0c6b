"""Validate what a worker passes to a table: keys, deltas, output arrays.

An error names the worker, the clock and the table:

    worker 3, clock 7, table 'weights': key 10000 (at 2) does not exist; its rows are 0 to 9999

Arrays of the right type are not copied, and keys are checked in one pass.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.errors import DataError

Keys = NDArray[np.int64]
_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


class CallSite(Protocol):
    """The worker that makes a call, and its clock."""

    worker: int

    @property
    def clock(self) -> int: ...


class TableChecks:
    """Checks for one worker and one table. rows: None for any int64 keys. dtype: in which rows are stored."""

    def __init__(
        self, client: CallSite, name: str, rows: int | None, cols: int, dtype: np.dtype[Any], finite: bool
    ) -> None:
        self.client, self.name, self.rows, self.cols, self.dtype, self.finite = client, name, rows, cols, dtype, finite

    def wrong(self, what: str) -> DataError:
        """The error, with worker, clock and table."""
        return DataError(f"worker {self.client.worker}, clock {self.client.clock}, table {self.name!r}: {what}")

    def keys(self, keys: ArrayLike) -> Keys:
        """[n] int64, all of them rows of the table."""
        found = keys
        if not (type(found) is np.ndarray and found.dtype == _INT64 and found.ndim == 1 and found.flags.c_contiguous):
            found = self._whole(keys, "keys")
        # As unsigned integers negative numbers are large, so one comparison finds keys on both sides of the range.
        if self.rows is not None and len(found) and int(found.view(_UINT64).max()) >= self.rows:
            raise self._stray(found, self.rows, "key", "its rows are")
        return found

    def columns(self, cols: ArrayLike, like: Keys) -> Keys:
        """[n] int64, the columns that go with keys."""
        found = self._whole(cols, "columns")
        if len(found) == 1 < len(like):
            found = np.full(len(like), found[0])
        if len(found) != len(like):
            raise self.wrong(f"{len(like)} rows and {len(found)} columns; give one column for each row")
        if len(found) and int(found.view(_UINT64).max()) >= self.cols:
            raise self._stray(found, self.cols, "column", "its columns are")
        return found

    def _whole(self, given: ArrayLike, what: str) -> Keys:
        found = np.asarray(given)
        if found.ndim > 1:
            raise self.wrong(f"{what} have shape {found.shape}; give a flat list or array of whole numbers")
        if found.dtype.kind not in "iu" and found.size:
            raise self.wrong(f"{what} are {found.dtype}, not whole numbers; convert them with .astype(np.int64)")
        if found.dtype == _UINT64 and found.size and int(found.max()) > np.iinfo(np.int64).max:
            raise self.wrong(f"{what} go up to {found.max()}, which is more than int64 holds")
        return np.ascontiguousarray(found.reshape(-1), dtype=_INT64)

    def _stray(self, found: Keys, end: int, what: str, those: str) -> DataError:
        at = int(((found < 0) | (found >= end)).argmax())
        return self.wrong(f"{what} {found[at]} (at {at}) does not exist; {those} 0 to {end - 1}")

    def deltas(self, deltas: ArrayLike, n: int, cols: int) -> NDArray[Any]:
        """[n, cols] C-contiguous in the table's dtype. A single number is added everywhere."""
        found = deltas
        if not (
            type(found) is np.ndarray
            and found.dtype == self.dtype
            and found.shape == (n, cols)
            and found.flags.c_contiguous
        ):
            found = self._converted(deltas, n, cols)
        if self.finite and found.dtype.kind == "f" and not np.isfinite(found).all():
            at = int((~np.isfinite(found).all(axis=1)).argmax())
            what = "NaN" if np.isnan(found[at]).any() else "infinity"
            raise self.wrong(f"the delta at {at} holds {what}; the step is too large, or something was divided by zero")
        return found

    def _converted(self, deltas: ArrayLike, n: int, cols: int) -> NDArray[Any]:
        found = np.asarray(deltas)
        if found.dtype != self.dtype and not np.can_cast(found.dtype, self.dtype, "same_kind"):
            raise self.wrong(f"deltas are {found.dtype} and the table holds {self.dtype}; round or convert them first")
        if found.ndim == 0:
            return np.full((n, cols), found, dtype=self.dtype)
        shapes = {(n, cols)} | ({(n,)} if cols == 1 else set()) | ({(cols,)} if n == 1 else set())
        if found.shape not in shapes:
            raise self.wrong(
                f"deltas have shape {found.shape} for {n} keys of rows {cols} wide; give {self._shape(n, cols)}"
            )
        return np.ascontiguousarray(found, dtype=self.dtype).reshape(n, cols)

    def out(self, out: Any, n: int, cols: int) -> NDArray[Any]:
        """[n, cols] to read into: a new array, or the caller's."""
        if out is None:
            return np.empty((n, cols), dtype=self.dtype)
        if not isinstance(out, np.ndarray) or out.dtype != self.dtype:
            raise self.wrong(f"out is {getattr(out, 'dtype', type(out).__name__)}; give a {self.dtype} array")
        if out.shape != (n, cols) and not (cols == 1 and out.shape == (n,)):
            raise self.wrong(f"out has shape {out.shape}; {n} keys need {self._shape(n, cols)}")
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise self.wrong("out must be C-contiguous and writeable; give an array made by np.empty")
        return out if out.ndim == 2 else out.reshape(n, 1)

    @staticmethod
    def _shape(n: int, cols: int) -> str:
        return f"[{n}]" if cols == 1 else f"[{n}, {cols}]"
