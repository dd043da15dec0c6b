"""Operations that are run for one piece after another: how a group of them grows.

A *group* is cut along one dimension, however often that changes its place from tensor to tensor. It grows from a start
to whatever makes or takes a cut tensor, as far as the dimension can be followed (`follow`, `layers`). Elsewhere it
ends: what comes in from there is taken in slices, what goes out is put together.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, Node

from .dim_layers import ADDED, ALIKE, Needs, Results, has_several, rank, several
from .dim_rules import MATMULS, VIEWS, needs, sums

aten = torch.ops.aten
_HOPS = 6  # operations on small tensors that may lie between those on large ones: a row's largest number, its logarithm
_SMALL = 8  # times as large is the largest of a group as what is made of it before
_SAME = (aten.detach.default, aten.alias.default)
_SEEN = (*_SAME, *VIEWS, aten.t.default, aten.transpose.int, aten.permute.default)

Large = Callable[[Node], bool]


@dataclass(eq=False)
class Group:
    """needs: by operation, how it takes its inputs. dims: by operation, the dimension along which its result is cut.
    added: operations whose results are added up over pieces. alike: those that give the same for every piece. units:
    into so many equal parts everything can be cut. working: bytes that one operation touches at most. runs: operations
    in order, by run. before: by run, operations that must come before it, in order."""

    needs: dict[Node, Needs] = field(default_factory=dict)
    dims: dict[Node, int] = field(default_factory=dict)
    added: set[Node] = field(default_factory=set)
    alike: set[Node] = field(default_factory=set)
    units: int = 1
    working: int = 0
    runs: list[list[Node]] = field(default_factory=list)
    before: list[list[Node]] = field(default_factory=list)


def everything(node: Node) -> bool:
    """Follow a dimension wherever it goes."""
    return True


class Growing:
    """A group while it grows. large: whether to go on from a tensor; small ones are cut where they lie between large
    ones, or are made of them. one_layer: not beyond matrix products, behind which there is another layer."""

    def __init__(self, large: Large = everything, *, one_layer: bool = False) -> None:
        self.group, self.large, self._ends = Group(), large, MATMULS if one_layer else ()
        self._whole: dict[Node, int] = {}  # tensors of others, and along which dimension they come in
        self._hops: dict[Node, int] = {}
        self._left: list[Node] = []  # whose users are to be looked at
        self._wanted: list[tuple[Node, int]] = []  # inputs that would better be made in pieces, along a dimension
        self._parts = 0  # into so many equal parts all that there is can be cut

    def from_tensor(self, node: Node, dim: int) -> None:
        """Start from a tensor that is there as a whole."""
        self._whole[node] = dim
        self._hops[node] = 0
        self._left.append(node)

    def from_operation(self, node: Node, dim: int) -> bool:
        """Start from what makes a tensor; whether that can be cut so."""
        return self._make(node, dim)

    def grown(self) -> Group:
        """Go as far as possible."""
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
        """An operation that takes something cut."""
        group = self.group
        if node.op != "call_function" or node in group.needs or node.target is operator.getitem:
            self._same_shape(node)
            return
        if node.target in _SAME and node.args[0] in self._whole:  # still there as a whole: a parameter
            self.from_tensor(node, self._whole[node.args[0]])
            return
        if has_several(node):
            results = node.meta["val"]
            for dim in range(max((r.dim() for r in results if isinstance(r, torch.Tensor)), default=1) or 1):
                found = several(node, dim)
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
        """Whether it takes what is cut as it is cut, and something at all."""
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
        """Add an operation; not if somebody in the group takes its result otherwise than it would be cut."""
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
        """Whether these can be cut into equal parts as well: 15 rows that are seen as 8 cannot."""
        parts = math.gcd(self._parts, *(_shape(x)[dim] for x, dim in tensors if dim is not None and _shape(x)))
        if parts == 1 < self._parts:
            return False
        self._parts = parts
        return True

    def _go_on(self, node: Node, how: Needs, dim: int | None, hops: int, *, up: bool = False) -> None:
        """From a new member to what takes its result, and to what makes its inputs. up: it makes somebody's inputs."""
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
        """What makes a tensor that is wanted in pieces, if it can be made so."""
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
            found = several(made, first)
            if found is not None and which < len(found[1]) and found[1][which] == dim and self._agrees(found[0]):
                return self._enter_several(made, *found, first, 0)
        return False

    def _agrees(self, how: Needs) -> bool:
        """Whether it takes all that is cut as it is cut."""
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
        """Beyond an operation that cannot be cut the dimension goes on, if its result has the shape of what it took: it
        comes in as a whole from there. Only where everything is followed: elsewhere its size is what matters."""
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
        """Small ones that lead nowhere are left to others."""
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


def sums_first(graph: Graph, group: Group) -> Group:
    """Small sums over all pieces that the group itself waits for are made before it, as wholes: how many targets count.
    Otherwise all pieces would have to be half done before any of them could be finished."""
    fed: set[Node] = set()  # outside, and leading back into the group
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


def _ancestors(group: Group, node: Node) -> set[Node]:
    """What of the group it is made of, and itself."""
    found, left = {node}, [node]
    while left:
        new = {other for other in left.pop().all_input_nodes if other in group.needs} - found
        found |= new
        left += new
    return found


def given(node: Node) -> bool:
    """Whether it is a parameter or a constant, or a view of one, there as a whole anyway."""
    while node.target in _SEEN:
        node = node.all_input_nodes[0]
    return bool(node.op != "call_function")


def _shape(node: Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


# -- what it amounts to ------------------------------------------------------------------------------------------------


def measured(group: Group) -> Group:
    """Into how many parts it can be cut, and what its operations touch."""
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


def touched(group: Group, pieces: int) -> int:
    """Bytes that one of its operations touches at most, with what it takes as a whole; what is put together of pieces
    is there twice."""
    most = 0
    for node, how in group.needs.items():
        found = sum(nbytes(other) // (1 if other not in group.dims else pieces) for other in how)
        if node in group.dims:
            leaves = pieces > 1 and any(user not in group.needs for user in node.users)
            found = max(found + nbytes(node) // pieces, 2 * nbytes(node) if leaves else 0)
        else:
            found += nbytes(node) * (2 if pieces > 1 else 1)
        most = max(most, found)
    return most


def nbytes(node: Node) -> int:
    """Of a result, all of them if there are several."""
    values = node.meta.get("val")
    several = values if isinstance(values, (list, tuple)) else [values]
    return sum(v.numel() * v.element_size() for v in several if isinstance(v, torch.Tensor))
