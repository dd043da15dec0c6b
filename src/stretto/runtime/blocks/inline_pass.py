"""Make a pass on the calling thread, and measure seconds: for callers that choose by them how to run the next one."""

from __future__ import annotations

import time

import numpy as np

from stretto.kernels.core import claims

from . import pass_control
from .step import BlockStep, StepOutcome

BRIEF = 50e-3  # seconds of a pass, or of a call, that runs on the calling thread: Ctrl-C can wait for it


def run_inline(step: BlockStep, profile: str) -> StepOutcome:
    """Make every visit of a step that was compiled before, without threads and without a log."""
    unstarted = step.unstarted
    words = pass_control.alone(step.order) if unstarted is None else unstarted.copy(serial=False).words
    began = time.perf_counter()
    step.kernel[profile](words, 0, step.out, *step.args)
    seconds = time.perf_counter() - began
    failed = int(words[claims.FAILED])
    return StepOutcome(
        step, seconds, np.empty((0, claims.LOG_COLUMNS), np.int64), failed=failed - 1 if failed else None
    )


class Stopwatch:
    """Seconds by the clock since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def seconds(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._began
