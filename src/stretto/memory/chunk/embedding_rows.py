"""Compute the gradient of an embedding table a few rows at a time, because all of it is as large as the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_aten = torch.ops.aten
_EMBEDDING, _BAG = _aten.embedding_dense_backward.default, _aten._embedding_bag_backward.default
_SUM, _MEAN = 0, 1  # modes of a bag


def row_gradient_chain(gradient: Any, *, rounding: bool) -> list[Any]:
    """The nodes of a trace that compute only a gradient, the operation first. Empty if it cannot be computed in rows.

    Parameters
    ----------
    gradient : torch.fx.Node
        The gradient of a table.
    rounding : bool
        Whether results may differ by rounding, as those of embedding bags do.
    """
    chain = [gradient]
    while chain[0].target is _aten.detach.default:
        chain.insert(0, chain[0].args[0])
    if any(len(node.users) != 1 for node in chain):
        return []
    args = chain[0].args
    if chain[0].target is _EMBEDDING and not args[4]:
        return chain
    plain = chain[0].target is _BAG and rounding and args[8] in (_SUM, _MEAN) and not args[7] and not args[9]
    return chain if plain and args[10] is None else []


def rows(target: Any, args: Sequence[Any], first: int, count: int) -> torch.Tensor:
    """Rows of the gradient, from the arguments of the operation that computes all of it.

    >>> grad, index = torch.ones(3, 2), torch.tensor([0, 5, 5])
    >>> rows(_EMBEDDING, (grad, index, 6, -1, False), 4, 2)
    tensor([[0., 0.],
            [2., 2.]])
    """
    args = list(args)
    at, padding = (2, 3) if target is _EMBEDDING else (6, 11)
    index, left_out = args[1], args[padding] if len(args) > padding else -1
    inside = (index >= first) & (index < first + count) & (index != left_out)
    # Indices of other rows point to one more row, which is ignored as padding.
    args[1] = torch.where(inside, index - first, count)
    args[at] = count + 1
    args[padding:] = [count, *args[padding + 1 :]]
    found: torch.Tensor = target(*args)
    return found[:count]
