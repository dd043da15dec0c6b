"""Recording of a run over tables: counts always, every event on demand.

    Recording(layout)                  counts: messages, rows and bytes by link and reason; waits; clocks over time
    Recording(layout, record="rows")   also how often each row was sent
    Recording(layout, record="full")   also every event, which is what the replay checker reads (`layout.witness` is on)

A full recording stores events in lists of named tuples, one for each kind, in the order in which they happened:

    reads        Read        a worker read rows; seen [n, workers]: which calls of add were in them
    adds         Add         a worker added to rows (keys as given: a key may occur more than once in one call)
    ticks        Tick        a worker ended a clock; `clock` is the one it has now
    sends        Send        a node passed a message to a link (for budgets); also repeated frames and acknowledgements
    picks        Pick        a node chose rows to send between clocks, with the rank of each
    deliveries   Delivery    a node took a message from a link, once and in order
    updates      Given       a shard received an Update, from its own node or another
    rows         Given       a cache received Rows, from its own node's shard or another
    restarts     Restart     all nodes returned to a checkpoint; events of clocks ≥ `clock` are undone
    final        {table: (keys [n], witness [n, workers])}, every row that was ever touched, when the run ended;
                 final_values {table: [n, cols]}, their values in the same order
    base         {table: Base}, the rows that a resumed run started with, at clock `begin`

Every tuple begins with `order`, its position among all events of the run, and `now`, in seconds. Arrays are those of
the messages and calls, which are never changed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys, Message, Rows, Update
from stretto.errors import PlanError

from .layout import Layout

LEVELS = (None, "rows", "full")
_MOST_COUNTED = 2**27
# Why a message was sent: required at the end of a clock, a request or its answer, chosen by rank between clocks, sent
# again after a reset, an acknowledgement without a message. `control` is everything else.
REASONS = ("clock", "fetch", "rank", "control", "again", "acknowledge")


class Read(NamedTuple):
    """A worker read rows."""

    order: int
    now: float
    worker: int
    clock: int
    table: int
    keys: Keys
    seen: NDArray[np.int32]  # [n, workers] adds of each worker in the values; a key twice in one call counts twice
    values: NDArray[Any]  # [n, cols] a copy of the values returned


class Add(NamedTuple):
    order: int
    now: float
    worker: int
    clock: int
    table: int
    keys: Keys
    deltas: NDArray[Any]


class Tick(NamedTuple):
    order: int
    now: float
    worker: int
    clock: int


class Send(NamedTuple):
    """A node passed a message to a link."""

    order: int
    now: float
    source: int
    target: int
    side: str  # "updates" (from a cache), "rows" (from a shard), or "" for acknowledgements
    reason: str  # one of REASONS
    nbytes: int
    kind: str  # class of the message
    table: int
    keys: Keys | None  # of Update and Rows


class Picked(NamedTuple):
    """Rows of a table that were chosen together, the first to send first.

    A ranking may serve several choices, so the ranks of one need not begin with 0.
    """

    table: int
    keys: Keys  # [n]
    ranks: NDArray[np.int64]  # [n] position of each in the order of all `among` rows; 0 is the highest-ranked
    among: int  # rows that had changed and could be sent


class Pick(NamedTuple):
    """Rows that a node chose to send between clocks; keys, ranks and among as in `Picked`.

    They leave as Sends with reason "rank", or stay on the node if its own shard has them.
    """

    order: int
    now: float
    node: int
    side: str  # "updates" (by its cache) or "rows" (by its shard, each to all nodes that hold it)
    table: int
    keys: Keys
    ranks: NDArray[np.int64]
    among: int


class Delivery(NamedTuple):
    order: int
    now: float
    source: int
    target: int
    incarnation: int
    sequence: int


class Given(NamedTuple):
    """A shard received an Update (source: the node it came from), or a cache received Rows (source: their shard)."""

    order: int
    now: float
    source: int
    target: int
    message: Any


class Restart(NamedTuple):
    """All nodes returned to a checkpoint."""

    order: int
    now: float
    clock: int  # of the checkpoint
    incarnation: int  # number of the new attempt, from 1
    # True: everything of the attempt before was recorded. False: a process was lost with its events. The recording then
    # has the reads, adds and ticks before the checkpoint, and no events of the network.
    whole: bool = True


class Base(NamedTuple):
    """Rows of one table when a run was resumed from a checkpoint."""

    keys: Keys  # [n] ascending
    witness: NDArray[np.int32]  # [n, workers]
    values: NDArray[Any]  # [n, cols]
    slack: NDArray[np.float64]  # [n, cols] magnitude of rounding residuals of changes that the witness counts


class Traffic(NamedTuple):
    """Totals of what one node sent to another for one reason."""

    source: int
    target: int
    side: str
    reason: str
    messages: int
    rows: int
    nbytes: int


class Recording:
    """The events and counts of one run; nodes write into it, results and the replay checker read it."""

    def __init__(self, layout: Layout, record: str | None = None) -> None:
        if record not in LEVELS:
            raise PlanError(f"record={record!r}: choose None, 'rows' (how often each row was sent) or 'full'")
        if record == "full" and not layout.witness:
            raise PlanError("record='full' needs a layout with witness=True: reads could not be checked")
        self.layout = layout
        self.full = record == "full"
        self.reads: list[Read] = []
        self.adds: list[Add] = []
        self.ticks: list[Tick] = []
        self.sends: list[Send] = []
        self.picks: list[Pick] = []
        self.deliveries: list[Delivery] = []
        self.updates: list[Given] = []
        self.rows: list[Given] = []
        self.restarts: list[Restart] = []
        self.final: dict[int, tuple[Keys, NDArray[np.int32]]] = {}
        self.final_values: dict[int, NDArray[Any]] = {}
        self.closed: int | None = None  # the run was stopped: adds of clocks below are in `final`, later ones may be
        self.begin = 0
        self.base: dict[int, Base] = {}
        self.clocks: list[tuple[float, int, int]] = []  # (seconds, least, most) when the least worker clock moved on
        self.seconds = 0.0  # when the run ended
        self.bytes = 0  # sent so far by all nodes
        self.messages = 0
        self._order = count()
        self._sent: dict[tuple[int, str, str], list[list[int]]] = {}  # (source, side, reason) → three lists by target
        self._waits: dict[str, NDArray[np.float64]] = {}
        self._row_sends: list[NDArray[np.int64]] | None = None
        if record is not None:
            self._row_sends = [np.zeros(_counted(table.rows), dtype=np.int64) for table in layout.tables]

    # -- events of nodes --------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle, which from Python 3.14 on cannot pickle counters of itertools."""
        return {**self.__dict__, "_order": next(self._order)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _order=count(state["_order"]))

    def sent(
        self, now: float, source: int, target: int, side: str, reason: str, nbytes: int, message: Message | None
    ) -> None:
        """A frame of nbytes left for another node."""
        found = self._sent.get((source, side, reason))
        if found is None:
            found = self._sent[source, side, reason] = [[0] * self.layout.nodes for _ in range(3)]
        messages, rows, sizes = found
        messages[target] += 1
        sizes[target] += nbytes
        kind = type(message)
        if kind is Update or kind is Rows:
            rows[target] += len(message.keys)  # type: ignore[union-attr]
        self.messages += 1
        self.bytes += nbytes
        if self._row_sends is not None:
            self._count_rows(now, source, target, side, reason, nbytes, message)

    def _count_rows(
        self, now: float, source: int, target: int, side: str, reason: str, nbytes: int, message: Message | None
    ) -> None:
        table, keys = -1, None
        if isinstance(message, Update | Rows):
            table, keys = message.table, message.keys
            if self._row_sends is not None and len(self._row_sends[table]):
                np.add.at(self._row_sends[table], keys, 1)
        if self.full:
            kind = type(message).__name__ if message is not None else ""
            entry = (next(self._order), now, source, target, side, reason, nbytes, kind, table, keys)
            self.sends.append(Send(*entry))

    def picked(self, now: float, node: int, side: str, picked: Picked) -> None:
        """A cache or a shard chose rows to send between clocks."""
        self.picks.append(Pick(next(self._order), now, node, side, *picked))

    def delivered(self, now: float, source: int, target: int, incarnation: int, sequence: int) -> None:
        """A message came off a link."""
        self.deliveries.append(Delivery(next(self._order), now, source, target, incarnation, sequence))

    def given_update(self, now: float, shard: int, message: Update) -> None:
        """A shard is about to receive an Update."""
        self.updates.append(Given(next(self._order), now, message.node, shard, message))

    def given_rows(self, now: float, node: int, message: Rows) -> None:
        """A cache is about to receive Rows."""
        self.rows.append(Given(next(self._order), now, message.shard, node, message))

    def read(
        self,
        now: float,
        worker: int,
        clock: int,
        table: int,
        keys: Keys,
        seen: NDArray[np.int32],
        values: NDArray[Any],
    ) -> None:
        """A worker received rows. Called after the read, so that every add in the rows was recorded before."""
        self.reads.append(Read(next(self._order), now, worker, clock, table, keys, seen, values.copy()))

    def added(self, now: float, worker: int, clock: int, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        """A worker is about to add to rows."""
        self.adds.append(Add(next(self._order), now, worker, clock, table, keys, deltas))

    def ticked(self, now: float, worker: int, clock: int) -> None:
        """A worker has a new clock."""
        self.ticks.append(Tick(next(self._order), now, worker, clock))

    # -- events of runtimes -----------------------------------------------------------------------------------------

    def waited(self, worker: int, reason: str, seconds: float) -> None:
        """A worker waited. Reasons: "read" (rows were too old), "tick" (earlier messages had to be sent first)."""
        found = self._waits.get(reason)
        if found is None:
            found = self._waits[reason] = np.zeros(self.layout.workers)
        found[worker] += seconds

    def moved_on(self, now: float, least: int, most: int) -> None:
        """The lowest clock of all workers has changed."""
        self.clocks.append((now, least, most))

    def restarted(self, now: float, clock: int, incarnation: int) -> None:
        """All nodes returned to the checkpoint at this clock."""
        self.restarts.append(Restart(next(self._order), now, clock, incarnation))

    def put(self, name: str, entry: Any, now: float) -> None:
        """Append an event of another recording to the list of this name, with the next order and this time."""
        getattr(self, name).append(entry._replace(order=next(self._order), now=now))

    def goes_on(self, clock: int, shard: dict[str, NDArray[Any]], residuals: dict[str, NDArray[Any]]) -> None:
        """The run starts at this clock, with rows and residuals of a checkpoint (see `store.node.NodePart`)."""
        self.begin = clock
        if not self.full:
            return
        for table, spec in enumerate(self.layout.tables):
            keys = shard[f"{spec.name}/keys"]
            order = np.argsort(keys)
            keys, values = keys[order], shard[f"{spec.name}/values"][order]
            witness = np.zeros((len(keys), self.layout.workers), np.int32)
            if shard[f"{spec.name}/witness"].shape[1]:  # the earlier run was recorded too
                witness[:] = shard[f"{spec.name}/witness"][order]
            slack = np.zeros(values.shape)
            for name, left in residuals.items():
                if name.startswith(f"{spec.name}/") and name.endswith("/keys"):
                    rows = residuals[f"{name.removesuffix('/keys')}/rows"]
                    known = np.isin(left, keys)
                    np.add.at(slack, np.searchsorted(keys, left[known]), np.abs(rows[known]))
            self.base[table] = Base(keys, witness, values, slack)

    # -- summaries --------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> dict[str, NDArray[np.float64]]:
        """Seconds that each worker waited, by reason."""
        return dict(self._waits)

    def traffic(self) -> list[Traffic]:
        """Totals by pair of nodes and reason; only pairs with traffic."""
        return list(self._pairs())

    def _pairs(self) -> Iterator[Traffic]:
        for (source, side, reason), (messages, rows, nbytes) in sorted(self._sent.items()):
            for target, number in enumerate(messages):
                if number:
                    yield Traffic(source, target, side, reason, number, rows[target], nbytes[target])

    def by_reason(self) -> dict[str, tuple[int, int, int]]:
        """{reason: (messages, rows, bytes)} over all links."""
        sums: dict[str, list[int]] = {}
        for (_, _, reason), columns in self._sent.items():
            total = sums.setdefault(reason, [0, 0, 0])
            for place, column in enumerate(columns):
                total[place] += sum(column)
        return {reason: (total[0], total[1], total[2]) for reason, total in sorted(sums.items())}

    @property
    def counts_rows(self) -> bool:
        """Whether it was counted how often each row was sent."""
        return self._row_sends is not None

    def row_sends(self, table: int) -> NDArray[np.int64]:
        """[rows] how often each row travelled, either way (record="rows" or "full"); empty for tables without a number
        of rows, or with more than 2^27.
        """
        if self._row_sends is None:
            raise PlanError("how often each row was sent was not counted; run with record='rows'")
        return self._row_sends[table]


def _counted(rows: int | None) -> int:
    """Rows of a table whose sends are counted: at most a gibibyte of counts."""
    return rows if rows is not None and rows <= _MOST_COUNTED else 0
