"""When pauses and crashes happen in a simulated run: the given ones, and those drawn from a mean time to failure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain

from .faults import Crash, Pause
from .settings import SimulatedSettings
from .virtual_time import Hub


def of_seed(seed: int, nodes: int, mean: float, back_after: float) -> Iterator[Crash]:
    """An endless series of crashes in order of time: every node fails repeatedly, after exponential times of this
    mean.
    """
    draw = random.Random(f"crashes {seed}")
    now = 0.0
    while True:
        now += draw.expovariate(nodes / mean)
        yield Crash(draw.randrange(nodes), now, back_after)


def schedule(spec: SimulatedSettings, hub: Hub, pause: Callable[[Pause], None], crash: Callable[[Crash], None]) -> None:
    """Schedule pauses and crashes: the given ones, and those drawn from the mean time to failure."""
    given = spec.failures if isinstance(spec.failures, tuple) else ()
    for fault in chain(spec.faults, given):
        if isinstance(fault, Pause):
            hub.at(float(fault.at), pause, fault)
        elif isinstance(fault, Crash):
            hub.at(float(fault.at), crash, fault)
    mean = spec.mean_failure()
    if mean is None:
        return
    drawn = of_seed(spec.seed, spec.nodes, mean, float(spec.back_after))

    def next_crash(fault: Crash | None) -> None:
        if fault is not None:
            crash(fault)
        coming = next(drawn)
        hub.at(float(coming.at), next_crash, coming)

    next_crash(None)
