"""Choosers of the ready schedules: arrays, and compiled code that chooses rounds from them.

The compiled engine of coordinate descent takes `choice` and `table` and chooses without Python. Other callers use
`choose` and `learn`, which run the same code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import Diverged, PlanError

from .checks import whole
from .columns import free_table
from .spec import Chooser, Floats, Ints

Priority = Callable[[Floats], Floats]  # how far each job moved [k] -> how urgent it is [k]
Conflicts = Callable[[Ints, Any], Floats]  # candidates [L], data -> how far each two disturb each other [L, L]

# Arrays that decide later rounds; the others follow from the spec or are only used within a round.
_SAVED = ("place", "order", "holder", "state", "walk", "ends", "fresh")


def named(function: Callable[..., Any]) -> str:
    """A function's name and a digest of its code, for a repr that changes with the function."""
    code = getattr(function, "__code__", None)
    text = repr(function) if code is None else f"{code.co_code!r}{code.co_consts!r}{code.co_names!r}"
    name = getattr(function, "__qualname__", type(function).__name__)
    if getattr(function, "__module__", "").startswith("stretto.schedule."):
        return str(name)
    return f"{name}#{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def check_width(width: int) -> None:
    """Refuse a round without jobs."""
    whole("width", width)
    if width < 1:
        raise PlanError(f"a round has at least one job, got width={width}")


def new_choice(kind: int, size: int, seed: int, width: int, **settings: Any) -> Any:
    """A `Choice` before its first round.

    Parameters
    ----------
    kind : int
        Code of the kind of schedule.
    size : int
        Number of jobs.
    seed : int
        Seed of the draws.
    width : int
        The most jobs of a round.
    **settings
        candidates, schedulers, floor, threshold, moving (number of moving jobs whose pairs are cached), order, bounds.
    """
    from stretto.kernels.rounds import chooser_state as choice
    from stretto.kernels.rounds.choosing import shuffled

    if size < 1:
        raise PlanError("there is nothing to schedule: a program needs at least one parameter")
    queues, most = settings.get("schedulers", 1), settings.get("candidates", 0)
    prioritised, marked = kind == choice.PRIORITISED, kind == choice.DRAWN
    own = -(-size // queues)
    jobs = (queues, own if prioritised else 0)
    room = (queues, 2 * max(width, most) if prioritised else 0)
    plan = np.zeros(choice.PLAN, np.int64)
    plan[:] = (kind, size, width, most, queues, seed)
    leaves = 1 << max(0, own - 1).bit_length() if prioritised else 1
    fresh = np.zeros(jobs, np.int32)
    for q in range(queues if prioritised else 0):
        shuffled(fresh[q, : len(range(q, size, queues))], seed, choice.KEY_WALK, q)
    state = np.zeros((queues, own if prioritised or marked else 0, choice.STATES), np.int32)
    state[:, :, choice.LEAF] = -1
    pairs = -(-min(own, settings.get("moving", 0)) // 64) * 64
    place = np.zeros((queues, choice.PLACES), np.int64)
    place[:, choice.ROOT] = leaves  # one leaf in use: it is its own root
    return choice.Choice(
        plan,
        np.array([settings.get("floor", 0.0), settings.get("threshold", 1.0)]),
        place,
        np.ascontiguousarray(settings.get("order", np.zeros(size if kind == choice.SHUFFLED else 0)), np.int64),
        np.ascontiguousarray(settings.get("bounds", np.zeros(1)), np.int64),
        np.zeros((queues, 2 * leaves)),
        np.zeros((queues, leaves), np.int32),
        state,
        np.zeros(jobs, np.int32),
        np.zeros(jobs, np.int32),
        fresh,
        np.zeros((queues, leaves), np.uint8),
        np.zeros(room, np.int64),
        np.zeros(room, np.int32),
        np.zeros(room),
        np.zeros(room, np.uint8),
        np.zeros((queues, room[1] + jobs[1]), np.int64),
        np.zeros((queues, pairs, pairs // 64), np.uint64),
        np.zeros((queues, pairs, pairs // 64), np.uint64),
        np.zeros((queues, pairs // 64), np.uint64),
    )


class CompiledChooser(Chooser):
    """A chooser in compiled code that ignores how far jobs moved."""

    def __init__(self, choice: Any, table: Any = None) -> None:
        self.choice = choice
        self.table = free_table() if table is None else table
        most = len(choice.bounds) - 1 if len(choice.bounds) > 1 else int(choice.plan[2])
        self._room = np.empty(most, np.int64)

    @property
    def compiled(self) -> bool:
        """Whether compiled code can choose rounds without calling Python."""
        return True

    @property
    def width(self) -> int:
        """The most jobs of a round."""
        return len(self._room)

    @property
    def turn(self) -> int:
        """Which scheduler chooses next."""
        from stretto.kernels.rounds.chooser_state import MADE

        return int(self.choice.place[:, MADE].sum()) % len(self.choice.place)

    def choose(self) -> Ints:
        return self.choose_from(self.turn)

    def choose_from(self, q: int) -> Ints:
        """The next round of scheduler q."""
        from stretto.kernels.rounds.choosing import choose_round

        count = choose_round(self.choice, self.table, q, self._room)
        return self._room[:count].copy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        saved = {name: getattr(self.choice, name).copy() for name in _SAVED}
        saved["priority"] = self.choice.tree[:, self.choice.tree.shape[1] // 2 :].copy()
        return saved

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        from stretto.kernels.numeric.sumtree import add_up

        for name in _SAVED:
            held = getattr(self.choice, name)
            if name not in arrays or arrays[name].shape != held.shape:
                raise PlanError(f"this is the state of another schedule: its {name!r} does not fit")
            held[...] = arrays[name]
        self.choice.tree[:, self.choice.tree.shape[1] // 2 :] = arrays["priority"]
        add_up(self.choice.tree)
        self.choice.sure[...] = 0


class LearningChooser(CompiledChooser):
    """A chooser that uses how far jobs moved.

    Parameters
    ----------
    by, conflicts : callable or None
        Functions of the user's, called from Python with `data`; None: compiled code does it.
    """

    def __init__(
        self, choice: Any, table: Any = None, *, by: Priority | None = None, conflicts: Conflicts | None = None,
        data: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(choice, table)
        self._by, self._conflicts, self._data = by, conflicts, data

    @property
    def compiled(self) -> bool:
        return self._by is None and self._conflicts is None

    def choose_from(self, q: int) -> Ints:
        from stretto.kernels.rounds.chooser_state import COUNT, SORT, WALKING
        from stretto.kernels.rounds.choosing import find_round, keep_round, settle_round, under_way

        if self._conflicts is None:
            return super().choose_from(q)
        choice, queues = self.choice, len(self.choice.place)
        busy = np.empty(choice.state.shape[1], np.int64)
        find_round(choice, q)
        if choice.place[q, SORT] != WALKING:
            before, count = under_way(choice, q, busy), int(choice.place[q, COUNT])
            jobs = np.concatenate([busy[:before], choice.candidates[q, :count]]) * queues + q
            matrix = np.ascontiguousarray(self._conflicts(jobs, self._data), np.float64)
            if matrix.shape != (len(jobs), len(jobs)):
                raise PlanError(
                    f"conflicts(candidates, data) was given {len(jobs)} candidates and must return an array of shape "
                    f"({len(jobs)}, {len(jobs)}), got {matrix.shape}"
                )
            keep_round(choice, q, matrix, before)
        return self._room[: settle_round(choice, q, self._room)].copy()

    def learn(self, jobs: Ints, change: Floats) -> None:
        from stretto.kernels.rounds.choosing import learn_round

        change = np.ascontiguousarray(change, np.float64)
        priority = change * change if self._by is None else np.asarray(self._by(change), np.float64)
        if priority.shape != np.shape(jobs):
            raise PlanError(
                f"by(change) must return one priority for each of {len(jobs)} jobs, got shape {priority.shape}"
            )
        if not np.isfinite(priority).all():
            raise Diverged(
                f"the change of job {int(jobs[~np.isfinite(priority)][0])} gives a priority that is not finite"
            )
        if len(priority) and priority.min() < 0:
            raise PlanError(f"by(change) must return priorities of 0 or more, got {priority.min()}")
        learn_round(self.choice, np.ascontiguousarray(jobs, np.int64), np.ascontiguousarray(priority))
