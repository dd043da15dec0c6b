"""Rotation under random fault schedules: a small problem, and runs of it on simulated nodes that crash, stall and lose
frames. Used by the tests of the simulated runtime."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import numpy as np

import stretto as st
from jobs import PROBLEMS, digest, job_on, some_ratings
from stretto.runtime.blocks.step import BlockStep
from stretto.runtime.simulated.blocks.block_executor import SimulatedCrew

EPOCHS = 3


class SmallRotation:
    """Matrix factorisation of a few ratings over a grid of blocks, as steps of three epochs."""

    def __init__(
        self,
        name: str = "adagrad, no biases",
        entries: int = 400,
        shape: tuple[int, int] = (40, 30),
        blocks: int = 8,
    ) -> None:
        data = some_ratings(entries, *shape)
        # So few ratings are usually one block.
        patch = mock.patch("stretto.solvers.factorization.sgd.choose_blocks", return_value=blocks)
        with patch, job_on(st.Simulated(nodes=2, threads=1), PROBLEMS[name], data) as (job, _):
            self.steps: list[BlockStep] = [job.steps(epoch)[0] for epoch in range(EPOCHS)]
            self._arrays = job.arrays()
        self._start = {array: values.copy() for array, values in self._arrays.items()}
        with st.Serial().open() as crew:
            for step in self.steps:
                crew.run(step, "exact")
        self.expected = self.learned()

    def restore(self) -> None:
        """Go back to the first factors."""
        for name, values in self._start.items():
            self._arrays[name][...] = values
        for step in self.steps:
            step.out[:] = 0.0

    def learned(self) -> str:
        """Of everything learned, and of what the visits of the epochs returned."""
        return digest(self._arrays, *[step.out for step in self.steps])

    def run(self, spec: st.Simulated, draw: random.Random | None = None) -> SimulatedCrew:
        """All epochs on simulated nodes, from the first factors. draw: decides what the driver does meanwhile, such as
        stopping a pass before its end."""
        self.restore()
        with spec.crew() as crew:
            for epoch, step in enumerate(self.steps):
                self._pass(crew, step, epoch, draw)
                if draw is not None and draw.random() < 0.2:
                    crew.gather()
            crew.gather()
        assert isinstance(crew, SimulatedCrew)
        return crew

    def _pass(self, crew: Any, step: BlockStep, epoch: int, draw: random.Random | None) -> None:
        then = self.steps[epoch + 1] if epoch + 1 < EPOCHS else None
        finished = None
        stuck = draw is None
        while True:
            ahead = then if draw is None or draw.random() < 0.6 else None
            seconds = None if stuck or draw is None or draw.random() < 0.6 else draw.uniform(0.0, 0.05)
            done = crew.run(step, "exact", finished, seconds, then=ahead)
            stuck = not len(done.log)
            finished = done.finished
            if finished is None:
                return


def schedule(seed: int) -> tuple[st.Simulated, random.Random]:
    """A cluster and its faults, drawn from a seed."""
    draw = random.Random(seed)
    nodes = draw.randint(1, 9)
    span = 0.12  # virtual seconds in which most of a run without faults happens

    def when() -> float:
        return draw.uniform(0.0, span * draw.choice([0.3, 1.0, 1.0, 5.0]))

    # Six losses without progress end a run, on a cluster as here: never as many.
    faults: list[Any] = []
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        faults.append(st.faults.Crash(draw.randrange(nodes), when(), draw.choice([0.0, 0.01, 0.2])))
    for _ in range(draw.choice([0, 0, 1, 2])):
        faults.append(st.faults.Pause(draw.randrange(nodes), when(), draw.choice([0.001, 0.05, 1.0])))
    slow: set[tuple[int, int]] = set()
    for _ in range(draw.choice([0, 2, 6, 20]) if nodes > 1 else 0):
        a, b = draw.sample(range(nodes), 2)
        kind = draw.randrange(4)
        if kind == 0 and (a, b) not in slow:  # slow links of one pair multiply: blocks would take hours
            slow |= {(a, b), (b, a)}
            faults.append(st.faults.SlowLink(a, b, when(), draw.choice([0.02, 1.0]), draw.choice([3.0, 100.0])))
        elif kind == 1:
            faults.append(st.faults.Delay(a, b, when(), draw.choice([0.02, 1.0]), draw.choice([0.001, 0.05])))
        else:
            faults.append(st.faults.Reset(a, b, when(), draw.choice([0, 1, 3, 10**9]), draw.choice([0, 0, 1, 2])))
    racks = draw.choice([None, None, 2]) if nodes > 1 else None
    spec = st.Simulated(
        nodes=nodes,
        threads=draw.randint(1, 3),
        link=draw.choice(["1Gbit", "20Mbit", "2Mbit"]),
        latency=draw.choice(["50us", "2ms"]),
        seed=seed,
        seconds_per_item=1e-5,
        stragglers=draw.choice([None, None, {"share": 0.3, "slow": 5.0, "seconds": 0.01}]),
        failures=None if faults else draw.choice([None, nodes * 0.8]),
        racks=racks,
        uplink=None if racks is None else draw.choice(["5Mbit", "100Mbit"]),
        jitter=draw.choice([0.0, 0.0, 0.002]),
        faults=faults,
        detect=draw.choice([0.001, 0.02, 0.3]),
        back_after=draw.choice([0.001, 0.02, 0.3]),
    )
    return spec, draw


def check(problem: SmallRotation, seed: int) -> SimulatedCrew:
    """Run one schedule; the bits must be those of the serial runtime."""
    spec, draw = schedule(seed)
    crew = problem.run(spec, draw)
    assert problem.learned() == problem.expected, f"schedule {seed}: {spec!r}"
    assert np.isfinite(crew.report.seconds)
    return crew
