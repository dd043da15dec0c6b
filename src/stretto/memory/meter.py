"""What operations cost on a device, measured once for each distinct call, and remembered on disk.

An operation is tried alone, with inputs of its own. What it gives is compared with what the trace says it gives: a
result that has another dtype or size in reality would be garbage once it was away on the host and back; one that lies
in memory in another way is copied, for which there must be room.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from stretto.paths import cache_root

from .guard import CannotCapture
from .lift import Call, Lifted, Ref, Value
from .views import lies_otherwise, view

_TIMES = 3
_ROUNDS = 2  # the better one counts: others may be at the device
_AHEAD = 1_000_000  # cycles
_SEED = 16  # bytes of attention's random state, whose layout depends on how it is run: never worth a copy
_VERSION = 3  # of the file
_APART = 7919  # a prime: numbers of rows are taken from all over a tensor


class Remembered:
    """Costs by call, in one file for a device, a version of torch and what else decides how fast an operation is.

        remembered = Remembered.of("NVIDIA H200")
        remembered.costs["aten.relu.default …"] = (1e-5, 0)
        remembered.save()

    It is a cache: a file that cannot be read is an empty one, one that cannot be written is not written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.costs = _read(path)
        self._saved = len(self.costs)

    @classmethod
    def of(cls, device: str) -> Remembered:
        """The file in the cache folder for a device of this name, as torch is set up now."""
        name = re.sub(r"[^A-Za-z0-9.+]+", "-", "-".join((device, torch.__version__, *_settings()))).lower()
        return cls(cache_root() / "memory" / f"{name}.json")

    def save(self) -> None:
        """Write what is new. Others may have written meanwhile: theirs is kept."""
        if len(self.costs) == self._saved:
            return
        everything = {**_read(self.path), **self.costs}
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps({"version": _VERSION, "costs": everything}))
            beside.replace(self.path)
            self._saved = len(self.costs)


def _read(path: Path) -> dict[str, tuple[float, int]]:
    try:
        found = json.loads(path.read_text())
        if found["version"] != _VERSION:
            return {}
        return {str(key): (float(seconds), int(room)) for key, (seconds, room) in found["costs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _settings() -> tuple[str, ...]:
    """Switches of torch that change what an operation costs."""
    kinds = {"matmul": torch.backends.cuda.matmul, "conv": torch.backends.cudnn.conv}
    return (
        *(f"{kind}-tf32" for kind, one in kinds.items() if one.fp32_precision == "tf32"),
        *(["search"] if torch.backends.cudnn.benchmark else []),
        *(["deterministic"] if torch.are_deterministic_algorithms_enabled() else []),
    )


class Meter:
    """Measures the calls of one step."""

    def __init__(self, lifted: Lifted, device: torch.device, remembered: Remembered) -> None:
        self.lifted, self.device, self.remembered = lifted, device, remembered
        self._failed: set[str] = set()
        self.crowded: set[str] = set()  # calls for which there was no room; they are tried again once it is cleared

    def measured(self, call: Call) -> tuple[float, int] | None:
        """Seconds and workspace; None when it could not be tried alone."""
        key, costs = self.key(call), self.remembered.costs
        if key not in costs and key not in self._failed and key not in self.crowded:
            try:
                costs[key] = self._try(call)
            except RuntimeError as error:
                full = isinstance(error, torch.OutOfMemoryError)
                (self.crowded if full else self._failed).add(key)
            if key not in costs and self.device.type == "cuda":
                torch.cuda.empty_cache()
        return costs.get(key)

    def key(self, call: Call) -> str:
        """A call in words: the operation, and dtypes, sizes and strides of what it is called with."""

        def plain(x: Any) -> str:
            if isinstance(x, Ref):
                value = self.lifted.values[x.value]
                return f"{value.dtype}{list(value.size)}{list(value.stride)}"
            return repr(x)

        args, kwargs = (tree_map(plain, x, is_leaf=lambda x: isinstance(x, Ref)) for x in (call.args, call.kwargs))
        return f"{call.target} {args} {kwargs}" if kwargs else f"{call.target} {args}"

    def _try(self, call: Call) -> tuple[float, int]:
        limits, spans, ends = _limits(self.lifted, call), _spans(self.lifted, call), _ends(self.lifted, call)
        rooms: dict[Any, torch.Tensor] = {}

        def real(x: Any) -> Any:
            if not isinstance(x, Ref):
                return x
            value = self.lifted.values[x.value]
            where = value.storage, value.dtype
            low, high = spans[where]
            if where not in rooms:  # one for all values that share it, as in the step
                rooms[where] = torch.empty(high - low, dtype=value.dtype, device=self.device)
                _fill(rooms[where], limits.get(where, 0), ends.get(where, 0))
            return view(rooms[where], replace(value, offset=value.offset - low))

        args, kwargs = (tree_map(real, x, is_leaf=lambda x: isinstance(x, Ref)) for x in (call.args, call.kwargs))
        result = call.target(*args, **kwargs)  # the first call may choose an algorithm
        more = self._check(call, result)
        del result
        seconds, workspace = self.timed(call, args, kwargs)
        return seconds, workspace + more

    def timed(self, call: Call, args: Any, kwargs: Any) -> tuple[float, int]:
        """Seconds and passing bytes of a call that ran once already."""
        torch.cuda.synchronize(self.device)
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        result = call.target(*args, **kwargs)
        torch.cuda.synchronize(self.device)
        after = torch.cuda.memory_allocated(self.device)
        workspace = torch.cuda.max_memory_allocated(self.device) - max(after, before)
        del result
        took = []
        for _ in range(_ROUNDS):
            torch.cuda._sleep(_AHEAD)  # calls are waiting when the device comes to them: what is timed is the device
            begin.record()
            for _ in range(_TIMES):
                call.target(*args, **kwargs)
            end.record()
            torch.cuda.synchronize(self.device)
            took.append(begin.elapsed_time(end) / 1e3 / _TIMES)
        return min(took), max(0, workspace)

    def _check(self, call: Call, result: Any) -> int:
        """That the results are what the trace says; bytes of those that will have to be laid out anew."""
        more = 0
        for k, (number, tensor) in enumerate(zip(call.makes, [result] if call.single else result, strict=False)):
            if number < 0 or not isinstance(tensor, torch.Tensor):
                continue
            value = self.lifted.values[number]
            tiny = max(tensor.numel() * tensor.element_size(), _nbytes(value)) <= _SEED
            if not tiny and (tensor.dtype, tensor.shape) != (value.dtype, value.size):
                raise CannotCapture(
                    f"result {k} of {call.target} is {tensor.dtype} {tuple(tensor.shape)} on {self.device}, and torch "
                    f"says without running it that it is {value.dtype} {value.size}: it could not come back from the "
                    "host as it was; use another dtype there, or another operation"
                )
            more += _nbytes(value) if lies_otherwise(tensor, value) else 0
        return more


def _spans(lifted: Lifted, call: Call) -> dict[Any, tuple[int, int]]:
    """By storage and dtype: the first element that a call reads, and one behind the last."""
    found: dict[Any, tuple[int, int]] = {}
    for x in tree_leaves((call.args, call.kwargs), is_leaf=lambda x: isinstance(x, Ref)):
        if not isinstance(x, Ref):
            continue
        value = lifted.values[x.value]
        top = 1 + sum((n - 1) * k for n, k in zip(value.size, value.stride, strict=True) if n)
        low, high = found.get((value.storage, value.dtype), (value.offset, 0))
        found[value.storage, value.dtype] = min(low, value.offset), max(high, value.offset + max(top, 1))
    return found


def _fill(room: torch.Tensor, limit: int, rows: int = 0) -> None:
    """Numbers that are nothing special; limit: they are numbers of so many rows. Between 0 and 1, as chances are: a GPU
    that is given others for those is lost to the process. rows: they are the ends of ranges of equal length of these
    rows."""
    if room.dtype.is_floating_point:
        room.uniform_(0.01, 0.99)
    elif rows:
        room.copy_(torch.arange(1, len(room) + 1) * rows // len(room))
    elif limit:
        torch.arange(_APART, _APART * len(room) + 1, _APART, out=room).remainder_(limit)
    else:
        room.zero_()


def _limits(lifted: Lifted, call: Call) -> dict[Any, int]:
    """By storage and dtype of numbers of rows: how many rows there are. All of them the same row would be a case of its
    own, and slow."""
    name, args = str(getattr(getattr(call.target, "_overloadpacket", None), "__name__", "")), call.args

    def rows(x: Any, dim: int) -> int:
        return int(lifted.values[x.value].size[dim]) if isinstance(x, Ref) and lifted.values[x.value].size else 0

    found: list[tuple[Any, int]] = []
    if name in ("index", "_unsafe_index", "index_put", "_unsafe_index_put"):
        found = [(x, rows(args[0], dim)) for dim, x in enumerate(args[1]) if isinstance(x, Ref)]
    elif name in ("index_select", "index_add", "index_copy", "gather", "scatter", "scatter_add"):
        found = [(args[2], rows(args[0], args[1]))]
    elif name == "embedding":
        found = [(args[1], rows(args[0], 0))]
    elif name == "embedding_dense_backward":
        found = [(args[1], args[2])]
    whole = (torch.int64, torch.int32)
    limits: dict[Any, int] = {}
    for x, n in found:
        if isinstance(x, Ref) and lifted.values[x.value].dtype in whole:
            where = lifted.values[x.value].storage, lifted.values[x.value].dtype
            limits[where] = min(n, limits.get(where, n))
    return limits


def _ends(lifted: Lifted, call: Call) -> dict[Any, int]:
    """By storage and dtype of the ends of experts' rows: how many rows there are. Of zeros no row would be computed."""
    if getattr(call.target, "namespace", "") != "stretto" or "grouped_mm" not in str(call.target):
        return {}
    rows, ends = (lifted.values[call.args[k].value] for k in (0, 2))
    return {(ends.storage, ends.dtype): int(rows.size[0])}


def _nbytes(value: Value) -> int:
    n = 1
    for size in value.size:
        n *= size
    return n * int(value.dtype.itemsize)
