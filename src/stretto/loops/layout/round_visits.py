"""Visits of a scheduled loop: each round is cut into a number of visits that the plan fixes.

A visit has consecutive iterations of the round, so that the most urgent ones run first. Iterations that have to read
each other's writes form one visit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.loops.analyse.analysis import Analysis
from stretto.loops.emit.visit_form import VisitForm
from stretto.loops.execute.scheduled import IN_TURN
from stretto.schedule.orders.order import Ints
from stretto.schedule.orders.rotation import independent

from .loop_visits import LoopVisits, even, fields_of, ragged_arrays


def most(analysis: Analysis) -> int:
    """The most iterations that a round may have."""
    width = getattr(analysis.options.schedule, "width", None)
    size = len(analysis.space)
    return max(1, min(width, size) if isinstance(width, int) else size)


def visits_in(analysis: Analysis, jobs: int) -> int:
    """Number of visits of a round of `jobs` iterations: fixed by the plan, independent of the workers."""
    return 1 if analysis.strategy.name == IN_TURN else max(1, min(analysis.options.width, jobs))


def cut(jobs: int, visits: int) -> Ints:
    """[visits + 1] bounds of consecutive iterations, nearly equal in number."""
    return np.arange(visits + 1, dtype=np.int64) * jobs // visits


def lay_round(analysis: Analysis) -> LoopVisits:
    """One round of the largest size, as an example of later rounds."""
    first = np.arange(min(most(analysis), len(analysis.space)), dtype=np.int64)
    return replace(lay_rounds(analysis, [first]), example=True)


def lay_rounds(analysis: Analysis, rounds: Sequence[Ints]) -> LoopVisits:
    """Visits of rounds that have run: a wave for each round."""
    space, dim = analysis.space, analysis.space.dims[0]
    ptr, waves, at = [np.zeros(1, np.int64)], [], 0
    for jobs in rounds:
        count = visits_in(analysis, len(jobs))
        ptr.append(ptr[-1][-1] + cut(len(jobs), count)[1:])
        waves.append(np.arange(at, at + count, dtype=np.int64))
        at += count
    arrays: dict[tuple[str, str], NDArray[Any]] = {
        ("ptr", ""): np.concatenate(ptr),
        ("picked", ""): np.concatenate([np.zeros(0, np.int64), *rounds]),
        ("box", ""): np.array([[dim.start, dim.step, dim.extent]], np.int64),
        **fields_of(space, None),
        **ragged_arrays(space),
    }
    weight = np.diff(arrays["ptr", ""])
    return LoopVisits(independent(at), weight, VisitForm("picked"), even(at, at), even(1, 1), arrays, tuple(waves))
