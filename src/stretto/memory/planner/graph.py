"""The planner's graph of one training step: operations, the storages they read and write, bytes and seconds.

A *storage* is a block of memory; tensors that are views of one another share one. A *node* is an operation. The graph
holds no tensors and needs no torch: the planner works with bytes and seconds only.

    graph = Graph(
        (Storage(400, "parameter", "w"), Storage(80, "input", "x"), Storage(160, "activation", "y")),
        (Node("mm", reads=(1, 0), makes=(2,), seconds=1e-5),),
        results=(2,),
    )
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

# Kinds that exist before and after the step. A step makes all other storages, and they are gone after it.
PERSISTENT_KINDS = ("parameter", "state", "buffer", "constant")
KINDS = (*PERSISTENT_KINDS, "input", "activation", "gradient")
TEMPORARY, FREED = -1, -2  # in `Node.allocations`


@dataclass(frozen=True, slots=True)
class Storage:
    """A block of memory.

    Parameters, optimizer state, buffers and constants are persistent: they exist before and after a step. The caller
    passes inputs with every step, on the device. A step makes activations and gradients, and they are gone after it.
    """

    nbytes: int
    kind: str  # one of KINDS
    name: str = ""

    @property
    def persistent(self) -> bool:
        """Whether the storage exists before and after the step."""
        return self.kind in PERSISTENT_KINDS


@dataclass(frozen=True, slots=True)
class Node:
    """An operation.

    When a node is recomputed, it gives the same bits and its writes are left out.
    """

    name: str
    reads: tuple[int, ...] = ()  # storages that it reads
    makes: tuple[int, ...] = ()  # new storages that it produces
    writes: tuple[int, ...] = ()  # persistent storages that it changes in place
    seconds: float = 0.0
    workspace: int = 0  # bytes that it allocates and frees while it runs
    recomputable: bool = True  # it may run a second time in a step
    # it draws random numbers or has another side effect: such nodes keep their order among themselves
    ordered: bool = False
    phase: str = "forward"  # forward, backward or update: for people
    # The order of its allocations, where that is not `makes` and then the workspace: (k, bytes) allocates the k-th of
    # `makes`, (TEMPORARY, bytes) a part of the workspace, (FREED, n) frees entry n of this list.
    allocations: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in program order, and their storages."""

    storages: tuple[Storage, ...]
    nodes: tuple[Node, ...]  # in program order
    results: tuple[int, ...] = ()  # storages that the caller needs after the step
    maker: tuple[int, ...] = field(init=False)  # the node that makes a storage; -1 for one that exists before the step

    def __post_init__(self) -> None:
        maker = [-1] * len(self.storages)
        for n, node in enumerate(self.nodes):
            for s in node.makes:
                maker[s] = n
        object.__setattr__(self, "maker", tuple(maker))

    def uses(self) -> list[list[int]]:
        """For each storage, the nodes that read or write it, in program order, without its maker."""
        found: list[list[int]] = [[] for _ in self.storages]
        for n, node in enumerate(self.nodes):
            for s in dict.fromkeys((*node.reads, *node.writes)):
                found[s].append(n)
        return found

    def nbytes(self, kind: str | None = None) -> int:
        """Bytes of all storages, or of those of one kind."""
        return sum(s.nbytes for s in self.storages if kind is None or s.kind == kind)

    def dependencies(self) -> list[list[int]]:
        """For each node, the nodes that must run before it.

        Makers run before readers. A writer runs after all readers of the old value and before all readers of the new
        value. Ordered nodes keep their order.
        """
        deps: list[list[int]] = [[] for _ in self.nodes]
        writer: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        last_ordered = -1
        for n, node in enumerate(self.nodes):
            wanted = {self.maker[s] for s in node.reads if self.maker[s] >= 0}
            wanted.update(writer[s] for s in (*node.reads, *node.writes) if s in writer)
            for s in node.writes:
                wanted.update(readers.pop(s, ()))
                writer[s] = n
            for s in node.reads:
                if self.storages[s].persistent and s not in node.writes:
                    readers.setdefault(s, []).append(n)
            if node.ordered:
                if last_ordered >= 0:
                    wanted.add(last_ordered)
                last_ordered = n
            wanted.discard(n)
            deps[n] = sorted(wanted)
        return deps

    def reordered(self, order: Sequence[int]) -> Graph:
        """The same graph in another order."""
        return Graph(self.storages, tuple(self.nodes[n] for n in order), self.results)

    def check(self) -> None:
        """Raise ValueError unless each storage is made once, before its reads, and only persistent ones are written."""
        made: set[int] = {s for s, one in enumerate(self.storages) if self.maker[s] < 0}
        for n, node in enumerate(self.nodes):
            for s in node.reads:
                if s not in made:
                    raise ValueError(f"node {n} ({node.name}) reads storage {s}, which no node before it makes")
            for s in node.writes:
                if not self.storages[s].persistent:
                    raise ValueError(f"node {n} ({node.name}) writes storage {s}, which is not persistent")
            for s in node.makes:
                if s in made:
                    raise ValueError(f"node {n} ({node.name}) makes storage {s} a second time")
                made.add(s)
        for s in self.results:
            if s not in made:
                raise ValueError(f"result {s}: no node makes this storage")

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)
