"""A typed loop body, whole: what it is made of, and the arrays, fields and numbers it refers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .typed_tree import Kind, Scalar, Step


@dataclass(frozen=True, slots=True)
class Array:
    """An array the body uses. role: 'state' (an argument), 'captured' (read only), 'local' (private to an iteration;
    shape is then a tuple of scalars evaluated once), 'buffer' (delta of a buffer), 'accumulator'.

    shape: sizes known when compiled; None for an axis that may differ from call to call.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    role: str
    sizes: tuple[Scalar, ...] = ()  # of a local array


@dataclass(frozen=True, slots=True)
class Ragged:
    """A ragged field of the record: the types of its parts."""

    name: str
    types: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class Body:
    """A typed loop body and what it refers to.

    indices: the names of the loop's indices, outermost first. fields: scalar fields of the record with their types.
    numbers: arguments and captured numbers. arrays: everything that is subscripted.
    """

    line: int
    indices: tuple[str, ...]
    fields: tuple[tuple[str, Kind], ...]
    ragged: tuple[Ragged, ...]
    numbers: tuple[tuple[str, Kind], ...]
    arrays: tuple[Array, ...]
    steps: tuple[Step, ...]

    def array(self, name: str) -> Array:
        """The array of that name."""
        return next(array for array in self.arrays if array.name == name)
