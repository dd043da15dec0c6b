"""What operations really return, where torch's fake tensors differ from it.

A trace runs on fake tensors. Their sizes and dtypes come from torch's formulas, which are wrong for a few operations:
results that a mask switches off, statistics of norms in mixed precision on a CPU, and the random state of attention,
which is a tensor on the host or on the device, depending on how attention is called.
"""

from __future__ import annotations

from typing import Any

import torch

_aten = torch.ops.aten
_MASKS = ("output_mask", "grad_input_mask")
SEEDS = ("philox_seed", "philox_offset", "rng_state")
_NARROW = (torch.bfloat16, torch.float16)
# Norms whose second and third result are statistics, and the position of their weight among the arguments.
_NORMS = {
    _aten.native_group_norm.default: 1,
    _aten.native_layer_norm.default: 2,
    _aten.native_batch_norm.default: 1,
    _aten._native_batch_norm_legit.default: 1,
    _aten._native_batch_norm_legit.no_stats: 1,
    _aten._native_batch_norm_legit_functional.default: 1,
}


def returned(node: Any, k: int) -> bool:
    """Whether result k of an operation is a tensor: a gradient that its mask switches off is None."""
    arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
    for at, one in enumerate(arguments):
        if one.name in _MASKS:
            mask = node.kwargs.get(one.name, node.args[at] if at < len(node.args) else None)
            return not isinstance(mask, (list, tuple)) or k >= len(mask) or bool(mask[k])
    return True


def real_dtype(node: Any, k: int) -> Any:
    """The dtype of result k if it differs from that of its fake tensor; None otherwise.

    On a CPU, norms of narrow dtypes with wide weights keep wide statistics and narrow gradients.
    """
    x = _value(node.args[0]) if node.args else None
    if x is None or x.device.type != "cpu":
        return None
    if node.target in _NORMS and k in (1, 2) and x.dtype in _NARROW:
        weights = [_value(one) for one in node.args[_NORMS[node.target] :]]
        wide = [one.dtype for one in weights if one is not None and one.dtype not in _NARROW]
        return wide[0] if wide else None
    if node.target is _aten.native_group_norm_backward.default and k == 0:
        return _value(node.args[1]).dtype
    return None


def is_seed(node: Any, k: int) -> bool:
    """Whether result k is the random state of attention.

    Called directly, attention leaves it on the host; in a recording, on the device. Its backward reads it there, so it
    must not be moved.
    """
    results = getattr(getattr(node.target, "_schema", None), "returns", ())
    return k < len(results) and results[k].name in SEEDS


def _value(x: Any) -> Any:
    """The fake tensor of an argument, or None."""
    found = x.meta.get("val") if isinstance(x, torch.fx.Node) else None
    return found if isinstance(found, torch.Tensor) else None
