"""Printing for commands: plain lines that stay readable in a pipe, and tables."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from .json_output import wanted


def on_terminal() -> bool:
    """Whether output goes to a terminal: progress bars are for terminals, lines for pipes and logs."""
    return sys.stderr.isatty()


def say(text: str) -> None:
    """Print results on stdout; with --json on stderr."""
    typer.echo(text, err=wanted())


def warn(message: str) -> None:
    """Print a warning on stderr."""
    typer.secho("warning: ", fg="yellow", bold=True, err=True, nl=False)
    typer.echo(message, err=True)


def complain(message: str) -> None:
    """Print an error on stderr."""
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(message, err=True)


def program() -> str:
    """How to call this program from the shell it was called from: by its name, or by the path that was typed.

    >>> program()
    'stretto'
    """
    typed = Path(sys.argv[0])
    if typed.name != "stretto":  # python -m stretto, a test
        return "stretto"
    found = shutil.which("stretto")
    return "stretto" if found and Path(found).resolve() == typed.resolve() else shlex.quote(str(typed))


_NAMES = {
    "moved": "tokens moved",
    "log_likelihood": "log-likelihood",
    "held_perplexity": "held-out perplexity",
    "test_ndcg@10": "test NDCG@10",
    "train_r2": "train R²",
    "test_r2": "test R²",
    "train_log_loss": "train log loss",
    "test_log_loss": "test log loss",
}


def metric_name(key: str) -> str:
    """
    >>> metric_name("test_rmse"), metric_name("train_loss"), metric_name("log_likelihood"), metric_name("test_map@20")
    ('test RMSE', 'train loss', 'log-likelihood', 'test map@20')
    """
    if key in _NAMES:
        return _NAMES[key]
    part, _, name = key.partition("_")
    if not name:
        return key
    return f"{part} {name.upper() if name in {'rmse', 'mae'} else name}"


def table(
    title: str | None, heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str] = ()
) -> None:
    """Print a table, under its title if it has one; columns named in `numbers` are set to the right.

    With --json nothing is printed: the document holds what the table would.
    """
    if wanted():
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=None if title is None else Text(title), title_justify="left", title_style="bold")
    for head in heads:
        grid.add_column(head, justify="right" if head in numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    Console(file=sys.stdout).print(grid)
