"""Code generation for statements: assignments of scalars and rows, branches, inner loops, folds into accumulators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.promote import whole
from stretto.loops.types.typed_tree import Const, Row, Scalar

from .buffers import Buffers
from .rows import LaneChunk, RowExpressions, unrolls
from .scalars import NUMPY, SIZE, SourceBuilder, own


class StatementWriter(RowExpressions):
    """Generates the statements of a body."""

    def __init__(
        self, sheet: SourceBuilder, body: Body, operators: Mapping[str, tuple[str, Any]], buffers: Buffers
    ) -> None:
        super().__init__(sheet)
        self.body, self.operators, self.buffers = body, operators, buffers
        buffers.writer = self

    def width(self, array: str, axis: int) -> str:
        size = self.body.array(array).shape[axis]
        return f"{own(array)}.shape[{axis}]" if size is None else str(size)

    def local_arrays(self) -> None:
        """Allocate the arrays that are private to an iteration, once for each worker."""
        for array in self.body.arrays:
            if array.role == "local":
                sizes = ", ".join("0" if array.allocated else self.scalar(size) for size in array.sizes)
                self.sheet.write(f"{own(array.name)} = np.empty(({sizes},), {NUMPY[array.dtype]})")

    def block(self, steps: tuple[t.Step, ...]) -> None:
        if not steps:
            self.sheet.write("pass")
        for step in steps:
            self.step(step)

    def nested(self, steps: tuple[t.Step, ...]) -> None:
        self.sheet.depth += 1
        self.block(steps)
        self.sheet.depth -= 1

    def step(self, step: t.Step) -> None:
        sheet = self.sheet
        match step:
            case t.Store():
                self.put(step)
            case t.Allocate():
                self.allocate(step)
            case t.ZeroFill(array=array):
                sheet.write(f"{own(array)}[...] = 0")
            case t.Fold():
                self.fold(step)
            case t.BufferAdd():
                self.buffers.add(step)
            case t.Branch(test=test, body=body, orelse=orelse):
                sheet.write(f"if {self.scalar(test)}:")
                self.nested(body)
                if orelse:
                    sheet.write("else:")
                    self.nested(orelse)
            case t.WhileLoop(test=test, body=body):
                sheet.write("while True:")
                sheet.depth += 1
                sheet.write(f"if not {self.scalar(test)}:")
                sheet.write("    break")
                self.guard_repeat()
                self.block(body)
                sheet.depth -= 1
            case t.RangeLoop(name=name, start=start, stop=stop, step=stride, body=body):
                bounds = ", ".join(self.scalar(x) for x in (start, stop, stride))
                sheet.write(f"for {own(name)} in range({bounds}):")
                self.nested(body)
            case t.RaggedLoop(names=names, types=types, ragged=ragged, body=body):
                entry = sheet.new()
                ptr = f"{own(ragged)}ptr"
                sheet.write(f"for {entry} in range(vx.get({ptr}, t), vx.get({ptr}, t + 1)):")
                sheet.depth += 1
                for k, (name, kind) in enumerate(zip(names, types, strict=True)):
                    sheet.write(f"{own(name)} = {self.typed(kind, f'vx.get({own(ragged)}part{k}, {entry})')}")
                self.block(body)
                sheet.depth -= 1
            case t.Jump(kind=kind):
                sheet.write(kind)

    def allocate(self, x: t.Allocate) -> None:
        """Make a local array; after an error, or with a size that is one, it is empty."""
        site = self.sheet.site(x.line, SIZE, 0)
        sizes = [self.named(self.sheet.in_range(self.scalar(size), t.MOST_ELEMENTS, site)) for size in x.sizes]
        if len(sizes) == 2:
            self.sheet.imports.setdefault("from stretto.kernels.core.scratch import empty2")
        name = "empty" if len(sizes) == 1 else "empty2"
        kept = ", ".join(size if self.sheet.leaves else f"({size} if bad[0] == 0 else 0)" for size in sizes)
        dtype = self.body.array(x.array).dtype
        self.sheet.write(f"{own(x.array)} = {name}({kept}, {NUMPY[dtype]})")

    def guard_repeat(self) -> None:
        """Leave a while loop after a bad subscript: its condition may depend on the value that was not read."""
        if not self.sheet.leaves:
            self.sheet.write("if bad[0] != 0:")
            self.sheet.write("    break")

    # --- assignments ---

    def put(self, x: t.Store) -> None:
        rows = [(place, value) for place, value in zip(x.places, x.values, strict=True)
                if isinstance(place, t.RowPlace | t.RowName)]  # fmt: skip
        if len(x.places) == 1 and not rows:
            self.store(x.places[0], self.scalar(x.values[0]))  # type: ignore[arg-type]
            return
        if all(unrolls(place.length) for place, _ in rows):
            self.put_unrolled(x)
        elif len(rows) == len(x.places) and self.one_loop([place for place, _ in rows], [v for _, v in rows]):
            self.put_loop(rows)  # type: ignore[arg-type]
        else:
            self.put_apart(x)

    def put_unrolled(self, x: t.Store) -> None:
        """Compute all values in registers, then store them."""
        stores: list[tuple[t.Place, str, LaneChunk | None]] = []
        for place, value in zip(x.places, x.values, strict=True):
            if not t.is_row(value):
                name = self.sheet.new()
                self.sheet.write(f"{name} = {self.scalar(value)}")
                stores.append((place, name, None))
                continue
            assert isinstance(place, t.RowPlace | t.RowName)
            assert isinstance(place.length, Const)
            ready: dict[int, str] = {}
            self.prepare(value, ready)
            for at in self.chunks(int(place.length.value)):
                name = self.sheet.new()
                self.sheet.write(f"{name} = {self.chunk(value, at, ready)}")
                stores.append((place, name, at))
        base: dict[int, str] = {}
        for place, name, piece in stores:
            if piece is None:
                self.store(place, name)
            elif isinstance(place, t.RowName):
                self.sheet.write(f"{own(place.name)}{piece.offset} = {name}")
            else:
                assert isinstance(place, t.RowPlace)
                if id(place) not in base:
                    base[id(place)] = self.base(place)
                self.store_chunk(place, base[id(place)], piece, name)

    def store_chunk(self, place: t.RowPlace, base: str, at: LaneChunk, value: str) -> None:
        where = base if at.offset == "0" else f"{base} + {at.offset}"
        guarded = self.sheet.guard(any(place.checked))
        if at.single:
            self.sheet.write(f"vx.put({own(place.array)}, {where}, {value})")
        elif at.part:
            self.sheet.write(f"vx.store_part({own(place.array)}, {where}, {at.part}, {value})")
        else:
            self.sheet.write(f"vx.store({own(place.array)}, {where}, {value})")
        self.sheet.depth -= guarded

    def one_loop(self, places: list[t.RowPlace | t.RowName], values: list[Scalar | Row]) -> bool:
        """Whether storing chunk by chunk is safe: rows have one length, and no value reads what was just written."""
        lengths = {place.length for place in places}
        written = {place.array: place.start for place in places if isinstance(place, t.RowPlace)}
        touched = [place for place in places if isinstance(place, t.RowPlace)]
        touched += [load for value in values for load in loads_of(value)]  # type: ignore[misc]
        return len(lengths) == 1 and all(
            part.array not in written or part.start == written[part.array] for part in touched
        )

    def put_loop(self, rows: list[tuple[t.RowPlace, Row]]) -> None:
        ready: dict[int, str] = {}
        for _, value in rows:
            self.prepare(value, ready)
        bases = [self.base(place) for place, _ in rows]

        def write(at: LaneChunk) -> None:
            names = [self.sheet.new() for _ in rows]
            for name, (_, value) in zip(names, rows, strict=True):
                self.sheet.write(f"{name} = {self.chunk(value, at, ready)}")
            for name, base, (place, _) in zip(names, bases, rows, strict=True):
                self.store_chunk(place, base, at, name)

        self.each_chunk(rows[0][0].length, write)

    def put_apart(self, x: t.Store) -> None:
        """Store every value in a temporary first: for long rows that overlap or differ in length."""
        aside: list[tuple[t.Place, str]] = []
        for place, value in zip(x.places, x.values, strict=True):
            name = self.sheet.new()
            aside.append((place, name))
            if not t.is_row(value):
                self.sheet.write(f"{name} = {self.scalar(value)}")
                continue
            ready: dict[int, str] = {}
            self.prepare(value, ready)
            self.sheet.write(f"{name} = empty({self.size(value.length)}, {NUMPY[value.dtype]})")

            def keep(at: LaneChunk, name: str = name, value: Row = value, ready: dict[int, str] = ready) -> None:
                text = self.chunk(value, at, ready)
                if at.part:
                    self.sheet.write(f"vx.store_part({name}, {at.offset}, {at.part}, {text})")
                else:
                    self.sheet.write(f"vx.store({name}, {at.offset}, {text})")

            self.each_chunk(value.length, keep)
        for place, name in aside:
            if not isinstance(place, t.RowPlace | t.RowName):
                self.store(place, name)
                continue
            base = self.base(place) if isinstance(place, t.RowPlace) else ""

            def give(at: LaneChunk, name: str = name, place: t.RowPlace | t.RowName = place, base: str = base) -> None:
                text = f"vx.load_part({name}, {at.offset}, {at.part})" if at.part else f"vx.load({name}, {at.offset})"
                if isinstance(place, t.RowName):
                    self.sheet.write(f"{own(place.name)}{at.offset} = {text}")
                else:
                    self.store_chunk(place, base, at, text)

            self.each_chunk(place.length, give)

    def store(self, place: t.Place, value: str) -> None:
        """Store a scalar."""
        if isinstance(place, t.VarPlace):
            self.sheet.write(f"{own(place.name)} = {value}")
            return
        assert isinstance(place, t.ElementPlace)
        at = self.flat(place.line, place.array, place.index, place.checked)
        if any(place.checked):
            at = self.named(at)
        self.guarded(place.checked, f"vx.put({own(place.array)}, {at}, {value})")

    def element(self, line: int, array: str, index: tuple[Scalar, ...], checked: tuple[bool, ...]) -> str:
        """array[...] as a target; checked subscripts are computed in lines before it."""
        parts = []
        for axis, (k, check) in enumerate(zip(index, checked, strict=True)):
            text = self.subscript(line, array, axis, k, check)
            parts.append(self.named(text) if check else text)
        return f"{own(array)}[{', '.join(parts)}]"

    # --- accumulators ---

    def begin_accumulators(self) -> None:
        for array in self.body.arrays:
            if array.role == "accumulator":
                self.sheet.write(f"{own(array.name)} = {own(array.name)}partial[g]")

    def end_accumulators(self) -> None:
        for array in self.body.arrays:
            if array.role == "accumulator" and not array.shape:
                self.sheet.write(f"{own(array.name)}partial[g] = {own(array.name)}")

    def fold(self, x: t.Fold) -> None:
        name = own(x.accumulator)
        dtype = self.body.array(x.accumulator).dtype
        if t.is_row(x.value):
            self.fold_row(x, x.value)
            return
        value = self.named(self.scalar(x.value))
        if not x.index:
            self.sheet.write(f"{name} = {self.folded(x.accumulator, name, value, dtype)}")
            return
        element = self.element(x.line, x.accumulator, x.index, x.checked)
        self.guarded(x.checked, f"{element} = {self.folded(x.accumulator, element, value, dtype)}")

    def guarded(self, checked: tuple[bool, ...], line: str) -> None:
        guarded = self.sheet.guard(any(checked))
        self.sheet.write(line)
        self.sheet.depth -= guarded

    def folded(self, accumulator: str, old: str, value: str, dtype: str) -> str:
        """old op value, in the accumulator's type."""
        op, function = self.operators[accumulator]
        if op in ("+", "*", "|", "&", "^"):
            text = f"{old} {op} {value}"
        elif op in ("max", "min"):
            return f"{value} if {value} {'>' if op == 'max' else '<'} {old} or {value} != {value} else {old}"
        else:
            text = f"{self.sheet.user(function)}({old}, {value})"
            if whole(dtype):  # the function may return a float
                return self.sheet.defined(f"whole({text}, {NUMPY[dtype]}(0))")
        return f"{NUMPY[dtype]}({text})"

    def fold_row(self, x: t.Fold, row: Row) -> None:
        """Fold a whole row into an accumulator, element by element."""
        held = self.sheet.new()
        dtype = row.dtype
        self.sheet.write(f"{held} = empty({self.scalar(row.length)}, {NUMPY[dtype]})")
        ready: dict[int, str] = {}
        self.prepare(row, ready)

        def keep(at: LaneChunk) -> None:
            text = self.chunk(row, at, ready)
            part = f", {at.part}" if at.part else ""
            self.sheet.write(f"vx.store{'_part' if at.part else ''}({held}, {at.offset}{part}, {text})")

        self.each_chunk(row.length, keep)
        c = self.sheet.new()
        lead = [
            self.named(self.subscript(x.line, x.accumulator, axis, k, check))
            for axis, (k, check) in enumerate(zip(x.index, x.checked, strict=True))
        ]
        self.sheet.write(f"for {c} in range({self.scalar(row.length)}):")
        self.sheet.depth += 1
        element = f"{own(x.accumulator)}[{', '.join([*lead, c])}]"
        self.guarded(x.checked, f"{element} = {self.folded(x.accumulator, element, f'{held}[{c}]', dtype)}")
        self.sheet.depth -= 1


def loads_of(row: Scalar | Row) -> list[t.RowLoad]:
    """The rows that an expression reads from arrays."""
    match row:
        case t.RowLoad():
            return [row]
        case t.RowOp(args=args):
            return [load for arg in args for load in loads_of(arg)]
        case t.RowFma(x=x, y=y, z=z):
            return [load for arg in (x, y, z) for load in loads_of(arg)]
        case t.RowCast(x=x):
            return loads_of(x)
        case t.RowSelect(mask=mask, yes=yes, no=no):
            return [load for arg in (mask, yes, no) for load in loads_of(arg)]
    return []
