"""One training step as a graph of storages: what each operation reads, makes and changes, in bytes and seconds.

A *storage* is a piece of memory; tensors that are views of one another share one. A *node* is an operation. There is no
tensor here and no torch: the planner knows bytes and seconds and nothing else.

    graph = Graph(
        (Storage(400, "parameter", "w"), Storage(80, "input", "x"), Storage(160, "activation", "y")),
        (Node("mm", reads=(1, 0), makes=(2,), seconds=1e-5),),
        results=(2,),
    )
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

# What exists before the step and after it. Everything else is made in the step and gone after it.
LASTING = ("parameter", "state", "buffer", "constant")
KINDS = (*LASTING, "input", "activation", "gradient")
TEMPORARY, RETURNED = -1, -2  # in `Node.allocations`


@dataclass(frozen=True, slots=True)
class Storage:
    """kind: parameter, state (of an optimizer), buffer and constant last from step to step; input is given with every
    step, on the device; activation and gradient are made in it."""

    nbytes: int
    kind: str
    name: str = ""

    @property
    def lasting(self) -> bool:
        return self.kind in LASTING


@dataclass(frozen=True, slots=True)
class Node:
    """An operation. makes: new storages. writes: lasting storages that it changes in place (also read by it unless
    they are not in `reads`).

    again: it may be run a second time and gives the same bits; what it writes is left alone then. fixed: it draws
    random numbers or has another effect, so that such nodes keep their order among themselves. workspace: bytes that it
    takes and gives back while it runs.

    allocations: in which order it takes them, where that is not the order of `makes` with the workspace after it:
    (k, bytes) for the k-th of `makes`, (TEMPORARY, bytes) for a part of the workspace, (RETURNED, n) where the one at
    place n of this list is given back.
    """

    name: str
    reads: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    seconds: float = 0.0
    workspace: int = 0
    again: bool = True
    fixed: bool = False
    phase: str = "forward"  # forward, backward or update: for people
    allocations: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Graph:
    """nodes: in the order of the program. results: storages that are wanted when the step is over."""

    storages: tuple[Storage, ...]
    nodes: tuple[Node, ...]
    results: tuple[int, ...] = ()
    maker: tuple[int, ...] = field(init=False)  # the node that makes a storage, -1 for what is there before

    def __post_init__(self) -> None:
        maker = [-1] * len(self.storages)
        for n, node in enumerate(self.nodes):
            for s in node.makes:
                maker[s] = n
        object.__setattr__(self, "maker", tuple(maker))

    def uses(self) -> list[list[int]]:
        """By storage: the nodes that touch it, in the order of the program, without its maker."""
        found: list[list[int]] = [[] for _ in self.storages]
        for n, node in enumerate(self.nodes):
            for s in dict.fromkeys((*node.reads, *node.writes)):
                found[s].append(n)
        return found

    def nbytes(self, kind: str | None = None) -> int:
        """Bytes of all storages, or of those of a kind."""
        return sum(s.nbytes for s in self.storages if kind is None or s.kind == kind)

    def before(self) -> list[list[int]]:
        """By node: the nodes that must run before it. Makers before readers; a writer after all who want the older
        value and before all who want the newer; fixed nodes in their order."""
        deps: list[list[int]] = [[] for _ in self.nodes]
        writer: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        last_fixed = -1
        for n, node in enumerate(self.nodes):
            wanted = {self.maker[s] for s in node.reads if self.maker[s] >= 0}
            wanted.update(writer[s] for s in (*node.reads, *node.writes) if s in writer)
            for s in node.writes:
                wanted.update(readers.pop(s, ()))
                writer[s] = n
            for s in node.reads:
                if self.storages[s].lasting and s not in node.writes:
                    readers.setdefault(s, []).append(n)
            if node.fixed:
                if last_fixed >= 0:
                    wanted.add(last_fixed)
                last_fixed = n
            wanted.discard(n)
            deps[n] = sorted(wanted)
        return deps

    def reordered(self, order: Sequence[int]) -> Graph:
        """The same graph in another order."""
        return Graph(self.storages, tuple(self.nodes[n] for n in order), self.results)

    def check(self) -> None:
        """That it is a graph: read after it is made, made once, lasting storages written only."""
        made: set[int] = {s for s, one in enumerate(self.storages) if self.maker[s] < 0}
        for n, node in enumerate(self.nodes):
            for s in node.reads:
                if s not in made:
                    raise ValueError(f"node {n} ({node.name}) reads storage {s} before it is made")
            for s in node.writes:
                if not self.storages[s].lasting:
                    raise ValueError(f"node {n} ({node.name}) changes storage {s}, which is no lasting one")
            for s in node.makes:
                if s in made:
                    raise ValueError(f"node {n} ({node.name}) makes storage {s} a second time")
                made.add(s)
        for s in self.results:
            if s not in made:
                raise ValueError(f"result {s} is never made")

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)
