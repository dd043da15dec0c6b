"""Find dimensions by name: of the batch, and of parameters whose modules name them.

    class Stacked(nn.Module):
        dims = {"up": ("experts", "width", "inner")}     # of self.up, a parameter with three dimensions

"batch" is the first dimension of the tensors of the batch, or the second of tensors with time first: the dimension
whose length is among the first two lengths of all tensors.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.fx import Node

from stretto.errors import PlanError

from .trace_step import TracedStep

BATCH = "batch"


def inputs_with_dim(traced: TracedStep, name: str) -> list[tuple[Node, int]]:
    """Inputs of the step that have a named dimension, each with the index of the dimension."""
    given = [node for node in traced.module.graph.nodes if node.op == "placeholder"]
    if name == BATCH:
        return _of_batch(given[len(given) - traced.batch_leaves :])
    return [(given[number], dim) for number, dim in _of_parameters(traced).get(name, [])]


def check_dims(traced: TracedStep, wanted: Iterable[str]) -> None:
    """Refuse names that no dimension has."""
    known = {BATCH, *_of_parameters(traced)}
    for name in wanted:
        if name not in known:
            raise PlanError(
                f"chunks: no dimension has the name {name!r}; known names are {', '.join(sorted(known))}. A module "
                'names the dimensions of its parameters with dims = {"weight": ("experts", "width")}'
            )


def _of_batch(leaves: list[Node]) -> list[tuple[Node, int]]:
    values = [(node, node.meta.get("val")) for node in leaves]
    shapes = [(node, list(value.shape)) for node, value in values if isinstance(value, torch.Tensor) and value.dim()]
    if not shapes:
        return []
    first = shapes[0][1][:2]
    length = next((n for n in first if all(n in shape[:2] for _, shape in shapes)), first[0])
    return [(node, shape[:2].index(length)) for node, shape in shapes if length in shape[:2]]


def _of_parameters(traced: TracedStep) -> dict[str, list[tuple[int, int]]]:
    """By name of a dimension: (number of a parameter, index of its dimension)."""
    found: dict[str, list[tuple[int, int]]] = {}
    watched = traced.watched
    for number, (m, name) in enumerate(all_names[0] for all_names in watched.parameter_names):
        path, _, own = name.rpartition(".")
        dims = getattr(watched.modules[m].get_submodule(path), "dims", None)
        names = dims.get(own) if isinstance(dims, dict) else None
        for dim, called in enumerate(names if isinstance(names, (list, tuple)) else ()):
            if isinstance(called, str) and dim < watched.parameters[number].dim():
                found.setdefault(called, []).append((number, dim))
    return found
