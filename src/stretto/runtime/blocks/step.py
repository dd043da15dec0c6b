"""`BlockStep`: one pass of a compiled kernel over the visits of an order; the unit that a runtime runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.core.compile import Kernel
from stretto.schedule.orders.order import Ints, Order

if TYPE_CHECKING:
    from stretto.plan.arrays import StepSpec

    from .pass_control import UnstartedPass


@dataclass(frozen=True, eq=False)
class BlockStep:
    """Calls kernel(pass_, worker, out, *args) once per worker, until every visit of `order` is made."""

    name: str
    kernel: Kernel
    order: Order
    weight: Ints  # [V] items in each visit
    args: tuple[Any, ...]
    out: NDArray[np.float64] = field(repr=False)  # [V] one number for each visit
    before: Callable[[bool], None] | None = None  # before(fresh): called first; fresh is False after a stop
    after: Callable[[], None] | None = None  # called when all visits are made
    visits: Ints | None = None  # [V] the plan's numbers of these visits, if the step makes only some of the plan's
    spec: StepSpec | None = None  # roles of the arguments, by name; None: the step runs in this process only
    unstarted: UnstartedPass | None = None  # to copy a pass over all visits from; None: it is made from `order`
    gathers: bool = False  # whether `before` or `after` use what is learned, so that it has to be gathered first
    kept: bool = True  # whether checkpoints hold what finished visits computed; else all are repeated after a restart

    @property
    def items(self) -> int:
        return int(self.weight.sum())

    def total(self) -> float:
        """The exact sum of the visits' results, independent of the order in which they were made."""
        return math.fsum(self.out)


@dataclass(frozen=True, eq=False)
class StepOutcome:
    """The result of a step."""

    step: BlockStep
    seconds: float
    log: Ints  # [n, 4] visit, worker, start and end in nanoseconds since the step began
    finished: Ints | None = None  # the visits made so far if the step was stopped before its end, else None
    failed: int | None = None  # the visit that failed
    interrupted: bool = False


def make_step(
    name: str,
    kernel: Kernel,
    order: Order,
    weight: Ints,
    *args: Any,
    before: Callable[[bool], None] | None = None,
    after: Callable[[], None] | None = None,
    spec: StepSpec | None = None,
    gathers: bool = False,
) -> BlockStep:
    """Create a step with a new `out` array."""
    weight = np.ascontiguousarray(weight, dtype=np.int64)
    return BlockStep(
        name, kernel, order, weight, args, np.zeros(len(order)), before, after, None, spec, gathers=gathers
    )


def parts(n: int, at_most: int, least: int = 65536) -> Ints:
    """Bounds that divide n items into equal parts: `at_most`, or fewer when they would be small.

    Never depends on the number of threads.
    """
    count = max(1, min(at_most, n // least))
    if count == 1:
        return np.array([0, n], np.int64)
    return np.linspace(0, n, count + 1).astype(np.int64)


def equal_work(work: Ints, at_most: int, least: int) -> Ints:
    """Bounds that divide items into visits of about equal work; no visit is empty.

    work [n]: of each item. least: work of a visit, at least; at_most: visits. Never depends on the number of threads.

    >>> equal_work(np.array([1, 1, 8, 1, 1]), 4, 3).tolist()
    [0, 3, 5]
    """
    total = int(work.sum())
    count = max(1, min(at_most, total // least))
    if count == 1:
        return np.array([0, len(work)] if len(work) else [0], np.int64)
    before = np.concatenate([[0], np.cumsum(work)])
    inside = np.searchsorted(before, np.linspace(0, before[-1], count + 1)[1:-1])
    return np.unique(np.concatenate([[0], inside, [len(work)]])).astype(np.int64)
