"""Rewrite a step before it is cut, so that no chunk depends on the other chunks.

A mean over all rows becomes a sum divided by a number that is known without the rows. A gradient that begins as ones in
the shape of the loss no longer depends on the loss. Random numbers for all rows are drawn before the first chunk. A
view by strides becomes a slice of rows.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from .dim_layers import sizes
from .dim_rules import LOSSES, REDUCING, REDUCING_BACKWARD, VIEWS, reduced, reduction
from .unroll import add_operation

aten = torch.ops.aten
_KEEP_SHAPE = (*VIEWS, aten.detach.default, aten.alias.default)
_MEAN, _SUM = 1, 2  # reductions
_NEW: dict[Any, float] = {aten.new_zeros.default: 0, aten.new_ones.default: 1, aten.new_full.default: 0}


def prepare(graph: Graph) -> None:
    """Rewrite a step so that it can be cut. Results are equal up to rounding."""
    for node in list(graph.nodes):
        if node.target is aten.ones_like.default and node.meta["val"].dim() == 0:
            value = node.meta["val"]
            with graph.inserting_before(node):
                _replace(node, add_operation(graph, aten.full.default, [], 1.0, dtype=value.dtype, device=value.device))
        elif node.target in LOSSES and node.args[0].meta["val"].dtype != torch.float16:
            _weight_before_loss(graph, node)
        elif node.target is aten.native_dropout.default and node.args[2] is not False and 0 < float(node.args[1]) < 1:
            _mask_first(graph, node)
        elif node.target is aten.empty_like.default:
            with graph.inserting_before(node):
                _replace(node, _empty_like(graph, node))
        elif node.target in _NEW:
            value = node.meta["val"]
            with graph.inserting_before(node):
                number = _NEW[node.target] if len(node.args) < 3 else node.args[2]
                size = [int(n) for n in value.shape]
                _replace(
                    node, add_operation(graph, aten.full.default, size, number, dtype=value.dtype, device=value.device)
                )
        elif node.target in REDUCING and reduction(node, REDUCING[node.target]) == _MEAN and _plain(node, 0):
            args = _with_sum(node, REDUCING[node.target])
            _as_sum(graph, node, node.target, args, math.prod(sizes(node.args[0])))
        elif (
            node.target in REDUCING_BACKWARD
            and reduction(node, REDUCING_BACKWARD[node.target]) == _MEAN
            and _plain(node, 1)
        ):
            _mean_of_gradient(graph, node)
        elif node.target in (aten.as_strided.default, aten.as_strided_scatter.default):
            _as_slice(graph, node)
        elif node.target is aten.mean.default:
            _as_sum(graph, node, aten.sum.default, node.args[:1], math.prod(sizes(node.args[0])))
        elif node.target is aten.mean.dim and 0 in (gone := reduced(node)):
            _as_sum(graph, node, aten.sum.dim_IntList, node.args, math.prod(sizes(node.args[0])[d] for d in gone))


def join_equal_views(graph: Graph, large: Callable[[Node], bool]) -> None:
    """Replace a view that has the shape of the tensor it goes back to by this tensor.

    An example is (rows, words) viewed as (texts, positions, words) and back. Otherwise only whole texts could be cut.
    """
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


def _weight_before_loss(graph: Graph, loss: Node) -> None:
    """Compute the total weight of all rows of nll_loss from its targets, before the loss."""
    x, target, weight, how, ignored = loss.args
    results = {user.args[1]: user for user in loss.users}
    dtype = x.meta["val"].dtype
    with graph.inserting_before(loss):
        counted = add_operation(graph, aten.ne.Scalar, target, ignored)
        if weight is not None:
            valid = add_operation(graph, aten.mul.Tensor, target, counted)
            flat = add_operation(graph, aten.view.default, valid, [-1])
            weights = add_operation(graph, aten.index_select.default, weight, 0, flat)
            counted = add_operation(
                graph, aten.mul.Tensor, weights, add_operation(graph, aten.view.default, counted, [-1])
            )
        total = add_operation(graph, aten.sum.default, counted)
        total = add_operation(graph, aten._to_copy.default, total, dtype=dtype)
    if 1 in results:
        _replace(results[1], total)
    if how == _MEAN and 0 in results:
        loss.args = (x, target, weight, _SUM, ignored)
        first = results[0]
        with graph.inserting_after(first):
            mean = add_operation(graph, aten.div.Tensor, first, total)
        first.replace_all_uses_with(mean, delete_user_cb=lambda user: user is not mean)


def _mask_first(graph: Graph, node: Node) -> None:
    """Draw the mask of a dropout for all rows before any of them is computed.

    The numbers are the same as without chunks: they are drawn in the memory layout of the input.
    """
    x, chance = node.args[:2]
    results = {user.args[1]: user for user in node.users}
    with graph.inserting_before(node):
        ones = add_operation(graph, aten.fill.Scalar, _empty_like(graph, x), 1.0)
        mask = add_operation(
            graph, operator.getitem, add_operation(graph, aten.native_dropout.default, ones, chance, True), 1
        )
        kept = add_operation(graph, aten.mul.Tensor, x, mask)
        scaled = add_operation(graph, aten.mul.Scalar, kept, 1 / (1 - float(chance)))
    for which, new in ((0, scaled), (1, mask)):
        if which in results:
            _replace(results[which], new)
    graph.erase_node(node)


def _empty_like(graph: Graph, node: Node) -> Node:
    """Uninitialized memory with the layout of a result, without reading the result."""
    value = node.meta["val"]
    size, stride = [int(n) for n in value.shape], [int(n) for n in value.stride()]
    return add_operation(graph, aten.empty_strided.default, size, stride, dtype=value.dtype, device=value.device)


def _as_slice(graph: Graph, node: Node) -> None:
    """Replace a strided view of columns of a contiguous tensor by a slice, as for the gates of a recurrent cell."""
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
            new = add_operation(graph, aten.slice_scatter.default, base, source, last, first, first + size[-1])
        else:
            new = add_operation(graph, aten.slice.Tensor, base, last, first, first + size[-1])
        _replace(node, new)


def _with_sum(node: Node, at: int) -> tuple[Any, ...]:
    """The arguments of a loss with reduction "sum" instead of "mean", which may be left out."""
    defaults = [None] * (at - len(node.args))
    return (*node.args[:at], *defaults, _SUM, *node.args[at + 1 :])


def _plain(node: Node, first: int) -> bool:
    """Whether a loss has two tensors of one shape, and a dtype that can hold their sum: float16 ends at 65,504."""
    x, y = node.args[first : first + 2]
    return sizes(x) == sizes(y) and x.meta["val"].dtype != torch.float16


def _as_sum(graph: Graph, node: Node, target: Any, args: tuple[Any, ...], rows: int) -> None:
    """Replace a mean by a sum and a division. Sums of narrow dtypes are computed in float32, as inside a mean."""
    dtype = node.meta["val"].dtype
    sums = target in (aten.sum.default, aten.sum.dim_IntList) and dtype in (torch.float16, torch.bfloat16)
    with graph.inserting_before(node):
        total = add_operation(graph, target, *args, **(node.kwargs | ({"dtype": torch.float32} if sums else {})))
        mean = add_operation(graph, aten.div.Scalar, total, rows)
        _replace(node, add_operation(graph, aten._to_copy.default, mean, dtype=dtype) if sums else mean)


def _mean_of_gradient(graph: Graph, node: Node) -> None:
    """Divide the gradient of a mean before the operation, which then computes the gradient of a sum."""
    with graph.inserting_before(node):
        each = add_operation(graph, aten.div.Scalar, node.args[0], math.prod(sizes(node.args[1])))
        args = _with_sum(node, REDUCING_BACKWARD[node.target])
        _replace(node, add_operation(graph, node.target, each, *args[1:], **node.kwargs))


def _replace(old: Node, new: Node) -> None:
    old.replace_all_uses_with(new)
    old.graph.erase_node(old)
