"""Measure the cost of operations on a device, once for each distinct call, and cache the results on disk.

An operation is measured alone, with inputs of its own (`trial_inputs`). Its results are compared with the trace. A
result with another dtype or size than traced could not be copied to the host and back. A result in another layout is
copied, which needs free memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map

from stretto.memory.addresses.allocations import Order, allocations, plain, recorded
from stretto.memory.addresses.arena import SMALL
from stretto.memory.capture.lifted import LiftedStep, OpCall, Ref
from stretto.memory.capture.side_effects import CannotCapture
from stretto.memory.planner.program import HostLink
from stretto.memory.run.views import in_traced_layout, layout_differs
from stretto.paths import cache_root

from .trial_inputs import TrialInputs

_TIMES = 3  # calls in a round
_ROUNDS = 2  # the faster round counts: others may use the device too
_AHEAD = 1_000_000  # cycles that the device sleeps before a round
_SEED = 16  # bytes of attention's random state, whose layout depends on how attention is called; not worth a copy
_VERSION = 6  # of the file format
_LINK = ("copies to the host, seconds a byte", "copies from the host, seconds a byte")
_COPIED = 256 << 20  # bytes of a copy that is measured


class CallCost(NamedTuple):
    """The cost of a call."""

    seconds: float
    workspace: int  # bytes besides its results
    order: Order = ()  # of its allocations (`addresses.allocations`); empty if at most one of them is large


class CostCache:
    """Cached costs by call, in one file for a device, a version of torch and its settings.

        remembered = Remembered.of("NVIDIA H200")
        remembered.costs["aten.relu.default …"] = Cost(1e-5, 0)
        remembered.save()

    A file that cannot be read counts as empty; one that cannot be written is not written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.costs = _read(path)
        self._saved = len(self.costs)

    @classmethod
    def of(cls, device: str) -> CostCache:
        """The file in the cache folder for a device of this name, with torch's current settings."""
        name = re.sub(r"[^A-Za-z0-9.+]+", "-", "-".join((device, torch.__version__, *_settings()))).lower()
        return cls(cache_root() / "memory" / f"{name}.json")

    def save(self) -> None:
        """Write new costs. Costs that other processes have written meanwhile are kept."""
        if len(self.costs) == self._saved:
            return
        everything = {**_read(self.path), **self.costs}
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps({"version": _VERSION, "costs": everything}))
            temporary.replace(self.path)
            self._saved = len(self.costs)


def link(device: torch.device, remembered: CostCache) -> HostLink:
    """The speed of copies to pinned host memory and back, each the mean of alone and in both directions at once."""
    if not all(key in remembered.costs for key in _LINK):
        on_device = [torch.empty(_COPIED, dtype=torch.uint8, device=device) for _ in _LINK]
        on_host = [torch.empty(_COPIED, dtype=torch.uint8, pin_memory=True) for _ in _LINK]
        streams = [torch.cuda.Stream(device) for _ in _LINK]
        pairs = [(on_host[0], on_device[0]), (on_device[1], on_host[1])]  # (target, source) to the host, from it
        took = [[_copied(device, [(pairs[k], streams[k])])[0] for _ in range(3)] for k in range(2)]
        both = [_copied(device, list(zip(pairs, streams, strict=True))) for _ in range(3)]
        for k, key in enumerate(_LINK):
            remembered.costs[key] = CallCost((min(took[k]) + min(each[k] for each in both)) / 2 / _COPIED, 0)
        remembered.save()
    out, into = (1 / remembered.costs[key].seconds for key in _LINK)
    return HostLink(out, into)


def _copied(device: torch.device, copies: Sequence[Any]) -> list[float]:
    """Seconds of copies that run at the same time."""
    torch.cuda.synchronize(device)
    events = []
    for (target, source), stream in copies:
        with torch.cuda.stream(stream):
            events.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
            events[-1][0].record()
            target.copy_(source, non_blocking=True)
            events[-1][1].record()
    torch.cuda.synchronize(device)
    return [begin.elapsed_time(end) / 1e3 for begin, end in events]


def _read(path: Path) -> dict[str, CallCost]:
    try:
        found = json.loads(path.read_text())
        if found["version"] != _VERSION:
            return {}
        return {str(key): _cost(*one) for key, one in found["costs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _cost(seconds: Any, workspace: Any, order: Any) -> CallCost:
    return CallCost(float(seconds), int(workspace), tuple((int(what), int(nbytes)) for what, nbytes in order))


def _settings() -> tuple[str, ...]:
    """Settings of torch that change the cost of an operation."""
    kinds = {"matmul": torch.backends.cuda.matmul, "conv": torch.backends.cudnn.conv}
    return (
        *(f"{kind}-tf32" for kind, one in kinds.items() if one.fp32_precision == "tf32"),
        *(["search"] if torch.backends.cudnn.benchmark else []),
        *(["deterministic"] if torch.are_deterministic_algorithms_enabled() else []),
    )


class Meter:
    """Measures the calls of one step."""

    def __init__(self, lifted: LiftedStep, device: torch.device, remembered: CostCache) -> None:
        self.lifted, self.device, self.remembered = lifted, device, remembered
        self._inputs = TrialInputs(lifted, device)
        self._failed: set[str] = set()
        self.out_of_memory: set[str] = set()  # calls that ran out of memory; they are measured again once it is cleared

    def measured(self, call: OpCall) -> CallCost | None:
        """The cost of a call; None if it cannot be measured alone."""
        key, costs = self.key(call), self.remembered.costs
        if key not in costs and key not in self._failed and key not in self.out_of_memory:
            try:
                costs[key] = self._try(call)
            except RuntimeError as error:
                full = isinstance(error, torch.OutOfMemoryError)
                (self.out_of_memory if full else self._failed).add(key)
            if key not in costs and self.device.type == "cuda":
                torch.cuda.empty_cache()
        return costs.get(key)

    def key(self, call: OpCall) -> str:
        """A text for a call: the operation, and the dtypes, sizes and strides of its arguments."""

        def plain(x: Any) -> str:
            if isinstance(x, Ref):
                value = self.lifted.values[x.value]
                return f"{value.dtype}{list(value.size)}{list(value.stride)}"
            return repr(x)

        args, kwargs = (tree_map(plain, x, is_leaf=lambda x: isinstance(x, Ref)) for x in (call.args, call.kwargs))
        return f"{call.target} {args} {kwargs}" if kwargs else f"{call.target} {args}"

    def _try(self, call: OpCall) -> CallCost:
        """Call an operation once, check its results, and measure it."""
        args, kwargs = self._inputs.of(call)
        result = call.target(*args, **kwargs)  # the first call may choose an algorithm
        more = self._check(call, result)
        large = sum(_large(one) for one in ([result] if call.single else result)) if call.makes else 0
        spare = _spare(result) if call.single and call.makes else 0
        del result
        seconds, workspace = self.timed(call, args, kwargs)
        odd = workspace > SMALL or large > 1 or spare > SMALL or more > SMALL
        return CallCost(seconds, workspace + more, self.order(call, args, kwargs) if odd else ())

    def order(self, call: OpCall, args: Any, kwargs: Any) -> Order:
        """The order in which a call allocates; empty if only one order is possible, or none is known."""
        if self.device.type != "cuda":
            return ()
        with recorded(self.device) as events:
            result = call.target(*args, **kwargs)
            results = self._laid_out(call, [result] if call.single else list(result))
            del result
        found = allocations(events, results)
        return () if plain(found, self._sizes(call)) else found

    def _laid_out(self, call: OpCall, results: list[Any]) -> list[Any]:
        """Results as a step keeps them: some are copied to the traced layout."""
        found = list(results)
        for k, (number, tensor) in enumerate(zip(call.makes, results, strict=False)):
            if number >= 0 and isinstance(tensor, torch.Tensor):
                found[k] = in_traced_layout(tensor, self.lifted.values[number])
        return found

    def _sizes(self, call: OpCall) -> list[int]:
        return [self.lifted.values[v].nbytes if v >= 0 else 0 for v in call.makes]

    def timed(self, call: OpCall, args: Any, kwargs: Any) -> tuple[float, int]:
        """Seconds and temporary bytes of a call that was called once before."""
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
            torch.cuda._sleep(_AHEAD)  # calls queue up meanwhile, so that the device is timed and not Python
            begin.record()
            for _ in range(_TIMES):
                call.target(*args, **kwargs)
            end.record()
            torch.cuda.synchronize(self.device)
            took.append(begin.elapsed_time(end) / 1e3 / _TIMES)
        return min(took), max(0, workspace)

    def _check(self, call: OpCall, result: Any) -> int:
        """Check that the results match the trace. Returns the bytes of results that need a copy in another layout."""
        more = 0
        for k, (number, tensor) in enumerate(zip(call.makes, [result] if call.single else result, strict=False)):
            if number < 0 or not isinstance(tensor, torch.Tensor):
                continue
            value = self.lifted.values[number]
            tiny = max(tensor.numel() * tensor.element_size(), value.nbytes) <= _SEED
            if not tiny and (tensor.dtype, tensor.shape) != (value.dtype, value.size):
                raise CannotCapture(
                    f"result {k} of {call.target} is {tensor.dtype} {tuple(tensor.shape)} on {self.device}, but torch "
                    f"predicts {value.dtype} {value.size}, so it cannot be copied to the host and back; use another "
                    "dtype for this operation, or another operation"
                )
            more += value.nbytes if layout_differs(tensor, value) else 0
        return more


def _large(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.untyped_storage().nbytes() > SMALL


def _spare(result: Any) -> int:
    """Bytes of a result's memory that it does not use."""
    if not isinstance(result, torch.Tensor):
        return 0
    return int(result.untyped_storage().nbytes() - result.numel() * result.element_size())
