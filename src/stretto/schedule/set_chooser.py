"""Working sets for any program: alternate a sweep over all jobs with sweeps over the jobs that moved.

    survey    every job once, in rounds of `width`; the jobs that moved become the working set
    walk      sweeps over the set, until the largest change of a sweep is a tenth of that in the survey

When a sweep ends, the changes of rounds in flight are not known yet. After a survey their jobs count as moved. The end
of a walk is decided by the changes received since the previous sweep.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError

from .spec import Chooser, Floats, Ints

SOLVED = 0.1  # a set is solved well enough when its largest change has fallen to this share
MOST_SWEEPS = 20  # over one set


class SetChooser(Chooser):
    """Working sets chosen by how far jobs moved."""

    def __init__(self, size: int, width: int) -> None:
        if size < 1:
            raise PlanError("there is nothing to schedule: a program needs at least one parameter")
        self._size, self._width = size, width
        self._set: Ints = np.arange(size, dtype=np.int64)
        self._surveying, self._at, self._sweeps = True, 0, 0
        self._moved = np.zeros(size, np.uint8)  # in this survey
        self._largest = self._first = 0.0  # largest change since the previous sweep, and in the survey
        self._flying: deque[int] = deque()  # for each round in flight: whether it belongs to a survey

    def choose(self) -> Ints:
        if self._at >= len(self._set):
            self._end_sweep()
        jobs = self._set[self._at : self._at + self._width]
        self._at += self._width
        self._flying.append(int(self._surveying))
        if self._surveying:
            self._moved[jobs] = 1  # until `learn` reports that they did not
        return jobs.copy()

    def _end_sweep(self) -> None:
        self._at, self._sweeps = 0, self._sweeps + 1
        if self._surveying:
            self._surveying, self._sweeps, self._first = False, 0, self._largest
            self._set = np.flatnonzero(self._moved).astype(np.int64)
        if not self._surveying and self._sweeps and self._over:
            self._survey()
        if not len(self._set):  # no job moved: repeat the survey
            self._survey()
        self._largest = 0.0

    @property
    def _over(self) -> bool:
        return self._largest <= SOLVED * self._first or self._sweeps >= MOST_SWEEPS

    def _survey(self) -> None:
        self._surveying, self._set = True, np.arange(self._size, dtype=np.int64)
        self._moved[:] = 0

    def learn(self, jobs: Ints, change: Floats) -> None:
        far = np.abs(change)
        self._largest = max(self._largest, float(far.max(initial=0.0)))
        if self._flying.popleft() and self._surveying:
            self._moved[jobs] = far > 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "set": self._set.copy(),
            "moved": self._moved.copy(),
            "place": np.array([self._surveying, self._at, self._sweeps], np.int64),
            "change": np.array([self._largest, self._first]),
            "flying": np.array(self._flying, np.int64),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        if "moved" not in arrays or arrays["moved"].shape != self._moved.shape:
            raise PlanError("this is the state of another schedule: its 'moved' does not fit")
        self._set, self._moved = arrays["set"].copy(), arrays["moved"].copy()
        surveying, self._at, self._sweeps = arrays["place"].tolist()
        self._surveying = bool(surveying)
        self._largest, self._first = arrays["change"].tolist()
        self._flying = deque(arrays["flying"].tolist())
