"""`AdaptiveController`: tune settings while a run makes progress, one at a time, by objective decrease per second.

    controller = AdaptiveController([staleness_knob(20), number_knob("step", 0.1, (0.05, 0.1, 0.2))])
    while …:
        for move in controller.measured(run_a_window(controller.settings)): …

A window is some work with one set of settings, after which the objective is known. All windows belong to the run:
nothing that is computed is thrown away, unless it diverged. The rules:

- **Trials.** After `first` windows with the same settings one knob moves to a neighbour of its setting for a window. If
  progress per second is better beyond noise the setting is kept, otherwise it goes back. If noise hides the answer
  the trial is repeated, up to `repeats` times.
- **Direction.** The first trial of a knob loosens it: more staleness, a larger number. After a success it goes on in
  the same direction, with one rung more each time; after a failure the other direction is next.
- **Rest.** A knob that failed in both directions rests for `rest` windows, twice as long after each further failure,
  and `longest` at most. A move back to settings that were kept before counts as a failure, so a run whose progress
  alternates settles.
- **Budget.** Trials take at most a `share` of the windows, besides one for each rung of the ladders and four for each
  knob.
- **Slow progress.** Each time that the relative decrease of a window falls below the next of `slow`, knobs are tried
  downwards first, and whenever noise explains all progress. In such a trial the lower setting is kept unless it is
  worse: a run near its end gains from fresh values and small steps.
- **Waiting.** Where the workers' waiting time is known and below `idle`, more staleness has nothing to gain and is not
  tried.
- **Change.** If progress at the kept settings falls to less than `changed` of what it was, rests end, and earlier
  windows are forgotten.
- **Divergence.** A setting after which the objective is not finite, or larger than at the start, is never tried again,
  nor is any beyond it. `undo` then says that the states of the window should be restored.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stretto.checks import of

from .knobs import STALENESS, ConsistencyMove, KnobLadder, Window
from .progress import Compared, ProgressScale, compare

_RECENT = 4  # windows that the current settings are judged by
_REMEMBERED = 16  # windows, of any settings, that noise and limit are estimated from
_ALLOWANCE = 4  # trials of each knob besides the share
_SLOW = (0.05, 0.01, 0.002, 0.0004)
_SLACK = 0.1  # of the start value: a window without a trial may be this much above it


@dataclass(eq=False)
class _KnobState:
    """One knob: where it is, and how its trials went."""

    ladder: KnobLadder
    rung: int
    low: int = 0  # rungs that may be tried
    high: int = 0
    direction: int = 1
    failures: int = 0
    ready: int = 0  # the window from which it may be tried
    streak: int = 0  # successes in a row
    careful: bool = False  # progress has slowed: the next trial lowers it
    tried: int = 0  # the window of its last trial
    left: int | None = None  # the rung that it was moved from last, which is known to be worse

    def target(self) -> int:
        """The rung of the next trial; the current one if there is none to try."""
        for direction in dict.fromkeys((-1 if self.careful else self.direction, self.direction, -self.direction)):
            step = 1 + self.streak if direction == self.direction and not self.careful else 1
            rung = min(self.high, max(self.low, self.rung + direction * step))
            if rung not in (self.rung, self.left):
                return rung
        return self.rung


@dataclass(eq=False)
class _Trial:
    knob: _KnobState
    before: int  # rung
    lower: bool  # kept unless it is worse
    base: list[Window]
    windows: list[Window] = field(default_factory=list)


class AdaptiveController:
    """The settings of one run.

    Parameters
    ----------
    knobs : sequence of KnobLadder
        What may be changed.
    first : int, default 2
        Windows before the first trial.
    gain : float, default 0.02
        Relative gain in progress per second that is worth a move.
    noise : float, default 0.03
        Relative noise of a window that is assumed before it is measured.
    repeats : int, default 2
        Times that a trial is repeated, at most, while noise hides the answer.
    share : float, default 0.15
        Share of all windows that trials may take.
    rest : int, default 8
        Windows for which a knob rests after its first failure in both directions.
    longest : int, default 64
        The longest rest.
    slow : sequence of float
        Relative decreases of the objective in a window, descending; below each of them knobs are tried downwards.
    idle : float, default 0.05
        Share of waiting below which staleness is not loosened.
    changed : float, default 0.5
        Share of earlier progress below which rests end.

    Attributes
    ----------
    windows, trials : int
        Windows measured so far, and those of them that were trials.
    moves : list of ConsistencyMove
        Every decision, in order.
    undo : bool
        Whether the last window diverged and its states should be restored.
    """

    def __init__(
        self,
        knobs: Sequence[KnobLadder],
        *,
        first: int = 2,
        gain: float = 0.02,
        noise: float = 0.03,
        repeats: int = 2,
        share: float = 0.15,
        rest: int = 8,
        longest: int = 64,
        slow: Sequence[float] = _SLOW,
        idle: float = 0.05,
        changed: float = 0.5,
    ) -> None:
        check = of("AdaptiveController")
        check.number("first", first, least=1, whole=True)
        check.number("gain", gain, least=0)
        check.number("noise", noise, least=0)
        check.number("repeats", repeats, least=0, whole=True)
        check.number("share", share, least=0, most=1)
        check.number("rest", rest, least=1, whole=True)
        check.number("longest", longest, least=rest, whole=True)
        self._first, self._gain, self._noise, self._repeats = first, gain, noise, repeats
        self._share, self._rest, self._longest, self._idle, self._changed = share, rest, longest, idle, changed
        self._slow = tuple(slow)
        self._knobs = [_KnobState(knob, knob.start, 0, len(knob.values) - 1) for knob in knobs]
        self.windows = self.trials = 0
        self.moves: list[ConsistencyMove] = []
        self.undo = False
        self._allowed = _ALLOWANCE * len(knobs) + sum(len(knob.values) for knob in knobs)
        self._base: list[Window] = []  # with the kept settings
        self._recent: deque[tuple[tuple[int, ...], Window]] = deque(maxlen=_REMEMBERED)
        self._trial: _Trial | None = None
        self._last: _KnobState | None = None  # that succeeded last
        self._kept = {self._rungs()}
        self._start: float | None = None
        self._level = -1
        self._stalled = False  # windows with the kept settings made no progress that noise would not explain
        self._need = first

    @property
    def settings(self) -> dict[str, float]:
        """The settings of the next window, by knob."""
        return {knob.ladder.name: knob.ladder.values[knob.rung] for knob in self._knobs}

    @property
    def trying(self) -> bool:
        """Whether the next window is a trial."""
        return self._trial is not None

    @property
    def can_lower(self) -> bool:
        """Whether some knob has a lower setting, to which the run can go if it diverges."""
        return any(knob.rung > knob.low for knob in self._knobs)

    @property
    def reason(self) -> str:
        """Why the next window has its settings, in words."""
        now = ", ".join(f"{knob.ladder.name} {knob.ladder.words(knob.rung)}" for knob in self._knobs)
        return f"{now}: {self.moves[-1].reason}" if self.moves else f"{now}: as the run starts"

    def measured(self, window: Window) -> list[ConsistencyMove]:
        """Report a window that has run with `settings`; returns the decisions that follow."""
        self.windows += 1
        self.undo = False
        many = len(self.moves)
        if self._start is None:
            self._start = window.after if window.before is None else window.before
        diverged = self._diverged(window)
        if not diverged and window.before is not None:
            self._recent.append((self._rungs(), window))
        if diverged:
            self._go_down(window)
        elif self._trial is not None:
            self._judge(self._trial, window)
        elif window.before is not None:
            self._settled(window)
        if self._trial is None and len(self._base) >= self._need:
            self._propose()
        self.trials += self._trial is not None  # counted when it is decided on
        return self.moves[many:]

    # -- one window ---------------------------------------------------------------------------------------------------

    def _diverged(self, window: Window) -> bool:
        start = self._start
        if not math.isfinite(window.after) or start is None or not math.isfinite(start):
            return not math.isfinite(window.after)
        slack = 0.0 if self._trial is not None else _SLACK * abs(start)
        return window.before is not None and window.after > max(start, window.before) + slack

    def _go_down(self, window: Window) -> None:
        """A window diverged: leave its setting for a safer one, and never return."""
        self.undo = True
        why = f"the objective went from {_shown(window.before)} to {_shown(window.after)}"
        if self._start is not None and not math.isfinite(self._start):
            self._start = None
        if self._trial is not None:
            trial, self._trial = self._trial, None
            knob = trial.knob
            if knob.rung > trial.before:
                knob.high = knob.rung - 1
            else:
                knob.low = knob.rung + 1
            self._move(knob, trial.before, "back", why)
            self._fail(knob)
            return
        lower = [knob for knob in (self._last, *reversed(self._knobs)) if knob is not None and knob.rung > knob.low]
        if lower:
            knob = lower[0]
            knob.high = knob.rung - 1
            knob.direction, knob.streak = -1, 0
            self._move(knob, knob.high, "lower", why)
            self._changed_settings([])

    def _settled(self, window: Window) -> None:
        """A window with the kept settings."""
        assert window.before is not None
        rate = self._scale().rate
        earlier, now = [rate(one) for one in self._base], rate(window)
        if earlier and min(now, *earlier) > 0:  # near a plateau rates vary around 0, and single ones say nothing
            slower, faster = now < self._changed * min(earlier), max(earlier) < self._changed * now
            if slower or faster:  # what was measured holds no longer
                self._base = []
                self._recent.clear()
                self._recent.append((self._rungs(), window))
            if slower:
                self._kept = {self._rungs()}
                for knob in self._knobs:
                    knob.ready, knob.failures, knob.left = 0, 0, None
        self._base = [*self._base, window][-_RECENT:]
        self._follow_progress(window.before, window)
        rates = [rate(one) for one in self._base]
        spread = statistics.stdev(rates) / math.sqrt(len(rates)) if len(rates) > 2 else math.inf
        self._stalled = len(rates) > 2 and statistics.fmean(rates) < spread
        if self._stalled:
            for knob in self._knobs:
                knob.careful = knob.rung > knob.low

    def _follow_progress(self, before: float, window: Window) -> None:
        """Note when progress slows."""
        relative = (before - window.after) / max(abs(before), 1e-300)
        level = sum(relative < bound for bound in self._slow)
        if self._level < 0:
            self._level = level
        elif level > self._level:
            self._level = level
            for knob in self._knobs:
                if knob.rung > knob.low:
                    knob.careful, knob.ready = True, 0

    @property
    def _most(self) -> float:
        """Trials that are allowed by now."""
        return self._allowed + self._share * self.windows

    # -- trials -------------------------------------------------------------------------------------------------------

    def _propose(self) -> None:
        """Begin a trial, if one is due."""
        if self.trials >= self._most:
            return
        waited = [window.waited for window in self._base if window.waited is not None]
        idle = bool(waited) and sum(waited) < self._idle * len(waited)
        ready = []
        for knob in self._knobs:
            rung = knob.target()
            useless = idle and knob.ladder.kind == STALENESS and rung > knob.rung
            if rung != knob.rung and knob.ready <= self.windows and not useless:
                ready.append((knob, rung))
        if not ready:
            return
        knob, rung = min(ready, key=lambda one: (not one[0].careful, one[0] is not self._last, one[0].tried))
        before = knob.rung
        self._trial = _Trial(knob, before, knob.careful and rung < before, list(self._base))
        knob.tried, knob.careful = self.windows, False
        why = "progress has slowed" if self._trial.lower else "the next looser" if rung > before else "the next tighter"
        if knob.ladder.kind != STALENESS and not self._trial.lower:
            why = "the next larger" if rung > before else "the next smaller"
        self._move(knob, rung, "try", why)

    def _judge(self, trial: _Trial, window: Window) -> None:
        """A window of a trial: keep its setting, go back, or repeat it."""
        if window.before is None:
            return
        trial.windows.append(window)
        found = compare(self._scale(), trial.base, trial.windows, gain=self._gain, noise=self._noise)
        hidden = found.margin > 2 * self._gain and found.verdict == "unclear"
        promising = found.rival > found.base or trial.lower
        spent = len(trial.windows) > self._repeats or self.trials >= self._most
        if hidden and promising and not spent:
            return
        close = self._stalled or found.rival >= found.base - self._gain * abs(found.base)
        alike = found.verdict == "unclear" and close
        good = found.verdict == "better" or (trial.lower and alike)
        self._trial = None
        if good:
            self._keep(trial, found)
        else:
            knob, step = trial.knob, abs(trial.knob.rung - trial.before)
            self._move(knob, trial.before, "back", _words(found))
            knob.streak = 0
            if step == 1:  # a longer step that failed says nothing about the next rung
                self._fail(knob)

    def _keep(self, trial: _Trial, found: Compared) -> None:
        knob = trial.knob
        before, direction = trial.before, 1 if knob.rung > trial.before else -1
        again = self._rungs() in self._kept
        self._kept.add(self._rungs())
        self.moves.append(
            ConsistencyMove(
                self.windows,
                knob.ladder.name,
                knob.ladder.words(before),
                knob.ladder.words(knob.rung),
                "keep",
                _words(found),
            )
        )
        self._changed_settings(trial.windows)
        if again:  # the run was here before: progress alternates, and the knob gets rest
            self._fail(knob)
        else:
            knob.streak = knob.streak + 1 if direction == knob.direction else 1
            knob.failures, knob.left = 0, before
            self._last = knob
        knob.direction = direction
        knob.careful = trial.lower and knob.rung > knob.low  # on to the next lower, as long as nothing is lost
        if knob.target() == knob.rung:  # at the end of its ladder
            knob.left, knob.ready = None, self.windows + self._rest
        self._need = 1 if found.verdict == "better" else self._first

    def _fail(self, knob: _KnobState) -> None:
        """Give a knob rest, longer each time."""
        knob.failures += 1
        knob.direction, knob.streak = -knob.direction, 0
        opposite = knob.rung + knob.direction
        other = knob.low <= opposite <= knob.high and opposite != knob.left
        knob.left = None
        turn = knob.failures - (2 if other else 1)
        wait = 1 if turn < 0 else min(self._longest, self._rest * 2 ** min(turn, 20))
        knob.ready = self.windows + wait
        self._last = None if self._last is knob else self._last

    def _changed_settings(self, windows: list[Window]) -> None:
        self._base = list(windows)
        self._need = self._first

    def _scale(self) -> ProgressScale:
        groups: dict[tuple[int, ...], list[Window]] = {}
        for rungs, window in self._recent:
            groups.setdefault(rungs, []).append(window)
        return ProgressScale(list(groups.values()))

    def _rungs(self) -> tuple[int, ...]:
        return tuple(knob.rung for knob in self._knobs)

    def _move(self, knob: _KnobState, rung: int, kind: str, reason: str) -> None:
        words = knob.ladder.words
        self.moves.append(ConsistencyMove(self.windows, knob.ladder.name, words(knob.rung), words(rung), kind, reason))
        knob.rung = rung

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The settings and what is known of them, as plain values; a trial that has not ended is left out."""
        trial = self._trial
        return {
            "windows": self.windows,
            "trials": self.trials,
            "start": self._start,
            "knobs": [
                [
                    knob.ladder.name,
                    trial.before if trial is not None and trial.knob is knob else knob.rung,
                    *(knob.low, knob.high, knob.direction, knob.failures, knob.ready),
                ]
                for knob in self._knobs
            ],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from `to_dict`."""
        self.windows, self.trials, self._start = int(saved["windows"]), int(saved["trials"]), saved["start"]
        by_name = {knob.ladder.name: knob for knob in self._knobs}
        for name, rung, low, high, direction, failures, ready in saved["knobs"]:
            knob = by_name[name]
            knob.rung, knob.low, knob.high, knob.direction = rung, low, high, direction
            knob.failures, knob.ready = failures, ready
        self._trial, self._kept = None, {self._rungs()}
        self._changed_settings([])


def _words(found: Compared) -> str:
    if math.isfinite(found.ratio):
        text = f"{found.ratio:.2f} times the progress per second"
    else:
        text = "progress where there was none" if found.rival > found.base else "no progress"
    return text + (f", not clear at {found.margin:.0%}" if found.verdict == "unclear" else "")


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"
