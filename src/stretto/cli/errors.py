"""Turn exceptions into one message on stderr and an exit code; a traceback only when debugging.

Messages name the options that the user typed (`wording`). Help texts are shown as written: typer would read text in
square brackets as markup and drop it.

Exit codes: 0 success, 1 `info` found problems in a file, 2 wrong usage or an error that Stretto raised on purpose,
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from stretto.errors import StrettoError

from .output import complain, warn
from .wording import as_typed

FAILED, STOPPED = 2, 130
_DEBUG = "STRETTO_DEBUG"
_INSIDE_A_PARAGRAPH = re.compile(r"(?<!\n)\n[ \t]*(?=[^\s])")
_TAG = re.compile(r"(?<!\\)\[(?=[a-zA-Z#/@])")  # rich reads this as the beginning of markup
_state: dict[str, Any] = {"debug": False, "command": None}  # command: the context of the one that runs


def debugging(on: bool | None = None) -> bool:
    """Whether tracebacks are wanted; `on` sets it for this command."""
    if on is not None:
        _state["debug"] = on
    return _state["debug"] or os.environ.get(_DEBUG, "0") not in {"", "0"}


def in_options(message: str, of: tuple[str, ...] = ()) -> str:
    """The message in the options of the command that runs, or of another one, named from the root."""
    context = _state["command"]
    if context is None:
        return message
    path: list[str] = []
    command = context.command
    while context.parent is not None:
        path.insert(0, context.info_name)
        context = context.parent
    if of:
        path, command = list(of), context.command
        for name in of:
            command = command.get_command(context, name)
    return as_typed(message, command, " ".join(path))


def in_python() -> None:
    """Mark that the user's own code runs from here on: its errors keep their Python wording."""
    _state["command"] = None


def _warning_line(message: Warning | str, *_: Any, **__: Any) -> None:
    warn(in_options(str(message)))


def _os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    remedy = {
        FileNotFoundError: "; check the path",
        PermissionError: "; check who may read or write it",
        IsADirectoryError: "; name a file",
    }.get(type(error), "")
    return f"{where}{error.strerror or error}{remedy}"


def _as_written(command: Any) -> None:
    """Keep square brackets in the help of a command and its options, and let paragraphs fill the terminal."""
    if command.help:
        command.help = _INSIDE_A_PARAGRAPH.sub(" ", command.help)
    for thing in (command, *command.params):
        for name in ("help", "epilog"):
            text = getattr(thing, name, None)
            if text:
                setattr(thing, name, _TAG.sub(r"\\[", text))


class Command(TyperCommand):
    """A command that is known while it runs, so that messages can name its options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _as_written(self)

    def invoke(self, ctx: Any) -> Any:
        _state["command"] = ctx
        return super().invoke(ctx)


class CommandGroup(TyperGroup):
    """A group of commands."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _as_written(self)


class RootGroup(CommandGroup):
    """The root of the command tree; every command runs inside its `invoke`, so errors are met here once."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Commands in the order people need them; groups such as `train` would come last otherwise."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: name != "train")

    def invoke(self, ctx: Any) -> Any:
        _state.update(debug=False, command=None)
        with warnings.catch_warnings():
            # Our warnings are for the user at the terminal: one line each, without the source line that raised them.
            for category in (UserWarning, RuntimeWarning):
                warnings.simplefilter("always", category)
            warnings.showwarning = _warning_line
            try:
                return self._guarded(ctx)
            finally:
                _state["command"] = None

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
                complain(in_options(str(error)))
            elif isinstance(error, OSError):
                complain(_os_error(error))
            else:
                complain(
                    in_options(
                        "not enough memory; stream the file with memory=, use less data or a smaller model "
                        "(n_components=), or a machine with more"
                    )
                )
            raise typer.Exit(FAILED) from None
