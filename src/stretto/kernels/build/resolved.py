"""Cache of Numba's type resolution: each call signature is resolved once per process.

For every `x * y` of a kernel Numba tries all implementations of `*` until one accepts the types of x and y: once when
it infers types, and again when it writes LLVM code. That is a fifth of the compile time of a kernel. The result depends
only on the function, the types and the compilation flags, so the process keeps it.

    with once():
        …           compile: a function that was resolved for these types is not resolved again

This relies on internals of Numba: `BaseFunction.get_call_type` resolves and leaves the implementation in
`_impl_keys`, and the stack of configurations holds the flags of the function that is being compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from numba.core import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.targetconfig import ConfigStack
from numba.core.types.containers import BaseTuple
from numba.core.types.functions import BaseFunction

# Types that describe a value completely. Functions as arguments are left to Numba.
_PLAIN = (types.Number, types.Boolean, types.Array, BaseTuple, types.IntegerLiteral, types.BooleanLiteral)

_function: Any = BaseFunction
_resolve = _function.get_call_type
# By flags, then by the ids of function and types. The objects are kept alive too, so that no id is reused.
_signatures: dict[Any, dict[tuple[int, ...], tuple[Any, ...]]] = {}
_flags: list[Any] = [None, {}]  # the latest flags and their entry of `_signatures`, since comparing flags is slow


def _resolve_once(self: Any, context: Any, args: Any, kws: Any) -> Any:
    if kws or not all(isinstance(arg, _PLAIN) for arg in args):
        return _resolve(self, context, args, kws)
    flags = ConfigStack.top_or_none()
    if flags is not _flags[0]:
        _flags[:] = flags, _signatures.setdefault(flags, {})
    known = _flags[1]
    key = (id(context), id(self), *map(id, args))
    if key not in known:
        signature = _resolve(self, context, args, kws)
        known[key] = signature, self._impl_keys[signature.args], context, self, tuple(args)
    signature, implementation = known[key][:2]
    self._impl_keys[signature.args] = implementation  # the same types under other flags may have replaced it
    return signature


@contextlib.contextmanager
def once() -> Iterator[None]:
    """Cache what Numba resolves; only for our own compilations, which hold Numba's lock."""
    with global_compiler_lock:
        outermost = _function.get_call_type is _resolve
        try:
            _function.get_call_type = _resolve_once
            yield
        finally:
            if outermost:
                _function.get_call_type = _resolve
