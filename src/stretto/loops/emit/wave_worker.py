"""Source of a worker that runs all waves of a buffered loop in one call and copies only what a visit touches.

The form of `buffers` copies the arrays behind buffers for every visit, and starts a pass for each wave. Here a visit
keeps the elements that it writes in a list: `keys` and, in the same places, `delta`, the sum of its writes, and `mine`,
the value as this visit sees it. `where` [elements] has the place + 1 of each in the list, 0 for an element that the
visit has not written, which is read from the array itself: nobody changes it before the wave ends.

The bits are those of the other form. It is used where all buffers are of vectors, add, and are written and read element
by element, on workers that share one memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stretto.loops.front.bind import BufferInfo
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.inventory import nodes
from stretto.loops.types.typed_tree import Scalar

from .buffers import Buffers
from .compiled_statements import CompiledStatements
from .scalars import NUMPY, SourceBuilder, own
from .visit_form import VisitForm
from .worker_source import WorkerSource, arguments_of, iterate, parameter, source_of

_IMPORT = "from stretto.kernels.core.waves import claim, meet, merge, over"
_STOPPED = "from stretto.kernels.core.claims import is_stopped"


def applies_to(body: Body, infos: Mapping[str, BufferInfo]) -> bool:
    """Whether a loop can run in this form."""
    used = {name: info for name, info in infos.items() if any(array.name == name for array in body.arrays)}
    targets = {info.target for info in used.values()}
    if not used or len(targets) < len(used):
        return False
    if any(not info.plain or len(info.shape) != 1 for info in used.values()):
        return False
    for node in nodes(body.steps):
        if isinstance(node, t.RowLoad | t.RowPlace) and node.array in targets:
            return False
        if isinstance(node, t.BufferAdd) and t.is_row(node.value):
            return False
    return True


class TouchedBuffers(Buffers):
    """Generates the code of buffers that keep what a visit touches."""

    def arguments(self) -> list[tuple[str, str]]:
        found = []
        for name, info in self.infos.items():
            found += [("source", info.target), *((what, name) for what in ("where", "keys", "mine", "delta", "count"))]
        return found

    def open(self) -> None:
        """Generate the start of a worker."""
        for name, info in self.infos.items():
            me, target = own(name), own(info.target)
            self.sheet.write(f"{target} = {target}source")
            self.sheet.write(f"{me} = {target}")  # for its length
            self.sheet.write(f"{me}where_ = {me}where[worker]")
            self.sheet.write(f"{me}mine_ = {me}mine[worker]")

    def begin(self) -> None:
        for name in self.infos:
            me = own(name)
            self.sheet.write(f"{me}keys_ = {me}keys[v]")
            self.sheet.write(f"{me}delta_ = {me}delta[v]")
            self.sheet.write(f"{me}many = 0")

    def tick(self) -> None:
        pass

    def end(self) -> None:
        for name in self.infos:
            me = own(name)
            self.sheet.write(f"{me}count[v] = {me}many")
            self.sheet.write(f"for k in range({me}many):")
            self.sheet.write(f"    vx.put({me}where_, vx.get({me}keys_, k), np.int32(0))")

    def add_plain(self, x: t.BufferAdd, info: BufferInfo, at: str, value: str) -> None:
        sheet, me, target = self.sheet, own(x.buffer), own(info.target)
        place = self.writer.named(f"np.int64(vx.get({me}where_, {at})) - 1")
        sheet.write(f"if {place} < 0:")
        sheet.write(f"    {place} = {me}many")
        sheet.write(f"    {me}many += 1")
        sheet.write(f"    vx.put({me}where_, {at}, np.int32({me}many))")
        sheet.write(f"    vx.put({me}keys_, {place}, {at})")
        sheet.write(f"    vx.put({me}delta_, {place}, {NUMPY[info.dtype]}(0))")
        if info.target in self.private:
            sheet.write(f"    vx.put({me}mine_, {place}, vx.get({target}, {at}))")
        kept = ("delta_", "mine_") if info.target in self.private else ("delta_",)
        for what in kept:
            sheet.write(f"vx.put({me}{what}, {place}, vx.get({me}{what}, {place}) + {value})")

    def merged(self) -> None:
        """Generate the end of a wave."""
        for name, info in self.infos.items():
            me = own(name)
            arguments = f"{me}count, {me}keys, {me}delta, {own(info.target)}"
            self.sheet.write(f"merge(worker, workers, visits, {arguments})")


class TouchedStatements(CompiledStatements):
    """Generates statements that read an array behind a buffer where this visit has its own value."""

    def scalar(self, x: Scalar) -> str:
        if isinstance(x, t.Element):
            for name, info in self.buffers.infos.items():
                if info.target == x.array:
                    k = self.named(self.flat(x.line, x.array, x.index, x.checked))
                    place = self.named(f"np.int64(vx.get({own(name)}where_, {k}))")
                    mine = f"vx.get({own(name)}mine_, {place} - 1)"
                    return f"({mine} if {place} > 0 else vx.get({own(x.array)}, {k}))"
        return super().scalar(x)


def wave_worker(
    body: Body, form: VisitForm, where: str, operators: Mapping[str, tuple[str, Any]], buffers: Mapping[str, BufferInfo]
) -> WorkerSource:
    """Generate the source of the worker.

    Parameters
    ----------
    body, form, where, operators, buffers
        As for `lower`.
    """
    sheet = SourceBuilder(leaves=True)
    sheet.imports |= {_IMPORT: None, _STOPPED: None}
    used = {name: info for name, info in buffers.items() if any(array.name == name for array in body.arrays)}
    held = TouchedBuffers(sheet, body, used, {})
    writer = TouchedStatements(sheet, body, operators, held)
    arguments = arguments_of(body, form, held)
    names = ", ".join(parameter(what, name) for what, name in arguments)
    sheet.write(f"def visit_worker(pass_, worker, out, fault, ids, first_of, workers, state, {names}):")
    sheet.depth += 1
    sheet.write("if is_stopped(pass_):")
    sheet.write("    return")
    held.open()
    writer.local_arrays()
    sheet.write("met = True")
    sheet.write("for wave in range(first_of.shape[0] - 1):")
    sheet.depth += 1
    sheet.write("visits = first_of[wave + 1] - first_of[wave]")
    sheet.write("v = claim(state, wave)")
    sheet.write("while v < visits:")
    sheet.depth += 1
    sheet.write("g = ids[first_of[wave] + v]")
    held.begin()
    writer.begin_accumulators()
    depth = sheet.depth
    iterate(sheet, body, form)
    writer.block(body.steps)
    sheet.depth = depth
    held.end()
    writer.end_accumulators()
    sheet.write("v = claim(state, wave)")
    sheet.depth -= 1
    sheet.write("met = meet(state, pass_, workers, 2 * wave + 1)")
    sheet.write("if not met:")
    sheet.write("    break")
    held.merged()
    sheet.write("met = meet(state, pass_, workers, 2 * wave + 2)")
    sheet.write("if not met:")
    sheet.write("    break")
    sheet.depth -= 1
    sheet.write("if met and worker == 0:")
    sheet.write("    over(pass_)")
    return WorkerSource(source_of(sheet, where), tuple(arguments), (), tuple(sheet.sites), tuple(sheet.users))
