"""Stamps: a hash of everything that the machine code of a module's functions depends on.

That is Numba's version, the module's source, and the source of every kernel module that it imports, directly or
indirectly. So an edit recompiles the functions of the edited module and of the modules that import it, and nothing
else. Only imports at the top level of a module count: `compile` imports the code storage inside a function, because
the storage does not affect the machine code.

    grid.py imports claims, compile, random;  claims.py imports atomics, compile
    stamp("stretto.kernels.factorization.grid") = hash(Numba, grid, claims, compile, random, atomics, …)
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from pathlib import Path

import llvmlite
import numba

PACKAGE = "stretto.kernels"
FOLDER = Path(__file__).parents[1]

# `from .lanes import dot`, `from stretto.kernels.numeric.lanes import dot`, `from . import lanes, vector`, with or
# without parentheses.
_IMPORT = re.compile(r"^from +([\w.]+) +import +(\([^)]*\)|.*)$", re.MULTILINE)


def versions() -> str:
    """Return the compiler and its version; code of another version is never used."""
    return f"numba {numba.__version__}, llvmlite {llvmlite.__version__}"


def imported(source: str, package: str) -> set[str]:
    """Return the kernel modules that a source imports at its top level, relative to `kernels` ("build.linking").

    Parameters
    ----------
    source : str
        Text of a module.
    package : str
        The package of its relative imports, such as "stretto.kernels"; "" if it has none.
    """
    found: set[str] = set()
    for name, what in _IMPORT.findall(source):
        module = _absolute(name, package)
        if module == PACKAGE or module.startswith(f"{PACKAGE}."):
            inside = module[len(PACKAGE) + 1 :]
            names = [word.split(" as ")[0].strip() for word in what.split("#")[0].strip("()").split(",")]
            places = [f"{inside}.{name}".lstrip(".") for name in names]
            found.update(place for place in (inside, *places) if _file(place) is not None)
    return found


def _absolute(name: str, package: str) -> str:
    dots = len(name) - len(name.lstrip("."))
    if dots == 0:
        return name
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - dots + 1], *filter(None, [name[dots:]])])


def _file(module: str) -> Path | None:
    """Return the file of a kernel module, None if the name is not a module; packages contain no code."""
    path = FOLDER.joinpath(*module.split(".")).with_suffix(".py")
    return path if module and path.is_file() else None


@functools.cache
def closure(module: str) -> tuple[str, ...]:
    """Return a kernel module and all that it imports, directly or indirectly; sorted, relative to `kernels`."""
    found = {module}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        package = ".".join([PACKAGE, *name.split(".")[:-1]])
        new = imported(_source(name).decode(), package) - found
        found |= new
        waiting.extend(new)
    return tuple(sorted(found))


@functools.cache
def _source(module: str) -> bytes:
    path = _file(module)
    assert path is not None, module
    return path.read_bytes()


def _digest(modules: tuple[str, ...], *more: bytes) -> str:
    found = hashlib.sha256(versions().encode())
    for name in modules:
        found.update(b"\0" + name.encode() + b"\0" + _source(name))
    for part in more:
        found.update(b"\0" + part)
    return found.hexdigest()


@functools.cache
def stamp(module: str) -> str | None:
    """Return the stamp of an imported module; None if it has no file, as in an interactive session."""
    if module.startswith(f"{PACKAGE}.") and _file(module[len(PACKAGE) + 1 :]) is not None:
        return _digest(closure(module[len(PACKAGE) + 1 :]))
    try:
        source = Path(sys.modules[module].__file__ or "").read_bytes()
    except (KeyError, AttributeError, OSError):
        return None
    return stamp_of(source.decode(errors="replace"))


def stamp_of(source: str) -> str:
    """Return the stamp of a source outside `kernels` that imports from it, such as a generated one."""
    modules = sorted({name for first in imported(source, "") for name in closure(first)})
    return _digest(tuple(modules), source.encode())


@functools.cache
def everything() -> str:
    """Return one stamp for all kernel modules together."""
    paths = [path.relative_to(FOLDER) for path in FOLDER.rglob("*.py") if path.name != "__init__.py"]
    return _digest(tuple(sorted(".".join(path.with_suffix("").parts) for path in paths)))
