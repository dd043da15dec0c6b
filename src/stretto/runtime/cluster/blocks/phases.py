"""Split a wave into phases: visits that the nodes make without exchanging served elements in between.

Visits that share a block may write what the other touches, so they are in different phases unless one node makes both.
The phases follow from the order and the number of nodes; they do not change results, only waiting times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.plan.arrays import StepSpec
from stretto.plan.touched import Waves
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.route import Route, owners


@dataclass(frozen=True, eq=False)
class Phase:
    """The visits of a phase."""

    visits: Ints
    touched: tuple[dict[str, NDArray[Any]], ...]  # for every node, the elements of each served array it touches


def wave_owners(waves: Waves, nodes: int) -> Ints:
    """[R] the node of each row block.

    If a row block has visits in one wave only, every wave is distributed over all nodes: consecutive row blocks of
    about equal weight go to one node, so that the same part of every wave is made by the same node.
    """
    order, weight = waves.order, waves.weight
    if len(waves.sets) == 1 or len(np.unique(order.row_block)) < len(order):
        return owners(order, weight, nodes)
    found = np.zeros(order.rows, np.int64)
    for wave in waves.sets:
        work = weight[wave].astype(np.float64)
        share = (np.cumsum(work) - work / 2) * nodes / max(float(work.sum()), 1e-300)
        found[order.row_block[wave]] = np.clip(share.astype(np.int64), 0, nodes - 1)
    return found


def phases_of(spec: StepSpec, route: Route, wave: Ints, nodes: int) -> list[Phase]:
    """The phases of a wave, in order."""
    direct = any(spec.arrays[k].written for k in spec.of("served"))
    parts = [wave]
    if direct and len(np.unique(route.node[wave])) > 1:
        level = levels(route.order, wave)
        parts = [wave[level == at] for at in range(int(level.max(initial=-1)) + 1)]
    return [_phase(spec, route, visits, nodes) for visits in parts]


def _phase(spec: StepSpec, route: Route, visits: Ints, nodes: int) -> Phase:
    owner = route.node[visits]
    names = spec.of("served")
    return Phase(visits, tuple({k: spec.touched(k).by(visits[owner == node]) for k in names} for node in range(nodes)))


def levels(order: Order, wave: Ints) -> Ints:
    """[n] for each visit of a wave, the length of the longest chain of visits that must precede it.

    >>> from stretto.schedule.orders.wavefront import wavefront
    >>> levels(wavefront(2, 3), np.arange(6)).tolist()
    [0, 1, 2, 1, 2, 3]
    """
    rows: dict[int, int] = {}
    cols: dict[int, int] = {}
    found = []
    for row, col in zip(order.row_block[wave].tolist(), order.col_block[wave].tolist(), strict=True):
        level = max(rows.get(row, 0), cols.get(col, 0))
        rows[row] = cols[col] = level + 1
        found.append(level)
    return np.array(found, np.int64)
