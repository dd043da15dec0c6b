"""`TransactionHandle`: what the function of a unit gets for a state with transactions."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from stretto.errors import RunError
from stretto.state.transactions import Transaction

from .calls import PendingTransaction, TransactionCalls


class TransactionHandle:
    """A part's handle on a state that only transactions change.

    Attributes
    ----------
    own : array [n] int64
        Rows that this part holds.
    returned : list
        Values of the transactions that were submitted before the last exchange, in order; None where one returns
        nothing.
    rows : int
        Number of rows.
    calls : TransactionCalls
        What it has submitted, for the cycle.
    """

    def __init__(self, name: str, calls: TransactionCalls) -> None:
        self._name, self.calls = name, calls
        self.own, self.rows = calls.own, calls.size

    @property
    def returned(self) -> list[Any]:
        """Values of the transactions that were submitted before the last exchange."""
        return self.calls.returned

    def read(self, keys: ArrayLike | None = None) -> Any:
        """Rows: [n] or [n, cols]; None for all.

        Parameters
        ----------
        keys : array_like of int or None, default None
            Numbers of the rows.
        """
        return self.calls.read(keys)

    def read_own(self) -> Any:
        """The rows of this part: [own] or [own, cols]."""
        return self.calls.read(self.own)

    def add(self, keys: ArrayLike, deltas: ArrayLike) -> None:
        """Refused: this state is changed by its transactions alone.

        Parameters
        ----------
        keys : array_like of int
            Numbers of the rows.
        deltas : array_like
            What would be added.
        """
        raise RunError(
            f"state {self._name!r} is changed by its transactions alone ({', '.join(self.calls.known)}); submit one, "
            "or declare the state without transactions="
        )

    def submit(self, transaction: Transaction | str, rows: ArrayLike, *arguments: Any) -> PendingTransaction:
        """Have the holders of rows apply a transaction to them at the next exchange.

        Parameters
        ----------
        transaction : Transaction or str
            One of those that the state was declared with, or its name.
        rows : array_like of int [n]
            The rows, each once unless the transaction combines.
        *arguments
            Given to `prepare`, or sent: arrays with an entry for each row, and numbers.

        Returns
        -------
        PendingTransaction
            Its `value` is known after the next exchange.
        """
        return self.calls.submit(transaction, rows, *arguments)
