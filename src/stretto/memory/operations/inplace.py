"""Replace operations that change a tensor in place by ones that return a new tensor.

Torch can do the same by running the traced operations once more, which takes as long as the trace. This module only
rewrites the list: an in-place operation becomes the one that returns a new tensor, and later readers of the old tensor
or of a view of it read the new one. Rare cases (views of another dtype) are left to torch.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._lazy_graph_module import _make_graph_module
from torch.fx.node import map_arg

from .random_draws import drawing

_aten = torch.ops.aten
_UPDATES = ("stretto.update.default", "stretto.update_unless.default")


def without_inplace(module: torch.fx.GraphModule, mode: FakeTensorMode) -> torch.fx.GraphModule | None:
    """The same operations, none of them in place except the last copies into persistent tensors.

    relu_(x) becomes y = relu(x), and a view of x that is read later becomes a view of y. Returns None if torch has to
    do it.
    """
    rewrite = _Rewrite(mode)
    try:
        with torch.no_grad(), mode:
            for node in module.graph.nodes:
                rewrite.one(node)
    except _NotReplaced:
        return None
    return _make_graph_module(module, rewrite.graph)


class _NotReplaced(Exception):
    """A case that this module does not support."""


class _Rewrite:
    """Rewrites a list of operations. Storages are identified by those of the fake tensors in the old list."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.graph = torch.fx.Graph()
        self.new: dict[Any, Any] = {}  # by old node: its new node
        self.storage: dict[Any, int] = {}  # by new node: its storage
        self.made: dict[Any, int] = {}  # by new node: the version of its storage that it shows
        self.version: dict[int, int] = {}  # by storage: how often it was changed so far
        self.whole: dict[int, Any] = {}  # by storage: a node that shows all of its current version
        self.views: dict[Any, Any] = {}  # by new node: the same view of a later version of its storage
        self.given: list[Any] = []
        self.constants: set[int] = set()
        self.alive: list[Any] = []  # fake tensors, so that no identity is used twice

    def one(self, node: Any) -> None:
        if node.op == "output":
            for given in self.given:
                if self.version.get(self.storage[given], 0):
                    last = self.graph.call_function(_aten.copy_.default, (given, self._now(given)))
                    last.meta["val"] = given.meta["val"]
            self.graph.output(map_arg(node.args[0], self._arg))
            return
        if node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False):
            self._change(node)
            return
        new = self.graph.node_copy(node, self._arg)
        self._register(node, new)
        if node.op == "placeholder":
            self.given.append(new)
        if node.op == "get_attr" and new in self.storage:
            self.constants.add(self.storage[new])

    # -- values --------------------------------------------------------------------------------------------------------

    def _register(self, node: Any, new: Any) -> None:
        """Store which storage a copied node shows. A view of a changed storage shows the new tensor."""
        self.new[node] = new
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            self.alive.append(val)
            storage = val.untyped_storage()._cdata
            self._bind(new, storage, self._moved(val))
        elif isinstance(val, (list, tuple)):
            new.meta["val"] = type(val)(self._moved(x) if isinstance(x, torch.Tensor) else x for x in val)

    def _bind(self, new: Any, storage: int, val: Any) -> None:
        new.meta["val"] = val
        self.storage[new] = storage
        self.made[new] = self.version.get(storage, 0)
        if storage not in self.whole and _covers(val):
            self.whole[storage] = new

    def _moved(self, val: Any) -> Any:
        storage = val.untyped_storage()._cdata
        if not self.version.get(storage):
            return val
        return _view(self.whole[storage].meta["val"], val)

    def _arg(self, node: Any) -> Any:
        return self._now(self.new[node])

    def _now(self, new: Any) -> Any:
        """A node, or the same view of the current version of its storage."""
        storage = self.storage.get(new)
        if storage is None or self.made[new] == self.version.get(storage, 0):
            return new
        if (found := self.views.get(new)) is not None and self.made[found] == self.version[storage]:
            return found
        old, whole = new.meta["val"], self.whole[storage]
        where = (tuple(old.shape), tuple(old.stride()), int(old.storage_offset()))
        if (tuple(whole.meta["val"].shape), tuple(whole.meta["val"].stride()), 0) == where:
            return whole
        view = self.graph.call_function(_aten.as_strided.default, (whole, *where))
        self._bind(view, storage, _view(whole.meta["val"], old))
        self.views[new] = view
        return view

    # -- changes -------------------------------------------------------------------------------------------------------

    def _change(self, node: Any) -> None:
        target = node.target
        if target is _aten.copy_.default and str(node.args[1].target) in _UPDATES:
            into = self.new[node.args[0]]
            if self.version.get(self.storage[into]):
                raise _NotReplaced
            self._register(node, self.graph.node_copy(node, self._arg))  # an update stays in place
        elif target is _aten._native_batch_norm_legit.default:
            self._batch_norm(node)
        else:
            self._in_place(node)

    def _in_place(self, node: Any) -> None:
        if not isinstance(node.args[0], torch.fx.Node):
            raise _NotReplaced  # a list of tensors, each of which is changed in place
        into = self._arg(node.args[0])
        args, kwargs = map_arg(node.args, self._arg), map_arg(dict(node.kwargs), self._arg)
        val = into.meta["val"]
        drawn = drawing(node.target, args[1:], kwargs, val) if _dense(val) else None
        functional, args, kwargs = drawn if drawn is not None else (_functional(node.target), args, kwargs)
        made = functional(*map_arg(args, _val), **map_arg(kwargs, _val))
        if made.dtype != val.dtype or made.shape != val.shape:
            raise _NotReplaced
        new = self.graph.call_function(functional, args, kwargs)
        new.meta["val"] = made
        storage = self.storage[into]
        if not _covers(val):
            new = self._part(storage, val, new)
        elif _strides(made) != _strides(val):
            raise _NotReplaced
        self._changed(storage, new)
        self.new[node] = new if _covers(val) else self._now(into)

    def _part(self, storage: int, val: Any, new: Any) -> Any:
        """The whole storage after a part of it was replaced."""
        whole = self.whole.get(storage)
        if whole is None or whole.meta["val"].dtype != val.dtype:
            raise _NotReplaced
        where = (tuple(val.shape), tuple(val.stride()), int(val.storage_offset()))
        both = self.graph.call_function(_aten.as_strided_scatter.default, (whole, new, *where))
        both.meta["val"] = _aten.as_strided_scatter.default(whole.meta["val"], new.meta["val"], *where)
        if _strides(both.meta["val"]) != _strides(whole.meta["val"]):
            raise _NotReplaced
        return both

    def _changed(self, storage: int, new: Any) -> None:
        if storage in self.constants:
            raise _NotReplaced
        if new.meta["val"].untyped_storage().nbytes() != self._bytes(storage):
            raise _NotReplaced
        self.version[storage] = self.version.get(storage, 0) + 1
        self.whole[storage] = new
        self._bind(new, storage, new.meta["val"])

    def _bytes(self, storage: int) -> int:
        if storage not in self.whole:
            raise _NotReplaced
        return int(self.whole[storage].meta["val"].untyped_storage().nbytes())

    def _batch_norm(self, node: Any) -> None:
        """Turn the running statistics of a batch norm into two more results."""
        kept = [self._arg(x) for x in node.args[3:5]]
        if node.kwargs or not all(_covers(one.meta["val"]) for one in kept):
            raise _NotReplaced
        new = self.graph.call_function(_aten._native_batch_norm_legit_functional.default, map_arg(node.args, self._arg))
        fresh = [torch.empty_like(one.meta["val"]) for one in kept]
        new.meta["val"] = (*(self._moved(x) for x in node.meta["val"]), *fresh)
        self.new[node] = new
        for place, (one, val) in enumerate(zip(kept, fresh, strict=True), 3):
            item = self.graph.call_function(operator.getitem, (new, place))
            item.meta["val"] = val
            self._changed(self.storage[one], item)


def _functional(target: Any) -> Any:
    """The operation that returns a new tensor, for one that changes its first argument."""
    written = [a.alias_info is not None and a.alias_info.is_write for a in target._schema.arguments]
    name = target._overloadpacket.__name__
    if target.namespace != "aten" or not name.endswith("_") or not written[0] or any(written[1:]):
        raise _NotReplaced
    if torch.Tag.nondeterministic_seeded in target.tags:
        raise _NotReplaced
    found = getattr(getattr(_aten, name[:-1], None), target._overloadname, None)
    if found is None or found._schema.is_mutable:
        raise _NotReplaced
    if [a.name for a in found._schema.arguments] != [a.name for a in target._schema.arguments]:
        raise _NotReplaced
    return found


def _val(node: Any) -> Any:
    return node.meta["val"]


def _view(whole: Any, like: Any) -> Any:
    if whole.dtype != like.dtype:
        raise _NotReplaced
    return torch.as_strided(whole, tuple(like.shape), tuple(like.stride()), int(like.storage_offset()))


def _strides(val: Any) -> tuple[int, ...]:
    return tuple(k for n, k in zip(val.shape, val.stride(), strict=True) if n > 1)


def _covers(val: Any) -> bool:
    """Whether a tensor shows every byte of its storage exactly once."""
    whole = val.storage_offset() == 0 and val.numel() * val.element_size() == val.untyped_storage().nbytes()
    return whole and _dense(val)


def _dense(val: Any) -> bool:
    """Whether the elements of a tensor are contiguous in memory, in some order of its dimensions."""
    wanted = 1
    for stride, size in sorted((k, n) for n, k in zip(val.shape, val.stride(), strict=True) if n > 1):
        if stride != wanted:
            return False
        wanted *= size
    return True
