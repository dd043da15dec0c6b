"""Run a recipe in a run folder: the steps that `train` and `resume` share.

The folder holds the run record, `checkpoints/`, `model.safetensors` and the plan's picture. The runtime saves a run
that Ctrl-C stops; this module prints where it is and how to resume it.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stretto.cli.errors import STOPPED
from stretto.cli.json_output import answer
from stretto.cli.output import complain, metric_name, on_terminal, program, say
from stretto.cli.run_log import EpochPrinter, OptionsWriter, SummaryListener, summary
from stretto.errors import DataError, OtherPlan, RunError, StrettoError
from stretto.observe.events import Listener
from stretto.observe.folder_lock import is_written

from .recipe import Recipe

if TYPE_CHECKING:
    from stretto.runtime.cluster.spec import Cluster
    from stretto.runtime.runtimes import Serial, Threads

MODEL = "model.safetensors"


def new_folder(out: str | None, prefix: str) -> Path:
    """The folder of a new run: the one named, or the next free under `runs/`."""
    if out is None:
        number = 1
        while (Path("runs") / f"{prefix}-{number}").exists():
            number += 1
        return Path("runs") / f"{prefix}-{number}"
    folder = Path(out)
    if folder.is_dir() and not any(folder.iterdir()):
        return folder
    if folder.exists():
        raise RunError(
            f"{folder} exists already; name another folder with --out, remove it, or go on with it: "
            f"{program()} resume {shlex.quote(str(folder))}"
        )
    return folder


def run(
    recipe: Recipe,
    folder: Path,
    *,
    workers: int | None,
    verbose: int,
    runtime: Serial | Threads | Cluster | None = None,
    resume: bool = False,
    anew: bool = False,
    dashboard: bool = False,
    options: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
) -> None:
    """Train by the recipe and write the model to the folder.

    resume : continue from the newest checkpoint.
    anew : an existing run without a checkpoint starts again, in the same folder.
    dashboard : serve a live page of the run.
    options : of the command, to be kept in the folder; None for a run that has them.
    listeners : further ones.
    """
    from stretto.observe.record import RunRecord
    from stretto.runtime.session import Session

    began = time.perf_counter()
    saving = recipe.saving(folder)  # reports a wrong interval before a long read
    data = recipe.data()
    recipe = recipe.settled(data)
    bars = on_terminal()
    if verbose:
        say(f"{recipe.file}: {recipe.size(data)}" + (f", {recipe.test:.0%} held out" if recipe.test else ""))
    model = recipe.model(workers)
    if runtime is not None:
        model.set_params(runtime=runtime)
    watch = SummaryListener(warnings=not (bars and verbose))
    heard: list[Listener] = [watch, *listeners]
    if options is not None:
        heard.append(OptionsWriter(folder, options))
    if anew:
        heard.append(RunRecord(folder, exist_ok=True))
    if verbose and not bars:
        heard.append(EpochPrinter(verbose, recipe.unit, recipe.step))
    session = Session(
        record=None if anew else folder,
        saving=saving,
        resume=resume,
        verbose=verbose if bars else 0,
        dashboard=dashboard,
        listeners=heard,
        config=recipe.config(),
        unit=recipe.unit,
    )
    try:
        recipe.fit(model, data, session)
    except (KeyboardInterrupt, StrettoError) as error:
        if not watch.started and not (resume or anew) and not is_written(folder):
            shutil.rmtree(folder, ignore_errors=True)  # a new folder in which nothing ran: the name stays free
        if isinstance(error, KeyboardInterrupt):
            _stopped(model, folder, watch, draw=recipe.draws)
            _answer(recipe, model, folder, watch, time.perf_counter() - began, "stopped")
            raise typer.Exit(STOPPED) from None
        if isinstance(error, OtherPlan) and resume:
            raise RunError(
                f"{recipe.file} is not what {folder} was trained on: "
                f"{'; '.join(error.differences) or 'its plan differs'}, so no checkpoint fits. "
                f"Bring the data back as they were (--file names another place), or train anew in another folder"
            ) from error
        raise
    keep(model, folder, draw=recipe.draws)
    left = recipe.finish(model, data, folder, quiet=not verbose)
    seconds = time.perf_counter() - began
    scores = recipe.scores(model, data)
    _answer(recipe, model, folder, watch, seconds, watch.status)
    answer(scores=scores)
    if verbose:
        if scores:
            say("scores      " + ", ".join(f"{metric_name(name)} {value:.4f}" for name, value in scores.items()))
        say(summary(model, watch.last, seconds, recipe.unit, recipe.step))
        say(_next_steps(folder, recipe, left))


def model_file(run: Path) -> Path:
    """The model of a run folder; or the file itself, if it is one."""
    if not run.is_dir():
        if run.exists() and not run.is_file():
            raise DataError(f"{run}: is neither a folder nor a file; name the folder of a run, or a model file")
        return run
    if not (run / MODEL).is_file():
        raise DataError(f"{run} holds no {MODEL}: the run did not end; finish it with: stretto resume {run}")
    return run / MODEL


def keep(model: Any, folder: Path, *, draw: bool = True) -> None:
    """Write the model and the plan's picture."""
    model.save(folder / MODEL)
    if not draw:
        return
    for suffix in ("svg", "png"):
        model.plan_.draw(str(folder / f"plan.{suffix}"))


def _answer(
    recipe: Recipe, model: Any, folder: Path, watch: SummaryListener, seconds: float, status: str | None
) -> None:
    """The facts of a run that ended, for --json."""
    last = watch.last
    metrics = {} if last is None else {"objective": last.objective, **last.metrics}
    answer(
        run=str(folder),
        status=status,
        model=str(folder / MODEL) if (folder / MODEL).exists() else None,
        epochs=0 if last is None else last.epoch,
        seconds=seconds,
        fingerprint=getattr(model, "fingerprint_", None),
        held_out=recipe.test,
        metrics=metrics,
        files=sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else [],
    )


def _stopped(model: Any, folder: Path, watch: SummaryListener, *, draw: bool) -> None:
    """The last words of an interrupted run. What was learned so far is kept as a model, if it was handed out."""
    where = shlex.quote(str(folder))
    if not watch.started:
        complain("stopped before training began")
        return
    if watch.saved is None:
        complain(
            f"stopped before anything was saved; begin again, to the same result, with: {program()} resume {where}"
        )
        return
    with contextlib.suppress(StrettoError, OSError, AttributeError):
        keep(model, folder, draw=draw)
    typer.echo(f"stopped; the run is saved after {watch.saved.epoch} epochs, in {watch.saved.path}", err=True)
    typer.echo(f"go on with: {program()} resume {where}", err=True)


def _next_steps(folder: Path, recipe: Recipe, left: list[str]) -> str:
    name, where = program(), shlex.quote(str(folder))
    names = ["run.json", "convergence.svg", "plan.svg", "trace.json for ui.perfetto.dev"]
    files = ", ".join([*left, *(names if recipe.draws else [*names[:2], "plan.txt"])])
    lines = [
        f"run record  {folder}  ({files})",
        f"look        {name} report {where} -o report.html   (or live: {name} dashboard {where})",
        f"next        {name}{recipe.use(where).removeprefix('stretto')}",
    ]
    if not recipe.epochs_are_planned and not recipe.converges:
        lines.append(f"            {name} resume {where} --epochs {2 * recipe.epochs}   (train longer)")
    return "\n".join(lines)
