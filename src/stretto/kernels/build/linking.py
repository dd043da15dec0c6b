"""Compile helpers of kernels to LLVM code once; link them into each kernel and optimise them there.

Numba compiles a called function as if Python would call it too: it writes the wrapper that unpacks Python objects,
optimises the function with everything it calls, and emits machine code that is never run. Only kernels call our
helpers. A `Helper` stops after its LLVM code is written: no wrapper, no optimisation, no machine code. Each kernel is
optimised once, with all its helpers inside. The cost of a chain of helpers is then linear in its length, not quadratic:
the kernels of a Lasso compile in little more than half the time, with the same bits.

A helper has one compiled form for numbers, constant at the call or not, and for arguments that are given or left out.
Constants still reach the optimiser, which sees the whole kernel.

This relies on internals of Numba (0.61 to 0.68, and later versions as far as they keep them): the state of a
compilation accepts an existing library, and a library decides what happens when it is finalised. A *library* is Numba's
word for the LLVM code of one compiled form (`CodeLibrary`, the attribute `library` of a `CompileResult`), no file.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable
from typing import Any

import numba
from llvmlite.binding.newpassmanagers import create_new_module_pass_manager
from numba import types
from numba.core import compiler
from numba.core.codegen import JITCodeLibrary
from numba.core.errors import TypingError
from numba.core.registry import CPUDispatcher

from stretto.cached import cached_property

from .resolved import once


class _WithoutEnvironments:
    """The code generator for a helper's library: a helper is not loaded, so it has no environment to set."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: kernels set the environments of their helpers (`EntryPoint.add_overload`)."""


class HelperLibrary(JITCodeLibrary):  # type: ignore[misc]
    """LLVM code that is linked into kernels and never loaded by itself.

    Attributes
    ----------
    helpers : list of HelperLibrary
        Our helpers that it calls. The kernel links each of them once; this library does not.
    origin : tuple
        Module and name of its function, and its argument types: the key to find it by.
    apart : bool
        Its function is called and never inlined.
    """

    apart = False

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self.helpers: list[HelperLibrary] = []
        self.origin: tuple[str, str, Any] | None = None
        self._whole: Any = None

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironments(self._codegen)

    def add_llvm_module(self, ll_module: Any) -> None:
        """Add a module without optimising it; the kernel optimises it."""
        ll_module.data_layout = self._codegen._data_layout
        if self.apart:
            for function in ll_module.functions:
                if not function.is_declaration:
                    function.add_function_attribute("noinline")
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        """Link the functions of Numba that this helper calls, and nothing more."""
        self._raise_if_finalized()
        self.helpers = _link(self)
        self._drop_unused()
        self._finalize_dynamic_globals()
        self._finalized = True

    def _drop_unused(self) -> None:
        """Drop the addresses of called functions: Python does not use them, and they differ in each process."""
        manager = create_new_module_pass_manager()
        manager.add_sroa_pass()
        manager.add_aggressive_dce_pass()
        manager.add_global_dead_code_eliminate_pass()
        manager.run(self._final_module, self._codegen._pass_builder())

    def own_module(self) -> Any:
        """Return its own code, which can be linked into other modules any number of times."""
        return super()._get_module_for_linking()

    def _get_module_for_linking(self) -> Any:
        """Return its code with all it calls, for functions that are not ours: they link direct callees only."""
        if self._whole is None:
            self._whole = self.own_module().clone()
            for library in reached([self])[1:]:
                self._whole.link_in(library.own_module(), preserve=True)
        return self._whole

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: none of its functions is loaded."""
        self._ensure_finalized()
        return 0


def reached(libraries: list[HelperLibrary]) -> list[HelperLibrary]:
    """Return these libraries and all that they call, directly or indirectly, each once."""
    found = dict.fromkeys(libraries)
    waiting = list(found)
    while waiting:
        new = [library for library in waiting.pop().helpers if library not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)


def _link(library: Any) -> list[HelperLibrary]:
    """Link the libraries of Numba that a library calls into it; return those of ours that it calls."""
    ours: list[HelperLibrary] = []
    for called in dict.fromkeys(library._linking_libraries):
        library._reload_init.update(called._reload_init)
        if isinstance(called, HelperLibrary):
            ours.append(called)
        else:
            library._final_module.link_in(called._get_module_for_linking(), preserve=True)
    return ours


def called(module: Any) -> set[str]:
    """Return the names of compiled functions that a module calls and does not define."""
    return {one.name for one in module.functions if one.is_declaration and one.name.startswith("_ZN")}


class _EntryLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A kernel's code, with each of its helpers linked into it once."""

    def finalize(self) -> None:
        """Link, optimise and load."""
        for library in reached(_link(self)):
            self._final_module.link_in(library.own_module(), preserve=True)
        lacking = sorted(called(self._final_module))
        if lacking:  # if loaded, it and all code loaded after it would call address 0
            raise RuntimeError(
                f"kernel {self.name}: its code lacks {', '.join(lacking)}; stored code does not fit together, which is "
                "an error in stretto: set STRETTO_CACHE to an empty folder to compile everything again, and report it"
            )
        self._linking_libraries: list[Any] = []
        super().finalize()


class _ApartLibrary(HelperLibrary):
    apart = True


def _compiler(library: Any) -> Any:
    """Return Numba's compiler with libraries of this class."""

    class Compiler(compiler.Compiler):  # type: ignore[misc]
        def define_pipelines(self) -> Any:
            """Set the symbol number and the library, before code is generated."""
            function = self.state.func_id
            number = symbol_number(function.func)
            if number is not None:
                function.unique_id = number
            self.state.library = library(self.state.targetctx.codegen(), function.func_qualname)
            self.state.library.enable_object_caching()
            pipelines = super().define_pipelines()
            if not self.state.flags.nrt:
                for pipeline in pipelines:
                    _shorten(pipeline)
            return pipelines

    return Compiler


# Numba's passes for features that our own kernels do not use: `with` blocks, nested functions, `literally` and
# `literal_unroll`, arithmetic on whole arrays, `raise` with values. Users' loops use them; their kernels may allocate.
_LEFT_OUT = {
    "WithLifting",
    "InlineClosureLikes",
    "MakeFunctionToJitFunction",
    "InlineInlinables",
    "FindLiterallyCalls",
    "LiteralUnroll",
    "LiteralPropagationSubPipelinePass",
    "InlineOverloads",
    "NopythonRewrites",
    "RewriteDynamicRaises",
}


def _shorten(pipeline: Any) -> None:
    """Remove those passes: each would read the whole function and change nothing."""
    pipeline.passes = [(each, reason) for each, reason in pipeline.passes if each.__name__ not in _LEFT_OUT]
    pipeline.finalize()


def symbol_number(fn: Callable[..., Any]) -> int | None:
    """Return the number that makes a function's symbols unique; None: Numba chooses it.

    Numba counts the functions of a process. Then a helper stored by one process and a kernel stored by another would
    not agree on the helper's name. This number is a hash of everything that the function depends on instead.
    """
    from .stamps import stamp  # local import: symbol names must not be part of the stamp

    found, code = stamp(fn.__module__), fn.__code__
    inside = any(hasattr(const, "co_code") for const in code.co_consts)  # nested functions have no fixed name
    if found is None or fn.__closure__ is not None or inside:
        return None
    what = (found, fn.__module__, fn.__qualname__, code.co_code, code.co_consts, code.co_names)
    return int(hashlib.sha256(repr(what).encode()).hexdigest()[:12], 16)


_ENTRY, _HELPER, _APART = map(_compiler, (_EntryLibrary, HelperLibrary, _ApartLibrary))


class Helper(CPUDispatcher):  # type: ignore[misc]
    """Dispatcher of a function that only kernels call."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the compiled form for these types; the same for constant, omitted and ordinary numbers."""
        _, folded = self._compiler.fold_argument_types(args, kws)
        general = tuple(_general(arg) for arg in folded)
        try:
            return super().get_call_template(general, {})
        except TypingError:  # an index of a tuple, for example, must be a constant
            if general == tuple(folded):
                raise
            return super().get_call_template(args, kws)

    def add_overload(self, cres: Any) -> None:
        """Add a compiled form, which can be found by its origin."""
        cres.library.origin = self.py_func.__module__, self.py_func.__qualname__, tuple(cres.signature.args)
        super().add_overload(cres)

    def code_library(self, types: Any) -> HelperLibrary:
        """Return the LLVM code of the form for these types, compiled if it is not yet."""
        self.compile(types)
        return self.overloads[types].library  # type: ignore[no-any-return]

    def __call__(self, *args: Any) -> Any:
        """Call it from Python, as tests do: compiles a separate form with a wrapper."""
        return self._from_python(*args)

    @cached_property
    def _from_python(self) -> Any:
        left_out = {"no_cpython_wrapper", "no_cfunc_wrapper"}
        options = {name: value for name, value in self.targetoptions.items() if name not in left_out}
        return CPUDispatcher(py_func=self.py_func, targetoptions=options)


class EntryPoint(CPUDispatcher):  # type: ignore[misc]
    """Dispatcher of a function that Python calls and no other kernel does."""

    def compile(self, sig: Any) -> Any:
        """Compile with the garbage collector disabled: it would take a tenth of the time and free nothing."""
        on = gc.isenabled()
        gc.disable()
        try:
            with once():
                return super().compile(sig)
        finally:
            if on:
                gc.enable()

    def add_overload(self, cres: Any) -> None:
        """Add a compiled form, and register the environments of the helpers linked into it."""
        if cres.library is not None and cres.referenced_envs is None:
            for environment in cres._find_referenced_environments():
                cres.library.codegen.set_env(environment.env_name, environment)
        super().add_overload(cres)


def _general(ty: Any) -> Any:
    """Return the type of a number without its literal value."""
    if isinstance(ty, types.Omitted) and isinstance(ty.value, bool | int | float):
        return numba.typeof(ty.value)
    if isinstance(ty, types.IntegerLiteral | types.BooleanLiteral):
        return types.unliteral(ty)
    return ty


def helper(fn: Callable[..., Any], options: dict[str, Any], *, apart: bool = False) -> Any:
    """Create the dispatcher of a helper with these Numba options.

    All options are given explicitly: Numba takes an omitted option from the first function that calls the helper, and
    puts it into the names of the helper's symbols.
    """
    options = {"forceinline": False, **options, "nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return (
        fn
        if numba.config.DISABLE_JIT
        else Helper(fn, targetoptions=options, pipeline_class=_APART if apart else _HELPER)
    )


def entry(fn: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Create the dispatcher of a kernel with these Numba options."""
    options = {**options, "nopython": True, "no_cfunc_wrapper": True}
    return fn if numba.config.DISABLE_JIT else EntryPoint(fn, targetoptions=options, pipeline_class=_ENTRY)
