"""A step made ready to be cut: what a piece needs to know of the others is worked out before.

A mean over all rows is their sum by a number, and that number is known without the rows; a gradient that begins as ones
in the shape of the loss does not wait for the loss; random numbers for all rows are drawn before any row is worked on;
a part that is named by its place in memory is named by rows.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from .dim_layers import sizes
from .dim_rules import LOSSES, REDUCING, TEACHING, VIEWS, reduced, reduction
from .unroll import written

aten = torch.ops.aten
_KEEP_SHAPE = (*VIEWS, aten.detach.default, aten.alias.default)
_MEAN, _SUM = 1, 2  # reductions
_NEW: dict[Any, float] = {aten.new_zeros.default: 0, aten.new_ones.default: 1, aten.new_full.default: 0}


def made_ready(graph: Graph) -> None:
    """Write a step so that it can be cut; results are the same up to rounding."""
    for node in list(graph.nodes):
        if node.target is aten.ones_like.default and node.meta["val"].dim() == 0:
            value = node.meta["val"]
            with graph.inserting_before(node):
                _replaced(node, written(graph, aten.full.default, [], 1.0, dtype=value.dtype, device=value.device))
        elif node.target in LOSSES and node.args[0].meta["val"].dtype != torch.float16:
            _of_words(graph, node)
        elif node.target is aten.native_dropout.default and node.args[2] is not False and 0 < float(node.args[1]) < 1:
            _mask_first(graph, node)
        elif node.target is aten.empty_like.default:
            with graph.inserting_before(node):
                _replaced(node, _room_like(graph, node))
        elif node.target in _NEW:
            value = node.meta["val"]
            with graph.inserting_before(node):
                number = _NEW[node.target] if len(node.args) < 3 else node.args[2]
                size = [int(n) for n in value.shape]
                _replaced(node, written(graph, aten.full.default, size, number, dtype=value.dtype, device=value.device))
        elif node.target in REDUCING and reduction(node, REDUCING[node.target]) == _MEAN and _plain(node, 0):
            args = _told(node, REDUCING[node.target])
            _as_sum(graph, node, node.target, args, math.prod(sizes(node.args[0])))
        elif node.target in TEACHING and reduction(node, TEACHING[node.target]) == _MEAN and _plain(node, 1):
            _teaching(graph, node)
        elif node.target in (aten.as_strided.default, aten.as_strided_scatter.default):
            _by_rows(graph, node)
        elif node.target is aten.mean.default:
            _as_sum(graph, node, aten.sum.default, node.args[:1], math.prod(sizes(node.args[0])))
        elif node.target is aten.mean.dim and 0 in (gone := reduced(node)):
            _as_sum(graph, node, aten.sum.dim_IntList, node.args, math.prod(sizes(node.args[0])[d] for d in gone))


def same_shapes_joined(graph: Graph, large: Callable[[Node], bool]) -> None:
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


def _of_words(graph: Graph, loss: Node) -> None:
    """The weight of all rows is known from the targets."""
    x, target, weight, how, ignored = loss.args
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
    if how == _MEAN and 0 in results:
        loss.args = (x, target, weight, _SUM, ignored)
        first = results[0]
        with graph.inserting_after(first):
            mean = written(graph, aten.div.Tensor, first, total)
        first.replace_all_uses_with(mean, delete_user_cb=lambda user: user is not mean)


def _mask_first(graph: Graph, node: Node) -> None:
    """The numbers that dropout draws for all rows, before any of them is worked on: the same ones as in the step as it
    was, in its layout, since they are drawn one after another as they lie in memory."""
    x, chance = node.args[:2]
    results = {user.args[1]: user for user in node.users}
    with graph.inserting_before(node):
        ones = written(graph, aten.fill.Scalar, _room_like(graph, x), 1.0)
        mask = written(graph, operator.getitem, written(graph, aten.native_dropout.default, ones, chance, True), 1)
        kept = written(graph, aten.mul.Tensor, x, mask)
        said = written(graph, aten.mul.Scalar, kept, 1 / (1 - float(chance)))
    for which, new in ((0, said), (1, mask)):
        if which in results:
            _replaced(results[which], new)
    graph.erase_node(node)


def _room_like(graph: Graph, node: Node) -> Node:
    """Room with the layout of a result, that does not wait for it."""
    value = node.meta["val"]
    size, stride = [int(n) for n in value.shape], [int(n) for n in value.stride()]
    return written(graph, aten.empty_strided.default, size, stride, dtype=value.dtype, device=value.device)


def _by_rows(graph: Graph, node: Node) -> None:
    """Columns of a tensor that has no gaps, as a slice: those of a cell's gates, each changed in its turn."""
    scatter = node.target is aten.as_strided_scatter.default
    base, *rest = node.args
    value = base.meta["val"]
    if scatter:
        source, *rest = rest
    if len(rest) < 3 or rest[2] is None or value.dim() < 2 or not value.is_contiguous() or value.storage_offset():
        return
    size, stride, first = [int(n) for n in rest[0]], [int(n) for n in rest[1]], int(rest[2])
    whole = sizes(base)
    if size[:-1] != whole[:-1] or tuple(stride) != value.stride() or first + size[-1] > whole[-1]:
        return
    last = len(whole) - 1
    with graph.inserting_before(node):
        if scatter:
            new = written(graph, aten.slice_scatter.default, base, source, last, first, first + size[-1])
        else:
            new = written(graph, aten.slice.Tensor, base, last, first, first + size[-1])
        _replaced(node, new)


def _told(node: Node, at: int) -> tuple[Any, ...]:
    """Arguments with a sum in place of a mean, which may be left out."""
    defaults = [None] * (at - len(node.args))
    return (*node.args[:at], *defaults, _SUM, *node.args[at + 1 :])


def _plain(node: Node, first: int) -> bool:
    """Whether a loss is of two tensors of one shape, whose sum its dtype can hold: that of float16 ends at 65,504."""
    x, y = node.args[first : first + 2]
    return sizes(x) == sizes(y) and x.meta["val"].dtype != torch.float16


def _as_sum(graph: Graph, node: Node, target: Any, args: tuple[Any, ...], rows: int) -> None:
    """Sums of narrow numbers are wide ones, as they are inside a mean."""
    dtype = node.meta["val"].dtype
    sums = target in (aten.sum.default, aten.sum.dim_IntList) and dtype in (torch.float16, torch.bfloat16)
    with graph.inserting_before(node):
        total = written(graph, target, *args, **(node.kwargs | ({"dtype": torch.float32} if sums else {})))
        mean = written(graph, aten.div.Scalar, total, rows)
        _replaced(node, written(graph, aten._to_copy.default, mean, dtype=dtype) if sums else mean)


def _teaching(graph: Graph, node: Node) -> None:
    with graph.inserting_before(node):
        each = written(graph, aten.div.Scalar, node.args[0], math.prod(sizes(node.args[1])))
        args = _told(node, TEACHING[node.target])
        _replaced(node, written(graph, node.target, each, *args[1:], **node.kwargs))


def _replaced(old: Node, new: Node) -> None:
    old.replace_all_uses_with(new)
    old.graph.erase_node(old)
