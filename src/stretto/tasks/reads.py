"""What a unit reads in blocks: by which function, and on which nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from stretto.errors import PlanError
from stretto.runtime.stages.block_readers import BlockReads
from stretto.runtime.stages.file_blocks import OpenFiles

from .arguments import BlockSource
from .files import FileBlocks
from .tree import Unit


@dataclass(frozen=True, eq=False)
class UnitReads:
    """What a unit reads in blocks, and where its parts find it."""

    reads: tuple[BlockReads, ...] = ()
    near: tuple[int, ...] = ()  # by part: the node that has its files; (): any node
    pinned: bool = False  # no other node can read them
    held: frozenset[str] = frozenset()  # names of the data sets that some nodes have, for the scheduler

    def check(self, unit: str, nodes: Collection[int]) -> None:
        """PlanError where a stage on these nodes cannot read its files."""
        for part, node in enumerate(self.near):
            if self.pinned and node not in nodes:
                raise PlanError(
                    f"unit {unit}: only node {node} has the files of part {part}, and its placement leaves that node "
                    "out; add it, or leave out placement="
                )


def reads_of(unit: Unit, number: Callable[[Any], int], opened: Callable[[FileBlocks], OpenFiles]) -> UnitReads:
    """What a unit reads in blocks.

    Parameters
    ----------
    unit : Unit
        The unit.
    number : callable
        function(data) -> number of a data set among those of the session.
    opened : callable
        function(files) -> the files with their blocks.
    """
    reads: dict[int, BlockReads] = {}
    near: tuple[int, ...] = ()
    held: set[str] = set()
    pinned = False
    for argument in unit.arguments:
        source = argument.value
        if isinstance(source, BlockSource):
            counts = (source.blocks,) * unit.parts
            reads[number(source)] = BlockReads(number(source), counts, source.read, source.ahead, source.memory)
        elif isinstance(source, FileBlocks):
            files = opened(source)
            assigned = files.assigned(unit.parts)
            counts = tuple(map(len, assigned.blocks))
            reads[number(source)] = BlockReads(
                number(source), counts, files.reads(assigned), source.ahead, source.memory
            )
            if assigned.nodes:
                if near and near != assigned.nodes and (pinned or source.spec.on_nodes):
                    raise PlanError(
                        f"unit {unit.name}: two of its arguments are files that different nodes have for the same "
                        "part; read them in two units"
                    )
                near = near if pinned else assigned.nodes
                pinned = pinned or source.spec.on_nodes
                held.add(f"data {number(source)}")
    return UnitReads(tuple(reads.values()), near, pinned, frozenset(held))
