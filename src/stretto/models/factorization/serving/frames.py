"""Lists of recommendations as a data frame: one line for each item, in the ids of the data."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import wrong
from stretto.errors import PlanError

_LIBRARIES = {"pandas": "pandas", "polars": "polars", "arrow": "pyarrow"}


def frame_kind(as_frame: Any, *given: Any, owner: str) -> str | None:
    """ "pandas", "polars" or "arrow"; None for arrays.

    Parameters
    ----------
    as_frame : bool or str
        True: the library of what was given, or else the first that is installed.
    given : object
        Arguments of the call.
    owner : str
        The function, for messages.
    """
    if as_frame is False or (isinstance(as_frame, np.bool_) and not as_frame):
        return None
    if isinstance(as_frame, str) and as_frame in _LIBRARIES:
        if not _installed(as_frame):
            library = _LIBRARIES[as_frame]
            raise PlanError(f"{owner}: as_frame={as_frame!r} needs {library}; install it: pip install {library}")
        return as_frame
    if as_frame is not True:
        raise wrong(owner, "as_frame", "True, False, 'pandas', 'polars' or 'arrow'", as_frame)
    for one in given:
        brought = type(one).__module__.partition(".")[0]
        for kind, library in _LIBRARIES.items():
            if brought == library:
                return kind
    for kind in _LIBRARIES:
        if _installed(kind):
            return kind
    raise PlanError(f"{owner}: as_frame=True needs a library of data frames; install one: pip install pandas")


def _installed(kind: str) -> bool:
    try:
        importlib.import_module(_LIBRARIES[kind])
    except ImportError:
        return False
    return True


def make_frame(kind: str, columns: dict[str, Any]) -> Any:
    """A frame of columns of one length."""
    library = importlib.import_module(_LIBRARIES[kind])
    held = {name: column.tolist() if column.dtype.kind in "OT" else column for name, column in columns.items()}
    return library.table(held) if kind == "arrow" else library.DataFrame(held)


def list_frame(
    kind: str, heads: tuple[str, str], owners: NDArray[Any], found: NDArray[Any], scores: NDArray[np.float32]
) -> Any:
    """A frame of the best items of each owner: owner, item, rank from 1, score. Places without an item are left out.

    Parameters
    ----------
    kind : str
        The library.
    heads : (str, str)
        Names of the first two columns.
    owners : array [m]
        Ids of the users, or of what the items are like.
    found : array [m, n]
        Ids of the items, best first.
    scores : array [m, n]
        Their scores; −inf where there is no item.
    """
    there = np.isfinite(scores)
    m, n = scores.shape
    ranks = np.broadcast_to(np.arange(1, n + 1), (m, n))[there]
    columns = {heads[0]: np.repeat(owners, there.sum(axis=1)), heads[1]: found[there]}
    return make_frame(kind, columns | {"rank": ranks, "score": scores[there]})
