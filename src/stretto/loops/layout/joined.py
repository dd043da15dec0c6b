"""Larger visits for a single worker: neighbouring blocks joined, in an order that keeps every dependence.

Blocks are small so that several workers find some that are ready. A worker on its own gains nothing from that, and
pays for each block: rows that end after some hundred elements are computed and fetched more slowly than long ones.
Where iterations that depend on each other keep their order and nothing is folded block by block, joining blocks of a
row of blocks changes no result. For the same reason one worker runs an inspected loop in its own order, which reads the
records where they are stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.strategy.unimodular import transformed
from stretto.schedule.orders.order import Ints
from stretto.schedule.orders.wavefront import chain

from .body_cost import operations
from .loop_visits import LoopVisits, entries, even, indices_of

# Iterations of the innermost loop. Independent ones become vector instructions, and long loops are fast. Where each
# waits for the one before, a processor works on the next row meanwhile, if the end of the row is near.
LONG, SHORT = 1 << 12, 1 << 6
PARTS = 32  # visits of a loop that runs as a whole: Ctrl-C is heard between two
LITTLE = 1 << 15  # iterations in a visit, on average, below which claiming it takes a part of its time that counts
FEW = 1 << 16  # operations in a wave, on average, below which one worker is faster than waves


def joined(analysis: Analysis, visits: LoopVisits) -> LoopVisits | None:
    """The same iterations in fewer visits, to be made in their numbering; None where that may change a result.

    Parameters
    ----------
    analysis : Analysis
        Of a loop that folds into no accumulator and no buffer, and whose subscripts are all proven.
    visits : LoopVisits
        Its visits.
    """
    form, name = visits.form, analysis.strategy.name
    if name == "inspected" and form.kind == "entries":
        return _in_order(analysis, visits)
    if form.kind not in ("grid", "skewed") or form.dense or len(visits) < 2:
        return None
    if form.kind == "grid" and min(form.steps) < 0:
        return None
    if name == "stepped" and form.kind == "grid":
        return _one_after_the_other(visits)
    if visits.waves:
        return _one_after_the_other(visits) if name == "2d transformed" and form.kind == "skewed" else None
    if form.kind == "skewed" and len(form.steps) > 2:
        return _one_after_the_other(visits) if int(visits.weight.sum()) < LITTLE * len(visits) else None
    tiled = name in ("2d ordered", "2d transformed") and analysis.strategy.tiled and len(form.steps) == 2
    if not tiled or (form.kind == "grid" and tuple(analysis.strategy.dims) != (0, 1)):
        return None
    return _long_rows(visits, SHORT if _carried(analysis) else LONG)


def few_per_wave(analysis: Analysis, visits: LoopVisits) -> bool:
    """Whether starting a wave takes as long as its iterations."""
    return bool(visits.waves) and operations(analysis) < FEW * len(visits.waves)


def _in_order(analysis: Analysis, visits: LoopVisits) -> LoopVisits:
    """Of an inspected loop: its iterations in their own order, from the records as they are stored."""
    count = len(analysis.space)
    cut = even(count, max(1, min(PARTS, count)))
    arrays = {**visits.arrays, **entries(analysis.space, indices_of(analysis.space), cut.sizes, None)}
    return LoopVisits(chain(len(cut.sizes)), cut.sizes, visits.form, cut, visits.cols, arrays)


def _one_after_the_other(visits: LoopVisits) -> LoopVisits:
    """Parts along the outermost index: in the order of the coordinates of the visits, everything is serial."""
    lo, hi = visits.arrays["lo", ""], visits.arrays["hi", ""]
    first, last = lo.min(axis=0), hi.max(axis=0)
    step = visits.form.steps[0] if visits.form.kind == "grid" else 1
    count = -(-(int(last[0]) - int(first[0])) // step)
    bounds = first[0] + step * np.linspace(0, count, min(PARTS, count) + 1).astype(np.int64)
    begin, end = np.tile(first, (len(bounds) - 1, 1)), np.tile(last, (len(bounds) - 1, 1))
    begin[:, 0], end[:, 0] = bounds[:-1], np.minimum(bounds[1:], last[0])
    arrays = {**visits.arrays, ("lo", ""): begin, ("hi", ""): end}
    weight = np.full(len(begin), -(-int(visits.weight.sum()) // len(begin)), np.int64)
    return LoopVisits(chain(len(begin)), weight, visits.form, visits.rows, visits.cols, arrays)


def _long_rows(visits: LoopVisits, length: int) -> LoopVisits | None:
    """Neighbouring blocks of a row of blocks joined, until the innermost loop has `length` iterations."""
    lo, hi = visits.arrays["lo", ""], visits.arrays["hi", ""]
    rows, cols = visits.order.row_block, visits.order.col_block
    begin, end = _table(lo, rows, cols, visits), _table(hi, rows, cols, visits)
    if begin is None or end is None or not (begin[:, 1:, 1] == end[:, :-1, 1]).all():
        return None
    each = max(1, -(-length // max(1, int((end[0, :, 1] - begin[0, :, 1]).max()))))
    firsts = np.arange(0, begin.shape[1], each)
    lasts = np.minimum(firsts + each, begin.shape[1]) - 1
    first, last = begin[:, firsts].reshape(-1, 2), end[:, lasts].reshape(-1, 2)
    arrays = {**visits.arrays, ("lo", ""): first, ("hi", ""): last}
    weight = np.add.reduceat(_weights(visits, rows, cols), firsts, axis=1).reshape(-1)
    return LoopVisits(chain(len(first)), weight, visits.form, visits.rows, visits.cols, arrays)


def _carried(analysis: Analysis) -> bool:
    """Whether an iteration of the innermost loop may depend on the one before."""
    rows = analysis.strategy.transform or ((1, 0), (0, 1))
    for vector in analysis.vectors:
        pair = tuple(vector.entries[d] for d in analysis.strategy.dims)
        if not all(entry.zero for entry in pair) and transformed(rows[:1], pair)[0].low <= 0:
            return True
    return False


def _table(values: NDArray[Any], rows: Ints, cols: Ints, visits: LoopVisits) -> NDArray[np.int64] | None:
    """[R, C, 2] bounds by row and column of blocks; None if some block has no visit, or several."""
    shape = visits.order.rows, visits.order.cols
    if len(values) != shape[0] * shape[1] or values.shape[1] != 2:
        return None
    seen = np.zeros(shape, np.int64)
    np.add.at(seen, (rows, cols), 1)
    if not (seen == 1).all():
        return None
    found = np.zeros((*shape, 2), np.int64)
    found[rows, cols] = values
    return found


def _weights(visits: LoopVisits, rows: Ints, cols: Ints) -> Ints:
    found = np.zeros((visits.order.rows, visits.order.cols), np.int64)
    found[rows, cols] = visits.weight
    return found
