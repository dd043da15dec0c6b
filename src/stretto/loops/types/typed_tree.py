"""The typed tree: node types of a loop body with explicit types and conversions, which is compiled and interpreted.

`body_types.fuse` creates it from the loop tree and the types of the arguments, by NumPy 2's promotion: a Python number
(*weak*) takes the type of the other operand, so a Python float does not widen float32. The reference interpreter
(`stretto.testing`) runs this tree in plain Python; `emit.worker_source.lower` compiles it; both give the same bits.

Scalars. Every node has a `type`; the operands of an `Op`, `Test` or `Fma` already have that type (a `Cast` says where
they were converted). Integers wrap around as NumPy's do; `/` is of floats only; integer `//` and `%` round down and
give 0 for a zero divisor; `exp` and `log` are those of `stretto.kernels.numeric.scalar`, computed in float64 and
rounded once.

Rows. A row is one-dimensional and has a `dtype` and a `length` (a scalar of type `INT`). `RowOp` works element by
element. `Dot` and `Sum` use sixteen lanes: element c belongs to lane c mod 16, the last chunk is filled up with zeros,
each lane adds in order starting from zero (float32 `Dot` by fused multiply-add, other types by a product and a sum),
and the lanes fold by halves: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeIs


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A scalar type."""

    dtype: str  # NumPy's short name: 'b1', 'i4', 'f8', …
    weak: bool = False  # whether it is a plain Python number

    def __str__(self) -> str:
        return {"b1": "bool", "i8": "int", "f8": "float"}[self.dtype] if self.weak else self.dtype


INT, FLOAT, BOOL = ScalarType("i8", True), ScalarType("f8", True), ScalarType("b1", True)
MOST_ELEMENTS = 2**31  # one more than a local array has along an axis at most
MOST_CHOICES = 2**31  # the most possible values of `st.integers`

# Functions of one number, or of every element of a row: those in `kernels.numeric.elementary`, and others.
ELEMENTARY = ("cos", "erf", "expm1", "lgamma", "log1p", "sign", "sin", "tanh")
OF_ONE = ("abs", "ceil", "exp", "floor", "log", "sqrt", *ELEMENTARY)


# --- scalars --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Const:
    type: ScalarType
    value: int | float | bool


@dataclass(frozen=True, slots=True)
class Var:
    """An index of the loop, a field of the record, a number among the arguments, or a local variable."""

    type: ScalarType
    name: str


@dataclass(frozen=True, slots=True)
class AxisSize:
    """array.shape[axis], of type INT."""

    type: ScalarType
    array: str
    axis: int


@dataclass(frozen=True, slots=True)
class RaggedSize:
    """The number of entries of the record's ragged field `ragged`, of type INT."""

    type: ScalarType
    ragged: str


@dataclass(frozen=True, slots=True)
class Element:
    """array[index...], one integer for each axis.

    checked: for each axis, whether the range must be checked at run time; False if it is proven. A subscript outside
    0 ≤ k < extent is an error; negative subscripts do not wrap.
    """

    type: ScalarType
    line: int
    array: str
    index: tuple[Scalar, ...]
    checked: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """x converted to `type` as by NumPy's astype: floats to integers by dropping the fraction.

    `kernels.numeric.defined` defines the result for NaN and for a float outside the integer's range.
    """

    type: ScalarType
    x: Scalar


@dataclass(frozen=True, slots=True)
class Op:
    """op: '+', '-', '*', '/', '//', '%', '&', '|', '^', '<<', '>>' of two; 'neg', 'abs', '~', 'sqrt', 'floor', 'ceil',
    'exp', 'log' and the ELEMENTARY functions of one; 'power' of two; 'max', 'min' of two: the second only if it is
    greater (smaller) than the first; 'maximum', 'minimum' of two floats: NaN if there is one. Bools have '&', '|', '^',
    '~', 'abs', 'max' and 'min' only. A shift by a negative count, or by all the bits or more, gives 0, or -1 where a
    negative number is shifted to the right.
    """

    type: ScalarType
    op: str
    args: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """x op y with op one of '<', '<=', '>', '>=', '==', '!='; type is bool. x and y have one type."""

    type: ScalarType
    op: str
    x: Scalar
    y: Scalar


@dataclass(frozen=True, slots=True)
class Logic:
    """op: 'and', 'or' (from the left, as far as needed) of bools, 'not' of one."""

    type: ScalarType
    op: str
    args: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Select:
    """yes if test else no; only the chosen one is evaluated."""

    type: ScalarType
    test: Scalar
    yes: Scalar
    no: Scalar


@dataclass(frozen=True, slots=True)
class Dot:
    """x @ y in sixteen lanes; x and y have one dtype and length."""

    type: ScalarType
    x: Row
    y: Row


@dataclass(frozen=True, slots=True)
class Sum:
    """sum(x) in sixteen lanes."""

    type: ScalarType
    x: Row


@dataclass(frozen=True, slots=True)
class Extreme:
    """The largest or smallest element (op 'max' or 'min'); NaN if there is one; −∞ (or ∞; of integers the least or
    greatest there is, of bools False or True) if there is none at all.

    In sixteen lanes, which matters only for 0.0 and −0.0: element c belongs to lane c mod 16, each lane takes its
    elements in order by RowOp's 'max' or 'min' (of equal ones the left stays), and the lanes fold by halves likewise.
    """

    type: ScalarType
    op: str
    x: Row


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call of the user's own compiled function; weak numbers arrive as int64 and float64."""

    type: ScalarType
    target: Any
    label: str
    args: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class RandomNumber:
    """A random number from integer keys (type i8).

    which: 'uniform', 'normal' (float64) or 'integers'. For 'integers' the first argument is the number of possible
    values, from 1 to 2³¹; checked: whether that number must be checked at run time.
    """

    type: ScalarType
    which: str
    args: tuple[Scalar, ...]
    line: int = 0
    checked: tuple[bool, ...] = ()


Scalar: TypeAlias = (
    Const
    | Var
    | AxisSize
    | RaggedSize
    | Element
    | Cast
    | Op
    | Test
    | Logic
    | Select
    | Dot
    | Sum
    | Extreme
    | UserCall
    | RandomNumber
)


# --- rows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowLoad:
    """array[lead..., start : start + length]; lead has one integer for each axis but the last. checked: as Element's,
    for the lead axes and then for the span.
    """

    dtype: str
    length: Scalar
    line: int
    array: str
    lead: tuple[Scalar, ...]
    start: Scalar
    checked: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class RowLocal:
    """A local row, as last assigned by a `Store` to a RowName."""

    dtype: str
    length: Scalar
    name: str


@dataclass(frozen=True, slots=True)
class Splat:
    """One scalar, already of this dtype, for every element."""

    dtype: str
    length: Scalar
    x: Scalar


@dataclass(frozen=True, slots=True)
class RowOp:
    """Element by element: the operations of Op ('max' and 'min' as NumPy's maximum and minimum: NaN wins, of equal ones
    the left is taken; no '//', '%', shifts), and the comparisons of Test, whose dtype is 'b1'.
    """

    dtype: str
    length: Scalar
    op: str
    args: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class RowFma:
    """x·y + z with one rounding (float32 only)."""

    dtype: str
    length: Scalar
    x: Row
    y: Row
    z: Row


@dataclass(frozen=True, slots=True)
class RowCast:
    dtype: str
    length: Scalar
    x: Row


@dataclass(frozen=True, slots=True)
class RowSelect:
    """np.where(mask, yes, no)."""

    dtype: str
    length: Scalar
    mask: Row
    yes: Row
    no: Row


Row: TypeAlias = RowLoad | RowLocal | Splat | RowOp | RowFma | RowCast | RowSelect


def is_row(x: Scalar | Row) -> TypeIs[Row]:
    """Whether an expression is a row."""
    return isinstance(x, RowLoad | RowLocal | Splat | RowOp | RowFma | RowCast | RowSelect)


# --- places ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VarPlace:
    """A local variable; values are cast to `type` already."""

    type: ScalarType
    name: str


@dataclass(frozen=True, slots=True)
class ElementPlace:
    """array[index...]; dtype is the array's, values are cast already."""

    dtype: str
    line: int
    array: str
    index: tuple[Scalar, ...]
    checked: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class RowPlace:
    """array[lead..., start : start + length]."""

    dtype: str
    length: Scalar
    line: int
    array: str
    lead: tuple[Scalar, ...]
    start: Scalar
    checked: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class RowName:
    """A local row."""

    dtype: str
    length: Scalar
    name: str


Place: TypeAlias = VarPlace | ElementPlace | RowPlace | RowName


# --- statements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Store:
    """Evaluate every value, then write every place, in order. Rows go to row places, scalars to the others."""

    line: int
    places: tuple[Place, ...]
    values: tuple[Scalar | Row, ...]


@dataclass(frozen=True, slots=True)
class Allocate:
    """Make the local array `array` anew with these sizes, its elements undefined; a negative size is an error.

    For arrays whose size is known only as the loop runs; the others are made once.
    """

    line: int
    array: str
    sizes: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class ZeroFill:
    """Set every element of the local array `array` to zero (for np.zeros)."""

    line: int
    array: str


@dataclass(frozen=True, slots=True)
class Fold:
    """accumulator[index...] = op(accumulator[index...], value): a scalar into one element (index () for a 0-d
    accumulator), or a row into the whole row accumulator[index...]. value has the accumulator's dtype.
    """

    line: int
    accumulator: str
    index: tuple[Scalar, ...]
    checked: tuple[bool, ...]
    value: Scalar | Row


@dataclass(frozen=True, slots=True)
class BufferAdd:
    """buffer[index...] += value, exempt from dependence analysis: a scalar into one element, or a row into the whole
    row buffer[index...]. value has the target's dtype.
    """

    line: int
    buffer: str
    index: tuple[Scalar, ...]
    checked: tuple[bool, ...]
    value: Scalar | Row


@dataclass(frozen=True, slots=True)
class Branch:
    line: int
    test: Scalar
    body: tuple[Step, ...]
    orelse: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class WhileLoop:
    """while test: body."""

    line: int
    test: Scalar
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class RangeLoop:
    """for name in range(start, stop, step): body. The variable keeps its last value afterwards, as in Python."""

    line: int
    name: str
    start: Scalar
    stop: Scalar
    step: Scalar
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class RaggedLoop:
    """for names in the record's ragged field `ragged`: body; one variable for each part, of the given types."""

    line: int
    names: tuple[str, ...]
    types: tuple[ScalarType, ...]
    ragged: str
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Jump:
    """kind: 'break' or 'continue'; a 'continue' outside every inner loop ends the iteration."""

    line: int
    kind: str


Step: TypeAlias = Store | Allocate | ZeroFill | Fold | BufferAdd | Branch | WhileLoop | RangeLoop | RaggedLoop | Jump
