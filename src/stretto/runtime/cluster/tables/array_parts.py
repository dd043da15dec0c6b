"""Join the nodes' parts of a table cut into one, and split it over another number of nodes.

A cut at a clock has a part of every worker, of every node's cache (rounding residuals) and of every shard. The joined
cut does not depend on the number of nodes: a run may be resumed from it with more or fewer, or on threads.
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
    """Join the parts of all nodes into one part."""
    lists: dict[str, list[NDArray[Any]]] = {}
    for arrays in shards:
        for name, array in arrays.items():
            lists.setdefault(name, []).append(array)
    joined = {name: found[0] if name == "clock" else np.concatenate(found) for name, found in lists.items()}
    return NodePart(clock, joined, _summed(residuals))


def _summed(residuals: Iterable[Arrays]) -> Arrays:
    """Add up the nodes' own rounding residuals (worker −1); a worker's residual is on one node only."""
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
    """Split a joined part over the nodes of a layout: rows by shard, residuals by the node of their worker."""
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
