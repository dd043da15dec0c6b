"""Prepared loops of a function, kept as long as their data live and the values that they depend on are the same."""

from __future__ import annotations

import types
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stretto.errors import LoopError, PlanError
from stretto.loops.analyse.analyse_loop import analyse

from .analyse import serial_order
from .analyse.analysis import Analysis, LoopOptions
from .analyse.facts import RejectedStrategy
from .analyse.space import space_of
from .analyse.strategy.remedies import INSPECT, refusal
from .front import loop_tree as source
from .front.bind import (
    AccumulatorInfo,
    ArrayInfo,
    BoundValues,
    BufferInfo,
    DataInfo,
    NumberInfo,
    StructInfo,
    refuse_overlap,
)
from .front.refusals import NotInspected, placed
from .front.user_functions import digest

if TYPE_CHECKING:
    from stretto.loops.execute.prepared import PreparedLoop


_KEPT = 8  # sets of arguments for which a loop caches its preparation
_INSPECTIONS = 4  # of a loop that nobody asked for; each takes as long as many calls
_CHANGED = "what its subscripts come from differs from call to call, and each would be inspected again"
_AGAIN = "inspect=True: inspect the data at every call"


@dataclass(frozen=True, eq=False)
class CachedLoop:
    """The cached preparation for a set of arguments, valid while its data exist."""

    prepared: PreparedLoop
    known: Mapping[str, Any]
    alive: tuple[weakref.ref[Any], ...]


def prepared_loop(
    cache: dict[Any, CachedLoop],
    tree: source.Function,
    loop: source.LoopNest,
    options: LoopOptions,
    held: BoundValues,
    known: Mapping[str, Any],
    crew: Any,
    inspections: Counter[int],
) -> PreparedLoop:
    """The prepared loop: from the cache if possible, otherwise analysed, laid out and compiled.

    inspections: by line of the loop, how often it was inspected without `inspect=True`.
    """
    from .execute.run import prepare  # imported late: it imports Numba

    key = (loop.line, options, signature(held), tuple(sorted((name, type(v)) for name, v in known.items())))
    kept = cache.get(key)
    if kept is not None and _still(kept, held, known, crew):
        refuse_overlap(held, kept.prepared.analysis.written)
        return kept.prepared
    analysis = analyse(tree, loop, held.infos, known, options)
    refuse_overlap(held, analysis.written)
    if analysis.strategy.name == "inspected" and options.inspect is None and options.serial is None:
        changed = kept is not None and not kept.prepared.visits.relied.holds(held, known)
        if changed or inspections[loop.line] >= _INSPECTIONS:
            analysis = _not_inspected(
                tree, loop, held, known, options, NotInspected(tree.file, loop.line, _CHANGED, _AGAIN)
            )
        inspections[loop.line] += 1
    try:
        prepared = prepare(analysis, held, known, crew)
    except NotInspected as problem:
        # The data let too little run together: back to the order of the loop.
        analysis = _not_inspected(tree, loop, held, known, options, problem)
        if options.serial is False and analysis.strategy.name == "chain":
            strategy = analysis.strategy
            told = refusal(strategy.clashes or (strategy.why, problem.problem), (*strategy.ways, serial_order.REFUSED))
            raise LoopError(tree.file, loop.line, serial_order.with_sources(told, tree)) from None
        prepared = prepare(analysis, held, known, crew)
    except PlanError as problem:
        raise placed(tree, problem) from None
    alive = tuple(weakref.ref(data) for data in held.data.values())
    cache.pop(key, None)
    for oldest in list(cache)[: 1 - _KEPT]:
        cache.pop(oldest, None)  # another thread may have been faster
    cache[key] = CachedLoop(prepared, dict(known), alive)
    return prepared


def _not_inspected(
    tree: source.Function,
    loop: source.LoopNest,
    held: BoundValues,
    known: Mapping[str, Any],
    options: LoopOptions,
    problem: NotInspected,
) -> Analysis:
    """The analysis of a loop that runs in its order, which says why it is not inspected."""
    analysis = analyse(tree, loop, held.infos, known, replace(options, inspect=False, serial=options.serial or None))
    strategy = analysis.strategy
    rejected = (*strategy.rejected, RejectedStrategy("inspected", problem.problem))
    clashes, ways = strategy.clashes, strategy.ways
    if clashes:
        ways = tuple(way for way in ways if way != INSPECT and not any(way.startswith(one) for one in problem.ways))
        clashes, ways = (*clashes, problem.problem), (*problem.ways, *ways)
    strategy = replace(strategy, rejected=rejected, clashes=clashes, ways=ways)
    return replace(analysis, strategy=strategy, options=options)


def _still(kept: CachedLoop, held: BoundValues, known: Mapping[str, Any], crew: Any) -> bool:
    """Whether a preparation is still valid: the same data, and the same values of all numbers it depends on."""
    same = all(ref() is data for ref, data in zip(kept.alive, held.data.values(), strict=True))
    same = same and kept.prepared.watched.unchanged(crew)
    now = {**held.numbers, **known}
    relied = kept.prepared.analysis.consulted
    grid = kept.prepared.analysis.space.kind == "grid"
    return (
        same
        and all(now.get(name) == value for name, value in relied.items())
        and (not grid or _same_dims(kept.prepared.analysis, held, known))
        and kept.prepared.visits.relied.holds(held, known)
    )


def _same_dims(analysis: Analysis, held: BoundValues, known: Mapping[str, Any]) -> bool:
    return space_of(analysis.loop, held.infos, known).dims == analysis.space.dims


def signature(held: BoundValues) -> tuple[Any, ...]:
    """The cache key of a prepared loop: everything that it depends on except values."""
    found: list[Any] = []
    for name, info in held.infos.items():
        match info:
            case DataInfo():
                found.append((name, id(held.data[name])))
            case NumberInfo(kind=kind):
                found.append((name, kind))
            case AccumulatorInfo():
                found.append((info, _code_of(held.accumulators[name].op)))
            case BufferInfo():
                found.append((info, _code_of(held.buffers[name].apply)))
            case ArrayInfo() | StructInfo():
                found.append(info)
    return tuple(found)


def _code_of(function: Any) -> tuple[int, str]:
    """Identity of a function; for one that Stretto compiles also the values that it reads from enclosing scopes."""
    ours = isinstance(function, types.FunctionType)
    return id(function), digest(function) if ours else ""
