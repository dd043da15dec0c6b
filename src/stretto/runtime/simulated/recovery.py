"""Checkpoints and crashes, as decisions: what the driver of a run does, without a clock or a network of its own.

    a clock C is set that nobody has reached  →  parts come in: workers at their tick to C, nodes when all their workers
    are there, shards when their clock is C  →  all there: complete, after the time saving takes  →  the next C is set
    a node is lost  →  when that is noticed and the node is back: everybody restarts from the last complete checkpoint,
    in a new incarnation

The state before clock 0 counts as complete from the start. How far apart checkpoints are: so many clocks, or Young's
interval √(2 · T_save · T_fail / nodes) in seconds, turned into clocks by how long they took so far (J. W. Young 1974).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from stretto.errors import RunError

HOPELESS = 100  # restarts in a row that got no further


@dataclass(eq=False)
class Checkpoint:
    """Everything at a clock. seats: what each worker kept; nodes: what each cache kept; shards: the arrays of each."""

    clock: int
    seats: dict[int, Any] = field(default_factory=dict)
    nodes: dict[int, Any] = field(default_factory=dict)
    shards: dict[int, dict[str, NDArray[Any]]] = field(default_factory=dict)

    def nbytes(self) -> int:
        """Of the largest part a node has to save."""
        return max((sum(array.nbytes for array in part.values()) for part in self.shards.values()), default=0)


class Recovery:
    """every: clocks between checkpoints, 0 for none; None: by Young's interval.

    mean_failure : mean time to failure of a node in seconds; without one, saving may take a tenth of the time.
    save : bytes a node saves per second. expected : bytes of its part, before the first one has shown.
    """

    def __init__(
        self,
        nodes: int,
        workers: int,
        *,
        every: int | None = 0,
        mean_failure: float | None = None,
        save: float = math.inf,
        expected: int = 0,
    ) -> None:
        self.nodes, self.workers = nodes, workers
        self.complete = Checkpoint(0)
        self.open: Checkpoint | None = None
        self.incarnation = 0
        self.completed = 0  # checkpoints that became complete
        self.down: dict[int, float] = {}  # node → when it is back and its loss has been noticed
        self._every, self._mean, self._save, self._nbytes = every, mean_failure, save, expected
        self._saving: float | None = None
        self._vain = 0
        self._life_from = (0.0, 0)  # when this incarnation began, and at which clock

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def plan(self, now: float, least: int, most: int) -> int | None:
        """Called when clocks moved on: the clock of a new checkpoint, to be told to all shards at once; or None.

        least, most: of the workers that have not ended.
        """
        if self._every == 0 or self.open is not None or self.down:
            return None
        apart = self._every
        if apart is None:
            since, first = self._life_from
            if least <= first:  # no idea yet how long a clock takes
                return None
            apart = self._young((now - since) / (least - first))
        after = self.complete.clock + apart
        clock = max(after, most + 1) if self._every is None else -(-max(after, most + 1) // apart) * apart
        self.open = Checkpoint(clock)
        self._saving = None
        return clock

    def _young(self, clock_seconds: float) -> int:
        saving = max(self._nbytes / self._save, 1e-6)
        interval = 10 * saving if self._mean is None else math.sqrt(2 * saving * self._mean / self.nodes)
        return max(1, round(interval / max(clock_seconds, 1e-9)))

    def worker_part(self, worker: int, part: Any) -> None:
        """What a worker kept when it reached the open checkpoint's clock, or ended before."""
        if self.open is not None:
            self.open.seats[worker] = part

    def node_part(self, node: int, part: Any) -> None:
        """What a node's cache has to keep, when all its workers had reached the clock."""
        if self.open is not None:
            self.open.nodes[node] = part

    def shard_part(self, shard: int, arrays: dict[str, NDArray[Any]]) -> float | None:
        """A shard's cut. Returned when it was the last part of all: how long saving takes; then call `saved`."""
        if self.open is None:
            return None
        self.open.shards[shard] = arrays
        return self.whole()

    def whole(self) -> float | None:
        """Seconds that saving takes if every part is there and none was asked before."""
        part = self.open
        if part is None or self._saving is not None or self.down:
            return None
        if len(part.shards) < self.nodes or len(part.seats) < self.workers or len(part.nodes) < self.nodes:
            return None
        self._nbytes = part.nbytes()
        self._saving = self._nbytes / self._save
        return self._saving

    def saved(self, checkpoint: Checkpoint) -> bool:
        """Saving has ended: the checkpoint is complete, unless a crash came in between."""
        if checkpoint is not self.open or self._saving is None:
            return False
        self.complete, self.open, self._saving = checkpoint, None, None
        self.completed += 1
        self._vain = 0
        return True

    # -- crashes ----------------------------------------------------------------------------------------------------

    def crashed(self, now: float, node: int, detect: float, back_after: float) -> float:
        """A node is lost. Returned: when everybody may restart, as far as is known now, the checkpoint being read."""
        reading = self.complete.nbytes() / self._save
        self.down[node] = max(self.down.get(node, 0.0), now + max(detect, back_after) + reading)
        self.open, self._saving = None, None  # its part would be missing
        return max(self.down.values())

    def restart(self, now: float) -> Checkpoint | None:
        """Everybody goes back to the checkpoint returned, in a new incarnation; None: a node is not back yet."""
        if not self.down or now < max(self.down.values()):
            return None
        self._vain += 1
        if self._vain > HOPELESS:
            raise RunError(
                f"{HOPELESS} restarts in a row from clock {self.complete.clock} got no further: nodes fail faster than "
                "checkpoints can be taken; take them more often, or make nodes fail less"
            )
        self.down.clear()
        self.incarnation += 1
        self._life_from = (now, self.complete.clock)
        return self.complete
