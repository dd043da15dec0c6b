"""Cut operations that are too large into chunks of a few rows, each with operations of its own.

    traced, notes = cut(traced, 8)                   # losses over many tokens, in eight chunks
    traced, notes = cut(traced, {"batch": 4})        # everything with the batch dimension, in four chunks
    traced, notes = cut(traced, "auto", budget)      # what is too large for the budget, in as many chunks as needed

A language model holds its logits (tokens × vocabulary) several times: cast, log_softmax, gradients. None of them is
needed as a whole. So this module finds the operations on them (a *group*, see `groups`), writes each operation once for
every chunk of the tokens, and joins the results of the group: rows are concatenated, sums over tokens are added. The
logits of a chunk are freed before the next chunk begins, because their gradient does not need the loss of the others.

A dimension with a name is cut wherever it appears. "batch" is the first dimension of the tensors of the batch; modules
name dimensions of their parameters (`dims`, see `capture.named_dims`). A tensor without the dimension exists once for
all chunks.

Sums are added in another order than without chunks, so results are equal up to rounding, not bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stretto.errors import PlanError
from stretto.memory.capture.named_dims import check_dims, inputs_with_dim
from stretto.memory.capture.trace_function import module_of
from stretto.memory.capture.trace_step import TracedStep
from stretto.text import show_bytes

from .dim_layers import rank
from .group_runs import assign_runs
from .groups import ChunkGroup, GroupBuilder, given, measured, nbytes, touched, without_small_sums
from .prepare import join_equal_views, prepare
from .unroll import ChunkWriter, refresh_fakes, remember_inputs

aten = torch.ops.aten
Chunks = int | str | Mapping[str, int] | None
LOSSES, ALL = 1, 2  # values of `tight`: what is cut if there is no plan otherwise
_MOST = 256  # chunks of a group
_SEEDS = 64  # operations that are too large, tried in one sweep
_SWEEPS = 3  # sweeps over all operations for those that are too large
_SHOWN = 3  # notes about groups that are cut, and about those that cannot be
_WORTH = 0.7  # a cut must reduce the bytes that an operation touches to this share
# Operations that take no memory, or belong to parameters.
_FREE = ("view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "detach", "alias", "update", "copy_")


class CannotChunk(Exception):
    """Why a group is not cut."""


def check_chunks(chunks: Chunks) -> None:
    """Refuse a value of chunks= that has no meaning."""
    if isinstance(chunks, Mapping):
        fine = all(isinstance(name, str) and type(n) is int and n >= 1 for name, n in chunks.items())
    else:
        fine = chunks is None or chunks == "auto" or (type(chunks) is int and chunks >= 1)
    if not fine:
        raise PlanError(
            f"chunks={chunks!r} is not a number of chunks; give an integer of at least 1, "
            '"auto", None, or integers for named dimensions, as in {"batch": 4}'
        )


def cut(traced: TracedStep, chunks: Chunks, budget: int = 0, *, tight: int = 0) -> tuple[TracedStep, list[str]]:
    """Cut a traced step into chunks. Returns it with notes for the report.

    Parameters
    ----------
    traced : TracedStep
        The step.
    chunks : int, str, mapping or None
        The number of chunks of losses; numbers of chunks by name of a dimension; or "auto": cut losses whose operations
        take more than a quarter of the budget, into as many chunks as make them small.
    budget : int
        Bytes on the device, for "auto".
    tight : int
        With "auto". LOSSES: cut losses even if they are small, because the rest does not fit. ALL: also cut all other
        operations that are too large.
    """
    if isinstance(chunks, Mapping):
        check_dims(traced, chunks)
        chunks = {name: count for name, count in chunks.items() if count > 1}
    if not chunks or chunks == 1:
        return traced, []
    if not isinstance(chunks, Mapping) and tight < ALL and not _losses(traced.module.graph):
        return traced, []
    if chunks == "auto" and not tight and 4 * max(map(_touches, _operations(traced.module.graph)), default=0) <= budget:
        return traced, []  # nothing is too large; copying the step takes seconds
    graph = Graph()
    copies: dict[Node, Node] = {}
    graph.output(graph.graph_copy(traced.module.graph, copies))
    remember_inputs(graph)
    cutting = _Chunking(graph, budget, tight)
    try:
        prepare(graph)
        if isinstance(chunks, Mapping):
            for name, count in chunks.items():
                cutting.along(name, [(copies[node], dim) for node, dim in inputs_with_dim(traced, name)], count)
        else:
            cutting.losses(chunks)
            if chunks == "auto" and tight == ALL:
                cutting.too_large()
        cutting.what = "the step"
        graph.eliminate_dead_code()
        refresh_fakes(graph)
        graph.lint()
    except RecursionError:
        raise
    except (RuntimeError, ValueError, IndexError) as error:  # torch refuses an operation on a chunk: drop the graph
        return traced, [f"nothing is cut, because {cutting.what} cannot be: {str(error).splitlines()[0]}"]
    if not cutting.done:
        return traced, cutting.notes
    return replace(traced, module=module_of(traced.module, graph)), cutting.notes


def chunk_numbers(module: GraphModule) -> dict[str, tuple[int, int]]:
    """By name of an operation that was split: (number of its chunk, how many chunks)."""
    return {node.name: node.meta["chunk"] for node in module.graph.nodes if "chunk" in node.meta}


def _operations(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _losses(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.target is aten._log_softmax.default]


class _Chunking:
    """A step while it is cut.

    Attributes
    ----------
    what : str
        What is being cut, for notes.
    """

    def __init__(self, graph: Graph, budget: int, tight: int) -> None:
        self.graph, self.budget, self.tight = graph, budget, tight
        self.notes: list[str] = []
        self.done: set[Node] = set()
        self.what = "the step"
        self._refused: set[Node] = set()

    def losses(self, chunks: int | str) -> None:
        """Cut all losses, with the operations on tensors that are as large."""
        for loss in _losses(self.graph):
            if loss in self.done:  # two in one group
                continue
            self.what = f"{loss.name} of {_shape(loss)}"
            try:
                join_equal_views(self.graph, _as_large_as(loss))
                group = self._group_around(loss, one_layer=True)
                count = self._count(group, chunks)
                if count > 1:
                    self._write(group, count, f"the loss ({self.what}, up to {show_bytes(group.working)} for one ")
            except CannotChunk as error:
                self.notes.append(f"{self.what} is not cut: {error}")

    def along(self, name: str, tensors: list[tuple[Node, int]], count: int) -> None:
        """Cut a dimension wherever it appears."""
        self.what = f'"{name}"'
        growing = GroupBuilder()
        for node, dim in tensors:
            growing.from_tensor(node, dim)
        group = measured(without_small_sums(self.graph, growing.grow()))
        if not group.needs or group.units < 2:
            why = "it has only one row" if group.needs else "no operation that reads it can be cut into equal parts"
            self.notes.append(f"{self.what} is not cut: {why}")
            return
        long = tensors[0][0].meta["val"].shape[tensors[0][1]]
        many = f"{self.what} of {long:,} ({len(group.needs)} operations, up to {show_bytes(group.working)} for one "
        self._write(group, min(count, group.units, _MOST), many)

    def too_large(self) -> None:
        """Cut operations that take more than a quarter of the budget, the largest first."""
        refused: list[str] = []
        earlier, self.notes = self.notes, []
        for _ in range(_SWEEPS):
            before = len(self.done)
            refused = self._sweep()
            if len(self.done) == before:
                break
        more = len(self.notes) - _SHOWN
        last = [f"{more} more groups of operations are cut"] if more > 0 else []
        self.notes = [*earlier, *self.notes[:_SHOWN], *last, *refused[:_SHOWN]]

    def _sweep(self) -> list[str]:
        """Cut what is too large now. Chunks may be cut again, along another dimension. Returns notes on what cannot be
        cut."""
        large = [(_touches(node), node) for node in _operations(self.graph)]
        large = sorted((x for x in large if 4 * x[0] > self.budget), key=lambda x: -x[0])
        refused: list[str] = []
        for node in dict.fromkeys(_largest(node) for _, node in large[:_SEEDS]):
            if node in self.done or node in self._refused:
                continue
            self.what = f"{node.name} of {_shape(node)}"
            try:
                group = self._group_around(node, one_layer=False)
            except CannotChunk as error:
                refused.append(f"{self.what} is not cut: {error}")
                continue
            count = min(-(-8 * group.working // self.budget), group.units, _MOST)
            if count < 2:
                continue
            what = f"{len(group.needs)} operations around {self.what} (up to {show_bytes(group.working)} for one "
            self._write(group, count, what, "are")
        return refused

    def _group_around(self, node: Node, *, one_layer: bool) -> ChunkGroup:
        """The group of operations on tensors that are as large as this one, along the first dimension that can be cut.

        A group of more than one layer must reduce memory enough.
        """
        why = "the dimension cannot be followed"
        for dim in range(rank(node)):
            growing = GroupBuilder(_as_large_as(node), one_layer=one_layer)
            if not growing.from_operation(node, dim):
                continue
            group = measured(without_small_sums(self.graph, growing.grow()))
            if group.units < 2:
                why = "it has only one row"
            elif not one_layer and touched(group, min(group.units, _MOST)) > _WORTH * touched(group, 1):
                why = "the whole tensors before and after it need as much memory"
                self._refused.update(group.needs)  # the other operations of the group would be refused as well
            else:
                return group
        raise CannotChunk(why)

    def _count(self, group: ChunkGroup, chunks: int | str) -> int:
        if isinstance(chunks, int):
            wanted = chunks
        elif self.tight and 64 * group.working > self.budget:
            wanted = max(2, -(-32 * group.working // self.budget))
        elif 4 * group.working > self.budget:
            wanted = -(-8 * group.working // self.budget)
        else:
            return 1
        return min(wanted, group.units, _MOST)

    def _write(self, group: ChunkGroup, count: int, what: str, verb: str = "is") -> None:
        self.done.update(group.needs)
        ChunkWriter(self.graph, assign_runs(self.graph, group)).write(count)
        self.notes.append(f"{what}operation) {verb} cut into {count} chunks: results are equal up to rounding")


def _as_large_as(seed: Node) -> Any:
    least = seed.meta["val"].numel() / 2

    def large(node: Node) -> bool:
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and value.numel() >= least

    return large


def _touches(node: Node) -> int:
    """Bytes that an operation reads and writes."""
    if str(getattr(node.target, "__name__", node.target)).split(".")[0] in _FREE:
        return 0
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return 0
    return nbytes(node) + sum(nbytes(other) for other in node.all_input_nodes)


def _largest(node: Node) -> Node:
    """The largest of the tensors that an operation reads and writes: the one to cut."""
    made = [other for other in node.all_input_nodes if not given(other)]
    tensors = [other for other in made if isinstance(other.meta.get("val"), torch.Tensor)]
    return max([node, *tensors], key=nbytes)


def _shape(node: Node) -> str:
    return " × ".join(f"{n:,}" for n in node.meta["val"].shape)
