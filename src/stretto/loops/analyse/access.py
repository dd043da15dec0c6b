"""Array accesses of a loop body: the elements that every statement reads, writes and buffers, by subscript.

A subscript is exact when it is a linear form of the indices (i, i - 1, 2 * i + j), a constant, or a whole axis; the
number of a record is unique to its iteration. Any other subscript may be any element, and `why` gives the reason; one
that counts an inner loop has a form too. Every access carries the bounds and tests around it as far as they are linear.
"""

from __future__ import annotations

from collections.abc import Mapping

from stretto.loops.front.bind import AccumulatorInfo, ArrayInfo, BufferInfo, Info
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.typed_tree import Const, Row, Scalar

from .facts import Access, Subscript
from .forms import Forms
from .linear import Linear

WHOLE = Subscript("whole")


class Accesses:
    """Traverses a typed body and collects its references to arrays."""

    def __init__(
        self, body: Body, infos: Mapping[str, Info], unique: frozenset[str], numbers: Mapping[str, int]
    ) -> None:
        self.body, self.infos, self.unique = body, infos, unique
        shapes = {name: info.shape for name, info in infos.items()
                  if isinstance(info, ArrayInfo | BufferInfo | AccumulatorInfo)}  # fmt: skip
        self.forms = Forms(body, shapes, numbers)
        self.shared = {array.name for array in body.arrays if array.role in ("state", "captured")}
        self.origin: dict[str, str] = {}  # why the value of a local variable is unknown, in words
        self.found: dict[Access, None] = {}
        self.full: dict[str, Scalar] = {}  # variables of generated loops from 0, and where they end

    def collect(self) -> tuple[Access, ...]:
        self.block(self.body.steps)
        return tuple(self.found)

    def note(self, array: str, mode: str, line: int, subscripts: tuple[Subscript, ...], text: str) -> None:
        forms = tuple(s.form or Linear(((s.dim, 1),)) for s in subscripts if s.form or s.kind == "index")
        domain = self.forms.domain(forms) if self.forms.conditions else ()
        self.found.setdefault(Access(array, mode, subscripts, line, text, domain))

    # --- statements ---

    def block(self, steps: tuple[t.Step, ...]) -> None:
        before = list(self.forms.conditions)
        for step in steps:
            self.step(step)
            if isinstance(step, t.Branch) and step.body and isinstance(step.body[-1], t.Jump) and not step.orelse:
                self.forms.where(step.test, False)  # the rest runs where the test does not jump away
        self.forms.leave(before)

    def step(self, step: t.Step) -> None:
        match step:
            case t.Store(places=places, values=values):
                for value in values:
                    self.value(value)
                for place, value in zip(places, values, strict=True):
                    self.place(place, value)
                    self.forms.assign(place, value)
            case t.Allocate(sizes=sizes):
                self.values(*sizes)
            case t.Fold(line=line, accumulator=name, index=index, value=value):
                self.values(*index, value)
                self.note(name, "fold", line, self.filled(index, len(self.body.array(name).shape)), shown(name, index))
            case t.BufferAdd(line=line, buffer=name, index=index, value=value):
                self.values(*index, value)
                info = self.infos[name]
                assert isinstance(info, BufferInfo)
                self.note(info.target, "buffer", line, self.filled(index, len(info.shape)), shown(name, index))
            case t.Branch(test=test, body=body, orelse=orelse):
                self.value(test)
                for holds, steps in ((True, body), (False, orelse)):
                    before = self.forms.where(test, holds)
                    self.block(steps)
                    self.forms.leave(before)
            case t.WhileLoop(test=test, body=body):
                self.value(test)
                self.block(body)
            case t.RangeLoop(name=name, start=start, stop=stop, step=stride, body=body):
                self.values(start, stop, stride)
                self.origin[name] = f"{name} counts an inner loop"
                if name.startswith("at.") and start == Const(t.INT, 0) and stride == Const(t.INT, 1):
                    self.full[name] = stop  # generated: the rows of a matrix
                    self.origin[name] = "it is part of a matrix"
                before = self.forms.enter_range(step)
                self.block(body)
                self.forms.leave(before, name)
            case t.RaggedLoop(names=names, ragged=ragged, body=body):
                self.origin |= {name: f"{name} comes from the data ({ragged})" for name in names}
                self.block(body)

    def place(self, place: t.Place, value: Scalar | Row) -> None:
        match place:
            case t.VarPlace(name=name):
                if not t.is_row(value):
                    self.origin[name] = self.source(value) or f"{name} is computed"
            case t.ElementPlace(line=line, array=array, index=index):
                self.values(*index)
                if array in self.shared:
                    self.note(array, "write", line, self.filled(index, len(index), array), shown(array, index))
            case t.RowPlace(line=line, array=array, lead=lead):
                self.values(*lead, place.start)
                if array in self.shared:
                    self.note(array, "write", line, self.row(place), shown_row(place))

    # --- expressions ---

    def values(self, *values: Scalar | Row) -> None:
        for value in values:
            self.value(value)

    def value(self, x: Scalar | Row) -> None:
        """Note every array an expression reads."""
        match x:
            case t.Element(line=line, array=array, index=index):
                self.values(*index)
                if array in self.shared:
                    self.note(array, "read", line, self.filled(index, len(index), array), shown(array, index))
            case t.RowLoad(line=line, array=array, lead=lead, start=start):
                self.values(*lead, start)
                if array in self.shared:
                    self.note(array, "read", line, self.row(x), shown_row(x))
            case _:
                self.values(*children(x))

    def row(self, x: t.RowLoad | t.RowPlace) -> tuple[Subscript, ...]:
        lead = tuple(self.along(x.array, axis, k) for axis, k in enumerate(x.lead))
        if isinstance(x.start, Const) and isinstance(x.length, Const):
            start, size = int(x.start.value), self.body.array(x.array).shape[len(x.lead)]
            length = int(x.length.value)
            full = start == 0 and (size is None or size == length)
            return (*lead, WHOLE if full else Subscript("span", offset=start, stop=start + length))
        return (*lead, Subscript("any", why="the ends of a slice are computed"))

    def filled(self, index: tuple[Scalar, ...], axes: int, array: str = "") -> tuple[Subscript, ...]:
        given = (self.along(array, axis, k) for axis, k in enumerate(index))
        return (*given, *([WHOLE] * (axes - len(index))))

    def along(self, array: str, axis: int, k: Scalar) -> Subscript:
        """A subscript; every element of an axis if a generated loop covers it."""
        if array and isinstance(k, t.Var) and k.name in self.full:
            stop, size = self.full[k.name], self.body.array(array).shape[axis]
            if stop == t.AxisSize(t.INT, array, axis) or (size is not None and stop == Const(t.INT, size)):
                return WHOLE
        return self.subscript(k)

    def subscript(self, k: Scalar) -> Subscript:
        if isinstance(k, t.Var) and k.name in self.unique:
            return Subscript("record")
        form = self.forms.of(k)
        if form is None:
            return Subscript("any", why=self.source(k) or "it is computed")
        if not form.terms:
            known = form.constant >= 0 or isinstance(k, Const)
            return Subscript("number", offset=form.constant) if known else Subscript("any", why="it is below 0")
        if form.counters:
            return Subscript("any", why=self.source(k) or "it is computed", form=form)
        if len(form.terms) == 1 and form.terms[0][1] == 1:
            return Subscript("index", form.terms[0][0], form.constant)
        return Subscript("affine", form=form)

    def source(self, x: Scalar) -> str:
        """What an unknown subscript depends on, in words; '' if there is no single cause."""
        match x:
            case t.Element(array=array):
                return f"it depends on the array {array}"
            case t.RandomNumber():
                return "it is drawn at random"
            case t.Var(name=name) if name in self.origin:
                return self.origin[name]
            case t.Var(name=name) if any(name == field for field, _ in self.body.fields):
                return f"{name} comes from the data"
            case t.Var(name=name) if any(name == number for number, _ in self.body.numbers):
                return f"{name} is a number that may change from call to call"
        for child in children(x):
            if found := self.source(child) if not t.is_row(child) else "":
                return found
        return ""


def children(x: Scalar | Row) -> tuple[Scalar | Row, ...]:
    """The operands of a node."""
    match x:
        case t.Element(index=index):
            return index
        case t.Cast(x=a) | t.Sum(x=a) | t.Extreme(x=a) | t.RowCast(x=a) | t.Splat(x=a):
            return (a,)
        case (
            t.Op(args=args)
            | t.Logic(args=args)
            | t.UserCall(args=args)
            | t.RandomNumber(args=args)
            | t.RowOp(args=args)
        ):
            return args
        case t.Test(x=a, y=b) | t.Dot(x=a, y=b):
            return a, b
        case t.Select(test=a, yes=b, no=c) | t.RowSelect(mask=a, yes=b, no=c) | t.RowFma(x=a, y=b, z=c):
            return a, b, c
        case t.RowLoad(lead=lead, start=start):
            return (*lead, start)
    return ()


def text_of(x: Scalar) -> str:
    """An integer expression as source text."""
    match x:
        case Const(value=value):
            return str(value)
        case t.Var(name=name):
            return "…" if name.startswith("at.") else name
        case t.Op(op="neg", args=(a,)):
            return f"-({text_of(a)})" if _is_sum(a) else f"-{text_of(a)}"
        case t.Op(op=op, args=(a, b)) if op in ("+", "-", "*", "//", "%"):
            left, right = (text_of(arg) for arg in (a, b))
            if op not in ("+", "-"):
                left = f"({left})" if _is_sum(a) else left
                right = f"({right})" if isinstance(b, t.Op) else right
            elif op == "-" and _is_sum(b):
                right = f"({right})"
            return f"{left} {op} {right}"
        case t.Cast(x=a):
            return text_of(a)
        case t.Element(array=array, index=index):
            return shown(array, index)
        case t.AxisSize(array=array, axis=axis):
            return f"{array}.shape[{axis}]"
    return "…"


def _is_sum(x: Scalar) -> bool:
    return isinstance(x, t.Op) and x.op in ("+", "-")


def shown(array: str, index: tuple[Scalar, ...]) -> str:
    """An access as source text: array[i, k]."""
    return f"{array}[{', '.join(text_of(k) for k in index)}]" if index else array


def shown_row(x: t.RowLoad | t.RowPlace) -> str:
    whole = isinstance(x.start, Const) and x.start.value == 0 and isinstance(x.length, Const)
    if whole:
        return shown(x.array, x.lead)
    parts = [text_of(k) for k in x.lead]
    known = isinstance(x.start, Const) and isinstance(x.length, Const)
    stop = str(int(x.start.value) + int(x.length.value)) if known else "…"  # type: ignore[union-attr]
    return f"{x.array}[{', '.join([*parts, f'{text_of(x.start)}:{stop}'])}]"
