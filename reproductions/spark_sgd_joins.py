"""Stratified SGD for matrix factorisation with RDD joins: H is an RDD, joined to ratings and W in every sub-epoch.

    python -m reproductions.spark_sgd_joins            # on a part of MovieLens-1M: seconds of an epoch and RMSE

This is how the dissertation behind Orion (section 4.2) wrote it in PySpark, which took 226 times as long as its own
code in C++. Both sides have one partitioner, so a join moves H alone; but what a partition holds, its ratings included,
passes between Java and Python in every sub-epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .spark_sgd import UPDATES, Block, Floats, Settings, example, first_factors

Kept = tuple[list[Block], Floats]  # the blocks of one partition's rows, and its rows of W
Moved = tuple[int, Floats]  # number of a block of H, and the block


def train(context: Any, made: list[list[Block]], shape: tuple[int, int], how: Settings) -> Iterator[tuple[Any, Any]]:
    """W and H after every epoch, without end. made: the ratings as P × P blocks."""
    parts = len(made)
    apply = UPDATES[how.kind]

    def updated(both: tuple[Kept, Moved]) -> tuple[Kept, Moved]:
        (mine, w), (q, h) = both
        w, h = w.copy(), h.copy()
        apply(mine[q], w, h, how.step, how.reg)
        return (mine, w), (q, h)

    W, H = first_factors(shape[0], parts, how, 1), first_factors(shape[1], parts, how, 2)
    left = context.parallelize([(p, (made[p], W[p])) for p in range(parts)], parts).partitionBy(parts).cache()
    # The key of a block of H is the partition that updates it next.
    right = context.parallelize([(p, (p, H[p])) for p in range(parts)], parts).partitionBy(parts)
    before = left
    while True:
        for _ in range(parts):
            done = left.join(right, parts).mapValues(updated).cache()
            done.count()
            before.unpersist()
            before = done
            left = done.mapValues(lambda both: both[0])
            # Block q moves to partition p − 1, so that partition p meets block p + s in sub-epoch s.
            right = done.map(lambda item: ((item[0] - 1) % parts, item[1][1])).partitionBy(parts)
        factors = dict(left.mapValues(lambda mine: mine[1]).collect())
        others = dict(right.values().collect())
        yield np.concatenate([factors[p] for p in range(parts)]), np.concatenate([others[q] for q in range(parts)])


if __name__ == "__main__":
    example(train)
