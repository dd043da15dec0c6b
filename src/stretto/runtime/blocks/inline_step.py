"""A small step that is run thousands of times: laid out once, and made by the calling thread.

Handing a step to a crew takes as long as some thousand multiplications. Where one worker does it all anyway, such a
round of visits is made here and now:

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
from .step import Step


class Again:
    """Compiles on the way in, so that no run is longer than its work."""

    def __init__(self, step: Step, profile: str) -> None:
        every = np.arange(len(step.order), dtype=np.int64)
        self._pass = pass_control.start(step.order, step.order.tails(step.weight), script=every)
        self._compiled = step.kernel[profile]
        self._args = (step.out, *step.args)
        self._fresh = self._pass.control.copy()
        self._pass.control[claims.STOP] = 1
        self._compiled(self._pass.words, 0, *self._args)

    def run(self) -> tuple[float, int | None]:
        """Make every visit in its order: the seconds it took, and the visit that went wrong, if any."""
        control = self._pass.control
        control[:] = self._fresh
        began = time.perf_counter_ns()
        self._compiled(self._pass.words, 0, *self._args)
        seconds = (time.perf_counter_ns() - began) / 1e9
        failed = int(control[claims.FAILED])
        return seconds, failed - 1 if failed else None
