"""Apply changes to rows by a server function: all of a batch or none of it.

The built-in rules cannot fail and change the rows in place. A function of the user may raise, return NaN, write out of
range or not compile: it works on copies of the rows, which are written back when all changes succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.errors import Diverged, RunError
from stretto.kernels.tables import server_functions as kernels
from stretto.store.index import longer
from stretto.store.layout import Layout

from .functions import ROW, ServerFunction

Slots = NDArray[np.int64]

_KINDS = {
    "add": kernels.ADD,
    "average": kernels.AVERAGE,
    "adagrad": kernels.ADAGRAD,
    "proximal": kernels.PROXIMAL,
    "adarevision": kernels.ADAREVISION,
}


@dataclass(slots=True, eq=False)
class RowColumns:
    """Rows and their states, by slot. Arrays that the policy does not use are empty."""

    values: NDArray[Any]  # [cap, cols]
    state: NDArray[Any]  # [cap, states, cols]
    version: NDArray[np.int32]  # [cap]
    scale: NDArray[np.float32]  # [cap] the factor last applied
    moved: NDArray[np.float64]  # [cap] how far the row has moved since it was last pushed
    size: NDArray[np.float64]  # [cap] Σ|row| of rows that have moved
    witness: NDArray[np.int32]  # [cap, workers]; no columns if nothing is recorded

    def resize(self, capacity: int) -> None:
        """Grow to this capacity; the rows stay."""
        for name in ("values", "state", "version", "witness"):
            setattr(self, name, longer(getattr(self, name), capacity))
        if len(self.scale):
            self.scale = longer(self.scale, capacity)
        if len(self.moved):
            self.moved, self.size = longer(self.moved, capacity), longer(self.size, capacity)

    def copy_rows(self, to: Slots, source: RowColumns, slots: Slots) -> None:
        """self[to] = source[slots], except `moved` and `size`, which only the served rows need."""
        self.values[to] = source.values[slots]
        self.state[to] = source.state[slots]
        self.version[to] = source.version[slots]
        if len(self.scale) and len(source.scale):
            self.scale[to] = source.scale[slots]
        self.witness[to] = source.witness[slots]


class RowChanges(NamedTuple):
    """Changes to apply to rows of `columns`, in order."""

    columns: RowColumns
    slots: Slots  # [n] of the columns
    deltas: NDArray[Any]  # [n, cols]
    old: NDArray[Any]  # [n, cols] snapshots the changes were computed from; [0, cols] where versions are not kept
    witness: NDArray[np.int32] | None = None  # [n, workers]; None where nothing is recorded
    blind: Slots | None = None  # entries computed without reading the row; their `old` is what the columns hold


class Applier:
    """A table's server function, ready to run."""

    def __init__(self, layout: Layout, table: int) -> None:
        self.spec = layout.tables[table]
        self.function = self.spec.apply
        self.function.check(self.spec.name, self.spec.dtype)
        self.real = self.spec.kept if self.spec.kept.kind == "f" else np.dtype("f8")  # the dtype of states
        self._params = _frozen(np.array(_numbers(self.function, layout.workers), dtype=self.real))
        self._kind = _KINDS.get(self.function.rule, -1)
        self._user = self.function.rule == "user"
        self._where = f"table {self.spec.name!r}: server function {self.function.name!r}"

    def columns(
        self, capacity: int, witnesses: int, scaled: bool, tracked: bool, values: NDArray[Any] | None = None
    ) -> RowColumns:
        """Columns of zeros. values [capacity, cols]: rows that are used in place, which have no versions."""
        cols = self.spec.cols
        return RowColumns(
            np.zeros((capacity, cols), dtype=self.spec.kept) if values is None else values,
            np.zeros((capacity, self.function.states, cols), dtype=self.real),
            np.zeros(capacity if values is None else 0, dtype=np.int32),
            np.ones(capacity if scaled else 0, dtype=np.float32),
            np.zeros(capacity if tracked else 0),
            np.zeros(capacity if tracked else 0),
            np.zeros((capacity, witnesses), dtype=np.int32),
        )

    def snapshot_of(self, columns: RowColumns) -> NDArray[Any]:
        """[cap, cols] a view of the array that snapshots are taken from: a state, or the rows."""
        which = self.function.snapshot
        return columns.values if which == ROW or which is None else columns.state[:, which]

    def begin(self, layout: Layout, table: int, keys: Slots) -> tuple[NDArray[Any], NDArray[Any]]:
        """values [n, cols] and states [n, states, cols] of new rows."""
        values = layout.start_rows(table, keys)
        state = np.empty((len(keys), self.function.states, self.spec.cols), dtype=self.real)
        given = layout.start_states(table, keys)
        for k, start in enumerate(self.function.starts):
            state[:, k] = start if given is None else given[k]
        if self.function.create is not None and given is None:
            try:
                kernels.user_create(self.function.create)(values, state, keys)
            except Exception as error:
                raise self._failed(error, "make a row with its `create`") from error
            self._check_finite(values, state, keys)
        return values, state

    def run(self, changes: list[RowChanges], keys: Slots) -> None:
        """Apply these changes. keys [cap]: of the slots of the first change, for error messages."""
        if self._user:
            self._run_user(changes, keys)
            return
        for columns, slots, deltas, old, *_ in changes:
            kernels.apply_rows.exact(
                self._kind,
                columns.values,
                columns.state,
                slots,
                _frozen(deltas),
                _frozen(old),
                self._params,
                columns.scale,
                columns.moved,
                columns.size,
            )

    def _run_user(self, changes: list[RowChanges], keys: Slots) -> None:
        assert self.function.apply is not None
        ready: list[tuple[RowColumns, Slots, Slots, NDArray[Any], NDArray[Any], NDArray[np.float64]]] = []
        for columns, slots, deltas, old, *_ in changes:
            once, where = np.unique(slots, return_inverse=True)
            values, state = columns.values[once], columns.state[once]
            scale = np.ones(len(slots), dtype=np.float64)
            try:
                kernels.user_apply(self.function.apply)(
                    values, state, where, _frozen(deltas), _frozen(old), self._params, scale
                )
            except Exception as error:
                raise self._failed(error, f"apply {len(slots)} changes") from error
            self._check_finite(values, state, None if ready else keys[once])
            ready.append((columns, slots, once, values, state, scale))
        for columns, slots, once, values, state, scale in ready:
            if len(columns.moved):
                far = np.abs(values.astype(np.float64) - columns.values[once])
                columns.moved[once] += far.sum(axis=1)
                columns.size[once] = np.abs(values.astype(np.float64)).sum(axis=1)
            columns.values[once] = values
            columns.state[once] = state
            if len(columns.scale):
                columns.scale[slots] = scale  # NumPy keeps the last of several changes of one row

    def _check_finite(self, values: NDArray[Any], state: NDArray[Any], keys: Slots | None) -> None:
        for what, array in (("row", values), ("states of row", state)):
            if array.dtype.kind != "f":
                continue
            bad = np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim))))
            if len(bad):
                key = "" if keys is None else f" {keys[bad[0]]}"
                raise Diverged(
                    f"{self._where} left NaN or infinity in the {what}{key}; nothing was changed. Look for a division "
                    "by zero or too large a step, or pass check_finite=True to see whether the changes were finite"
                )

    def _failed(self, error: Exception, doing: str) -> RunError:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = next((line for line in lines if not line.startswith("Failed in")), "")
        if _is_compiling(error):
            remedy = "write it with arithmetic and loops over row, state, delta and old, and return a number"
            if any("readonly array" in line for line in lines):
                said = "it writes to delta, old or params"
                remedy = "these are not its own; copy them first"
            elif said.endswith("found for signature:"):
                said = " ".join(lines[lines.index(said) :][:2])  # with what it was called
            return RunError(f"{self._where} cannot be compiled by Numba: {said}; {remedy}")
        return RunError(f"{self._where} failed to {doing}: {type(error).__name__}: {said}; nothing was changed")


def _numbers(function: ServerFunction, workers: int) -> tuple[float, ...]:
    """Parameters of the function's kernel."""
    if function.rule == "average" and not function.params:
        return (float(workers),)
    if function.rule == "proximal":
        step, l1, l2 = function.params
        return step, step * l1, 1.0 + step * l2
    return function.params


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The array, read-only: one type for the compiler whatever its origin, and no one writes to a message."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _is_compiling(error: Exception) -> bool:
    from numba.core.errors import NumbaError

    return isinstance(error, NumbaError)
