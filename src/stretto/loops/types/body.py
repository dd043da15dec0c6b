"""`Body`: a typed loop body with the arrays, fields and numbers it refers to."""

from __future__ import annotations

from dataclasses import dataclass

from .typed_tree import Scalar, ScalarType, Step


@dataclass(frozen=True, slots=True)
class BodyArray:
    """An array that the body uses. Its role is one of

    'state'        an argument
    'captured'     read only
    'local'        private to an iteration
    'buffer'       the sum of writes of a buffer
    'accumulator'
    """

    name: str  # in the function
    dtype: str  # NumPy's short name, such as 'f4'
    shape: tuple[int | None, ...]  # sizes known when compiled; None for an axis that may differ from call to call
    role: str  # see above
    sizes: tuple[Scalar, ...] = ()  # of a local array: its shape, evaluated once
    allocated: bool = False  # whether `Allocate` makes it, each time with the sizes of that moment


@dataclass(frozen=True, slots=True)
class RaggedField:
    """A ragged field of the record."""

    name: str  # of the field
    types: tuple[ScalarType, ...]  # of the numbers of an entry


@dataclass(frozen=True, slots=True)
class Body:
    """A typed loop body and what it refers to."""

    line: int  # of the loop in the user's file
    indices: tuple[str, ...]  # names of the loop's indices, outermost first
    fields: tuple[tuple[str, ScalarType], ...]  # scalar fields of the record with their types
    ragged: tuple[RaggedField, ...]  # ragged fields of the record
    numbers: tuple[tuple[str, ScalarType], ...]  # arguments and captured numbers
    arrays: tuple[BodyArray, ...]  # everything that is subscripted
    steps: tuple[Step, ...]  # the statements

    def array(self, name: str) -> BodyArray:
        """The array of that name."""
        return next(array for array in self.arrays if array.name == name)
