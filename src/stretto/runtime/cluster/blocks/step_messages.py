"""What the driver and a node of a static plan tell each other: steps to load, runs to start, results, progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.core import claims
from stretto.plan.arrays import Pieces, StepSpec
from stretto.runtime.cluster.net.elements import ElementRuns
from stretto.schedule.orders.order import Ints, Order


@dataclass(frozen=True, eq=False)
class LoadStep:
    """A step for one node: everything that is the same in every run."""

    plan: int
    spec: StepSpec
    order: Order  # of all visits
    owner: Ints  # the node of each row block
    priority: Ints
    profile: str
    shapes: dict[str, tuple[tuple[int, ...], str]]  # shape and dtype of the partitioned arrays
    given: dict[str, Any]  # constants, and arrays that record faults
    pieces: dict[str, Pieces]  # this node's chunks of read-only arrays that are partitioned by visits
    scratch: dict[str, tuple[tuple[int, ...], str]]  # shape and dtype of each worker's scratch arrays
    memory: int | None = None  # bytes of owned arrays that may be in memory; None: no limit
    nodes: int = 1  # nodes of the job


@dataclass(frozen=True, eq=False)
class PutStates:
    """States for one node."""

    plan: int
    epoch: int
    turns: Ints  # [C] visits of each column block that were made in this epoch
    pieces: dict[str, Pieces]


@dataclass(frozen=True, eq=False)
class StartRun:
    """Start a run: make every visit that is not in `finished`."""

    plan: int
    epoch: int
    finished: Ints  # visits made before; with `phase`, in earlier phases
    numbers: dict[str, Any]  # arguments of single values
    wholes: dict[str, NDArray[Any]]  # arrays that all nodes read
    parts: dict[str, NDArray[Any]]  # initial values of arrays per visit
    ahead: bool = False  # announced during the previous run; starts when that one has made all its visits
    only: Ints | None = None  # make only these visits (`finished` included): the first ones of each block
    phase: Ints | None = None  # make only these visits, numbered from 0


@dataclass(frozen=True, eq=False)
class NodeRunResult:
    """A node's report of a run."""

    epoch: int
    made: Ints  # visits that were made
    out: NDArray[np.float64]  # the number that each visit returned
    parts: dict[str, NDArray[Any]]  # arrays per visit
    log: Ints  # nanoseconds since the run began on this node
    failed: int  # the visit that failed; −1: none
    faults: dict[str, NDArray[Any]]
    seconds: float
    waited: float  # seconds that workers waited for blocks, summed over workers
    moved: int  # bytes of blocks sent
    fresh: dict[str, Pieces]  # current chunks of arrays that are zeros at the start of an epoch and partitioned by rows
    served: dict[str, ElementRuns] = field(default_factory=dict)  # elements of served arrays that visits changed
    slot_visits: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    slots: dict[str, ElementRuns] = field(default_factory=dict)  # elements of arrays per slot, those of `slot_visits`


def nothing(epoch: int) -> NodeRunResult:
    """The report of a run that was stopped before it began."""
    none = np.zeros(0, np.int64)
    return NodeRunResult(
        epoch, none, np.zeros(0), {}, np.zeros((0, claims.LOG_COLUMNS), np.int64), -1, {}, 0.0, 0.0, 0, {}
    )


def turns_of(order: Order, finished: Ints) -> Ints:
    """[C] how many of the finished visits belong to each column block."""
    return np.bincount(order.col_block[finished], minlength=order.cols).astype(np.int64)


class NodeProgress(NamedTuple):
    """The progress of a node."""

    mark: tuple[int, ...]  # changes with any progress
    busy: int  # visits and blocks to send that are possible now; 0: it waits for blocks or for a run
