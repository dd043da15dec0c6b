"""Parameter tables: `Table`, worker functions that read, add and tick, and `st.run` over them.

plan = st.tables.plan(worker, workers=8, tables={"weights": st.tables.Table(rows=10_000)}, sync=st.SSP(2))
print(plan)                # grade and why, tables, rule, policy, fingerprint
result = plan.run()        # what st.run(worker, …) gives

Table                                                                a table: its rows, columns, numbers
BSP, SSP, ASP                                                        how fresh a read is: `sync=`
Eager, Managed, Lazy                                                 what is sent when: `comm=`
add, average, adagrad, adarevision, proximal, server_function        what a shard does with an update: `apply=`
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stretto.comm.policy import Eager, Lazy, Managed
    from stretto.consistency.rules import ASP, BSP, SSP
    from stretto.store.shard.functions import adagrad, adarevision, add, average, proximal, server_function

    from .run import plan
    from .table import Table

# Loaded when first used: the modules of this package import one another, and a table is made without what runs it.
_PUBLIC = {
    **dict.fromkeys(("ASP", "BSP", "SSP"), "stretto.consistency.rules"),
    **dict.fromkeys(("Eager", "Lazy", "Managed"), "stretto.comm.policy"),
    **dict.fromkeys(("adagrad", "adarevision", "add", "average", "proximal"), "stretto.store.shard.functions"),
    "server_function": "stretto.store.shard.functions",
    "Table": "stretto.tables.table",
    "plan": "stretto.tables.run",
}

__all__ = [
    "ASP",
    "BSP",
    "SSP",
    "Eager",
    "Lazy",
    "Managed",
    "Table",
    "adagrad",
    "adarevision",
    "add",
    "average",
    "plan",
    "proximal",
    "server_function",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'stretto.tables' has no attribute {name!r}")
    return globals().setdefault(name, getattr(importlib.import_module(_PUBLIC[name]), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
