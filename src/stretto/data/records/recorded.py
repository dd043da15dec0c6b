"""Base class of all record sets: iteration, and transformation into other record sets.

A subclass defines how its `Records` are made; all methods of this class use them. `map` is lazy (see `lazy`); the
others are single passes over flat arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from stretto.data.records.records import Records, iterate

if TYPE_CHECKING:
    from stretto.data.records.lazy import LazyRecords
    from stretto.data.records.ragged import Ragged


class RecordsBase(ABC):
    """The base of `Data`, `Sparse`, `Ragged`, `Dense` and `LazyRecords`."""

    __slots__ = ()

    @abstractmethod
    def records(self) -> Records:
        """The view that loops are compiled against; made once for each object."""

    def __len__(self) -> int:
        return len(self.records())

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iterate(self.records())

    def materialize(self) -> RecordsBase:
        """Data with nothing left to do: itself, unless it is lazy."""
        return self

    def map(
        self, function: Callable[..., Any], *, index: bool = False, shape: tuple[int, ...] | None = None
    ) -> LazyRecords:
        """Apply a function to each value, when the result is first needed. Several maps run together in one pass.

        Parameters
        ----------
        function : callable
            function(value) -> a number, a tuple of numbers, or a list of entries. With `index`, function(index, value)
            -> a new (index, value).
        index : bool, default False
            Whether the function takes and returns the index as well.
        shape : tuple of int or None, default None
            Shape of the new data, with `index`; None for as large as the indices need.
        """
        from stretto.data.records.lazy import LazyRecords

        return LazyRecords.over(self).map(function, index=index, shape=shape)

    def numbered(self, values: bool = True) -> RecordsBase:
        """Put the number of each record before its value: `for (d, w), (p, v) in data.numbered()`.

        No two records share the number, so `z[p]` in a loop belongs to one iteration alone.

        Parameters
        ----------
        values : bool, default True
            Whether the value is kept. False: the number is the value.
        """
        from stretto.data.records.reshape import numbered
        from stretto.data.records.wrap import wrap

        return wrap(numbered(self.records(), values), self)

    def group_by(self, axis: int = 0) -> Ragged:
        """One record for each row or column with its entries, in their present order.

        Use it as `for i, entries in data.group_by(0): for j, v in entries`. An entry holds the other indices, then the
        value.

        Parameters
        ----------
        axis : int, default 0
            0 for rows, 1 for columns.
        """
        from stretto.data.records.ragged import Ragged
        from stretto.data.records.reshape import group_by

        records = self.records()
        others = [size for k, size in enumerate(records.shape) if k != axis]
        return Ragged(group_by(records, axis), columns=others[0] if others else 0, source=source_of(self))

    def expanded(self) -> RecordsBase:
        """Counts as repeated records: a value c becomes c records with value 1, next to each other."""
        from stretto.data.records.reshape import expanded
        from stretto.data.records.wrap import wrap

        return wrap(expanded(self.records()), self)

    def shuffle(self, axis: int | None = None, seed: int = 0) -> RecordsBase:
        """Give rows, columns or every axis new indices, in an order drawn from the seed.

        This balances data whose busy rows are next to each other. Index i of an axis became `places[axis][i]` of the
        result.

        Parameters
        ----------
        axis : int or None, default None
            0 for rows, 1 for columns, None for every axis.
        seed : int, default 0
            Decides the order.
        """
        from stretto.data.records.shuffle import shuffled
        from stretto.data.records.wrap import wrap

        records, places = shuffled(self.records(), axis, seed)
        return wrap(records, self, places)


def source_of(data: Any) -> str:
    """Where data came from, for messages."""
    return str(getattr(data, "source", "records"))
