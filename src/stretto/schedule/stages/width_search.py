"""`WidthSearch`: find the number of workers at which an iteration of a stage takes least time, while the stage runs.

    search = WidthSearch(widest=64, total=500)
    while search.left:
        part = search.next()                            # some iterations at one width
        search.measured(part.width, [run(part.width) for _ in range(part.iterations)])
    search.best, search.reason

The idea is FlexPS's (section 5.4 of the paper). The seconds of an iteration are a unimodal function of the width:
with more workers, computing takes less time and communication more. The first iterations of the stage run in sub-stages
at growing width until one is slower; the rest runs at the best width. All iterations belong to the stage, so nothing
computed is thrown away. The rules:

- **Start.** `start` workers, by default the geometric middle of 1 and `widest`: far below the best width an iteration
  takes many times the best time, and no width is more than a factor of √widest away from the middle.
- **Growth.** The next width is `growth` times the last. If the first step up is not faster, the search goes down
  instead.
- **Nodes.** Beyond one node widths are whole nodes, and no step skips the width of one node (`width_grid`).
- **Length.** A sub-stage has `iterations` iterations. After each `portion` of them, by default a fifth, it ends early
  if the answer is clear: two medians differ by more than twice the standard error of their difference.
- **Noise.** The relative noise of an iteration is estimated from all times so far, each against the median of its
  width; `noise` is what is assumed before. If it hides the answer, both sub-stages are repeated, up to `repeats` times.
  If it still does, the search tries one width further before it stops.
- **Refinement.** Between the best width and its better neighbour, the geometric middle is tried, unless the noise is
  too high to see what it could gain, or too few iterations are left to benefit.
- **Choice.** Of the widths within 2 % of the fastest, the narrowest: it saves workers.
- **Memory.** `WidthMemory` keeps the best width per stage and batch size; the next search of the same two is not made.
- **Few iterations.** A stage of fewer than three sub-stages is not searched: it runs at `start`. A search takes at
  most half of the iterations of a stage, unless each width so far was faster than the one before: then going on costs
  nothing.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from stretto.checks import of

from .iteration_times import IterationTimes, Verdict
from .width_grid import WidthGrid

_CLEAR = 2.0  # standard errors between two medians that are called different
_ALIKE = 0.02  # a width this close to the fastest is as good
_GAIN = 0.05  # a refinement between widths that differ by a factor of 2 gains at most about this much
_TWICE = 2  # iterations of each width before the search moves on: a stall in a single one must not decide
_LEAST = 3  # sub-stages without which no search is made


@dataclass(frozen=True)
class SubStage:
    """Iterations to run at one width."""

    width: int
    iterations: int
    searching: bool = True  # False: the rest of the stage, at the best width


@dataclass(frozen=True)
class WidthDecision:
    """One decision of a search."""

    width: int  # that runs next
    reason: str
    settled: bool = False  # the search is over


_Steps = Generator[SubStage, None, None]


class WidthSearch:
    """The width of one stage.

    Parameters
    ----------
    widest : int
        Workers that are available.
    start : int or None, default None
        Workers of the first sub-stage; None: the geometric middle of 1 and `widest`.
    growth : float, default 2.0
        Factor from one width to the next.
    iterations : int, default 10
        Iterations of a sub-stage.
    repeats : int, default 2
        Times that a sub-stage is repeated, at most, while noise hides the answer.
    noise : float, default 0.05
        Relative noise of an iteration that is assumed before it is measured.
    portion : int or None, default None
        Iterations between two comparisons; None: a fifth of `iterations`. More where a sub-stage takes time to start,
        which would hide the difference of a few iterations.
    total : int or None, default None
        Iterations of the stage; None: not known.
    known : int or None, default None
        The best width of an earlier search: nothing is searched.
    node : int or None, default None
        Workers of a node; None: all are on one.
    least_seconds : float, default 0.0
        A portion that took less is too short to say much, and the sub-stage goes on to its full length.

    Attributes
    ----------
    best : int
        The best width so far.
    settled : bool
        Whether the search is over.
    decisions : list of WidthDecision
        Every decision, in order.
    times : IterationTimes
        What was measured, with `seconds` and `worker_seconds` of the stage so far.
    """

    def __init__(
        self,
        widest: int,
        *,
        start: int | None = None,
        growth: float = 2.0,
        iterations: int = 10,
        repeats: int = 2,
        noise: float = 0.05,
        portion: int | None = None,
        total: int | None = None,
        known: int | None = None,
        node: int | None = None,
        least_seconds: float = 0.0,
    ) -> None:
        check = of("WidthSearch")
        check.number("widest", widest, least=1, whole=True)
        check.optional("start", start, least=1, most=widest, whole=True)
        check.number("growth", growth, above=1)
        check.number("iterations", iterations, least=1, whole=True)
        check.number("repeats", repeats, least=0, whole=True)
        check.number("noise", noise, least=0)
        check.optional("portion", portion, least=1, whole=True)
        check.optional("total", total, least=0, whole=True)
        check.optional("known", known, least=1, whole=True)
        check.optional("node", node, least=1, whole=True)
        check.number("least_seconds", least_seconds, least=0)
        self.widest, self.growth, self.iterations, self.repeats, self.total = widest, growth, iterations, repeats, total
        self._least_seconds = least_seconds
        self._grid = WidthGrid(widest, growth, widest if node is None else min(node, widest))
        self.start = self._grid.start if start is None else start
        self.times = IterationTimes(noise)
        self.decisions: list[WidthDecision] = []
        self.done = 0  # iterations measured
        self.best = self.start
        self.settled = False
        self._portion = -(-iterations // 5) if portion is None else min(portion, iterations)
        self._gaining = False  # the last step was clearly faster, and the search goes on in the same direction
        self._steps = self._search()
        self._part = SubStage(self.best, 0)
        self._begin(known)

    def _begin(self, known: int | None) -> None:
        need = _LEAST * self.iterations
        if known is not None:
            self.best = min(known, self.widest)
            self._settle(f"{self.best} was the best width of an earlier search")
        elif self.widest == 1:
            self._settle("there is one worker")
        elif self.total is not None and self.total < need:
            self._settle(f"{self.total} iterations are too few for a search, which needs {need}")
        else:
            self._part = next(self._steps)

    def next(self) -> SubStage:
        """The iterations to run next."""
        count = self._part.iterations
        if self.settled:
            count = self.iterations if self.left is None else self.left
        elif self.left is not None:
            count = min(count, self.left)
        return SubStage(self._part.width, count, not self.settled)

    def measured(self, width: int, seconds: Sequence[float] | float, count: int | None = None) -> None:
        """Report iterations that have run.

        Parameters
        ----------
        width : int
            Their width.
        seconds : sequence of float, or float
            Of each iteration, or of all together.
        count : int or None, default None
            How many they are, if `seconds` is of all together.
        """
        many = self.times.add(width, seconds, count)
        self.done += many
        if self.settled or width != self._part.width:
            return
        if many < self._part.iterations:
            self._part = SubStage(width, self._part.iterations - many)
        elif self._too_short(width):
            self._part = SubStage(width, self.iterations - self.times.count(width))
        elif (part := next(self._steps, None)) is None:
            self._choose("the search is over")
        elif self.total is not None and 2 * self.done >= self.total and not self._gaining:
            self._choose("half of the iterations of the stage are done")
        else:
            self._part = part

    def _too_short(self, width: int) -> bool:
        count = self.times.count(width)
        return count < self.iterations and count * self.times.median(width) < self._least_seconds

    @property
    def left(self) -> int | None:
        """Iterations of the stage that have not run; None: not known."""
        return None if self.total is None else max(0, self.total - self.done)

    @property
    def reason(self) -> str:
        """The last decision, in words."""
        return self.decisions[-1].reason

    # The search. Each `yield` asks for iterations and goes on when they have been measured.

    def _search(self) -> _Steps:
        self._decide(self.start, f"the search starts at {self.start} of {self.widest}")
        yield SubStage(self.start, self._portion)
        rose = False
        if self.start < self.widest:
            rose = yield from self._climb(up=True)
        if not rose and self.start > 1:
            yield from self._climb(up=False)
        yield from self._refine()

    def _climb(self, *, up: bool) -> Generator[SubStage, None, bool]:
        """Move in one direction while it gets faster; whether it did."""
        rose, equal, width = False, 0, self.best
        while (rival := self._grid.step(width, up=up)) is not None:
            verdict = yield from self._compare(rival, f"{rival} is the next {'wider' if up else 'narrower'}")
            self._gaining = verdict == "faster"
            if verdict == "slower" or (verdict == "unclear" and equal):
                break
            equal = verdict == "unclear"
            width = rival
            if verdict == "faster":
                rose, self.best = True, rival
        return rose

    def _compare(self, rival: int, why: str) -> Generator[SubStage, None, Verdict]:
        """Measure a width until it is clear whether it is faster than the best, or no repetition is left."""
        if self.times.count(rival) < self._portion:
            self._decide(rival, why)
            yield SubStage(rival, self._portion)
        while True:
            verdict = self.times.compare(rival, self.best, _CLEAR)
            fewer = min(rival, self.best, key=lambda width: (self.times.count(width), width != rival))
            once = verdict == "faster" and self.times.count(fewer) < _TWICE
            spent = self.times.count(fewer) >= (1 + self.repeats) * self.iterations
            if spent or not (once or verdict == "unclear"):
                self._decide(rival if verdict == "faster" else self.best, self._result(rival, verdict))
                return verdict
            if verdict == "unclear":
                self._gaining = False  # what noise hides may be slower: the limit of half of the iterations holds
            if self._part.width != fewer:
                again = "is measured once more" if once else "is repeated"
                self._decide(fewer, f"{self._result(rival, verdict)}; {fewer} {again}")
            yield SubStage(fewer, self._portion)

    def _refine(self) -> _Steps:
        """Try the middle between the best width and its better neighbour."""
        self._gaining = False
        near = [width for width in self.times.widths if width != self.best]
        sides = [
            max((w for w in near if w < self.best), default=None),
            min((w for w in near if w > self.best), default=None),
        ]
        known = sorted((w for w in sides if w is not None), key=self.times.median)
        enough = self.left is None or self.left >= 3 * self.iterations
        for side in known[:1]:
            middle = self._grid.middle(self.best, side)
            visible = _CLEAR * self.times.noise * math.sqrt(2 / self.iterations) < _GAIN
            if middle not in (self.best, side) and enough and visible:
                self._decide(middle, f"{middle} is between the best, {self.best}, and the better neighbour, {side}")
                yield SubStage(middle, self.iterations)
                if self.times.median(middle) < self.times.median(self.best):
                    self.best = middle

    def _choose(self, why: str) -> None:
        """The narrowest of the widths that are about as fast as the fastest."""
        least = min(self.times.median(width) for width in self.times.widths)
        self.best = next(w for w in self.times.widths if self.times.median(w) <= (1 + _ALIKE) * least)
        self._settle(f"{why}; an iteration takes {self._shown(self.best)}")

    def _settle(self, why: str) -> None:
        self.settled = True
        self._part = SubStage(self.best, 0)
        self.decisions.append(WidthDecision(self.best, f"{why}; the rest runs at {self.best}", settled=True))

    def _decide(self, width: int, reason: str) -> None:
        self.decisions.append(WidthDecision(width, reason))

    def _result(self, rival: int, verdict: Verdict) -> str:
        words = f"not clearly different at {self.times.noise:.0%} noise" if verdict == "unclear" else verdict
        return f"{self._shown(rival)}, {self._shown(self.best)}: {words}"

    def _shown(self, width: int) -> str:
        return f"{_seconds(self.times.median(width))} at {width}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
