"""Errors that travel from a host to the driver."""

from __future__ import annotations

import pickle
import traceback

from stretto.errors import RunError


def portable(error: BaseException) -> BaseException:
    """The error itself, with where it was raised as a note, if it can be sent and made again; otherwise its words."""
    where = "".join(traceback.format_exception(error))
    again: BaseException
    try:
        again = pickle.loads(pickle.dumps(error))
        if type(again) is not type(error) or str(again) != str(error):
            raise TypeError("it comes out as something else")
    except Exception:
        again = RunError(f"{type(error).__name__}: {error}")
    again.add_note(f"On the host:\n{where}")
    return again
