"""`st.epochs`: the epochs of a user's own loop, saved, recorded and resumed.

    run = st.epochs(20, "runs/first", states={"W": W, "H": H, "loss": loss}, every=5)
    for t in run:                                   # 0 … 19, or where the last run stopped
        loss.reset()
        epoch(ratings, W, H, 0.01, 0.05, loss)      # a function with @st.parallel, or without

The folder is that of any run record, with `checkpoints/` inside. A checkpoint holds the states, the number of epochs
done and, of each decorated loop that was called, its plan's settings and the state of its schedule. When a run resumes,
a loop with other settings is refused before it changes anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stretto.checks import of
from stretto.errors import CheckpointError, OtherPlan
from stretto.observe.events import Bus, EpochDone, Listener, PlanMade, ScheduleChosen
from stretto.state.accumulator import Accumulator

from . import loop_calls
from .files.checkpoint import Checkpoint, differing
from .files.run_checkpoints import RunCheckpoints, Saving, warn
from .files.state_arrays import describe, pack, unpack
from .loop_calls import LoopCall
from .reported import recorded

_LOOPS = "loops"


def epochs(
    count: int,
    folder: str | os.PathLike[str],
    states: Mapping[str, Any],
    *,
    every: int | None = None,
    keep: int = 2,
    resume: bool = True,
    config: Mapping[str, Any] | None = None,
    verbose: int = 0,
) -> Epochs:
    """The numbers of the epochs of a run that is saved: 0 … count − 1, less those that an earlier run has done.

    Parameters
    ----------
    count : int
        Epochs in all. It may be raised later, to train longer.
    folder : path
        Of the run record; checkpoints are saved in its folder `checkpoints`.
    states : mapping
        By name, all that changes from epoch to epoch: states, arrays, accumulators, NumPy random generators. A run that
        resumes writes their saved values into them.
    every : int or None, default None
        Epochs between two checkpoints; None follows from how long saving takes. The last epoch is always saved.
    keep : int, default 2
        Newest checkpoints that remain.
    resume : bool, default True
        Whether to go on where the last run in this folder stopped; without it such a folder is refused.
    config : mapping or None, default None
        Your own settings, such as a learning rate: recorded, and refused when a run resumes with other ones.
    verbose : int, default 0
        0 quiet, 1 a progress bar.

    Returns
    -------
    Epochs
        To be used in a `for` loop; its `log(objective, rmse=…)` adds numbers to the record of the present epoch.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, stretto as st
    >>> folder, x = tempfile.mkdtemp(), np.zeros(3)
    >>> for epoch in st.epochs(4, folder, {"x": x}, every=2):
    ...     x += 1.0
    >>> y = np.zeros(3)
    >>> [epoch for epoch in st.epochs(5, folder, {"x": y})], y.tolist()  # one more epoch, from the saved state
    ([4], [4.0, 4.0, 4.0])
    """
    check = of("epochs")
    check.number("count", count, least=0, whole=True)
    check.optional("every", every, least=1, whole=True)
    check.number("keep", keep, least=1, whole=True)
    check.flags(resume=resume)
    check.level(verbose)
    if not isinstance(folder, str | os.PathLike):
        raise check.wrong("folder", "the path of a folder", folder)
    if not isinstance(states, Mapping) or not states:
        raise check.wrong("states", "a mapping of what changes from epoch to epoch, such as {'W': W, 'H': H}", states)
    config = dict(config or {})
    try:
        json.dumps(config)
    except (TypeError, ValueError):
        raise check.wrong("config", "a mapping of names to numbers, text, lists and dicts", config) from None
    saving = Saving(Path(folder) / "checkpoints", every, None, keep)
    return Epochs(int(count), Path(folder), dict(states), config, saving, bool(resume), int(verbose))


class Epochs:
    """A run of a user's own loop; made by `st.epochs`."""

    def __init__(
        self,
        count: int,
        folder: Path,
        states: dict[str, Any],
        config: dict[str, Any],
        saving: Saving,
        resume: bool,
        verbose: int,
    ) -> None:
        self.count, self.folder = count, folder
        self._states, self._config, self._saving = states, config, saving
        self._resume, self._verbose = resume, verbose
        self._settings = {**describe(states), **{f"config {name}": value for name, value in config.items()}}
        self._loops = _Loops()
        self._logged: dict[str, float] = {}

    def log(self, objective: float | None = None, /, **metrics: float) -> None:
        """Record numbers of the present epoch. Without an objective, the only accumulator of one number is it."""
        given = metrics if objective is None else {"objective": objective, **metrics}
        self._logged |= {name: float(value) for name, value in given.items()}

    def __iter__(self) -> Iterator[int]:
        text = json.dumps(self._settings, sort_keys=True)
        fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
        with self._listen() as tell:
            run = RunCheckpoints(self._saving, fingerprint, self._settings, tell=tell)
            done = self._restore(run.latest()) if self._resume and run.any_saved() else 0
            config = {"epochs": self.count, **self._config}
            with run.writing(), recorded(tell, config, done) as ending, self._loops.watched(tell):
                if done >= self.count:
                    ending.status = "done"
                    return
                try:
                    yield from self._run(run, tell, done)
                except GeneratorExit:
                    ending.status, ending.message = "stopped", "the loop was left before its last epoch"
                    raise
                ending.status = "done"

    def _run(self, run: RunCheckpoints, tell: Listener, done: int) -> Iterator[int]:
        for epoch in range(done, self.count):
            self._logged, self._loops.items = {}, 0
            began = time.perf_counter()
            yield epoch
            seconds = time.perf_counter() - began
            numbers = self._numbers()
            objective = numbers.pop("objective", float("nan"))
            tell(EpochDone(time.time(), epoch + 1, self.count, seconds, self._loops.items, objective, numbers))
            if epoch + 1 == self.count or run.due(epoch + 1):
                arrays = {f"state/{name}": array for name, array in pack(self._states).items()}
                arrays |= {f"schedule/{name}": array for name, array in self._loops.schedules().items()}
                meta = {"step": epoch + 1, "epoch": epoch + 1, _LOOPS: self._loops.saved()}
                run.save(arrays, meta, epoch + 1)

    def _restore(self, found: Checkpoint) -> int:
        """Write a checkpoint into the states; return the finished epochs."""
        if _LOOPS not in found.meta:
            raise CheckpointError(f"{found.path} is not of st.epochs; name another folder")
        unpack(self._states, _inside(found.arrays, "state"))
        self._loops.restore(found.meta[_LOOPS], _inside(found.arrays, "schedule"), found.path)
        return int(found.meta["epoch"])

    def _numbers(self) -> dict[str, float]:
        """Numbers of the current epoch: accumulators of one number, and what was logged."""
        folded = {
            name: float(value.array)
            for name, value in self._states.items()
            if isinstance(value, Accumulator) and not value.shape
        }
        if len(folded) == 1:
            folded["objective"] = next(iter(folded.values()))
        return folded | self._logged

    def _listen(self) -> Bus:
        from stretto.observe.record import RunRecord

        listeners: list[Listener] = [RunRecord(self.folder, exist_ok=self._resume)]
        if self._verbose:
            from stretto.observe.progress import Progress

            listeners.append(Progress(verbose=self._verbose, unit="iterations"))
        else:
            listeners.append(warn)
        return Bus(*listeners)


class _Loops:
    """The decorated loops that a run calls.

    Parameters
    ----------
    items : int
        Iterations of their calls in the current epoch.
    """

    def __init__(self) -> None:
        self.items = 0
        self._tell: Listener = warn
        self._plans: dict[str, dict[str, Any]] = {}  # by name of the loop: "settings", and whether its data "vary"
        self._data: dict[str, tuple[int, ...]] = {}  # identities of the data that the settings describe
        self._sizes: dict[str, int] = {}  # iterations of a call
        self._last: dict[str, LoopCall] = {}  # the last call of each loop with a schedule
        self._then: dict[str, dict[str, Any]] = {}  # the plans of the checkpoint
        self._schedules: dict[str, loop_calls.Arrays] = {}  # to be restored
        self._path = Path()

    def restore(self, plans: Mapping[str, Any], schedules: loop_calls.Arrays, path: Path) -> None:
        """Expect the loops of a checkpoint."""
        self._then, self._path = dict(plans), path
        for name in self._then:
            self._schedules[name] = _inside(schedules, name)

    def watched(self, tell: Listener) -> _Watching:
        """A context in which calls of loops are observed."""
        self._tell = tell
        return _Watching(self._called)

    def saved(self) -> dict[str, Any]:
        """For a checkpoint: the plans of this run, and of an earlier run's loops that were not called again."""
        return {**self._then, **self._plans}

    def schedules(self) -> loop_calls.Arrays:
        """For a checkpoint: the states of schedules."""
        found: loop_calls.Arrays = {}
        for name, call in self._last.items():
            assert call.schedule is not None
            found |= {f"{name}/{key}": array for key, array in call.schedule().items()}
        return found

    def _called(self, call: LoopCall) -> None:
        """A loop is about to begin."""
        name = call.name
        known = self._plans.get(name)
        if known is None or (not known["vary"] and self._data[name] != call.data):
            made = call.plan()
            now = {key: value for key, value in made.settings.items() if not key.startswith("program")}
            if known is None:
                self._compare(name, now)
                self._tell(PlanMade(made.fingerprint, made.explain()))
                vary = bool(self._then.get(name, {}).get("vary", False))
                self._plans[name] = {"settings": now, "vary": vary}
                self._sizes[name] = int(made.cost.entries)
            elif now != known["settings"]:
                known["vary"] = True
            self._data[name] = call.data
        self.items += self._sizes[name]
        if call.schedule is not None:
            self._last[name] = call
            call.listeners.append(lambda choice: self._chosen(name, choice))
            if (state := self._schedules.pop(name, None)) and call.restore is not None:
                call.restore(state)

    def _chosen(self, name: str, choice: Any) -> None:
        """`schedule="auto"` of a loop made a choice."""
        self._tell(ScheduleChosen(time.time(), name, choice.round, choice.schedule, choice.why))

    def _compare(self, name: str, now: Mapping[str, Any]) -> None:
        """OtherPlan if a loop's settings differ from those of the checkpoint."""
        then = self._then.get(name)
        if then is None:
            return
        # Data that differed from call to call in the earlier run cannot be compared.
        left_out = _OF_DATA if then["vary"] else ()
        theirs, ours = (
            {key: value for key, value in each.items() if not key.startswith(left_out)}
            for each in (then["settings"], now)
        )
        if found := differing(theirs, json.loads(json.dumps(ours))):
            raise OtherPlan(
                f"{self._path} was saved by another plan of loop {name}: {'; '.join(found)}. Resume with what it was "
                "saved with, or start anew in another folder",
                found,
            )


_OF_DATA = "data digest", "grid", "digest of the blocks", "waves", "order"  # settings that follow from the data


class _Watching:
    """A context in which calls of loops in this thread are passed to a watcher."""

    def __init__(self, watcher: loop_calls.Watcher) -> None:
        self._watcher = watcher
        self._before: loop_calls.Watcher | None = None

    def __enter__(self) -> None:
        self._before = loop_calls.watcher.get()
        loop_calls.watcher.set(self._watcher)

    def __exit__(self, *error: object) -> None:
        loop_calls.watcher.set(self._before)


def _inside(arrays: Mapping[str, np.ndarray[Any, Any]], name: str) -> loop_calls.Arrays:
    """The arrays named name/…"""
    return {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
