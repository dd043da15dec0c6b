"""`st.transaction`: what the holder of rows does with them on behalf of another part; and states that are changed so.

def take(values, rows, wanted):              # at the holder: values [own] of its rows, rows: which of them
    given = np.minimum(values[rows], wanted)
    values[rows] -= given
    return given                             # one for each row, to the caller

take = st.transaction(take)
stock = st.state(np.full(1000, 5.0), transactions=[take])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike, NDArray

from stretto.checks import shown
from stretto.errors import PlanError
from stretto.state.partitioned import PartitionedState
from stretto.state.partitions import Ranges
from stretto.state.state import State


@dataclass(frozen=True, eq=False)
class Transaction:
    """A change of rows that their holder makes. Made by `st.transaction`.

    Attributes
    ----------
    name : str
        Its name, by which caller and holder know it.
    apply : callable
        At the holder.
    prepare : callable or None
        At the caller: what is sent.
    combine : callable or None
        At the caller: joins several for one holder.
    """

    name: str
    apply: Callable[..., Any]
    prepare: Callable[..., Any] | None = None
    combine: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<transaction {self.name}>"


def transaction(
    apply: Callable[..., Any],
    *,
    prepare: Callable[..., Any] | None = None,
    combine: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Transaction:
    """A change that the holder of rows makes on behalf of other parts, atomically for each part.

    Every part of a unit holds a range of rows of the state. `state.submit(transaction, rows, *arguments)` in the
    function of a unit sends the arguments to the holders. At the next exchange (the end of the iteration, or a `yield`)
    each holder applies what it received, in the order of the parts and then of the calls, so the result has the same
    bits on every runtime. What `apply` returns goes back to the caller. A transaction over rows of several parts is
    atomic in each of them, not over all of them.

    Parameters
    ----------
    apply : callable
        `function(values, rows, *sent) -> None or [n]`. Called at the holder. values: all of its rows, [own] or
        [own, cols], which it changes in place; rows [n]: positions in them. It returns nothing, a number, or an array
        with one entry for each row.
    prepare : callable or None, default None
        `function(rows [n], *arguments) -> array or tuple of arrays`. Called at the caller. What is sent: arrays [n, …]
        with an entry for each row, or single numbers. None sends the arguments of `submit`.
    combine : callable or None, default None
        `function(rows [n], *sent) -> (rows, *sent)`. Called at the caller; joins all calls of an exchange for one
        holder into one, in which every row occurs once. None: each call is sent and applied by itself.
    name : str or None, default None
        None for the name of `apply`.

    Returns
    -------
    Transaction

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> @st.transaction
    ... def take(values, rows, wanted):
    ...     given = np.minimum(values[rows], wanted)
    ...     values[rows] -= given
    ...     return given
    >>> def buy(worker, stock, sold):
    ...     order = stock.submit(take, [0, 1], [2.0, 2.0])
    ...     yield
    ...     sold.add([0], [order.value.sum()])
    >>> stock, sold = st.state([3.0, 10.0], transactions=[take]), st.zeros(1)
    >>> result = st.run(st.unit(buy, stock, sold, parts=2), runtime=st.Serial())
    >>> stock.array.tolist(), sold.array.tolist()
    ([0.0, 6.0], [7.0])
    """
    for what, given in (("apply", apply), ("prepare", prepare), ("combine", combine)):
        if not (callable(given) or (given is None and what != "apply")):
            raise PlanError(f"transaction: {what}={shown(given)} cannot be called; give a function")
    return Transaction(str(name or getattr(apply, "__name__", "transaction")), apply, prepare, combine)


class TransactionState(PartitionedState):
    """A state that only transactions change. Made by `st.state(…, transactions=[…])`.

    A table adds integers: the holder of a row adds the difference of the bits, so that the row has the very number that
    the transaction wrote. (x + (y − x) is not always y for floats.)
    """

    __slots__ = ("_bits", "transactions")

    def __init__(self, array: ArrayLike, partition: Ranges, transactions: Sequence[Transaction]) -> None:
        super().__init__(array, partition)
        if (
            self._array.dtype.kind not in "fi"
            or self._array.dtype.itemsize not in (4, 8)
            or self._array.ndim not in (1, 2)
        ):
            raise PlanError(
                f"state: transactions of {self._array.dtype} {list(self.shape)}; give one or two dimensions of f4, f8, "
                "i4 or i8"
            )
        self.transactions = tuple(transactions)
        self._bits = State._of(self._array.view(f"i{self._array.dtype.itemsize}"))

    def __reduce__(self) -> Any:
        return TransactionState, (self._array, self.partition, self.transactions)

    def copy(self) -> TransactionState:
        """Another state with the same numbers and transactions."""
        return TransactionState(self._array, self.partition, self.transactions)

    @property
    def stored(self) -> State:
        """The bits of the numbers: the same memory."""
        return self._bits


def checked_transactions(given: Any, ranges: Any, replicate: bool) -> tuple[Ranges, tuple[Transaction, ...]]:
    """Check `transactions=` of a state, and the partition that goes with it."""
    listed = (given,) if isinstance(given, Transaction) else tuple(given)
    if not listed or not all(isinstance(one, Transaction) for one in listed):
        raise PlanError(f"state: transactions={shown(given)}; give a list of st.transaction(…)")
    names = [one.name for one in listed]
    if len(set(names)) < len(names):
        raise PlanError(f"state: transactions={names}: two have one name; give them names with name=")
    if replicate:
        raise PlanError(
            "state: rows of a replicated state have no holder that applies transactions; leave out replicate="
        )
    if not isinstance(ranges, Ranges) or ranges.axis != "rows":
        raise PlanError("state: transactions= need holders of rows; give partition='rows' or ranges, or leave it out")
    return ranges, listed


def holder_bits(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    """What is added to the bits of `before` so that they become those of `after`, modulo 2**32 or 2**64."""
    kind = f"u{before.dtype.itemsize}"
    added: NDArray[Any] = (after.view(kind) - before.view(kind)).view(f"i{before.dtype.itemsize}")
    return added
