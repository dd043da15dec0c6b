"""Checkpoints of a program: save everything that decides later rounds, and resume from it.

    params/3/beta       parameters after round 3, in arrays.safetensors
    part/0              the state of a part, pickled
    scheduler/0         the state of a scheduler on a node, pickled
    chosen              of schedulers on nodes: the rounds that they had chosen by then, pickled
    state               the rest, pickled

A checkpoint after round c holds the versions of the parameters that rounds in flight read, the jobs of later rounds
that were already chosen, the state of the schedule, `state.memory`, the states of parts and the history. A resumed run
recomputes the updates of rounds in flight, with the same bits. Schedulers on nodes are ahead of the driver: their
states may follow the choice of a later round, so the checkpoint holds the rounds in between and the requests that the
schedulers have not answered. The state of the user's schedule and parts is pickled:
resume only from folders that you trust.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError, RunError
from stretto.runtime.cluster.rounds.remote_choices import RemoteChoices
from stretto.runtime.tables.job import CheckpointSettings

from .base import ProgramBase
from .choosing import Last, RemoteRoundSource, RoundSource
from .node import unpacked
from .params import Arrays, Versions
from .progress import ProgressReporter
from .values import Look, RoundInFlight, RunOptions

if TYPE_CHECKING:
    from stretto.schedule.pipeline import Pipeline

STATES_EVERY = 16  # rounds between two saves of the states of parts, without checkpoints
_SAFE = "biuf"  # kinds of dtypes that are saved as they are, up to 8 bytes wide

Captured = tuple[dict[str, NDArray[Any]], dict[str, Any]]
Arrived = tuple[Mapping[int, bytes], bytes | None]  # states of parts, and what schedulers on nodes have chosen


class SavedRun(Protocol):
    """What is saved of a run, and how a run continues from it; `engine.ProgramRun` is one."""

    program: ProgramBase
    options: RunOptions
    progress: ProgressReporter
    arrays: Arrays
    versions: Versions
    source: RoundSource
    parts: int
    schedulers: int
    choices: RemoteChoices
    stateful: bool
    history: list[Look]
    ended: int | None
    updates: int
    samples: int
    flights: dict[int, RoundInFlight]
    past: dict[int, Last]
    memory: dict[str, Any]
    choosing: threading.Lock

    @property
    def seconds(self) -> float:
        """Seconds of the run so far."""
        ...

    def local_states(self, number: int) -> dict[int, bytes] | None:
        """The states of parts in this process; None if it has none."""
        ...

    def resumed(self, state: Mapping[str, Any]) -> None:
        """Continue from the part of a checkpoint that is not arrays."""
        ...

    def hold(self, pipeline: Pipeline) -> None:
        """From now on, choose the first round of a segment only after the segment before it has ended."""
        ...


class Saver:
    """Decides when a run is saved, and saves it.

    Attributes
    ----------
    states : (int, dict or None)
        The round after which states of parts were saved last, and the states; None: states are created from the parts.
    """

    def __init__(self, run: SavedRun, keeping: CheckpointSettings | None) -> None:
        self._run, self._keeping = run, keeping
        self.states: tuple[int, Mapping[int, bytes] | None] = (0, None)
        self._every = (keeping.every if keeping is not None else None) or (STATES_EVERY if run.stateful else None)
        self._checkpoints = None if keeping is None else keeping.checkpoints(run.progress.tell)
        self._newest = -1  # the round of the last checkpoint
        self._waiting: dict[int, Captured] = {}  # by round: written when the states of parts have arrived
        self._came: dict[int, Arrived] = {}  # by round: states that arrived before it was aggregated

    @property
    def every(self) -> int | None:
        """Rounds between two saves of the states of parts, for the pipeline of this process; None: never saved."""
        return self._every if self._keeping is not None and self._run.stateful else None

    def at(self, number: int) -> bool:
        """Whether a checkpoint follows this round; known before the round runs."""
        return self._every is not None and (number % self._every == 0 or number == self._run.options.rounds)

    def due(self, number: int) -> bool:
        """Whether a checkpoint is to be saved after this round, which was just aggregated."""
        if self._checkpoints is None:
            return False
        return self.at(number) if self._every is not None else self._checkpoints.due(number)

    def finish(self, number: int) -> None:
        """Save the end of the run, unless it is saved already or updates of later rounds have changed the states."""
        if self._keeping is not None and not self._run.stateful and number and self._newest != number:
            self.save(number)

    def save(self, number: int) -> None:
        """Save a checkpoint after a round."""
        captured = self._capture(number)
        if not self._run.stateful:
            self._write(number, captured, {})
        elif (states := self._run.local_states(number)) is not None:
            self._write(number, captured, states)
        elif number in self._came:
            self._write(number, captured, *self._came.pop(number))
        else:
            self._waiting[number] = captured

    def states_came(self, number: int, states: Mapping[int, bytes], chosen: bytes | None) -> None:
        """Store the states of all parts after a round, from nodes. chosen: see `RemoteChoices.chosen`."""
        self.states = number, states
        if number in self._waiting:
            self._write(number, self._waiting.pop(number), states, chosen)
        elif self._keeping is not None:
            self._came = {number: (states, chosen)}

    def _capture(self, number: int) -> Captured:
        run, depth = self._run, self._run.options.pipeline
        arrays = {}
        for version in range(max(0, number - depth + 1), number + 1):
            for name, array in run.versions.read(version).items():
                safe = array.dtype.kind in _SAFE and array.dtype.itemsize <= 8
                kept = array.copy() if safe else np.frombuffer(array.tobytes(), np.uint8)
                arrays[f"params/{version}/{name}"] = kept
        with run.choosing:
            state = {
                "flights": {t: flight.jobs for t, flight in run.flights.items() if t > number},
                "past": {t: last for t, last in run.past.items() if t <= number},
                "memory": run.memory,
                "schedule": run.source.saved(),
                "choices": run.choices.captured() if run.schedulers else None,
                "history": run.history,
                "counts": (run.updates, run.samples),
                "seconds": run.seconds,
            }
            try:
                packed = pickle.dumps(state, protocol=5)
            except Exception as error:
                raise RunError(
                    f"{run.program.name}: the checkpoint after round {number} cannot be saved: {error}; keep what can "
                    "be pickled in jobs and in state.memory"
                ) from error
        arrays["state"] = np.frombuffer(packed, np.uint8)
        return arrays, {"step": number, "round": number}

    def _write(self, number: int, captured: Captured, states: Mapping[int, bytes], chosen: bytes | None = None) -> None:
        assert self._checkpoints is not None
        arrays, meta = captured
        for part, state in states.items():
            if (key := self._key(part)) is not None:
                arrays[key] = np.frombuffer(state, np.uint8)
        if chosen is not None:
            arrays["chosen"] = np.frombuffer(chosen, np.uint8)
        if self._checkpoints.save(arrays, meta, number):
            self._newest = number

    def _key(self, part: int) -> str | None:
        """The name of a part's state, or of a scheduler's; None: the part has none."""
        parts = self._run.parts
        if part >= parts:
            return f"scheduler/{part - parts}"
        return None if self._run.program.local is None else f"part/{part}"

    # -- resuming ----------------------------------------------------------------------------------------------------

    def resume(self, pipeline: Pipeline) -> None:
        """Continue from the newest checkpoint, if the run was started with resume=True."""
        if self._checkpoints is None or self._keeping is None or not self._keeping.resume:
            return
        run, found = self._run, self._checkpoints.latest()
        number = int(found.meta["round"])
        state = pickle.loads(found.arrays["state"].tobytes())
        _refuse_other_place(run, state.get("choices") is not None)
        versions: dict[int, dict[str, NDArray[Any]]] = {}
        for key, array in found.arrays.items():
            if key.startswith("params/"):
                _, version, name = key.split("/", 2)
                like = run.arrays[name]
                whole = array if array.dtype == like.dtype else np.frombuffer(array.tobytes(), like.dtype)
                versions.setdefault(int(version), {})[name] = whole.reshape(like.shape)
        run.versions.restore(number, versions)
        run.resumed(state)
        if run.stateful:
            keys = [self._key(part) for part in range(run.parts + run.schedulers)]
            saved = (b"" if key is None else found.arrays[key].tobytes() for key in keys)
            self.states = number, dict(enumerate(saved))
        if run.schedulers:
            late = run.choices.restore(state["choices"], found.arrays["chosen"].tobytes())
            assert isinstance(run.source, RemoteRoundSource)
            for later, jobs in late.items():
                run.source.receive(later, pickle.loads(jobs))
        run.hold(pipeline)  # the checkpoint may be in another segment
        pipeline.resume(number, {t: len(flight.results) for t, flight in sorted(run.flights.items()) if flight.jobs})
        if run.ended is not None:
            pipeline.stop(after=run.ended - 1)
        self._newest = number

    def restored(self) -> list[Any] | None:
        """The resumed states of parts, for updates in this process; None: states are created from the parts."""
        states = self.states[1]
        return None if states is None else [unpacked(states[part]) for part in sorted(states)]


def _refuse_other_place(run: SavedRun, on_nodes: bool) -> None:
    """PlanError if the schedulers of a checkpoint ran elsewhere: what they know is stored in another form."""
    if on_nodes != bool(run.schedulers):
        there, here = ("nodes", "driver") if on_nodes else ("driver", "nodes")
        raise PlanError(
            f"run: schedulers_on={here!r}: the checkpoint was saved with schedulers_on={there!r}; resume with "
            f"schedulers_on={there!r}"
        )
