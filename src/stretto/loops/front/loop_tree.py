"""The loop tree: node types of the parsed function, frozen and with line numbers, independent of Python's `ast`.

`parse` creates it; all later stages read it. Names are not yet resolved to arrays or numbers (that needs the arguments
of a call), but functions are: a `Call` has the name of one of the functions in `FUNCTIONS` or the user's own compiled
function.

    for (i, j), r in ratings:               Loop(levels=(Level(((i, j), r), Source("ratings")),),
        e = r - W[i] @ H[j]                      body=(Assign((Name e,), (Binary("-", Name r, Binary("@", …)),)), …))

Lines are numbers in the user's file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

# Functions that a body may call, by their internal names. Users write math.exp, np.exp, abs, st.uniform, …
FUNCTIONS = (
    "abs", "ceil", "clip", "exp", "floor", "isnan", "log", "max", "maximum", "min", "minimum", "sign", "sqrt", "sum",
    "where", "cos", "erf", "expm1", "lgamma", "log1p", "sin", "tanh",
    "uniform", "integers", "normal",  # random numbers with explicit keys
    "float32", "float64", "int32", "int64", "bool", "float", "int",  # conversions
    "sum_all", "max_all", "min_all",  # NumPy's, which take matrices too
    "mean", "var", "std", "argmax", "argmin", "outer",
    "sum_axis", "mean_axis", "max_axis", "min_axis",  # with the axis as the last argument
    "numpy",  # converts a Python number to a NumPy number of the same size; no effect on rows and NumPy numbers
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Number:
    """A literal: int, float or bool."""

    line: int
    value: int | float | bool


@dataclass(frozen=True, slots=True)
class Name:
    """A name that is read (or, as a target, written)."""

    line: int
    name: str


@dataclass(frozen=True, slots=True)
class Unary:
    """op: '-', '+', 'not', '~', 'T' (transposed); 'own' is the value itself, or a copy of a row."""

    line: int
    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    """op: '+', '-', '*', '/', '//', '%', '**', '@', '&', '|', '^', '<<', '>>'."""

    line: int
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Compare:
    """op: '<', '<=', '>', '>=', '==', '!='. A chain a < b < c comes as Logic('and', …)."""

    line: int
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class BoolOp:
    """op: 'and' or 'or', evaluated from the left as far as needed."""

    line: int
    op: str
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class IfExp:
    """yes if test else no."""

    line: int
    test: Expr
    yes: Expr
    no: Expr


@dataclass(frozen=True, slots=True)
class Call:
    """function: one of FUNCTIONS; or 'user', with the numba-compiled function as `target` (`label` is its name)."""

    line: int
    function: str
    args: tuple[Expr, ...]
    target: Any = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A slice inside a subscript, step 1: W[i, 1:4]; None for an open end."""

    line: int
    start: Expr | None
    stop: Expr | None


@dataclass(frozen=True, slots=True)
class Item:
    """base[index...]: W[i], W[i, k] and W[i][k] (which is the same), w[2:5]; field for structs: A[i]["x"]."""

    line: int
    base: str
    index: tuple[Expr | Span, ...]
    field: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """base.shape[axis]; len(base) is axis 0."""

    line: int
    base: str
    axis: int


@dataclass(frozen=True, slots=True)
class LocalArray:
    """A small local array: np.empty(n), np.zeros(n), np.zeros((n, m), dtype=…).

    fill: 'empty', 'zeros', 'full' (of `value`, also for np.ones), 'eye' or 'elements'.
    """

    line: int
    fill: str
    shape: tuple[Expr, ...]
    dtype: str  # NumPy's short name, such as 'f8'; '' is that of the elements
    value: Expr | None = None
    elements: tuple[Expr, ...] = ()  # of np.array([…]), row by row


@dataclass(frozen=True, slots=True)
class Inlined:
    """A call of the user's plain Python function: its statements run first, then `values` are its results.

    Also a subscript of a value, which is assigned to a name first.
    """

    line: int
    label: str  # name of the function; '' for a subscript
    steps: tuple[Stmt, ...]
    values: tuple[Name | Item, ...]


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Element `place` of a row that is unpacked into `count` names; the row must have as many."""

    line: int
    row: Item
    place: int
    count: int


Expr: TypeAlias = (
    Unpacked | Number | Name | Unary | Binary | Compare | BoolOp | IfExp | Call | Item | Shape | LocalArray | Inlined
)
Target: TypeAlias = Name | Item | Unpacked


# --- statements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    """targets[k] = values[k], all values first: a, b = b, a. One target and value for a plain assignment.

    `a = b = x` comes as two statements only when x is a number; otherwise it is refused.
    """

    line: int
    targets: tuple[Target, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class AugAssign:
    """target op= value; op as in Binary."""

    line: int
    target: Target
    op: str
    value: Expr


@dataclass(frozen=True, slots=True)
class If:
    line: int
    test: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class While:
    line: int
    test: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """range(start, stop, step); stop is exclusive."""

    line: int
    start: Expr
    stop: Expr
    step: Expr


@dataclass(frozen=True, slots=True)
class IteratedName:
    """A plain name that is iterated: Data, or a ragged field of a record."""

    line: int
    name: str


# A pattern of names as nested tuples: ("i", "j") or (("i", "j"), "r") or ("i", ("y", "features")).
Pattern: TypeAlias = "str | tuple[Pattern, ...]"


@dataclass(frozen=True, slots=True)
class For:
    """An inner loop, which runs serially inside an iteration. over: Range, or Source of a ragged field."""

    line: int
    pattern: Pattern
    over: Range | IteratedName
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class LoopExit:
    """kind: 'break' or 'continue' of the innermost inner loop; 'continue' at the top of the body ends the iteration."""

    line: int
    kind: str


Stmt: TypeAlias = Assign | AugAssign | If | While | For | LoopExit


# --- the function ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Level:
    """One `for` of a parallel loop: a perfect nest has several; product(range(m), range(n)) gives two."""

    line: int
    pattern: Pattern
    over: Range | IteratedName


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A parallel loop: `levels` outermost first, then the body of the innermost.

    Bounds of the levels of `deeper` may depend on outer indices; its body begins with the test that an iteration of the
    box around them is in the nest.
    """

    line: int
    levels: tuple[Level, ...]
    body: tuple[Stmt, ...]
    deeper: LoopNest | None = None  # the loop with more of its nest as levels


@dataclass(frozen=True, slots=True)
class Setup:
    """A statement between the loops, such as `n, m = A.shape`: Python runs it on the driver."""

    line: int  # in the user's file
    names: tuple[str, ...]  # that it assigns
    code: str  # its source, for exec


@dataclass(frozen=True, slots=True)
class Function:
    """A whole decorated function."""

    name: str  # of the function
    file: str  # that defines it
    line: int  # of its def
    params: tuple[str, ...]  # names of its parameters
    steps: tuple[LoopNest | Setup, ...]  # loops and statements between them
    captured: tuple[str, ...]  # names read from enclosing scopes that are data, not functions
    lines: tuple[str, ...]  # the source, lines[0] is line `line` of the file
    inlined: tuple[Any, ...] = ()  # the plain Python functions that it calls
    around: tuple[tuple[str, Any, str], ...] = ()  # captured names of inlined functions: name, function, name in it
