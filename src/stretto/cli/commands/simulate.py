"""`stretto simulate`: run one job on each of several simulated clusters and compare time and bytes."""

from __future__ import annotations

import csv
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stretto.cli.json_output import answer
from stretto.cli.options.running import QuietOption
from stretto.cli.output import say, table
from stretto.cli.script import import_script
from stretto.errors import DataError, PlanError, RunError
from stretto.text import show_traffic

if TYPE_CHECKING:
    from stretto.tables.jobfile import JobFile
    from stretto.tables.result import TableResult

EXAMPLES = (
    "Examples:\n\nstretto simulate job.toml\n\n"
    "stretto simulate job.toml --sweep link=100Mbit,1Gbit --sweep nodes=8,16,64\n\n"
    "stretto simulate job.toml --sweep sync=bsp,ssp(2) --sweep budget=20Mbit,80Mbit --plot sweep.png --to sweep.csv\n\n"
    "stretto simulate job.toml --sweep staleness=0,1,2,4 --straggler 0=5 --csv histories.csv\n\n"
    "stretto simulate job.toml --crash 2@1.5s+3s --straggler 1=4@2s+500ms --every-seconds 100ms\n\n"
    "stretto simulate job.toml --failures 5h --sweep checkpoint_every=5,20,80\n\n"
    "A job file says what runs where:\n\n"
    'worker = "job.py:worker"\n\nwatch = "job.py:loss"\n\nsync = "ssp(2)"\n\n[cluster]\n\nnodes = 8\n\n'
    "[tables.weights]\n\nrows = 1000"
)
_COMMA = re.compile(r",(?![^(\[]*[)\]])")  # not inside brackets: adagrad(0.1), proximal(0.1, 0.01)
_HEADS = ("clocks", "seconds", "sent", "computing", "objective", "to target")


def simulate(
    job: Annotated[Path, typer.Argument(help="The job, a TOML file.", show_default=False)],
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", "-s", help="NAME=VALUE,VALUE,…: run with each value; several sweeps are combined."),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw objective against time and bytes there.")] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Write the table there as CSV, in plain numbers: seconds, bytes, shares."),
    ] = None,
    histories: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE", help="Write every evaluation of every run there: clock, seconds, bytes, objective."
        ),
    ] = None,
    straggler: Annotated[
        list[str] | None,
        typer.Option(
            "--straggler",
            metavar="NODE=FACTOR[@TIME+SECONDS]",
            help="A node that computes FACTOR times slower, always or for so long.",
        ),
    ] = None,
    crash: Annotated[
        list[str] | None,
        typer.Option("--crash", metavar="NODE@TIME[+BACK]", help="A node that crashes then, and is back BACK later."),
    ] = None,
    failures: Annotated[
        str | None, typer.Option("--failures", metavar="TIME", help="Mean time to failure of a node, such as 5h.")
    ] = None,
    every_seconds: Annotated[
        str | None,
        typer.Option("--every-seconds", metavar="TIME", help="Evaluate that often, in virtual time, not at clocks."),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Run a job with tables on simulated clusters and compare.

    Compared are virtual seconds, bytes, how much of the time was spent computing, and the objective. Values and
    convergence are real, only time is made up; the same file and seed give the same numbers.
    """
    from stretto.tables.jobfile import read_job, with_faults

    asked = read_job(job)
    faults = [f"straggler {text}" for text in straggler or []] + [f"crash {text}" for text in crash or []]
    asked = with_faults(asked, faults, failures, every_seconds)
    sweeps = [_parsed(text) for text in sweep or []]
    names = [name for name, _ in sweeps]
    if len(set(names)) < len(names):
        raise PlanError("a name is swept twice; give all its values at once: --sweep link=100Mbit,1Gbit")
    for path in (plot, to, histories):
        if path is not None and not path.parent.is_dir():  # reported before the runs, not after them
            raise DataError(f"{path}: there is no folder {path.parent}; make it first")
    runs = list(_runs(asked, names, [values for _, values in sweeps], quiet))
    found = [_found(job, result) for _, result, job in runs]
    fails = any(job.simulated.can_fail for _, _, job in runs)
    heads = [*names, *_HEADS, *(["restarts"] if fails else [])]
    facts = ("clocks", "seconds", "sent", "computing", "objective", "to_target", "restarts")
    answer(
        job=str(asked.path),
        runs=[
            {**dict(zip(names, values, strict=True)), **dict(zip(facts, of, strict=True))}
            for (values, _, _), of in zip(runs, found, strict=True)
        ],
        files=[str(path) for path in (plot, to, histories) if path is not None],
    )
    found = [of if fails else of[:-1] for of in found]
    if not quiet:
        shown = [[*values, *_cells(of, job.target)] for (values, _, job), of in zip(runs, found, strict=True)]
        table(f"{asked.path}, simulated", heads, shown, numbers=heads)
    if to is not None:
        _write(to, heads, [[*values, *of] for (values, _, _), of in zip(runs, found, strict=True)])
    if histories is not None:
        looks = [[*values, *look] for values, result, _ in runs for look in map(astuple, result.history)]
        _write(histories, [*names, "clock", "seconds", "bytes", "objective"], looks)
    if plot is not None:
        from stretto.observe.sweeps import draw_sweep

        draw_sweep({_label(names, values): result.history for values, result, _ in runs}, plot)
        if not quiet:
            say(f"drawn in {plot}")


def _write(path: Path, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heads, *rows])


def _parsed(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    listed = [value.strip() for value in _COMMA.split(values) if value.strip()]
    if not equals or not name.strip() or not listed:
        raise PlanError(f"--sweep {text!r}: write NAME=VALUE,VALUE, such as --sweep link=100Mbit,1Gbit")
    return name.strip(), listed


def _runs(
    asked: JobFile, names: Sequence[str], choices: Sequence[Sequence[str]], quiet: bool
) -> Iterator[tuple[tuple[str, ...], TableResult, JobFile]]:
    """(values, result, job) of every combination, with a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    from stretto.tables.jobfile import with_values
    from stretto.tables.run import run

    scripts: dict[Path, dict[str, Any]] = {}

    def find(text: str) -> Any:
        file, _, name = text.partition(":")
        path = asked.path.parent / file
        if path not in scripts:
            scripts[path] = import_script(path)
        if name not in scripts[path]:
            raise PlanError(f"{asked.path}: {path} has no {name!r}; write script.py:function")
        return scripts[path][name]

    combined = list(itertools.product(*choices))
    # Refuse all that can be refused before the first run.
    jobs = [with_values(asked, dict(zip(names, values, strict=True))) for values in combined]
    arguments = [job.arguments(find) for job in jobs]
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        shown = bar.add_task("simulating", total=len(combined))
        for values, job, given in zip(combined, jobs, arguments, strict=True):
            bar.update(shown, description=_label(names, values) or "simulating")
            try:
                result = run(given.pop("worker"), **given)
            except RunError as error:
                raise RunError(f"with {_label(names, values)}: {error}" if values else str(error)) from error
            yield values, result, job
            bar.advance(shown)


def _label(names: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))


def _found(job: JobFile, result: TableResult) -> list[Any]:
    """Clocks, seconds, bytes, share of the time spent computing, objective, seconds to target (or None), restarts."""
    cluster = job.simulated
    possible = result.seconds * cluster.nodes * cluster.threads
    # Work in progress at the end of the run counts as well, hence the upper bound.
    busy = min(1.0, result.items * cluster.seconds_per_item / possible) if possible else 0.0
    target = job.target
    times = [look.seconds for look in result.history if target is not None and look.objective <= target]
    return [
        min(result.clocks, default=0),
        result.seconds,
        sum(pair.nbytes for pair in result.traffic),
        busy,
        result.objective if result.history else None,
        times[0] if times else None,
        len(result.recording.restarts),
    ]


def _cells(found: Sequence[Any], target: float | None) -> list[str]:
    """The same values as text."""
    clocks, seconds, sent, busy, objective, reached, *restarts = found
    missed = "–" if target is None else "not reached"
    return [
        str(clocks),
        f"{seconds:.4g} s",
        show_traffic(sent),
        f"{busy:.0%}",
        "–" if objective is None else f"{objective:.4g}",
        missed if reached is None else f"{reached:.4g} s",
        *map(str, restarts),
    ]
