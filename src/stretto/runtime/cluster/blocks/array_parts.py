"""Putting the arrays of a cut together, and taking them apart again.

A cut at a clock has a part of every worker, of every node's cache (what rounding left) and of every shard. Whole, it
does not depend on how many nodes there were: a run may go on from it with more or fewer, or on threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.store.layout import Layout
from stretto.store.node import NodePart

Arrays = dict[str, NDArray[Any]]


def whole(clock: int, shards: Iterable[Arrays], residuals: Iterable[Arrays]) -> NodePart:
    """One node's part that holds what all nodes had."""
    lists: dict[str, list[NDArray[Any]]] = {}
    for arrays in shards:
        for name, array in arrays.items():
            lists.setdefault(name, []).append(array)
    joined = {name: found[0] if name == "clock" else np.concatenate(found) for name, found in lists.items()}
    return NodePart(clock, joined, _summed(residuals))


def _summed(residuals: Iterable[Arrays]) -> Arrays:
    """What rounding left of the nodes' own changes (worker −1) adds up; a worker's is on one node only."""
    found: dict[str, list[NDArray[Any]]] = {}
    for arrays in residuals:
        for name, array in arrays.items():
            found.setdefault(name, []).append(array)
    sums: Arrays = {}
    for name, parts in found.items():
        place, entry = name.rsplit("/", 1)
        if entry != "keys":
            continue
        keys, at = np.unique(np.concatenate(parts), return_inverse=True)
        rows = np.concatenate(found[f"{place}/rows"])
        total = np.zeros((len(keys), *rows.shape[1:]), rows.dtype)
        np.add.at(total, at, rows)
        sums[name], sums[f"{place}/rows"] = keys, total
    return sums


def split(layout: Layout, part: NodePart) -> dict[int, NodePart]:
    """What each node of a layout begins with: rows go to their shards, leftovers to the nodes of their workers."""
    parts: dict[int, NodePart] = {
        node: NodePart(part.clock, {"clock": np.array(part.clock)}, {}) for node in range(layout.nodes)
    }
    for number, spec in enumerate(layout.tables):
        prefix = f"{spec.name}/"
        arrays = {name: array for name, array in part.shard.items() if name.startswith(prefix)}
        shard = layout.shard_of(number, arrays[f"{prefix}keys"])
        for node in range(layout.nodes):
            here = np.flatnonzero(shard == node)
            parts[node].shard.update({name: array[here] for name, array in arrays.items()})
    for name, array in part.residuals.items():
        worker = int(name.split("/")[-2])
        parts[layout.node_of(worker) if worker >= 0 else 0].residuals[name] = array
    return parts
