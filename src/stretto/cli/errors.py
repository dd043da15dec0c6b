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

from . import json_output
from .output import complain, warn
from .wording import as_typed

FAILED, STOPPED = 2, 130
_DEBUG = "STRETTO_DEBUG"
_INSIDE_A_PARAGRAPH = re.compile(r"(?<!\n)\n[ \t]*(?=[^\s])")
_TAG = re.compile(r"(?<!\\)\[(?=[a-zA-Z#/@])")  # rich reads this as the beginning of markup
_WRONG_USAGE: Any = typer.BadParameter.__mro__[1]  # its base: unknown options and missing arguments as well
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
    path, command = path_of(context), context.command
    if of:
        context = context.find_root()
        path, command = " ".join(of), context.command
        for name in of:
            command = command.get_command(context, name)
    text = as_typed(message, command, path)
    return text if of else _with_source(text, _state["command"])


def path_of(context: Any) -> str:
    """How the command of a context is called, such as "train mf"."""
    path: list[str] = []
    while context.parent is not None:
        path.insert(0, context.info_name)
        context = context.parent
    return " ".join(path)


def running_command() -> Any:
    """The context of the command that runs; None outside one, and where the user's own code runs."""
    return _state["command"]


def _with_source(message: str, context: Any) -> str:
    """The message, with the file that an option it names was taken from."""
    file, names = context.meta.get("stretto.config", (None, ()))
    given = [
        one.opts[0]
        for one in context.command.params
        if one.name in names
        and context.get_parameter_source(one.name).name == "DEFAULT_MAP"
        and any(re.search(rf"{re.escape(text)}(?![\w-])", message) for text in one.opts if text.startswith("--"))
    ]
    if not given:
        return message
    return f"{message} ({', '.join(given)} {'is' if len(given) == 1 else 'are'} set in {file})"


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

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Note whether --json was typed: errors of other options must know it."""
        typed = args[: args.index("--")] if "--" in args else args
        json_output.begin("--json" in typed)
        self._typed = typed
        return super().parse_args(ctx, args)

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
                found = super().invoke(ctx)
            json_output.close(self._running())
            return found
        except typer.Exit:
            json_output.close(self._running())
            raise
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
            self._failed("KeyboardInterrupt", "stopped", STOPPED)
            raise typer.Exit(STOPPED) from None
        except _WRONG_USAGE as error:  # typer prints it
            file, names = ("", ()) if error.ctx is None else error.ctx.meta.get("stretto.config", ("", ()))
            if getattr(getattr(error, "param", None), "name", None) in names:
                error.message += f" (it is set in {file})"
            self._failed("UsageError", error.format_message(), FAILED)
            raise
        except (StrettoError, OSError, MemoryError) as error:
            # A reader that went away (`stretto … | head`) is no error of ours; typer ends quietly then.
            if debugging() or isinstance(error, BrokenPipeError):
                raise
            if isinstance(error, StrettoError):
                message = in_options(str(error))
            elif isinstance(error, OSError):
                message = _os_error(error)
            else:
                message = in_options(
                    "not enough memory; stream the file with memory=, use less data or a smaller model "
                    "(n_components=), or a machine with more"
                )
            complain(message)
            self._failed(type(error).__name__, message, FAILED)
            raise typer.Exit(FAILED) from None

    def _failed(self, kind: str, message: str, code: int) -> None:
        json_output.close(self._running(), {"kind": kind, "message": message, "exit_code": code})

    def _running(self) -> str:
        """The command that was typed, such as "train mf"; as far as it is one."""
        path: list[str] = []
        group: Any = self
        for word in self._typed:
            group = getattr(group, "commands", {}).get(word)
            if group is None:
                if path:
                    break
                group = self
                continue
            path.append(word)
        return " ".join(path)
