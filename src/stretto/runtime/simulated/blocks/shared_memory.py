"""Memory that all simulated nodes of a step share, so that one process can hold hundreds of nodes.

Shared are constant data (the order's tables, routes, read-only entries) and arrays in which each visit writes its own
slot (results). States are never shared: every node has its own copy, with zeros for the blocks that it does not have.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from stretto.kernels.core import claims
from stretto.runtime.cluster.blocks.loaded_step import LoadedStep, Results, results_of
from stretto.runtime.cluster.blocks.step_messages import LoadStep, StartRun
from stretto.runtime.cluster.pages import Pages
from stretto.schedule.orders.route import Route

_KEPT = 4  # runs whose results are kept: the current one, the next, and those that compile


class VisitTables:
    """An order as plain lists, which Python reads faster than arrays. −1: there is no such visit.

    Attributes
    ----------
    row, col, turn : list
        [V] row block, column block, and how many visits of the column block come before.
    row_next : list
        [V] the next visit of the same row block.
    by_col : list
        [C] the visits of each column block, in turn order.
    urgency : list
        [V] minus the priority: the smallest goes first.
    weight : list
        [V] items.
    """

    def __init__(self, load: LoadStep) -> None:
        order, priority = load.order, np.asarray(load.priority)
        self.row, self.col, self.turn = order.row_block.tolist(), order.col_block.tolist(), order.col_turn.tolist()
        self.rows = [list(visits) for visits in _split(order.row_visits, order.row_first)]
        col_visits = np.argsort(order.col_block, kind="stable")
        col_first = np.concatenate([[0], np.cumsum(np.bincount(order.col_block, minlength=order.cols))])
        self.by_col = [list(visits) for visits in _split(col_visits, col_first)]
        self.row_next, col_next = _next(self.rows, len(order)), _next(self.by_col, len(order))
        self.urgency = (-priority).tolist()
        # A priority is the work of the visit and of the longest chain after it (`Order.tails`).
        tails = np.append(priority, 0)
        self.weight: list[int] = (priority - np.maximum(tails[self.row_next], tails[col_next])).tolist()


def _split(visits: Any, first: Any) -> list[list[int]]:
    flat = visits.tolist()
    ends = first.tolist()
    return [flat[lo:hi] for lo, hi in itertools.pairwise(ends)]


def _next(groups: list[list[int]], visits: int) -> list[int]:
    found = [-1] * visits
    for group in groups:
        for before, after in itertools.pairwise(group):
            found[before] = after
    return found


class OneVisit:
    """A pass whose script is one visit, for compiled workers to make it."""

    def __init__(self, load: LoadStep) -> None:
        order, none = load.order, np.zeros(0, np.int64)
        self._pass = claims.Pass(
            row_block=order.row_block,
            col_block=order.col_block,
            row_turn=order.row_turn,
            col_turn=order.col_turn,
            priority=none,
            row_first=none,
            row_visits=none,
            row_last=np.zeros(order.rows, np.int64),
            row_done=np.zeros(order.rows, np.int64),
            col_done=np.zeros(order.cols, np.int64),
            taken=np.zeros(len(order), np.int64),
            script=np.zeros(1, np.int64),
            log=np.zeros((1, claims.LOG_COLUMNS), np.int64),
        )
        self._words, self._script, self._log = self._pass.words, self._pass.script, self._pass.log
        self._pass.control[claims.MODE] = claims.SCRIPTED

    def make(self, compiled: Callable[..., Any], visit: int, worker: int, out: Any, args: list[Any]) -> bool:
        """Make a visit with a node's arguments; False if it failed."""
        words = self._words
        words[claims.CURSOR] = words[claims.LOGGED] = self._log[0, 3] = 0
        self._script[0] = visit
        compiled(words, worker, out, *args)
        if not words[claims.FAILED]:
            return True
        words[claims.FAILED] = words[claims.STOP] = 0
        return False

    @property
    def finished(self) -> bool:
        """Whether the last visit, which failed, was nevertheless completed."""
        return bool(self._log[0, 3] > 0)


class SharedStep:
    """One step, for all nodes."""

    def __init__(self, load: LoadStep) -> None:
        self.route = Route(load.order, load.owner)
        self.tables = VisitTables(load)
        self.one = OneVisit(load)
        self._read = {k: Pages(*load.shapes[k]) for k in load.spec.entries}

    def load(self, load: LoadStep, node: int, threads: int) -> LoadedStep:
        """The arrays of a node."""
        own = {k: Pages(*one, huge=False) for k, one in load.shapes.items() if k not in self._read}
        return LoadedStep.of(load, node, threads, self.route, own | self._read)


class SharedSteps:
    """Shared steps by plan number, created when a node first loads the step."""

    def __init__(self) -> None:
        self._steps: dict[int, SharedStep] = {}
        self._results: list[tuple[StartRun, Results]] = []

    def step(self, load: LoadStep) -> SharedStep:
        """The shared part of a step."""
        found = self._steps.get(load.plan)
        if found is None:
            found = self._steps[load.plan] = SharedStep(load)
        return found

    def drop(self, plan: int) -> None:
        """Free a step."""
        self._steps.pop(plan, None)

    def results(self, go: StartRun, visits: int) -> Results:
        """The arrays to which the visits of a run write their results."""
        for known, results in self._results:
            if known is go:
                return results
        found = results_of(go, visits)
        self._results = [*self._results[1 - _KEPT :], (go, found)]
        return found
