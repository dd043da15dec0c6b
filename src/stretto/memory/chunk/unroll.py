"""Writing the operations of a group once for each piece, and putting together what leaves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from stretto.memory.capture.lift import begins_backward

from .dim_layers import Needs, with_rows
from .dim_rules import SIZED, VIEWS
from .groups import Group

aten = torch.ops.aten
_NARROW = (torch.bfloat16, torch.float16)
_CLOSE = {"memory_format": torch.contiguous_format}


def written(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A new operation where the graph inserts now, with its fake result: shapes, strides and storages are known."""
    fakes = map_arg((args, kwargs), lambda other: other.meta["val"])
    modes = [x.fake_mode for x in torch.utils._pytree.tree_leaves(fakes) if hasattr(x, "fake_mode")]
    with modes[0] if modes else _mode_of(graph), torch.no_grad():
        value = target(*fakes[0], **fakes[1])
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = value
    node.meta["of"] = [other.meta["val"] for other in node.all_input_nodes]
    return node


def noted(graph: Graph) -> None:
    """Note of all operations what their fake results were made of, to see later whether that has been replaced, and
    whether they are on the way forward: pieces go to and fro."""
    forward = True
    for node in graph.nodes:
        if node.op == "call_function":
            forward = forward and not begins_backward(node)
            node.meta["of"] = [other.meta.get("val") for other in node.all_input_nodes]
            node.meta["forward"] = forward


def made_again(graph: Graph) -> None:
    """Fake results of what has been replaced: views are views of what is there now, and other strides are seen."""
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
                node.args = (written(graph, aten.clone.default, node.args[0], **_CLOSE), *node.args[1:])
            value = _fake(graph, node)
        if _held(value) & _held(now) or _layout(value) != _layout(node.meta["val"]):
            node.meta["val"] = value


def _fake(graph: Graph, node: Node) -> Any:
    args, kwargs = map_arg((node.args, node.kwargs), lambda other: other.meta["val"])
    with _mode_of(graph), torch.no_grad():
        return node.target(*[list(a) if isinstance(a, list) else a for a in args], **kwargs)


def laid_out_as(graph: Graph, parts: Sequence[Node], like: torch.Tensor, dim: int | None = None) -> Node:
    """Parts joined along a dimension, or one of them, such that they lie in memory as `like` does: dimensions in the
    order of its strides, without gaps."""
    order = _order(like)
    plain = order == list(range(like.dim()))
    turned = list(parts) if plain else [written(graph, aten.permute.default, part, order) for part in parts]
    if dim is None:
        whole = written(graph, aten.clone.default, turned[0], **_CLOSE)
    else:
        whole = written(graph, aten.cat.default, turned, order.index(dim))
    back = [order.index(d) for d in range(like.dim())]
    return whole if plain else written(graph, aten.permute.default, whole, back)


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


def _marked(after: Node, until: Node, piece: tuple[int, int]) -> None:
    """Say of new operations which piece they are, of how many; pieces of pieces are of the first."""
    node = after.next
    while node is not until:
        node.meta.setdefault("piece", piece)
        node = node.next


class Writer:
    """Writes a group, run by run. All that a run takes comes before its first operation when it is written."""

    def __init__(self, graph: Graph, group: Group) -> None:
        self.graph, self.group = graph, group
        self.made: dict[tuple[Node, int], Node] = {}  # by operation and piece
        self.wholes: dict[Node, Node] = {}  # sums over all pieces

    def write(self, pieces: int) -> None:
        """Replace the group by its pieces."""
        bounds = [k * self.group.units // pieces for k in range(pieces + 1)]
        for run, before in zip(self.group.runs, self.group.before, strict=True):
            for node in before:
                run[0].prepend(node)
            with self.graph.inserting_before(run[0]):
                sums: dict[Node, Node] = {}
                for k in range(pieces):
                    before_it = run[0].prev
                    self._piece(run, k, bounds[k], bounds[k + 1], sums)
                    _marked(before_it, run[0], (k, pieces))
                for node in run:
                    self._put_together(node, pieces, sums)
        for run in reversed(self.group.runs):
            for node in reversed(run):
                self.graph.erase_node(node)

    def _outside(self, user: Node) -> bool:
        return user not in self.group.needs

    def _put_together(self, node: Node, pieces: int, sums: Mapping[Node, Node]) -> None:
        """What others take of an operation that was cut."""
        group = self.group
        if node in sums:
            whole, dtype = sums[node], node.meta["val"].dtype
            if whole.meta["val"].dtype != dtype:
                whole = written(self.graph, aten._to_copy.default, whole, dtype=dtype)
            self.wholes[node] = whole
        elif node in group.alike:
            whole = self.made[node, 0]
        elif any(self._outside(user) for user in node.users):
            parts = [self.made[node, k] for k in range(pieces)]
            whole = laid_out_as(self.graph, parts, node.meta["val"], group.dims[node])
        else:
            return
        node.replace_all_uses_with(whole, delete_user_cb=self._outside)

    def _piece(self, run: Sequence[Node], k: int, first: int, last: int, sums: dict[Node, Node]) -> None:
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
                    taken[other, dim] = written(self.graph, aten.slice.Tensor, other, dim, *rows(other, dim))
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
                # A CPU's kernel is wrong if x and its gradient lie in memory in different ways.
                gradient, x = (one.meta["val"] for one in args[:2])
                if _order(gradient) != _order(x):
                    args = (laid_out_as(self.graph, args[:1], x), *args[1:])
            self.made[node, k] = self._written(node, with_rows(node, args), kwargs)
            self.made[node, k].meta["forward"] = node.meta.get("forward", True)

    def _written(self, node: Node, args: Any, kwargs: Any) -> Node:
        try:
            return written(self.graph, node.target, *args, **kwargs)
        except (RuntimeError, ValueError):
            if node.target not in VIEWS:
                raise
            # A piece of a tensor lies in memory with gaps, over which it cannot be seen in another shape.
            close = written(self.graph, aten.clone.default, args[0], **_CLOSE)
            return written(self.graph, node.target, close, *args[1:], **kwargs)

    def _add(self, node: Node, args: Any, kwargs: Any, sums: dict[Node, Node]) -> None:
        """Narrow numbers are added up as wide ones: a sum of many pieces would lose what one product does not."""
        narrow = node.meta["val"].dtype in _NARROW
        if node not in sums:
            one = written(self.graph, node.target, *args, **kwargs)
            sums[node] = written(self.graph, aten._to_copy.default, one, dtype=torch.float32) if narrow else one
        elif node.target is aten.mm.default and not narrow:  # product and sum at once: one tensor less in between
            sums[node] = written(self.graph, aten.addmm.default, sums[node], *args)
        else:
            one = written(self.graph, node.target, *args, **kwargs)
            sums[node] = written(self.graph, aten.add.Tensor, sums[node], one)
