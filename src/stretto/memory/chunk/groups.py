"""Find the group of operations that run for one chunk after another.

A *group* is cut along one dimension, whatever its index is in each tensor. It grows from a start to the operations that
read or write a cut tensor, as far as rules exist (`dim_rules`, `dim_layers`). At its border, inputs are sliced and
results are joined.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, Node

from .dim_layers import ADDED, ALIKE, Needs, Results, has_several, needs_several, rank
from .dim_rules import MATMULS, VIEWS, needs, sums

aten = torch.ops.aten
_HOPS = 6  # operations on small tensors allowed between those on large ones, such as the maximum of a row
_SMALL = 8  # sums are computed before a group if they touch less than its largest tensor divided by this
_SAME = (aten.detach.default, aten.alias.default)
_VIEW_OPS = (*_SAME, *VIEWS, aten.t.default, aten.transpose.int, aten.permute.default)

Large = Callable[[Node], bool]


@dataclass(eq=False)
class ChunkGroup:
    """Operations that are cut along one dimension."""

    needs: dict[Node, Needs] = field(default_factory=dict)  # by operation: along which dimension each input is cut
    dims: dict[Node, int] = field(default_factory=dict)  # by operation: the dimension along which its result is cut
    added: set[Node] = field(default_factory=set)  # operations whose results are sums over chunks
    alike: set[Node] = field(default_factory=set)  # operations whose results are the same for every chunk
    units: int = 1  # the number of equal parts into which everything can be cut
    working: int = 0  # bytes that one operation touches at most
    runs: list[list[Node]] = field(default_factory=list)  # by run: its operations, in order
    before: list[list[Node]] = field(default_factory=list)  # by run: operations that must come before it, in order


def everything(node: Node) -> bool:
    """Grow along a dimension wherever it appears."""
    return True


class GroupBuilder:
    """A group while it grows.

    Parameters
    ----------
    large : callable
        Whether to grow from a tensor. Small tensors are cut if they are between large ones, or computed from them.
    one_layer : bool
        Stop at matrix products, behind which another layer begins.
    """

    def __init__(self, large: Large = everything, *, one_layer: bool = False) -> None:
        self.group, self.large, self._ends = ChunkGroup(), large, MATMULS if one_layer else ()
        self._whole: dict[Node, int] = {}  # by tensor from outside: the dimension along which it is sliced
        self._hops: dict[Node, int] = {}  # by operation: how many operations on small tensors lead to it
        self._left: list[Node] = []  # tensors whose users are not visited yet
        self._wanted: list[tuple[Node, int]] = []  # inputs to be computed in chunks, with their dimension
        self._parts = 0  # the number of equal parts into which the group can be cut

    def from_tensor(self, node: Node, dim: int) -> None:
        """Start from a tensor that is available as a whole."""
        self._whole[node] = dim
        self._hops[node] = 0
        self._left.append(node)

    def from_operation(self, node: Node, dim: int) -> bool:
        """Start from the operation that computes a tensor. Returns whether it can be cut."""
        return self._make(node, dim)

    def grow(self) -> ChunkGroup:
        """Grow as far as possible."""
        while self._left or self._wanted:
            if self._wanted:
                wanted, dim = self._wanted.pop()
                if wanted not in self.group.dims:
                    self._make(wanted, dim)
                continue
            node = self._left.pop()
            for user in list(node.users):
                self._take(user, self._hops[node])
        self._prune()
        return self.group

    def _take(self, node: Node, hops: int) -> None:
        """Add an operation that reads a cut tensor, if it can be cut."""
        group = self.group
        if node.op != "call_function" or node in group.needs or node.target is operator.getitem:
            self._same_shape(node)
            return
        if node.target in _SAME and node.args[0] in self._whole:  # still a whole tensor, such as a parameter
            self.from_tensor(node, self._whole[node.args[0]])
            return
        if has_several(node):
            results = node.meta["val"]
            for dim in range(max((r.dim() for r in results if isinstance(r, torch.Tensor)), default=1) or 1):
                found = needs_several(node, dim)
                if found is not None and self._fits(node, found[0]) and self._enter_several(node, *found, dim, hops):
                    return
        else:
            for dim in range(rank(node)):
                how = needs(node, dim)
                if how is not None and self._fits(node, how) and self._enter(node, how, dim, hops):
                    return
            for how in sums(node):
                if self._fits(node, how) and self._enter(node, how, None, hops):
                    group.added.add(node)
                    return
        self._same_shape(node)

    def _fits(self, node: Node, how: Needs) -> bool:
        """Whether an operation reads all cut tensors as they are cut, and at least one of them."""
        dims, found = self.group.dims, False
        for other, dim in how.items():
            if other in dims or other in self.group.added:
                if dims.get(other) != dim:
                    return False
                found = found or dim is not None
            elif other in self._whole:
                found = found or dim == self._whole[other]
        return found

    def _enter(self, node: Node, how: Needs, dim: int | None, hops: int, *, up: bool = False) -> bool:
        """Add an operation, unless a member reads its result in another way than it would be cut."""
        group = self.group
        if any(user in group.needs and group.needs[user].get(node) != dim for user in node.users):
            return False
        if not self._parted([*how.items(), (node, dim)]):
            return False
        group.needs[node] = how
        if dim is not None:
            group.dims[node] = dim
        self._go_on(node, how, dim, hops, up=up)
        return True

    def _parted(self, tensors: Iterable[tuple[Node, int | None]]) -> bool:
        """Whether these tensors can be cut into equal parts too: 15 rows viewed as 8 cannot."""
        parts = math.gcd(self._parts, *(_shape(x)[dim] for x, dim in tensors if dim is not None and _shape(x)))
        if parts == 1 < self._parts:
            return False
        self._parts = parts
        return True

    def _go_on(self, node: Node, how: Needs, dim: int | None, hops: int, *, up: bool = False) -> None:
        """Grow from a new member to the users of its result and to its inputs. up: the member computes an input of
        another."""
        if any(dim is not None and self.large(other) for other, dim in how.items()):
            hops = 0
        self._hops[node] = 0 if self.large(node) else hops + 1
        ends = node.target in self._ends
        if dim is not None and self._hops[node] <= _HOPS and (up or not ends):
            self._left.append(node)
        if ends:
            return
        for other, at in how.items():
            if at is not None and other not in self.group.dims and other not in self._whole and self.large(other):
                self._wanted.append((other, at))

    def _make(self, node: Node, dim: int) -> bool:
        """Add the operation that computes a wanted tensor, if it can be cut."""
        if node.op != "call_function" or node in self.group.needs or given(node):
            return False
        if node.target is operator.getitem:
            return self._make_one_of_several(node, dim)
        if has_several(node):
            return False
        how = needs(node, dim)
        return how is not None and self._agrees(how) and self._enter(node, how, dim, 0, up=True)

    def _make_one_of_several(self, node: Node, dim: int) -> bool:
        made, which = node.args[0], node.args[1]
        if not isinstance(made, Node) or made in self.group.needs or not isinstance(which, int):
            return False
        for first in range(rank(node) + 1):
            found = needs_several(made, first)
            if found is not None and which < len(found[1]) and found[1][which] == dim and self._agrees(found[0]):
                return self._enter_several(made, *found, first, 0)
        return False

    def _agrees(self, how: Needs) -> bool:
        """Whether an operation reads all cut tensors as they are cut."""
        group = self.group
        return all(
            dim == group.dims.get(other) for other, dim in how.items() if other in group.dims or other in group.added
        )

    def _enter_several(self, node: Node, how: Needs, results: Results, dim: int, hops: int) -> bool:
        """Add an operation and each of its results."""
        group = self.group
        ones: dict[Node, int] = {}
        for user in node.users:
            which = user.args[1] if user.target is operator.getitem else None
            if not isinstance(which, int) or which >= len(results):
                return False
            ones[user] = results[which]
        cut = [(one, at) for one, at in ones.items() if at >= 0]
        for one, at in ones.items():
            taken = at if at >= 0 else None
            if any(user in group.needs and group.needs[user].get(one) != taken for user in one.users):
                return False
        if not self._parted([*how.items(), *cut]):
            return False
        group.needs[node] = how
        group.dims[node] = dim
        self._go_on(node, how, None, hops)
        for one, at in ones.items():
            group.needs[one] = {node: dim}
            if at == ADDED:
                group.added.add(one)
            elif at == ALIKE:
                group.alike.add(one)
            else:
                group.dims[one] = at
                self._go_on(one, {}, at, hops)
        return True

    def _same_shape(self, node: Node) -> None:
        """Continue behind an operation that cannot be cut, if its result has the shape of an input.

        Its result is sliced then. Only if the group grows along a dimension wherever it appears; otherwise the size of
        a tensor matters.
        """
        if self.large is not everything or node.op != "call_function" or node in self.group.needs:
            return
        ones = [user for user in node.users if user.target is operator.getitem] or [node]
        for other in node.all_input_nodes:
            dim = self.group.dims.get(other, self._whole.get(other))
            for one in ones:
                new = one not in self._whole and one not in self.group.needs
                if dim is not None and new and _shape(one) and _shape(one) == _shape(other):
                    self.from_tensor(one, dim)

    def _prune(self) -> None:
        """Remove operations on small tensors whose results no member reads."""
        group = self.group
        for node in sorted(group.needs, reverse=True):
            if node.target is operator.getitem or self._hops.get(node, 0) < 2:
                continue
            results = list(node.users) if has_several(node) else [node]
            if not any(user in group.needs for one in results for user in one.users):
                for one in {node, *results}:
                    del group.needs[one]
                    group.dims.pop(one, None)
                    group.added.discard(one)
                    group.alike.discard(one)


def without_small_sums(graph: Graph, group: ChunkGroup) -> ChunkGroup:
    """Take small sums that the group itself reads out of the group, to be computed before it as a whole.

    An example is the number of targets that count. Otherwise all chunks would have to be half done before one could
    finish.
    """
    fed: set[Node] = set()  # outside the group, and read by operations that lead back into it
    for node in reversed(graph.nodes):
        if node not in group.needs and any(user in group.needs or user in fed for user in node.users):
            fed.add(node)
    most = max((nbytes(node) for node in group.dims), default=0)
    for one in sorted(group.added):
        if one in group.needs and any(user in group.needs or user in fed for user in one.users):
            before = _ancestors(group, one)
            if _SMALL * sum(map(nbytes, before)) <= most and not any(has_several(node) for node in before):
                for node in before:
                    del group.needs[node]
                    group.dims.pop(node, None)
                    group.added.discard(node)
    return group


def _ancestors(group: ChunkGroup, node: Node) -> set[Node]:
    """An operation and the members of the group that it depends on."""
    found, left = {node}, [node]
    while left:
        new = {other for other in left.pop().all_input_nodes if other in group.needs} - found
        found |= new
        left += new
    return found


def given(node: Node) -> bool:
    """Whether a tensor is a parameter or a constant, or a view of one, which is available as a whole anyway."""
    while node.target in _VIEW_OPS:
        node = node.all_input_nodes[0]
    return bool(node.op != "call_function")


def _shape(node: Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


# -- sizes -------------------------------------------------------------------------------------------------------------


def measured(group: ChunkGroup) -> ChunkGroup:
    """Set the units of a group, and the bytes that its operations touch."""
    lengths: list[int] = []
    for node, how in group.needs.items():
        touched = 0
        for other, dim in how.items():
            if dim is not None and isinstance(value := other.meta.get("val"), torch.Tensor):
                lengths.append(int(value.shape[dim]))
                touched += nbytes(other)
        if node in group.dims and isinstance(value := node.meta["val"], torch.Tensor):
            lengths.append(int(value.shape[group.dims[node]]))
            touched += nbytes(node)
        group.working = max(group.working, touched)
    group.units = math.gcd(*lengths) if lengths else 1
    return group


def touched(group: ChunkGroup, count: int) -> int:
    """Bytes that one operation of the group touches at most, with whole inputs.

    A result that is joined from chunks counts twice.
    """
    most = 0
    for node, how in group.needs.items():
        found = sum(nbytes(other) // (1 if other not in group.dims else count) for other in how)
        if node in group.dims:
            leaves = count > 1 and any(user not in group.needs for user in node.users)
            found = max(found + nbytes(node) // count, 2 * nbytes(node) if leaves else 0)
        else:
            found += nbytes(node) * (2 if count > 1 else 1)
        most = max(most, found)
    return most


def nbytes(node: Node) -> int:
    """Bytes of a result, or of all results if there are several."""
    values = node.meta.get("val")
    several = values if isinstance(values, (list, tuple)) else [values]
    return sum(v.numel() * v.element_size() for v in several if isinstance(v, torch.Tensor))
