"""`LoadedStep`: the arrays of one step on a node, and what its runs write."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.blocks.parted import Exchange
from stretto.runtime.cluster.pages import Pages
from stretto.runtime.files.mapped_arrays import Disk
from stretto.schedule.orders.order import Ints
from stretto.schedule.orders.route import Route

from .ring import Ring
from .served_copies import ServedCopies
from .step_messages import LoadStep, PutStates, StartRun

Results = tuple[NDArray[np.float64], dict[str, NDArray[Any]]]  # out [V], and the arguments with role `parts`


@dataclass(eq=False)
class LoadedStep:
    """A step that is loaded on this node."""

    load: LoadStep
    route: Route
    ring: Ring
    compiled: Callable[..., Any]
    args: dict[str, Any]
    pages: dict[str, Pages]
    own: Ints  # visits of this node
    served: ServedCopies
    sizes: list[list[int]] = field(default_factory=list)  # [C][…] bytes of each rotating array's block
    disk: Disk | None = None  # files of owned arrays, if these are not in memory

    @classmethod
    def of(
        cls,
        load: LoadStep,
        node: int,
        threads: int,
        route: Route | None = None,
        pages: dict[str, Pages] | None = None,
        exchange: Exchange | None = None,
    ) -> LoadedStep:
        """Allocate and fill a node's arrays.

        Parameters
        ----------
        load : LoadStep
            The step.
        node, threads : int
            The node's number and its workers.
        route, pages : Route and dict of str to Pages, or None
            Shared ones to use where one process holds several nodes.
        exchange : Exchange or None
            Connects to nodes that read other parts of the data.
        """
        spec = load.spec
        route = Route(load.order, load.owner) if route is None else route
        args: dict[str, Any] = dict.fromkeys(spec.arrays) | load.given
        disk = None if load.memory is None else Disk(Path(tempfile.gettempdir()), load.memory)
        if pages is None:
            on_disk = set() if disk is None else {k for k in spec.cut() if spec.ranges(k).by != "cols"}
            on_disk = {k for k in on_disk if spec.ranges(k).axis == 0}
            pages = {k: Pages(*one) for k, one in load.shapes.items() if k not in on_disk}
            own = {"rows": route.own_rows(node), "visits": route.own_visits(node)}
            for k in on_disk:
                assert disk is not None
                ranges = spec.ranges(k)
                args[k] = disk.array(k, *load.shapes[k], ranges.spans(own[ranges.by]))
        for k, (shape, dtype) in load.scratch.items():
            args[k] = np.zeros((threads, *shape), dtype)
        for k, made in pages.items():
            args[k] = made.array
        for k in spec.of("flat view"):
            args[k] = args[spec.arrays[k].of].reshape(len(args[spec.arrays[k].of]), -1)
        if spec.reader is not None:
            arrays = {k: args[k] for k in spec.entries}
            spec.reader.fill(route.own_visits(node), arrays, threads, disk, exchange, load.owner)
        for k, pieces in load.pieces.items():
            spec.ranges(k).fill(args[k], pieces)
        if disk is not None:
            disk.release_all()
        kernel = spec.kernel.load()[load.profile]
        served = ServedCopies(spec, args)
        found = cls(load, route, Ring(node, route), kernel, args, pages, route.own_visits(node), served, disk=disk)
        found.sizes = [[int(found.view(k, block).nbytes) for k in spec.rotating] for block in range(load.order.cols)]
        return found

    def view(self, k: str, block: int) -> NDArray[Any]:
        """A view of one block of a rotating array."""
        ranges = self.load.spec.ranges(k)
        return ranges.view(
            self.args[k], (int(ranges.first[block]), max(int(ranges.first[block]), int(ranges.last[block])))
        )

    def put(self, put: PutStates, node: int) -> None:
        for k, pieces in put.pieces.items():
            self.load.spec.ranges(k).fill(self.args[k], pieces)
        if self.disk is not None:
            self.disk.release_all()
        self.ring.settle(put.epoch, put.turns)

    def clear(self, by: str, blocks: Ints) -> None:
        """Zero the arrays that are zeros at the start of an epoch, for these blocks."""
        spec = self.load.spec
        for k in spec.fresh(by):
            for _, piece in spec.ranges(k).pieces(self.args[k], blocks):
                piece[...] = 0

    def call(self) -> list[Any]:
        """The arguments in the order in which the compiled worker takes them."""
        return self.load.spec.nested(self.args)

    def prepare(self, go: StartRun, results: Results | None = None) -> NDArray[np.float64]:
        """Set the arguments of a run; return the array that visits write their numbers to."""
        out, parts = results_of(go, len(self.load.order)) if results is None else results
        for k in self.load.spec.of("numbering"):
            self.args[k] = np.arange(len(self.load.order), dtype=np.int64) if go.phase is None else go.phase
        for k, number in go.numbers.items():
            self.args[k] = number
        for k, array in go.wholes.items():
            self.args[k] = array
        for k, part in parts.items():
            self.args[k] = part
        for k in self.load.spec.of("fault"):
            self.args[k] = np.zeros_like(self.args[k])
        return out

    def mine(self, phase: Ints) -> Ints:
        """Positions in a phase of the visits that this node makes."""
        return np.flatnonzero(self.route.node[phase] == self.ring.node).astype(np.int64)


def results_of(go: StartRun, visits: int) -> Results:
    """Allocate the arrays that the visits of a run write their results to."""
    out = np.zeros(visits if go.phase is None else len(go.phase))
    return out, {k: np.repeat(one, visits, axis=0) for k, one in go.parts.items()}
