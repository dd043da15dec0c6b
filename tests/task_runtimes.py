"""The runtimes on which a task must have the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stretto as st

RUNTIMES = ("serial", "threads", "simulated", "processes")


def runtime_named(name: str) -> Any:
    """A runtime of this name, on several workers or nodes where it has them."""
    made: dict[str, Callable[[], Any]] = {
        "serial": st.Serial,
        "threads": lambda: st.Threads(2),
        "simulated": lambda: st.Simulated(nodes=3, threads=1),
        "processes": lambda: st.Cluster("processes", nodes=2),
    }
    return made[name]()
