"""Write the operations of a group once for each chunk, and join the results that leave the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from stretto.memory.capture.lift import begins_backward

from .dim_layers import Needs, with_rows
from .dim_rules import SIZED, VIEWS
from .groups import ChunkGroup

aten = torch.ops.aten
_NARROW = (torch.bfloat16, torch.float16)
_CONTIGUOUS = {"memory_format": torch.contiguous_format}


def add_operation(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    """Insert an operation at the graph's insertion point, with its fake result."""
    fakes = map_arg((args, kwargs), lambda other: other.meta["val"])
    modes = [x.fake_mode for x in torch.utils._pytree.tree_leaves(fakes) if hasattr(x, "fake_mode")]
    with modes[0] if modes else _mode_of(graph), torch.no_grad():
        value = target(*fakes[0], **fakes[1])
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = value
    node.meta["of"] = [other.meta["val"] for other in node.all_input_nodes]
    return node


def remember_inputs(graph: Graph) -> None:
    """Store for each operation the fake inputs of its result, and whether it belongs to the forward pass.

    `refresh_fakes` compares the inputs later. The order of operations no longer gives the pass once they are in chunks.
    """
    forward = True
    for node in graph.nodes:
        if node.op == "call_function":
            forward = forward and not begins_backward(node)
            node.meta["of"] = [other.meta.get("val") for other in node.all_input_nodes]
            node.meta["forward"] = forward


def refresh_fakes(graph: Graph) -> None:
    """Recompute the fake results of operations whose inputs were replaced, so that views and strides are those of the
    inputs."""
    for node in graph.nodes:
        of = node.meta.pop("of", None)
        now = [other.meta.get("val") for other in node.all_input_nodes]
        if of is None or all(a is b for a, b in zip(of, now, strict=True)):
            continue
        try:
            value = _fake(graph, node)
        except (RuntimeError, ValueError):
            if node.target not in VIEWS:
                raise
            with graph.inserting_before(node):
                node.args = (add_operation(graph, aten.clone.default, node.args[0], **_CONTIGUOUS), *node.args[1:])
            value = _fake(graph, node)
        if _held(value) & _held(now) or _layout(value) != _layout(node.meta["val"]):
            node.meta["val"] = value


def _fake(graph: Graph, node: Node) -> Any:
    args, kwargs = map_arg((node.args, node.kwargs), lambda other: other.meta["val"])
    with _mode_of(graph), torch.no_grad():
        return node.target(*[list(a) if isinstance(a, list) else a for a in args], **kwargs)


def with_layout_of(graph: Graph, parts: Sequence[Node], like: torch.Tensor, dim: int | None = None) -> Node:
    """Join parts along a dimension, or copy one part, with the memory layout of `like`.

    The result is contiguous in the order of `like`'s strides.
    """
    order = _order(like)
    plain = order == list(range(like.dim()))
    turned = list(parts) if plain else [add_operation(graph, aten.permute.default, part, order) for part in parts]
    if dim is None:
        whole = add_operation(graph, aten.clone.default, turned[0], **_CONTIGUOUS)
    else:
        whole = add_operation(graph, aten.cat.default, turned, order.index(dim))
    back = [order.index(d) for d in range(like.dim())]
    return whole if plain else add_operation(graph, aten.permute.default, whole, back)


def _order(value: torch.Tensor) -> list[int]:
    """Dimensions, those with the largest strides first."""
    return sorted(range(value.dim()), key=lambda d: (-value.stride(d), d))


def _held(values: Any) -> set[int]:
    """Storages of fake results, by identity."""
    leaves = torch.utils._pytree.tree_leaves(values)
    return {x.untyped_storage()._cdata for x in leaves if isinstance(x, torch.Tensor)}


def _layout(values: Any) -> list[Any]:
    leaves = torch.utils._pytree.tree_leaves(values)
    return [(x.shape, x.stride(), x.storage_offset()) for x in leaves if isinstance(x, torch.Tensor)]


def _mode_of(graph: Graph) -> Any:
    return next(x.fake_mode for node in graph.nodes if hasattr(x := node.meta.get("val"), "fake_mode"))


def _mark(after: Node, until: Node, chunk: tuple[int, int]) -> None:
    """Mark new operations with (number of their chunk, how many). Chunks of chunks keep their first mark."""
    node = after.next
    while node is not until:
        node.meta.setdefault("chunk", chunk)
        node = node.next


class ChunkWriter:
    """Writes a group, run by run. Everything that a run reads comes before its first operation."""

    def __init__(self, graph: Graph, group: ChunkGroup) -> None:
        self.graph, self.group = graph, group
        self.made: dict[tuple[Node, int], Node] = {}  # by operation and chunk: the new operation
        self.wholes: dict[Node, Node] = {}  # by operation: the sum over all chunks

    def write(self, count: int) -> None:
        """Replace the operations of the group by one for each chunk."""
        bounds = [k * self.group.units // count for k in range(count + 1)]
        for run, before in zip(self.group.runs, self.group.before, strict=True):
            for node in before:
                run[0].prepend(node)
            with self.graph.inserting_before(run[0]):
                sums: dict[Node, Node] = {}
                for k in range(count):
                    before_it = run[0].prev
                    self._write_chunk(run, k, bounds[k], bounds[k + 1], sums)
                    _mark(before_it, run[0], (k, count))
                for node in run:
                    self._join(node, count, sums)
        for run in reversed(self.group.runs):
            for node in reversed(run):
                self.graph.erase_node(node)

    def _outside(self, user: Node) -> bool:
        return user not in self.group.needs

    def _join(self, node: Node, count: int, sums: Mapping[Node, Node]) -> None:
        """Join the chunks of an operation for the operations outside the group that read it."""
        group = self.group
        if node in sums:
            whole, dtype = sums[node], node.meta["val"].dtype
            if whole.meta["val"].dtype != dtype:
                whole = add_operation(self.graph, aten._to_copy.default, whole, dtype=dtype)
            self.wholes[node] = whole
        elif node in group.alike:
            whole = self.made[node, 0]
        elif any(self._outside(user) for user in node.users):
            parts = [self.made[node, k] for k in range(count)]
            whole = with_layout_of(self.graph, parts, node.meta["val"], group.dims[node])
        else:
            return
        node.replace_all_uses_with(whole, delete_user_cb=self._outside)

    def _write_chunk(self, run: Sequence[Node], k: int, first: int, last: int, sums: dict[Node, Node]) -> None:
        """Write the operations of a run for chunk `k`, which has the units from `first` to `last`."""
        group, taken = self.group, dict[tuple[Node, int], Node]()

        def rows(whole: Node, dim: int) -> tuple[int, int]:
            each = int(whole.meta["val"].shape[dim]) // group.units
            return first * each, last * each

        for node in run:
            how = group.needs[node]

            def part(other: Node, how: Needs = how) -> Node:
                if (other, k) in self.made:
                    return self.made[other, k]
                dim = how[other]
                if dim is None:
                    return self.wholes.get(other, other)
                if (other, dim) not in taken:
                    taken[other, dim] = add_operation(self.graph, aten.slice.Tensor, other, dim, *rows(other, dim))
                return taken[other, dim]

            args, kwargs = map_arg((node.args, node.kwargs), part)
            if node in group.added:
                self._add(node, args, kwargs, sums)
                continue
            dim = group.dims.get(node)
            if node.target in SIZED and dim is not None:
                low, high = rows(node, dim)
                size = [int(n) for n in node.meta["val"].shape]
                size[dim] = high - low
                args = (args[0], size, *args[2:])
            if node.target is aten.native_group_norm_backward.default:
                # The kernel for CPUs is wrong if x and its gradient have different layouts.
                gradient, x = (one.meta["val"] for one in args[:2])
                if _order(gradient) != _order(x):
                    args = (with_layout_of(self.graph, args[:1], x), *args[1:])
            self.made[node, k] = self._add_part(node, with_rows(node, args), kwargs)
            self.made[node, k].meta["forward"] = node.meta.get("forward", True)

    def _add_part(self, node: Node, args: Any, kwargs: Any) -> Node:
        try:
            return add_operation(self.graph, node.target, *args, **kwargs)
        except (RuntimeError, ValueError):
            if node.target not in VIEWS:
                raise
            # A slice is not contiguous, so a view with another shape needs a copy.
            close = add_operation(self.graph, aten.clone.default, args[0], **_CONTIGUOUS)
            return add_operation(self.graph, node.target, close, *args[1:], **kwargs)

    def _add(self, node: Node, args: Any, kwargs: Any, sums: dict[Node, Node]) -> None:
        """Add an operation of one chunk to its sum over chunks.

        Sums of bfloat16 and float16 are kept in float32: many additions would lose precision that one product has.
        """
        narrow = node.meta["val"].dtype in _NARROW
        if node not in sums:
            one = add_operation(self.graph, node.target, *args, **kwargs)
            sums[node] = add_operation(self.graph, aten._to_copy.default, one, dtype=torch.float32) if narrow else one
        elif node.target is aten.mm.default and not narrow:  # product and sum at once need no tensor in between
            sums[node] = add_operation(self.graph, aten.addmm.default, sums[node], *args)
        else:
            one = add_operation(self.graph, node.target, *args, **kwargs)
            sums[node] = add_operation(self.graph, aten.add.Tensor, sums[node], one)
