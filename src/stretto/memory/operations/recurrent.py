"""Trace `nn.LSTM`, `nn.GRU` and `nn.RNN` as one operation each, as cuDNN and oneDNN run them.

cuDNN (on a GPU) and oneDNN (an LSTM on a CPU) return, besides their output, a buffer for backward. Torch knows its size
only after running them, and reports 0 before. So a trace has operations of our own instead: the same call, with the
layouts of its results learned by running it once on zeros. Cells one by one would be slower, and equal only up to
rounding.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import register_flop_formula

from stretto.memory.capture.side_effects import CannotCapture

_aten = torch.ops.aten
_LIBRARY = torch.library.Library("stretto", "FRAGMENT")
_SHAPE = (
    "int mode, int hidden_size, int proj_size, int num_layers, bool batch_first, float dropout, bool train, "
    "bool bidirectional, int[] batch_sizes"
)
_LIBRARY.define(
    f"cudnn_rnn(Tensor input, Tensor[] weight, int stride, Tensor hx, Tensor? cx, {_SHAPE}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_LIBRARY.define(
    "cudnn_rnn_backward(Tensor input, Tensor[] weight, int stride, Tensor weight_buf, Tensor hx, Tensor? cx, "
    f"Tensor output, Tensor? grad_output, Tensor? grad_hy, Tensor? grad_cy, {_SHAPE}, Tensor reserve, bool[] wanted) "
    "-> Tensor[]"
)
_LAYER = "bool reverse, int[] batch_sizes, int mode, int hidden_size, int num_layers, bool has_biases"
_WEIGHTS = "Tensor weight0, Tensor weight1, Tensor weight2, Tensor weight3"
_LIBRARY.define(
    f"onednn_rnn(Tensor input, {_WEIGHTS}, Tensor hx, Tensor cx, {_LAYER}, "
    "bool bidirectional, bool batch_first, bool train) -> (Tensor, Tensor, Tensor, Tensor)"
)
_LIBRARY.define(
    f"onednn_rnn_backward(Tensor input, {_WEIGHTS}, Tensor hx, Tensor cx, Tensor output, Tensor hy, Tensor cy, "
    "Tensor? grad_output, Tensor? grad_hy, Tensor? grad_cy, bool reverse, int mode, int hidden_size, int num_layers, "
    "bool has_biases, bool train, bool bidirectional, int[] batch_sizes, bool batch_first, Tensor workspace) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_STATES: dict[torch.device, torch.Tensor] = {}  # by device: cuDNN's random state for dropout between layers
_LAYOUTS: dict[Any, list[tuple[Any, ...]]] = {}  # by call: size, stride and dtype of each result
_IN_RECURRENT_LAYER: list[bool] = []  # not empty while torch runs a recurrent layer
_KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


# -- real operations ---------------------------------------------------------------------------------------------------


def _cudnn(x: Any, weight: Any, stride: int, hx: Any, cx: Any, *shape: Any) -> Any:
    state = _STATES.get(x.device)
    with torch.enable_grad():
        return _separate(_aten._cudnn_rnn(x, weight, stride, None, hx, cx, *shape, state))


def _cudnn_backward(x: Any, weight: Any, stride: int, buf: Any, hx: Any, cx: Any, output: Any, *rest: Any) -> Any:
    *grads_and_shape, reserve, wanted = rest
    if grads_and_shape[7]:  # batch_first: the library reads the output with time first, contiguous
        output = output.transpose(0, 1).contiguous().transpose(0, 1)
    state = _STATES.get(x.device)
    *first, weights = _aten._cudnn_rnn_backward(
        x, weight, stride, buf, hx, cx, output, *grads_and_shape, state, reserve, wanted
    )
    found = [one for one, want in zip(first, wanted, strict=False) if want]
    return _separate([one.contiguous() for one in (*found, *(weights if wanted[3] else ()))])


def _onednn(*args: Any) -> Any:
    with torch.enable_grad():  # without gradients it would leave the buffer for backward out
        return _separate(_aten.mkldnn_rnn_layer(*args))


def _onednn_backward(*args: Any) -> Any:
    return _separate([one.contiguous() for one in _aten.mkldnn_rnn_layer_backward(*args)])


def _separate(results: Sequence[Any]) -> Any:
    """Results with a storage each. Gradients of weights are views of one buffer, which would be held as a whole."""
    seen: set[int] = set()
    apart = []
    for one in results:
        shares = one.untyped_storage()._cdata in seen or one.storage_offset() or _spare(one)
        seen.add(one.untyped_storage()._cdata)
        apart.append(one.clone() if shares else one)
    return type(results)(apart) if isinstance(results, list) else tuple(apart)


def _spare(one: torch.Tensor) -> bool:
    return bool(one.untyped_storage().nbytes() != one.numel() * one.element_size())


# -- fake operations, for traces ---------------------------------------------------------------------------------------


def _fake_results(run: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """Fake results of a forward call, in the layouts of real ones: the call runs once on zeros."""

    def plain(x: Any) -> Any:
        return (tuple(x.shape), tuple(x.stride()), x.dtype, x.device) if isinstance(x, torch.Tensor) else x

    key = run.__name__, repr(tree_map(plain, list(args)))
    if key not in _LAYOUTS:
        with _disable_current_modes(), torch.no_grad():
            try:
                results = run(*tree_map(_zeros, list(args)))
            except torch.OutOfMemoryError:  # the allocator's cache may hold enough memory
                torch.cuda.empty_cache()
                results = run(*tree_map(_zeros, list(args)))
        _LAYOUTS[key] = [(tuple(one.shape), tuple(one.stride()), one.dtype) for one in results]
    first = next(x for x in tree_leaves(args) if isinstance(x, torch.Tensor))
    return [torch.empty_strided(n, k, dtype=dtype, device=first.device) for n, k, dtype in _LAYOUTS[key]]


def _zeros(x: Any) -> Any:
    if not isinstance(x, FakeTensor):
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.fake_device).zero_()


def _cudnn_fake(*args: Any) -> Any:
    return tuple(_fake_results(_cudnn, args))


def _onednn_fake(*args: Any) -> Any:
    return tuple(_fake_results(_onednn, args))


def _cudnn_backward_fake(x: Any, weight: Any, stride: int, buf: Any, hx: Any, cx: Any, output: Any, *rest: Any) -> Any:
    wanted = rest[-1]
    found = [one for one, want in zip((x, hx, cx), wanted, strict=False) if want]
    return [
        torch.empty_like(t, memory_format=torch.contiguous_format) for t in (*found, *(weight if wanted[3] else ()))
    ]


def _onednn_backward_fake(*args: Any) -> Any:
    return tuple(torch.empty_like(one, memory_format=torch.contiguous_format) for one in args[:7])


for _name, _real, _fake in (
    ("cudnn_rnn", _cudnn, _cudnn_fake),
    ("cudnn_rnn_backward", _cudnn_backward, _cudnn_backward_fake),
    ("onednn_rnn", _onednn, _onednn_fake),
    ("onednn_rnn_backward", _onednn_backward, _onednn_backward_fake),
):
    _LIBRARY.impl(_name, _real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"stretto::{_name}", _fake, lib=_LIBRARY)


def _operations(times: int) -> Callable[..., int]:
    def count(x: Any, *rest: Any, out_val: Any = None, **_: Any) -> int:
        many = isinstance(rest[0], list)
        weights = rest[0] if many else rest[:4]
        rows = x.numel() // x.shape[-1]
        return int(times * 2 * rows * sum(one.numel() for one in weights if one.dim() == 2))

    return count


_OPS = torch.ops.stretto
register_flop_formula([_OPS.cudnn_rnn, _OPS.onednn_rnn], get_raw=True)(_operations(1))
register_flop_formula([_OPS.cudnn_rnn_backward, _OPS.onednn_rnn_backward], get_raw=True)(_operations(2))


def replacements() -> dict[Any, Callable[..., Any]]:
    """By operation of a library: the operation that replaces it in a trace, with the same signature."""

    def cudnn(x: Any, weight: Any, stride: int, buf: Any, hx: Any, cx: Any, *rest: Any) -> Any:
        *shape, state = rest
        if state is not None:
            _STATES[x.device] = state
        return _OPS.cudnn_rnn(x, weight, stride, hx, cx, *shape)

    def cudnn_backward(x: Any, weight: Any, *rest: Any) -> Any:
        *others, _, reserve, wanted = rest
        found = iter(_OPS.cudnn_rnn_backward(x, weight, *others, reserve, list(wanted)))
        first = [next(found) if want else None for want in wanted[:3]]
        return (*first, list(found))

    return {
        _aten._cudnn_rnn.default: cudnn,
        _aten._cudnn_rnn_backward.default: cudnn_backward,
        _aten.set_.source_Storage: _set_storage,
        _aten.mkldnn_rnn_layer.default: _OPS.onednn_rnn,
        _aten.mkldnn_rnn_layer_backward.default: _OPS.onednn_rnn_backward,
    }


def draws(node: Any) -> bool:
    """Whether a recurrent layer draws random numbers, for dropout between its layers."""
    return node.target is _OPS.cudnn_rnn.default and bool(node.args[10]) and bool(node.args[11])


def runs_once(node: Any) -> bool:
    """Whether an operation must not run twice on the same inputs: backward may write to the buffer that it reads."""
    return node.target in (_OPS.cudnn_rnn_backward.default, _OPS.onednn_rnn_backward.default)


@contextlib.contextmanager
def traceable(modules: Sequence[nn.Module], device: torch.device) -> Iterator[None]:
    """Within, recurrent layers on a GPU can be traced with dropout between layers, and under autocast."""
    if device.type != "cuda":
        yield
        return
    layers = [one for module in modules for one in module.modules() if isinstance(one, nn.RNNBase)]
    if any(one.training and one.dropout and one.num_layers > 1 for one in layers):
        # The first such layer draws a seed, which fails on fake tensors: run a small layer now.
        both = (torch.default_generator, torch.cuda.default_generators[device.index or 0])
        states = [one.get_state() for one in both]
        with _disable_current_modes(), torch.no_grad():
            nn.LSTM(8, 8, 2, dropout=0.5, device=device)(torch.zeros(1, 1, 8, device=device))
        for generator, state in zip(both, states, strict=True):
            generator.set_state(state)
    functions = sys.modules["torch._VF"]
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        for name in _KINDS:
            setattr(functions, name, functools.partial(_cast_weights, getattr(functions, name)))
            stack.callback(delattr, functions, name)
        yield


def _cast_weights(function: Callable[..., Any], *args: Any) -> Any:
    """Cast weights one by one under autocast.

    Autocast itself would flatten the cast weights by their addresses, which fake tensors do not have.
    """
    _IN_RECURRENT_LAYER.append(True)
    try:
        return _cast(function, *args)
    finally:
        _IN_RECURRENT_LAYER.pop()


def _set_storage(x: Any, storage: Any) -> Any:
    """Replace `set_` on fake tensors. Torch uses it to check whether the weights are contiguous; fake ones are not."""
    if not _IN_RECURRENT_LAYER:
        raise CannotCapture("the step gives a tensor the storage of another one (set_()); copy its values instead")
    return x


def _cast(function: Callable[..., Any], *args: Any) -> Any:
    if not torch.is_autocast_enabled("cuda"):
        return function(*args)
    dtype = torch.get_autocast_dtype("cuda")

    def cast(x: Any) -> Any:
        return x.to(dtype) if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x

    with torch.autocast("cuda", enabled=False):
        return function(*tree_map(cast, args))
