"""Ranking metrics by their definitions, in plain Python, one user at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

NAN = float("nan")


def brute(
    name: str,
    k: int,
    ranked: Sequence[int],
    gains: dict[int, float],
    *,
    items: int,
    information: Sequence[float] = (),
    seen: frozenset[int] = frozenset(),
) -> float:
    """A metric of one user. ranked: items, best first, −1 for none; gains: of the held-out items."""
    relevant = {item: gain for item, gain in gains.items() if item not in seen}
    if not relevant:
        return NAN
    top = [*ranked[:k], *[-1] * (k - len(ranked))]
    hit = [item in relevant for item in top]
    if name == "precision":
        return sum(hit) / k
    if name == "recall":
        return sum(hit) / len(relevant)
    if name == "hit_rate":
        return float(any(hit))
    if name == "mrr":
        return 1 / (hit.index(True) + 1) if any(hit) else 0.0
    if name == "map":
        return sum(sum(hit[: i + 1]) / (i + 1) for i in range(k) if hit[i]) / min(k, len(relevant))
    if name == "ndcg":
        gained = sum(relevant[item] / math.log2(i + 2) for i, item in enumerate(top) if hit[i])
        best = sorted(relevant.values(), reverse=True)[:k]
        return gained / sum(gain / math.log2(i + 2) for i, gain in enumerate(best))
    shown = [item for item in top if item >= 0]
    if name == "auc":
        others = [item for item in range(items) if item not in relevant and item not in seen]
        known = [item for item in relevant if item < items]
        if not (known and others):
            return NAN
        place = {item: i for i, item in enumerate(top) if item >= 0}
        right = 0.0
        for good in known:
            for bad in others:
                mine, its = place.get(good, len(top)), place.get(bad, len(top))
                right += 1.0 if mine < its else 0.5 if mine == its else 0.0
        return right / (len(known) * len(others))
    mean = sum(information[item] for item in shown) / len(shown) if shown else NAN
    if name == "novelty":
        return mean
    assert name == "popularity_bias"
    taste = [information[item] for item in relevant if item < len(information)]
    return sum(taste) / len(taste) - mean if taste else NAN
