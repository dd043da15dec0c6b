"""Inputs with which an operation can be measured alone, without damage.

Most operations take any numbers. Some do not. An index outside its table makes a GPU unusable for the rest of the
process. The backward of attention reads the random state of its forward through a pointer to the host or to the device,
depending on the forward, and may crash the process. So indices are valid rows, offsets increase, and the backward of
attention or of a recurrent layer is measured on the results of its own forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from stretto.memory.capture.lifted import LiftedStep, OpCall, Ref, Value
from stretto.memory.operations.real_results import SEEDS
from stretto.memory.run.views import in_traced_layout, view

_APART = 7919  # a prime: indices are distributed over all rows of a tensor
# Parts of names of operations whose backward needs its own forward: for random states, and for indices, which are slow
# if all of them are equal.
_PAIRED = ("attention", "scaled_dot_product", "rnn", "max_pool")
_STARTS = ("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k", "offsets")  # arguments: where rows begin
_ENDS = ("offs", "ends")  # arguments: where rows end
_WHOLE = (torch.int64, torch.int32)


class NotMeasurable(RuntimeError):
    """An operation that cannot be measured safely: its cost is estimated."""


class TrialInputs:
    """Makes inputs for the calls of one step.

    inputs = TrialInputs(lifted, device)
    args, kwargs = inputs.of(call)
    """

    def __init__(self, lifted: LiftedStep, device: torch.device) -> None:
        self.lifted, self.device = lifted, device
        self._maker = {
            lifted.values[v].storage: run for run in lifted.runs if isinstance(run, OpCall) for v in run.makes if v >= 0
        }

    def of(self, call: OpCall) -> tuple[Any, Any]:
        """Arguments of a call, on the device: tensors with the layout that they have in the step."""
        first = self._forward_of(call)
        some = _Trial(self.lifted, self.device, [call] if first is None else [first, call])
        if first is not None:
            args, kwargs = some.arguments(first)
            results = first.target(*args, **kwargs)
            some.keep(first, [results] if first.single else results)
        return some.arguments(call)

    def _forward_of(self, call: OpCall) -> OpCall | None:
        """The call whose results a backward reads, if it must not receive others."""
        name = str(call.target)
        if "backward" not in name or not any(word in name for word in _PAIRED):
            return None
        makers = [self._maker.get(self.lifted.values[x.value].storage) for x in _refs(call)]
        found = [one for one in makers if one is not None and any(word in str(one.target) for word in _PAIRED)]
        if not found:
            raise NotMeasurable(f"the forward of {call.target} is not in the step")
        return max(found, key=lambda one: sum(other is one for other in found))  # another may have made just one input


class _Trial:
    """Tensors for the arguments of some calls; values that share a storage in the step share a tensor."""

    def __init__(self, lifted: LiftedStep, device: torch.device, calls: Sequence[OpCall]) -> None:
        self.lifted, self.device = lifted, device
        self.spans = _spans(lifted, calls)
        self.limits: dict[Any, int] = {}
        self.rising: dict[Any, tuple[int, bool]] = {}
        for call in calls:
            self.limits |= _limits(lifted, call)
            self.rising |= _rising(lifted, call)
        self.spaces: dict[Any, torch.Tensor] = {}
        self.kept: dict[int, torch.Tensor] = {}  # by storage: a result of the forward call

    def keep(self, call: OpCall, results: Sequence[Any]) -> None:
        """Use the results of a call as inputs of the next one."""
        for number, tensor in zip(call.makes, results, strict=False):
            if number >= 0 and isinstance(tensor, torch.Tensor):
                value = self.lifted.values[number]
                self.kept[value.storage] = in_traced_layout(tensor, value) if value.size else tensor

    def arguments(self, call: OpCall) -> tuple[Any, Any]:
        names = [one.name for one in getattr(getattr(call.target, "_schema", None), "arguments", ())]
        for name, x in zip(names, call.args, strict=False):
            if name in SEEDS and isinstance(x, Ref) and self.lifted.values[x.value].storage not in self.kept:
                raise NotMeasurable(f"{call.target} reads a random state that is not its forward's")
        leaf = {"is_leaf": lambda x: isinstance(x, Ref)}
        args, kwargs = (tree_map(self._real, x, **leaf) for x in (call.args, call.kwargs))
        return args, kwargs

    def _real(self, x: Any) -> Any:
        if not isinstance(x, Ref):
            return x
        value = self.lifted.values[x.value]
        if (kept := self.kept.get(value.storage)) is not None:
            return view(kept, value) if value.size else kept
        where = value.storage, value.dtype
        low, high = self.spans[where]
        if where not in self.spaces:
            self.spaces[where] = torch.empty(high - low, dtype=value.dtype, device=self.device)
            _fill(self.spaces[where], self.limits.get(where, 0), self.rising.get(where))
        return view(self.spaces[where], replace(value, offset=value.offset - low))


def _refs(call: OpCall) -> list[Ref]:
    leaves = tree_leaves((call.args, call.kwargs), is_leaf=lambda x: isinstance(x, Ref))
    return [x for x in leaves if isinstance(x, Ref)]


def _spans(lifted: LiftedStep, calls: Sequence[OpCall]) -> dict[Any, tuple[int, int]]:
    """By storage and dtype: the first element that the calls read, and one behind the last."""
    found: dict[Any, tuple[int, int]] = {}
    for x in (x for call in calls for x in _refs(call)):
        value = lifted.values[x.value]
        low, high = found.get((value.storage, value.dtype), (value.offset, 0))
        found[value.storage, value.dtype] = min(low, value.offset), max(high, value.offset + _extent(lifted, value))
    return found


def _extent(lifted: LiftedStep, value: Value) -> int:
    """Elements from the first of a value to its last.

    A value that is part of a larger tensor, such as a mask in rows of a multiple of eight, ends where its storage does:
    kernels may read whole rows.
    """
    top = max(1, 1 + sum((n - 1) * k for n, k in zip(value.size, value.stride, strict=True) if n))
    rows = [k for n, k in zip(value.size, value.stride, strict=True) if n > 1 and k > 1]
    inside = lifted.nbytes[value.storage] // value.dtype.itemsize - value.offset
    return top if not rows else max(top, min(inside, -(-top // min(rows)) * min(rows)))


def _fill(space: torch.Tensor, limit: int, rising: tuple[int, bool] | None) -> None:
    """Fill memory with ordinary numbers.

    Floats are between 0 and 1, as probabilities are: other values there would make a GPU unusable for the process.

    Parameters
    ----------
    space : torch.Tensor
        The memory.
    limit : int
        The number of rows that indices may address; 0 if they are not indices.
    rising : (int, bool) or None
        For offsets: the number of rows, and whether the first offset is 0.
    """
    if space.dtype.is_floating_point:
        space.uniform_(0.01, 0.99)
    elif space.dtype.is_complex:
        torch.view_as_real(space).uniform_(0.01, 0.99)
    elif rising is not None:
        rows, from_zero = rising
        at = torch.arange(len(space), device=space.device)
        parts = max(1, len(space) - 1) if from_zero else len(space)
        space.copy_((at + (not from_zero)) * rows // parts)
    elif limit:
        torch.arange(_APART, _APART * len(space) + 1, _APART, out=space).remainder_(limit)
    else:
        space.zero_()


def _rising(lifted: LiftedStep, call: OpCall) -> dict[Any, tuple[int, bool]]:
    """By storage and dtype of offsets: how many rows they divide, and whether they begin with 0."""
    found: dict[Any, tuple[int, bool]] = {}
    schema = getattr(call.target, "_schema", None)
    pairs = [(one.name, x) for one, x in zip(getattr(schema, "arguments", ()), call.args, strict=False)]
    divided = [x for name, x in pairs if name in ("query", "self", "indices", "a") and isinstance(x, Ref)]
    for name, x in [*pairs, *call.kwargs.items()]:
        if name not in (*_STARTS, *_ENDS) or not isinstance(x, Ref) or not divided:
            continue
        value, rows = lifted.values[x.value], lifted.values[divided[0].value].size
        if value.dtype in _WHOLE and rows:
            found[value.storage, value.dtype] = int(rows[0]), name in _STARTS
    return found


def _limits(lifted: LiftedStep, call: OpCall) -> dict[Any, int]:
    """By storage and dtype of indices: the number of rows. Equal indices would be a special case, and slow."""
    name, args = str(getattr(getattr(call.target, "_overloadpacket", None), "__name__", "")), call.args

    def rows(x: Any, dim: int) -> int:
        return int(lifted.values[x.value].size[dim]) if isinstance(x, Ref) and lifted.values[x.value].size else 0

    found: list[tuple[Any, int]] = []
    if name in ("index", "_unsafe_index", "index_put", "_unsafe_index_put"):
        found = [(x, rows(args[0], dim)) for dim, x in enumerate(args[1]) if isinstance(x, Ref)]
    elif name in ("index_select", "index_add", "index_copy", "gather", "scatter", "scatter_add"):
        found = [(args[2], rows(args[0], args[1]))]
    elif name in ("embedding", "_embedding_bag", "_embedding_bag_forward_only"):
        found = [(args[1], rows(args[0], 0))]
    elif name == "embedding_dense_backward":
        found = [(args[1], args[2])]
    limits: dict[Any, int] = {}
    for x, n in found:
        if isinstance(x, Ref) and lifted.values[x.value].dtype in _WHOLE:
            where = lifted.values[x.value].storage, lifted.values[x.value].dtype
            limits[where] = min(n, limits.get(where, n))
    return limits
