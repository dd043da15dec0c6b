"""Stratified SGD for matrix factorisation with broadcast factors: the driver holds H, sends and collects it.

    python -m reproductions.spark_sgd_broadcast        # on a part of MovieLens-1M: seconds of an epoch and RMSE

The other way that Spark offers (section 4.2 of the dissertation behind Orion, which rejects it because the driver must
hold all of H). Every partition receives all of H in each sub-epoch, and uses one block of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .spark_sgd import UPDATES, Block, Floats, Settings, example, first_factors

Kept = tuple[list[Block], Floats]  # the blocks of one partition's rows, and its rows of W


def train(context: Any, made: list[list[Block]], shape: tuple[int, int], how: Settings) -> Iterator[tuple[Any, Any]]:
    """W and H after every epoch, without end. made: the ratings as P × P blocks."""
    parts = len(made)
    apply = UPDATES[how.kind]
    W, H = first_factors(shape[0], parts, how, 1), first_factors(shape[1], parts, how, 2)
    kept = context.parallelize([(p, (made[p], W[p])) for p in range(parts)], parts).cache()
    while True:
        for turn in range(parts):
            sent = context.broadcast(H)

            def updated(item: tuple[int, Kept], turn: int = turn, sent: Any = sent) -> Any:
                p, (mine, w) = item
                q = (p + turn) % parts
                w, h = w.copy(), sent.value[q].copy()
                apply(mine[q], w, h, how.step, how.reg)
                return p, (mine, w), (q, h)

            done = kept.map(updated).cache()
            for q, h in done.map(lambda item: item[2]).collect():
                H[q] = h
            before, kept = kept, done.map(lambda item: (item[0], item[1])).cache()
            kept.count()
            before.unpersist()
            done.unpersist()
            sent.unpersist()
        factors = dict(kept.mapValues(lambda mine: mine[1]).collect())
        yield np.concatenate([factors[p] for p in range(parts)]), np.concatenate(H)


if __name__ == "__main__":
    example(train)
