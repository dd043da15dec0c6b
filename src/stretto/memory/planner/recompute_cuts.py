"""Drop activations by segments: keep the storages alive at a few cuts, recompute everything between two cuts.

Choosing one interval after another, cheapest first, keeps storages that are expensive to recompute, and those need not
be the ones that others are recomputed from. For small budgets the reverse works better: cut the forward pass where few
bytes are alive (between two blocks of a network), keep those, drop all the rest, and then keep what fits, most
expensive first.
"""

from __future__ import annotations

import numpy as np

from .decide import Decider
from .idle_intervals import DROP, KEEP, Ints


def cut(decider: Decider, t: int, nbytes: float, *, checkpoints: bool = False) -> None:
    """Drop storages that are idle at position t, except those that are alive at cuts.

    Parameters
    ----------
    decider : Decider
        Its choices change.
    t : int
        The position, usually that of the peak.
    nbytes : float
        Bytes of dropped storages between two cuts, about.
    checkpoints : bool
        Also keep storages that are alive at cuts and have no later use, and drop everything between, whatever the
        recomputation costs. Without, drop only storages for which `Decider.recompute_cost` finds a way.
    """
    intervals, graph = decider.intervals, decider.intervals.graph
    idle = (
        (decider.choice == KEEP) & intervals.covering(t) & decider.droppable & (intervals.nbytes > 0) & ~intervals.wraps
    )
    which = np.flatnonzero(idle)
    if not len(which):
        return
    made = np.array(graph.maker, np.int64)[intervals.storage[which]]
    order = np.argsort(made, kind="stable")
    which, made = which[order], made[order]
    alive = _alive(decider, t, which, made)
    total = np.cumsum(intervals.nbytes[which])
    kept = np.zeros(len(which), bool)
    extended = np.flatnonzero(intervals.extended & (intervals.start <= t) & (t < intervals.end))
    began = np.array(graph.maker, np.int64)[intervals.storage[extended]]
    base = 0
    end = total[-1] - (nbytes / 4 if checkpoints else 0)  # a small rest at the end needs no cut
    while base + nbytes <= end:
        half, full = np.minimum(np.searchsorted(total, (base + nbytes / 2, base + nbytes)), len(which) - 1)
        first, last = int(made[half]), max(int(made[half]) + 1, int(made[full]))
        p = first + int(alive[first:last].argmin())
        kept |= (made <= p) & (p < intervals.start[which])
        if checkpoints:
            decider.choice[extended[(began <= p) & (p < intervals.start[extended])]] = KEEP
        at = int(np.searchsorted(made, p, side="right"))
        base = max(int(total[at - 1]), base + 1) if at else base + 1
    if checkpoints:
        decider.choice[which[~kept]] = DROP
        return
    for g in which[~kept].tolist():
        found = decider.recompute_cost(g)
        if found is not None:
            decider.set_drop(g, found)


def _alive(decider: Decider, t: int, which: Ints, made: Ints) -> Ints:
    """By position: bytes that a later node needs before the interval over t begins (or before the last use)."""
    intervals, graph = decider.intervals, decider.intervals.graph
    change = np.zeros(len(graph.nodes) + 2, np.int64)
    np.add.at(change, made, intervals.nbytes[which])
    np.add.at(change, intervals.start[which], -intervals.nbytes[which])
    for s, touches in enumerate(intervals.touches):
        if graph.maker[s] >= 0 and touches[-1] < t:
            change[touches[0]] += intervals.sizes[s]
            change[touches[-1]] -= intervals.sizes[s]
    return np.cumsum(change)
