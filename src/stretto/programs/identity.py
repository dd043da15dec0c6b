"""Fingerprint of a program: hashes of its functions, data, parameters, schedule, seed, pipeline and parts.

    identity = identity_of(program, pipeline=3, seed=0)
    identity.values             # by name; their hash is the fingerprint of the plan
    identity.saved              # without the values of params, which a checkpoint replaces

Functions count by their compiled code, what they close over and their defaults; the attributes of a program by value.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from functools import partial
from types import CodeType
from typing import Any

import numpy as np

from stretto.data.convert.sparse_structure import is_sparse
from stretto.data.records.digest import digest_of
from stretto.schedule.spec import Schedule
from stretto.state.state import State

from .base import ProgramBase
from .params import arrays_of
from .part_sources import CalledPart, source_of
from .values import ProgramIdentity

_FUNCTIONS = ("update", "aggregate", "merge", "local")
_APART = ("data", "params", "parts", "columns", "schedule", "objective", *_FUNCTIONS)
_DEPTH = 20  # levels of nested values that are hashed


def identity_of(program: ProgramBase, pipeline: int, seed: int) -> ProgramIdentity:
    """The identity of a checked program."""
    arrays = arrays_of(program.name, program.params)
    schedule = program.schedule
    own = {name: value for name, value in sorted(vars(program).items()) if name not in _APART}
    parts = program.parts
    given = type(parts)(map(source_of, parts)) if type(parts) in (list, tuple) else parts
    values: dict[str, Any] = {
        "seed": seed,
        "pipeline": pipeline,
        "schedule": repr(schedule) if isinstance(schedule, Schedule) else digest(schedule),
        "size": program.size,
        "parts": len(parts) if isinstance(parts, list | tuple) else None if parts is None else int(parts),
        **{f"`{name}`": digest(getattr(program, name)) for name in _FUNCTIONS if getattr(program, name) is not None},
        "attributes digest": digest(own),
        "data digest": digest((program.data, program.columns, given)),
        "params": ", ".join(f"{name}: {array.dtype} {list(array.shape)}" for name, array in arrays.items()),
        "params digest": digest(arrays),
    }
    return ProgramIdentity(values)


def digest(value: Any) -> str:
    """A short hash of a value, or of the code of a function.

    >>> digest({"a": 1.5}) == digest({"a": 1.5}), digest(lambda x: x + 1) == digest(lambda x: x + 2)
    (True, False)
    """
    found = hashlib.sha256()
    _feed(found, value, 0)
    return found.hexdigest()[:16]


def _feed(into: Any, value: Any, depth: int) -> None:
    into.update(f"{type(value).__name__} ".encode())
    if depth > _DEPTH:
        return
    if isinstance(value, State):
        value = value.array
    if isinstance(value, CalledPart):
        value = value.function
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        into.update(digest_of(value).encode())
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        into.update(repr(value).encode())
    elif isinstance(value, Mapping):
        for name in value:
            _feed(into, name, depth + 1)
            _feed(into, value[name], depth + 1)
    elif isinstance(value, list | tuple):
        for one in value:
            _feed(into, one, depth + 1)
    elif isinstance(value, CodeType):
        into.update(value.co_code)
        _feed(into, value.co_names, depth + 1)
        _feed(into, value.co_consts, depth + 1)
    elif is_sparse(value):
        into.update(digest_of(value).encode())
    elif (code := _code(value)) is not None:
        _feed(into, code, depth + 1)
        _feed(into, [_cell(cell) for cell in getattr(value, "__closure__", None) or ()], depth + 1)
        _feed(into, getattr(value, "__defaults__", None), depth + 1)
    elif isinstance(value, partial):
        _feed(into, (value.func, value.args, value.keywords), depth + 1)
    elif isinstance(value, Schedule | type):
        into.update(repr(value).encode())
    else:
        _feed_pickled(into, value)


def _code(value: Any) -> CodeType | None:
    """The code of a function, of a method, or of a function compiled by Numba; None for other values."""
    function = getattr(value, "py_func", value)
    found = getattr(getattr(function, "__func__", function), "__code__", None)
    return found if isinstance(found, CodeType) else None


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return None


def _feed_pickled(into: Any, value: Any) -> None:
    """Hash an object of a user's class: its pickle, or its class if it cannot be pickled."""
    try:
        into.update(pickle.dumps(value, protocol=5))
    except Exception:
        into.update(f"{type(value).__module__}.{type(value).__qualname__}".encode())
