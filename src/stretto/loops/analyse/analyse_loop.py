"""Analysis of one loop before it runs: iteration space, typed body, accesses, dependences and strategy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stretto.errors import LoopError, PlanError
from stretto.loops.execute.scheduled import strategy_of
from stretto.loops.front import loop_tree
from stretto.loops.front.bind import AccumulatorInfo, ArrayInfo, BufferInfo, Info, NumberInfo
from stretto.loops.front.refusals import placed, refuse
from stretto.loops.layout import unchanged_records
from stretto.loops.types.body_types import fuse

from .access import Accesses
from .analysis import Analysis, LoopOptions
from .dependence import vectors
from .facts import Access, ArrayExtent, Strategy, Vector
from .placement import placements
from .serial_order import with_sources
from .space import Space, space_of
from .strategy.choose import choose


def analyse(
    function: loop_tree.Function,
    loop: loop_tree.LoopNest,
    infos: Mapping[str, Info],
    known: Mapping[str, Any],
    options: LoopOptions,
) -> Analysis:
    """Analyse a loop for these arguments; raise an error that explains why it cannot run in parallel.

    Ranges whose bounds depend on outer indices run inside an iteration; if the outer indices alone give no parallelism,
    or `cut=` names the index of such a range, they are indices of the loop.
    """
    if loop.deeper is None or options.schedule is not None:
        return _analyse(function, loop, infos, known, options)
    names = {str(level.pattern) for level in loop.levels}
    if not names.issuperset(options.cut):
        return _analyse(function, loop.deeper, infos, known, options)
    try:
        found = _analyse(function, loop, infos, known, options)
        if found.strategy.name != "chain" and (found.strategy.name != "inspected" or options.inspect):
            return found
    except LoopError as problem:
        try:
            return _analyse(function, loop.deeper, infos, known, options)
        except PlanError:
            raise problem from None
    # What the analysis proves comes before what an inspection may find.
    proven = replace(options, inspect=False) if options.inspect is None else options
    try:
        deeper = _analyse(function, loop.deeper, infos, known, proven)
    except PlanError:
        return found
    return found if deeper.strategy.name == "chain" else replace(deeper, options=options)


def _analyse(
    function: loop_tree.Function,
    loop: loop_tree.LoopNest,
    infos: Mapping[str, Info],
    known: Mapping[str, Any],
    options: LoopOptions,
) -> Analysis:
    try:
        space = space_of(loop, infos, known)
    except PlanError as problem:
        raise placed(function, problem) from None
    unchanged_records.check(space)
    body, consulted = fuse(function, loop, infos, space, known)
    collected = Accesses(body, infos, space.unique, _integers(infos, known))
    accesses = collected.collect()
    consulted = {**consulted, **{name: collected.forms.numbers[name] for name in sorted(collected.forms.used)}}
    _refuse_direct_writes(function, accesses, infos)
    shapes = {
        name: info.shape for name, info in infos.items() if isinstance(info, ArrayInfo | BufferInfo | AccumulatorInfo)
    }
    found = vectors(accesses, space.dims, shapes)
    if options.schedule is None:
        strategy = _strategy(function, loop, space, infos, options, accesses, found)
    else:
        strategy = strategy_of(function, loop, space, found, accesses)
    where = placements(strategy, accesses, space.dims)
    buffers = _buffers(accesses, infos)
    return Analysis(
        function,
        loop,
        space,
        body,
        accesses,
        found,
        strategy,
        where,
        options,
        consulted,
        behind=sum(math.prod(info.shape) * (1 + len(info.helpers)) for info in buffers),
        written=frozenset(access.array for access in accesses if access.writes)
        | {name for info in buffers for name in (info.target, *(() if info.plain else info.helpers))},
    )


def _integers(infos: Mapping[str, Info], known: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of this call that are integers, by name."""
    given = {name: info.value for name, info in infos.items() if isinstance(info, NumberInfo)} | dict(known)
    return {
        name: int(value) for name, value in given.items()
        if isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)
    }  # fmt: skip


def _strategy(
    function: loop_tree.Function,
    loop: loop_tree.LoopNest,
    space: Space,
    infos: Mapping[str, Info],
    options: LoopOptions,
    accesses: tuple[Access, ...],
    found: tuple[Vector, ...],
) -> Strategy:
    """The strategy of a loop without a schedule."""
    extents = {name: ArrayExtent(name, info.shape, np.dtype(info.dtype).itemsize) for name, info in infos.items()
               if isinstance(info, ArrayInfo | BufferInfo | AccumulatorInfo)}  # fmt: skip
    try:
        return choose(
            found,
            space.dims,
            accesses,
            extents,
            ordered=options.ordered,
            buffered=any(access.mode == "buffer" for access in accesses),
            prefer=_preferred(space, options),
            inspect=options.inspect,
            serial=options.serial,
            records=len(space),
            width=options.width,
            kind=space.kind,
        )
    except PlanError as problem:
        raise LoopError(function.file, loop.line, with_sources(str(problem), function)) from None


def _preferred(space: Space, options: LoopOptions) -> tuple[int, ...] | None:
    if not options.cut:
        return None
    names = [dim.name for dim in space.dims]
    unknown = [name for name in options.cut if name not in names]
    if unknown:
        raise PlanError(f"cut={options.cut}: the loop has no index {unknown[0]}; it has {', '.join(names)}")
    return tuple(names.index(name) for name in options.cut)


def _buffers(accesses: tuple[Access, ...], infos: Mapping[str, Info]) -> list[BufferInfo]:
    """The buffers that the loop writes to."""
    used = {access.array for access in accesses if access.mode == "buffer"}
    return [info for info in infos.values() if isinstance(info, BufferInfo) and info.target in used]


def _refuse_direct_writes(
    function: loop_tree.Function, accesses: tuple[Access, ...], infos: Mapping[str, Info]
) -> None:
    """An array behind a buffer is copied for each visit, so a direct write to it would be lost."""
    behind = {name: info for info in infos.values() if isinstance(info, BufferInfo)
              for name in (info.target, *info.helpers)}  # fmt: skip
    used = {access.array for access in accesses if access.mode == "buffer"}
    for access in accesses:
        info = behind.get(access.array)
        if info is not None and access.writes and info.target in used:
            raise refuse(
                function,
                access.line,
                f"{access.text} is written directly, and {access.array} is behind the buffer {info.name}",
                f"write to {info.name}, or to another array",
            )
