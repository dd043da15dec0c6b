"""A step: one pass of one compiled kernel over the visits of an order. What a runtime runs."""

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


@dataclass(frozen=True, eq=False)
class Step:
    """kernel(pass_, worker, out, *args) once per worker, until every visit of `order` is made.

    weight [V]: items in each visit. out [V]: one number for each visit.
    before(fresh): called before any visit is made; fresh is False when the step goes on after a stop. after(): called
    when all are made. visits [V]: the plan's numbers of these visits, when the step makes only some of the plan's.
    spec: what the arguments are, by name; None: the step only runs where its arrays are. gathers: whether `before` and
    `after` read or write what is learned, so that it has to be here.
    """

    name: str
    kernel: Kernel
    order: Order
    weight: Ints
    args: tuple[Any, ...]
    out: NDArray[np.float64] = field(repr=False)
    before: Callable[[bool], None] | None = None
    after: Callable[[], None] | None = None
    visits: Ints | None = None
    spec: StepSpec | None = None
    gathers: bool = False

    @property
    def items(self) -> int:
        return int(self.weight.sum())

    def total(self) -> float:
        """The visits' results folded into one number; the exact sum, so it does not matter in which order they were
        made.
        """
        return math.fsum(self.out)


@dataclass(frozen=True, eq=False)
class Done:
    """What came of a step: its seconds and log.

    finished: the visits made so far when the step was stopped before its end, else None. failed: the visit that went
    wrong.
    """

    step: Step
    seconds: float
    log: Ints  # [n, 4] visit, worker, start and end in nanoseconds since the step began
    finished: Ints | None = None
    failed: int | None = None
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
) -> Step:
    """A step with an `out` of its own."""
    weight = np.ascontiguousarray(weight, dtype=np.int64)
    return Step(name, kernel, order, weight, args, np.zeros(len(order)), before, after, None, spec, gathers)


def parts(n: int, at_most: int, least: int = 65536) -> Ints:
    """Bounds that cut n items into equal parts: as many as `at_most`, fewer when they would be small. Never depends on
    threads.
    """
    count = max(1, min(at_most, n // least))
    return np.linspace(0, n, count + 1).astype(np.int64)
