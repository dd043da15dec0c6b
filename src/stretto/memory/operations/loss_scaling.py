"""Trace gradient scalers (`torch.amp.GradScaler`).

A scaler checks on the device whether all gradients are finite, and skips the optimizer's step if one is not. In a trace
the check is an operation for each gradient, and the updates read its result: so every planned step decides anew. The
scale itself is a tensor that the step changes in place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.amp import GradScaler
from torch.utils._python_dispatch import _disable_current_modes

from stretto.memory.capture.side_effects import CannotCapture

_aten = torch.ops.aten
_LIBRARY = torch.library.Library("stretto", "FRAGMENT")
_LIBRARY.define("unscaled(Tensor grad, Tensor found, Tensor factor) -> (Tensor, Tensor)")
_LIBRARY.define(
    "scale_updated(Tensor scale, Tensor tracker, Tensor found, float growth, float backoff, int interval) "
    "-> (Tensor, Tensor)"
)
_UNLESS: list[Any] = []  # while an optimizer steps: a tensor that is not zero if a gradient is not finite


def unless() -> Any:
    """The tensor that decides whether the updates that are being traced are skipped; None if there is none."""
    return _UNLESS[-1] if _UNLESS else None


def _unscaled(grad: Any, found: Any, factor: Any) -> Any:
    grad, found = grad.clone(), found.clone()
    torch._amp_foreach_non_finite_check_and_unscale_([grad], found, factor)
    return grad, found


def _scale_updated(scale: Any, tracker: Any, found: Any, growth: float, backoff: float, interval: int) -> Any:
    scale, tracker = scale.clone(), tracker.clone()
    torch._amp_update_scale_(scale, tracker, found, growth, backoff, interval)
    return scale, tracker


_LIBRARY.impl("unscaled", _unscaled, "CompositeExplicitAutograd")
_LIBRARY.impl("scale_updated", _scale_updated, "CompositeExplicitAutograd")


@torch.library.register_fake("stretto::unscaled", lib=_LIBRARY)
def _fake_unscaled(grad: Any, found: Any, factor: Any) -> Any:
    return torch.empty_like(grad), torch.empty_like(found)


@torch.library.register_fake("stretto::scale_updated", lib=_LIBRARY)
def _fake_scale_updated(scale: Any, tracker: Any, found: Any, growth: float, backoff: float, interval: int) -> Any:
    return torch.empty_like(scale), torch.empty_like(tracker)


def replacements() -> dict[Any, Callable[..., Any]]:
    """By operation of a scaler: the function that replaces it in a trace."""

    def unscale(grads: Any, found: Any, factor: Any) -> None:
        for grad in grads:
            new, now = torch.ops.stretto.unscaled(grad, found, factor)
            grad.copy_(new)
            found.copy_(now)

    def update(scale: Any, tracker: Any, *rest: Any) -> Any:
        new, count = torch.ops.stretto.scale_updated(scale, tracker, *rest)
        scale.copy_(new)
        tracker.copy_(count)
        return scale

    return {
        _aten._amp_foreach_non_finite_check_and_unscale_.default: unscale,
        _aten._amp_update_scale_.default: update,
    }


@contextlib.contextmanager
def traceable() -> Iterator[None]:
    """Within, gradient scalers can be traced."""
    own = {name: GradScaler.__dict__[name] for name in ("scale", "step", "_maybe_opt_step")}

    def scale(self: Any, outputs: Any) -> Any:
        if self.is_enabled() and self._scale is None and isinstance(outputs, torch.Tensor):
            with _disable_current_modes():  # as its first call would, but on real tensors
                self._lazy_init_scale_growth_tracker(outputs.device)
        return own["scale"](self, outputs)

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_enabled() and getattr(optimizer, "_step_supports_amp_scaling", False):
            raise CannotCapture(
                f"{type(optimizer).__name__} is fused and unscales gradients itself, which a trace does not see; pass "
                "fused=False to it, or use bfloat16 without a scaler"
            )
        return own["step"](self, optimizer, *args, **kwargs)

    def maybe(self: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        found = list(state["found_inf_per_device"].values())
        if len(found) != 1:
            raise CannotCapture(
                "a gradient scaler has gradients on several devices, which is not supported; train on one device"
            )
        _UNLESS.append(found[0])
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            _UNLESS.pop()

    try:
        for name, new in (("scale", scale), ("step", step), ("_maybe_opt_step", maybe)):
            setattr(GradScaler, name, new)
        yield
    finally:
        for name, old in own.items():
            setattr(GradScaler, name, old)
