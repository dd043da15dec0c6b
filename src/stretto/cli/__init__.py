"""The `stretto` command line: the commands, their options, and the texts they print.

Commands: `train`, `recommend`, `evaluate`, `topics`, `sweep`, `infer`, `resume`, `runs`, `compare`, `dashboard`,
`report`, `info`, `generate`, `explain`, `simulate`, `tour` and `warmup`.
Importing this package imports typer and nothing else. A command imports what it needs when it runs, so that
`stretto --help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

import stretto

from .commands import (
    evaluate,
    explain,
    files,
    infer,
    recommend,
    resume,
    runs,
    simulate,
    sweep,
    topics,
    tour,
    train,
    warmup,
    watch,
)
from .errors import Command, RootGroup, debugging
from .json_output import with_json

app = typer.Typer(
    name="stretto",
    cls=RootGroup,
    help="Train iterative-convergent models fast, with the same answer at any number of threads.",
    epilog="What it does, in five minutes:\n\nstretto tour\n\n"
    "From a file to recommendations:\n\nstretto train mf ratings.dat --out runs/first\n\n"
    "stretto recommend runs/first --some 3\n\nFrom documents to topics:\n\n"
    "stretto train lda docword.txt.gz --topics 100 --out runs/topics\n\nstretto topics runs/topics",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.add_typer(train.app, name="train")
app.command("recommend", cls=Command, epilog=recommend.EXAMPLES)(with_json(recommend.recommend))
app.command("evaluate", cls=Command, epilog=evaluate.EXAMPLES)(with_json(evaluate.evaluate))
app.command("topics", cls=Command, epilog=topics.EXAMPLES)(with_json(topics.topics))
app.command("sweep", cls=Command, epilog=sweep.EXAMPLES)(with_json(sweep.sweep))
app.command("infer", cls=Command, epilog=infer.EXAMPLES)(with_json(infer.infer))
app.command("resume", cls=Command, epilog=resume.EXAMPLES)(with_json(resume.resume))
app.command("runs", cls=Command, epilog=runs.RUNS_EXAMPLES)(with_json(runs.runs))
app.command("compare", cls=Command, epilog=runs.COMPARE_EXAMPLES)(with_json(runs.compare))
app.command("dashboard", cls=Command, epilog=watch.DASHBOARD_EXAMPLES)(with_json(watch.dashboard))
app.command("report", cls=Command, epilog=watch.REPORT_EXAMPLES)(with_json(watch.report))
app.command("info", cls=Command, epilog=files.INFO_EXAMPLES)(with_json(files.info))
app.command("generate", cls=Command, epilog=files.GENERATE_EXAMPLES)(with_json(files.generate))
app.command("explain", cls=Command, epilog=explain.EXAMPLES)(with_json(explain.explain))
app.command("simulate", cls=Command, epilog=simulate.EXAMPLES)(with_json(simulate.simulate))
app.command("tour", cls=Command, epilog=tour.EXAMPLES)(with_json(tour.tour))
app.command("warmup", cls=Command, epilog=warmup.EXAMPLES)(with_json(warmup.warmup))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"stretto {stretto.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole traceback of an error (also: STRETTO_DEBUG=1).")
    ] = False,
) -> None:
    if debug:
        debugging(True)


def main() -> None:
    """The entry point of the `stretto` command."""
    app()


__all__ = ["app", "main"]
