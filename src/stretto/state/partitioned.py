"""States whose rows or columns have given holders, and data that are declared as such a state without being copied."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.errors import PlanError
from stretto.state.partitions import Ranges
from stretto.state.state import State
from stretto.text import show_bytes


class PartitionedState(State):
    """A state whose rows have given holders. Made by `st.state(…, partition=…)`."""

    __slots__ = ("partition",)

    def __init__(self, array: ArrayLike, partition: Any) -> None:
        super().__init__(array)
        self.partition = partition

    def __reduce__(self) -> Any:
        return type(self), (self._array, self.partition)

    def copy(self) -> PartitionedState:
        """Another state with the same numbers and holders."""
        return type(self)(self._array, self.partition)


class AutoState(State):
    """A state whose placement is proposed and applied when a task runs. Made by `st.state(…, placement="auto")`."""

    __slots__ = ()


class ColumnState(PartitionedState):
    """A state whose columns have given holders. Tables hold it transposed: a row of the table is a column."""

    __slots__ = ("_transposed",)

    def __init__(self, array: ArrayLike, partition: Ranges) -> None:
        given = np.asarray(array)
        if given.ndim != 2:
            raise PlanError(
                f"state: partition='columns' of an array {list(given.shape)}; give a matrix, or partition='rows'"
            )
        self._transposed = State(given.T)
        self._array = self._transposed.array.T
        self.partition = partition

    @property
    def stored(self) -> State:
        """The transposed numbers [columns, rows]: the same memory."""
        return self._transposed


class DeclaredData:
    """Data that are declared as a partitioned state and only read. Made by `st.state(source, partition=…)`.

    Each part of a unit has its own rows or columns, where it runs. Files and sources are read there, by the part, so
    that the process that describes the task holds nothing of them.

    Attributes
    ----------
    value : object
        A sparse matrix (CSR by rows, CSC by columns), `st.Data`, a source, or a path.
    partition : Ranges
        Which rows or columns each part has.
    """

    def __init__(self, value: Any, partition: Ranges) -> None:
        self.value, self.partition = value, partition
        self.opened: Any = None  # of a path: the files, once a unit uses them

    @property
    def nbytes(self) -> int:
        """Bytes in this process, as far as they are known."""
        if hasattr(self.value, "indptr"):
            return int(self.value.data.nbytes + self.value.indices.nbytes + self.value.indptr.nbytes)
        return int(getattr(self.value, "nbytes", 0) or 0)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Its shape, where it is known before it is read."""
        return getattr(self.value, "shape", None)

    def bounds(self, parts: int) -> NDArray[np.int64] | None:
        """[parts + 1] where the rows or columns of each part begin; None: that is known where they are read."""
        if not hasattr(self.value, "shape"):
            return None
        axis = 0 if self.partition.axis == "rows" else 1
        size = self.value.shape[axis] if hasattr(self.value, "tocsr") else len(self.value)
        return self.partition.bounds(int(size), parts)

    def cut(self, part: int, parts: int) -> Any:
        """The rows or columns of a part."""
        bounds = self.bounds(parts)
        assert bounds is not None
        mine = slice(int(bounds[part]), int(bounds[part + 1]))
        if hasattr(self.value, "tocsr"):
            return self.value[mine] if self.partition.axis == "rows" else self.value[:, mine]
        return self.value.take(mine)

    def __repr__(self) -> str:
        shape = "" if self.shape is None else f" [{' x '.join(map(str, self.shape))}]"
        size = f", {show_bytes(self.nbytes)}" if self.nbytes else ""
        return f"DeclaredData({type(self.value).__name__}{shape}, {self.partition.words()}{size})"
