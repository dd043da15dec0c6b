"""Trials of `schedule="auto"`: a state machine that measures progress and decides when to switch.

    trials = Trials(candidates, cost, sweep)
    trials.account(entries, jobs, rounds, trials.current)     # work that was done
    if trials.due:
        trials.observe(round, objective)                      # trials.current may be another one now

*Progress* is the decrease of the objective per unit of work (see `candidates`), never per second, so every decision is
the same on every machine. The decrease of any schedule becomes smaller as a run converges. So candidates are tried
between two trials of the same reference, A B C A, and each is compared with the rate of A, interpolated geometrically
to the time of the trial. The best candidate runs until its rate has fallen to a small share of what it was and enough
work has been done to justify another series of trials, or until it stalls; then all are tried again. A candidate under
which the objective rises is dropped for the rest of the run.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.schedule.cyclic import cyclic

from .candidates import Candidate, RoundCost

FALLEN = 0.05  # try again when the rate has fallen to this share of what it was at the choice
PAUSE = 2.0  # and this many times the work of the last series was done since
STALLED = 0.1  # or at once when the rate is this share of the one a sweep before
WARM_UP = 3.0  # work, in sweeps, after which a candidate that learns is measured even if it has not seen every job
_LEAST_ROUNDS = 8  # of a trial, for each round in flight
_RISE = 1e-10  # relative to the objective: more is a rise and not rounding
_TINY, _NOTHING = 1e-300, 1e9


@dataclass(frozen=True)
class Decision:
    """A choice that `schedule="auto"` made.

    Attributes
    ----------
    round : int
        The round after which it was made.
    schedule : str
        The schedule from then on, in words.
    why : str
        The reason.
    """

    round: int  # after which it was made
    schedule: str  # from then on, in words
    why: str  # the reason


class Trials:
    """Trials of candidates, and the choice between them.

    Parameters
    ----------
    candidates : tuple of Candidate
        The first one begins.
    cost : RoundCost
    sweep : float
        Entries of all jobs once; a trial lasts for as much work.
    depth : int
        Rounds in flight; a trial has at least eight rounds for each.
    """

    def __init__(self, candidates: tuple[Candidate, ...], cost: RoundCost, sweep: float, depth: int = 1) -> None:
        self._candidates, self._cost, self._sweep = candidates, cost, max(1.0, sweep)
        self._least = _LEAST_ROUNDS * depth
        self._fallback = Candidate(cyclic(1, shuffle=True), 0.0, False, None, "one at a time is safe")
        self.work = 0.0
        self.current = 0
        self._dropped: list[int] = []
        self._warm: list[int] = []  # candidates that learn and have updated every job
        self._reference = 0
        self._waiting: list[int] = []  # candidates to try in this series, the next one first
        self._tried: list[tuple[int, float, float]] = []  # of this series: candidate, rate, work at the middle
        self._trying = False
        self._met: list[int] = []  # candidates that were tried in this series
        self._entries, self._rounds = 0.0, 0  # since the last evaluation
        self._from: tuple[float, float] | None = None  # objective and work at the last evaluation
        self._began = 0.0  # work at the start of the series
        self._chosen = (0.0, 0.0, 0.0)  # of the last choice: work, work of its series, rate
        self._last = 0.0  # rate of the last sweep since then
        self.decisions: list[Decision] = []

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates; the last one is the fallback for when every other one was dropped."""
        return (*self._candidates, self._fallback)

    @property
    def due(self) -> bool:
        """Whether the objective is to be evaluated now."""
        if self._from is None:
            return True
        spent = self.work - self._from[1]
        enough = spent >= self._sweep
        if self._cold:
            enough = self._entries >= self._sweep or spent >= WARM_UP * self._sweep
        return enough and self._rounds >= self._least

    @property
    def _cold(self) -> bool:
        """Whether the current candidate learns and has not updated every job."""
        return self.candidates[self.current].learns and self.current not in self._warm

    def work_of(self, entries: float, jobs: float, rounds: int, owner: int) -> float:
        """The work of rounds that candidate `owner` chose."""
        cost = self._cost
        return entries + jobs * cost.job + rounds * (cost.round + self.candidates[owner].choosing)

    @property
    def work_left(self) -> float:
        """Work until the next evaluation, at least."""
        return max(0.0, self._sweep - (self.work - self._from[1] if self._from else 0.0))

    @property
    def rounds_left(self) -> int:
        """Rounds until the next evaluation, at least."""
        return max(1, self._least - self._rounds)

    def account(self, entries: float, jobs: int, rounds: int, owner: int) -> None:
        """Add the work of rounds that candidate `owner` chose."""
        self.work += self.work_of(entries, jobs, rounds, owner)
        self._entries += entries
        self._rounds += rounds

    def observe(self, number: int, objective: float) -> None:
        """Take the objective after round `number`, when it is due."""
        if self._from is None:
            self._start(number, 0, "to begin with")
        elif not objective <= self._from[0] + _RISE * abs(self._from[0]):
            self._drop(number)
        elif self._cold:
            self._warm.append(self.current)
        else:
            self._measured(number, objective, *self._from)
        self._from = (objective, self.work)
        self._entries, self._rounds = 0.0, 0

    def _measured(self, number: int, objective: float, before: float, work: float) -> None:
        """Record the progress of the current candidate since the last evaluation."""
        rate = (before - objective) / max(self.work - work, 1.0)
        if self._trying:
            self._tried.append((self.current, rate, 0.5 * (work + self.work)))
            return self._next(number)
        (at, spent, first), last, self._last = self._chosen, self._last, rate
        fallen = rate <= FALLEN * first and self.work - at >= PAUSE * spent
        if self._rivals(self.current) and (fallen or rate <= STALLED * last):
            share = max(0.0, rate / max(first, _TINY))
            self._start(number, self.current, f"tried again: progress per work fell to {share:.1%} of what it was")
        return None

    def _rivals(self, reference: int) -> list[int]:
        """Candidates to compare with the reference."""
        return [
            k
            for k, one in enumerate(self._candidates)
            if k != reference and k not in self._dropped and one.after in (None, reference)
        ]

    def _start(self, number: int, reference: int, why: str) -> None:
        """Begin a series of trials, if there are candidates to try."""
        self._reference, self._tried, self._began, self._met = reference, [], self.work, [reference]
        self._waiting = self._rivals(reference)
        self._trying = bool(self._waiting)
        self._chosen = (self.work, 0.0, math.inf)
        self._use(number, reference, why)

    def _next(self, number: int) -> None:
        """Start the next trial of the series, or choose the best candidate."""
        if self._waiting:
            self._met.append(self._waiting[0])
            return self._use(number, self._waiting.pop(0), "on trial")
        if self.current != self._reference:
            return self._use(number, self._reference, "for comparison")
        best, score = self._best()
        further = [k for k in self._rivals(best) if k not in self._met]
        if further:  # those to be tried only if this one is the best
            last = self._tried[-1]
            against, self._reference, self._waiting = self._reference, best, further
            self._tried = [last] if last[0] == best else []
            return self._next(number) if best == against else self._use(number, best, "the best so far")
        self._trying = False
        rate = next((rate for k, rate, _ in reversed(self._tried) if k == best), 0.0)
        self._chosen, self._last = (self.work, self.work - self._began, rate), rate
        than = f", {score:.2f} times the progress per work of the reference" if best != self._reference else ""
        if score > _NOTHING:
            than = ", the reference made no progress"
        return self._use(number, best, f"chosen as the best of {len(self._met)}{than}")

    def _best(self) -> tuple[int, float]:
        """The best candidate of the series and its score: its rate over the interpolated rate of the reference."""
        own = [(work, rate) for k, rate, work in self._tried if k == self._reference and rate > 0]
        best, top = self._reference, 1.0 if own else 0.0
        for k, rate, work in self._tried:
            if k != self._reference and k not in self._dropped:
                score = rate / max(_between(own, work), _TINY)
                if score > top:
                    best, top = k, score
        return best, top

    def _drop(self, number: int) -> None:
        """Drop the current candidate, under which the objective rose."""
        gone = self.current
        if gone == len(self._candidates):
            return None
        self._dropped.append(gone)
        if self._trying and gone != self._reference:
            return self._next(number)
        left = [k for k, one in enumerate(self._candidates) if k not in self._dropped and one.after is None]
        name = self.candidates[gone].schedule.explain()
        return self._start(number, left[0] if left else len(self._candidates), f"the objective rose with {name}")

    def _use(self, number: int, k: int, why: str) -> None:
        self.current = k
        self.decisions.append(Decision(number, self.candidates[k].schedule.explain(), why))

    # -- checkpoints -------------------------------------------------------------------------------------------------

    _SAVED = (
        "work", "current", "_dropped", "_warm", "_reference", "_waiting", "_tried", "_trying", "_met", "_entries",
        "_rounds", "_from", "_began", "_chosen", "_last",
    )  # fmt: skip

    def array(self) -> NDArray[np.uint8]:
        """The state of the trials as bytes, for a checkpoint."""
        state: dict[str, Any] = {name: getattr(self, name) for name in self._SAVED}
        state["decisions"] = [(one.round, one.schedule, one.why) for one in self.decisions]
        return np.frombuffer(json.dumps(state).encode(), np.uint8)

    def restore(self, array: NDArray[np.uint8]) -> None:
        """Continue from what `array` returned."""
        state = json.loads(array.tobytes())
        self.decisions = [Decision(*one) for one in state.pop("decisions")]
        for name, value in state.items():
            setattr(self, name, tuple(value) if name in ("_from", "_chosen") and value is not None else value)
        self._tried = [(int(k), float(rate), float(work)) for k, rate, work in self._tried]


def _between(known: list[tuple[float, float]], work: float) -> float:
    """The rate of the reference at `work`: geometric between two trials, that of the nearest trial outside them."""
    if not known:
        return 0.0
    before = [one for one in known if one[0] <= work] or known[:1]
    after = [one for one in known if one[0] > work] or known[-1:]
    (w0, r0), (w1, r1) = before[-1], after[0]
    if w1 <= w0:
        return r0
    share = (work - w0) / (w1 - w0)
    return math.exp((1.0 - share) * math.log(r0) + share * math.log(r1))
