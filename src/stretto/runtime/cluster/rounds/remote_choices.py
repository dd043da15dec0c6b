"""The driver's record of rounds that schedulers on nodes choose: requested, received, to repeat after a loss."""

from __future__ import annotations

from dataclasses import dataclass, field

from stretto.schedule.pipeline import StageTask


@dataclass(eq=False)
class RemoteChoices:
    """The driver's record of schedulers on nodes.

    Attributes
    ----------
    schedulers : int
        How many; 0: the driver chooses.
    asked : int
        The last round that was requested.
    requests : dict of int to bytes
        By round: requests since the schedulers' states were saved, which a lost scheduler has to repeat.
    received : set of int
        Rounds of `requests` that have arrived.
    waiting : StageTask or None
        The choice that the pipeline waits for.
    failed : dict of int to Exception
        By round: why it could not be chosen.
    saving : dict of int to int
        By round after which states are being saved: the last round that was requested before.
    """

    schedulers: int
    asked: int = 0
    requests: dict[int, bytes] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    waiting: StageTask | None = None
    failed: dict[int, Exception] = field(default_factory=dict)
    saving: dict[int, int] = field(default_factory=dict)

    def ask(self, request: bytes) -> int:
        """Record a request for the next round; return its number."""
        self.asked += 1
        self.requests[self.asked] = request
        return self.asked

    def ready(self, number: int) -> bool:
        """Whether a round has been chosen."""
        return not self.schedulers or number in self.received or (number <= self.asked and number not in self.requests)

    def check(self, number: int) -> None:
        """Raise the error if a round could not be chosen."""
        if number in self.failed:
            raise self.failed[number]

    def saved(self, number: int) -> bool:
        """The states of all schedulers have arrived. True, and older requests are dropped, if all earlier choices
        arrived too.
        """
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
