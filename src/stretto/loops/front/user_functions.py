"""User functions that a loop calls: their result type, found by compiling, and a hash of their code and constants."""

from __future__ import annotations

import contextlib
import hashlib
import types
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from stretto.loops.types.typed_tree import BOOL, FLOAT, INT, ScalarType

_NAMES = {"b1": "boolean", "f4": "float32", "f8": "float64", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
          "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64"}  # fmt: skip


def result_kind(target: Any, kinds: Sequence[ScalarType]) -> ScalarType:
    """The kind of the result. It is weak, since the function returns plain Python numbers when called from Python."""
    from numba import types as nb
    from numba.core.errors import NumbaError

    signature = tuple(getattr(nb, _NAMES[kind.dtype]) for kind in kinds)
    digest(target)  # before it is compiled, because compiling fixes its constants
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


# Digests of functions that Numba has compiled: their machine code keeps the constants from the time of compiling.
_FOUND: WeakKeyDictionary[Any, tuple[str, tuple[Any, ...]]] = WeakKeyDictionary()


def digest(target: Any) -> str:
    """A hash of a function's code, of every function of the user's it calls, and of the constants they use.

    The hash is of Python's code object, not of the source, which may have been edited since. Numbers, tuples and arrays
    that a function reads from enclosing scopes or modules are constants of its machine code.
    """
    found = hashlib.sha256()
    met: list[Any] = []
    waiting = [target]
    while waiting:
        function = waiting.pop()
        if any(function is other for other in met):
            continue
        met.append(function)
        text, calls = _described(function)
        found.update(text.encode() + b"\0")
        waiting.extend(calls)
    return found.hexdigest()


def _described(target: Any) -> tuple[str, tuple[Any, ...]]:
    """Code and constants of a function, and the functions it calls; for a compiled one those at its first use."""
    compiled = hasattr(target, "py_func")
    if compiled and target in _FOUND:
        return _FOUND[target]
    plain = target.py_func if compiled else target
    calls: list[Any] = []
    parts = [repr(_code(plain.__code__)), repr(sorted(getattr(target, "targetoptions", {}).items(), key=str))]
    constants = {"defaults": plain.__defaults__, "kwdefaults": plain.__kwdefaults__, **around(plain)}
    parts += [f"{name}={_constant(value, calls)}" for name, value in sorted(constants.items())]
    found = "\0".join(parts), tuple(calls)
    if compiled:
        _FOUND[target] = found
    return found


def around(plain: Any) -> dict[str, Any]:
    """Values that a function and its nested functions read: globals, closure, and attributes of modules."""
    names = names_of(plain.__code__)
    found: dict[str, Any] = {name: plain.__globals__[name] for name in names if name in plain.__globals__}
    for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # no value yet
            found[name] = cell.cell_contents
    modules = [value for value in found.values() if isinstance(value, types.ModuleType)]
    for module in modules:  # grows by their submodules
        attributes = {name: vars(module)[name] for name in names if name in vars(module)}
        found |= {f"{module.__name__}.{name}": value for name, value in attributes.items()}
        modules += [m for m in attributes.values() if isinstance(m, types.ModuleType) and m not in modules]
    return found


def names_of(code: types.CodeType) -> set[str]:
    """Names of globals and attributes that a code object and those inside it use."""
    inside = [names_of(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    return {*code.co_names}.union(*inside)


def _code(code: types.CodeType) -> tuple[Any, ...]:
    """The contents of a code object, without file and lines."""
    consts = [_code(x) if isinstance(x, types.CodeType) else repr(x) for x in code.co_consts]
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_argcount


def _constant(value: Any, calls: list[Any]) -> str:
    if hasattr(value, "py_func") or isinstance(value, types.FunctionType):
        if (value.__module__ or "").partition(".")[0] in ("numpy", "numba"):  # compiled by Numba's own rules
            return f"{value.__module__}.{value.__qualname__}"
        calls.append(value)
        return "function"
    if isinstance(value, tuple | list):
        return f"({', '.join(_constant(part, calls) for part in value)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_constant(part, calls)}' for key, part in value.items())}}}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, bool | int | float | str | np.generic) else ""
