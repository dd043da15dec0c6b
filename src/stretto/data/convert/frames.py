"""Convert data frames of any library that narwhals supports (pandas, Polars, Arrow, DuckDB, …) to NumPy columns.

The names of a frame's columns decide which is the user, the item and the rating (`roles`). Text, categories and
integers are ids. Anything that cannot be an id or a rating (dates, lists, missing entries) is refused with its column
and row.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.roles import ColumnChoice, find_pair, find_roles
from stretto.errors import DataError


@dataclass(frozen=True, slots=True)
class EagerFrame:
    """An eager data frame."""

    names: list[Any]  # of its columns
    native: Any  # the frame of its own library
    _frame: Any

    def __len__(self) -> int:
        return len(self._frame)

    def column(self, at: int) -> Any:
        """The series at position `at`."""
        return self._frame.get_column(self.names[at])


def as_frame(X: Any, source: str) -> EagerFrame | None:
    """A frame where X is one; None for anything else. Lazy frames are collected."""
    kind = type(X)
    if isinstance(X, np.ndarray | tuple | list | str | bytes | int | float) or kind.__module__.startswith("scipy."):
        return None  # before anything is imported
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import DuplicateError

    try:
        if kind.__module__.startswith("pyarrow") and kind.__name__ == "RecordBatch":
            import pyarrow

            X = pyarrow.Table.from_batches([X])
        frame = nw.from_native(X, pass_through=True)
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect()
        if not isinstance(frame, nw.DataFrame):
            return None
        return EagerFrame(list(frame.columns), frame.to_native(), frame)
    except DuplicateError as error:
        raise DataError(
            f"{source}: two columns of the {kind.__name__} have one name, so it is not clear which is meant; rename one"
        ) from error


def series_of(X: Any) -> Any:
    """One column of a frame library, behind narwhals' interface; None for anything else."""
    if isinstance(X, np.ndarray | tuple | list | str | bytes):
        return None
    import narwhals.stable.v2 as nw

    found = nw.from_native(X, pass_through=True, allow_series=True)
    return found if isinstance(found, nw.Series) else None


def triple_columns(
    frame: EagerFrame, choice: ColumnChoice, source: str
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Ids of users, ids of items, and ratings (float64) of a table with one record a row."""
    try:
        user, item, rating = find_roles(frame.names, choice)
    except DataError as error:
        raise DataError(f"{source}: {error}{_index_hint(frame)}") from None
    users = ids_of_column(frame.column(user), "user", frame.names[user], source)
    items = ids_of_column(frame.column(item), "item", frame.names[item], source)
    if rating < 0:
        return users, items, np.ones(len(users))
    return users, items, ratings_of_column(frame.column(rating), frame.names[rating], source)


def pair_columns(frame: EagerFrame, source: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ids of users and items of a table of pairs; its other columns are not read."""
    try:
        user, item = find_pair(frame.names)
    except DataError as error:
        raise DataError(f"{source}: {error}{_index_hint(frame)}") from None
    return (
        ids_of_column(frame.column(user), "user", frame.names[user], source),
        ids_of_column(frame.column(item), "item", frame.names[item], source),
    )


def ids_of_column(series: Any, role: str, name: Any, source: str) -> NDArray[Any]:
    """The ids in a column: integers, or text as an object array."""
    import narwhals.stable.v2 as nw

    where = f"{source}: the {role} column {str(name)!r}"
    kind = series.dtype
    if not len(series):
        return np.empty(0, dtype=np.int64)
    missing = int(series.null_count())
    if missing:
        at = int(np.argmax(series.is_null().to_numpy()))
        raise DataError(f"{where} has {missing} missing ids, the first in row {at} (from 0); drop those rows first")
    if isinstance(kind, nw.Categorical | nw.Enum):
        return np.asarray(series.to_numpy())
    if isinstance(kind, nw.Boolean):
        raise DataError(f"{where} holds true and false, which are no ids; name another column with {role}=")
    if kind.is_float():
        return _whole(series.to_numpy(), where)
    if kind.is_integer() or isinstance(kind, nw.String | nw.Object | nw.Unknown):
        try:
            return np.asarray(series.to_numpy())
        except Exception as error:  # each library has its own: 128-bit integers, for instance, do not fit
            raise DataError(f"{where} of {kind} cannot be taken as ids ({error}); give integers or text") from error
    raise DataError(f"{where} holds {kind}, which is no id; give integers or text, or name another column with {role}=")


def _whole(array: NDArray[Any], where: str) -> NDArray[np.int64]:
    """Integers that a library stored as floats, as pandas does where a column once had gaps."""
    from stretto.data.records.ids import whole_numbers

    numbers = whole_numbers(array)
    if numbers is None:
        raise DataError(
            f"{where} holds fractional, missing or very large numbers ({array.dtype}); ids are integers or text"
        )
    return numbers


def ratings_of_column(series: Any, name: Any, source: str) -> NDArray[np.float64]:
    """The values in a column, as float64; missing ones are refused."""
    import narwhals.stable.v2 as nw

    where = f"{source}: the rating column {str(name)!r}"
    kind = series.dtype
    if not len(series):
        return np.empty(0)
    missing = int(series.null_count())
    if missing:
        at = int(np.argmax(series.is_null().to_numpy()))
        raise DataError(f"{where} has {missing} missing values, the first in row {at} (from 0); drop those rows first")
    objects = isinstance(kind, nw.Object) and all(isinstance(x, Real | Decimal) for x in series.to_list())
    if not (kind.is_numeric() or isinstance(kind, nw.Boolean) or objects):
        raise DataError(f"{where} holds {kind}, which are no numbers; convert it, or name another column with rating=")
    try:
        return np.asarray(series.to_numpy(), dtype=np.float64)
    except Exception as error:  # each library has its own for what it cannot convert
        raise DataError(f"{where} of {kind} cannot be converted to numbers ({error})") from error


def _index_hint(frame: EagerFrame) -> str:
    """pandas may hold the ids in its index, which is no column."""
    index = getattr(frame.native, "index", None)
    names = [name for name in getattr(index, "names", None) or [] if name is not None]
    if not names:
        return ""
    return f". Its index ({', '.join(map(str, names))}) is no column: frame.reset_index() makes it one"
