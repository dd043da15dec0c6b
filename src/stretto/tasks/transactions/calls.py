"""`TransactionCalls`: the transactions of one part on one state, as caller and as holder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.errors import RunError
from stretto.state.partitions import PartRows
from stretto.state.transactions import Transaction, holder_bits
from stretto.tables.handle import Handle

from .messages import Entry, as_array

Rows = NDArray[np.int64]


class PendingTransaction:
    """A transaction that was submitted. `value` has what its holders returned, after the next exchange."""

    def __init__(self, name: str, rows: Rows) -> None:
        self._name, self._rows = name, rows
        self._known: dict[int, tuple[Rows, NDArray[Any] | None]] = {}  # by holder: rows, and a result for each
        self._done = False

    @property
    def value(self) -> Any:
        """[n, …] one entry for each row that was given, or None if the transaction returns nothing."""
        if not self._done:
            raise RunError(
                f"transaction {self._name}: its value comes with the next exchange; `yield` first, or read "
                "`returned` of the state in the next iteration"
            )
        found: NDArray[Any] | None = None
        for rows, results in self._known.values():
            if results is None:
                return None
            if found is None:
                found = np.zeros((len(self._rows), *results.shape[1:]), results.dtype)
            mine = np.flatnonzero(np.isin(self._rows, rows))
            order = np.argsort(rows)
            found[mine] = results[order[np.searchsorted(rows[order], self._rows[mine])]]
        return found


class TransactionCalls:
    """The transactions that a part submits to one state, and those that it applies as the holder of rows.

    Parameters
    ----------
    table : Handle
        The bits of the state.
    dtype : dtype
        Type of its numbers.
    rows : PartRows
        Which part holds which rows.
    part : int
        This part.
    known : sequence of Transaction
        Those that the state was declared with.
    """

    def __init__(
        self, table: Handle, dtype: np.dtype[Any], rows: PartRows, part: int, known: Sequence[Transaction]
    ) -> None:
        self._table, self._dtype, self._rows, self._part = table, dtype, rows, part
        self.known = {one.name: (number, one) for number, one in enumerate(known)}
        self._transactions = tuple(known)
        self.own = rows.own(part)
        self.size = int(rows.bounds[-1])
        self.returned: list[Any] = []  # values of what was submitted before the last exchange
        self._waiting: list[PendingTransaction] = []
        self._calls: dict[int, list[tuple[int, PendingTransaction, Rows, list[Any]]]] = {}  # by holder, in order
        self._sent: dict[int, list[tuple[list[PendingTransaction], Rows]]] = {}  # by holder: who waits for each entry

    def read(self, keys: ArrayLike | None) -> Any:
        """Rows as numbers."""
        return np.asarray(self._table.read(keys)).view(self._dtype)[()]

    def submit(self, transaction: Transaction | str, rows: ArrayLike, *arguments: Any) -> PendingTransaction:
        """Have the holders of rows apply a transaction at the next exchange; see `TransactionHandle.submit`."""
        name = transaction if isinstance(transaction, str) else transaction.name
        if name not in self.known:
            raise RunError(
                f"state {self._table.name!r}: there is no transaction {name!r}; it was declared with "
                f"{', '.join(map(repr, self.known))}"
            )
        number, made = self.known[name]
        which = np.atleast_1d(np.asarray(rows))
        if which.size and (which.dtype.kind not in "iu" or not 0 <= int(which.min()) <= int(which.max()) < self.size):
            raise RunError(f"transaction {name}: rows {which[:5].tolist()} …; give integers from 0 to {self.size - 1}")
        which = which.astype(np.int64)
        if made.combine is None and len(np.unique(which)) < len(which):
            raise RunError(f"transaction {name}: a row occurs twice; give each once, or a combine= that joins them")
        sent = arguments if made.prepare is None else made.prepare(which, *arguments)
        arrays = [as_array(f"transaction {name}: what it sends", one) for one in _tuple(sent)]
        if any(array.ndim and len(array) != len(which) for array in arrays):
            shapes = [list(array.shape) for array in arrays]
            raise RunError(
                f"transaction {name}: it sends {shapes} for {len(which)} rows; give an entry for each, or a number"
            )
        pending = PendingTransaction(name, which)
        self._waiting.append(pending)
        holders = self._rows.holders(which)
        for holder in np.unique(holders).tolist():
            mine = holders == holder
            cut = [array[mine] if array.ndim else array for array in arrays]
            self._calls.setdefault(holder, []).append((number, pending, which[mine], cut))
        return pending

    # -- the cycle ----------------------------------------------------------------------------------------------------

    def outgoing(self, holder: int) -> list[Entry]:
        """What goes to a holder: calls that combine are joined, at the place of the first of them."""
        entries: list[Entry] = []
        waits: list[tuple[list[PendingTransaction], Rows]] = []
        joined: dict[int, list[tuple[PendingTransaction, Rows, list[Any]]]] = {}
        for number, pending, rows, sent in self._calls.pop(holder, []):
            combine = self._transactions[number].combine
            if combine is None:
                entries.append((number, [rows, *sent]))
                waits.append(([pending], rows))
                continue
            if number not in joined:
                entries.append((number, []))
                waits.append(([], rows))
            joined.setdefault(number, []).append((pending, rows, sent))
        for at, (number, arrays) in enumerate(entries):
            if number in joined and not len(arrays):
                rows, sent = self._combined(self._transactions[number], joined[number])
                entries[at] = number, [rows, *sent]
                waits[at] = [pending for pending, _, _ in joined[number]], rows
        self._sent[holder] = waits
        return entries

    def _combined(
        self, made: Transaction, calls: list[tuple[PendingTransaction, Rows, list[Any]]]
    ) -> tuple[Rows, list[Any]]:
        assert made.combine is not None
        rows = np.concatenate([rows for _, rows, _ in calls])
        sizes = [len(mine) for _, mine, _ in calls]
        columns = [
            np.concatenate([np.broadcast_to(one, (n, *one.shape[1:])) for n, one in zip(sizes, column, strict=True)])
            for column in zip(*(sent for _, _, sent in calls), strict=True)
        ]
        found = _tuple(made.combine(rows, *columns))
        joint = np.asarray(found[0]).astype(np.int64)
        if len(np.unique(joint)) < len(joint) or set(joint.tolist()) != set(rows.tolist()):
            raise RunError(f"transaction {made.name}: combine must return each of its rows once: (rows, *sent)")
        return joint, [as_array(f"transaction {made.name}: what combine returns", one) for one in found[1:]]

    def apply(self, received: Sequence[Sequence[tuple[int, list[NDArray[Any]]]]]) -> list[list[Entry]]:
        """Apply what each part has sent to the rows of this part; returns what goes back to each."""
        if not any(received):
            return [[] for _ in received]
        before = np.ascontiguousarray(self.read(self.own))
        values, first = before.copy(), int(self._rows.bounds[self._part])
        replies: list[list[Entry]] = []
        for part, calls in enumerate(received):
            replies.append([])
            for number, (rows, *sent) in calls:
                made = self._transactions[number]
                try:
                    result = made.apply(values, rows - first, *(one if one.ndim else one[()] for one in sent))
                except Exception as error:
                    raise RunError(
                        f"transaction {made.name} of part {part} failed at part {self._part}, which holds its rows: "
                        f"{type(error).__name__}: {error}"
                    ) from error
                replies[-1].append((number, [] if result is None else [_per_row(made.name, result, len(rows))]))
        bits = holder_bits(before, values)
        changed = np.flatnonzero(bits.reshape(len(bits), -1).any(axis=1))
        if len(changed):
            self._table.add(self.own[changed], bits[changed])
        return replies

    def settle(self, replies: Sequence[Sequence[tuple[int, list[NDArray[Any]]]]] | None) -> None:
        """Give the callers what each holder returned; None: no one waits any more."""
        for holder, waits in self._sent.items():
            for at, (waiting, rows) in enumerate(waits):
                result = None
                if replies is not None and replies[holder][at][1]:
                    result = replies[holder][at][1][0]
                for pending in waiting:
                    pending._known[holder] = rows, result
        self._sent = {}
        for pending in self._waiting:
            pending._done = True
        self.returned, self._waiting = [pending.value for pending in self._waiting], []


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _per_row(name: str, result: Any, rows: int) -> NDArray[Any]:
    found = as_array(f"transaction {name}: what apply returns", result)
    if found.ndim and len(found) != rows:
        raise RunError(
            f"transaction {name}: apply returned {list(found.shape)} for {rows} rows; return one for each row"
        )
    return found if found.ndim else np.full(rows, found)
