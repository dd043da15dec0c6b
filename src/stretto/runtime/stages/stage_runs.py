"""A stage as a session runs it: its job, the states that it uses, its place, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from stretto.consistency.exchange import MIRRORED
from stretto.errors import RunError
from stretto.runtime.tables.job import TableJob, TableOutcome
from stretto.state.state import State

from .data_store import StageBlocks
from .file_blocks import FileSpec, OpenFiles


@dataclass(frozen=True)
class StagePlace:
    """Where the workers of a stage are: (node, workers) by ascending node."""

    workers_by_node: tuple[tuple[int, int], ...]

    @property
    def workers(self) -> int:
        """Workers of all nodes."""
        return sum(many for _, many in self.workers_by_node)

    @property
    def single(self) -> int | None:
        """The node, if there is only one."""
        return self.workers_by_node[0][0] if len(self.workers_by_node) == 1 else None

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes."""
        return tuple(node for node, _ in self.workers_by_node)

    def homes(self, parts: int, near: Sequence[int] = ()) -> tuple[int, ...]:
        """The node of each logical part: contiguous, in proportion to the workers.

        near: by part, the node that has its files. A part runs there if the stage does; others go to the node that has
        fewest parts for each worker.
        """
        if near:
            return self._near(near)
        total, found, before = self.workers, [], 0
        for node, many in self.workers_by_node:
            until = (before + many) * parts // total
            found += [node] * (until - before * parts // total)
            before += many
        return tuple(found)

    def _near(self, near: Sequence[int]) -> tuple[int, ...]:
        workers = dict(self.workers_by_node)
        counts = {node: sum(at == node for at in near) for node in workers}
        found = []
        for at in near:
            if at not in workers:
                at = min(workers, key=lambda node: (counts[node] / workers[node], node))
                counts[at] += 1
            found.append(at)
        return tuple(found)


@dataclass(frozen=True, eq=False)
class StageState:
    """A state that a stage uses, in the order of the tables of its job."""

    number: int  # among those of the session
    state: State
    first: NDArray[Any] | None = None  # values that it starts from; None: those it has
    fill: float | None = None  # the same where all of them are one number
    partition: Any = None  # PartRows, "range", or function(keys, shards) -> shards; None: even shares
    exchange: str = "shards"  # of replicas on several nodes: see `consistency.exchange`

    @property
    def mirrored(self) -> bool:
        """Whether every node with parts holds all rows while a stage runs on several nodes."""
        return self.exchange in MIRRORED


@dataclass(frozen=True, eq=False)
class StageRun:
    """A stage to run."""

    job: TableJob  # its tables have the shapes of the states; start values are ignored
    states: tuple[StageState, ...]
    owner: str  # of states and data
    preparation: str | None = None  # "whole", "on-demand", "served", or None: chosen from size and iterations
    iterations: int = 1
    memory: int | None = None  # bytes of a state that a node keeps in memory; None for no limit
    direct: bool = True  # states go from node to node directly; False: over all nodes, for comparison
    blocks: StageBlocks | None = None  # data that are read while it runs
    near: tuple[int, ...] = ()  # by part: the node that has its files; (): any node
    expected: int = 0  # iterations of the stage and of those of its unit that follow; 0: of the stage alone

    def homes(self, place: StagePlace) -> tuple[int, ...]:
        """The node of each part."""
        return place.homes(self.job.workers, self.near)

    @contextmanager
    def reading(self, parts: Sequence[int]) -> Iterator[None]:
        """Read blocks for these parts in this process; nothing more is read ahead if the stage fails."""
        if self.blocks is None:
            yield
            return
        with self.blocks.reading(parts):
            yield


@dataclass(frozen=True, eq=False)
class StageEnd:
    """A stage that ran."""

    outcome: TableOutcome
    around: float  # seconds before its workers started and after they ended
    moved: int = 0  # bytes of states that changed their node before it, or while it ran
    preparation: str = ""  # how its states were prepared, where that was a choice
    replaced: int = 0  # chunks that were written to disk for others


class StageLost(RunError):
    """A node was lost, and with it values of states. The task goes back to the last values that it has."""


class StageSession(Protocol):
    """An open session. `nodes` and `threads` (of a node) say what there is to place stages on.

    virtual: its seconds are virtual, and what the driver does takes none. fallible: nodes can be lost, and with them
    values of states.
    """

    nodes: tuple[int, ...]
    threads: int
    virtual: bool
    fallible: bool

    def run(self, stage: StageRun, place: StagePlace) -> StageEnd:
        """Run a stage to its end. Raises StageLost."""

    def collect(self, owner: str, states: Mapping[int, State]) -> int:
        """Write the present values into states, by number; return how many bytes came from nodes. Raises StageLost."""

    def reset(self, owner: str, states: Mapping[int, State]) -> None:
        """States were changed by the driver: their arrays are what counts."""

    def release(self, owner: str, number: int | None = None) -> None:
        """A state is not needed any more; None: all of the owner."""

    def release_data(self, owner: str, number: int) -> None:
        """A data set is not needed any more, on nodes outside this process."""

    def open_files(self, spec: FileSpec) -> OpenFiles:
        """Open files that nodes have on their own disks."""
