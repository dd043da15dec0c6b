"""Machine code on disk: one file for each compiled form of a function, named by a hash of its inputs.

The hash covers the function's stamp (its source and all it imports), its options, its argument types, the version of
Python and the processor. So a file is never stale, only missing or damaged. A checksum detects damage; the code is
then compiled and written anew. Two processes that compile the same function write the same file, each atomically.

Files are searched for in two folders: `compiled/` beside the kernels, which a wheel ships (for levels of x86-64), and
the user's cache, which holds what was compiled on this machine.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core import compiler
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from stretto.cached import cached_property
from stretto.paths import cache_root

from . import notice, stamps, targets
from .linking import HelperLibrary, called

_CHECK = hashlib.sha256().digest_size  # a file starts with a hash of the rest
_PYTHON = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"


def folder() -> Path:
    """The folder of kernels compiled on this machine."""
    return cache_root() / "kernels"


def shipped() -> Path:
    """The folder of kernels compiled ahead of time, if this installation has one."""
    return stamps.FOLDER / "compiled"


class Stored:
    """The compiled forms of one function on disk, with the interface of a Numba cache.

    Parameters
    ----------
    fn : function
        The Python function. A closure is not stored.
    stamp : str or None
        A hash of everything that its machine code depends on; None: that of its module.
    options : dict
        Numba's options.
    helper : bool
        Whether it is linked into kernels instead of being called from Python.
    exact : bool
        Whether its results do not depend on the processor, so that code for a level may be used.
    """

    def __init__(
        self, fn: Callable[..., Any], stamp: str | None, options: dict[str, Any], *, helper: bool, exact: bool
    ) -> None:
        self._name = f"{fn.__module__.rpartition('.')[2]}.{fn.__qualname__}"
        self._fn, self._given, self._options = fn, stamp, options
        self._helper, self._exact = helper, exact

    @cached_property
    def _made_from(self) -> str | None:
        """Return the key that all its compiled forms share; None if they cannot be stored."""
        fn = self._fn
        stamp = stamps.stamp(fn.__module__) if self._given is None else self._given
        if stamp is None or fn.__closure__ is not None:
            return None
        options = sorted(self._options.items())
        return repr((stamp, fn.__module__, fn.__qualname__, options, self._helper, _PYTHON, stamps.versions()))

    @property
    def cache_path(self) -> str:
        """The folder that forms are written to."""
        return str(folder())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled form for these types, or None."""
        for path in self._places(sig, target_context.codegen()):
            content = _read(path)
            if content is None:
                continue
            try:
                return (_rebuilt_helper if self._helper else _rebuilt)(target_context, pickle.loads(content))
            except Exception:  # Numba's internals changed: compiling is always correct
                continue
        if not self._helper:
            notice.compiling(self._name)
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Store a compiled form; a failure costs time, not correctness."""
        if self._made_from is None or cres.library.has_dynamic_globals:
            return
        try:
            content = dumps((_reduced_helper if self._helper else _reduced)(cres))
            path = next(self._places(sig, cres.target_context.codegen(), save=True))
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(temporary, path)
        except Exception:
            return

    def flush(self) -> None:
        """Do nothing: Numba calls this before it recompiles, but files on disk are never stale."""

    def _places(self, sig: Any, codegen: Any, *, save: bool = False) -> Iterator[Path]:
        """Return the files in which a form may be, the preferred one first; or the file to save it in."""
        if self._made_from is None:
            return
        types = repr(tuple(sig.args) if hasattr(sig, "args") else tuple(sig))
        if not save and self._exact and shipped().is_dir():
            for level in targets.levels():
                yield shipped() / level / self._file(types, targets.named(level, codegen))
        yield folder() / self._file(types, targets.this(codegen))

    def _file(self, types: str, target: str) -> str:
        digest = hashlib.sha256(f"{self._made_from}\0{types}\0{target}".encode()).hexdigest()
        return f"{self._name.replace('<', '').replace('>', '')}-{digest[:24]}.bin"


def _read(path: Path) -> bytes | None:
    """Return the content of a file; None if it is missing or its checksum is wrong, since the code would be run."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    content = found[_CHECK:]
    return content if hashlib.sha256(content).digest() == found[:_CHECK] else None


def _reduced(cres: Any) -> tuple[Any, ...]:
    library = cres.library
    symbols = [found.name for group in (library._final_module.functions, library._final_module.global_variables)
               for found in group if not found.is_declaration]  # fmt: skip
    return (library.name, library._get_compiled_object(), symbols, *_described(cres), cres.environment,
            tuple(cres._find_referenced_environments()))  # fmt: skip


def _rebuilt(target_context: Any, found: tuple[Any, ...]) -> Any:
    name, machine_code, symbols, fndesc, signature, environment, environments = found
    codegen = target_context.codegen()
    rtsys.initialize(target_context)  # reference counting and allocation; nothing else of Numba is loaded
    library: Any = JITCodeLibrary(codegen, name)
    library.enable_object_caching()
    library._set_compiled_object(machine_code)
    library._finalize_final_module()
    codegen._engine._defined_symbols.update(symbols)
    cfunc = target_context.get_executable(library, fndesc, environment)
    for one in environments:
        codegen.set_env(one.env_name, one)
    return _result(target_context, library, cfunc, fndesc, signature, environment, environments)


def _reduced_helper(cres: Any) -> tuple[Any, ...]:
    library = cres.library
    code = library.own_module().as_bitcode()
    return (library.name, code, [one.origin for one in library.helpers], *_described(cres), cres.environment)


def _rebuilt_helper(target_context: Any, found: tuple[Any, ...]) -> Any:
    from llvmlite import binding

    name, code, origins, fndesc, signature, environment = found
    library: Any = HelperLibrary(target_context.codegen(), name)
    library.helpers = [
        getattr(importlib.import_module(where), what).code_library(types) for where, what, types in origins
    ]
    library._final_module = binding.parse_bitcode(code)
    library._finalized = True
    held = {one.name for helper in library.helpers for one in helper.own_module().functions if not one.is_declaration}
    lacking = called(library._final_module) - held
    if lacking:  # it was written with other forms of its callees
        raise LookupError(f"{name} calls {', '.join(sorted(lacking))}")
    cfunc = target_context.get_executable(library, fndesc, environment)
    return _result(target_context, library, cfunc, fndesc, signature, environment, ())


def _described(cres: Any) -> tuple[Any, Any]:
    cres.fndesc.typemap = cres.fndesc.calltypes = None  # large, and unused from here on
    return cres.fndesc, cres.signature


def _result(
    target_context: Any, library: Any, cfunc: Any, fndesc: Any, signature: Any, environment: Any, environments: Any
) -> Any:
    return compiler.CompileResult(
        target_context=target_context,
        typing_context=target_context.typing_context,
        library=library,
        environment=environment,
        entry_point=cfunc,
        fndesc=fndesc,
        type_annotation="",
        signature=signature,
        objectmode=False,
        lifted=(),
        typing_error=None,
        call_helper=None,
        metadata=None,
        reload_init=(),
        referenced_envs=environments,
    )
