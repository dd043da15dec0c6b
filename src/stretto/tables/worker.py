"""`Worker`: the argument of a worker function, one for each logical worker.

    def worker(w):
        x = w.table("weights")
        for clock in w.clocks(10):                         # ticks after each
            for X, y in w.batches((data, labels), 500):    # this worker's share
                x.add(keys, step(x.read(keys), X, y))

Results depend on the number of logical workers, not on the number of threads or nodes they run on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from stretto.errors import DataError, PlanError, RunError
from stretto.keyed import uniform
from stretto.runtime.files.node_reading import Triples, read_part
from stretto.runtime.tables.job import WorkerApi

from .handle import ElementHandle, Handle, RowHandle, WorkerRunState
from .shared import SharedHandle
from .shares import Part, share_of
from .table import Table


class Worker:
    """One logical worker: what the function of `st.run` is called with.

    Attributes
    ----------
    number : int
        Number of this worker, from 0.
    workers : int
        Number of logical workers.
    node : int
        Number of the node that it runs on.
    """

    def __init__(self, client: WorkerApi, workers: int, tables: dict[str, Table], seed: int, copies: bool) -> None:
        self.number, self.workers, self.node = client.worker, workers, client.node
        self._client, self._tables, self._seed, self._copies = client, tables, seed, copies
        self._open = WorkerRunState()
        self._handles: dict[str, Handle] = {}
        self._due = 0.0  # work computed and not reported yet
        # Positions of the batches at the checkpoint: the first loops continue from them.
        self._before = [list(cursor) for cursor in client.cursors]
        client.cursors.clear()

    @property
    def clock(self) -> int:
        """Ticks so far. Not 0 at first if the run continues from a checkpoint."""
        return self._client.clock

    @property
    def local(self) -> dict[str, Any]:
        """Arrays and numbers of this worker alone, by name.

        They are part of every checkpoint, so keep what is present: `z = w.local.setdefault("z", np.zeros(n))`.
        """
        return self._client.local

    def table(self, name: str) -> Handle:
        """The worker's handle on a table.

        Parameters
        ----------
        name : str
            Name of the table.
        """
        found = self._handles.get(name)
        if found is None:
            if name not in self._tables:
                raise PlanError(
                    f"worker {self.number}, clock {self.clock}: there is no table {name!r}; this run has "
                    f"{', '.join(map(repr, self._tables))}"
                )
            number, table = list(self._tables).index(name), self._tables[name]
            kind = ElementHandle if table.unit == "element" and table.width > 1 else RowHandle
            made = SharedHandle if table.placement == "shared" else kind
            found = self._handles[name] = made(self._client, number, name, table, self._open, self._copies)
        return found

    def tick(self) -> None:
        """End a clock: what was added in it is sent to all workers."""
        self._check("tick")
        self._charge()
        self._open.added = False
        self._client.tick()

    def work(self, items: float) -> None:
        """Report computed work. It costs time on `st.Simulated` and is counted elsewhere; `batches` reports by itself.

        Parameters
        ----------
        items : float
            Items computed.
        """
        self._check("work")
        self._client.work(self._items(items))

    def seconds(self) -> float | None:
        """Seconds of the run so far, virtual on `st.Simulated`; None on `st.Serial`."""
        return self._client.seconds()

    def clocks(self, n: int) -> Iterator[int]:
        """The clocks from the present one to n − 1. Each ends with a tick when the next one is asked for.

        Parameters
        ----------
        n : int
            Where to end.
        """
        try:
            index(n)
        except TypeError:
            raise self._wrong(f"clocks({n!r}); give a whole number of clocks") from None
        while self.clock < n:
            yield self.clock
            self.tick()

    def batches(
        self,
        data: Any,
        size: int | None = None,
        passes: int = 1,
        *,
        part: Part | None = None,
        work: Callable[[Any], float] | None = None,
    ) -> Iterator[Any]:
        """This worker's share of the data, batch by batch. Does not tick.

        The position is part of a checkpoint for loops in which ticks are made: a worker that is restarted continues
        with the batch after the one of the checkpoint's tick, and skips loops that had ended. That works for one loop
        over batches at a time.

        Parameters
        ----------
        data : array, tuple of arrays of one length, sparse matrix, Data or int
            The data; a number n stands for the indices below n. Share k of W is the k-th of W contiguous even parts.
        size : int or None, default None
            Entries of a batch; None for the whole share.
        passes : int, default 1
            Passes over the share.
        part : callable or None, default None
            function(worker, workers, n) -> slice or indices, another way to distribute the data.
        work : callable or None, default None
            function(batch) -> items that it counts for on `st.Simulated`; None: its entries.
        """
        self._check("batches")
        share = share_of(data, self.number, self.workers, part)
        n = len(share)
        size = max(1, n) if size is None else _least_one("batches", "size", size)
        each = -(-n // size)
        total = each * _least_one("batches", "passes", passes)
        ticked = bool(self._before)
        cursor = self._before.pop(0) if self._before else [0]
        self._client.cursors.append(cursor)
        began = self.clock
        try:
            while cursor[0] < total:
                first = cursor[0] % each * size
                cursor[0] += 1
                last = min(n, first + size)
                batch = share.take(first, last)
                self._due += last - first if work is None else self._items(work(batch))
                yield batch
                self._charge()
        finally:
            # A loop inside one clock is recomputed with its clock. By identity: another may have the same position.
            if not (ticked or self.clock > began):
                self._client.cursors[:] = [other for other in self._client.cursors if other is not cursor]

    def triples(self, path: Any, format: str = "auto", *, passes: int = 1, **options: Any) -> Iterator[Triples]:
        """This worker's part of a text file, chunk by chunk as (rows, cols, values), each [n]. Does not tick.

        Ids are int64 as written, values float32. Every record is in the part of exactly one worker, and only that part
        of the file is read. Each entry counts as one item of work. Rows of svmlight files count from 0 in each part.
        The position is not part of a checkpoint: a worker that is restarted begins its part from the start. With ticks
        between passes only, nothing is done twice.

            for clock in w.clocks(10):
                for rows, cols, values in w.triples("s3://bucket/ratings.csv"): ...

        Parameters
        ----------
        path : str or path
            A local file or a URL that fsspec opens, the same for every worker; not compressed, with integer ids. A
            worker that is alone also takes files that have to be read as a whole (compressed or binary files, ids that
            are text).
        format : str, default "auto"
            The format, as for `st.read`.
        passes : int, default 1
            Passes over the part.
        **options
            sep, columns, ids and on_error as for `st.read`; chunk, the bytes of text that are read together.
        """
        self._check("triples")
        passes = _least_one("triples", "passes", passes)
        for found in read_part(path, format, (self.number, self.workers), passes, options):
            self._due += len(found[2])
            yield found
            self._charge()

    def random(self, *keys: int) -> np.random.Generator:
        """A random generator that depends on the seed of the run, this worker's number and the keys alone.

        `w.random(w.clock)` gives other numbers each clock, and the same ones when a clock is repeated.

        Parameters
        ----------
        *keys : int
            What the numbers are for.
        """
        parts = [int(uniform(which, self._seed, self.number, *keys) * 2.0**32) for which in range(4)]
        return np.random.Generator(np.random.Philox(key=parts[0] << 32 | parts[1], counter=parts[2] << 32 | parts[3]))

    def run(self, function: Callable[[Worker], Any]) -> None:
        """Call the function with this worker. Handles that it kept cannot be used afterwards.

        Parameters
        ----------
        function : callable
            The worker function.
        """
        with self._called():
            function(self)

    def steps(self, function: Callable[[Worker], Iterator[None]]) -> Iterator[None]:
        """As `run`, divided into steps.

        Parameters
        ----------
        function : callable
            Returns an iterator, each step of which does a part of the work.
        """
        with self._called():
            yield from function(self)

    @contextmanager
    def _called(self) -> Iterator[None]:
        try:
            yield
            self._charge()
            self._client.unticked = self._open.added
        finally:
            self._open.over = True

    def _charge(self) -> None:
        due, self._due = self._due, 0.0
        if due:
            self._client.work(due)

    def _items(self, items: Any) -> float:
        if not (isinstance(items, Real) and 0 <= float(items) < inf):
            raise self._wrong(f"work({items!r}); give how many items were computed, a number from 0 on")
        return float(items)

    def _wrong(self, what: str) -> RunError:
        return RunError(f"worker {self.number}, clock {self.clock}: {what}")

    def _check(self, what: str) -> None:
        if self._open.over:
            raise RunError(
                f"worker {self.number}: {what} after its function has returned; a worker's clocks end with its function"
            )


def _least_one(where: str, name: str, value: Any) -> int:
    try:
        number = index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise DataError(f"{where}: {name}={value!r}; give a whole number of at least 1")
    return number
