"""Decompositions that a trace uses: lists tensor by tensor, batch norm, and layers of libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import ctc, loss_scaling, recurrent


def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operation: the function that replaces it in a trace.

    Operations on lists of tensors become operations on single tensors: a list would have to be on the device as a
    whole. Batch norm names the running statistics that it changes.
    """
    aten = torch.ops.aten

    def batch_norm(x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float) -> Any:
        if mean is None or var is None:
            return aten._native_batch_norm_legit.no_stats(x, w, b, training, momentum, eps)
        return aten._native_batch_norm_legit.default(x, w, b, mean, var, training, momentum, eps)

    def cudnn_batch_norm(
        x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
    ) -> Any:
        return (*batch_norm(x, w, b, mean, var, training, momentum, eps), x.new_empty(0, dtype=torch.uint8))

    def cudnn_batch_norm_backward(
        x: Any, grad: Any, w: Any, mean: Any, var: Any, save_mean: Any, save_var: Any, eps: float, reserve: Any
    ) -> Any:
        wanted = [True, True, True]
        return aten.native_batch_norm_backward(grad, x, w, mean, var, save_mean, save_var, True, eps, wanted)

    def norm(tensors: Any, ord: Any = 2, dtype: Any = None) -> Any:
        return [torch.linalg.vector_norm(t, ord, dtype=dtype) for t in tensors]

    def times(tensors: Any, other: Any) -> Any:
        return [t * other for t in tensors]

    def times_(tensors: Any, other: Any) -> Any:
        for t in tensors:
            t.mul_(other)

    return {
        aten.native_batch_norm.default: batch_norm,
        aten.cudnn_batch_norm.default: cudnn_batch_norm,
        aten.cudnn_batch_norm_backward.default: cudnn_batch_norm_backward,
        aten._foreach_norm.Scalar: norm,
        aten._foreach_mul.Tensor: times,
        aten._foreach_mul.Scalar: times,
        aten._foreach_mul_.Tensor: times_,
        aten._foreach_mul_.Scalar: times_,
        aten._conj.default: aten._conj_physical.default,  # a conjugated copy instead of a lazy view
        aten._neg_view.default: aten.neg.default,
        **recurrent.replacements(),
        **ctc.replacements(),
        **loss_scaling.replacements(),
    }
