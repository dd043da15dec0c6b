"""Who reads which blocks of files: local ones first, each block once.

    assigner = FileAssigner([BlockPlace(100, frozenset({0})), BlockPlace(100, frozenset({1}))])
    assigner.next(1)                        1: node 1 has block 1 on its disk
    assign_parts(blocks, parts=4)           blocks of every part, and the node of each part

`FileAssigner` answers one request after another, as FlexPS's does (section 6.2 of the paper). There, which thread gets
a block depends on time. Here the parts of a unit own their blocks, and results depend on that: so `assign_parts` makes
the requests itself, when the files are opened. The node that has fewest bytes so far asks next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stretto.errors import PlanError


@dataclass(frozen=True)
class BlockPlace:
    """A block of a file: its size, and the nodes that have it on their disks. None of them: all nodes read it alike."""

    nbytes: int
    nodes: frozenset[int] = frozenset()


@dataclass(frozen=True)
class PartBlocks:
    """What the parts of a unit own."""

    blocks: tuple[tuple[int, ...], ...]  # by part: numbers of its blocks, in their order
    nodes: tuple[int, ...] = ()  # by part: the node that has them; (): any node


class FileAssigner:
    """Gives blocks to nodes that ask: each block once.

    Parameters
    ----------
    blocks : sequence of BlockPlace
        The blocks of all files.
    remote : bool, default True
        Whether a node may get a block that only others have.
    """

    def __init__(self, blocks: Sequence[BlockPlace], remote: bool = True) -> None:
        self._blocks, self._remote = tuple(blocks), remote
        self._left = dict.fromkeys(range(len(self._blocks)))

    def next(self, node: int) -> int | None:
        """The block for a node; None: there is none left for it.

        First a block that it has on its disk, of these one that fewest others have. Then a block that every node reads
        alike. Then one of the node that has most bytes left.
        """
        local = [block for block in self._left if node in self._blocks[block].nodes]
        anywhere = [block for block in self._left if not self._blocks[block].nodes]
        if local:
            found = min(local, key=lambda block: (len(self._blocks[block].nodes), block))
        elif anywhere:
            found = anywhere[0]
        elif self._remote and self._left:
            bytes_left: dict[int, int] = {}
            for block in self._left:
                for other in self._blocks[block].nodes:
                    bytes_left[other] = bytes_left.get(other, 0) + self._blocks[block].nbytes
            most = min(bytes_left, key=lambda other: (-bytes_left[other], other))
            found = next(block for block in self._left if most in self._blocks[block].nodes)
        else:
            return None
        del self._left[found]
        return found


def assign_parts(blocks: Sequence[BlockPlace], parts: int, remote: bool = True) -> PartBlocks:
    """The blocks of every part: neighbours, of nearly equal bytes, on the disk of one node where that is possible.

    It depends on the blocks and the number of parts alone, not on the nodes of a runtime or on time.

    Parameters
    ----------
    blocks : sequence of BlockPlace
        The blocks of all files.
    parts : int
        Parts; each gets a block at least.
    remote : bool, default True
        Whether other nodes can read what is on the disk of one.

    Examples
    --------
    >>> assign_parts([BlockPlace(10)] * 4, 2)
    PartBlocks(blocks=((0, 1), (2, 3)), nodes=())
    >>> assign_parts([BlockPlace(10, frozenset({1})), BlockPlace(10, frozenset({0}))], 2)
    PartBlocks(blocks=((1,), (0,)), nodes=(0, 1))
    """
    if len(blocks) < parts:
        raise PlanError(
            f"the files have {len(blocks)} blocks and the unit {parts} parts, of which each needs one; give parts= "
            "this number or less, or smaller blocks with block_bytes="
        )
    if not any(block.nodes for block in blocks):
        return PartBlocks(tuple(map(tuple, cut_evenly([block.nbytes for block in blocks], parts))))
    mine = _by_node(blocks, parts, remote)
    counts = _shared_out(parts, [(len(some), _nbytes(blocks, some)) for some in mine.values()])
    found: list[tuple[int, ...]] = []
    nodes: list[int] = []
    for (node, some), many in zip(mine.items(), counts, strict=True):
        for share in cut_evenly([blocks[block].nbytes for block in some], many):
            found.append(tuple(some[k] for k in share))
            nodes.append(node)
    return PartBlocks(tuple(found), tuple(nodes))


def _by_node(blocks: Sequence[BlockPlace], parts: int, remote: bool) -> dict[int, list[int]]:
    """By node, ascending: its blocks. The node that has fewest bytes so far asks the assigner next."""
    local: dict[int, int] = {}
    for block in blocks:
        for node in block.nodes:
            local[node] = local.get(node, 0) + block.nbytes
    asking = sorted(local, key=lambda node: (-local[node], node))
    if len(asking) > parts:
        if not remote:
            raise PlanError(
                f"{len(asking)} nodes have files of their own and the unit has {parts} parts; each of them needs a "
                f"part at least: give parts={len(asking)} or more"
            )
        asking = asking[:parts]
    assigner, asking = FileAssigner(blocks, remote), sorted(asking)
    mine: dict[int, list[int]] = {node: [] for node in asking}
    while asking:
        node = min(asking, key=lambda node: (_nbytes(blocks, mine[node]), node))
        given = assigner.next(node)
        if given is None:
            asking.remove(node)
        else:
            mine[node].append(given)
    return {node: sorted(some) for node, some in mine.items() if some}


def _nbytes(blocks: Sequence[BlockPlace], some: Sequence[int]) -> int:
    return sum(blocks[block].nbytes for block in some)


def _shared_out(parts: int, have: Sequence[tuple[int, int]]) -> list[int]:
    """Parts of each node: one at least, then where a part has most bytes. have: (blocks, bytes) of each node."""
    found = [1] * len(have)
    for _ in range(parts - len(have)):
        able = [k for k, (blocks, _) in enumerate(have) if found[k] < blocks]
        found[max(able, key=lambda k: (have[k][1] / found[k], -k))] += 1
    return found


def cut_evenly(sizes: Sequence[int], parts: int) -> list[list[int]]:
    """Neighbours of nearly equal size together: each of `parts` gets one at least.

    >>> cut_evenly([1, 1, 1, 3], 2)
    [[0, 1, 2], [3]]
    """
    total, before, first = sum(sizes), 0, 0
    found = []
    for part in range(parts):
        last = len(sizes) - (parts - part - 1)  # the others need one each
        mine = [first]
        before += sizes[first]
        # The next one belongs here if its middle does.
        while mine[-1] + 1 < last and (
            part == parts - 1 or (2 * before + sizes[mine[-1] + 1]) * parts <= 2 * total * (part + 1)
        ):
            mine.append(mine[-1] + 1)
            before += sizes[mine[-1]]
        first = mine[-1] + 1
        found.append(mine)
    return found
