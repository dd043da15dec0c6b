"""The driver's record of rounds that schedulers on nodes choose: requested, received, to repeat after a loss."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

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
    received : dict of int to bytes or None
        Rounds of `requests` that have arrived, pickled; None: it could not be chosen.
    waiting : StageTask or None
        The choice that the pipeline waits for.
    failed : dict of int to Exception
        By round: why it could not be chosen.
    saving : dict of int to int
        By round after which states are being saved: the last round that was requested before. Schedulers save their
        states after choosing it, also when they repeat their work after a loss.
    """

    schedulers: int
    asked: int = 0
    requests: dict[int, bytes] = field(default_factory=dict)
    received: dict[int, bytes | None] = field(default_factory=dict)
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

    def complete(self, number: int) -> bool:
        """Whether all rounds have arrived that schedulers chose before they saved their states after a round."""
        return not self.schedulers or all(one in self.received for one in self._before(number))

    def forget(self, number: int) -> None:
        """The states of all schedulers after a round are saved: drop the requests that led to them."""
        if self.schedulers:
            for one in self._before(number):
                del self.requests[one], self.received[one]
            self.saving = {at: last for at, last in self.saving.items() if at > number}

    def _before(self, number: int) -> list[int]:
        return [one for one in self.requests if one <= self.saving[number]]

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def captured(self) -> dict[str, Any]:
        """What a checkpoint holds of a moment of the run: requests, and rounds that have arrived."""
        return {"asked": self.asked, "requests": dict(self.requests), "received": dict(self.received)}

    def chosen(self, number: int) -> bytes:
        """What a checkpoint holds of the states that were saved after a round: the last round that schedulers chose
        before, and those of its predecessors that may have arrived after the rest of the checkpoint was captured.
        """
        late = {one: self.received[one] for one in self._before(number) if one > number}
        return pickle.dumps((self.saving[number], late), protocol=5)

    def restore(self, state: dict[str, Any], chosen: bytes) -> dict[int, bytes]:
        """Continue from `captured` and `chosen`. Returns the rounds that arrived in between."""
        last, late = pickle.loads(chosen)
        self.asked = state["asked"]
        self.requests = {one: request for one, request in state["requests"].items() if one > last}
        self.received = {one: jobs for one, jobs in state["received"].items() if one in self.requests}
        return {one: jobs for one, jobs in late.items() if one not in state["received"]}
