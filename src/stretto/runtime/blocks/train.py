"""Train a job epoch by epoch: events, checkpoints, early stopping, stopping by the user.

The `Position` of a run is the epoch, the step in it, and the finished visits of that step. A checkpoint holds the
arrays and the position, so a run can be resumed in the middle of an epoch and ends with the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import CheckpointError, Diverged
from stretto.observe.events import EpochDone, Listener, PassDone, PlanMade, Status
from stretto.runtime.files.array_file import copy_in
from stretto.runtime.files.run_checkpoints import RunCheckpoints, Saving
from stretto.schedule.orders.order import Ints

from .crew import Crew
from .epoch_widths import EpochWidths, WidthRule
from .job import EpochReport, Job
from .step import BlockStep


@dataclass
class Position:
    """The progress of a run."""

    epoch: int = 0
    step: int = 0
    finished: Ints | None = None  # visits made of the step it stopped in
    outs: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # results of this epoch's steps
    seconds: float = 0.0
    best: float = float("inf")  # metric, for early stopping
    waited: int = 0  # epochs without improvement
    saves: int = 0  # checkpoints written
    reports: list[EpochReport] = field(default_factory=list)


@dataclass(frozen=True)
class Patience:
    """Early stopping: stop when a metric has not improved for some epochs."""

    epochs: int  # without improvement
    tolerance: float = 0.0  # least improvement
    metric: str | None = None  # None: the objective
    share: float = 0.0  # least improvement relative to the metric
    least: int = 0  # first epochs that do not count
    rises: bool = False  # a larger metric is better


@dataclass(frozen=True)
class TrainOutcome:
    """How a run ended: done, early (a rule was met) or stopped (the user asked)."""

    status: Status
    epochs: int
    reports: list[EpochReport]
    position: Position


def _quiet(event: Any) -> None:
    pass


class JobTrainer:
    """Runs one job on one crew."""

    def __init__(
        self,
        job: Job,
        crew: Crew,
        *,
        tell: Listener = _quiet,
        saving: Saving | None = None,
        patience: Patience | None = None,
        stop_after: Callable[[int, EpochReport], bool] | None = None,
        widths: Callable[[int], WidthRule] | None = None,
    ) -> None:
        self.job, self.crew, self.tell = job, crew, tell
        self.saving, self.patience, self.stop_after = saving, patience, stop_after
        self._rule = widths  # for a number of epochs: how many threads each of them gets; None: all
        self._widths: EpochWidths | None = None
        self.profile = job.plan.logical.profile
        self.position = Position()
        self._restored = False  # whether the position is that of a checkpoint, and no step was run since
        plan = job.plan
        self._checkpoints = None
        if saving is not None:
            self._checkpoints = RunCheckpoints(
                saving, plan.fingerprint, plan.logical.settings, profile=self.profile, tell=tell
            )
        self._next: tuple[int, Sequence[BlockStep]] | None = None  # an epoch, and its steps created in advance

    def restore(self) -> int:
        """Restore the newest usable checkpoint; return the number of finished epochs."""
        if self._checkpoints is None:
            raise CheckpointError("the run cannot be restored: it has no checkpoint folder; give saving=Saving(folder)")
        found = self._checkpoints.latest()
        meta = found.meta
        live = self.job.arrays()
        for name, array in live.items():
            copy_in(array, found.arrays[f"state/{name}"])
        self._restored = True
        outs = {int(n.split("/")[1]): a for n, a in found.arrays.items() if n.startswith("out/")}
        self.position = Position(
            epoch=int(meta["epoch"]),
            step=int(meta["pass"]),
            finished=found.arrays.get("finished"),
            outs=outs,
            seconds=float(meta["seconds"]),
            best=float(meta["best"]),
            waited=int(meta["waited"]),
            saves=found.step,
            reports=[EpochReport(float(r["objective"]), dict(r["metrics"])) for r in meta["history"]],
        )
        return self.position.epoch

    def run(self, epochs: int) -> TrainOutcome:
        """Train until `epochs` epochs are done, counted from the start of the first run."""
        plan = self.job.plan
        if not getattr(self.tell, "is_silent", False):  # the text costs 10 ms: its facts include a simulated epoch
            blocks = np.stack([plan.order.row_block, plan.order.col_block], axis=1)
            self.tell(PlanMade(plan.fingerprint, plan.explain(), self.profile, blocks))
        self._next = None  # the owner of the arrays may have changed them
        at = self.position
        if self._rule is not None:
            self._widths = EpochWidths(self._rule(epochs - at.epoch), self.crew, self.tell)
        status: Status = "done"
        while at.epoch < epochs:
            report = self._epoch(at, epochs)
            if report is None:
                status = "stopped"
                break
            at.reports.append(report)
            if self._enough(at, report):
                status = "early"
                break
            due = self._checkpoints is not None and self._checkpoints.due(at.epoch)
            if at.epoch < epochs and due and not self.crew.told_ahead:
                self.save()
        if self._widths is not None:
            self._widths.close()
        self.crew.gather()
        return TrainOutcome(status, at.epoch, at.reports, at)

    def _epoch(self, at: Position, epochs: int) -> EpochReport | None:
        """Run one epoch, or the rest of it; None when the user stopped it."""
        steps = self._steps(at.epoch)
        for k, out in at.outs.items():
            steps[k].out[:] = out
        if self._restored and at.step < len(steps) and not steps[at.step].kept:
            at.finished = None
        self._restored = False
        stuck, whole = False, at.step == 0 and at.finished is None
        if self._widths is not None:
            self._widths.begin(at.epoch)
        while at.step < len(steps):
            if self.crew.asked and not self.crew.told_ahead:
                return None
            step = steps[at.step]
            # An interval shorter than the workers' wake-up time must not keep them from ever making a visit.
            seconds = None if stuck or self._checkpoints is None else self._checkpoints.seconds_left()
            then = self._following(at, steps, epochs)
            done = self.crew.run(step, self.profile, at.finished, seconds, drain=True, then=then)
            stuck = not len(done.log)
            at.seconds += done.seconds
            log = done.log
            if step.visits is not None:
                log[:, 0] = step.visits[log[:, 0]]
            self.tell(PassDone(time.time(), at.epoch + 1, step.name, done.seconds, step.items, log))
            if done.failed is not None:
                failed = done.failed if step.visits is None else int(step.visits[done.failed])
                raise Diverged(self._divergence(failed, step.name))
            at.outs[at.step] = step.out
            at.finished = done.finished
            if done.interrupted:
                return None
            if done.finished is not None:
                self.save()
                continue
            at.step += 1
        report = self.job.report(at.epoch, steps)
        seconds, at.seconds = at.seconds, 0.0
        if self._widths is not None and whole:
            self._widths.end(seconds)
        at.epoch, at.step, at.finished, at.outs = at.epoch + 1, 0, None, {}
        event = EpochDone(time.time(), at.epoch, epochs, seconds, self.job.items, report.objective, report.metrics)
        self.tell(event)
        return report

    def _following(self, at: Position, steps: Sequence[BlockStep], epochs: int) -> BlockStep | None:
        """The first step of the next epoch, if this step is the last of its epoch and nothing is read between the
        two.
        """
        last = at.step + 1 == len(steps) and at.epoch + 1 < epochs and not self.crew.asked
        looks = self.patience is not None or self.stop_after is not None
        ahead = self.crew.runs_ahead and getattr(self.job, "steps_ahead", False)
        saves = self._checkpoints is not None and self._checkpoints.asked_after(at.epoch + 1)
        if not last or not ahead or looks or saves:
            return None
        if self._next is None or self._next[0] != at.epoch + 1:
            self._next = (at.epoch + 1, self.job.steps(at.epoch + 1))
        return self._next[1][0]

    def _steps(self, epoch: int) -> Sequence[BlockStep]:
        """The steps of an epoch; those created in advance if they exist."""
        made, self._next = self._next, None
        return made[1] if made is not None and made[0] == epoch else self.job.steps(epoch)

    def _enough(self, at: Position, report: EpochReport) -> bool:
        stop = self.stop_after is not None and self.stop_after(at.epoch, report)
        if self.patience is None:
            return stop
        value = report.objective if self.patience.metric is None else report.metrics[self.patience.metric]
        value = -value if self.patience.rises else value
        margin = self.patience.tolerance
        if self.patience.share and math.isfinite(at.best):
            margin += self.patience.share * abs(at.best)
        if value < at.best - margin:
            at.best, at.waited = value, 0
        elif at.epoch > self.patience.least:
            at.waited += 1
        return stop or at.waited >= self.patience.epochs

    def save(self) -> None:
        """Write a checkpoint of the current position. A failing disk is reported, and training goes on."""
        if self._checkpoints is None:
            return
        self.crew.gather()
        at = self.position
        at.saves += 1
        arrays: dict[str, NDArray[Any]] = {f"state/{name}": array for name, array in self.job.arrays().items()}
        arrays |= {f"out/{k}": out for k, out in at.outs.items()}
        if at.finished is not None:
            arrays["finished"] = at.finished
        meta = {
            "step": at.saves,
            "epoch": at.epoch,
            "pass": at.step,
            "seconds": at.seconds,
            "best": at.best,
            "waited": at.waited,
            "history": [{"objective": r.objective, "metrics": r.metrics} for r in at.reports],
        }
        self._checkpoints.save(arrays, meta, at.epoch)

    def _divergence(self, visit: int, name: str) -> str:
        order = self.job.plan.order
        where = f"epoch {self.position.epoch + 1}, pass {name}"
        if visit < len(order):
            where += f", block ({int(order.row_block[visit])}, {int(order.col_block[visit])})"
        kept = "" if self.saving is None else "; the last checkpoint is untouched"
        return (
            f"NaN or infinity in {where}: the step is too large for this data; lower learning_rate or raise reg{kept}"
        )
