"""What a user's own compiled function gives back, found by compiling it for the kinds of its arguments."""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from .typed import BOOL, FLOAT, INT, Kind

_NAMES = {"b1": "boolean", "f4": "float32", "f8": "float64", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
          "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64"}  # fmt: skip


def result_kind(target: Any, kinds: Sequence[Kind]) -> Kind:
    """Plain Python numbers come back, as they do when the function is called from Python: the kind is weak."""
    from numba import types as nb
    from numba.core.errors import NumbaError

    signature = tuple(getattr(nb, _NAMES[kind.dtype]) for kind in kinds)
    try:
        target.compile(signature)
        returns = target.overloads[signature].signature.return_type
    except (NumbaError, KeyError) as problem:
        lines = [line.strip() for line in str(problem).splitlines()]
        said = [line for line in lines if line and not line.startswith("Failed in nopython mode")]
        raise TypeError(said[0] if said else type(problem).__name__) from None
    if returns == nb.boolean:
        return BOOL
    if isinstance(returns, nb.Integer):
        return INT
    if isinstance(returns, nb.Float):
        return FLOAT
    raise TypeError(f"it returns {returns}; a loop can use a number")


def digest(target: Any, seen: set[int] | None = None) -> str:
    """A hash of a function's code, of every function of the user's it calls, and of the constants they use.

    Of the code as Python runs it, not of the source, which may have been edited since. Numbers, tuples and arrays that
    a function reads from around it are constants of its machine code, also those it reaches through a module.
    """
    seen = set() if seen is None else seen
    plain = getattr(target, "py_func", target)
    if id(plain) in seen:
        return ""
    seen.add(id(plain))
    found = hashlib.sha256(repr(_code(plain.__code__)).encode())
    found.update(repr(sorted(getattr(target, "targetoptions", {}).items(), key=str)).encode())
    names = inspect.getclosurevars(plain)
    around = {"defaults": plain.__defaults__, **names.globals, **names.nonlocals}
    for module in [value for value in around.values() if isinstance(value, types.ModuleType)]:
        attributes = {name: getattr(module, name) for name in names.unbound if hasattr(module, name)}
        around |= {f"{module.__name__}.{name}": value for name, value in attributes.items()}
    for name, value in sorted(around.items()):
        found.update(f"{name}={_constant(value, seen)}\0".encode())
    return found.hexdigest()


def _code(code: types.CodeType) -> tuple[Any, ...]:
    """What a code object does, without where it stands."""
    consts = [_code(x) if isinstance(x, types.CodeType) else repr(x) for x in code.co_consts]
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_argcount


def _constant(value: Any, seen: set[int]) -> str:
    if hasattr(value, "py_func") or isinstance(value, types.FunctionType):
        return digest(value, seen)
    if isinstance(value, tuple | list):
        return f"({', '.join(_constant(part, seen) for part in value)})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, bool | int | float | str | np.generic) else ""
