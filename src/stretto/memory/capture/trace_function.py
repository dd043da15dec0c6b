"""A function's operations written down as it runs on fake tensors.

Torch's own way of doing this (`make_fx`) keeps much that is of no use here, and takes twice as long. What it can write
down and this cannot, such as operations that take functions, is left to it: `Strange` is raised then.

Real tensors that the function has from elsewhere are replaced by fake ones before any operation sees them, so that none
is ever written. One that the function changes in place becomes an argument, like a buffer.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import snapshot_fake
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .side_effects import CannotCapture
from .source_lines import at, users_line

_aten = torch.ops.aten
_Key = torch._C.DispatchKey
_FRESH = {_aten.lift_fresh.default: _aten.lift_fresh_copy.default}


class Strange(Exception):
    """Something that is not written down here."""


class TakesGradient(Exception):
    """A tensor from elsewhere, which it has, is part of what autograd follows."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__("a tensor that is no parameter of the modules takes a gradient")
        self.tensor = tensor


@dataclass(eq=False)
class Outside:
    """A real tensor that a function uses and was not given. fake: its stand-in. grad, required: its gradient, and
    whether it wanted one, when it was first used. changed: the user's line that changes it in place, if one does."""

    tensor: torch.Tensor
    fake: Any
    node: Any
    grad: torch.Tensor | None
    required: bool
    changed: str | None = None


def written(
    function: Callable[..., Sequence[Any]],
    args: Sequence[Any],
    instead: Mapping[Any, Callable[..., Any]],
    mode: FakeTensorMode,
) -> tuple[torch.fx.GraphModule, list[Outside]]:
    """The operations of function(*args), whose args are fake tensors and whose results are a list; and the tensors
    that it has from elsewhere.

    instead: what is done in place of an operation. Every argument becomes a placeholder; every node has its result, a
    fake tensor or several, as `meta["val"]`. The mode of the fake tensors is on.
    """
    book = _Book(instead, mode)
    for tensor in args:
        book.given(tensor)
    try:
        with _no_cached_casts(), book:
            results = function(*args)
    finally:
        taking = [one.tensor for one in book.outside.values() if not _restored(one)]
    if taking:
        raise TakesGradient(taking[0])
    book.graph.output([book.arg(x) for x in results])
    return _make_graph_module(book.root, book.graph), list(book.outside.values())


def module_of(root: Any, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A module with these operations. Their Python is not written before it is called, which it seldom is."""
    with _use_lazy_graph_module(True):
        return _make_graph_module(root, graph)


def _restored(one: Outside) -> bool:
    """Put a real tensor back as it was for autograd; whether there was nothing to do."""
    fine = one.tensor.grad is one.grad if one.tensor.is_leaf else True
    if not fine:
        one.tensor.grad = one.grad
    if one.tensor.requires_grad != one.required:
        one.tensor.detach_()
        return False
    return fine


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


def _view_of(func: Any) -> Any:
    """The operation that makes a view where this one (`transpose_`) turns its tensor into it; None if there is none."""
    packet = getattr(_aten, func._overloadpacket.__name__.removesuffix("_"), None)
    found = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
    wanted = [(one.name, str(one.type)) for one in func._schema.arguments]
    alike = [one for one in found if [(x.name, str(x.type)) for x in one._schema.arguments] == wanted]
    return alike[0] if alike and func.namespace == "aten" else None


class _Book(TorchDispatchMode):
    """A tensor knows the node that made it; one that is changed in place is the same one, and what made it is then the
    change. Nobody else holds on to tensors: a gradient that nobody holds is not copied when it is kept."""

    def __init__(self, instead: Mapping[Any, Callable[..., Any]], mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode
        self.graph, self.root = torch.fx.Graph(), torch.nn.Module()
        self._instead = instead
        self.outside: dict[int, Outside] = {}  # by storage of the real tensor
        self._known: dict[int, Any] = {}  # by storage: a fake tensor that was given

    def given(self, tensor: Any) -> None:
        self._known[tensor.untyped_storage()._cdata] = tensor
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
        args, kwargs = self._inside(args), {name: self._inside(x) for name, x in kwargs.items()}
        if (other := self._instead.get(func)) is not None:
            with self:
                return other(*args, **kwargs)
        if _only_made_of_others(func):  # it comes here whole where there are no gradients at all
            with self:
                return func.decompose(*args, **kwargs)
        func = _FRESH.get(func, func)
        if func._schema.is_mutable and self.outside:
            self._note_changes(func, args, kwargs)
        if torch.Tag.inplace_view in func.tags and (making := _view_of(func)) is not None:
            read = self.arg(args), {name: self.arg(x) for name, x in kwargs.items()}
            result = func(*args, **kwargs)  # the tensor itself becomes the view
            self._is(result, self.graph.call_function(making, *read))
            return result
        result = func(*args, **kwargs)
        self._write(func, args, kwargs, result)
        return result

    def _inside(self, x: Any) -> Any:
        """An argument with fake tensors in place of real ones."""
        if isinstance(x, torch.Tensor):
            if isinstance(x, FakeTensor):
                return x if hasattr(x, "_stretto_made_by") else self._alias(x, self._known)
            storage = x.untyped_storage()._cdata
            if (one := self.outside.get(storage)) is not None:
                return one.fake if one.tensor is x else self._alias(x, {storage: one.fake})
            return self._meet(x, storage)
        if isinstance(x, (list, tuple)):
            return type(x)(self._inside(one) for one in x)
        return x

    def _meet(self, tensor: torch.Tensor, storage: int) -> Any:
        fake = self._mode.from_tensor(tensor, static_shapes=True)
        name = f"_tensor_constant{len(self.outside)}"
        setattr(self.root, name, tensor)
        node = self.graph.get_attr(name)
        grad = tensor.grad if tensor.is_leaf else None
        self.outside[storage] = Outside(tensor, fake, node, grad, tensor.requires_grad)
        self._is(fake, node)
        return fake

    def _alias(self, x: torch.Tensor, known: Mapping[int, Any]) -> Any:
        """Another tensor of a storage that is known, such as `p.data`: a view of the one that is known."""
        base = known.get(x.untyped_storage()._cdata)
        if base is None or base.dtype != x.dtype:
            raise Strange("a tensor that was made elsewhere")
        where = tuple(x.shape), tuple(x.stride()), int(x.storage_offset())
        if where == (tuple(base.shape), tuple(base.stride()), int(base.storage_offset())):
            return base
        with self:
            return _aten.as_strided.default(base, *where)

    def _note_changes(self, func: Any, args: Any, kwargs: Any) -> None:
        changed = set()
        for k, one in enumerate(func._schema.arguments):
            if one.alias_info is not None and one.alias_info.is_write:
                x = args[k] if k < len(args) else kwargs.get(one.name)
                changed |= {y.untyped_storage()._cdata for y in tree_leaves(x) if isinstance(y, torch.Tensor)}
        for outside in self.outside.values():
            if outside.changed is None and outside.fake.untyped_storage()._cdata in changed:
                outside.changed = users_line()

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
            if book is not self:
                raise Strange("a tensor that was made elsewhere")
            return node
        if isinstance(x, (list, tuple)):
            return type(x)(self.arg(one) for one in x)
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise Strange("a size that depends on values")
        return x


class OnlyReads(TorchDispatchMode):
    """Real tensors are read and never written within. read: takes those whose values Python reads."""

    def __init__(self, read: list[torch.Tensor]) -> None:
        super().__init__()
        self._read = read

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.OpOverload):
            for k, one in enumerate(func._schema.arguments):
                x = args[k] if k < len(args) else kwargs.get(one.name)
                if one.alias_info is not None and one.alias_info.is_write and any(map(_is_real, tree_leaves(x))):
                    raise CannotCapture(
                        f"the step changes a tensor of no module in place{at(users_line())}, and has operations for "
                        "which that cannot be followed; make it a buffer of a module"
                    )
            if func is _aten._local_scalar_dense.default and _is_real(args[0]):
                self._read.append(args[0])
        return func(*args, **kwargs)


def _is_real(x: Any) -> bool:
    return (
        isinstance(x, torch.Tensor) and not isinstance(x, FakeTensor) and not torch._C._functorch.is_functionaltensor(x)
    )
