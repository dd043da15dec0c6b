"""Create the shared arrays by which compiled workers claim the visits of a pass.

`start` prepares one pass: with no visit finished, or, after an interruption, with those in `finished`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from stretto.errors import RunError
from stretto.kernels.core import claims
from stretto.schedule.orders.order import Ints, Order


def start(
    order: Order,
    priority: Ints,
    *,
    finished: Ints | None = None,
    script: Ints | None = None,
    only: Ints | None = None,
) -> claims.Pass:
    """Arrays for one pass over `order`.

    Parameters
    ----------
    order : Order
        The visits and their dependencies.
    priority : [V] array
        Of the ready visits, the one with the highest priority goes first.
    finished : array of int or None
        Visits that are already made (closed under the order).
    script : array of int or None
        Make exactly these visits, in this order, on one worker (the serial runtime); None: workers claim ready visits.
    only : array of int or None
        Make only these visits. The finished ones are among them, and of every block they are the first.
    """
    done = np.zeros(len(order), dtype=np.int64)
    if finished is not None and len(finished):
        if not order.finished_closed(finished):
            raise RunError("the finished visits are not closed under the plan's order; the checkpoint is not usable")
        done[finished] = 1
    row_first, row_visits, count = order.row_first, order.row_visits, len(order)
    if only is not None:
        mine = np.zeros(len(order), bool)
        mine[only] = True
        row_visits, count = row_visits[mine[row_visits]], len(only)
        counts = np.bincount(order.row_block[only], minlength=order.rows)
        row_first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    row_done = np.bincount(order.row_block[done == 1], minlength=order.rows).astype(np.int64)
    col_done = np.bincount(order.col_block[done == 1], minlength=order.cols).astype(np.int64)
    made = claims.Pass(
        row_block=order.row_block,
        col_block=order.col_block,
        row_turn=order.row_turn,
        col_turn=order.col_turn,
        priority=priority,
        row_first=row_first,
        row_visits=row_visits,
        row_last=np.full(order.rows, -1, dtype=np.int64),
        row_done=row_done,
        col_done=col_done,
        taken=done,
        script=np.empty(0, dtype=np.int64) if script is None else script,
        log=np.zeros((count, claims.LOG_COLUMNS), dtype=np.int64),
    )
    made.control[claims.LEFT] = count - int(done.sum())
    made.control[claims.MODE] = claims.CLAIMED if script is None else claims.SCRIPTED
    return made


class UnstartedPass:
    """Makes passes over all visits of an order, by copying one.

    Parameters
    ----------
    order : Order
        The visits and their dependencies.
    weight : [V] array
        Work of each visit.
    """

    def __init__(self, order: Order, weight: Ints) -> None:
        self._order, self._weight = order, weight
        self._made: dict[bool, claims.Pass] = {}

    def copy(self, *, serial: bool) -> claims.Pass:
        """A pass that no worker has begun. serial: one worker makes the visits in their numbering."""
        found = self._made.get(serial)
        if found is None:
            script = np.arange(len(self._order)) if serial else None
            found = self._made[serial] = start(self._order, self._order.tails(self._weight), script=script)
        return found.copy()


@lru_cache(maxsize=64)
def _unstarted(order: Order) -> Ints:
    return start(order, np.zeros(len(order), np.int64)).words


def alone(order: Order) -> Ints:
    """The words of a pass for a single worker, to which priorities do not matter."""
    return _unstarted(order).copy()


def logged(pass_: claims.Pass) -> Ints:
    """[n, 4] what this pass ran: visit, worker, start, end in time stamp cycles; without unfinished visits."""
    log: Ints = pass_.log[: int(pass_.control[claims.LOGGED])]
    return log[log[:, 3] > 0]
