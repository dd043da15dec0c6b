"""Handing many arrays to helpers at no cost.

A state of twenty arrays in a tuple is two hundred words. As arguments of a call all of them are copied, and Numba
counts references to each array, by atomic additions on words that all threads share: choosing a round took six times as
long.

    @merged                         like `inner`, but always put into its caller: no call, so no arguments
    engine = borrowed(engine)       first of all in a kernel: the same arrays without owners, so that nothing is
                                    counted. What comes from it must not outlive the call
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from .compile import inner


def merged(fn: Callable[..., Any]) -> Any:
    """Mark a helper that is put into every kernel that calls it."""
    return inner(fn, forced=True)


@intrinsic
def borrowed(typingctx, t):
    """A tuple of the same arrays, without their owners."""
    if not isinstance(t, types.BaseTuple):
        return None

    def codegen(context, builder, signature, args):
        found = []
        for ty, value in zip(t, cgutils.unpack_tuple(builder, args[0], len(t)), strict=True):
            if isinstance(ty, types.Array):
                array = context.make_array(ty)(context, builder, value=value)
                array.meminfo = cgutils.get_null_value(array.meminfo.type)
                array.parent = cgutils.get_null_value(array.parent.type)
                value = array._getvalue()
            found.append(value)
        return context.make_tuple(builder, t, found)

    return t(t), codegen
