"""Stratified SGD for matrix factorisation in Spark: what both ways of exchanging the factors share.

The rating matrix is cut into P × P blocks. An epoch is P sub-epochs; in sub-epoch s partition p updates with block
(p, (p + s) mod P), so that no two partitions touch the same row of W or H (Gemulla et al., 2011). W's blocks stay with
their ratings in one RDD; `spark_sgd_joins` joins H to it in each sub-epoch, `spark_sgd_broadcast` broadcasts H from the
driver and collects it. The updates are plain Python with NumPy, as an RDD of Python objects has them, or compiled
("numba"), which leaves Spark's own cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Block = tuple[NDArray[np.int32], NDArray[np.int32], Floats]  # row within W's block, column within H's block, rating
Update = Callable[[Block, Floats, Floats, float, float], None]
Train = Callable[[Any, list[list[Block]], tuple[int, int], "Settings"], Iterator[tuple[Floats, Floats]]]


@dataclass(frozen=True)
class Settings:
    """What both ways are given. kind: one of `UPDATES`. mean: of the ratings, for the first factors."""

    kind: str = "python"
    rank: int = 10
    mean: float = 3.5
    step: float = 0.01
    reg: float = 0.05


def bounds(size: int, parts: int) -> NDArray[np.int64]:
    """Where each part of 0 … size begins, and the end [parts + 1]."""
    return np.linspace(0, size, parts + 1).astype(np.int64)


def blocks(rows: Any, cols: Any, values: Any, shape: tuple[int, int], parts: int) -> list[list[Block]]:
    """Ratings cut into parts × parts blocks, each in random order."""
    rng = np.random.default_rng(0)
    by_row, by_col = bounds(shape[0], parts), bounds(shape[1], parts)
    row_part = np.searchsorted(by_row, rows, side="right") - 1
    col_part = np.searchsorted(by_col, cols, side="right") - 1
    made = []
    for p in range(parts):
        mine = []
        for q in range(parts):
            which = rng.permutation(np.flatnonzero((row_part == p) & (col_part == q)))
            i = (rows[which] - by_row[p]).astype(np.int32)
            j = (cols[which] - by_col[q]).astype(np.int32)
            mine.append((i, j, values[which].astype(np.float32)))
        made.append(mine)
    return made


def first_factors(size: int, parts: int, how: Settings, seed: int) -> list[Floats]:
    """Blocks of random factors whose products are about the mean rating."""
    rng = np.random.default_rng(seed)
    level = np.sqrt(how.mean / how.rank)
    factors = (level + 0.1 * rng.standard_normal((size, how.rank))).astype(np.float32)
    edges = bounds(size, parts)
    return [factors[edges[p] : edges[p + 1]] for p in range(parts)]


def update(block: Block, W: Floats, H: Floats, step: float, reg: float) -> None:
    """One pass of SGD over a block, in place."""
    for i, j, value in zip(*(part.tolist() for part in block), strict=True):
        w, h = W[i], H[j]
        off = float(w @ h) - value
        W[i], H[j] = w - step * (off * h + reg * w), h - step * (off * w + reg * h)


_compiled: list[Update] = []


def compiled_update(block: Block, W: Floats, H: Floats, step: float, reg: float) -> None:
    """The same pass, compiled once in each process."""
    if not _compiled:
        import numba

        @numba.njit(fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
        def passed(rows: Any, cols: Any, values: Any, W: Any, H: Any, step: Any, reg: Any) -> None:
            for n in range(len(values)):
                i, j = rows[n], cols[n]
                off = np.float32(0)
                for k in range(W.shape[1]):
                    off += W[i, k] * H[j, k]
                off -= values[n]
                for k in range(W.shape[1]):
                    w, h = W[i, k], H[j, k]
                    W[i, k] = w - step * (off * h + reg * w)
                    H[j, k] = h - step * (off * w + reg * h)

        _compiled.append(lambda block, W, H, step, reg: passed(*block, W, H, np.float32(step), np.float32(reg)))
    _compiled[0](block, W, H, step, reg)


UPDATES: dict[str, Update] = {"python": update, "numba": compiled_update}


def example(train: Train, ratings: int = 50_000, epochs: int = 3) -> None:
    """Some epochs on a part of MovieLens-1M, or of a generated set, each followed by a fit of Stretto: seconds."""
    from bench import sets

    import stretto as st

    from .spark_objectives import rmse
    from .spark_session import THREADS, open_session, require, timed

    require()
    found = next(iter(sets.rating_sets(big=False)), None)
    data = sets.generated(ratings, 2_000, 1_500) if found is None else found.train
    which = np.random.default_rng(0).permutation(len(data))[:ratings]
    rows, cols, values = data.rows[which], data.cols[which], data.values[which]
    how = Settings(mean=float(values.mean()))
    part = st.Data.from_arrays(rows, cols, values, data.shape)
    ours = st.MatrixFactorization(how.rank, l2_regularization=how.reg, biases=False, n_jobs=THREADS, random_state=0)
    ours.set_params(max_iter=20).fit(part)  # compiles
    with open_session() as session:
        following = train(session.spark.sparkContext, blocks(rows, cols, values, data.shape, THREADS), data.shape, how)
        for _ in range(epochs):
            theirs, mine = timed(lambda: next(following), session), timed(lambda: ours.fit(part), session)
            error = rmse(rows, cols, values, *theirs.value)
            print(
                f"an epoch of {ratings:,} ratings: PySpark {theirs.seconds:.2f} s ({theirs.processor:.2f}), "
                f"training RMSE {error:.4f}; Stretto {mine.seconds / 20:.4f} s ({mine.processor / 20:.4f})",
                flush=True,
            )
