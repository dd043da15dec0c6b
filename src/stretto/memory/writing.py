"""A function's operations written down as it runs on fake tensors.

Torch's own way of doing this (`make_fx`) keeps much that is of no use here, and takes twice as long. What it can write
down and this cannot, such as operations that take functions, is left to it: `Strange` is raised then.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _make_graph_module
from torch.fx.experimental.proxy_tensor import snapshot_fake
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_Key = torch._C.DispatchKey
_FRESH = {_aten.lift_fresh.default: _aten.lift_fresh_copy.default}


class Strange(Exception):
    """Something that is not written down here."""


def written(
    function: Callable[..., Sequence[Any]],
    args: Sequence[Any],
    instead: Mapping[Any, Callable[..., Any]],
    mode: FakeTensorMode,
) -> torch.fx.GraphModule:
    """The operations of function(*args), whose args are fake tensors and whose results are a list.

    instead: what is done in place of an operation. Every argument becomes a placeholder; every node has its result, a
    fake tensor or several, as `meta["val"]`. The mode of the fake tensors is on.
    """
    book = _Book(instead, mode)
    for tensor in args:
        book.given(tensor)
    with _no_cached_casts(), book:
        results = function(*args)
    book.graph.output([book.arg(x) for x in results])
    return _make_graph_module(book.root, book.graph)


@contextlib.contextmanager
def _no_cached_casts() -> Iterator[None]:
    """A cast that autocast remembers would be one of a trace before."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


@functools.cache
def _only_made_of_others(func: Any) -> bool:
    has = func.has_kernel_for_dispatch_key
    own = ("CompositeExplicitAutograd", "CPU", "CUDA", "Meta")
    return has(_Key.CompositeImplicitAutograd) and not any(has(getattr(_Key, name)) for name in own)


class _Book(TorchDispatchMode):
    """A tensor knows the node that made it; one that is changed in place is the same one, and what made it is then the
    change. Nobody else holds on to tensors: a gradient that nobody holds is not copied when it is kept."""

    def __init__(self, instead: Mapping[Any, Callable[..., Any]], mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode
        self.graph, self.root = torch.fx.Graph(), torch.nn.Module()
        self._instead = instead
        self._constants: dict[int, Any] = {}  # by identity; they are held by `root`

    def given(self, tensor: Any) -> None:
        self._is(tensor, self.graph.placeholder(f"given_{len(self.graph.nodes)}"))

    def _is(self, tensor: Any, node: Any) -> None:
        node.meta["val"] = snapshot_fake(tensor)
        tensor._stretto_made_by = self, node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            raise Strange(f"{func} takes functions")
        if func.namespace == "prim":  # a question about a tensor
            return func(*args, **kwargs)
        if (other := self._instead.get(func)) is not None:
            with self:
                return other(*args, **kwargs)
        if _only_made_of_others(func):  # it comes here whole where there are no gradients at all
            with self:
                return func.decompose(*args, **kwargs)
        func = _FRESH.get(func, func)
        result = func(*args, **kwargs)
        self._write(func, args, kwargs, result)
        return result

    def _write(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        read = self.arg(args), {name: self.arg(x) for name, x in kwargs.items()}
        node = self.graph.call_function(func, *read)
        if isinstance(result, torch.Tensor):
            self._is(result, node)
        elif isinstance(result, (list, tuple)):
            node.meta["val"] = type(result)(snapshot_fake(x) if isinstance(x, torch.Tensor) else x for x in result)
            for k, one in enumerate(result):
                if isinstance(one, torch.Tensor):
                    self._is(one, self.graph.call_function(operator.getitem, (node, k)))
        elif result is not None:
            raise Strange(f"{func} gives a {type(result).__name__}")

    def arg(self, x: Any) -> Any:
        """An argument with nodes in place of tensors."""
        if isinstance(x, torch.Tensor):
            book, node = getattr(x, "_stretto_made_by", (None, None))
            return node if book is self else self._constant(x)
        if isinstance(x, (list, tuple)):
            return type(x)(self.arg(one) for one in x)
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise Strange("a size that depends on values")
        return x

    def _constant(self, tensor: torch.Tensor) -> Any:
        if isinstance(tensor, FakeTensor):
            raise Strange("a tensor that was made elsewhere")
        if id(tensor) not in self._constants:
            name = f"_tensor_constant{len(self._constants)}"
            setattr(self.root, name, tensor)
            self._constants[id(tensor)] = self.graph.get_attr(name)
            self._constants[id(tensor)].meta["val"] = self._mode.from_tensor(tensor, static_shapes=True)
        return self._constants[id(tensor)]
