"""Dropping by segments: everything between two cuts is made again from what is kept at the cut before.

Choosing one gap after the other, cheapest first, keeps what is dear to make, and that need not be what others are made
from. For small budgets the other way round is better: cut the forward pass where little is alive (between two blocks
of a network), keep what is alive there and drop all the rest, then take back what there is room for, dearest first.
"""

from __future__ import annotations

import numpy as np

from .decide import Decider
from .idle_intervals import DROP, KEEP, Ints


def cut(decider: Decider, t: int, nbytes: float, *, checkpoints: bool = False) -> None:
    """Drops what is idle at position t, but for what is alive at cuts about `nbytes` of dropped storages apart.

    checkpoints: also keep what is alive at cuts and has no use to come, and drop all between, whatever it takes to
    recompute it. Without, only what `Decider.again` finds a way for is dropped.
    """
    gaps, graph = decider.gaps, decider.gaps.graph
    idle = (decider.choice == KEEP) & gaps.covering(t) & decider.droppable & (gaps.nbytes > 0) & ~gaps.wraps
    which = np.flatnonzero(idle)
    if not len(which):
        return
    made = np.array(graph.maker, np.int64)[gaps.storage[which]]
    order = np.argsort(made, kind="stable")
    which, made = which[order], made[order]
    alive = _alive(decider, t, which, made)
    total = np.cumsum(gaps.nbytes[which])
    kept = np.zeros(len(which), bool)
    beyond = np.flatnonzero(gaps.beyond & (gaps.start <= t) & (t < gaps.end))
    began = np.array(graph.maker, np.int64)[gaps.storage[beyond]]
    base = 0
    end = total[-1] - (nbytes / 4 if checkpoints else 0)  # a little more at the end is no reason for a cut
    while base + nbytes <= end:
        half, full = np.minimum(np.searchsorted(total, (base + nbytes / 2, base + nbytes)), len(which) - 1)
        first, last = int(made[half]), max(int(made[half]) + 1, int(made[full]))
        p = first + int(alive[first:last].argmin())
        kept |= (made <= p) & (p < gaps.start[which])
        if checkpoints:
            decider.choice[beyond[(began <= p) & (p < gaps.start[beyond])]] = KEEP
        at = int(np.searchsorted(made, p, side="right"))
        base = max(int(total[at - 1]), base + 1) if at else base + 1
    if checkpoints:
        decider.choice[which[~kept]] = DROP
        return
    for g in which[~kept].tolist():
        found = decider.again(g)
        if found is not None:
            decider.set_drop(g, found)


def _alive(decider: Decider, t: int, which: Ints, made: Ints) -> Ints:
    """By position: bytes that a node after it still wants, before the gap over t begins (or for good)."""
    gaps, graph = decider.gaps, decider.gaps.graph
    change = np.zeros(len(graph.nodes) + 2, np.int64)
    np.add.at(change, made, gaps.nbytes[which])
    np.add.at(change, gaps.start[which], -gaps.nbytes[which])
    for s, touches in enumerate(gaps.touches):
        if graph.maker[s] >= 0 and touches[-1] < t:
            change[touches[0]] += gaps.sizes[s]
            change[touches[-1]] -= gaps.sizes[s]
    return np.cumsum(change)
