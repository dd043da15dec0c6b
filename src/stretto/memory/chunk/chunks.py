"""Cutting operations that are too large: a few rows at a time, each piece with operations of its own.

    traced, notes = cut(traced, 8)                   # losses over many words, in eight pieces
    traced, notes = cut(traced, {"batch": 4})        # all that has a batch in it, four parts of the batch in turn
    traced, notes = cut(traced, "auto", budget)      # what is too large for the budget, in as many as that takes

A language model's logits (tokens × words) are there several times over: cast, log_softmax, gradients. None of them is
wanted as a whole. So the operations that touch them are found (a *group*, see `groups`), each is written once for every
piece of the tokens, and what leaves the group is put together again: rows are joined, sums over tokens are added up. A
piece's logits are gone when its turn is over, because its gradient does not wait for the loss of the others.

A dimension with a name is cut wherever it goes. "batch" is the first one of the tensors of the batch; modules name
dimensions of their parameters (`dims`, see `named`). A tensor without that dimension is there once, for all pieces.

Sums are added in another order than in the step as it was, so results are equal up to rounding, not bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, Node

from stretto.errors import PlanError
from stretto.memory.capture.named_dims import found_dims, starts
from stretto.memory.capture.trace_function import module_of
from stretto.memory.capture.trace_step import Traced
from stretto.plan.cost import show_bytes

from .dim_layers import rank
from .group_runs import in_runs
from .groups import Group, Growing, given, measured, nbytes, sums_first, touched
from .prepare import made_ready, same_shapes_joined
from .unroll import Writer, made_again, noted

aten = torch.ops.aten
Chunks = int | str | Mapping[str, int] | None
LOSSES, ALL = 1, 2  # what is cut when there is no plan otherwise
_MOST = 256  # pieces
_SEEDS = 64  # operations that are too large, of which it is tried
_SWEEPS = 3  # over all operations, for those that are too large
_TOLD = 3  # of groups, and of those that cannot be cut
_WORTH = 0.7  # of what an operation touched, that it may still touch
# What takes no memory, or belongs to parameters.
_FREE = ("view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "detach", "alias", "update", "copy_")


class CannotCut(Exception):
    """Why a group stays as it is."""


def check_chunks(chunks: Chunks) -> None:
    """That it says how to cut."""
    if isinstance(chunks, Mapping):
        fine = all(isinstance(name, str) and type(n) is int and n >= 1 for name, n in chunks.items())
    else:
        fine = chunks is None or chunks == "auto" or (type(chunks) is int and chunks >= 1)
    if not fine:
        raise PlanError(
            f"chunks={chunks!r} is not a number of pieces; give one from 1 on, "
            '"auto", None, or numbers for dimensions, as in {"batch": 4}'
        )


def cut(traced: Traced, chunks: Chunks, budget: int = 0, *, tight: int = 0) -> tuple[Traced, list[str]]:
    """The step with pieces in it, and what was done. chunks: pieces of losses; pieces by name of a dimension; "auto":
    losses, into as many as make an operation's part of the budget small, none if it is (less than a quarter). tight:
    LOSSES: also then, because the rest does not fit; ALL: all other operations that are too large, too."""
    if isinstance(chunks, Mapping):
        found_dims(traced, chunks)
        chunks = {name: pieces for name, pieces in chunks.items() if pieces > 1}
    if not chunks or chunks == 1:
        return traced, []
    if not isinstance(chunks, Mapping) and tight < ALL and not _losses(traced.module.graph):
        return traced, []
    if chunks == "auto" and not tight and 4 * max(map(_touches, _operations(traced.module.graph)), default=0) <= budget:
        return traced, []  # nothing is too large; copying the step takes seconds
    graph = Graph()
    copies: dict[Node, Node] = {}
    graph.output(graph.graph_copy(traced.module.graph, copies))
    noted(graph)
    cutting = _Cutting(graph, budget, tight)
    try:
        made_ready(graph)
        if isinstance(chunks, Mapping):
            for name, pieces in chunks.items():
                cutting.along(name, [(copies[node], dim) for node, dim in starts(traced, name)], pieces)
        else:
            cutting.losses(chunks)
            if chunks == "auto" and tight == ALL:
                cutting.too_large()
        cutting.what = "the step"
        graph.eliminate_dead_code()
        made_again(graph)
        graph.lint()
    except RecursionError:
        raise
    except (RuntimeError, ValueError, IndexError) as error:  # torch refuses an operation on a piece: half is written
        return traced, [f"{cutting.what} is not cut, nor is anything else: {str(error).splitlines()[0]}"]
    if not cutting.done:
        return traced, cutting.notes
    return replace(traced, module=module_of(traced.module, graph)), cutting.notes


def _operations(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _losses(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.target is aten._log_softmax.default]


class _Cutting:
    """A step while it is cut. what: what it is at."""

    def __init__(self, graph: Graph, budget: int, tight: int) -> None:
        self.graph, self.budget, self.tight = graph, budget, tight
        self.notes: list[str] = []
        self.done: set[Node] = set()
        self.what = "the step"
        self._refused: set[Node] = set()

    def losses(self, chunks: int | str) -> None:
        """All of them, with what touches the tensors that are as large."""
        for loss in _losses(self.graph):
            if loss in self.done:  # two in one group
                continue
            self.what = f"{loss.name} of {_shape(loss)}"
            try:
                same_shapes_joined(self.graph, _as_large_as(loss))
                group = self._around(loss, one_layer=True)
                pieces = self._count(group, chunks)
                if pieces > 1:
                    self._write(group, pieces, f"the loss ({self.what}, up to {show_bytes(group.working)} for one ")
            except CannotCut as error:
                self.notes.append(f"{self.what} is not cut: {error}")

    def along(self, name: str, tensors: list[tuple[Node, int]], pieces: int) -> None:
        """A dimension, wherever it goes."""
        self.what = f'"{name}"'
        growing = Growing()
        for node, dim in tensors:
            growing.from_tensor(node, dim)
        group = measured(sums_first(self.graph, growing.grown()))
        if not group.needs or group.units < 2:
            why = (
                "there is only one row of it" if group.needs else "no operation that takes it can be cut in equal parts"
            )
            self.notes.append(f"{self.what} is not cut: {why}")
            return
        long = tensors[0][0].meta["val"].shape[tensors[0][1]]
        many = f"{self.what} of {long:,} ({len(group.needs)} operations, up to {show_bytes(group.working)} for one "
        self._write(group, min(pieces, group.units, _MOST), many)

    def too_large(self) -> None:
        """Operations that take more than a quarter of the budget, the largest first."""
        refused: list[str] = []
        told, self.notes = self.notes, []
        for _ in range(_SWEEPS):
            before = len(self.done)
            refused = self._sweep()
            if len(self.done) == before:
                break
        more = len(self.notes) - _TOLD
        last = [f"{more} more groups of operations are cut"] if more > 0 else []
        self.notes = [*told, *self.notes[:_TOLD], *last, *refused[:_TOLD]]

    def _sweep(self) -> list[str]:
        """Cut what is too large now; pieces may still be, along another dimension. Returns what cannot be cut."""
        large = [(_touches(node), node) for node in _operations(self.graph)]
        large = sorted((x for x in large if 4 * x[0] > self.budget), key=lambda x: -x[0])
        refused: list[str] = []
        for node in dict.fromkeys(_largest(node) for _, node in large[:_SEEDS]):
            if node in self.done or node in self._refused:
                continue
            self.what = f"{node.name} of {_shape(node)}"
            try:
                group = self._around(node, one_layer=False)
            except CannotCut as error:
                refused.append(f"{self.what} is not cut: {error}")
                continue
            pieces = min(-(-8 * group.working // self.budget), group.units, _MOST)
            if pieces < 2:
                continue
            said = f"{len(group.needs)} operations around {self.what} (up to {show_bytes(group.working)} for one "
            self._write(group, pieces, said, "are")
        return refused

    def _around(self, node: Node, *, one_layer: bool) -> Group:
        """What touches tensors that are as large as this one, along the first dimension that it can be cut along. More
        than one layer of them must be worth it."""
        why = "the dimension cannot be followed"
        for dim in range(rank(node)):
            growing = Growing(_as_large_as(node), one_layer=one_layer)
            if not growing.from_operation(node, dim):
                continue
            group = measured(sums_first(self.graph, growing.grown()))
            if group.units < 2:
                why = "there is only one row of it"
            elif not one_layer and touched(group, min(group.units, _MOST)) > _WORTH * touched(group, 1):
                why = "what is there as a whole before and after it takes as much"
                self._refused.update(group.needs)  # others of it would not fare better
            else:
                return group
        raise CannotCut(why)

    def _count(self, group: Group, chunks: int | str) -> int:
        if isinstance(chunks, int):
            wanted = chunks
        elif self.tight and 64 * group.working > self.budget:
            wanted = max(2, -(-32 * group.working // self.budget))
        elif 4 * group.working > self.budget:
            wanted = -(-8 * group.working // self.budget)
        else:
            return 1
        return min(wanted, group.units, _MOST)

    def _write(self, group: Group, pieces: int, what: str, verb: str = "is") -> None:
        self.done.update(group.needs)
        Writer(self.graph, in_runs(self.graph, group)).write(pieces)
        self.notes.append(f"{what}operation) {verb} cut into {pieces} pieces: results are equal up to rounding")


def _as_large_as(seed: Node) -> Any:
    least = seed.meta["val"].numel() / 2

    def large(node: Node) -> bool:
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and value.numel() >= least

    return large


def _touches(node: Node) -> int:
    """Bytes that an operation takes and makes."""
    if str(getattr(node.target, "__name__", node.target)).split(".")[0] in _FREE:
        return 0
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return 0
    return nbytes(node) + sum(nbytes(other) for other in node.all_input_nodes)


def _largest(node: Node) -> Node:
    """The largest of what an operation makes and takes: the one to be cut."""
    made = [other for other in node.all_input_nodes if not given(other)]
    tensors = [other for other in made if isinstance(other.meta.get("val"), torch.Tensor)]
    return max([node, *tensors], key=nbytes)


def _shape(node: Node) -> str:
    return " × ".join(f"{n:,}" for n in node.meta["val"].shape)
