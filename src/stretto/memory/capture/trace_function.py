"""Trace a function: record its operations as an FX graph while it runs on fake tensors.

Torch's `make_fx` does the same, but keeps much that is not needed here and takes twice as long. Functions that this
module does not support, such as operations that take functions, are left to `make_fx`: `NotTraceable` is raised then.

Real tensors that the function closes over are replaced by fake ones before any operation uses them, so that none of
them is written. One that the function changes in place becomes an argument, like a buffer.
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


class NotTraceable(Exception):
    """The function does something that this module does not support."""


class NeedsGradient(Exception):
    """A real tensor that the function closes over takes part in autograd."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__("a tensor that is not a parameter of the modules takes a gradient")
        self.tensor = tensor


@dataclass(eq=False)
class ExternalTensor:
    """A real tensor that a function uses and did not receive as an argument."""

    tensor: torch.Tensor
    fake: Any  # the fake tensor that replaces it
    node: Any  # the FX node of the constant
    grad: torch.Tensor | None  # its gradient when it was first used
    required: bool  # its requires_grad when it was first used
    changed: str | None = None  # the user's line that changes it in place; None if no line does


def record_operations(
    function: Callable[..., Sequence[Any]],
    args: Sequence[Any],
    replacements: Mapping[Any, Callable[..., Any]],
    mode: FakeTensorMode,
) -> tuple[torch.fx.GraphModule, list[ExternalTensor]]:
    """Record the operations of function(*args) as a module.

    Every argument becomes a placeholder. Every node has its result, one or several fake tensors, as `meta["val"]`. The
    caller enters the mode of the fake tensors.

    Parameters
    ----------
    function : callable
        Returns a list.
    args : sequence
        Fake tensors.
    replacements : mapping
        By operation: a function to call instead (a decomposition).
    mode : FakeTensorMode
        The mode of the fake tensors.

    Returns
    -------
    module : torch.fx.GraphModule
    outside : list of ExternalTensor
        Real tensors that the function closes over.
    """
    book = _NodeTracker(replacements, mode)
    for tensor in args:
        book.given(tensor)
    try:
        with _no_cached_casts(), book:
            results = function(*args)
    finally:
        taking = [one.tensor for one in book.outside.values() if not _restored(one)]
    if taking:
        raise NeedsGradient(taking[0])
    book.graph.output([book.arg(x) for x in results])
    return _make_graph_module(book.root, book.graph), list(book.outside.values())


def module_of(root: Any, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A module with these operations. Its Python code is generated when it is first called, which is rare."""
    with _use_lazy_graph_module(True):
        return _make_graph_module(root, graph)


def _restored(one: ExternalTensor) -> bool:
    """Restore the autograd state of a real tensor. Returns whether it was unchanged."""
    fine = one.tensor.grad is one.grad if one.tensor.is_leaf else True
    if not fine:
        one.tensor.grad = one.grad
    if one.tensor.requires_grad != one.required:
        one.tensor.detach_()
        return False
    return fine


@contextlib.contextmanager
def _no_cached_casts() -> Iterator[None]:
    """Clear the cache of autocast before and after: a cached cast would belong to another trace."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


@functools.cache
def _only_made_of_others(func: Any) -> bool:
    """Whether an operation has no kernel of its own, only a decomposition into other operations."""
    has = func.has_kernel_for_dispatch_key
    own = ("CompositeExplicitAutograd", "CPU", "CUDA", "Meta")
    return has(_Key.CompositeImplicitAutograd) and not any(has(getattr(_Key, name)) for name in own)


def _view_of(func: Any) -> Any:
    """The operation that returns a view, for one that turns its tensor into this view (`transpose_`); None if there is
    none."""
    packet = getattr(_aten, func._overloadpacket.__name__.removesuffix("_"), None)
    found = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
    wanted = [(one.name, str(one.type)) for one in func._schema.arguments]
    alike = [one for one in found if [(x.name, str(x.type)) for x in one._schema.arguments] == wanted]
    return alike[0] if alike and func.namespace == "aten" else None


class _NodeTracker(TorchDispatchMode):
    """Records each operation as a node, and the node of each tensor on the tensor itself.

    After a change in place, the node of a tensor is the change. The mode holds no references to tensors: autograd
    copies a gradient that something else still references.
    """

    def __init__(self, replacements: Mapping[Any, Callable[..., Any]], mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode
        self.graph, self.root = torch.fx.Graph(), torch.nn.Module()
        self._replacements = replacements
        self.outside: dict[int, ExternalTensor] = {}  # by storage of the real tensor
        self._known: dict[int, Any] = {}  # by storage: a fake tensor that was given

    def given(self, tensor: Any) -> None:
        self._known[tensor.untyped_storage()._cdata] = tensor
        self._bind(tensor, self.graph.placeholder(f"given_{len(self.graph.nodes)}"))

    def _bind(self, tensor: Any, node: Any) -> None:
        node.meta["val"] = snapshot_fake(tensor)
        tensor._stretto_made_by = self, node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            raise NotTraceable(f"{func} takes functions")
        if func.namespace == "prim":  # reads a property of a tensor
            return func(*args, **kwargs)
        args, kwargs = self._as_fake(args), {name: self._as_fake(x) for name, x in kwargs.items()}
        if (other := self._replacements.get(func)) is not None:
            with self:
                return other(*args, **kwargs)
        if _only_made_of_others(func):  # not decomposed yet if no argument requires a gradient
            with self:
                return func.decompose(*args, **kwargs)
        func = _FRESH.get(func, func)
        if func._schema.is_mutable and self.outside:
            self._note_changes(func, args, kwargs)
        if torch.Tag.inplace_view in func.tags and (making := _view_of(func)) is not None:
            read = self.arg(args), {name: self.arg(x) for name, x in kwargs.items()}
            result = func(*args, **kwargs)  # the tensor itself becomes the view
            self._bind(result, self.graph.call_function(making, *read))
            return result
        result = func(*args, **kwargs)
        self._write(func, args, kwargs, result)
        return result

    def _as_fake(self, x: Any) -> Any:
        """An argument with fake tensors instead of real ones."""
        if isinstance(x, torch.Tensor):
            if isinstance(x, FakeTensor):
                return x if hasattr(x, "_stretto_made_by") else self._alias(x, self._known)
            storage = x.untyped_storage()._cdata
            if (one := self.outside.get(storage)) is not None:
                return one.fake if one.tensor is x else self._alias(x, {storage: one.fake})
            return self._add_outside(x, storage)
        if isinstance(x, (list, tuple)):
            return type(x)(self._as_fake(one) for one in x)
        return x

    def _add_outside(self, tensor: torch.Tensor, storage: int) -> Any:
        fake = self._mode.from_tensor(tensor, static_shapes=True)
        name = f"_tensor_constant{len(self.outside)}"
        setattr(self.root, name, tensor)
        node = self.graph.get_attr(name)
        grad = tensor.grad if tensor.is_leaf else None
        self.outside[storage] = ExternalTensor(tensor, fake, node, grad, tensor.requires_grad)
        self._bind(fake, node)
        return fake

    def _alias(self, x: torch.Tensor, known: Mapping[int, Any]) -> Any:
        """Another tensor on a known storage, such as `p.data`, as a view of the known tensor."""
        base = known.get(x.untyped_storage()._cdata)
        if base is None or base.dtype != x.dtype:
            raise NotTraceable("a tensor that was made elsewhere")
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
            self._bind(result, node)
        elif isinstance(result, (list, tuple)):
            node.meta["val"] = type(result)(snapshot_fake(x) if isinstance(x, torch.Tensor) else x for x in result)
            for k, one in enumerate(result):
                if isinstance(one, torch.Tensor):
                    self._bind(one, self.graph.call_function(operator.getitem, (node, k)))
        elif result is not None:
            raise NotTraceable(f"{func} gives a {type(result).__name__}")

    def arg(self, x: Any) -> Any:
        """An argument with nodes instead of tensors."""
        if isinstance(x, torch.Tensor):
            book, node = getattr(x, "_stretto_made_by", (None, None))
            if book is not self:
                raise NotTraceable("a tensor that was made elsewhere")
            return node
        if isinstance(x, (list, tuple)):
            return type(x)(self.arg(one) for one in x)
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise NotTraceable("a size that depends on values")
        return x


class ReadOnlyMode(TorchDispatchMode):
    """Refuses writes to real tensors, and appends to `read` the tensors whose values Python reads."""

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
                        f"the step changes a tensor of no module in place{at(users_line())}, and uses operations that "
                        "do not support it; make the tensor a buffer of a module"
                    )
            if func is _aten._local_scalar_dense.default and _is_real(args[0]):
                self._read.append(args[0])
        return func(*args, **kwargs)


def _is_real(x: Any) -> bool:
    return (
        isinstance(x, torch.Tensor) and not isinstance(x, FakeTensor) and not torch._C._functorch.is_functionaltensor(x)
    )
