"""Convert the states of a user's loop (states, arrays, accumulators, random generators) to arrays for a checkpoint.

saved = pack({"W": W, "loss": loss, "draw": np.random.default_rng(0)})
unpack({"W": W, "loss": loss, "draw": draw}, saved)         # in place
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.state.accumulator import Accumulator
from stretto.state.state import SparseRows, State

from .array_file import copy_in
from .state_file import joined, split

Arrays = dict[str, NDArray[Any]]

_SAVED = "biuf"  # kinds of numbers


def describe(states: Mapping[str, Any]) -> dict[str, str]:
    """What each state is, in words; DataError for what cannot be saved."""
    return {name: _described(name, value) for name, value in states.items()}


def pack(states: Mapping[str, Any]) -> Arrays:
    """The states as arrays; not copied unless necessary."""
    found: Arrays = {}
    for name, value in states.items():
        if isinstance(value, np.random.Generator):
            text = json.dumps(_plain(value.bit_generator.state)).encode()
            found[f"{name}/generator"] = np.frombuffer(text, np.uint8)
        elif isinstance(value, SparseRows):
            rows = value.touched
            found[f"{name}/rows"] = rows
            found |= {f"{name}/{key}": array for key, array in split(value.array[rows]).items()}
        else:
            found |= {f"{name}/{key}": array for key, array in split(_array(value)).items()}
    return found


def unpack(states: Mapping[str, Any], saved: Mapping[str, NDArray[Any]]) -> None:
    """Write the arrays of `pack` back into the states."""
    for name, value in states.items():
        mine = {key.removeprefix(f"{name}/"): a for key, a in saved.items() if key.startswith(f"{name}/")}
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = _arrays(json.loads(mine["generator"].tobytes()))
        elif isinstance(value, SparseRows):
            value.array[value.touched] = np.zeros((), value.dtype)
            value.array[mine.pop("rows")] = joined(mine)
        else:
            copy_in(_array(value), joined(mine))


def _array(value: Any) -> NDArray[Any]:
    return value.array if isinstance(value, State | Accumulator) else value


def _described(name: str, value: Any) -> str:
    if not isinstance(name, str) or not name or "/" in name:
        raise DataError(f"epochs: a state cannot be called {name!r}; give names without a slash")
    if isinstance(value, np.random.Generator):
        return f"random generator {type(value.bit_generator).__name__}"
    kind = type(value).__name__
    if not isinstance(value, State | Accumulator | np.ndarray):
        raise DataError(
            f"epochs: states[{name!r}] is a {kind}, which is not saved; give arrays, states, accumulators and NumPy "
            "random generators, and the arrays behind buffers. Numbers that follow from the epoch need not be saved"
        )
    array = _array(value)
    if isinstance(value, np.ndarray):
        if not array.flags.writeable:
            raise DataError(f"epochs: states[{name!r}] is read-only, so that a checkpoint cannot be put back into it")
        kind = "array"
    fields = [array.dtype] if array.dtype.names is None else [array.dtype[field] for field in array.dtype.names]
    if any(field.kind not in _SAVED or field.itemsize > 8 or field.shape for field in fields):
        raise DataError(f"epochs: states[{name!r}] holds {array.dtype}, which is not saved; give integers or floats")
    return f"{kind} {array.dtype} {list(array.shape)}"


def _plain(value: Any) -> Any:
    """The state of a generator as JSON values."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return {"$array": value.tolist(), "dtype": value.dtype.str}
    return value.item() if isinstance(value, np.generic) else value


def _arrays(value: Any) -> Any:
    """The inverse of `_plain`."""
    if isinstance(value, dict) and "$array" in value:
        return np.array(value["$array"], value["dtype"])
    return {key: _arrays(entry) for key, entry in value.items()} if isinstance(value, dict) else value
