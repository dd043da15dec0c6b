"""Check that `update` is deterministic: a sample of updates runs twice, and the bits are compared.

An update that draws from a shared generator, reads a clock or keeps state outside `local` gives other bits on another
number of threads or nodes, and after the loss of a node. The second call gets a copy of the state of its part, so the
check changes nothing. The duration of an update decides only whether it is checked.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

CHEAP = 0.05  # seconds: longer updates are only checked where check_every= asks for it
_REMEDY = (
    "let it depend on its arguments alone: draw random numbers by key (st.uniform(round, job)) and keep what it "
    "remembers in local(part). check_every=0 runs without this check"
)
NOTHING: Any = object()  # stands for the state of a part that has none


class NotRepeatable(Exception):
    """An update returned another result when it was repeated."""


def made_twice(update: Callable[[Any], Any], state: Any, *, always: bool) -> Any:
    """Run an update twice and return its result; raise NotRepeatable if the second call differs.

    Parameters
    ----------
    update : function(state) -> result
    state : any
        State of the part; NOTHING if it has none. The first call writes to it.
    always : bool
        Whether to check updates that take longer than CHEAP.
    """
    before = NOTHING
    if state is not NOTHING:
        try:
            before = pickle.loads(pickle.dumps(state, protocol=5))
        except Exception:  # it is reported where the state is saved
            return update(state)
    began = time.perf_counter()
    result = update(state)
    if not always and time.perf_counter() - began > CHEAP:
        return result
    try:
        second = update(before)
    except Exception as error:
        raise NotRepeatable(
            f"it returned a result, and a second call with the same arguments raised {type(error).__name__}: {error}; "
            + _REMEDY
        ) from error
    for what, one, other in (("results", result, second), ("states of the part", state, before)):
        if not same_bits(one, other):
            raise NotRepeatable(
                f"two calls with the same arguments gave different {what}: {_shown(one)} and {_shown(other)}; {_REMEDY}"
            )
    return result


def same_bits(one: Any, other: Any) -> bool:
    """Whether two values are the same, numbers bit by bit.

    >>> same_bits((1, np.zeros(2)), (1, np.zeros(2))), same_bits(0.0, -0.0), same_bits([float("nan")], [float("nan")])
    (True, False, True)
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        if one.dtype.hasobject:
            return bool(one.shape == other.shape) and same_bits(one.tolist(), other.tolist())
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, float | complex):
        return np.array(one).tobytes() == np.array(other).tobytes()
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_bits, one, other))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same_bits(one[key], other[key]) for key in one)
    if isinstance(one, int | str | bytes):
        return bool(one == other)
    return _same_object(one, other)


def _same_object(one: Any, other: Any) -> bool:
    """Compare objects of other classes: equal, or with equal pickles. Equal if neither can be computed."""
    try:
        if bool(one == other):
            return True
    except Exception:  # arrays inside, or a comparison of the user's that fails
        pass
    try:
        return pickle.dumps(one, protocol=5) == pickle.dumps(other, protocol=5)
    except Exception:
        return True


def _shown(value: Any, most: int = 60) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"
