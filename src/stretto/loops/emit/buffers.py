"""Code generation for buffers: a visit reads the state as of the start of its wave plus its own writes.

An array behind a buffer is *private*: each visit of a wave works on its own copy (one slot of `NAMEcopy`, copied when
the visit begins, unless the loop never reads it). Its writes are stored separately and merged into the real array
between waves, in the order of the visits:

- addition (no `apply`): the sum of the visit, an array of the target's shape in `NAMEdelta`; a visit reads its own
  writes at once;
- a function: pending deltas are summed for each element and applied to the visit's copies every `every` iterations and
  at its end. Each such *flush* appends (element, delta, snapshot) to the slot's log, and `merge_NAME_worker` applies
  the logs to the real arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stretto.loops.front.bind import BufferInfo
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.inventory import nodes
from stretto.loops.types.promote import whole
from stretto.loops.types.typed_tree import Scalar

from .rows import LaneChunk, RowExpressions
from .scalars import NUMPY, SourceBuilder, own


class Buffers:
    """Generates the code of the buffers of a loop."""

    writer: RowExpressions

    def __init__(
        self, sheet: SourceBuilder, body: Body, infos: Mapping[str, BufferInfo], applies: Mapping[str, Any]
    ) -> None:
        self.sheet, self.body, self.infos, self.applies = sheet, body, infos, applies
        read = {array.name for array in body.arrays if array.role in ("state", "captured")}
        # The flush uses helper arrays and the target of a function even if the body does not read them.
        needed = {name for info in infos.values() if not info.plain for name in (info.target, *info.helpers)}
        behind = {name for info in infos.values() for name in (info.target, *info.helpers)}
        self.private = sorted(behind & (read | needed))

    def arguments(self) -> list[tuple[str, str]]:
        found = [(what, name) for name in self.private for what in ("source", "copy", "flat")]
        for name, info in self.infos.items():
            if info.plain:
                found.append(("delta", name))
            else:
                found += [(what, name) for what in ("pending", "mark", "touched", "keys", "deltas", "seen", "count")]
        return found

    def shapes(self) -> None:
        """Generate names for arrays whose shape a local array takes its size from, before a visit has copies."""
        sized = {node.array for array in self.body.arrays for size in array.sizes for node in nodes(size)
                 if isinstance(node, t.AxisSize)}  # fmt: skip
        for name in self.private:
            if name in sized:
                self.sheet.write(f"{own(name)} = {own(name)}copy[0]")

    def begin(self) -> None:
        """Generate the start of a visit: its copies."""
        sheet = self.sheet
        for name in self.private:
            me = own(name)
            sheet.write(f"{me}mine = {me}flat[v]")
            sheet.write(f"for k in range({me}source.shape[0]):")
            sheet.write(f"    {me}mine[k] = {me}source[k]")
            sheet.write(f"{me} = {me}copy[v]")
        for name, info in self.infos.items():
            me = own(name)
            if info.plain:
                sheet.write(f"{me} = {me}delta[v]")
            else:
                for part in ("pending", "mark", "touched", "keys", "deltas", "seen"):
                    sheet.write(f"{me}{part}_ = {me}{part}[v]")
                sheet.write(f"{me}many = 0")
                sheet.write(f"{me}logged = 0")
                sheet.write(f"{me}since = 0")

    def tick(self) -> None:
        """Generate the start of an iteration, with a flush if it is due."""
        for name, info in self.infos.items():
            if not info.plain and info.every is not None:
                self.sheet.write(f"if {own(name)}since == {info.every}:")
                self.sheet.depth += 1
                self.flush(name, info)
                self.sheet.write(f"{own(name)}since = 0")
                self.sheet.depth -= 1
                self.sheet.write(f"{own(name)}since += 1")

    def end(self) -> None:
        """Generate the end of a visit."""
        for name, info in self.infos.items():
            if not info.plain:
                self.flush(name, info)
                self.sheet.write(f"{own(name)}count[v] = {own(name)}logged")

    def flush(self, name: str, info: BufferInfo) -> None:
        sheet, me = self.sheet, own(name)
        sheet.write(f"for q in range({me}many):")
        sheet.depth += 1
        sheet.write(f"k = {me}touched_[q]")
        sheet.write(f"d = {me}pending_[k]")
        sheet.write(f"{me}keys_[{me}logged] = k")
        sheet.write(f"{me}deltas_[{me}logged] = d")
        if info.snapshot >= 0:
            sheet.write(f"s = {own(info.helpers[info.snapshot])}mine[k]")
            sheet.write(f"{me}seen_[{me}logged] = s")
        sheet.write(f"{me}logged += 1")
        self.apply(name, info, [f"{own(array)}mine" for array in (info.target, *info.helpers)], "d", "s")
        sheet.write(f"{me}pending_[k] = 0")
        sheet.write(f"{me}mark_[k] = 0")
        sheet.depth -= 1
        sheet.write(f"{me}many = 0")

    def apply(self, name: str, info: BufferInfo, arrays: list[str], delta: str, seen: str) -> None:
        """Generate the call of the user's function on element k of these arrays."""
        function = self.sheet.user(self.applies[name])
        elements = [f"{array}[k]" for array in arrays]
        args = [elements[0], delta, *elements[1:], *([seen] if info.snapshot >= 0 else [])]
        call = f"{function}({', '.join(args)})"
        dtypes = (info.dtype, *info.helper_dtypes)
        if not any(whole(dtype) for dtype in dtypes):
            self.sheet.write(f"{', '.join(elements)} = {call}")
            return
        made = [self.sheet.new() for _ in elements]  # the function may return floats for integers
        self.sheet.write(f"{', '.join(made)} = {call}")
        for element, value, dtype in zip(elements, made, dtypes, strict=True):
            kept = self.sheet.defined(f"whole({value}, {NUMPY[dtype]}(0))") if whole(dtype) else value
            self.sheet.write(f"{element} = {kept}")

    def add(self, x: t.BufferAdd) -> None:
        """buffer[index...] += value."""
        info, writer = self.infos[x.buffer], self.writer
        if t.is_row(x.value):
            self.add_row(x, info, x.value)
            return
        value = writer.named(writer.scalar(x.value))
        index = [
            writer.named(self.subscript(x, axis, k, check))
            for axis, (k, check) in enumerate(zip(x.index, x.checked, strict=True))
        ]
        guarded = self.sheet.guard(any(x.checked))
        if info.plain:
            self.add_plain(x, info, ", ".join(index), value)
        else:
            self.touch(x.buffer, self.flat(info, index), value)
        self.sheet.depth -= guarded

    def subscript(self, x: t.BufferAdd, axis: int, k: Scalar, check: bool) -> str:
        text = self.writer.scalar(k)
        if not check:
            return text
        info = self.infos[x.buffer]
        array = own(x.buffer if info.plain else info.target)
        extent = info.shape[axis] if axis else f"{array}.shape[0]"  # the first extent is no part of the source
        return self.sheet.in_range(text, extent, self.sheet.site(x.line, x.buffer, axis))

    def add_plain(self, x: t.BufferAdd, info: BufferInfo, at: str, value: str) -> None:
        self.sheet.write(f"{own(x.buffer)}[{at}] += {value}")
        if info.target in self.private:
            self.sheet.write(f"{own(info.target)}[{at}] += {value}")

    def flat(self, info: BufferInfo, index: list[str]) -> str:
        place = index[0]
        for axis, k in enumerate(index[1:], 1):
            place = f"({place}) * {info.shape[axis]} + {k}"
        return self.writer.named(place)

    def touch(self, name: str, place: str, value: str) -> None:
        me = own(name)
        self.sheet.write(f"if {me}mark_[{place}] == 0:")
        self.sheet.write(f"    {me}mark_[{place}] = 1")
        self.sheet.write(f"    {me}touched_[{me}many] = {place}")
        self.sheet.write(f"    {me}many += 1")
        self.sheet.write(f"{me}pending_[{place}] += {value}")

    def add_row(self, x: t.BufferAdd, info: BufferInfo, row: t.Row) -> None:
        """Add a whole row: stored in lanes, then added element by element (or in lanes, for addition)."""
        writer, sheet = self.writer, self.sheet
        index = [
            writer.named(self.subscript(x, axis, k, check))
            for axis, (k, check) in enumerate(zip(x.index, x.checked, strict=True))
        ]
        base = writer.named(f"({self.flat(info, index)}) * {info.shape[-1]}") if index else "0"
        ready: dict[int, str] = {}
        writer.prepare(row, ready)
        guarded = sheet.guard(any(x.checked))
        if info.plain:
            targets = [own(x.buffer), *([own(info.target)] if info.target in self.private else [])]

            def add(at: LaneChunk) -> None:
                value = sheet.new()
                sheet.write(f"{value} = {writer.chunk(row, at, ready)}")
                place = f"{base} + {at.offset}"
                part, suffix = (f", {at.part}", "_part") if at.part else ("", "")
                for array in targets:
                    old = f"vx.load{suffix}({array}, {place}{part})"
                    sheet.write(f"vx.store{suffix}({array}, {place}{part}, vx.add({old}, {value}))")

            writer.each_chunk(row.length, add)
        else:
            held, c = sheet.new(), sheet.new()
            sheet.write(f"{held} = empty({writer.scalar(row.length)}, {NUMPY[row.dtype]})")

            def keep(at: LaneChunk) -> None:
                part, suffix = (f", {at.part}", "_part") if at.part else ("", "")
                sheet.write(f"vx.store{suffix}({held}, {at.offset}{part}, {writer.chunk(row, at, ready)})")

            writer.each_chunk(row.length, keep)
            sheet.write(f"for {c} in range({writer.scalar(row.length)}):")
            sheet.depth += 1
            self.touch(x.buffer, writer.named(f"{base} + {c}"), f"{held}[{c}]")
            sheet.depth -= 1
        sheet.depth -= guarded

    def merges(self) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
        """Generate the workers that apply the logs of a wave to the real arrays, each for a range of elements."""
        found = []
        for name, info in self.infos.items():
            if info.plain:
                continue
            arrays = (info.target, *info.helpers)
            arguments = [("bounds", ""), *((what, name) for what in ("count", "keys", "deltas", "seen")),
                         *(("source", array) for array in arrays)]  # fmt: skip
            me, sheet = own(name), self.sheet
            names = ", ".join(f"{own(n)}{what}" if n else what for what, n in arguments)
            sheet.write("")
            sheet.write("")
            sheet.write(f"def merge_{me}worker(pass_, worker, out, {names}):")
            sheet.depth += 1
            sheet.write("v = next_visit(pass_, worker)")
            sheet.write("while v >= 0:")
            sheet.depth += 1
            sheet.write(f"for slot in range({me}count.shape[0]):")
            sheet.depth += 1
            sheet.write(f"for q in range({me}count[slot]):")
            sheet.depth += 1
            sheet.write(f"k = {me}keys[slot, q]")
            sheet.write("if bounds[v] <= k < bounds[v + 1]:")
            sheet.depth += 1
            seen = f"{me}seen[slot, q]"
            self.apply(name, info, [f"{own(array)}source" for array in arrays], f"{me}deltas[slot, q]", seen)
            sheet.depth -= 3
            sheet.write("v = next_visit(pass_, worker, v)")
            sheet.depth = 0
            found.append((name, tuple(arguments)))
        return tuple(found)
