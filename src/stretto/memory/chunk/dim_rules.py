"""Rules for single operations: which part of its inputs a chunk of a result needs.

`needs(node, dim)` gives, for a result that is cut along `dim`, the dimension along which each input is cut, or None for
an input that is needed whole. `sums(node)` gives the ways in which a result is a sum over chunks of its inputs. An
operation that is not in the tables (here and in `dim_layers`) cannot be cut.

    mm(x, w) cut along 0    x along 0, w whole
    mm(x, w) as a sum       x along 1, w along 0        (the gradient of a weight: a sum over tokens)
    log_softmax(x, 1)       x along 0, never along 1
    view(x) cut along d     x along the dimension with the same number of rows before it
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from .dim_layers import LAYERS, Needs, merged, rank, sizes
from .dim_layers import Pairs as _Pairs

aten = torch.ops.aten

MATMULS = (aten.mm.default, aten.addmm.default, aten.bmm.default)
VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
# Their second argument is the size of the result.
SIZED = (*VIEWS, aten.expand.default, aten.slice_backward.default, aten.select_backward.default)
LOSSES = (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
_NONE, _SUM = 0, 2  # reductions of losses: a loss for every row; their sum
# Losses of two tensors of one shape, and their gradients: the position of the reduction among their arguments.
REDUCING = {
    aten.mse_loss.default: 2,
    aten.huber_loss.default: 2,
    aten.smooth_l1_loss.default: 2,
    aten.binary_cross_entropy.default: 3,
    aten.binary_cross_entropy_with_logits.default: 4,
}
REDUCING_BACKWARD = {
    aten.mse_loss_backward.default: 3,
    aten.huber_loss_backward.default: 3,
    aten.smooth_l1_loss_backward.default: 3,
    aten.binary_cross_entropy_backward.default: 4,
}


def needs(node: Node, dim: int) -> Needs | None:
    """By input: the dimension along which it is cut when the result is cut along `dim`. None: it cannot be cut."""
    rule = _RULES.get(node.target) or LAYERS.get(node.target)
    tags = getattr(node.target, "tags", ())
    if rule is None and torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags:
        rule = _pointwise
    found = rule(node, dim) if rule is not None else None
    return None if found is None else merged(node, found)


def sums(node: Node) -> list[Needs]:
    """The ways in which the result is the sum of the operation's results for chunks of its inputs."""
    target, args = node.target, node.args
    ways: list[_Pairs] = []
    if target is aten.mm.default:
        ways = [[(args[0], 1), (args[1], 0)]]
    elif target is aten.bmm.default:
        ways = [[(args[0], 2), (args[1], 1)]]
    elif target is aten.sum.default:
        ways = [[(args[0], d)] for d in range(rank(args[0]))]
    elif target is aten.sum.dim_IntList:
        ways = [[(args[0], d)] for d in reduced(node)]
    elif target in REDUCING and reduction(node, REDUCING[target]) == _SUM and _plain(node, REDUCING[target], 0):
        ways = [[(args[0], d), (args[1], d)] for d in range(rank(args[0]))]
    elif target is aten.embedding_dense_backward.default and not args[4]:
        ways = [[(args[0], d), (args[1], d)] for d in range(rank(args[1]))]
    return [found for way in ways if (found := merged(node, way)) is not None]


def reduction(node: Node, at: int) -> int:
    """The reduction of a loss (0: none, 1: mean, 2: sum); "mean" is the default."""
    return int(node.args[at]) if len(node.args) > at else 1


def _plain(node: Node, at: int, first: int) -> bool:
    """Whether both tensors of a loss have one shape and there are no weights."""
    x, y, *weights = node.args[first:at]
    return sizes(x) == sizes(y) and all(weight is None for weight in weights)


def _pointwise(node: Node, dim: int) -> _Pairs | None:
    whole = node.meta["val"]
    if not isinstance(whole, torch.Tensor):
        return None
    pairs: _Pairs = []
    for other in node.all_input_nodes:
        size = sizes(other)
        at = dim - (whole.dim() - len(size))
        pairs.append((other, at if at >= 0 and size[at] == whole.shape[dim] else None))
    return pairs


def _first(node: Node, dim: int) -> _Pairs:
    return [(node.args[0], dim)]


def _mm(node: Node, dim: int) -> _Pairs:
    a, b = node.args[-2:]
    pairs: _Pairs = [(a, 0), (b, None)] if dim == 0 else [(a, None), (b, 1)]
    if node.target is aten.addmm.default:
        added = node.args[0]
        size = sizes(added)
        at = dim - (2 - len(size))
        pairs.append((added, at if at >= 0 and size[at] != 1 else None))
    return pairs


def _bmm(node: Node, dim: int) -> _Pairs:
    a, b = node.args[:2]
    ways: list[_Pairs] = [[(a, 0), (b, 0)], [(a, 1), (b, None)], [(a, None), (b, 2)]]
    return ways[dim]


def _view(node: Node, dim: int) -> _Pairs | None:
    """The dimension of the input with the same number of rows before it; dimensions of length 1 do not count."""
    to, of = sizes(node), sizes(node.args[0])
    before = math.prod(to[:dim])
    found = [d for d, n in enumerate(of) if n > 1 and math.prod(of[:d]) == before]
    return [(node.args[0], found[0])] if found and to[dim] > 1 else None


def _t(node: Node, dim: int) -> _Pairs:
    return [(node.args[0], dim if rank(node) < 2 else 1 - dim)]


def _transpose(node: Node, dim: int) -> _Pairs:
    n = rank(node)
    a, b = (int(d) % n for d in node.args[1:3])
    return [(node.args[0], {a: b, b: a}.get(dim, dim))]


def _permute(node: Node, dim: int) -> _Pairs:
    order: Any = node.args[1]
    return [(node.args[0], int(order[dim]) % rank(node))]


def _unsqueeze(node: Node, dim: int) -> _Pairs | None:
    at = int(node.args[1]) % rank(node)
    return None if dim == at else [(node.args[0], dim - (dim > at))]


def _squeeze(node: Node, dim: int) -> _Pairs:
    before = rank(node.args[0])
    at = int(node.args[1]) % before
    return [(node.args[0], dim + (dim >= at and before > rank(node)))]


def _expand(node: Node, dim: int) -> _Pairs:
    size = sizes(node.args[0])
    at = dim - (rank(node) - len(size))
    return [(node.args[0], at if at >= 0 and size[at] == sizes(node)[dim] else None)]


def _other_dimension(node: Node, dim: int) -> _Pairs | None:
    """log_softmax(x, along, …), slice(x, along, …): can be cut along any other dimension."""
    along = int(node.args[1]) if len(node.args) > 1 else 0
    return [(node.args[0], dim)] if dim != along % rank(node) else None


def _softmax_backward(node: Node, dim: int) -> _Pairs | None:
    along = int(node.args[2]) % rank(node)
    return [(node.args[0], dim), (node.args[1], dim)] if dim != along else None


def _slice_backward(node: Node, dim: int) -> _Pairs | None:
    return [(node.args[0], dim)] if dim != int(node.args[2]) % rank(node) else None


def _gather(node: Node, dim: int) -> _Pairs | None:
    x, along, index = node.args[:3]
    if dim == int(along) % rank(node) or sizes(x)[dim] != sizes(index)[dim]:
        return None
    return [(x, dim), (index, dim)]


def reduced(node: Node) -> list[int]:
    """The dimensions that a reduction removes."""
    n = rank(node.args[0])
    if not n:
        return []
    dims: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dims is None or dims == []:
        return list(range(n))
    return sorted(int(d) % n for d in (dims if isinstance(dims, (list, tuple)) else [dims]))


def _reduction_of_others(node: Node, dim: int) -> _Pairs | None:
    gone = reduced(node)
    n = rank(node.args[0])
    if rank(node) == n:  # kept as dimensions of size 1
        return None if dim in gone else [(node.args[0], dim)]
    left = [d for d in range(n) if d not in gone]
    return [(node.args[0], left[dim])]


def _loss_backward(node: Node, dim: int) -> _Pairs | None:
    grad, x, target, weight, how, _, total = node.args[:7]
    if dim != 0 or not rank(target):
        return None
    return [(grad, 0 if how == _NONE else None), (x, 0), (target, 0), (weight, None), (total, None)]


def _reducing_backward(node: Node, dim: int) -> _Pairs | None:
    """mse_loss_backward(gradient, x, y, reduction): elementwise, except for a mean, which counts all elements."""
    gradient, x, y = node.args[:3]
    at = REDUCING_BACKWARD[node.target]
    if reduction(node, at) not in (_NONE, _SUM) or not _plain(node, at, 1):
        return None
    return [(gradient, dim if sizes(gradient) == sizes(node) else None), (x, dim), (y, dim)]


_RULES: dict[Any, Callable[[Node, int], _Pairs | None]] = {
    aten.mm.default: _mm,
    aten.addmm.default: _mm,
    aten.bmm.default: _bmm,
    **dict.fromkeys(VIEWS, _view),
    aten.t.default: _t,
    aten.transpose.int: _transpose,
    aten.permute.default: _permute,
    aten.unsqueeze.default: _unsqueeze,
    aten.squeeze.dim: _squeeze,
    aten.expand.default: _expand,
    aten.slice.Tensor: _other_dimension,
    aten._log_softmax.default: _other_dimension,
    aten._softmax.default: _other_dimension,
    aten._log_softmax_backward_data.default: _softmax_backward,
    aten._softmax_backward_data.default: _softmax_backward,
    aten.slice_backward.default: _slice_backward,
    aten.gather.default: _gather,
    **dict.fromkeys(REDUCING_BACKWARD, _reducing_backward),
    aten.nll_loss_backward.default: _loss_backward,
    aten.nll_loss2d_backward.default: _loss_backward,
    **dict.fromkeys(
        (
            aten._to_copy.default,
            aten.clone.default,
            aten.detach.default,
            aten.alias.default,
            aten.ones_like.default,
            aten.zeros_like.default,
            aten.full_like.default,
        ),
        _first,
    ),
    **dict.fromkeys(
        (
            aten.sum.dim_IntList,
            aten.mean.dim,
            aten.amax.default,
            aten.amin.default,
            aten.logsumexp.default,
            aten.argmax.default,
            aten.argmin.default,
        ),
        _reduction_of_others,
    ),
}
