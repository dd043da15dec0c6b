"""`stretto resume RUN`: continue a stopped run from its newest checkpoint, with the same bits as without the stop."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stretto.cli.json_output import answer
from stretto.cli.options.running import (
    DashboardOption,
    MemoryOption,
    NodesOption,
    QuietOption,
    RuntimeOption,
    VerboseOption,
    WorkersOption,
)
from stretto.cli.output import say, warn
from stretto.errors import RunError

if TYPE_CHECKING:
    from stretto.observe.events import Event
    from stretto.runtime.files.checkpoint import Checkpoint

EXAMPLES = (
    "Examples:\n\nstretto resume runs/first\n\nstretto resume runs/first --epochs 40\n\n"
    "stretto resume runs/first --file /new/place/ratings.dat"
)


def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run: what --out named.", metavar="RUN")],
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", "-e", help="Train to this many epochs in all.", min=1, show_default="as first asked"),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", help="Where the data are now, if they moved.", show_default="where they were"),
    ] = None,
    workers: WorkersOption = None,
    runtime: RuntimeOption = None,
    nodes: NodesOption = None,
    memory: MemoryOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    dashboard: DashboardOption = False,
) -> None:
    """Continue a run that was stopped, that failed, or that should train longer.

    Uses the newest checkpoint that is whole, with the data and options of the run; the result has the same bits as
    that of a run that was never interrupted, at any number of workers and on any runtime.
    """
    from dataclasses import replace

    from stretto.cli.recipes import runs
    from stretto.cli.recipes.recipe import Recipe
    from stretto.cli.runtime_option import place
    from stretto.observe.record import RunRecord

    view = RunRecord.load(run)
    recipe = Recipe.of(view.config, run)
    reached = int(view.epochs["epoch"].max(initial=0))
    wanted = recipe.epochs if epochs is None else epochs
    complete = view.status in {"done", "early"} and (run / runs.MODEL).is_file()
    ended_itself = view.status == "early" or recipe.converges
    if complete and (reached >= wanted or (ended_itself and epochs is None)):
        ended = "stopped early, as asked" if view.status == "early" else "done"
        where = shlex.quote(str(run))
        answer(
            run=str(run), status="complete", model=str(run / runs.MODEL), epochs=reached, fingerprint=view.fingerprint
        )
        say(f"{run} is complete: {reached} {recipe.step}s, {ended}; use it: {recipe.use(where)}")
        return
    if wanted != recipe.epochs and recipe.epochs_are_planned:
        raise RunError(
            f"{run} was planned for {recipe.epochs} epochs: its steps fall to zero over them, so {wanted} epochs are "
            f"another run from the first step on; train it anew with --epochs {wanted}, or with --schedule constant, "
            f"which can be made longer"
        )
    recipe = replace(
        recipe if wanted == recipe.epochs else recipe.lasting(wanted),
        file=recipe.file if file is None else file,
        memory=recipe.memory if memory is None else memory,
    )
    _update_options(run, epochs=epochs, file=file, memory=memory)
    found = _newest(run)
    if not quiet:
        say(f"{run}: {view.status} after {reached} of {wanted} {recipe.step}s; {_told(found)}")
    level = 0 if quiet else 1 + verbose
    there = place(runtime, workers, nodes)
    resumed = found is not None
    runs.run(
        recipe,
        run,
        workers=workers,
        runtime=there,
        verbose=level,
        resume=resumed,
        anew=not resumed,
        dashboard=dashboard,
    )


def _update_options(run: Path, **changed: Any) -> None:
    """The options that the record keeps, with those of this resumption."""
    from stretto.cli.options_file import OPTIONS, rewritten

    given = {name: value for name, value in changed.items() if value is not None}
    if given and (run / OPTIONS).is_file():
        rewritten(run / OPTIONS, given)


def _newest(run: Path) -> Checkpoint | None:
    """The newest usable checkpoint; None when none was saved. Damaged ones are reported; all damaged is an error."""
    from stretto.observe.events import CheckpointRejected
    from stretto.runtime.files.checkpoint import latest

    folder = run / "checkpoints"
    if not folder.is_dir() or not any(folder.glob("checkpoint-*")):
        return None

    def told(event: Event, /) -> None:
        if isinstance(event, CheckpointRejected):
            warn(f"{event.reason}; the one before it is tried")

    return latest(folder, report=told)


def _told(found: Checkpoint | None) -> str:
    if found is None:
        return "it has no checkpoint, so it begins again, to the same result"
    inside = found.arrays.get("finished")
    more = "" if inside is None else f" and {len(inside)} visits of the next"
    return f"going on from {found.path.name}: {found.meta['epoch']} epochs{more}"
