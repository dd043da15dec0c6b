"""Rounds that schedulers on nodes choose: what was asked, what has come, what a lost scheduler has to choose again."""

from __future__ import annotations

from dataclasses import dataclass, field

from stretto.schedule.pipeline import Task


@dataclass(eq=False)
class RemoteChoices:
    """The driver's view of schedulers.

    Attributes
    ----------
    schedulers : int
        How many; 0: the driver chooses.
    asked : int
        The last round that was asked for.
    requests : dict of int to bytes
        By round: those that a scheduler would have to choose again, since its state was saved before them.
    received : set of int
        Rounds of `requests` that have come.
    waiting : Task or None
        The choice that the pipeline waits for.
    failed : dict of int to Exception
        By round: why it could not be chosen.
    saving : dict of int to int
        By round after which states are being saved: the last round that was asked for before.
    """

    schedulers: int
    asked: int = 0
    requests: dict[int, bytes] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    waiting: Task | None = None
    failed: dict[int, Exception] = field(default_factory=dict)
    saving: dict[int, int] = field(default_factory=dict)

    def ask(self, request: bytes) -> int:
        """The next round is asked for; its number."""
        self.asked += 1
        self.requests[self.asked] = request
        return self.asked

    def ready(self, number: int) -> bool:
        """Whether a round has been chosen."""
        return not self.schedulers or number in self.received or (number <= self.asked and number not in self.requests)

    def check(self, number: int) -> None:
        """Raise why a round could not be chosen."""
        if number in self.failed:
            raise self.failed[number]

    def saved(self, number: int) -> bool:
        """States have come from all schedulers. Whether everything chosen before them has come, too: then drop that."""
        if not self.schedulers:
            return True
        last = self.saving[number]
        before = [one for one in self.requests if one <= last]
        if not self.received.issuperset(before):
            return False
        for one in before:
            del self.requests[one]
            self.received.discard(one)
        return True
