"""Parameter tables: `Table`, worker functions that read, add and tick, and `st.run` over them.

plan = st.tables.plan(worker, workers=8, tables={"weights": st.Table(rows=10_000)}, sync=st.SSP(2))
print(plan)                # grade and why, tables, rule, policy, fingerprint
result = plan.run()        # what st.run(worker, …) gives
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .run import plan

__all__ = ["plan"]


def __getattr__(name: str) -> Any:
    if name != "plan":
        raise AttributeError(f"module 'stretto.tables' has no attribute {name!r}")
    from .run import plan  # a late import: `st.Table` does not need it

    return plan
