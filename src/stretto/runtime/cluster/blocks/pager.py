"""Read ahead and release parts of a node's arrays that are mapped from files, within a memory budget.

Visits work without it: a page that is not in memory is read when it is touched. So it affects only time and memory. One
thread reads ahead what the next visits need, in the order of the plan, up to the budget. It releases what finished
visits no longer need: the entries of a visit at once, the rows of a row block after its last visit.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

import numpy as np

from stretto.kernels.core import claims
from stretto.plan.arrays import StepSpec
from stretto.runtime.files.mapped_arrays import Disk
from stretto.schedule.orders.order import Ints, Order

_POLL_SECONDS = 0.003  # seconds between two checks for finished visits


class Pager:
    """Manages the memory of one run: `with Pager(…):` while visits are made.

    Parameters
    ----------
    own : array of int
        The node's visits of the run.
    """

    def __init__(
        self, disk: Disk, spec: StepSpec, order: Order, args: dict[str, Any], own: Ints, pass_: claims.Pass
    ) -> None:
        self._disk, self._order, self._args, self._pass = disk, order, args, pass_
        held = [name for name in spec.cut() if disk.holds(args[name])]
        self._ranges = {
            by: [(args[name], spec.ranges(name)) for name in held if spec.ranges(name).by == by]
            for by in ("visits", "rows")
        }
        self._waiting = np.sort(own)  # visits whose data is not read yet, in the plan's order
        self._left = np.bincount(order.row_block[own], minlength=order.rows)  # unfinished visits of each row block
        self._read: dict[tuple[str, int], int] = {}  # bytes of each block in memory
        self._in_memory, self._seen = 0, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stretto-pager", daemon=True)

    def __enter__(self) -> Self:
        self._read_ahead()  # the first visits find their data in memory
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._disk.release_all()

    def _watch(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            self._release_finished()
            self._read_ahead()

    def _release_finished(self) -> None:
        """Release the data of visits that finished since the last call."""
        log = self._pass.log[self._seen : int(self._pass.control[claims.LOGGED])]
        if not len(log):
            return
        made = log[:, 3] > 0
        # Visits before the first unfinished one are complete; later ones are checked again next time.
        whole = len(log) if made.all() else int(made.argmin())
        for visit in log[:whole, 0].tolist():
            row = int(self._order.row_block[visit])
            self._forget("visits", visit)
            self._left[row] -= 1
            if not self._left[row]:
                self._forget("rows", row)
        self._seen += whole

    def _read_ahead(self) -> None:
        """Read data of the next visits until the budget is used."""
        at = 0
        for visit in self._waiting.tolist():
            if self._in_memory >= self._disk.budget and at:
                break
            at += 1
            if not self._pass.taken[visit]:
                self._need("visits", visit)
                self._need("rows", int(self._order.row_block[visit]))
            if self._in_memory >= self._disk.budget:
                break
        self._waiting = self._waiting[at:]

    def _need(self, by: str, block: int) -> None:
        if (by, block) in self._read:
            return
        size = 0
        for array, ranges in self._ranges[by]:
            for first, last in ranges.spans([block]):
                self._disk.load(array, first, last)
                size += (last - first) * (array.nbytes // max(1, len(array)))
        self._read[by, block] = size
        self._in_memory += size

    def _forget(self, by: str, block: int) -> None:
        self._in_memory -= self._read.pop((by, block), 0)
        for array, ranges in self._ranges[by]:
            for first, last in ranges.spans([block]):
                self._disk.release(array, first, last)
