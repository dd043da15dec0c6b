"""Declare an option in a panel of `--help`."""

from __future__ import annotations

from typing import Any

import typer

MODEL, SOLVER, DATA, RUN, TEXT = "The model", "The solver", "The data", "The run", "Documents of text"


def option(*names: str, help: str, panel: str, **more: Any) -> Any:
    """An option of a command. panel: where `--help` shows it."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)
