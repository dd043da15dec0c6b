"""What a run leaves behind about its tables: counts always, every event on demand.

    Recording(layout)                  counts: messages, rows and bytes by link and reason; waits; clocks over time
    Recording(layout, record="rows")   also how often each row was sent
    Recording(layout, record="full")   also every event, which is what the replay checker reads (`layout.witness` is on)

The events of a full recording lie in lists of named tuples, one for each kind, in the order in which they happened:

    reads        Read        a worker read rows; seen [n, workers]: which calls of add were in them
    adds         Add         a worker added to rows (keys as given: a key may occur more than once in one call)
    ticks        Tick        a worker ended a clock; `clock` is the one it has now
    sends        Send        a node gave a message to a link (for budgets); also resent and bare acknowledging frames
    picks        Pick        rows were chosen to go between clocks, and at which rank each of them stood
    deliveries   Delivery    a node took a message from a link, once and in order
    updates      Given       a shard was given an Update, from its own node or another
    rows         Given       a cache was given Rows, from its own node's shard or another
    restarts     Restart     everybody went back to a checkpoint; what happened in clocks ≥ `clock` is undone
    final        {table: (keys [n], witness [n, workers])}, every row that was ever touched, when the run ended;
                 final_values {table: [n, cols]}, their values in the same order
    base         {table: Base}, what a run that goes on from an earlier one began with, at clock `begin`

Every tuple begins with `order`, its position among all events of the run, and `now`, in seconds. Arrays are those of
the messages and calls: nobody changes them after they were handed over.
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
# again after a reset, an acknowledgement that found nothing to travel with. `control` is all the rest.
REASONS = ("clock", "fetch", "rank", "control", "again", "acknowledge")


class Read(NamedTuple):
    """seen [n, workers] int32: how many adds of each worker (a key twice in one call counts twice) are in the values
    [n, cols] that were returned, of which this is a copy."""

    order: int
    now: float
    worker: int
    clock: int
    table: int
    keys: Keys
    seen: NDArray[np.int32]
    values: NDArray[Any]


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
    """side: "updates" (from a cache) or "rows" (from a shard), "" for acknowledgements. keys: of Update and Rows."""

    order: int
    now: float
    source: int
    target: int
    side: str
    reason: str
    nbytes: int
    kind: str
    table: int
    keys: Keys | None


class Picked(NamedTuple):
    """Rows of a table that were chosen together, the first to send first: keys [n], and ranks [n], the place of each in
    the order of all `among` rows that had changed and could go; 0 is the weightiest. A ranking may serve several
    choices, so the ranks of one need not begin with 0."""

    table: int
    keys: Keys
    ranks: NDArray[np.int64]
    among: int


class Pick(NamedTuple):
    """Rows a node chose to send between clocks. side: "updates" (by its cache) or "rows" (by its shard, each to all who
    hold it). They leave as Sends with reason "rank", or stay on the node where its own shard has them."""

    order: int
    now: float
    node: int
    side: str
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
    """An Update handed to a shard (source: the node it came from), or Rows handed to a cache (source: their shard)."""

    order: int
    now: float
    source: int
    target: int
    message: Any


class Restart(NamedTuple):
    """clock: that of the checkpoint everybody went back to. incarnation: the number of the new life, from 1.

    whole: everything of the life before was recorded. Otherwise a process was lost with its events, and of that life
    the recording has the reads, adds and ticks that came before the checkpoint, and nothing of the network."""

    order: int
    now: float
    clock: int
    incarnation: int
    whole: bool = True


class Base(NamedTuple):
    """Rows of one table when a run went on from a checkpoint: keys [n] ascending, witness [n, workers], values and
    slack [n, cols], the sizes of what rounding had left with the senders of changes that are in the witness."""

    keys: Keys
    witness: NDArray[np.int32]
    values: NDArray[Any]
    slack: NDArray[np.float64]


class Traffic(NamedTuple):
    """What one node sent to another for one reason."""

    source: int
    target: int
    side: str
    reason: str
    messages: int
    rows: int
    nbytes: int


class Recording:
    """The events and counts of one run; nodes write into it, the door and the checker read it."""

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

    # -- what nodes tell --------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """For pickle, which from Python 3.14 on takes no counter of itertools'."""
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
        """A worker was given rows. Told after they were read, so that no add in them is told later."""
        self.reads.append(Read(next(self._order), now, worker, clock, table, keys, seen, values.copy()))

    def added(self, now: float, worker: int, clock: int, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        """A worker is about to add to rows."""
        self.adds.append(Add(next(self._order), now, worker, clock, table, keys, deltas))

    def ticked(self, now: float, worker: int, clock: int) -> None:
        """A worker has a new clock."""
        self.ticks.append(Tick(next(self._order), now, worker, clock))

    # -- what runtimes tell -----------------------------------------------------------------------------------------

    def waited(self, worker: int, reason: str, seconds: float) -> None:
        """A worker stood still. Reasons: "read" (rows were too old), "tick" (traffic had to leave first)."""
        found = self._waits.get(reason)
        if found is None:
            found = self._waits[reason] = np.zeros(self.layout.workers)
        found[worker] += seconds

    def moved_on(self, now: float, least: int, most: int) -> None:
        """The least clock of all workers is now this."""
        self.clocks.append((now, least, most))

    def restarted(self, now: float, clock: int, incarnation: int) -> None:
        """Everybody went back to the checkpoint at this clock."""
        self.restarts.append(Restart(next(self._order), now, clock, incarnation))

    def put(self, name: str, entry: Any, now: float) -> None:
        """Append an event of another recording to the list of this name: the next one of all, at this time."""
        getattr(self, name).append(entry._replace(order=next(self._order), now=now))

    def goes_on(self, clock: int, shard: dict[str, NDArray[Any]], residuals: dict[str, NDArray[Any]]) -> None:
        """The run begins at this clock, with rows and residuals of a checkpoint (see `store.node.NodePart`)."""
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

    # -- what readers ask -------------------------------------------------------------------------------------------

    @property
    def waits(self) -> dict[str, NDArray[np.float64]]:
        """Seconds each worker stood still, by reason."""
        return dict(self._waits)

    def traffic(self) -> list[Traffic]:
        """Who sent how much to whom, and why; only pairs that did."""
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

    def row_sends(self, table: int) -> NDArray[np.int64]:
        """[rows] how often each row travelled, either way (record="rows" or "full"); empty for tables without a number
        of rows, or with more than 2^27.
        """
        if self._row_sends is None:
            raise PlanError("how often each row was sent was not counted; run with record='rows'")
        return self._row_sends[table]


def _counted(rows: int | None) -> int:
    """Rows of a table whose travels are counted: a gibibyte of counts at most."""
    return rows if rows is not None and rows <= _MOST_COUNTED else 0
