"""The reference interpreter: runs a typed loop body in plain Python and NumPy. It defines the right bits.

    machine = Machine(body, {"W": W, "H": H}, {"lr": 0.01})
    machine.iterate((3, 5), {"r": np.float32(4)}, {})       one iteration, W and H are changed in place

This module runs statements, `evaluate` expressions, and `arithmetic` defines the bits of every operation. The types of
the typed tree are asserted: every value has the type of its target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from stretto.errors import RunError
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.testing.arithmetic import convert, has_kind, strong
from stretto.testing.evaluate import Environment, Index

Accumulators = Mapping[str, tuple[NDArray[Any], Callable[[Any, Any], Any]]]


class Interpreter:
    """Runs iterations of a loop body for one worker.

    Parameters
    ----------
    body : typed loop body
        The statements to run.
    arrays : mapping of arrays
        States, captured arrays and the targets of buffers by name; states are changed in place.
    numbers : mapping of numbers
        Arguments and captured numbers.
    accumulators : mapping
        For each accumulator the array of partial results and the operator, called with two NumPy scalars.
    buffered : callable or None
        Called with the buffer's name, the index and the value (a number or a row) for each `BufferAdd`. None: the value
        is added to the array of that name.
    """

    def __init__(
        self,
        body: Body,
        arrays: Mapping[str, NDArray[Any]],
        numbers: Mapping[str, int | float | bool],
        accumulators: Accumulators | None = None,
        buffered: Callable[[str, Index, Any], None] | None = None,
    ) -> None:
        self.body = body
        self._accumulators = dict(accumulators or {})
        partial = {name: array for name, (array, _) in self._accumulators.items()}
        self._env = Environment(body.arrays, {**arrays, **partial})
        self._numbers = {name: convert(numbers[name], kind) for name, kind in body.numbers}
        self._buffered = buffered or self._add

    def iterate(
        self,
        indices: Sequence[int],
        fields: Mapping[str, int | float | bool],
        ragged: Mapping[str, tuple[NDArray[Any], ...]],
    ) -> None:
        """One iteration: the values of the indices, the scalar fields of the record, and for each ragged field the
        arrays of its parts, all of one length.
        """
        start = dict(self._numbers)
        start.update(zip(self.body.indices, map(int, indices), strict=True))
        start.update({name: convert(fields[name], kind) for name, kind in self.body.fields})
        self._env.begin(start, ragged)
        left = self._steps(self.body.steps)
        assert left != "break", "a break outside every inner loop"

    # --- statements -------------------------------------------------------------------------------------------------

    def _steps(self, steps: tuple[t.Step, ...]) -> str | None:
        """Run statements; 'break' or 'continue' where one of them left the innermost loop."""
        for step in steps:
            left = self._step(step)
            if left is not None:
                return left
        return None

    def _step(self, step: t.Step) -> str | None:
        match step:
            case t.Store():
                values = [self._env.value(value) for value in step.values]
                for place, value in zip(step.places, values, strict=True):
                    self._put(place, value)
            case t.Allocate():
                self._env.allocate(step)
            case t.ZeroFill():
                self._env.array(step.array)[...] = 0
            case t.Fold():
                self._fold(self._env.index(step.accumulator, step), step.accumulator, self._env.value(step.value))
            case t.BufferAdd():
                self._buffered(step.buffer, self._env.index(step.buffer, step), self._env.value(step.value))
            case t.Branch():
                return self._steps(step.body if self._env.scalar(step.test) else step.orelse)
            case t.WhileLoop():
                while self._env.scalar(step.test):
                    if self._steps(step.body) == "break":
                        break
            case t.RangeLoop():
                start, stop, by = (self._env.whole(bound) for bound in (step.start, step.stop, step.step))
                if by == 0:
                    raise RunError(f"line {step.line}: range() with a step of zero never ends; give it another step")
                for k in range(start, stop, by):
                    self._env.values[step.name] = k
                    if self._steps(step.body) == "break":
                        break
            case t.RaggedLoop():
                for entry in zip(*self._env.ragged[step.ragged], strict=True):
                    for name, kind, part in zip(step.names, step.types, entry, strict=True):
                        self._env.values[name] = convert(part, kind)
                    if self._steps(step.body) == "break":
                        break
            case t.Jump():
                return step.kind
            case _:
                assert_never(step)
        return None

    def _put(self, place: t.Place, value: Any) -> None:
        """Write one place. Its subscripts are evaluated now: in `i, A[i] = 1, x` they see the new i, as in Python."""
        match place:
            case t.VarPlace():
                assert has_kind(value, place.type), (place, value)
                self._env.values[place.name] = value
            case t.ElementPlace():
                assert strong(value).dtype == place.dtype == self._env.array(place.array).dtype, (place, value)
                self._env.array(place.array)[self._env.index(place.array, place)] = value
            case t.RowPlace():
                assert value.dtype == place.dtype == self._env.array(place.array).dtype, (place, value.dtype)
                span = self._env.span(place)
                assert len(value) == self._env.whole(place.length), (place, len(value))
                self._env.array(place.array)[span] = value
            case t.RowName():
                assert value.dtype == place.dtype, (place, value.dtype)
                assert len(value) == self._env.whole(place.length), (place, len(value))
                self._env.rows[place.name] = value
            case _:
                assert_never(place)

    def _fold(self, index: Index, name: str, value: Any) -> None:
        """Element by element, so that the operator may be any function of two numbers."""
        array, operator = self._accumulators[name]
        kind = t.ScalarType(array.dtype.str[1:])
        assert strong(value).dtype == array.dtype if np.ndim(value) == 0 else value.dtype == array.dtype, (name, value)
        assert np.shape(value) == array[index].shape, (name, index, np.shape(value))
        with np.errstate(all="ignore"):
            for at in np.ndindex(np.shape(value)):
                whole = (*index, *at)
                array[whole] = convert(operator(array[whole], strong(value) if at == () else value[at]), kind)

    def _add(self, name: str, index: Index, value: Any) -> None:
        with np.errstate(all="ignore"):
            self._env.array(name)[index] += value
