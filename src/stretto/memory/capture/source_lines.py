"""Find the line of the user's code that did something, for error messages."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import types
from collections.abc import Callable
from typing import Any

import torch

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # the folder of stretto.memory
_LIBRARIES = (
    os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,
    _OWN,
    sysconfig.get_paths()["stdlib"] + os.sep,
    "<",
)


def users_line(depth: int = 1) -> str:
    """The line of the user's code that is running, as "file.py:12 (x.add_(1))"; empty if none is."""
    frame: types.FrameType | None = sys._getframe(depth)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return _shown(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return ""


def line_of_error(error: BaseException, *, last: bool = False) -> str:
    """The last line of the user's code in the traceback of an error. last: only if that line itself raised it."""
    found = ""
    traceback = error.__traceback__
    while traceback is not None:
        if is_users(name := traceback.tb_frame.f_code.co_filename):
            found = _shown(name, traceback.tb_lineno)
        elif last:
            found = ""
        traceback = traceback.tb_next
    return found


def line_that_changes(run: Callable[[], Any], changed: Callable[[], bool]) -> str:
    """Run something again, and return the first line of the user's code after which `changed()` is true."""
    found, last = "", ("", 0)

    def follow(frame: Any, event: str, _: Any) -> Any:
        nonlocal found, last
        if found or not is_users(frame.f_code.co_filename):
            return None
        if last[0] and changed():
            found = _shown(*last)
            return None
        last = frame.f_code.co_filename, frame.f_lineno
        return follow

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        run()
    except Exception:  # what went wrong is known to the caller already
        pass
    finally:
        sys.settrace(before)
    return found or (_shown(*last) if last[0] and changed() else "")


def at(line: str) -> str:
    """A line as the end of a sentence: ", at file.py:12"."""
    return f", at {line}" if line else ""


def is_users(filename: str) -> bool:
    """Whether a file is the user's own code."""
    return not filename.startswith(_LIBRARIES) and "site-packages" not in filename


def _shown(filename: str, number: int) -> str:
    source = linecache.getline(filename, number).strip()
    return f"{os.path.basename(filename)}:{number}" + (f" ({source})" if source else "")
