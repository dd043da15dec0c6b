"""`TablePayload`: what the driver of a job over tables sends to a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stretto.runtime.tables.checkpoints import WorkerState
from stretto.runtime.tables.job import TableJob
from stretto.runtime.tables.run.node_cuts import CutPlan
from stretto.store.layout import Layout
from stretto.store.node import NodePart
from stretto.store.shard.table import KeyedRows


@dataclass(frozen=True, eq=False)
class TablePayload:
    """What the driver sends to a host."""

    job: TableJob
    layout: Layout
    start: dict[int, NodePart] | None = None  # the nodes' parts of the cut to start from; None: a new run
    parts: dict[int, WorkerState] = field(default_factory=dict)  # the workers' parts of it
    clock: int = 0  # of that cut
    cuts: CutPlan = field(default_factory=CutPlan)
    began_at: float | None = None  # start of the run by the driver's wall clock (`time.time`); None: now
    threads: int | None = None  # that run at a time; None: those of the host
    owner: str = ""  # of the data below
    data: dict[tuple[int, ...], Any] = field(default_factory=dict)  # for the host to keep, besides what it has
    rows: dict[int, dict[int, KeyedRows]] = field(
        default_factory=dict
    )  # by node and table: rows that are used in place
