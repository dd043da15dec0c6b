"""One table of a cache: rows held, changes not sent, changes in flight, rounding residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.codec import travels_short, value_bytes
from stretto.comm.messages import Keys, Rows
from stretto.comm.sizes import keys_of_burst
from stretto.kernels.tables import cached_rows, pending_changes
from stretto.store.index import NO_INDEX
from stretto.store.layout import Layout

from .buffer import NO_LOCKS, Locks, PendingChanges, UpdateBuffer
from .in_flight import ChangesInFlight
from .pool import Pool
from .rounding import RoundingResiduals

NO_SLIPS = np.empty((0, 3), np.int64)


class CachedTable:
    """One table of a node's cache.

    Attributes
    ----------
    own : bool
        Changes are added to the cached rows at once, for all workers of the node.
    aside : bool
        Exact runs: a worker's own changes are added to what it reads.
    short : bool
        Changes are sent as 16-bit floats.
    wire : int
        Bytes of a value in a message.
    keys_at_once : int or None
        The most keys in a message of keys; None for no bound.
    free : bool
        Threads may read and add without a lock on the whole table.
    locks, read_locks : array
        Locks of rows that threads share, and those that a read takes; empty without.
    """

    def __init__(
        self,
        layout: Layout,
        table: int,
        workers: range,
        seen: NDArray[np.int64],
        locks: Locks,
        kept: dict[str, Any] | None = None,
    ) -> None:
        spec, exact = layout.tables[table], layout.rule.exact
        self.number, self.spec = table, spec
        # kept: the columns of an earlier run over the same rows. A recorded run keeps arrays of its own.
        pool: Pool | None = (kept or {}).get("pool")
        self.pool = pool if pool is not None and pool.begin_again(layout) else Pool(layout, table)
        if kept is not None:
            kept["pool"] = self.pool
        self.buffer = UpdateBuffer(layout, table, workers)
        self.own = spec.own_writes and not exact
        self.aside = spec.own_writes and exact
        self.versioned = spec.versioned and not exact
        self.short = travels_short(spec.dtype, layout.policy.codec)
        self.wire = value_bytes(spec.dtype, layout.policy.codec)
        self.keys_at_once = keys_of_burst(layout.policy, spec.cols, self.wire)
        # Threads need no lock on the whole table in two cases. Reserved slips never move. Private slips are read by
        # other threads only after they are closed, and they leave the rows of the pool unchanged, so that an index that
        # grows may find these rows, unless eviction moves them.
        private = exact and not layout.policy.managed
        moves = self.pool.index is not None and not (private and self.pool.bound is None)
        self.free = not moves and (self.buffer.reserved or private)
        self.locks = NO_LOCKS if moves else locks
        # In an exact run a row that may be read keeps its value until its readers end their clock: its shard closes no
        # clock before. Without locks, readers do not invalidate each other's processor cache lines.
        self.read_locks = NO_LOCKS if exact else self.locks
        self.unread = np.empty((0, layout.witnesses), np.int32)[:, :0]  # in place of a witness that is unused
        self.flight = ChangesInFlight(layout, table, seen) if self.own else None
        self._no_log = ChangesInFlight.none(spec.cols, spec.kept, layout.witnesses)
        # Rounding residuals of the node's changes, or in exact runs, those that a worker takes into a clock.
        self.settles = self.short and exact
        self.leftovers = RoundingResiduals(spec.cols, spec.kept) if self.short and not exact else None
        self._lost: dict[tuple[int, int], tuple[Keys, NDArray[Any]]] = {}
        self._taken: list[tuple[Keys, NDArray[Any]]] = []  # residuals that early sends of the next clock to end took
        self._before: dict[int, tuple[Keys, NDArray[Any]]] = {}  # residuals before each clock that ended together
        self._from = 0  # the clock of the node

    def lost(self, clock: int) -> dict[int, tuple[Keys, NDArray[Any]]]:
        """Rounding residuals of changes before this clock: keys and rows by worker (−1: the node).

        The clock is the node's, or one that it has just skipped. A restart from it repeats all later changes.
        """
        if self.leftovers is None:
            return {worker: lost for (at, worker), lost in sorted(self._lost.items()) if at == clock}
        later = min((at for at in self._before if at >= clock), default=None)
        if later is not None:
            return {-1: self._before[later]}
        keys, rows = (np.concatenate(parts) for parts in zip(self.leftovers.arrays(), *self._taken, strict=True))
        order = np.argsort(keys)
        return {-1: (keys[order], rows[order])}

    def take_leftovers(self, keys: Keys, deltas: NDArray[Any]) -> None:
        """Add the residuals of these rows to early changes of the next clock to end."""
        assert self.leftovers is not None
        left = np.zeros_like(deltas)
        self.leftovers.move_to(keys, left)
        deltas += left
        some = left.any(axis=1)
        if some.any():
            self._taken.append((keys[some], left[some]))

    def starts_ending(self) -> None:
        """The clock of the node has advanced."""
        self._before.clear()

    def ends(self, clock: int) -> None:
        """Changes of this clock are about to be sent, together with those of clocks around it."""
        if self.leftovers is not None and clock not in self._before:
            self._before[clock] = self.leftovers.arrays()

    def keep_lost(self, slip: PendingChanges, keys: Keys, rows: NDArray[Any]) -> None:
        """Exact runs: a worker starts the clock of this slip with the residuals of its changes in the last."""
        self._lost[slip.clock, slip.worker] = keys, rows
        places = slip.places(keys)
        pending_changes.put_back.exact(places, slip.keys, slip.deltas, NO_LOCKS, rows)
        slip.changed[places] = 1

    def forget_lost(self, clock: int) -> None:
        """The node has reached this clock: `lost` is needed only for clocks since its previous one."""
        for at in [at for at in self._lost if at[0] < self._from]:
            del self._lost[at]
        self._from = clock
        self._taken.clear()

    def give_back(self, worker: int, keys: Keys, rows: NDArray[Any]) -> None:
        """Restore the result of `lost` after a restart."""
        if self.leftovers is not None:
            self.leftovers.keep(keys, rows)
            return
        for slip in self.buffer.current:
            if slip.worker == worker:
                self.keep_lost(slip, keys, rows)

    def install(self, message: Rows) -> NDArray[np.int64]:
        """Put rows into the pool, with this node's changes that are not in them; [n] their slots.

        Only rows that are held are taken from a push: others were evicted while it was in flight.
        """
        pool, buffer, keys = self.pool, self.buffer, message.keys
        index = NO_INDEX
        if pool.index is None:
            slots = keys
        elif message.reply:
            slots = pool.place(keys)
        else:  # the kernel finds them
            slots, index = np.empty(len(keys), np.int64), pool.index.lookup.both
        values, witness = message.values, self.unread if message.witness is None else message.witness
        flight = self.flight
        log = self._no_log if flight is None else flight.log(message.shard)
        if flight is not None and self.leftovers:
            # The order of a row's sum is fixed: changes in flight, residuals, the slips by age.
            values, witness, log = values.copy(), witness.copy(), self._no_log
            if flight.waits_for(message.shard):
                flight.add_to(message.seen, keys, values, witness)
            self.leftovers.add_to(keys, values)
        new: int = cached_rows.install.exact(
            *index,
            keys,
            slots,
            values,
            witness,
            message.through,
            message.reply,
            pool.values,
            pool.through,
            pool.witness,
            self.locks,
            buffer.addresses() if flight is not None and buffer.reserved else NO_SLIPS,
            *log,
            message.seen,
        )
        pool.held += new
        if flight is not None and not buffer.reserved:
            for slip in buffer.slips.values():
                if slip.count:
                    slip.add_to_held(keys, slots, pool.through, pool.values, pool.witness)
        return slots
