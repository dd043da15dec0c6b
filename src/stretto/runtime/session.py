"""`st.Session`: the run record, checkpoints, listeners and end of a run; and tasks that share a runtime.

model.fit(X, session=Session(record="runs/first", saving=Saving(Path("runs/first/checkpoints"), every_epochs=5)))
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stretto.checks import shown
from stretto.errors import PlanError, RunError
from stretto.observe.events import Bus, Listener

from .files.checkpoint import writing
from .files.run_checkpoints import Saving
from .interrupts import heeding_ctrl_c
from .reported import recorded

if TYPE_CHECKING:
    from stretto.tasks.task_queue import SubmittedTask

    from .blocks.train import JobTrainer, TrainOutcome


@dataclass(frozen=True)
class Session:
    """What surrounds a run of an estimator: its record, its checkpoints, its listeners.

    Parameters
    ----------
    record : str, Path or None, default None
        Folder of the run record; None keeps none.
    saving : Saving or None, default None
        Where and when to save checkpoints; None saves none.
    resume : bool, default False
        Continue from the newest checkpoint.
    verbose : int, default 0
        0 quiet, 1 a progress bar, 2 the plan as well.
    dashboard : bool, default False
        Serve a live page of the record to this machine, and print its link to standard error.
    listeners : sequence of callables, default ()
        Called with every event of the run.
    config : dict, default {}
        Settings to note in the record.
    unit : str, default "ratings"
        What is counted per second.

    Examples
    --------
    >>> from pathlib import Path
    >>> import stretto as st
    >>> folder = Path("runs/first")
    >>> session = st.Session(record=folder, saving=st.Saving(folder / "checkpoints", every_epochs=5))
    >>> session.resume, session.saving.every_epochs
    (False, 5)
    """

    record: str | Path | None = None
    saving: Saving | None = None
    resume: bool = False
    verbose: int = 0
    dashboard: bool = False
    listeners: Sequence[Listener] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "ratings"
    _queues: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)  # of submitted tasks

    def submit(
        self,
        task: Any,
        *,
        after: Sequence[Any] = (),
        priority: float = 0.0,
        runtime: Any = None,
        seed: int = 0,
        name: str | None = None,
        on_stage: Any = None,
        on_event: Any = None,
    ) -> SubmittedTask:
        """Start a task in the background. Stages of independent tasks share the workers.

        Parameters
        ----------
        task : Task
            A unit, or a tree of `st.seq`, `st.loop`, `st.branch` and `st.parallel_units`.
        after : sequence, default ()
            What `submit` returned for tasks that must end first.
        priority : float, default 0.0
            Added to the priority of its stages. A second of waiting adds 1.
        runtime : runtime or None, default None
            Of the first task of a session: where all of them run; None for all cores of this machine.
        seed : int, default 0
            Seed of `worker.random`.
        name : str or None, default None
            Its name; None numbers it.
        on_stage : callable or None, default None
            Called with the StageRecord of every stage that has ended.
        on_event : callable or None, default None
            Called with an event `SettingTuned` for every decision of a loop with sync="adaptive".

        Returns
        -------
        SubmittedTask
            `result()` waits for its end.

        Examples
        --------
        >>> import stretto as st
        >>> def add_one(worker, x):
        ...     x.add([0], [1.0])
        >>> x = st.zeros(1)
        >>> session = st.Session()
        >>> first = session.submit(st.unit(add_one, x), runtime=st.Threads(2))
        >>> second = session.submit(st.unit(add_one, x), after=[first])
        >>> second.result().stopped, x.array.tolist()
        ('done', [2.0])
        """
        from stretto.tasks.task_queue import TaskQueue

        queue = self._queues[0] if self._queues else None
        if queue is None:
            from .chosen import TABLES, chosen
            from .runtimes import Threads

            where = chosen(runtime, owner="submit", give=TABLES, default=Threads(), does="serve", work="tasks")
            queue = TaskQueue(where)
            self._queues.append(queue)
        elif runtime is not None and runtime != queue.runtime:
            raise PlanError(
                f"submit: runtime={shown(runtime)}, but the tasks of this session run on {shown(queue.runtime)}; "
                "leave it out, or make another session"
            )
        return queue.submit(task, after, priority, seed, name, on_stage, on_event)

    def add_node(self) -> int:
        """Start one more node of the cluster that the tasks of this session run on: the next stages may use it.

        Returns
        -------
        int
            Its number.
        """
        return int(self._queue("add_node").add_node())

    def remove_node(self, node: int) -> None:
        """Take a node away when the stages that run on it have ended. What it holds of states goes to the others.

        Parameters
        ----------
        node : int
            Its number.
        """
        self._queue("remove_node").remove_node(node)

    def _queue(self, what: str) -> Any:
        if not self._queues:
            raise PlanError(f"{what}: this session has no cluster yet; submit a task with runtime=st.Cluster(…) first")
        return self._queues[0]

    def close(self) -> None:
        """Wait for all submitted tasks, then free their workers and data."""
        for queue in self._queues:
            queue.close()
        self._queues.clear()

    def listen(self, unit: str = "", step: str = "epoch") -> Bus:
        """All listeners of the session as one: those given, the run record, the progress bar.

        Parameters
        ----------
        unit : str, default ""
            What is counted per second, instead of the session's own unit.
        step : str, default "epoch"
            "epoch" or "round".
        """
        listeners = list(self.listeners)
        if self.record is not None:
            from stretto.observe.record import RunRecord

            listeners.append(RunRecord(self.record, exist_ok=self.resume))
        if self.dashboard:
            self._show()
        if self.verbose:
            from stretto.observe.progress import Progress

            listeners.append(Progress(verbose=self.verbose, unit=unit or self.unit, step=step))
        return Bus(*listeners)

    def _show(self) -> None:
        """Start the live page of the record. A page that cannot be started ends no run."""
        from stretto.observe.page.process import start
        from stretto.observe.record import RunRecord

        kept = [one.folder for one in self.listeners if isinstance(one, RunRecord)]
        if self.record is None and not kept:
            raise PlanError("Session: dashboard=True shows the record of a run; give its folder as record=")
        try:
            page = start([Path(self.record) if self.record is not None else kept[0]])
        except RunError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=3)
            return
        print(f"live page: {page.url}", file=sys.stderr, flush=True)

    def drive(self, trainer: JobTrainer, epochs: int, settings: Mapping[str, Any]) -> TrainOutcome:
        """Run a trainer to its end and report its start and end. A run that the user stops is saved first.

        Parameters
        ----------
        trainer : JobTrainer
            What runs.
        epochs : int
            Epochs to make.
        settings : mapping
            Settings to report with the start.
        """
        if self.resume:
            trainer.restore()
        with writing(None if self.saving is None else self.saving.folder):
            return self._drive(trainer, epochs, settings)

    def _drive(self, trainer: JobTrainer, epochs: int, settings: Mapping[str, Any]) -> TrainOutcome:
        with (
            recorded(trainer.tell, {**settings, **self.config}, trainer.position.epoch) as ending,
            heeding_ctrl_c(trainer.crew) as ctrl_c,
        ):
            outcome = trainer.run(epochs)
            if ctrl_c.heard():  # also when it came too late to stop anything: the caller must see it
                outcome = replace(outcome, status="stopped")
            ending.status = outcome.status
            if outcome.status == "stopped":
                trainer.save()
        return outcome


class Scratch:
    """A temporary folder, removed silently when the object is. A pickled copy of its owner does not have it."""

    def __init__(self, within: Path | None = None) -> None:
        self.name = tempfile.mkdtemp(prefix="stretto-", dir=within)
        self._remove = weakref.finalize(self, _remove, self.name, os.getpid())

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def _remove(folder: str, owner: int) -> None:
    # A forked child inherits the object, but the folder belongs to its parent.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_folder(session: Session | None) -> Scratch:
    """A temporary folder for what does not fit in memory, next to the run record if there is one."""
    within = None if session is None or session.record is None else Path(session.record).parent
    if within is not None:
        within.mkdir(parents=True, exist_ok=True)
    return Scratch(within)
