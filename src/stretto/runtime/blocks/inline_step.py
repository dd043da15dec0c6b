"""Run a small step thousands of times on the calling thread, prepared once.

Handing a step to a crew takes as long as some thousand multiplications. Where one worker makes all visits anyway, they
are made on the calling thread:

    again = Again(step, "exact")
    while ...:
        ...                         # new contents of the step's arrays
        seconds, failed = again.run()

A Ctrl-C is noticed between two runs.
"""

from __future__ import annotations

import time

import numpy as np

from stretto.kernels.core import claims

from . import pass_control
from .step import BlockStep


class InlineStep:
    """A prepared step. It is compiled on construction, so that no run includes compile time."""

    def __init__(self, step: BlockStep, profile: str) -> None:
        every = np.arange(len(step.order), dtype=np.int64)
        self._pass = pass_control.start(step.order, step.order.tails(step.weight), script=every)
        self._compiled = step.kernel[profile]
        self._args = (step.out, *step.args)
        self._fresh = self._pass.control.copy()
        self._pass.control[claims.STOP] = 1
        self._compiled(self._pass.words, 0, *self._args)

    def run(self) -> tuple[float, int | None]:
        """Make every visit in order; return the seconds and the visit that failed, if any."""
        control = self._pass.control
        control[:] = self._fresh
        began = time.perf_counter_ns()
        self._compiled(self._pass.words, 0, *self._args)
        seconds = (time.perf_counter_ns() - began) / 1e9
        failed = int(control[claims.FAILED])
        return seconds, failed - 1 if failed else None
