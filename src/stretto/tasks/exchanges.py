"""Exchanges of the replicated states of one part: before an iteration, at the yields inside it, and after it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from stretto.tables.replica import ReplicaHandle
from stretto.tables.worker import Worker

from .transactions.cycle import TransactionCycle


class Exchanges:
    """The replicated states of a part.

    Parameters
    ----------
    worker : Worker
        Whose clock an exchange ends.
    copies : sequence of ReplicaHandle
        The states. Where there is none, a yield only ends the clock.
    transactions : TransactionCycle or None
        What holders apply when the clock ends.
    """

    def __init__(
        self, worker: Worker, copies: Sequence[ReplicaHandle], transactions: TransactionCycle | None = None
    ) -> None:
        self._worker, self._copies, self._transactions = worker, copies, transactions
        self._every = min((copy.every for copy in copies), default=1)  # yields from one exchange to the next

    def receive(self) -> None:
        """Take what the other parts have sent."""
        for copy in self._copies:
            copy.receive()

    def send(self, *, everything: bool = False) -> None:
        """Send changes. everything: also what filters would hold back."""
        for copy in self._copies:
            copy.send(everything=everything)

    def keep(self) -> None:
        """Keep what was held back for the next stage of the unit."""
        for copy in self._copies:
            copy.keep()

    def follow(self, function: Generator[Any, None, Any]) -> Generator[None, None, Any]:
        """Run a function that yields; returns what it returns. At every yield that is due: send, tick, receive."""
        yields = 0
        while True:
            try:
                next(function)
            except StopIteration as stop:
                return stop.value
            yields += 1
            if yields % self._every == 0:
                self.send()
                yield from self.turn()
                self.receive()

    def turn(self) -> Generator[None, None, None]:
        """End the clock; holders apply transactions."""
        if self._transactions is not None:
            yield from self._transactions.run()
            return
        self._worker.tick()
        yield
