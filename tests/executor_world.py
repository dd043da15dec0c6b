"""The arrays and steps of a plan of `executor_plans`, ready to be run.

world = World(made, workers=2)              # as they are before the first epoch
for step in world.items(): crew.run(step, "exact")
world.digest()                              # of everything that was learned and returned
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor_kernel import CUTS, MODULUS, TABLE_COLUMNS, mix_worker
from executor_plans import PlanCase, StepCase
from stretto.plan.arrays import (
    Array,
    StepSpec,
    by_cols,
    by_rows,
    by_visits,
    constant,
    fault,
    number,
    per_visit,
    per_worker,
    replicated,
)
from stretto.plan.kernel_reference import named_kernel
from stretto.runtime.blocks.step import BlockStep, make_step
from stretto.schedule.orders.order import Ints

Allocate = Callable[[str, tuple[int, ...], Any], NDArray[Any]]


def in_memory(name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeros."""
    return np.zeros(shape, dtype)


@dataclass
class World:
    """The arrays of a plan, and its steps. allocate: makes those that are cut."""

    case: PlanCase
    workers: int
    allocate: Allocate = in_memory
    fails: int = -1
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    outs: list[NDArray[np.float64]] = field(default_factory=list)

    def __post_init__(self) -> None:
        case = self.case
        random = np.random.default_rng(case.seed)
        types = dict(zip((*CUTS, "shared"), case.types, strict=True))
        for name, shape in case.shapes.items():
            slot = name.split()[0]
            cut = slot in CUTS
            made = (self.allocate if cut else in_memory)(name, shape, types[slot])
            made[...] = random.integers(0, MODULUS, shape)
            self.arrays[name] = made
        self.tables, self.specs = [], []
        for k, step in enumerate(case.steps):
            visits, order = len(step.order), step.order
            self.arrays[f"moved_rows {k}"] = self.allocate(f"moved_rows {k}", (order.rows, 2), "i4")
            self.arrays[f"moved_cols {k}"] = self.allocate(f"moved_cols {k}", (order.cols, 3), "i4")
            self.arrays[f"parts {k}"] = np.zeros((visits, 2), np.int64)
            self.arrays[f"scratch {k}"] = np.zeros((self.workers, 4), np.int64)
            self.arrays[f"fault {k}"] = np.zeros(2, np.int64)
            self.tables.append(_table(step))
            self.specs.append(_spec(case, step, k))
        self._items = [self._step(epoch, k) for epoch in range(case.epochs) for k in range(len(case.steps))]
        self.outs = [step.out for step in self._items]

    def items(self) -> Sequence[BlockStep]:
        """All steps of all epochs."""
        return self._items

    def _array(self, name: str, step: int) -> NDArray[Any]:
        return self.arrays[self.case.called(name, step)]

    def _step(self, epoch: int, k: int) -> BlockStep:
        case = self.case.steps[k]
        args = [self.tables[k], *(self._array(name, k) for name in CUTS)]
        args += [self._array(name, k) for name in ("moved_rows", "moved_cols", "shared", "parts", "scratch", "fault")]
        numbers = [int(case.plain), int(case.goes_on), case.spin, 3 + 2 * epoch + k, self.fails]
        return make_step(
            f"step {k}",
            mix_worker,
            case.order,
            np.array(case.weight, np.int64),
            *args,
            *numbers,
            before=None if case.plain else lambda fresh: self._before(k, epoch, fresh),
            after=None if case.plain else lambda: self._after(k),
            spec=self.specs[k],
            gathers=case.gathers,
        )

    def _before(self, k: int, epoch: int, fresh: bool) -> None:
        if not fresh:
            return
        self._array("parts", k)[...] = 2 + epoch
        if self.case.steps[k].gathers:
            self._add(self._array("rows", k), 1)

    def _after(self, k: int) -> None:
        total = int(self._array("moved_rows", k).sum()) + int(self._array("parts", k).sum())
        if self.case.steps[k].gathers:
            total += sum(int(self._array(name, k).sum(dtype=np.float64)) for name in ("rows", "state"))
        if f"shared {k}" not in self.case.alias:
            self._add(self._array("shared", k), total)
        self._array("moved_rows", k)[...] = 0
        self._array("moved_cols", k)[...] = 0

    def _add(self, array: NDArray[Any], value: int) -> None:
        array[...] = (array.astype(np.int64) + value) % MODULUS

    # -- what a checkpoint has -----------------------------------------------------------------------------------------

    def saved(self) -> dict[str, NDArray[Any]]:
        """Everything that changes, copied."""
        kept = {name: array.copy() for name, array in self.arrays.items() if not name.startswith("scratch")}
        return kept | {f"out {k}": out.copy() for k, out in enumerate(self.outs)}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Take over what another world saved."""
        for name, array in saved.items():
            if name.startswith("out "):
                self.outs[int(name.split()[1])][...] = array
            else:
                self.arrays[name][...] = array

    def digest(self) -> dict[str, str]:
        """By name, of everything that was learned and returned."""
        return {name: hashlib.sha256(array.tobytes()).hexdigest()[:8] for name, array in self.saved().items()}


def _table(step: StepCase) -> Ints:
    order = step.order
    blocks = {"rows": order.row_block, "cols": order.col_block, "visits": np.arange(len(order))}
    table = np.zeros((len(order), TABLE_COLUMNS), np.int64)
    table[:, 0], table[:, 1] = order.row_block, order.col_block
    for k, name in enumerate(CUTS):
        first, last = (np.array(side, np.int64) for side in step.ranges[name])
        table[:, 2 + 2 * k] = first[blocks[_by(step, name)]]
        table[:, 3 + 2 * k] = last[blocks[_by(step, name)]]
    return table


def _by(step: StepCase, name: str) -> str:
    if name == "wide":
        return step.wide_by
    return {"seen_rows": "rows", "seen_cols": "cols", "entries": "visits", "state": "visits"}.get(name, name)


def _spec(case: PlanCase, step: StepCase, k: int) -> StepSpec:
    make: dict[str, Callable[..., Array]] = {"rows": by_rows, "cols": by_cols, "visits": by_visits}
    arguments: list[Array] = [constant(f"table {k}")]
    for name in CUTS:
        more: dict[str, Any] = {"axis": 1} if name == "wide" else {}
        written = name in ("rows", "cols", "wide", "state")
        arguments.append(make[_by(step, name)](case.called(name, k), *step.ranges[name], written=written, **more))
    order = step.order
    if step.plain:
        arguments += [constant(f"moved_rows {k}"), constant(f"moved_cols {k}"), constant(case.called("shared", k))]
        arguments += [constant(f"parts {k}")]
    else:
        arguments.append(by_rows(f"moved_rows {k}", np.arange(order.rows + 1), fresh=True))
        arguments.append(by_cols(f"moved_cols {k}", np.arange(order.cols + 1), fresh=True))
        arguments += [replicated(case.called("shared", k)), per_visit(f"parts {k}")]
    arguments += [per_worker(f"scratch {k}"), fault(f"fault {k}")]
    arguments += [number(name) for name in ("plain", "goes_on", "spin", "factor", "fails")]
    return StepSpec(f"step {k}", named_kernel(mix_worker), tuple(arguments))
