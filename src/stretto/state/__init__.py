"""Mutable arrays that loops and models learn: states, sparse states, accumulators and buffers.

`st.state(array)` makes a state. The name is also that of this package, so the package itself can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, array: Any, dtype: Any = None, **rules: Any) -> Any:
        """See `stretto.state.make.state`."""
        from stretto.state.make import state

        return state(array, dtype, **rules)


sys.modules[__name__].__class__ = _CallablePackage
