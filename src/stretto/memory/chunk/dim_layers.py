"""Rules for layers: which part of its inputs a chunk of a convolution, norm, attention, embedding or pooling needs.

`LAYERS` has rules by operation, as `dim_rules` does. `needs_several(node, dim)` is for operations with several results
whose first result is cut along `dim`. It gives what is needed of each input, and for each result the dimension along
which it is cut, ADDED if it is a sum over chunks, or ALIKE if it is the same for all chunks.

    layer_norm_backward along 0     rows of the gradient, of x and of its statistics; results: rows, ADDED, ADDED
    attention along 0               queries, keys and values of a few texts; results: theirs

Batch norm is missing because it needs the whole batch, and so are operations that draw random numbers for all of it.
Norms and attention are cut along 0 alone: their kernels expect contiguous statistics, which slices along another
dimension are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

aten = torch.ops.aten

Needs = dict[Node, int | None]
Pairs = list[tuple[Any, int | None]]
Results = tuple[int, ...]

ADDED, ALIKE = -1, -2  # results that are not cut: sums over chunks, and results that all chunks share
_MEAN = 1  # a loss's reduction


def rank(x: Any) -> int:
    """The number of dimensions of a node's result; 1 for a tuple, which counts as cut along 0."""
    value = x.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else 1


def sizes(x: Any) -> list[int]:
    """The shape of a node's result."""
    return [int(n) for n in x.meta["val"].shape]


def needs_several(node: Node, dim: int) -> tuple[Needs, Results] | None:
    """The rule for an operation with several results; None if it has no rule, or cannot be cut in this way."""
    rule = _SEVERAL.get(node.target)
    found = rule(node, dim) if rule is not None else None
    if found is None:
        return None
    pairs, results = found
    needs = merged(node, pairs)
    return None if needs is None else (needs, results)


def has_several(node: Node) -> bool:
    """Whether an operation has a rule in the table of `needs_several`."""
    return node.target in _SEVERAL


def merged(node: Node, pairs: Pairs) -> Needs | None:
    """By input: its dimension. None if an operation reads one tensor twice, in two ways."""
    found: Needs = {}
    for other, dim in pairs:
        if isinstance(other, Node) and found.setdefault(other, dim) != dim:
            return None
    return {other: found.get(other) for other in node.all_input_nodes}


def with_rows(node: Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments for a chunk of operations that have the number of rows among their arguments."""
    at = _ROWS_AT.get(node.target)
    return args if at is None else (*args[:at], sizes(args[0])[0], *args[at + 1 :])


# -- one result --------------------------------------------------------------------------------------------------------


def _batch(*which: int) -> Callable[[Node, int], Pairs | None]:
    """A rule: these arguments along 0, the others whole, as for the images of a convolution."""
    return lambda node, dim: [(node.args[at], 0) for at in which] if dim == 0 else None


def _leading(*which: int, last: int = 2) -> Callable[[Node, int], Pairs | None]:
    """A rule: these arguments along any dimension but the last ones, as for pooling."""

    def rule(node: Node, dim: int) -> Pairs | None:
        return [(node.args[at], dim) for at in which] if dim < rank(node) - last else None

    return rule


def _embedding(node: Node, dim: int) -> Pairs | None:
    words = node.args[1]
    return [(words, dim)] if dim < rank(words) else None


def _select(node: Node, dim: int) -> Pairs:
    at = int(node.args[1]) % rank(node.args[0])
    return [(node.args[0], dim + (dim >= at))]


def _select_backward(node: Node, dim: int) -> Pairs | None:
    at = int(node.args[2]) % rank(node)
    return None if dim == at else [(node.args[0], dim - (dim > at))]


def _cat(node: Node, dim: int) -> Pairs | None:
    along = int(node.args[1]) if len(node.args) > 1 else 0
    parts: Any = node.args[0]
    return None if dim == along % rank(node) else [(part, dim) for part in parts]


def _stack(node: Node, dim: int) -> Pairs | None:
    at = (int(node.args[1]) if len(node.args) > 1 else 0) % rank(node)
    parts: Any = node.args[0]
    return None if dim == at else [(part, dim - (dim > at)) for part in parts]


def _pad(node: Node, dim: int) -> Pairs | None:
    sides: Any = node.args[1]
    return [(node.args[0], dim)] if dim < rank(node) - len(sides) // 2 else None


def _index_select(node: Node, dim: int) -> Pairs:
    x, along, index = node.args[:3]
    return [(x, None), (index, 0)] if dim == int(along) % rank(node) else [(x, dim), (index, None)]


def _slice_scatter(node: Node, dim: int) -> Pairs | None:
    along = int(node.args[2]) if len(node.args) > 2 else 0
    return None if dim == along % rank(node) else [(node.args[0], dim), (node.args[1], dim)]


def _elementwise(*which: int) -> Callable[[Node, int], Pairs | None]:
    """A rule for arguments that all have the result's shape. Torch does not tag all such operations as pointwise."""

    def rule(node: Node, dim: int) -> Pairs | None:
        given = [node.args[at] for at in which]
        return [(x, dim) for x in given] if all(sizes(x) == sizes(node) for x in given) else None

    return rule


LAYERS: dict[Any, Callable[[Node, int], Pairs | None]] = {
    aten.convolution.default: _batch(0),
    aten.embedding.default: _embedding,
    aten.select.int: _select,
    aten.select_backward.default: _select_backward,
    aten.cat.default: _cat,
    aten.stack.default: _stack,
    aten.constant_pad_nd.default: _pad,
    aten.slice_scatter.default: _slice_scatter,
    aten.index_select.default: _index_select,
    aten.max_pool2d_with_indices_backward.default: _leading(0, 1, 7),
    aten.avg_pool2d.default: _leading(0),
    aten.avg_pool2d_backward.default: _leading(0, 1),
    aten._adaptive_avg_pool2d.default: _leading(0),
    aten._adaptive_avg_pool2d_backward.default: _leading(0, 1),
    aten.upsample_nearest2d.default: _leading(0),
    aten.tril.default: _leading(0),
    aten.triu.default: _leading(0),
    aten.hardtanh_backward.default: _elementwise(0, 1),
    aten.leaky_relu_backward.default: _elementwise(0, 1),
    aten.elu_backward.default: _elementwise(0, 5),
    aten.softplus_backward.default: _elementwise(0, 1),
    aten.hardswish.default: _elementwise(0),
    aten.hardswish_backward.default: _elementwise(0, 1),
}

_ROWS_AT = {aten.native_group_norm.default: 3, aten.native_group_norm_backward.default: 5}


# -- several results ---------------------------------------------------------------------------------------------------

_Found = tuple[Pairs, Results]


def _norm(node: Node, dim: int) -> _Found | None:
    """native_layer_norm(x, shape, …), _fused_rms_norm(x, shape, …): x and its statistics."""
    shape: Any = node.args[1]
    x = node.args[0]
    return ([(x, 0)], (0, 0, 0)) if dim == 0 and rank(x) > len(shape) else None


def _norm_backward(node: Node, dim: int) -> _Found | None:
    """native_layer_norm_backward(gradient, x, shape, mean, deviation, …)."""
    shape: Any = node.args[2]
    taken = [node.args[at] for at in (0, 1, 3, 4)]
    return ([(x, 0) for x in taken], (0, ADDED, ADDED)) if dim == 0 and rank(taken[1]) > len(shape) else None


def _rms_backward(node: Node, dim: int) -> _Found | None:
    shape: Any = node.args[2]
    taken = [node.args[at] for at in (0, 1, 3)]
    return ([(x, 0) for x in taken], (0, ADDED)) if dim == 0 and rank(taken[1]) > len(shape) else None


def _images(taken: tuple[int, ...], results: Results) -> Callable[[Node, int], _Found | None]:
    return lambda node, dim: ([(node.args[at], 0) for at in taken], results) if dim == 0 else None


def _nll_loss(node: Node, dim: int) -> _Found | None:
    """nll_loss(x, targets, weights, reduction, …).

    Its second result, the weight of all rows, does not belong to a chunk; a mean needs all rows.
    """
    x, target, _, how = node.args[:4]
    if dim or how == _MEAN or not rank(target):
        return None
    return [(x, 0), (target, 0)], (ADDED if how else 0,)


def _pool(node: Node, dim: int) -> _Found | None:
    return ([(node.args[0], dim)], (dim, dim)) if dim < rank(node.args[0]) - 2 else None


def _split(node: Node, dim: int) -> _Found | None:
    x = node.args[0]
    along = (int(node.args[2]) if len(node.args) > 2 else 0) % rank(x)
    return ([(x, dim)], (dim,) * len(node.meta["val"])) if dim != along else None


def _unbind(node: Node, dim: int) -> _Found:
    x = node.args[0]
    at = (int(node.args[1]) if len(node.args) > 1 else 0) % rank(x)
    return [(x, dim + (dim >= at))], (dim,) * len(node.meta["val"])


def _largest(node: Node, dim: int) -> _Found | None:
    """max, min, sort and topk along a dimension: values and indices. They can be cut along another dimension."""
    x = node.args[0]
    at: Any = {aten.topk.default: 2, aten.sort.default: 1}.get(node.target, 1)
    along = (int(node.args[at]) if len(node.args) > at else -1) % rank(x)
    stays = node.meta["val"][0].dim() == rank(x)
    if stays and dim == along:
        return None
    return [(x, dim if stays or dim < along else dim + 1)], (dim, dim)


def _attention(taken: tuple[int, ...], chance: int, results: Results, mask: int | str | None = None) -> Any:
    """A rule for attention.

    Parameters
    ----------
    taken : tuple of int
        Arguments whose first dimension is the batch.
    chance : int
        The argument with the probability of dropout, which draws for the whole batch at once.
    results : tuple of int
        By result: 0 if it is cut, or ALIKE.
    mask : int or str, optional
        The argument with the mask, which may have fewer dimensions, or one entry for the whole batch.
    """

    def rule(node: Node, dim: int) -> _Found | None:
        if dim or (len(node.args) > chance and node.args[chance] != 0.0):
            return None
        pairs: Pairs = [(node.args[at], 0) for at in taken]
        one = node.kwargs.get(mask) if isinstance(mask, str) else node.args[mask] if mask is not None else None
        if isinstance(one, Node):
            pairs.append((one, 0 if rank(one) == 4 and sizes(one)[0] > 1 else None))
        return pairs, results

    return rule


_FLASH = (0, 0, *[ALIKE] * 7)
_SEVERAL: dict[Any, Callable[[Node, int], _Found | None]] = {
    aten.native_layer_norm.default: _norm,
    aten.native_layer_norm_backward.default: _norm_backward,
    aten.native_group_norm.default: _images((0,), (0, 0, 0)),
    aten.native_group_norm_backward.default: _images((0, 1, 2, 3), (0, ADDED, ADDED)),
    aten.convolution_backward.default: _images((0, 1), (0, ADDED, ADDED)),
    aten.nll_loss_forward.default: _nll_loss,
    aten.nll_loss2d_forward.default: _nll_loss,
    aten.max_pool2d_with_indices.default: _pool,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.unsafe_split.Tensor: _split,
    aten.unsafe_split_with_sizes.default: _split,
    aten.unbind.int: _unbind,
    aten.max.dim: _largest,
    aten.min.dim: _largest,
    aten.sort.default: _largest,
    aten.topk.default: _largest,
    aten._scaled_dot_product_flash_attention.default: _attention((0, 1, 2), 3, _FLASH),
    aten._scaled_dot_product_flash_attention_backward.default: _attention((0, 1, 2, 3, 4, 5), 10, (0, 0, 0)),
    aten._scaled_dot_product_efficient_attention.default: _attention((0, 1, 2), 5, (0, 0, ALIKE, ALIKE), 3),
    aten._scaled_dot_product_efficient_attention_backward.default: _attention((0, 1, 2, 3, 5, 6), 9, (0, 0, 0), 4),
    aten._scaled_dot_product_cudnn_attention.default: _attention((0, 1, 2), 5, _FLASH, 3),
    aten._scaled_dot_product_cudnn_attention_backward.default: _attention((0, 1, 2, 3, 4, 5), 13, (0, 0, 0), 8),
    aten._scaled_dot_product_flash_attention_for_cpu.default: _attention((0, 1, 2), 3, (0, 0), "attn_mask"),
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention(
        (0, 1, 2, 3, 4, 5), 6, (0, 0, 0), "attn_mask"
    ),
}
if hasattr(aten, "_fused_rms_norm"):
    _SEVERAL[aten._fused_rms_norm.default] = _norm
    _SEVERAL[aten._fused_rms_norm_backward.default] = _rms_backward
