"""Bind the arguments and captured values of a call: descriptions by type and shape for the analysis.

    infos = bind({"ratings": data, "W": W, "lr": 0.01})
    infos["W"]      ArrayInfo("W", "f4", (6040, 64), "state")

The executor of the plan keeps the arrays themselves (`BoundValues`); the analysis reads only the descriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.records import Records
from stretto.errors import PlanError
from stretto.loops.types.promote import DTYPES, short
from stretto.loops.types.typed_tree import BOOL, FLOAT, INT, ScalarType
from stretto.state.accumulator import Accumulator
from stretto.state.buffer import Buffer
from stretto.state.state import State


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An array."""

    name: str  # in the function
    dtype: str  # NumPy's short name, such as 'f4'
    shape: tuple[int, ...]  # its shape
    role: str  # 'state' (an argument) or 'captured'


@dataclass(frozen=True, slots=True)
class StructInfo:
    """An array of structs: one ArrayInfo for each field, named `name.field`."""

    name: str
    fields: tuple[str, ...]
    role: str


@dataclass(frozen=True, slots=True)
class NumberInfo:
    name: str
    kind: ScalarType
    value: int | float | bool


@dataclass(frozen=True, slots=True)
class AccumulatorInfo:
    name: str
    dtype: str
    shape: tuple[int, ...]
    op: str  # '+', '*', 'max', 'min' or 'user'


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """A buffer."""

    name: str  # in the function
    target: str  # name of the buffered array in the loop
    helpers: tuple[str, ...]  # names of the arrays that `apply` uses
    dtype: str  # of the target
    shape: tuple[int, ...]  # of the target
    every: int | None  # iterations between two flushes; None: at the end of a visit
    plain: bool  # whether `apply` is addition
    snapshot: int  # index of the snapshot helper; −1 for none
    helper_dtypes: tuple[str, ...] = ()  # types of the helpers


@dataclass(frozen=True, eq=False)
class DataInfo:
    name: str
    records: Records


Info: TypeAlias = ArrayInfo | StructInfo | NumberInfo | AccumulatorInfo | BufferInfo | DataInfo


@dataclass(frozen=True, eq=False)
class BoundValues:
    """The arguments and captured values themselves, by name."""

    infos: Mapping[str, Info]  # their descriptions
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)  # states and arrays
    numbers: dict[str, Any] = field(default_factory=dict)  # numbers
    accumulators: dict[str, Accumulator] = field(default_factory=dict)  # accumulators
    buffers: dict[str, Buffer] = field(default_factory=dict)  # buffers
    data: dict[str, Any] = field(default_factory=dict)  # data that loops iterate over
    overlaps: list[tuple[str, str]] = field(default_factory=list)  # names of arrays that share memory

    @property
    def values(self) -> dict[str, Any]:
        """All of them, by name."""
        return {**self.arrays, **self.numbers, **self.accumulators, **self.buffers, **self.data}


def kind_of(value: Any) -> ScalarType:
    """The kind of a number as an argument: plain Python numbers are weak."""
    if isinstance(value, np.generic):
        return ScalarType(short(value.dtype))
    if isinstance(value, bool):
        return BOOL
    return INT if isinstance(value, int) else FLOAT


def bind(arguments: Mapping[str, Any], captured: Mapping[str, Any]) -> BoundValues:
    """Describe the arguments of a loop and the values that it captures from enclosing scopes."""
    held = BoundValues(infos={})
    infos: dict[str, Info] = held.infos  # type: ignore[assignment]
    for role, values in (("state", arguments), ("captured", captured)):
        for name, value in values.items():
            infos[name] = _describe(name, value, role, held)
    infos |= {name: _buffer(name, buffer, held) for name, buffer in held.buffers.items()}
    infos |= {
        name: ArrayInfo(name, short(array.dtype), array.shape, _role(name, infos))
        for name, array in held.arrays.items()
    }
    held.overlaps.extend(_overlaps(held))
    return held


def _role(name: str, infos: Mapping[str, Info]) -> str:
    info = infos.get(name, infos.get(name.partition(".")[0]))
    return info.role if isinstance(info, ArrayInfo | StructInfo) else "state"


def _describe(name: str, value: Any, role: str, held: BoundValues) -> Info:
    if isinstance(value, Buffer):
        held.buffers[name] = value
        return BufferInfo(name, "", (), "", (), None, True, -1)  # completed when all arrays are known
    if isinstance(value, np.ma.MaskedArray):
        raise PlanError(f"{name} is a masked array, and a loop does not see the mask; give {name}.filled(...)")
    if isinstance(value, np.matrix):
        raise PlanError(f"{name} is a NumPy matrix, whose rows are matrices themselves; give np.asarray({name})")
    if isinstance(value, Accumulator) or (isinstance(value, np.ndarray) and value.ndim == 0):
        accumulator = value if isinstance(value, Accumulator) else Accumulator(value)
        if isinstance(value, np.ndarray):
            accumulator.array = value  # a 0-d array of the user's, which receives the result
        held.accumulators[name] = accumulator
        array = accumulator.array
        return AccumulatorInfo(name, _dtype(name, array), array.shape, operator_of(name, accumulator.op))
    if isinstance(value, State | np.ndarray):
        array = np.asarray(value)
        if array.dtype.names:
            usable = tuple(part for part in array.dtype.names if _known(array.dtype[part]))
            for part in usable:
                held.arrays[f"{name}.{part}"] = array[part]
            return StructInfo(name, usable, role)
        held.arrays[name] = array
        return ArrayInfo(name, _dtype(name, array), array.shape, role)
    if isinstance(value, bool | int | float | np.generic):
        if isinstance(value, np.generic) and not _known(value.dtype):
            raise PlanError(f"{name} is a {value.dtype}, which a loop cannot compute with; convert it: float({name})")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise PlanError(f"{name} is {value}, which does not fit in 64 bits; pass it as a float")
        held.numbers[name] = value
        return NumberInfo(name, kind_of(value), value.item() if isinstance(value, np.generic) else value)
    records: Callable[[], Records] | None = getattr(value, "records", None)
    if records is not None:
        held.data[name] = value
        return DataInfo(name, records())
    raise PlanError(f"{name} is a {type(value).__name__}, which a loop cannot use; {_instead(name, value)}")


def _instead(name: str, value: Any) -> str:
    """What to pass instead of a value that a loop cannot use."""
    room = type(value).__module__.partition(".")[0]
    if room == "scipy":
        return f"give st.as_data({name}) for its entries one by one, or st.samples({name}) for its rows"
    if room in ("pandas", "polars"):
        return f"give {name}.to_numpy(), or st.as_data({name}) for a table of row, column and value"
    if isinstance(value, list | tuple):
        return f"give np.array({name})"
    return "give it Data, a State or NumPy array, a number, an accumulator or a buffer"


OPERATORS = {np.add: "+", np.multiply: "*", np.maximum: "max", np.minimum: "min", np.bitwise_or: "|",
              np.bitwise_and: "&", np.bitwise_xor: "^"}  # fmt: skip


def operator_of(name: str, op: Any) -> str:
    """The internal name of an accumulator's operator; 'user' for a user's function."""
    if op in OPERATORS:
        return OPERATORS[op]
    if isinstance(op, np.ufunc):
        raise PlanError(f"{name}: a loop cannot fold with {op.__name__}; give a function of two numbers instead")
    return "user"


def _known(dtype: np.dtype[Any]) -> bool:
    return dtype.isnative and dtype.kind in "biuf" and short(dtype) in DTYPES


def _dtype(name: str, array: NDArray[Any]) -> str:
    if not array.dtype.isnative:
        remedy = f"pass {name}.astype({name}.dtype.newbyteorder('='))"
        raise PlanError(f"{name} is in the byte order of another kind of machine; {remedy}")
    found = short(array.dtype) if array.dtype.kind in "biuf" else array.dtype.name
    if found not in DTYPES:
        raise PlanError(f"{name} holds {found}, which a loop cannot compute with; use one of {', '.join(DTYPES)}")
    return found


def _buffer(name: str, buffer: Buffer, held: BoundValues) -> BufferInfo:
    """Find the names of a buffer's arrays among the arguments; arrays that are not arguments get new names."""

    def named(array: NDArray[Any], suffix: str) -> str:
        for known, held_array in held.arrays.items():
            if _same(held_array, array):
                return known
        held.arrays[f"{name}.{suffix}"] = array
        return f"{name}.{suffix}"

    target = named(buffer.target, "target")
    helpers = tuple(named(helper, f"with{k}") for k, helper in enumerate(buffer.helpers))
    array = held.arrays[target]
    return BufferInfo(
        name,
        target,
        helpers,
        _dtype(target, array),
        array.shape,
        buffer.every,
        buffer.apply is None,
        -1 if buffer.snapshot is None else buffer.snapshot,
        tuple(_dtype(helper, held.arrays[helper]) for helper in helpers),
    )


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays are the same view. W and W.T of a square matrix differ in strides only."""
    begin = a.__array_interface__["data"] == b.__array_interface__["data"]
    return begin and a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype


def _overlaps(held: BoundValues) -> list[tuple[str, str]]:
    """Pairs of names for arrays that share memory."""
    names = list(held.arrays)
    found = []
    for k, first in enumerate(names):
        for second in names[k + 1 :]:
            owner = first.partition(".")[0]
            if owner == second.partition(".")[0] and isinstance(held.infos[owner], StructInfo):
                continue  # two fields of one array of structs are interleaved and share no element
            a, b = held.arrays[first], held.arrays[second]
            if np.may_share_memory(a, b) and np.shares_memory(a, b):
                found.append((first, second))
    return found


def refuse_overlap(held: BoundValues, written: Set[str]) -> None:
    """Refuse writes to arrays that share memory, since the analysis treats two names as two arrays."""
    for first, second in held.overlaps:
        if first in written or second in written:
            raise PlanError(
                f"{first} and {second} share memory and the loop writes to it; a loop takes two names for two arrays, "
                "so pass one of them, or a copy"
            )
