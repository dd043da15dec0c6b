"""Type inference of expressions, scalars and rows: operators, comparisons, calls and conversions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial

from stretto.loops.front import loop_tree

from . import promote
from . import typed_tree as t
from .integers import Integers
from .promote import floating, whole
from .typed_nodes import cast, cast_row, row_op, simple
from .typed_tree import BOOL, FLOAT, INT, MOST_CHOICES, Const, Row, Scalar, ScalarType

_CONVERT = {"float32": ScalarType("f4"), "float64": ScalarType("f8"), "int32": ScalarType("i4"), "int64":
ScalarType("i8"), "bool": BOOL,
            "float": FLOAT, "int": INT}  # fmt: skip
_POWERS = range(2, 9)
_EXTREMES = ("max", "min", "maximum", "minimum")  # Python's, and NumPy's, which return NaN if there is one


class Expressions(Integers):
    """The typing of operations and calls; `assign` and `fuse` add the statements."""

    def expr(self, x: loop_tree.Expr) -> Scalar | Row:
        match x:
            case loop_tree.Number(value=value):
                return self.literal(x.line, value)
            case loop_tree.Name():
                return self.name(x)
            case loop_tree.Item():
                return self.item(x)
            case loop_tree.Shape(base=base, axis=axis):
                return self.extent(base, axis, x.line)
            case loop_tree.Unary():
                return self.unary(x)
            case loop_tree.Binary():
                return self.binary(x)
            case loop_tree.Compare(op=op, left=left, right=right):
                return self.compare(x.line, op, self.expr(left), self.expr(right))
            case loop_tree.BoolOp():
                return self.logic(x)
            case loop_tree.IfExp():
                return self.choice(x)
            case loop_tree.Inlined(values=(value, *_)):
                self.run(x)
                return self.expr(value)
            case loop_tree.Call():
                return self.call(x)
            case loop_tree.LocalArray():
                self.no(
                    x.line, "a fresh array must be given a name of its own", "write p = np.zeros(n) on a line alone"
                )
        raise AssertionError(x)

    def run(self, x: loop_tree.Inlined) -> None:
        """Type the statements of an inlined call; they run before the statement."""
        outer, self.quiet = self.quiet, x.label
        self.before += self.block(x.steps)
        self.quiet = outer

    @abstractmethod
    def block(self, statements: tuple[loop_tree.Stmt, ...]) -> tuple[t.Step, ...]:
        """The typed form of statements."""

    def choice(self, x: loop_tree.IfExp) -> Scalar:
        """a if test else b; where a side needs statements, they run only if it is chosen."""
        test = self.truth(x.test)
        (yes_steps, a), (no_steps, b) = (self.aside(partial(self.scalar, side)) for side in (x.yes, x.no))
        kind = self.holding(x.line, a, b)
        a, b = cast(kind, a), cast(kind, b)
        if not yes_steps and not no_steps:
            return t.Select(kind, test, a, b)
        name = self.temporary()
        sides = [
            (*steps, t.Store(x.line, (t.VarPlace(kind, name),), (value,)))
            for steps, value in ((yes_steps, a), (no_steps, b))
        ]
        self.before.append(t.Branch(x.line, test, sides[0], sides[1]))
        return t.Var(kind, name)

    def literal(self, line: int, value: int | float | bool) -> Const:
        """A literal; integers that only uint64 holds have that type."""
        if isinstance(value, bool | float):
            return Const(BOOL if isinstance(value, bool) else FLOAT, value)
        if value < -(2**63):
            self.no(line, f"{value} does not fit in 64 bits", "write it as a float")
        return Const(INT if value < 2**63 else ScalarType("u8"), value)

    def logic(self, x: loop_tree.BoolOp) -> Scalar:
        """`and` and `or` as a value: Python returns one of the operands, so all of them must be bools."""
        parts = [self.aside(partial(self.scalar, value)) for value in x.values]
        values = [value for _, value in parts]
        if any(value.type.dtype != "b1" for value in values):
            self.no(
                x.line,
                f"{x.op!r} of numbers gives one of them in Python, not True or False",
                f"write {'b if a else a' if x.op == 'and' else 'a if a else b'}, or compare: a != 0 {x.op} b != 0",
            )
        return self.chained(x.line, BOOL if all(v.type.weak for v in values) else ScalarType("b1"), x.op, parts)

    def unary(self, x: loop_tree.Unary) -> Scalar | Row:
        if x.op == "not":
            return t.Logic(BOOL, "not", (self.truth(x.operand),))
        value = self.expr(x.operand)
        if x.op == "-" and _kind(value) == ScalarType("b1"):
            self.no(x.line, "NumPy has no - for bools", "write ~, or int(...) around it")
        if x.op == "~" and floating(_kind(value)):
            self.no(x.line, "~ of a float")
        if x.op == "~" and isinstance(value, t.Logic) and len({arg.type for arg in value.args}) > 1:
            self.no(x.line, "~ of True or False depends on whose bool it is, Python's or NumPy's", "write not")
        if x.op in ("own", "moved") and not t.is_row(value):
            return value
        if t.is_row(value):
            if x.op in ("+", "own", "moved"):
                return t.RowCast(value.dtype, value.length, value)
            return row_op({"-": "neg", "~": "~"}[x.op], value)
        kind = INT if value.type == BOOL else value.type
        if x.op == "+":
            return cast(kind, value)
        if isinstance(value, Const) and kind.weak and x.op == "-" and value.value != -(2**63):
            return Const(kind, -value.value)
        return t.Op(kind, {"-": "neg", "~": "~"}[x.op], (cast(kind, value),))

    def binary(self, x: loop_tree.Binary) -> Scalar | Row:
        if x.op == "**":
            return self.power(x)
        left, right = self.expr(x.left), self.expr(x.right)
        if x.op == "@":
            return self.dot(x.line, left, right)
        return self.combine(x.line, x.op, left, right)

    def combine(self, line: int, op: str, left: Scalar | Row, right: Scalar | Row) -> Scalar | Row:
        """left op right, with NumPy's type promotion."""
        a, b = _kind(left), _kind(right)
        kind = promote.arithmetic(op, a, b) if op not in _EXTREMES else self.holding(line, left, right)
        if kind is None:
            if a.dtype == b.dtype == "b1":
                self.no(
                    line, f"{op} of two bools is a bool in NumPy, which is hardly meant", "write int(...) around one"
                )
            self.no(line, f"NumPy has no {op} for {a} and {b}", "convert one of them")
        self.meets(line, kind, left, right)
        if op in promote.SHIFTS and isinstance(right, Const) and right.value < 0:
            self.no(line, f"a shift by {right.value} bits", "shift the other way")
        if not t.is_row(left) and not t.is_row(right):
            if op in ("maximum", "minimum") and not floating(kind):
                op = op[:3]  # integers have no NaN
            return simple(op, cast(kind, left), cast(kind, right), kind)
        if op in ("//", "%", "<<", ">>"):
            self.no(line, f"{op} of whole rows", "write a for loop over the elements")
        return row_op(op[:3] if op in _EXTREMES else op, *self.level(line, kind.dtype, left, right))

    def level(self, line: int, dtype: str, *values: Scalar | Row) -> tuple[Row, ...]:
        """Convert values to rows of one dtype and one length; scalars are broadcast."""
        rows = sorted((v for v in values if t.is_row(v)), key=lambda row: not isinstance(row.length, Const))
        for other in rows[1:]:
            if not self.equal(rows[0].length, other.length):
                self.no(
                    line,
                    f"a row of {_said(rows[0].length)} elements meets one of {_said(other.length)}",
                    "take slices of one length",
                )
        length = rows[0].length
        return tuple(
            cast_row(dtype, value if value.length == length else replace(value, length=length))
            if t.is_row(value)
            else t.Splat(dtype, length, cast(ScalarType(dtype), value))
            for value in values
        )

    def dot(self, line: int, left: Scalar | Row, right: Scalar | Row) -> Scalar:
        if not (t.is_row(left) and t.is_row(right)):
            self.no(line, "@ needs a row on either side", "for numbers write *")
        kind = promote.join(ScalarType(left.dtype), ScalarType(right.dtype))
        if kind.dtype == "b1":
            self.no(line, "@ of bools", "convert one of them")
        x, y = self.level(line, kind.dtype, left, right)
        return t.Dot(kind, x, y)

    def power(self, x: loop_tree.Binary) -> Scalar | Row:
        base = self.expr(x.left)
        match x.right:
            case loop_tree.Number(value=int(n)) if not isinstance(n, bool) and n in _POWERS:
                return self.multiplied(x.line, base, n)
            case loop_tree.Number(value=float(n)) if n in _POWERS and floating(_kind(base)):
                return self.multiplied(x.line, base, int(n))
            case loop_tree.Number(value=0.5):
                return self.function_of(x.line, "sqrt", base)
        exponent = self.expr(x.right)
        if isinstance(base, Const) and isinstance(exponent, Const) and base.type == exponent.type == INT:
            value = base.value**exponent.value if 0 <= exponent.value < 64 else None
            if value is not None and abs(value) < 2**63:
                return Const(INT, value)
        kind = promote.arithmetic("/", _kind(base), _kind(exponent))
        if kind is None or not (floating(_kind(base)) or floating(_kind(exponent))):
            self.no(
                x.line,
                "** of integers takes a whole power from 2 to 8",
                "write float(x) ** y, or a for loop that multiplies",
            )
        if not t.is_row(base) and not t.is_row(exponent):
            return t.Op(kind, "power", (cast(kind, base), cast(kind, exponent)))
        return row_op("power", *self.level(x.line, kind.dtype, base, exponent))

    def multiplied(self, line: int, base: Scalar | Row, times: int) -> Scalar | Row:
        """A whole power, as products."""
        result = base
        for _ in range(times - 1):
            result = self.combine(line, "*", result, base)
        return result

    def compare(self, line: int, op: str, left: Scalar | Row, right: Scalar | Row) -> Scalar | Row:
        """left op right; integers of any two types are compared by their values, as Python and NumPy do."""
        a, b = _kind(left), _kind(right)
        kind = promote.join(a, b)
        if whole(a) and whole(b) and a != b:
            weak = [value for value in (left, right) if not t.is_row(value) and value.type == INT]
            if floating(kind) or (kind.dtype == "u8" and not all(self.proven(value, kind) for value in weak)):
                return self.compare_signs(line, op, left, right)
            if not all(self.proven(value, kind) for value in weak) and not kind.weak:
                kind = ScalarType("i8")
        return self.test(line, op, kind, left, right)

    def test(self, line: int, op: str, kind: ScalarType, left: Scalar | Row, right: Scalar | Row) -> Scalar | Row:
        """left op right, both converted to one kind."""
        if t.is_row(left) or t.is_row(right):
            x, y = self.level(line, kind.dtype, left, right)
            if op in (">", ">="):
                op, x, y = {">": "<", ">=": "<="}[op], y, x
            return t.RowOp("b1", x.length, op, (x, y))
        result = BOOL if _kind(left).weak and _kind(right).weak else ScalarType("b1")
        return t.Test(result, op, cast(kind, left), cast(kind, right))

    def compare_signs(self, line: int, op: str, left: Scalar | Row, right: Scalar | Row) -> Scalar | Row:
        """Compare an integer that may be negative with a uint64: no type holds both, so the sign is tested first."""
        signed, unsigned = left, right
        if _kind(left).dtype == "u8":
            signed, unsigned, op = right, left, {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
        negative = self.test(line, "<", _kind(signed), signed, Const(INT, 0))
        values = self.test(line, op, ScalarType("u8"), signed, unsigned)
        less = op in ("<", "<=", "!=")  # the result for every negative number
        if t.is_row(values) or t.is_row(negative):
            test = negative if less else self.test(line, ">=", _kind(signed), signed, Const(INT, 0))
            return row_op("|" if less else "&", *self.level(line, "b1", test, values))
        first = negative if less else t.Logic(negative.type, "not", (negative,))
        return t.Logic(values.type, "or" if less else "and", (first, values))

    # --- calls ---

    def function_of(self, line: int, name: str, value: Scalar | Row) -> Scalar | Row:
        """A function in OF_ONE of a scalar or of every element."""
        kind = _kind(value)
        if name == "sign" and not floating(kind):
            return self.sign_of_integer(line, value)
        kind = (INT if kind == BOOL else kind) if name == "abs" else promote.lifted(kind)
        if t.is_row(value):
            row = cast_row(kind.dtype, value)
            return row_op(name, row)
        return t.Op(kind, name, (cast(kind, value),))

    def sign_of_integer(self, line: int, value: Scalar | Row) -> Scalar | Row:
        """−1, 0 or 1 in the integer's own type."""
        kind = INT if _kind(value).dtype == "b1" else _kind(value)
        zero = Const(INT, 0)
        above, below = (self.convert(line, kind, self.compare(line, op, value, zero)) for op in (">", "<"))
        return self.combine(line, "-", above, below)

    def call(self, x: loop_tree.Call) -> Scalar | Row:
        name = x.function
        if name == "user":
            return self.user(x)
        if name in ("uniform", "normal", "integers"):
            keys = tuple(self.integer(arg) for arg in x.args)
            if len(keys) < (2 if name == "integers" else 1):
                self.no(x.line, f"st.{name} needs keys", "name what the number is for: st.uniform(epoch, i, j)")
            if name != "integers":
                return t.RandomNumber(FLOAT, name, keys)
            found = self.scope.of(keys[0])
            if found is not None and (found[1] < 1 or found[0] > MOST_CHOICES):
                self.no(x.line, f"st.integers chooses among {found[0]} numbers", f"write 1 to {MOST_CHOICES}")
            if found is not None and found[0] >= 1 and found[1] <= MOST_CHOICES:
                return t.RandomNumber(INT, name, keys)
            return t.RandomNumber(INT, name, keys, x.line, (True,))
        args = [self.expr(arg) for arg in x.args]
        if name == "numpy":
            return args[0] if t.is_row(args[0]) else cast(ScalarType(args[0].type.dtype), args[0])
        if name in _CONVERT and len(args) == 1:
            return self.convert(x.line, _CONVERT[name], args[0])
        if name in t.OF_ONE and len(args) == 1:
            return self.function_of(x.line, name, args[0])
        if name == "isnan" and len(args) == 1:
            value = args[0] if floating(_kind(args[0])) else self.convert(x.line, ScalarType("f8"), args[0])
            return self.compare(x.line, "!=", value, value)
        if name == "clip" and len(args) == 3:
            return self.combine(x.line, "minimum", self.combine(x.line, "maximum", args[0], args[1]), args[2])
        if name == "sum" and len(args) == 1 and t.is_row(args[0]):
            dtype = promote.summed(args[0].dtype)
            return t.Sum(ScalarType(dtype), cast_row(dtype, args[0]))
        if name in _EXTREMES:
            if len(args) == 1 and t.is_row(args[0]):
                return t.Extreme(ScalarType(args[0].dtype), name, args[0])
            if len(args) > 1:
                result = args[0]
                for other in args[1:]:
                    result = self.combine(x.line, name, result, other)
                return result
        if name == "where" and len(args) == 3:
            return self.where(x.line, *args)
        self.no(
            x.line,
            f"{name} does not take these {len(args)} arguments",
            "see the list of functions in the guide to loops",
        )

    def convert(self, line: int, kind: ScalarType, value: Scalar | Row) -> Scalar | Row:
        self.stored(line, kind, value)
        return cast_row(kind.dtype, value) if t.is_row(value) else cast(kind, value)

    def where(self, line: int, mask: Scalar | Row, yes: Scalar | Row, no: Scalar | Row) -> Scalar | Row:
        kind = promote.join(_kind(yes), _kind(no))
        if not (t.is_row(mask) or t.is_row(yes) or t.is_row(no)):
            test = mask if mask.type.dtype == "b1" else t.Test(BOOL, "!=", mask, cast(mask.type, Const(INT, 0)))
            return t.Select(kind, test, cast(kind, yes), cast(kind, no))
        rows = [value for value in (mask, yes, no) if t.is_row(value)]
        chosen = self.level(line, kind.dtype, yes, no, rows[0])[:2]
        (picked, *_) = self.level(line, "b1", mask, rows[0])
        return t.RowSelect(kind.dtype, rows[0].length, picked, *chosen)

    def user(self, x: loop_tree.Call) -> Scalar:
        """The user's own compiled function: typed by compiling it for these arguments."""
        args = []
        for arg in x.args:
            value = self.expr(arg)
            if t.is_row(value):
                self.no(
                    x.line,
                    f"a row is given to {x.label}",
                    f"leave numba.njit out: a plain function is inlined, and takes rows; or give {x.label} numbers",
                )
            args.append(value)
        from stretto.loops.front.user_functions import result_kind

        try:
            kind = result_kind(x.target, [arg.type for arg in args])
        except TypeError as problem:
            self.no(x.line, f"{x.label} cannot be used: {problem}")
        return t.UserCall(kind, x.target, x.label, tuple(args))


def _kind(value: Scalar | Row) -> ScalarType:
    return ScalarType(value.dtype) if t.is_row(value) else value.type


def _said(length: Scalar) -> str:
    return str(length.value) if isinstance(length, Const) else "unknown length"
