"""`TransactionCycle`: how the parts of a unit exchange and apply transactions between two of their clocks.

A cycle has two exchanges. In the first, every part sends its transactions to the holders of their rows. Each holder
applies what it received, in the order of the parts and of their calls, adds the changes to the table, and in the second
exchange sends the results back. If no part sent anything, the second is left out. A part that has made all of its
iterations goes on with cycles until all parts have: others may still need its rows.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from stretto.tables.worker import Worker

from .calls import TransactionCalls
from .mailbox import Mailbox
from .messages import decode, encode


class TransactionCycle:
    """The transactions of one part.

    Parameters
    ----------
    worker : Worker
        The part.
    states : sequence of TransactionCalls
        Its states with transactions, in the order of the unit's arguments.
    mailbox : Mailbox
        How it reaches the other parts.
    """

    def __init__(self, worker: Worker, states: Sequence[TransactionCalls], mailbox: Mailbox) -> None:
        self._worker, self._states, self._mailbox = worker, states, mailbox
        for number, state in enumerate(states):
            kept = worker.local.pop(_name(number), None)
            if kept is not None:
                state.returned = [arrays[0] if arrays else None for _, arrays in decode(kept)]

    def run(self, *, ended: bool = False, last: bool = False) -> Generator[None, None, bool]:
        """One cycle; yields after every tick and returns whether all parts have ended.

        ended: this part has made its iterations. last: no stage of the unit follows, so that results of the last cycle
        of all are not sent back.
        """
        parts = range(self._worker.workers)
        messages = [self._encoded([state.outgoing(part) for state in self._states]) for part in parts]
        received, any_sent, all_ended = yield from self._mailbox.exchange(messages, ended)
        if not any_sent:
            for state in self._states:
                state.settle(None)
            return all_ended
        calls = [self._decoded(words) for words in received]
        replies = [state.apply([calls[part][number] for part in parts]) for number, state in enumerate(self._states)]
        if all_ended and last:
            return True
        answers = [self._encoded([reply[part] for reply in replies]) for part in parts]
        returned, _, _ = yield from self._mailbox.exchange(answers, ended)
        results = [self._decoded(words) for words in returned]
        for number, state in enumerate(self._states):
            state.settle([results[part][number] for part in parts])
        return all_ended

    def finish(self, last: bool) -> Generator[None, None, None]:
        """Cycles until all parts have ended. last: no stage of the unit follows."""
        returned: list[list[Any]] | None = None
        while not (yield from self.run(ended=True, last=last)):
            returned = returned or [state.returned for state in self._states]
        if not last:  # what the function finds in its next iteration, which is in another stage
            for number, state in enumerate(self._states):
                values = state.returned if returned is None else returned[number]
                entries = [(0, [] if value is None else [np.asarray(value)]) for value in values]
                self._worker.local[_name(number)] = encode(entries)

    def _encoded(self, by_state: Sequence[Sequence[Any]]) -> Any:
        """One message of the entries of all states: their numbers say which state they belong to."""
        many = len(self._states)
        return encode([(n * many + at, arrays) for at, entries in enumerate(by_state) for n, arrays in entries])

    def _decoded(self, words: Any) -> list[list[tuple[int, list[Any]]]]:
        many = len(self._states)
        found: list[list[tuple[int, list[Any]]]] = [[] for _ in self._states]
        for number, arrays in decode(words):
            found[number % many].append((number // many, arrays))
        return found


def _name(number: int) -> str:
    return f"results of transactions of state {number}"
