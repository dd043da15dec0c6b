"""What every kind of data can do: be iterated, and be turned into other data.

A kind of data says how its `Records` are made; the verbs here follow from that. `map` waits until its result is needed
(see `lazy`); the others are single passes over flat arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from stretto.data.records.records import Records, iterate

if TYPE_CHECKING:
    from stretto.data.records.lazy import Lazy
    from stretto.data.records.ragged import Ragged


class Recorded(ABC):
    """The base of `Data`, `Sparse`, `Ragged`, `Dense` and `Lazy`."""

    __slots__ = ()

    @abstractmethod
    def records(self) -> Records:
        """The view that loops are compiled against; made once for each object."""

    def __len__(self) -> int:
        return len(self.records())

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iterate(self.records())

    def materialize(self) -> Recorded:
        """Data with nothing left to do: itself, unless it is lazy."""
        return self

    def map(self, function: Callable[..., Any], *, index: bool = False, shape: tuple[int, ...] | None = None) -> Lazy:
        """Each value becomes function(value): a number, a tuple of numbers, or a list of entries.

        With `index=True`, function(index, value) gives a new (index, value); `shape` is then that of the new data, by
        default as large as the indices need. Nothing is computed until the result is needed, and maps one after the
        other are done together in one pass.
        """
        from stretto.data.records.lazy import Lazy

        return Lazy.over(self).map(function, index=index, shape=shape)

    def numbered(self, values: bool = True) -> Recorded:
        """Each value preceded by the record's number: `for (d, w), (p, v) in data.numbered()`.

        With `values=False` the number is the value. No two records share it, so that `z[p]` in a loop belongs to one
        iteration alone.
        """
        from stretto.data.records.reshape import numbered
        from stretto.data.records.wrap import wrap

        return wrap(numbered(self.records(), values), self)

    def group_by(self, axis: int = 0) -> Ragged:
        """One record for each row (or for each column, `axis=1`) with its entries, in the order they have here.

        `for i, entries in data.group_by(0): for j, v in entries`. An entry holds the other indices, then the value.
        """
        from stretto.data.records.ragged import Ragged
        from stretto.data.records.reshape import group_by

        records = self.records()
        others = [size for k, size in enumerate(records.shape) if k != axis]
        return Ragged(group_by(records, axis), columns=others[0] if others else 0, source=source_of(self))

    def expanded(self) -> Recorded:
        """Counts as repeated records: a value c becomes c records with value 1, next to each other."""
        from stretto.data.records.reshape import expanded
        from stretto.data.records.wrap import wrap

        return wrap(expanded(self.records()), self)

    def shuffle(self, axis: int | None = None, seed: int = 0) -> Recorded:
        """Rows (axis 0), columns (axis 1) or every axis (None) under new indices, in an order drawn from the seed.

        Balances data whose busy rows stand together. What index i has become is `places[axis][i]` of the result.
        """
        from stretto.data.records.shuffle import shuffled
        from stretto.data.records.wrap import wrap

        records, places = shuffled(self.records(), axis, seed)
        return wrap(records, self, places)


def source_of(data: Any) -> str:
    """Where data came from, for messages."""
    return str(getattr(data, "source", "records"))
