"""Multiply row ranges with one matrix each: `out[r] = a[r] @ b[e]` for the rows r of expert e.

Rows are sorted by expert, and `ends[e]` is the end of expert e's range, a tensor on the device. So sizes do not depend
on values, and neither the product nor its gradients compute a row that no expert has:

    stretto::grouped_mm(a, b, ends, first, full, before)           (rows, inner)
    stretto::grouped_mm_weights(a, grad, ends, first, experts)     (experts, width, inner)

Both take a *group* of consecutive experts, from number `first` on. Rows outside the group are those of `before`, or
zero: all groups write to one tensor of all rows, not to one tensor each. If every row belongs to an expert (`full`),
the first group leaves the other rows undefined, because later groups write them.

In bfloat16 on GPUs of compute capability 9.0 or more this uses torch's grouped product, and the host never waits.
Everywhere else the products of the experts run one after another, for which the host reads `ends`: a step on a GPU
waits there, and is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import register_flop_formula

_LIBRARY = torch.library.Library("stretto", "FRAGMENT")
_LIBRARY.define("grouped_mm(Tensor a, Tensor b, Tensor ends, int first, bool full, Tensor? before) -> Tensor")
_LIBRARY.define("grouped_mm_weights(Tensor a, Tensor grad, Tensor ends, int first, int experts) -> Tensor")

# Public from torch 2.10 on, private before.
_TORCH_GROUPED_MM: Callable[..., torch.Tensor] | None = getattr(F, "grouped_mm", None) or getattr(
    torch, "_grouped_mm", None
)
_ALIGNED = 16  # bytes, of rows


def grouped_mm(
    a: torch.Tensor, ends: torch.Tensor, weights: Sequence[torch.Tensor], *, full: bool = True
) -> torch.Tensor:
    """The product of every row of `a` with the matrix of its expert; differentiable in `a` and the weights.

    Parameters
    ----------
    a : torch.Tensor
        Rows sorted by expert [rows, width].
    ends : torch.Tensor
        By expert: the end of its rows [experts], int32. Rows behind the last end belong to no expert; their result is
        zero.
    weights : sequence of torch.Tensor
        By group: the matrices of its experts [experts of the group, width, inner].
    full : bool
        Whether every row belongs to an expert, that is `ends[-1] == rows`.
    """
    made: torch.Tensor = _Grouped.apply(a, ends, full, *weights)
    return made


class _Grouped(torch.autograd.Function):
    @staticmethod
    def forward(a: torch.Tensor, ends: torch.Tensor, full: bool, *weights: torch.Tensor) -> torch.Tensor:
        return _by_group(a, weights, ends, full)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        a, ends, ctx.full, *weights = inputs
        ctx.save_for_backward(a, ends, *weights)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        a, ends, *weights = ctx.saved_tensors  # read once: checkpoints return each of them only once
        grad = grad.contiguous()
        of_rows = None
        if ctx.needs_input_grad[0]:
            of_rows = _by_group(grad, [b.transpose(1, 2) for b in weights], ends, ctx.full)
        of_weights = []
        for first, b, wanted in zip(_firsts(weights), weights, ctx.needs_input_grad[3:], strict=True):
            made = torch.ops.stretto.grouped_mm_weights(a, grad, ends, first, len(b)) if wanted else None
            of_weights.append(made)
        return of_rows, None, None, *of_weights


def _firsts(weights: Sequence[torch.Tensor]) -> list[int]:
    """By group: the number of its first expert."""
    return [sum(len(b) for b in weights[:k]) for k in range(len(weights))]


def _by_group(a: torch.Tensor, weights: Sequence[torch.Tensor], ends: torch.Tensor, full: bool) -> torch.Tensor:
    """Multiply group after group; each adds its rows to the result of the earlier ones."""
    made = None
    for first, b in zip(_firsts(weights), weights, strict=True):
        made = torch.ops.stretto.grouped_mm(a, b, ends, first, full, made)
    assert made is not None
    return made


# -- the operations ----------------------------------------------------------------------------------------------------


@torch.library.register_fake("stretto::grouped_mm", lib=_LIBRARY)
def _rows_fake(a: Any, b: Any, ends: Any, first: int, full: bool, before: Any) -> Any:
    return a.new_empty(a.shape[0], b.shape[2])


@torch.library.register_fake("stretto::grouped_mm_weights", lib=_LIBRARY)
def _weights_fake(a: Any, grad: Any, ends: Any, first: int, experts: int) -> Any:
    return a.new_empty(experts, a.shape[1], grad.shape[1])


def _rows(
    a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor, first: int, full: bool, before: torch.Tensor | None
) -> torch.Tensor:
    if _has_kernel(a, b):
        return _rows_at_once(a, b, ends, first, full, before)
    made = a.new_empty(a.shape[0], b.shape[2])
    if before is not None:
        made.copy_(before)
    elif not full:
        made.zero_()
    for matrix, (begin, end) in zip(b, _ranges(ends, first, len(b)), strict=True):
        if end > begin:
            torch.mm(a[begin:end], matrix, out=made[begin:end])
    return made


def _weights(a: torch.Tensor, grad: torch.Tensor, ends: torch.Tensor, first: int, experts: int) -> torch.Tensor:
    if _has_kernel(a, grad):
        return _weights_at_once(a, grad, ends, first, experts)
    made = a.new_empty(experts, a.shape[1], grad.shape[1])
    for matrix, (begin, end) in zip(made, _ranges(ends, first, experts), strict=True):
        if end > begin:
            torch.mm(a[begin:end].t(), grad[begin:end], out=matrix)
        else:
            matrix.zero_()
    return made


for _kind in ("CPU", "CUDA"):
    _LIBRARY.impl("grouped_mm", _rows, _kind)
    _LIBRARY.impl("grouped_mm_weights", _weights, _kind)


def _ranges(ends: torch.Tensor, first: int, experts: int) -> list[tuple[int, int]]:
    """By expert of a group: the begin and end of its rows. The host waits for the device here."""
    if ends.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "these experts cannot be recorded, because the host reads how many tokens every expert has; use bfloat16 "
            "on a GPU of compute capability 9.0 or more, with sizes that are multiples of 8, or record=False"
        )
    bounds = [0, *ends.tolist()]
    return list(zip(bounds[first : first + experts], bounds[first + 1 : first + experts + 1], strict=True))


# -- torch's grouped product -------------------------------------------------------------------------------------------


def _has_kernel(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether torch multiplies groups of these tensors in one kernel that reads the ends on the device."""
    if _TORCH_GROUPED_MM is None or not a.is_cuda or a.dtype != torch.bfloat16 or b.dtype != torch.bfloat16:
        return False
    if torch.version.hip is not None or _capability(a.device) < (9, 0):
        return False
    return all(n * t.element_size() % _ALIGNED == 0 for t in (a, b) for n in t.shape[1:])


def _capability(device: torch.device) -> tuple[int, int]:
    major, minor = torch.cuda.get_device_capability(device)
    return major, minor


def _rows_at_once(
    a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor, first: int, full: bool, before: torch.Tensor | None
) -> torch.Tensor:
    assert _TORCH_GROUPED_MM is not None
    group_ends, numbers = _from_first(ends, first, len(b), len(a))
    made = _TORCH_GROUPED_MM(a if numbers is None else a.index_select(0, numbers), b, offs=group_ends)
    if full and not first and before is None:
        return made
    row = torch.arange(len(a), device=a.device)
    inside = row < ends[first + len(b) - 1]
    if first:
        begin = ends[first - 1]
        inside &= row >= begin
        made = made.index_select(0, (row - begin).clamp_(min=0))
    # Torch leaves rows of no group uninitialized. They may be infinite, so replace them instead of multiplying by 0.
    return torch.where(inside[:, None], made, made.new_zeros(()) if before is None else before)


def _weights_at_once(a: torch.Tensor, grad: torch.Tensor, ends: torch.Tensor, first: int, experts: int) -> torch.Tensor:
    assert _TORCH_GROUPED_MM is not None
    group_ends, numbers = _from_first(ends, first, experts, len(a))
    if numbers is not None:
        a, grad = a.index_select(0, numbers), grad.index_select(0, numbers)
    made = _TORCH_GROUPED_MM(a.t(), grad, offs=group_ends)
    if _capability(a.device) >= (10, 0):
        # On Blackwell the result of an expert without rows is not zero (pytorch issue 172439).
        empty = group_ends.diff(prepend=group_ends.new_zeros(1)) == 0
        made = made.masked_fill_(empty[:, None, None], 0)
    return made


def _from_first(ends: torch.Tensor, first: int, experts: int, rows: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The ends of a group's rows counted from its first row, and row numbers in an order that begins with the group.

    The numbers are None for the first group. Torch's first group begins at row 0, whatever the ends are.
    """
    if not first:
        return ends[:experts], None
    begin = ends[first - 1]
    numbers = (torch.arange(rows, device=ends.device) + begin).clamp_(max=rows - 1)
    return ends[first : first + experts] - begin, numbers


# -- costs -------------------------------------------------------------------------------------------------------------


@register_flop_formula(torch.ops.stretto.grouped_mm)
def _rows_flop(a: Any, b: Any, ends: Any, *rest: Any, **kwargs: Any) -> int:
    """Floating-point operations for rows that are distributed evenly over the experts."""
    return int(2 * a[0] * b[1] * b[2] * b[0] / max(1, ends[0]))


@register_flop_formula(torch.ops.stretto.grouped_mm_weights)
def _weights_flop(a: Any, grad: Any, ends: Any, first: int, experts: int, **kwargs: Any) -> int:
    return int(2 * a[0] * a[1] * grad[1] * experts / max(1, ends[0]))
