"""Cutting a loss that is too large: tokens a few at a time, forward and backward of a piece next to each other.

A language model's logits (tokens × words) are there several times over: cast, log_softmax, gradients. None of them is
wanted as a whole. So the operations that touch them are found (a *region*), each is written once for every piece of
the tokens, and what leaves the region is put together again: rows are joined, sums over tokens are added up.

    traced, notes = cut(traced, 8)

A piece's logits are gone when its turn is over, because its gradient does not wait for the loss of the others. Sums
are added in another order than in the step as it was, so results are equal up to rounding, not bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch.fx import Graph, GraphModule, Node

from stretto.errors import PlanError
from stretto.plan.cost import show_bytes

from .capture import Traced
from .follow import LOSSES, MATMULS, VIEWS, Needs, needs, rank, sums
from .pieces import Writer, written

aten = torch.ops.aten
_MOST = 256  # pieces
_KEEP_SHAPE = (*VIEWS, aten.detach.default, aten.alias.default)
_MEAN, _SUM = 1, 2  # reductions of nll_loss


class CannotCut(Exception):
    """Why a region stays as it is."""


@dataclass(eq=False)
class Region:
    """Operations that are run for one piece after the other. needs: by operation, how it takes its inputs. dims: by
    operation, the dimension along which its result is cut. added: operations whose results are added up over pieces.
    units: into so many equal parts everything can be cut."""

    seed: Node
    needs: dict[Node, Needs] = field(default_factory=dict)
    dims: dict[Node, int] = field(default_factory=dict)
    added: set[Node] = field(default_factory=set)
    units: int = 1
    working: int = 0  # bytes of cut tensors that one operation touches at most


def cut(traced: Traced, chunks: int | str | None, budget: int = 0, *, tight: bool = False) -> tuple[Traced, list[str]]:
    """The step with its losses cut, and what was done. chunks: pieces, or "auto": as many as make an operation's part
    of the budget small, none if it is (less than a quarter); tight: also then, because the rest does not fit."""
    losses = [node for node in traced.module.graph.nodes if node.target is aten._log_softmax.default]
    if chunks is None or chunks == 1 or not losses:
        return traced, []
    graph = Graph()
    copies: dict[Node, Node] = {}
    graph.output(graph.graph_copy(traced.module.graph, copies))
    notes: list[str] = []
    done: set[Node] = set()
    _plain_start(graph)
    for node in list(graph.nodes):
        if node.target in LOSSES:
            _mean_as_sum(graph, node)
    for loss in (copies[node] for node in losses):
        if loss in done:  # two in one region
            continue
        try:
            region = _found(graph, loss)
            if (pieces := _count(region, chunks, budget, tight)) > 1:
                _place(graph, region)
                Writer(graph, region.needs, region.dims, region.added, region.units).write(pieces)
                notes.append(_said(region, pieces))
                done.update(region.needs)
        except CannotCut as error:
            notes.append(f"{loss.name} of {_shape(loss)} is not cut: {error}")
        except RuntimeError as error:  # torch refuses an operation on a piece: the copy is half written
            return traced, [f"{loss.name} of {_shape(loss)} is not cut, nor any other: {str(error).splitlines()[0]}"]
    if not done:
        return traced, notes
    graph.eliminate_dead_code()
    graph.lint()
    return replace(traced, module=GraphModule(traced.module, graph)), notes


def check_chunks(chunks: int | str | None) -> None:
    """That it says how to cut."""
    if not (chunks is None or chunks == "auto" or (isinstance(chunks, int) and chunks >= 1)):
        raise PlanError(f'chunks={chunks!r} is not a number of pieces; give one from 1 on, "auto" or None')


def _said(region: Region, pieces: int) -> str:
    return (
        f"the loss ({region.seed.name} of {_shape(region.seed)}, up to {show_bytes(region.working)} for one operation) "
        f"is cut into {pieces} pieces: results are equal up to rounding"
    )


def _shape(node: Node) -> str:
    return " × ".join(f"{n:,}" for n in node.meta["val"].shape)


def _count(region: Region, chunks: int | str, budget: int, tight: bool) -> int:
    if isinstance(chunks, int):
        wanted = chunks
    elif tight:
        wanted = max(2, -(-32 * region.working // budget))
    elif 4 * region.working > budget:
        wanted = -(-8 * region.working // budget)
    else:
        return 1
    return min(wanted, region.units, _MOST)


# -- finding -----------------------------------------------------------------------------------------------------------


def _plain_start(graph: Graph) -> None:
    """A gradient begins as ones in the shape of the loss, and so seems to wait for it: ones of that size do not."""
    for node in list(graph.nodes):
        if node.target is aten.ones_like.default and node.meta["val"].dim() == 0:
            value = node.meta["val"]
            with graph.inserting_before(node):
                _replaced(node, written(graph, aten.full.default, [], 1.0, dtype=value.dtype, device=value.device))


def _found(graph: Graph, loss: Node) -> Region:
    """What touches the tensors that are as large as the loss's input, along the way on which they are."""
    along = int(loss.args[1]) % rank(loss)
    if along == 0:
        raise CannotCut("its first dimension is the one that is normalised")
    seed_size = loss.meta["val"].numel()

    def large(node: Node) -> bool:
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and 2 * value.numel() >= seed_size

    _same_shapes_joined(graph, large)
    region = Region(loss)
    region.dims[loss] = 0
    left = [loss]
    while left:
        node = left.pop()
        how = needs(node, region.dims[node]) if node.op == "call_function" and node not in region.needs else None
        if how is not None:
            left += _enter(region, node, how, large)
        for user in list(node.users):
            if user not in region.needs:
                left += _follow(region, user, large)
    _between(graph, region, large)
    _measure(region)
    return region


def _follow(region: Region, node: Node, large: Callable[[Node], bool]) -> list[Node]:
    """Take an operation into the region whose inputs are cut."""
    if any(other in region.added for other in node.all_input_nodes):
        raise CannotCut(f"{node.name} wants a sum over all pieces before the pieces are done")
    cut_already = {other: region.dims[other] for other in node.all_input_nodes if other in region.dims}

    def fits(how: Needs) -> bool:
        return all(how[other] == dim for other, dim in cut_already.items())

    if node.op == "call_function":
        for dim in range(rank(node)):
            how = needs(node, dim)
            if how is not None and fits(how):
                region.dims[node] = dim
                found = _enter(region, node, how, large)
                return found if node.target in MATMULS or not large(node) else [*found, node]
        for how in sums(node):
            if fits(how):
                region.added.add(node)
                return _enter(region, node, how, large)
    if node.op == "output":
        raise CannotCut("the step returns it, or something as large that is made of it")
    raise CannotCut(f"the dimension cannot be followed through {node.name}")


def _enter(region: Region, node: Node, how: Needs, large: Callable[[Node], bool]) -> list[Node]:
    """The inputs that are as large and so belong to it, too. The inputs of a matrix product are another layer's."""
    region.needs[node] = how
    new: list[Node] = []
    if node.target in LOSSES:
        for result in node.users:
            new += _follow(region, result, large)
    if node.target in MATMULS:
        return new
    for other, dim in how.items():
        if dim is not None and other not in region.dims and large(other):
            region.dims[other] = dim
            new.append(other)
    return new


def _between(graph: Graph, region: Region, large: Callable[[Node], bool]) -> None:
    """What waits for the region and is waited for by it must be cut, too, small as it is."""
    while True:
        inner = _descendants(graph, region) & _ancestors(graph, region)
        missing = [node for node in graph.nodes if node in inner and node not in region.needs]
        if not missing:
            return
        for node in missing:
            if node not in region.needs:
                left = _follow(region, node, large)
                if left:
                    raise CannotCut(f"{left[0].name} is as large and wanted elsewhere")


def _descendants(graph: Graph, region: Region) -> set[Node]:
    found: set[Node] = set()
    for node in graph.nodes:
        if any(other in found or other in region.needs for other in node.all_input_nodes):
            found.add(node)
    return found


def _ancestors(graph: Graph, region: Region) -> set[Node]:
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if any(user in found or user in region.needs for user in node.users):
            found.add(node)
    return found


def _measure(region: Region) -> None:
    """Into how many parts it can be cut, and what its operations touch."""
    sizes: list[int] = []
    for node, how in region.needs.items():
        touched = 0
        for other, dim in how.items():
            if other in region.needs and dim != region.dims.get(other):
                raise CannotCut(f"{node.name} takes {other.name} in another way than it is cut")
            if dim is not None and isinstance(value := other.meta.get("val"), torch.Tensor):
                sizes.append(int(value.shape[dim]))
                touched += value.numel() * value.element_size()
        value = node.meta["val"]
        if node in region.dims and isinstance(value, torch.Tensor):
            sizes.append(int(value.shape[region.dims[node]]))
            touched += value.numel() * value.element_size()
        region.working = max(region.working, touched)
    region.units = math.gcd(*sizes)
    if region.units == 1:
        raise CannotCut("there is only one row of it")


# -- preparing ---------------------------------------------------------------------------------------------------------


def _same_shapes_joined(graph: Graph, large: Callable[[Node], bool]) -> None:
    """A view of a view that has the first one's shape again is the first one: (rows, words) seen as (texts, places,
    words) and back. Otherwise only whole texts could be cut."""
    for node in list(graph.nodes):
        if node.target not in _KEEP_SHAPE or not large(node):
            continue
        base = node
        while base.target in _KEEP_SHAPE:
            base = base.args[0]
            if base.meta["val"].shape == node.meta["val"].shape:
                node.replace_all_uses_with(base)
                break
    graph.eliminate_dead_code()


def _mean_as_sum(graph: Graph, loss: Node) -> None:
    """A mean over rows is a sum by the weight of all rows, and that is known from the targets."""
    x, target, weight, reduction, ignored = loss.args
    results = {user.args[1]: user for user in loss.users}
    dtype = x.meta["val"].dtype
    with graph.inserting_before(loss):
        counted = written(graph, aten.ne.Scalar, target, ignored)
        if weight is not None:
            there = written(graph, aten.mul.Tensor, target, counted)
            flat = written(graph, aten.view.default, there, [-1])
            weights = written(graph, aten.index_select.default, weight, 0, flat)
            counted = written(graph, aten.mul.Tensor, weights, written(graph, aten.view.default, counted, [-1]))
        total = written(graph, aten.sum.default, counted)
        total = written(graph, aten._to_copy.default, total, dtype=dtype)
    if 1 in results:
        _replaced(results[1], total)
    if reduction == _MEAN and 0 in results:
        loss.args = (x, target, weight, _SUM, ignored)
        first = results[0]
        with graph.inserting_after(first):
            mean = written(graph, aten.div.Tensor, first, total)
        first.replace_all_uses_with(mean, delete_user_cb=lambda user: user is not mean)


def _place(graph: Graph, region: Region) -> None:
    """Everything that the pieces take is made before the first of them."""
    first = next(node for node in graph.nodes if node in region.needs)
    wanted, seen = _ancestors(graph, region), False
    for node in list(graph.nodes):
        seen = seen or node is first
        if seen and node in wanted and node not in region.needs:
            tags = getattr(node.target, "tags", ())
            if torch.Tag.nondeterministic_seeded in tags or node.target in (
                torch.ops.stretto.update.default,
                aten.copy_.default,
                aten.copy.default,
            ):
                raise CannotCut(f"{node.name} would have to come earlier than it does")
            first.prepend(node)


def _replaced(old: Node, new: Node) -> None:
    old.replace_all_uses_with(new)
    old.graph.erase_node(old)
