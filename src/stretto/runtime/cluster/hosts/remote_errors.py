"""Exceptions that travel from a host to the driver, with their traceback as a note."""

from __future__ import annotations

import pickle
import traceback

from stretto.errors import RunError


def portable(error: BaseException) -> BaseException:
    """A copy of the exception with its traceback as a note; a RunError with its text if it cannot be pickled."""
    where = "".join(traceback.format_exception(error))
    again: BaseException
    try:
        again = pickle.loads(pickle.dumps(error))
        if type(again) is not type(error) or str(again) != str(error):
            raise TypeError("the exception changes when it is pickled")
    except Exception:
        again = RunError(f"{type(error).__name__}: {error}")
    again.add_note(f"On the host:\n{where}")
    return again
