"""Writing the operations of a region once for each piece, and putting together what leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from .follow import SIZED, Needs

aten = torch.ops.aten
_NARROW = (torch.bfloat16, torch.float16)


def written(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A new operation where the graph inserts now, with its fake result: shapes, strides and storages are known."""
    node = graph.call_function(target, args, kwargs)
    fakes = map_arg((args, kwargs), lambda other: other.meta["val"])
    modes = [x.fake_mode for x in torch.utils._pytree.tree_leaves(fakes) if hasattr(x, "fake_mode")]
    with modes[0] if modes else _mode_of(graph), torch.no_grad():
        node.meta["val"] = target(*fakes[0], **fakes[1])
    return node


def _mode_of(graph: Graph) -> Any:
    return next(x.fake_mode for node in graph.nodes if hasattr(x := node.meta.get("val"), "fake_mode"))


class Writer:
    """needs, dims, added, units: as in `chunks.Region`. All that the region takes comes before its first operation."""

    def __init__(
        self, graph: Graph, needs: Mapping[Node, Needs], dims: Mapping[Node, int], added: set[Node], units: int
    ) -> None:
        self.graph, self.needs, self.dims, self.added, self.units = graph, needs, dims, added, units
        self.nodes = [node for node in graph.nodes if node in needs]
        self.sums: dict[Node, Node] = {}
        self.parts: dict[Node, list[Node]] = {
            node: [] for node in self.nodes if node not in added and any(user not in needs for user in node.users)
        }

    def write(self, pieces: int) -> None:
        """Replace the region by its pieces."""
        with self.graph.inserting_before(self.nodes[0]):
            for k in range(pieces):
                self._piece(k * self.units // pieces, (k + 1) * self.units // pieces)
            for node, parts in self.parts.items():
                whole = written(self.graph, aten.cat.default, parts, self.dims[node])
                node.replace_all_uses_with(whole, delete_user_cb=self._outside)
            for node, total in self.sums.items():
                dtype = node.meta["val"].dtype
                if total.meta["val"].dtype != dtype:
                    total = written(self.graph, aten._to_copy.default, total, dtype=dtype)
                node.replace_all_uses_with(total, delete_user_cb=self._outside)
        for node in reversed(self.nodes):
            self.graph.erase_node(node)

    def _outside(self, user: Node) -> bool:
        return user not in self.needs

    def _piece(self, first: int, last: int) -> None:
        made: dict[Node, Node] = {}
        taken: dict[tuple[Node, int], Node] = {}

        def rows(whole: Node, dim: int) -> tuple[int, int]:
            each = int(whole.meta["val"].shape[dim]) // self.units
            return first * each, last * each

        for node in self.nodes:
            how = self.needs[node]

            def part(other: Node, how: Needs = how) -> Node:
                if other in made:
                    return made[other]
                dim = how[other]
                if dim is None:
                    return other
                if (other, dim) not in taken:
                    taken[other, dim] = written(self.graph, aten.slice.Tensor, other, dim, *rows(other, dim))
                return taken[other, dim]

            args, kwargs = map_arg((node.args, node.kwargs), part)
            if node in self.added:
                self._add(node, args, kwargs)
                continue
            if node.target in SIZED:
                dim = self.dims[node]
                low, high = rows(node, dim)
                size = [int(n) for n in node.meta["val"].shape]
                size[dim] = high - low
                args = (args[0], size, *args[2:])
            made[node] = written(self.graph, node.target, *args, **kwargs)
            if node in self.parts:
                self.parts[node].append(made[node])

    def _add(self, node: Node, args: Any, kwargs: Any) -> None:
        """Narrow numbers are added up as wide ones: a sum of many pieces would lose what one product does not."""
        narrow = node.meta["val"].dtype in _NARROW
        if node not in self.sums:
            one = written(self.graph, node.target, *args, **kwargs)
            self.sums[node] = written(self.graph, aten._to_copy.default, one, dtype=torch.float32) if narrow else one
        elif node.target is aten.mm.default and not narrow:  # product and sum at once: one tensor less in between
            self.sums[node] = written(self.graph, aten.addmm.default, self.sums[node], *args)
        else:
            one = written(self.graph, node.target, *args, **kwargs)
            self.sums[node] = written(self.graph, aten.add.Tensor, self.sums[node], one)
