"""Listener that prints a run's epochs where there is no terminal, and collects the numbers of the closing summary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stretto.observe.events import CheckpointSaved, EpochDone, Event, PlanMade, RunEnded, RunStarted, Warned
from stretto.text import plural

from .options_file import OPTIONS, write_options
from .output import metric_name, say, warn


class SummaryListener:
    """A listener that collects the numbers of the closing summary. warnings: print warnings of the run."""

    def __init__(self, warnings: bool = True) -> None:
        self.warnings = warnings
        self.started = False
        self.saved: CheckpointSaved | None = None
        self.last: EpochDone | None = None
        self.status: str | None = None  # how the run ended

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, RunStarted):
            self.started = True
        elif isinstance(event, CheckpointSaved):
            self.saved = event
        elif isinstance(event, EpochDone):
            self.last = event
        elif isinstance(event, RunEnded):
            self.status = event.status
        elif isinstance(event, Warned) and self.warnings:
            warn(event.message)


class OptionsWriter:
    """A listener that writes the options of a run into its folder when the run starts."""

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        self.folder, self.options = folder, options

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, RunStarted):
            write_options(self.folder / OPTIONS, self.options)


class EpochPrinter:
    """A listener that prints one line for each epoch, at once; with verbose ≥ 2 the plan too.

    unit: what an epoch passes over. step: the name of an epoch.
    """

    def __init__(self, verbose: int = 1, unit: str = "ratings", step: str = "epoch") -> None:
        self.verbose, self.unit, self.step = verbose, unit, step

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, PlanMade) and self.verbose > 1:
            say(event.text)
        elif isinstance(event, EpochDone):
            say(epoch_line(event, self.unit, self.step))


def epoch_line(event: EpochDone, unit: str = "ratings", step: str = "epoch") -> str:
    """The line that reports an epoch.

    >>> epoch_line(EpochDone(0.0, 3, 20, 0.5, 1_000_000, 0.71, {"train_rmse": 0.84}))
    'epoch  3/20  objective 0.7100  train RMSE 0.8400  2.0 M ratings/s'

    The objective of a topic model is the negative log-likelihood, which is evaluated at some epochs only: the line
    shows the log-likelihood when it is new.

    >>> epoch_line(EpochDone(0.0, 5, 20, 0.5, 1_000_000, 7.1, {"log_likelihood": -7.1}), "tokens")
    'epoch  5/20  log-likelihood -7.1000  2.0 M tokens/s'
    """
    width = len(str(event.epochs))
    metrics = "".join(f"  {metric_name(key)} {value:.4f}" for key, value in event.metrics.items())
    speed = event.items / max(event.seconds, 1e-9) / 1e6
    where = f"{step} {event.epoch:>{width}}/{event.epochs}"
    objective = "" if unit == "tokens" else f"  objective {event.objective:.4f}"
    return f"{where}{objective}{metrics}  {speed:.1f} M {unit}/s"


def summary(model: Any, last: EpochDone | None, seconds: float, unit: str = "ratings", step: str = "epoch") -> str:
    """The end of a run in two lines."""
    plan = model.plan_
    done = max(model.n_iter_) if hasattr(model.n_iter_, "__len__") else model.n_iter_
    what = (
        f"{done} {plural(step, done)} of {plan.cost.entries:,} {unit}, {seconds:.1f} s in all; plan {plan.fingerprint}"
    )
    lines = [f"trained     {what}"]
    if last is not None:
        found = last.metrics or {"objective": last.objective}
        lines.append("result      " + ", ".join(f"{metric_name(key)} {value:.4f}" for key, value in found.items()))
    return "\n".join(lines)
