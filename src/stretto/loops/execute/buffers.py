"""Memory of buffered loops: copies of arrays for the visits of a wave, sums of writes, and logs of flushes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.front.bind import BoundValues, BufferInfo
from stretto.loops.layout.loop_visits import LoopVisits
from stretto.loops.types import typed_tree as t
from stretto.runtime.blocks.step import parts
from stretto.schedule.orders.order import Ints

_PARTS = 16


@dataclass(frozen=True, eq=False)
class BufferArrays:
    """The memory of one buffer, or of the copies of one array."""

    arrays: dict[tuple[str, str], NDArray[Any]]  # by (what, name): arguments of compiled code
    info: BufferInfo | None = None  # of the buffer; None for copies of an array

    @classmethod
    def of_copies(cls, name: str, array: NDArray[Any], slots: int) -> BufferArrays:
        copies = np.zeros((slots, *array.shape), array.dtype)
        return cls({("copy", name): copies, ("flat", name): copies.reshape(slots, -1)})

    @classmethod
    def of_buffer(cls, name: str, info: BufferInfo, slots: int, log: int, held: BoundValues) -> BufferArrays:
        if info.plain:
            return cls({("delta", name): np.zeros((slots, *info.shape), info.dtype)}, info)
        size = int(np.prod(info.shape, dtype=np.int64))
        seen = held.arrays[info.helpers[info.snapshot]].dtype if info.snapshot >= 0 else np.dtype(np.float32)
        return cls(
            {
                ("pending", name): np.zeros((slots, size), info.dtype),
                ("mark", name): np.zeros((slots, size), np.uint8),
                ("touched", name): np.zeros((slots, size), np.int64),
                ("keys", name): np.zeros((slots, log), np.int64),
                ("deltas", name): np.zeros((slots, log), info.dtype),
                ("seen", name): np.zeros((slots, log if info.snapshot >= 0 else 0), seen),
                ("count", name): np.zeros(slots, np.int64),
            },
            info,
        )

    def ranges(self, size: int) -> Ints:
        """The range of elements of each worker of a merge."""
        return parts(size, _PARTS, least=4096)


def capacity(analysis: Analysis, visits: LoopVisits, name: str, info: BufferInfo) -> int:
    """An upper bound on the number of elements that one visit flushes into a buffer: the capacity of its log."""
    if info.every is None:
        return int(np.prod(info.shape, dtype=np.int64))
    return writes(analysis, visits, name)


def writes(analysis: Analysis, visits: LoopVisits, name: str) -> int:
    """An upper bound on the number of times that one visit writes to an element behind a buffer."""
    fixed, ragged = _writes(analysis.body.steps, name, analysis)
    arrays = visits.arrays
    if visits.form.kind == "picked":  # the iterations are not known yet: assume the longest
        each_longest = sum(each * int(np.diff(arrays["ptr", field]).max(initial=0)) for field, each in ragged.items())
        bound = (fixed + each_longest) * np.diff(arrays["ptr", ""])
    elif visits.form.kind in ("entries", "range"):
        cut = visits.form.kind == "entries"
        lo, hi = (
            (arrays["ptr", ""][:-1], arrays["ptr", ""][1:]) if cut else (arrays["lo", ""][:, 0], arrays["hi", ""][:, 0])
        )
        bound = fixed * (hi - lo)
        for field, each in ragged.items():
            bound = bound + each * (arrays["ptr", field][hi] - arrays["ptr", field][lo])
    else:
        bound = fixed * visits.weight  # iterations; for a skewed tile an upper bound
    return max(1, int(bound.max(initial=0)))


def _writes(steps: tuple[t.Step, ...], name: str, analysis: Analysis) -> tuple[int, dict[str, int]]:
    """Elements written in one iteration: a fixed number, and a number for each entry of a ragged field."""
    fixed = 0
    ragged: dict[str, int] = {}
    for step in steps:
        match step:
            case t.BufferAdd(buffer=buffer, value=value) if buffer == name:
                fixed += int(value.length.value) if t.is_row(value) and isinstance(value.length, t.Const) else 1
            case t.Branch(body=yes, orelse=no):
                for side in (yes, no):
                    more, each = _writes(side, name, analysis)
                    fixed += more
                    ragged = {key: ragged.get(key, 0) + each.get(key, 0) for key in {*ragged, *each}}
            case t.RangeLoop(line=line, start=start, stop=stop, step=stride, body=body):
                more, each = _writes(body, name, analysis)
                if not more and not each:
                    continue
                times = _times(start, stop, stride, analysis)
                if times is None or each:
                    raise PlanError(
                        f"line {line}: how often {name} is written in this loop is not known before it starts; use "
                        "bounds that are numbers, or every=None"
                    )
                fixed += times * more
            case t.RaggedLoop(line=line, ragged=field, body=body):
                more, each = _writes(body, name, analysis)
                if each:
                    raise PlanError(f"line {line}: {name} is written in two nested ragged loops; use every=None")
                ragged[field] = ragged.get(field, 0) + more
            case t.WhileLoop(line=line, body=body):
                more, each = _writes(body, name, analysis)
                if more or each:
                    raise PlanError(
                        f"line {line}: {name} is written in a while loop, so the memory it needs is not known; use "
                        "every=None, or a for loop over a range"
                    )
    return fixed, ragged


def _times(start: t.Scalar, stop: t.Scalar, stride: t.Scalar, analysis: Analysis) -> int | None:
    """Number of iterations of an inner loop; None if it is not known before the loop starts."""

    def number(x: t.Scalar) -> int | None:
        if isinstance(x, t.Const):
            return int(x.value)
        if isinstance(x, t.Var) and x.name in analysis.consulted:
            return analysis.consulted[x.name]
        return None

    low, high, step = number(start), number(stop), number(stride)
    return None if low is None or high is None or not step else len(range(low, high, step))
