"""Time one loop of the corpus beside Numba: processor milliseconds, the least of several rounds.

`strict` is the kernel written by hand (the body itself, where that is how one would write it), compiled with Numba's
`error_model="numpy"`; `fast` the same with `fastmath=True`; `plain` the body under a bare `numba.njit`. Contestants
take turns, and every run starts from the same arrays.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numba
import numpy as np

import stretto as st
from stretto.errors import PlanError
from stretto.loops.analyse.serial_order import runs_serially
from stretto.state.accumulator import Accumulator
from stretto.state.buffer import Buffer

from .entry import CorpusLoop, flat
from .plain_numba import plain

ROUNDS, LEAST = 7, 0.4  # rounds at most; seconds after which a contestant has run often enough


@dataclass
class Measured:
    """One line of the table.

    Attributes
    ----------
    strategies : list of str
        Of each loop of the function; empty if it is refused.
    message : str
        First line of the refusal, or of the warning of a loop that runs on one worker.
    serial : bool
        Whether it runs on one worker.
    milliseconds : dict
        By contestant: "ours", "ours 2", "strict", "fast", "plain"; one that does not compile is missing.
    compiled : dict
        Seconds of the first call, by contestant.
    """

    strategies: list[str]
    message: str
    serial: bool
    milliseconds: dict[str, float]
    compiled: dict[str, float]


class Contest:
    """Arguments with a copy of what they were."""

    def __init__(self, entry: CorpusLoop) -> None:
        self.arguments = entry.arguments(entry.large)
        self.arrays = [a for value in self.arguments.values() for a in arrays_of(value)]
        self.start = [a.copy() for a in self.arrays]

    def restore(self) -> None:
        for array, start in zip(self.arrays, self.start, strict=True):
            array[...] = start


def arrays_of(value: Any) -> list[np.ndarray[Any, Any]]:
    """Arrays that a loop may write."""
    if isinstance(value, Buffer):
        return [value.target, *value.helpers]
    if isinstance(value, np.ndarray):
        return [value]
    return [value.array] if isinstance(value, Accumulator | st.State) else []


def measure(entry: CorpusLoop) -> Measured:
    """Compile and time every contestant."""
    contest = Contest(entry)
    arguments = contest.arguments
    runs: dict[str, Callable[[], Any]] = {}
    strategies, message, serial = [], "", False
    loop = entry.loop()
    try:
        plan = loop.plan(**arguments)
    except PlanError as problem:
        message = str(problem).splitlines()[0]
    else:
        strategies = [part.prepared.analysis.strategy.name for part in plan.parts]
        warned = [told for part in plan.parts if (told := runs_serially(part.prepared.analysis))]
        serial, message = bool(warned), warned[0].splitlines()[0] if warned else ""
        for name, threads in (("ours", 1), ("ours 2", 2)):
            call = loop.using(runtime=st.Threads(threads))
            runs[name] = partial(call, **arguments)
    values = flat(arguments)
    body = plain(entry.function, arguments)
    hand = entry.hand or body
    mine = values if entry.hand is None else flat(arguments, buffers=False)
    strict, fast = numba.njit(hand, error_model="numpy"), numba.njit(hand, error_model="numpy", fastmath=True)
    bare = numba.njit(body)
    runs |= {"strict": lambda: strict(*mine), "fast": lambda: fast(*mine), "plain": lambda: bare(*values)}
    compiled = {}
    for name, run in list(runs.items()):
        contest.restore()
        began = time.perf_counter()
        try:
            run()
        except numba.core.errors.NumbaError:
            del runs[name]
        compiled[name] = time.perf_counter() - began
    least = dict.fromkeys(runs, np.inf)
    spent = dict.fromkeys(runs, 0.0)
    gc.disable()
    for _ in range(ROUNDS):
        for name, run in runs.items():
            if spent[name] > LEAST * ROUNDS and least[name] < np.inf:
                continue
            contest.restore()
            # One thread is timed by the processor's clock, which other processes do not disturb.
            clock = time.perf_counter if name == "ours 2" else time.process_time
            began = clock()
            run()
            seconds = clock() - began
            spent[name] += seconds
            least[name] = min(least[name], seconds)
    gc.enable()
    return Measured(strategies, message, serial, {name: 1000 * s for name, s in least.items()}, compiled)
