"""Split dropout into two operations: one draws the mask, the other multiplies.

A mask cannot be drawn a second time, so `native_dropout` is never recomputed and its result must be kept or copied.
After the split only the mask must be kept, with one byte for each number. The result is recomputed from it.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from stretto.memory.capture.trace_function import module_of
from stretto.memory.capture.trace_step import TracedStep

_aten = torch.ops.aten
_SAMPLE = 4096  # numbers on which both forms are compared


def cut_dropouts(traced: TracedStep) -> tuple[TracedStep, int]:
    """Split the dropouts of a step. Returns the step and how many were split.

    A dropout whose results would have other bits is left as it is.
    """
    graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    same: dict[Any, bool] = {}
    count = 0
    graph.output(graph.graph_copy(traced.module.graph, new))
    for old in traced.module.graph.nodes:
        node = new.get(old)
        if node is None or node.target is not _aten.native_dropout.default:
            continue
        x, chance, *train = node.args
        results = [user for user in node.users if user.args[1] == 0]
        if not isinstance(x, fx.Node) or train not in ([True], [None]) or not 0 < float(chance) < 1 or not results:
            continue
        value = x.meta["val"]
        key = (value.dtype, value.device, float(chance))
        if key not in same:
            same[key] = _same_bits(*key)
        if same[key]:
            _cut(graph, node, x, results, float(chance))
            count += 1
    if not count:
        return traced, 0
    graph.lint()
    return replace(traced, module=module_of(traced.module, graph)), count


def _cut(graph: fx.Graph, node: fx.Node, x: fx.Node, results: list[fx.Node], chance: float) -> None:
    masks = [user for user in node.users if user.args[1] == 1]
    with graph.inserting_after(node):
        mask = masks[0] if masks else graph.call_function(operator.getitem, (node, 1))
    if masks:  # right after the operation that draws it
        node.append(mask)
    mask.meta["val"] = node.meta["val"][1]
    with graph.inserting_after(mask):
        kept = graph.call_function(_aten.mul.Tensor, (x, mask))
    with graph.inserting_after(kept):
        scaled = graph.call_function(_aten.mul.Tensor, (kept, 1 / (1 - chance)))
    for one in (kept, scaled):
        one.meta.update({name: value for name, value in node.meta.items() if name != "val"})
        one.meta["val"] = torch.empty_like(node.meta["val"][0])
    for result in results:
        result.replace_all_uses_with(scaled)
        graph.erase_node(result)


def _same_bits(dtype: torch.dtype, device: torch.device, chance: float) -> bool:
    """Whether multiplying by the mask gives the bits of torch's dropout on this device."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
        x = torch.linspace(-3, 3, _SAMPLE, device=device).to(dtype)
        made, mask = _aten.native_dropout.default(x, chance, True)
        product = x.mul(mask).mul(1 / (1 - chance))
    whole = torch.int16 if dtype.itemsize == 2 else torch.int32 if dtype.itemsize == 4 else torch.int64
    return bool(made.dtype == product.dtype and torch.equal(made.view(whole), product.view(whole)))
