"""Source of the compiled worker of a loop, which processes visit after visit in one call per worker and pass.

    made = lower(body, form, ...)
    made.source         a module with the function `visit_worker` (and one `merge_…` for each buffer with a function)
    made.arguments      its arguments, in order, as (what, name) pairs

How a visit iterates is its `VisitForm`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stretto.loops.front.bind import BufferInfo
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.inventory import nodes

from .boundaries import beyond, boundary
from .buffers import Buffers
from .compiled_statements import CompiledStatements
from .scalars import NUMPY, Site, SourceBuilder, own
from .skewed import skewed
from .statements import StatementWriter
from .visit_form import VisitForm

AHEAD = 8  # iterations between a prefetch and the use
LINE = 64  # bytes of a cache line
MOST_LINES = 8  # of one row

HEADER = '''"""Made from {where}; changes here are lost."""
import math

import numpy as np

from stretto.kernels.numeric import vector as vx
from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.guard import at, span
from stretto.kernels.numeric.keyed import INTEGERS, NORMAL, UNIFORM, absorb, below, gauss, unit
from stretto.kernels.numeric.scalar import exp, log
from stretto.kernels.core.scratch import empty, zeros

'''

# Modules of the header under the names they had when fingerprints were first written: moving a module to another
# package changes no result, so it must not change the fingerprint of a loop either.
_FIRST_NAMES = {
    "stretto.kernels.numeric import": "stretto.kernels import",
    "stretto.kernels.core.scratch import": "stretto.kernels.space import",
    "stretto.kernels.core.": "stretto.kernels.",
    "stretto.kernels.numeric.": "stretto.kernels.",
}


@dataclass(frozen=True, slots=True)
class WorkerSource:
    """The generated source of a worker."""

    source: str  # of the module
    arguments: tuple[tuple[str, str], ...]  # of the worker, as (what, name)
    merges: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]  # buffer → arguments of its merge worker
    sites: tuple[Site, ...]  # subscripts that are checked
    users: tuple[Any, ...]  # functions of the user's that it calls
    canonical: Callable[[], str] = str  # makes the canonical form of the module

    @property
    def identity(self) -> str:
        """Hash of what is computed, for the fingerprint.

        It is that of the canonical form: where the helpers of the source are stored, and faster ways to write the same
        arithmetic, change no result and no fingerprint.
        """
        source = self.canonical()
        for name, first in _FIRST_NAMES.items():
            source = source.replace(name, first)
        return hashlib.sha256(source.encode()).hexdigest()[:16]


def lower(
    body: Body,
    form: VisitForm,
    where: str,
    *,
    operators: Mapping[str, tuple[str, Any]],
    buffers: Mapping[str, BufferInfo],
    applies: Mapping[str, Any],
    canonical: Body | None = None,
) -> WorkerSource:
    """Generate the source of a worker.

    Parameters
    ----------
    operators : mapping
        Of each accumulator: the name ('+', 'max', …, 'user') and function of its operator.
    applies : mapping
        Functions of the buffers.
    canonical : Body or None
        The body as it was typed, where `body` has fewer checks; None for `body`.
    """
    made = _module(body, form, where, operators, buffers, applies)
    first = body if canonical is None else canonical

    def identity() -> str:
        return _module(first, form, where, operators, buffers, applies, canonical=True).source

    return replace(made, canonical=identity)


def _module(
    body: Body,
    form: VisitForm,
    where: str,
    operators: Mapping[str, tuple[str, Any]],
    buffers: Mapping[str, BufferInfo],
    applies: Mapping[str, Any],
    *,
    canonical: bool = False,
) -> WorkerSource:
    """The source in the form that is compiled, or in the canonical one, which fingerprints are made of."""
    sheet = SourceBuilder(leaves=not canonical)
    used = {name: info for name, info in buffers.items() if any(a.name == name for a in body.arrays)}
    held = Buffers(sheet, body, used, applies)
    writer = (StatementWriter if canonical else CompiledStatements)(sheet, body, operators, held)
    arguments = arguments_of(body, form, held)
    names = ", ".join(parameter(what, name) for what, name in arguments)
    sheet.write(f"def visit_worker(pass_, worker, out, fault, ids, {names}):")
    sheet.depth += 1
    held.shapes()
    claim_visits(sheet, body, writer)
    held.begin()
    writer.begin_accumulators()
    depth = sheet.depth
    least = None if canonical or used else boundary(body, form)
    if least is not None:
        in_two_parts(sheet, body, form, writer, least)
    else:
        iterate(sheet, body, form, canonical=canonical)
        if canonical and (sheet.sites or may_fail(body)):
            sheet.write("if bad[0] != 0:")
            sheet.write("    break")
        held.tick()
        writer.block(body.steps)
    sheet.depth = depth
    held.end()
    writer.end_accumulators()
    if canonical:
        sheet.write("if bad[0] != 0:")
        sheet.write("    for k in range(bad.size):")
        sheet.write("        fault[k] = bad[k]")
        sheet.write("    fail(pass_, v)")
    sheet.write("v = next_visit(pass_, worker, v)")
    sheet.depth = 0
    merges = held.merges()
    return WorkerSource(
        source_of(sheet, where),
        tuple(arguments),
        merges,
        tuple(sheet.sites),
        tuple(sheet.users),
    )


def source_of(sheet: SourceBuilder, where: str) -> str:
    """The generated module as text."""
    needed = "".join(f"{line}\n" for line in sheet.imports)
    return HEADER.format(where=where).rstrip("\n") + f"\n{needed}\n" + "\n".join(sheet.lines) + "\n"


def may_fail(body: Body) -> bool:
    """Whether any subscript is checked at run time."""
    return any(any(getattr(n, "checked", ())) or isinstance(n, t.Allocate) for n in nodes(body.steps))


def parameter(what: str, name: str) -> str:
    """The name of the parameter of an argument."""
    if what in ("array", "number", "field"):
        return own(name) if what != "field" else f"{own(name)}col"
    if what.startswith("index") or what.startswith("base"):
        return what
    return f"{own(name)}{what}" if name else what


def arguments_of(body: Body, form: VisitForm, held: Buffers) -> list[tuple[str, str]]:
    dims = range(len(body.indices))
    found: list[tuple[str, str]] = []
    if form.kind == "entries":
        found += [("ptr", ""), *((f"base{d}", "") for d in dims), *((f"index{d}", "") for d in dims)]
    elif form.kind == "picked":
        found += [("ptr", ""), ("picked", ""), ("box", "")]
    else:
        found += [("lo", ""), ("hi", "")]
        if form.kind == "skewed":
            found.append(("box", ""))
        if form.dense:
            found.append(("extents", ""))
    found += [("field", name) for name, _ in body.fields]
    for ragged in body.ragged:
        found.append(("ptr", ragged.name))
        found += [(f"part{k}", ragged.name) for k in range(len(ragged.types))]
    found += [("array", array.name) for array in body.arrays if array.role in ("state", "captured")
              and array.name not in held.private]  # fmt: skip
    found += [("number", name) for name, _ in body.numbers]
    found += [("partial", array.name) for array in body.arrays if array.role == "accumulator"]
    return found + held.arguments()


def claim_visits(sheet: SourceBuilder, body: Body, writer: StatementWriter) -> None:
    """Write the arrays of a worker and the loop over its visits; what follows is inside the loop."""
    if not sheet.leaves:
        sheet.write("bad = zeros(3, np.int64)")
    writer.local_arrays()
    sheet.write("v = next_visit(pass_, worker)")
    sheet.write("while v >= 0:")
    sheet.depth += 1
    sheet.write("g = ids[v]")


def in_two_parts(sheet: SourceBuilder, body: Body, form: VisitForm, writer: StatementWriter, least: int) -> None:
    """Generate the loops and the body, with the innermost loop in two parts: below `least`, and from there on."""
    iterate(sheet, body, form, inner=False)
    last = len(body.indices) - 1
    index, outer = body.indices[last], sheet.depth
    parts = ((f"lo{last}, min(hi{last}, {least})", body.steps),
             (f"max(lo{last}, {least}), hi{last}", beyond(body.steps, index, least)))  # fmt: skip
    for ends, steps in parts:
        sheet.depth = outer
        sheet.write(f"for {own(index)} in range({ends}, 1):")
        sheet.depth += 1
        writer.block(steps)


def iterate(sheet: SourceBuilder, body: Body, form: VisitForm, *, canonical: bool = False, inner: bool = True) -> None:
    """Generate the loops over a visit's iterations, and variables for the indices and fields.

    inner: whether the innermost loop of a grid is one of them.
    """
    indices = [own(name) for name in body.indices]
    place = "t"
    if form.kind == "entries":
        for d in range(len(indices)):  # read once: the compiler cannot exclude that a store to a state changes it
            sheet.write(f"first{d} = base{d}[g]")
        sheet.write("last = ptr[g + 1] - 1")
        sheet.write("for t in range(ptr[g], last + 1):")
        sheet.depth += 1
        for d, index in enumerate(indices):
            sheet.write(f"{index} = first{d} + np.int64(vx.get(index{d}, t))")
        look_ahead(sheet, body)
    elif form.kind == "range":
        sheet.write("for t in range(lo[g, 0], hi[g, 0]):")
        sheet.depth += 1
        sheet.write(f"{indices[0]} = t")
    elif form.kind == "grid":
        bounds = [f"lo[g, {d}], hi[g, {d}]" for d in range(len(indices))]
        if not canonical:  # read once: the compiler cannot exclude that a store to a state changes them
            for d, text in enumerate(bounds):
                sheet.write(f"lo{d}, hi{d} = {text}")
            bounds = [f"lo{d}, hi{d}" for d in range(len(indices))]
        for index, ends, step in list(zip(indices, bounds, form.steps, strict=True))[: None if inner else -1]:
            stride = step if canonical or abs(step) == 1 else sheet.unseen(step)
            sheet.write(f"for {index} in range({ends}, {stride}):")
            sheet.depth += 1
    elif form.kind == "picked":
        sheet.write("start0, step0 = box[0, 0], box[0, 1]")
        sheet.write("for q in range(ptr[g], ptr[g + 1]):")
        sheet.depth += 1
        sheet.write("t = vx.get(picked, q)")
        sheet.write(f"{indices[0]} = start0 + step0 * t")
    else:
        (_skewed if canonical or not form.steps else skewed)(sheet, indices, form)
    if form.dense:
        place = indices[0]
        for d, index in enumerate(indices[1:], 1):
            place = f"({place}) * extents[{d}] + {index}"
        sheet.write(f"t = {place}")
    for name, kind in body.fields:
        value = f"vx.get({own(name)}col, t)"
        sheet.write(f"{own(name)} = " + (f"({value} != 0)" if kind.dtype == "b1" else f"{NUMPY[kind.dtype]}({value})"))


def look_ahead(sheet: SourceBuilder, body: Body) -> None:
    """Generate prefetches of rows that a later iteration will use, whose addresses follow from its indices alone."""
    wanted = rows_by_index(body)
    if not wanted:
        return
    sheet.write(f"soon = min(t + {AHEAD}, last)")
    for d in sorted({d for _, d in wanted}):
        sheet.write(f"next{d} = first{d} + np.int64(vx.get(index{d}, soon))")
    for name, d in wanted:
        array = body.array(name)
        width = math.prod(size or 1 for size in array.shape[1:])
        step = LINE // np.dtype(array.dtype).itemsize
        row = f"next{d}" if len(array.shape) == 1 else f"next{d} * {width}"
        for at in range(0, min(width, MOST_LINES * step), step):
            sheet.write(f"vx.ahead({own(name)}, {row}{f' + {at}' if at else ''})")


def rows_by_index(body: Body) -> tuple[tuple[str, int], ...]:
    """(array, dimension) of arrays of which an iteration uses the row, or element, at its own index."""
    found: dict[tuple[str, int], None] = {}
    for node in nodes(body.steps):
        if not isinstance(node, t.RowLoad | t.RowPlace | t.Element | t.ElementPlace):
            continue
        lead = node.lead if isinstance(node, t.RowLoad | t.RowPlace) else node.index
        array = body.array(node.array)
        if array.role == "state" and lead and isinstance(lead[0], t.Var) and lead[0].name in body.indices:
            found[node.array, body.indices.index(lead[0].name)] = None
    return tuple(found)


def _skewed(sheet: SourceBuilder, indices: list[str], form: VisitForm) -> None:
    """Loops over the new coordinates, the last one limited so that the old coordinates stay inside the block."""
    for d in range(len(indices)):
        sheet.write(f"start{d}, step{d}, extent{d} = box[{d}, 0], box[{d}, 1], box[{d}, 2]")
    sheet.write("for y0 in range(lo[g, 0], hi[g, 0]):")
    sheet.depth += 1
    sheet.write("first, past = lo[g, 1], hi[g, 1]")
    for d, (from_first, factor) in zip(form.pair, form.inverse, strict=True):
        sheet.write(f"a{d} = {f'({from_first}) * y0' if from_first else '0'}")
        if factor == 0:
            sheet.write(f"past = past if 0 <= a{d} < extent{d} else first")
        elif factor > 0:  # 0 <= a + factor * y < extent, rounded upwards: -(-x // factor)
            sheet.write(f"first, past = max(first, -(a{d} // {factor})), min(past, -((a{d} - extent{d}) // {factor}))")
        else:
            low, high = f"-((extent{d} - 1 - a{d}) // {-factor})", f"a{d} // {-factor} + 1"
            sheet.write(f"first, past = max(first, {low}), min(past, {high})")
    sheet.write("for y1 in range(first, past):")
    sheet.depth += 1
    for d, (_, factor) in zip(form.pair, form.inverse, strict=True):
        sheet.write(f"{indices[d]} = start{d} + step{d} * (a{d} + ({factor}) * y1)")
    for d, index in enumerate(indices):
        if d not in form.pair:
            sheet.write(f"for c{d} in range(extent{d}):")
            sheet.depth += 1
            sheet.write(f"{index} = start{d} + step{d} * c{d}")
