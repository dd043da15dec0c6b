"""Errors in the user's code: a RunError with the function, round and part, and the user's own traceback."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NoReturn

from stretto.errors import RunError


def blame(program: str, part: str, where: str, error: BaseException, *, remote: bool = False) -> NoReturn:
    """Raise the RunError of an error in a part of a program.

    Parameters
    ----------
    program, part : str
        The program and its function.
    where : str
        Its round, and its job and part of the data where it has them.
    error : BaseException
        What was raised.
    remote : bool
        Whether it was raised on a node, so that its traceback is in a note.
    """
    own = theirs(error.__traceback__)
    if isinstance(error, RunError) and own is None and not remote:
        raise error  # already an error of ours
    hint = ""
    if part != "aggregate" and isinstance(error, ValueError | TypeError) and "read-only" in str(error):
        hint = f"; `{part}` may not write params: return the result and let `aggregate` write it"
    message = f"{program}: `{part}` failed in {where}: {type(error).__name__}: {error}{hint}"
    raise RunError(message) from (error if own is None else error.with_traceback(own))


def theirs(trace: TracebackType | None) -> TracebackType | None:
    """The frames of a traceback below the last frame of Stretto."""
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("stretto."):
        trace = trace.tb_next
    return trace


def short(value: Any, most: int = 80) -> str:
    """The repr of a value, at most `most` characters."""
    try:
        text = repr(value)
    except Exception:  # a broken repr must not hide the error that is being reported
        text = f"<{type(value).__name__} without a repr>"
    return text if len(text) <= most else f"{text[: most - 1]}…"
