"""`ctc_loss` with a buffer for backward of fixed size.

In torch the buffer is as wide as the longest target of the batch. Here it is as wide as any target could be. Targets of
shape (batch, length), padded, give that width; targets in one row do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stretto.memory.capture.side_effects import CannotCapture

_aten = torch.ops.aten
_LIBRARY = torch.library.Library("stretto", "FRAGMENT")
_GIVEN = "Tensor x, Tensor targets, Tensor lengths, Tensor target_lengths"
_LIBRARY.define(f"ctc_loss({_GIVEN}, int blank, bool zero_infinity) -> (Tensor, Tensor)")
_LIBRARY.define(
    f"ctc_loss_backward(Tensor grad, {_GIVEN}, Tensor loss, Tensor wide, int blank, bool zero_infinity) -> Tensor"
)


def _forward(x: Any, targets: Any, lengths: Any, target_lengths: Any, blank: int, zero_infinity: bool) -> Any:
    loss, alpha = _aten._ctc_loss.Tensor(x, targets, lengths, target_lengths, blank, zero_infinity)
    wide = alpha.new_zeros(*alpha.shape[:2], _width(targets))
    wide[:, :, : alpha.shape[2]] = alpha
    return loss, wide


def _backward(
    grad: Any, x: Any, targets: Any, lengths: Any, target_lengths: Any, loss: Any, wide: Any, *rest: Any
) -> Any:
    alpha = wide[:, :, : 2 * int(target_lengths.max()) + 1].contiguous()
    return _aten._ctc_loss_backward.Tensor(grad, x, targets, lengths, target_lengths, loss, alpha, *rest)


def _forward_fake(x: Any, targets: Any, lengths: Any, target_lengths: Any, blank: int, zero_infinity: bool) -> Any:
    return x.new_empty(x.shape[1]), x.new_empty(x.shape[1], x.shape[0], _width(targets))


def _backward_fake(grad: Any, x: Any, *_: Any) -> Any:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _width(targets: Any) -> int:
    """The width of the buffer: the letters of the longest possible target, with blanks between."""
    return 2 * int(targets.shape[1]) + 1


for _name, _real, _fake in (("ctc_loss", _forward, _forward_fake), ("ctc_loss_backward", _backward, _backward_fake)):
    _LIBRARY.impl(_name, _real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"stretto::{_name}", _fake, lib=_LIBRARY)


def replacements() -> dict[Any, Callable[..., Any]]:
    """By operation of torch: the function that replaces it in a trace."""

    def forward(x: Any, targets: Any, lengths: Any, target_lengths: Any, blank: int = 0, zero: bool = False) -> Any:
        if targets.dim() != 2:
            raise CannotCapture(
                "ctc_loss receives the targets of all texts in one row, whose lengths depend on values; pass targets "
                "of shape (batch, length), padded"
            )
        return torch.ops.stretto.ctc_loss(x, targets, lengths, target_lengths, blank, zero)

    def backward(*args: Any) -> Any:
        return torch.ops.stretto.ctc_loss_backward(*args[:7], *(args[7:] + (0, False)[len(args) - 7 :]))

    return {_aten._ctc_loss.Tensor: forward, _aten._ctc_loss_backward.Tensor: backward}
