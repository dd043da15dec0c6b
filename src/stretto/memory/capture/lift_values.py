"""Values of a lifted step: each is a view of a storage, found by the identity of fake tensors of the trace."""

from __future__ import annotations

from typing import Any

import torch

from stretto.memory.addresses.arena import ALIGNED
from stretto.memory.planner.graph import Storage

from .lifted import Ref, Value
from .side_effects import CannotCapture
from .trace_step import TracedStep


class ValueLifter:
    """Collects storages and values.

    Parameters
    ----------
    traced : TracedStep
        The step.
    batch_held : bool
        Whether the caller holds the batch, so that its memory is never freed.
    """

    def __init__(self, traced: TracedStep, batch_held: bool) -> None:
        self.traced, self.batch_held = traced, batch_held
        self.storages: list[Storage] = []
        self.nbytes: list[int] = []
        self.values: list[Value] = []
        self.value_of: dict[Any, Any] = {}  # by FX node: the number of its value, or a list of numbers
        self.known: dict[int, int] = {}  # storages by the identity of the fake one
        self.constants: dict[int, torch.Tensor] = {}
        self.dtypes: dict[Any, Any] = {}  # by storage and dtype of the fake tensor: the real dtype, if it differs
        self.alive: list[Any] = []  # fake tensors, so that no identity is used twice
        self.borrowed = 0

    def _tensor_value(
        self, tensor: Any, kind: str, name: str, dtype: Any = None, *, movable: bool = True
    ) -> tuple[int, bool]:
        """The number of the value of a fake tensor, and whether its storage is new.

        Parameters
        ----------
        dtype : torch.dtype, optional
            The real dtype, if it differs from the fake tensor's.
        movable : bool
            False for a storage that stays where its operation puts it. It counts no bytes, and instructions about it
            have no effect.
        """
        if tensor.is_conj() or tensor.is_neg():
            raise CannotCapture(f"{name} is a conjugate or negative view of other memory; call .resolve_conj() there")
        key = tensor.untyped_storage()._cdata
        new = key not in self.known
        if new:
            size = tensor.untyped_storage().nbytes()
            if not isinstance(size, int):
                raise TypeError("sizes that depend on values")
            if dtype is not None:
                size = size // tensor.dtype.itemsize * dtype.itemsize
                self.dtypes[len(self.storages), tensor.dtype] = dtype
            self.known[key] = len(self.storages)
            self.alive.append(tensor)
            space = -(-size // ALIGNED) * ALIGNED
            if kind == "input" and self.batch_held:
                self.borrowed, space = self.borrowed + space, 0
            if kind == "outside":  # the user's own tensor: it stays where it is, so the planner counts no bytes for it
                kind, space = "buffer", 0
            if not movable:
                space = 0
            self.storages.append(Storage(space, kind, name))
            self.nbytes.append(size)
        value = Value(
            self.known[key],
            self.dtypes.get((self.known[key], tensor.dtype), tensor.dtype),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
        )
        self.values.append(value)
        return len(self.values) - 1, new

    def _new(self, node: Any, kind: str, name: str) -> int:
        number, _ = self._tensor_value(node.meta["val"], kind, name)
        self.value_of[node] = number
        return number

    def _bind(self, node: Any, value: int) -> None:
        """Map a node to a known value. Views of the node's fake storage become views of the value's storage."""
        self.value_of[node] = value
        fake = node.meta["val"]
        self.known[fake.untyped_storage()._cdata] = self.values[value].storage
        self.alive.append(fake)

    def _constant(self, node: Any) -> None:
        tensor = getattr(self.traced.module, node.target)
        number, _ = self._tensor_value(node.meta.get("val", tensor), "constant", str(node.target))
        self.value_of[node] = number
        self.constants[self.values[number].storage] = tensor

    def _ref(self, x: Any) -> Any:
        if isinstance(x, torch.fx.Node):
            found = self.value_of[x]
            return [Ref(v) for v in found] if isinstance(found, list) else Ref(found)
        if isinstance(x, (list, tuple)):
            return type(x)(self._ref(y) for y in x) if not hasattr(x, "_fields") else type(x)(*map(self._ref, x))
        if isinstance(x, slice):
            return slice(self._ref(x.start), self._ref(x.stop), self._ref(x.step))
        if isinstance(x, dict):
            return {k: self._ref(y) for k, y in x.items()}
        return x
