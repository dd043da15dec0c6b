"""The gradient of an embedding table, some rows after others: the whole of it is as large as the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_aten = torch.ops.aten
_EMBEDDING, _BAG = _aten.embedding_dense_backward.default, _aten._embedding_bag_backward.default
_SUM, _MEAN = 0, 1  # modes of a bag


def source(gradient: Any, *, rounding: bool) -> list[Any]:
    """The nodes of a trace that make a gradient and nothing else, the operation first, if it can be made in rows.
    rounding: also if results are then equal up to rounding only, as those of bags are."""
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
    """Rows of the gradient, from the arguments of the operation that makes all of it.

    >>> grad, index = torch.ones(3, 2), torch.tensor([0, 5, 5])
    >>> rows(_EMBEDDING, (grad, index, 6, -1, False), 4, 2)
    tensor([[0., 0.],
            [2., 2.]])
    """
    args = list(args)
    at, padding = (2, 3) if target is _EMBEDDING else (6, 11)
    index, left_out = args[1], args[padding] if len(args) > padding else -1
    inside = (index >= first) & (index < first + count) & (index != left_out)
    # What belongs to other rows goes to one more, which is left out as padding is.
    args[1] = torch.where(inside, index - first, count)
    args[at] = count + 1
    args[padding:] = [count, *args[padding + 1 :]]
    found: torch.Tensor = target(*args)
    return found[:count]
