"""Stretto: iterative-convergent models, scheduled.

The shelf: every name a user imports. Each is loaded when it is first used, so that importing Stretto costs little.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stretto.data.data import Data
    from stretto.data.generate import ratings as generate_ratings
    from stretto.data.ids import IdMap
    from stretto.data.read import read
    from stretto.data.write import write
    from stretto.models.factorization import MatrixFactorization
    from stretto.plan.plan import Plan
    from stretto.runtime.runtimes import Serial, Threads
    from stretto.runtime.session import Session
    from stretto.runtime.train import Saving

_SHELF = {
    "Data": "stretto.data.data:Data",
    "IdMap": "stretto.data.ids:IdMap",
    "MatrixFactorization": "stretto.models.factorization:MatrixFactorization",
    "Plan": "stretto.plan.plan:Plan",
    "Saving": "stretto.runtime.train:Saving",
    "Serial": "stretto.runtime.runtimes:Serial",
    "Session": "stretto.runtime.session:Session",
    "Threads": "stretto.runtime.runtimes:Threads",
    "generate_ratings": "stretto.data.generate:ratings",
    "read": "stretto.data.read:read",
    "write": "stretto.data.write:write",
}

__all__ = [
    "Data",
    "IdMap",
    "MatrixFactorization",
    "Plan",
    "Saving",
    "Serial",
    "Session",
    "Threads",
    "generate_ratings",
    "read",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _SHELF:
        raise AttributeError(f"module 'stretto' has no attribute {name!r}")
    module, _, attribute = _SHELF[name].partition(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
