"""Read a table from a Parquet file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.reading.array_files import open_parquet

from .columns import Table


def read_parquet(path: str) -> Table:
    """The columns of a Parquet file: numbers, truth values and text."""
    with open_parquet(path) as file:
        table = file.read()
    names = [str(name) for name in table.column_names]
    columns = [_column(table.column(name)) for name in names]
    unreadable = {name: str(table.column(name).type) for name, one in zip(names, columns, strict=True) if one is None}
    empty = np.zeros(table.num_rows)
    return Table(path, names, [empty if one is None else one for one in columns], None, unreadable=unreadable)


def _column(column: Any) -> NDArray[Any] | None:
    """float64 or text; None for anything else."""
    import pyarrow.types as kinds

    kind = column.type
    if kinds.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind) or kinds.is_boolean(kind):
        plain = column.cast("int8") if kinds.is_boolean(kind) else column
        return np.asarray(plain.cast("float64").to_numpy(), np.float64)
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind):
        return np.array(["" if value is None else value for value in column.to_pylist()], dtype=object)
    return None
