"""Draw random numbers into a new tensor of a given layout, as `x.bernoulli_()` and similar operations do in place.

Torch's own operations of that kind (`bernoulli.p`) return contiguous tensors. Numbers are drawn in the order of memory,
so a transposed tensor would get other numbers than in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_SCHEMA = "int[] size, int[] stride, str how, float[] numbers, *, ScalarType dtype, Device device, Generator? generator"
_LIBRARY = torch.library.Library("stretto", "FRAGMENT")
_LIBRARY.define(f"drawn({_SCHEMA}=None) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_LIBRARY.define(
    "drawn_by(Tensor chances, int[] size, int[] stride, *, ScalarType dtype, Device device, Generator? generator=None) "
    "-> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
_EXACT = 1 << 53  # integers up to here are exact as floats
_WHOLE = ("random_",)

_aten = torch.ops.aten
# By in-place operation: default values of the arguments after the tensor.
_DEFAULTS: dict[Any, tuple[float, ...]] = {
    _aten.bernoulli_.float: (0.5,),
    _aten.uniform_.default: (0.0, 1.0),
    _aten.normal_.default: (0.0, 1.0),
    _aten.exponential_.default: (1.0,),
    _aten.cauchy_.default: (0.0, 1.0),
    _aten.log_normal_.default: (1.0, 2.0),
    _aten.geometric_.default: (),
    _aten.random_.default: (),
    _aten.random_.to: (),
    getattr(_aten.random_, "from"): (),
}


def _empty(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(tuple(size), tuple(stride), dtype=dtype, device=device)


@torch.library.register_fake("stretto::drawn", lib=_LIBRARY)
def _fake_drawn(
    size: Any, stride: Any, how: str, numbers: Any, *, dtype: Any, device: Any, generator: Any = None
) -> Any:
    return _empty(size, stride, dtype, device)


@torch.library.register_fake("stretto::drawn_by", lib=_LIBRARY)
def _fake_drawn_by(chances: Any, size: Any, stride: Any, *, dtype: Any, device: Any, generator: Any = None) -> Any:
    return _empty(size, stride, dtype, device)


def _drawn(size: Any, stride: Any, how: str, numbers: Any, *, dtype: Any, device: Any, generator: Any = None) -> Any:
    given = [int(x) for x in numbers] if how in _WHOLE else list(numbers)
    return getattr(_empty(size, stride, dtype, device), how)(*given, generator=generator)


def _drawn_by(chances: Any, size: Any, stride: Any, *, dtype: Any, device: Any, generator: Any = None) -> Any:
    return _empty(size, stride, dtype, device).bernoulli_(chances, generator=generator)


_LIBRARY.impl("drawn", _drawn, "CompositeExplicitAutograd")
_LIBRARY.impl("drawn_by", _drawn_by, "CompositeExplicitAutograd")


def drawing(
    target: Any, args: Sequence[Any], kwargs: dict[str, Any], like: torch.Tensor
) -> tuple[Any, Any, Any] | None:
    """The operation that draws what an in-place operation draws, in the layout of `like`.

    Parameters
    ----------
    target : OpOverload
        The in-place operation.
    args : sequence
        Its arguments after the tensor that is filled.
    kwargs : dict
        Its other arguments.
    like : torch.Tensor
        A tensor with the layout.

    Returns
    -------
    tuple or None
        The operation, its arguments and options; None for an unknown operation.
    """
    layout = [int(n) for n in like.shape], [int(n) for n in like.stride()]
    options = {"dtype": like.dtype, "device": like.device, "generator": kwargs.get("generator")}
    if target is _aten.bernoulli_.Tensor and len(args) == 1 and kwargs.keys() <= {"generator"}:
        return torch.ops.stretto.drawn_by.default, (args[0], *layout), options
    if target not in _DEFAULTS or kwargs.keys() - {"generator"}:
        return None
    numbers = [*args, *_DEFAULTS[target][len(args) :]]
    if any(not isinstance(x, int | float) or abs(x) > _EXACT for x in numbers):
        return None
    how = str(target._overloadpacket.__name__)
    return torch.ops.stretto.drawn.default, (*layout, how, [float(x) for x in numbers]), options
