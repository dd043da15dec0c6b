"""Run a planned loop with the reference interpreter: one visit after another, in plain Python.

    expect = reference(epoch.plan(ratings, W, H, 0.01, 0.05, loss))
    epoch(ratings, W, H, 0.01, 0.05, loss)
    assert same_bits(expect.arrays["W"], W.array)

The arguments are left alone; the results are copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.loops.execute.run import _compiled_function
from stretto.loops.front.bind import AccumulatorInfo, BufferInfo
from stretto.loops.layout.traversal import iterations
from stretto.loops.loop_plan import LoopPlan
from stretto.loops.planned_call import PlannedLoop
from stretto.loops.types.typed_tree import ScalarType

from .arithmetic import convert
from .reference import Interpreter


@dataclass(frozen=True, eq=False)
class ReferenceResult:
    """Final arrays and accumulators."""

    arrays: dict[str, NDArray[Any]]
    accumulators: dict[str, NDArray[Any]]


@np.errstate(all="ignore")
def reference(plan: LoopPlan) -> ReferenceResult:
    """Every loop of a plan, interpreted."""
    arrays = {name: array.copy() for name, array in plan.held.arrays.items()}
    accumulators = {name: acc.array.copy() for name, acc in plan.held.accumulators.items()}
    for part in plan.parts:
        _Reference(plan, part, arrays, accumulators).run()
    return ReferenceResult(arrays, accumulators)


def operator_of(op: str, function: Any) -> Any:
    """The operator of an accumulator, with the bits of the compiled loop."""
    plain = {
        "+": lambda a, b: a + b,
        "*": lambda a, b: a * b,
        "max": lambda a, b: b if b > a or np.isnan(b) else a,
        "min": lambda a, b: b if b < a or np.isnan(b) else a,
        "|": lambda a, b: a | b,
        "&": lambda a, b: a & b,
        "^": lambda a, b: a ^ b,
    }
    return plain[op] if op in plain else _compiled_function(function)


class _Reference:
    """One loop."""

    def __init__(
        self, plan: LoopPlan, part: PlannedLoop, arrays: dict[str, NDArray[Any]], accumulators: dict[str, NDArray[Any]]
    ) -> None:
        self.held, self.part = plan.held, part
        self.arrays, self.accumulators = arrays, accumulators
        self.analysis, self.visits = part.prepared.analysis, part.prepared.visits
        body = self.analysis.body
        values = {**plan.held.numbers, **part.known}
        self.numbers = {name: values[name] for name, _ in body.numbers}
        self.folded = [array.name for array in body.arrays if array.role == "accumulator"]
        self.buffers: dict[str, BufferInfo] = {}
        for array in body.arrays:
            if array.role == "buffer":
                info = plan.held.infos[array.name]
                assert isinstance(info, BufferInfo)
                self.buffers[array.name] = info

    def run(self) -> None:
        every = np.arange(len(self.visits), dtype=np.int64)
        parts: list[dict[str, NDArray[Any]]] = []
        for wave in self.visits.waves or (every,):
            logs: list[dict[str, Any]] = []
            for visit in wave.tolist():
                partial = {
                    name: self.held.accumulators[name].blank(1).reshape(self.accumulators[name].shape)
                    for name in self.folded
                }
                logs.append(self.visit(visit, partial))
                parts.append(partial)
            self.merge(logs)
        for name in self.folded:
            fold(self.accumulators[name], [partial[name] for partial in parts], self.operator(name))

    def operator(self, name: str) -> Any:
        info = self.held.infos[name]
        assert isinstance(info, AccumulatorInfo)
        return operator_of(info.op, self.held.accumulators[name].op)

    def visit(self, visit: int, partial: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Run one visit on copies of the arrays behind buffers; returns its contribution to the merge."""
        behind = {name for info in self.buffers.values() for name in (info.target, *info.helpers)}
        mine = {**self.arrays, **{name: self.arrays[name].copy() for name in behind}}
        flushing = {name: _Flushing(info, mine, self.held.buffers[name].apply) for name, info in self.buffers.items()}
        operators = {
            name: (
                partial[name],
                operator_of(getattr(self.held.infos[name], "op", "+"), self.held.accumulators[name].op),
            )
            for name in self.folded
        }

        def buffered(name: str, index: tuple[int, ...], value: Any) -> None:
            flushing[name].add(index, value)

        extents = {name: mine[info.target] for name, info in self.buffers.items()}
        machine = Interpreter(self.analysis.body, {**mine, **extents}, self.numbers, operators, buffered)
        space = self.analysis.space
        for index, at in iterations(self.visits, space, visit):
            for one in flushing.values():
                one.tick()
            fields = {name: self.visits.arrays["field", name][at].item() for name, _ in space.fields}
            machine.iterate(index, fields, {name: self.entries(name, len(c.parts), at) for name, c in space.ragged})
        for one in flushing.values():
            one.flush()
        return {name: one.left() for name, one in flushing.items()}

    def entries(self, name: str, parts: int, at: int) -> tuple[NDArray[Any], ...]:
        """The entries of a ragged field of one record."""
        lo, hi = self.visits.arrays["ptr", name][at : at + 2].tolist()
        return tuple(self.visits.arrays[f"part{k}", name][lo:hi] for k in range(parts))

    def merge(self, logs: list[dict[str, Any]]) -> None:
        for log in logs:
            for name, left in log.items():
                info = self.buffers[name]
                if info.plain:
                    self.arrays[info.target] += left
                    continue
                apply = _compiled_function(self.held.buffers[name].apply)
                for element, delta, seen in left:
                    _apply(apply, info, self.arrays, element, delta, seen)


class _Flushing:
    """A buffer as one visit sees it."""

    def __init__(self, info: BufferInfo, mine: dict[str, NDArray[Any]], apply: Any) -> None:
        self.info, self.mine = info, mine
        self.apply = None if info.plain else _compiled_function(apply)
        self.total = np.zeros(info.shape, info.dtype)
        self.pending: dict[int, Any] = {}
        self.log: list[tuple[int, Any, Any]] = []
        self.since = 0

    def add(self, index: tuple[int, ...], value: Any) -> None:
        if self.info.plain:
            self.total[index] += value
            self.mine[self.info.target][index] += value
            return
        size = int(np.prod(self.info.shape[len(index) :], dtype=np.int64))
        first = int(np.ravel_multi_index(index, self.info.shape[: len(index)])) * size if index else 0
        for k, delta in enumerate(np.atleast_1d(value)):
            kind = np.dtype(self.info.dtype).type
            self.pending[first + k] = kind(self.pending.get(first + k, kind(0)) + delta)

    def tick(self) -> None:
        if self.info.plain or self.info.every is None:
            return
        if self.since == self.info.every:
            self.flush()
        self.since += 1

    def flush(self) -> None:
        self.since = 0
        for element, delta in self.pending.items():
            seen = None
            if self.info.snapshot >= 0:
                seen = self.mine[self.info.helpers[self.info.snapshot]].flat[element]
            self.log.append((element, delta, seen))
            _apply(self.apply, self.info, self.mine, element, delta, seen)
        self.pending = {}

    def left(self) -> Any:
        return self.total if self.info.plain else self.log


def _apply(apply: Any, info: BufferInfo, arrays: dict[str, NDArray[Any]], element: int, delta: Any, seen: Any) -> None:
    names = (info.target, *info.helpers)
    values = [arrays[name].flat[element] for name in names]
    result = apply(values[0], delta, *values[1:], *(() if seen is None else (seen,)))
    for name, value in zip(names, result if isinstance(result, tuple) else (result,), strict=True):
        arrays[name].flat[element] = convert(value, ScalarType(arrays[name].dtype.str[1:]))


def fold(into: NDArray[Any], parts: list[NDArray[Any]], op: Any) -> None:
    """Fold the parts of the visits into an accumulator, in order, element by element."""
    kind = ScalarType(into.dtype.str[1:])
    flat = into.reshape(-1)
    with np.errstate(all="ignore"):
        for part in parts:
            for k, value in enumerate(part.reshape(-1)):
                flat[k] = convert(op(flat[k], value), kind)
