"""`AdaptiveController`: tune settings while a run makes progress, one at a time, by objective decrease per second.

    controller = AdaptiveController([staleness_knob(20), number_knob("step", 0.1, (0.05, 0.1, 0.2))])
    while …:
        for move in controller.measured(run_a_window(controller.settings)): …

The package's own text says by which rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .knob_state import STALE, KnobState
from .knobs import ConsistencyMove, KnobLadder, Window
from .plateau import PlateauTest
from .progress import Compared, compare
from .trials import KnobTrial, TrialOptions
from .window_memory import WindowMemory

_ALLOWANCE = 4  # trials of each knob besides the share
_SLACK = 0.1  # of the start value: a window without a trial may be this much above it


class AdaptiveController:
    """The settings of one run.

    Parameters
    ----------
    knobs : sequence of KnobLadder
        What may be changed.
    bound : float or None, default None
        The objective at which the run ends, where it is known.
    **options
        Fields of `TrialOptions`.

    Attributes
    ----------
    windows, trials : int
        Windows measured so far, and those of them that were trials.
    moves : list of ConsistencyMove
        Every decision, in order.
    undo : bool
        Whether the last window diverged and its states should be restored.
    """

    def __init__(self, knobs: Sequence[KnobLadder], *, bound: float | None = None, **options: Any) -> None:
        self._options = TrialOptions(**options)
        # A number that starts at its top can only be lowered, which pays when the run is flat, or later.
        self._knobs = [
            KnobState(knob, knob.start, 0, top, ready=self._options.rest if knob.start == top else 0)
            for knob in knobs
            for top in (len(knob.values) - 1,)
        ]
        self.windows = self.trials = 0
        self._seconds = 0.0
        self.moves: list[ConsistencyMove] = []
        self.undo = False
        self._allowed = _ALLOWANCE * len(knobs) + sum(len(knob.values) for knob in knobs)
        self._memory = WindowMemory(bound, self._options.changed)
        self._plateau = PlateauTest()
        self._trial: KnobTrial | None = None
        self._last: KnobState | None = None  # that succeeded last
        self._kept = {self._rungs()}
        self._start: float | None = None
        self._need = self._options.first

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
        self._seconds += window.seconds
        self.undo = False
        many = len(self.moves)
        if self._start is None:
            self._start = window.after if window.before is None else window.before
        if self._diverged(window):
            self._go_down(window)
        else:
            self._memory.add(self._rungs(), window)
            if self._trial is not None:
                self._judge(self._trial, window)
            else:
                self._settled(window)
        if self._trial is None:
            self._propose()
        self.trials += self._trial is not None  # counted when it is decided on
        return self.moves[many:]

    # -- one window ---------------------------------------------------------------------------------------------------

    def _diverged(self, window: Window) -> bool:
        start = self._start
        if not math.isfinite(window.after) or start is None or not math.isfinite(start):
            return not math.isfinite(window.after)
        looser = self._trial is not None and self._trial.knob.rung > self._trial.before
        slack = 0.0 if looser else _SLACK * abs(start)
        return window.before is not None and window.after > max(start, window.before) + slack

    def _go_down(self, window: Window) -> None:
        """A window diverged: leave its setting for a safer one, and never return."""
        self.undo = True
        why = f"the objective went from {_shown(window.before)} to {_shown(window.after)}"
        if self._start is not None and not math.isfinite(self._start):
            self._start = None
        if self._trial is not None:
            trial, self._trial = self._trial, None
            knob, step = trial.knob, trial.step
            if knob.rung > trial.before:
                knob.high = knob.rung - 1
            else:
                knob.low = knob.rung + 1
            self._move(knob, trial.before, "back", why)
            self._fail(knob, step)
            return
        lower = [knob for knob in (self._last, *reversed(self._knobs)) if knob is not None and knob.rung > knob.low]
        if lower:
            knob = lower[0]
            knob.high = knob.rung - 1
            knob.direction, knob.reach = -1, 1
            self._move(knob, knob.high, "lower", why)
            self._changed_settings([])

    def _settled(self, window: Window) -> None:
        """A window with the kept settings."""
        if self._memory.settle(self._rungs(), window):
            self._kept = {self._rungs()}
            for knob in self._knobs:
                knob.forget()
        self._follow_progress(window)

    def _follow_progress(self, window: Window) -> None:
        """Lower knobs when the run is flat."""
        if window.before is not None and self._plateau.add(self._memory.towards_bound(window)):
            self._kept = {self._rungs()}  # the run is another one than when it was at other settings
            for knob in self._knobs:
                if knob.rung > knob.low:
                    knob.careful, knob.ready = True, 0

    @property
    def _most(self) -> float:
        """Trials that are allowed by now."""
        return self._allowed + self._options.share * self.windows

    # -- trials -------------------------------------------------------------------------------------------------------

    def _propose(self) -> None:
        """Begin a trial, if one is due."""
        if self.trials >= self._most or not self._memory.base:
            return
        waited, known = self._memory.waited, self._memory.known
        ready = []
        for knob in self._knobs:
            rung = knob.target(waited)
            enough = known >= (1 if knob.careful else self._need) or (knob.is_staleness and waited is not None)
            if rung != knob.rung and knob.ready <= self.windows and enough and not self._useless(knob, rung, waited):
                ready.append((knob, rung))
        if not ready:
            if any(knob.careful for knob in self._knobs):
                self._plateau.accept()
                for knob in self._knobs:
                    knob.careful = False
            return
        knob, rung = min(ready, key=self._urgency)
        lower = rung < knob.rung and (knob.careful or knob.is_staleness)
        base = self._memory.latest() if knob.careful else list(self._memory.base)
        trial = self._trial = KnobTrial(knob, knob.rung, lower, knob.careful and lower, base)
        knob.tried, knob.careful = self.windows, False
        before, knob.rung = knob.rung, rung
        self._note(knob, before, "try", trial.why())

    def _urgency(self, one: tuple[KnobState, int]) -> tuple[bool, bool, bool, int]:
        """In a flat run numbers are lowered first; otherwise the knob that succeeded last goes on."""
        knob, _ = one
        return not knob.careful, knob.careful and knob.is_staleness, knob is not self._last, knob.tried

    def _useless(self, knob: KnobState, rung: int, waited: float | None) -> bool:
        """Whether the seconds that are known speak against a staleness."""
        if not knob.is_staleness:
            return False
        if rung > knob.rung:
            return waited is not None and waited < self._options.idle
        now, at = self._rungs(), self._knobs.index(knob)
        others = [(*now[:at], between, *now[at + 1 :]) for between in range(rung, knob.rung)]
        return self._memory.slowest(now, others) > 1 + 2 * STALE

    def _judge(self, trial: KnobTrial, window: Window) -> None:
        """A window of a trial: keep its setting, go back, or repeat it."""
        trial.windows.append(window)
        knob = trial.knob
        gain, noise = self._options.gain, self._options.noise
        scale = self._memory.scale()
        found = compare(scale, trial.base, trial.windows, gain=gain, noise=noise, expected=knob.expected)
        last = len(trial.windows) > self._options.repeats or self.trials >= self._most
        decision = trial.decide(found, last=last)
        if decision == "repeat":
            return
        self._trial = None
        if decision == "keep":
            self._keep(trial, found)
        else:
            step = trial.step
            self._move(knob, trial.before, "back", found.words())
            self._fail(knob, step)
            if trial.flat:
                self._plateau.accept()

    def _keep(self, trial: KnobTrial, found: Compared) -> None:
        knob, before = trial.knob, trial.before
        again = self._rungs() in self._kept
        self._kept.add(self._rungs())
        self._note(knob, before, "keep", found.words())
        self._changed_settings(trial.windows)
        if again:  # the run was here before: progress alternates, and the knob gets rest
            self._fail(knob, 1)
        elif trial.lower and not knob.is_staleness:  # up again later, in case that it was too early
            knob.direction, knob.reach, knob.ready = 1, 1, self.windows + self._options.rest
        else:
            knob.kept(before, self.windows, self._options.rest)
            self._last = knob
        self._need = 1 if found.better > 0.5 else self._options.first
        if trial.lower and knob.is_staleness:
            knob.careful = knob.rung > knob.low  # on to the next lower, as long as nothing is lost
        else:
            self._follow_progress(trial.windows[-1])

    def _fail(self, knob: KnobState, step: int) -> None:
        """Give a knob rest, longer each time."""
        knob.failed(step, self.windows, self._options.rest, self._options.longest)
        self._last = None if self._last is knob else self._last

    def _changed_settings(self, windows: list[Window]) -> None:
        self._memory.base = list(windows)
        self._plateau.reset()
        self._need = self._options.first

    def _rungs(self) -> tuple[int, ...]:
        return tuple(knob.rung for knob in self._knobs)

    def _move(self, knob: KnobState, rung: int, kind: str, reason: str) -> None:
        before, knob.rung = knob.rung, rung
        self._note(knob, before, kind, reason)

    def _note(self, knob: KnobState, before: int, kind: str, reason: str) -> None:
        """A decision that has set the knob."""
        words, name, rung = knob.ladder.words, knob.ladder.name, knob.rung
        made = ConsistencyMove(
            self.windows, name, words(before), words(rung), kind, reason, self._seconds, (before, rung)
        )
        self.moves.append(made)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The settings and what is known of them, as plain values; a trial that has not ended is left out."""
        trial = self._trial
        return {
            "windows": self.windows,
            "trials": self.trials,
            "start": self._start,
            "knobs": [
                knob.to_list(trial.before if trial is not None and trial.knob is knob else knob.rung)
                for knob in self._knobs
            ],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from `to_dict`."""
        self.windows, self.trials, self._start = int(saved["windows"]), int(saved["trials"]), saved["start"]
        by_name = {knob.ladder.name: knob for knob in self._knobs}
        for name, *values in saved["knobs"]:
            by_name[name].restore(values)
        self._trial, self._kept = None, {self._rungs()}
        self._changed_settings([])


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"
