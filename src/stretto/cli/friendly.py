"""Errors as people read them: one message on stderr and an exit code, no traceback unless asked for.

Exit codes: 0 all went well, 1 `info` found problems in a file, 2 wrong usage or an error Stretto raised on purpose,
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from stretto.errors import StrettoError

from .show import complain, warn

FAILED, STOPPED = 2, 130
_DEBUG = "STRETTO_DEBUG"
_state = {"debug": False}


def debugging(on: bool | None = None) -> bool:
    """Whether tracebacks are wanted; with `on`, say so for this command."""
    if on is not None:
        _state["debug"] = on
    return _state["debug"] or os.environ.get(_DEBUG, "0") not in {"", "0"}


def _warning_line(message: Warning | str, *_: Any, **__: Any) -> None:
    warn(str(message))


def _os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    remedy = {
        FileNotFoundError: "; check the path",
        PermissionError: "; check who may read or write it",
        IsADirectoryError: "; name a file",
    }.get(type(error), "")
    return f"{where}{error.strerror or error}{remedy}"


class Friendly(TyperGroup):
    """The root of the command tree; every command runs inside its `invoke`, so errors are met here once."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Commands in the order people need them; groups such as `train` would come last otherwise."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: name != "train")

    def invoke(self, ctx: Any) -> Any:
        _state["debug"] = False
        with warnings.catch_warnings():
            # Our warnings are for the user at the terminal: one line each, without the source line that raised them.
            for category in (UserWarning, RuntimeWarning):
                warnings.simplefilter("always", category)
            warnings.showwarning = _warning_line
            return self._guarded(ctx)

    def _guarded(self, ctx: Any) -> Any:
        from stretto.runtime.interrupts import raising_ctrl_c

        try:
            with raising_ctrl_c():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
            raise typer.Exit(STOPPED) from None
        except (StrettoError, OSError, MemoryError) as error:
            # A reader that went away (`stretto … | head`) is no error of ours; typer ends quietly then.
            if debugging() or isinstance(error, BrokenPipeError):
                raise
            if isinstance(error, StrettoError):
                complain(str(error))
            elif isinstance(error, OSError):
                complain(_os_error(error))
            else:
                complain(
                    "not enough memory; stream the file with --memory, use less data or a smaller model (--rank, "
                    "--topics), or a machine with more"
                )
            raise typer.Exit(FAILED) from None
