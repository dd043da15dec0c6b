"""Exact sums of additive changes, and how far rounding can move a correct row from them.

    sums = Sums(columns, table, history)
    wrong, expect = sums.wrong(keys, shown, values)      # rows that no order of additions can have produced

Each row is summed by itself, exactly, so a check depends neither on other rows nor on how large they are.

**The sum.** For each row and column, 2^e is the least power of two above every term (the start and all adds). A term
divided by 2^e is cut into integers of 30 bits, as many as its digits need. Integers are summed over all rows at once:
they wrap around, and the difference of two running sums is exact whatever came before. Where the terms of a row differ
by more than `MOST` such integers (10^130), what lies below is dropped and counted in the bound.

**The bound.** A row is the sum of its terms in some order, with some grouping: n additions, each rounded to nearest.
Whatever the order, the error is at most γ · Σ|terms|, γ = n u / (1 − n u), u = 2^-24 or 2^-53 (Higham, Accuracy and
Stability of Numerical Algorithms, 4.2). Where all terms are multiples of some 2^q and Σ|terms| ≤ 2^q / u, every partial
sum is a number the dtype has: nothing is rounded, and a row must hold its sum to the last bit.

**16-bit floats.** With h = 2^-11, a number that travels is off by at most h times itself, or 2^-25 where it is tiny.
What rounding takes from changes stays with its sender and goes with a later change: at most h · Σ|terms| is missing
from a row at any time, and rows are rounded once more on the way to a reader. Beyond ±65504 numbers travel in several
parts, and a row says little about its sum: twice Σ|terms| is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.comm.codec import travels_short

from .columns import Ints, RecordingColumns
from .history import AddHistory

FEWEST, MOST = 3, 16
_BITS = 30
_MASK = (1 << _BITS) - 1
_HALF = 2.0**-11  # the unit roundoff of 16-bit floats
_TINY = 2.0**-25  # what rounding to 16 bits takes from tiny numbers at most
_LARGEST = 65504.0
_HIGH = 1 << 20  # above the exponent of any number
_SPECIAL: tuple[Callable[[Any], Any], ...] = (np.isnan, np.isposinf, np.isneginf)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class _Rows(NamedTuple):
    """Rows to be checked; arrays are [n, cols], adds [n, 1] is the number of adds."""

    exponent: Ints  # every term is below 2^exponent …
    lowest: Ints  # … and a multiple of 2^lowest
    limbs: Ints  # [limbs, n, cols] the sum of the terms, in units of 2^(exponent − 30), 2^(exponent − 60), …
    size: Floats  # the sum of their absolute values, in units of 2^exponent
    adds: Ints


class Sums:
    """The sums of one table's rows in one attempt of a run; a table of integers is compared modulo its width."""

    def __init__(self, columns: RecordingColumns, table: int, history: AddHistory) -> None:
        spec = columns.tables[table]
        self._columns, self._table, self.history, self._kept = columns, table, history, spec.kept
        deltas = columns.adds[table].deltas[history.which]
        if spec.kept.kind == "i":
            self._integers = _running(deltas.astype(np.int64))
            return
        self._narrow = travels_short(spec.dtype, columns.layout.policy.codec)
        self._unit = 2.0**-24 if spec.kept.itemsize == 4 else 2.0**-53
        self._special = [_running(is_one(deltas)) if is_one(deltas).any() else None for is_one in _SPECIAL]
        deltas = _finite(deltas)
        # [rows + 1, cols] of the adds to each row; the last for rows without.
        self._exponent = _by_row(np.maximum, np.where(deltas != 0, np.frexp(deltas)[1], -_HIGH), history, -_HIGH)
        self._lowest = _by_row(np.minimum, _lowest_bit(deltas), history, _HIGH)
        start = _finite(columns.start_rows(table, history.rows)[0])
        exponent, lowest = self._span(np.arange(len(start)), start)
        digits = int((exponent - lowest).max(initial=0))
        self._count = min(max(FEWEST, -(-digits // _BITS)), MOST)
        limbs = _cut(np.ldexp(deltas, -exponent[history.row]), self._count)[0]
        self._limbs = [_running(limb) for limb in limbs]
        self._sizes = [_running(np.abs(limb)) for limb in limbs]

    def wrong(
        self, keys: Ints, shown: Ints, values: NDArray[Any], *, travelled: bool = True
    ) -> tuple[Ints, NDArray[Any]]:
        """Rows that cannot be their start and the first `shown` [n, workers] adds of each worker; what all should be.

        travelled: the rows were sent to a reader.
        """
        start, slack = self._columns.start_rows(self._table, keys)
        first = self.history.starts[self.history.groups(keys)]
        if self._kept.kind == "i":
            sums = start.astype(np.int64) + _between(self._integers, first, shown)
            return np.flatnonzero((sums - values).astype(self._kept).any(axis=1)), sums
        rows = self._rows(keys, _finite(start), first, shown)
        with np.errstate(over="ignore"):
            expect = np.ldexp(_joined(rows.limbs), rows.exponent)
            # Where sizes overflow, so may a partial sum, whatever the sum is.
            bounded = np.ldexp(rows.size * (1 + 2 * rows.adds * self._unit), rows.exponent) < np.finfo(self._kept).max
            slack = np.ldexp(slack, -rows.exponent)
        allowed = self._allowed(rows, travelled) + slack
        bad = self._apart(rows, values, allowed, self._exact(rows) & (slack == 0))
        self._judge_special(first, shown, start, values, expect, bad)
        return np.flatnonzero((bad & bounded).any(axis=1)), expect

    def _span(self, row: Ints, start: Floats) -> tuple[Ints, Ints]:
        """[n, cols] exponent and lowest bit of the terms of rows that begin with `start`; 0 and 0 where all are 0."""
        exponent = np.maximum(self._exponent[row], np.where(start != 0, np.frexp(start)[1], -_HIGH))
        lowest = np.minimum(self._lowest[row], _lowest_bit(start))
        nothing = exponent == -_HIGH
        return np.where(nothing, 0, exponent), np.where(nothing, 0, lowest)

    def _rows(self, keys: Ints, start: Floats, first: Ints, shown: Ints) -> _Rows:
        exponent, lowest = self._span(self.history.rows_of(keys), start)
        begin = _cut(np.ldexp(start, -exponent), self._count)[0]
        limbs = begin + np.stack([_between(limb, first, shown) for limb in self._limbs])
        sizes = np.abs(begin) + np.stack([_between(size, first, shown) for size in self._sizes])
        return _Rows(exponent, lowest, limbs, _joined(sizes), shown.sum(axis=1)[:, None])

    def _allowed(self, rows: _Rows, travelled: bool) -> Floats:
        """[n, cols] the largest error of a correct row, in units of 2^exponent."""
        # Of 16-bit floats, what is left of a change is added again, at most three times until nothing is.
        errors = self._unit * (rows.adds if not self._narrow else 4 * rows.adds + 4)
        gamma = np.where(errors < 0.5, errors / np.maximum(1 - errors, 0.5), np.inf)
        allowed: Floats = gamma * rows.size * (1 + 1e-9)
        allowed += np.where(self._dropped(rows), np.ldexp(rows.adds + 3.0, -_BITS * self._count), 0.0)
        if self._narrow:
            allowed += 1.01 * _HALF * (2 if travelled else 1) * rows.size
            allowed += np.ldexp((rows.adds + 2) * _TINY, -rows.exponent)
            allowed += np.where(np.ldexp(rows.size, rows.exponent) > _LARGEST, 2 * rows.size, 0.0)
        return allowed

    def _dropped(self, rows: _Rows) -> Bools:
        """[n, cols] whether the limbs are too few for some terms."""
        return np.asarray(rows.exponent - rows.lowest > _BITS * self._count)

    def _exact(self, rows: _Rows) -> Bools:
        """[n, cols] whether no partial sum was rounded: all are multiples of 2^lowest, and not too large."""
        power = np.frexp(rows.size * (1 + 1e-9))[1] + rows.exponent  # Σ|terms| < 2^power
        if not self._narrow:
            return np.asarray(power - rows.lowest <= round(-np.log2(self._unit))) & ~self._dropped(rows)
        return np.asarray((power - rows.lowest <= 11) & (rows.lowest >= -24) & (power <= 15))

    def _apart(self, rows: _Rows, values: NDArray[Any], allowed: Floats, exact: Bools) -> Bools:
        """[n, cols] where values differ from their sums by more than is allowed, or at all where sums are exact."""
        with np.errstate(over="ignore"):
            scaled = np.ldexp(_finite(values), -rows.exponent)
        within = np.isfinite(values) & (np.abs(scaled) < 2.0**31)  # no sum of fewer than 2^31 terms is larger
        limbs, rest = _cut(np.where(within, scaled, 0.0), self._count)
        between = limbs - rows.limbs
        some = (_carried(between) != 0).any(axis=0) | (rest != 0)
        far = np.abs(_joined(between)) + np.ldexp(np.abs(rest), -_BITS * self._count) > allowed
        return np.asarray(~within | (some & (exact | far)))

    def _judge_special(
        self, first: Ints, shown: Ints, start: NDArray[Any], values: NDArray[Any], expect: Floats, bad: Bools
    ) -> None:
        """Sums with NaN or infinity among their terms have one right value; written into `expect` and `bad`."""
        nan, up, down = (
            np.asarray(is_one(start) + (0 if among is None else _between(among, first, shown)) > 0)
            for is_one, among in zip(_SPECIAL, self._special, strict=True)
        )
        nan |= up & down
        expect[up], expect[down], expect[nan] = np.inf, -np.inf, np.nan
        special = nan | up | down
        right = np.where(nan, np.isnan(values), values == expect)
        bad[special] = ~right[special]


def _finite(values: NDArray[Any]) -> Floats:
    """float64, with 0 for what is not finite."""
    return np.where(np.isfinite(values), values, 0.0).astype(np.float64)


def _by_row(ufunc: np.ufunc, numbers: Ints, history: AddHistory, nothing: int) -> Ints:
    """[rows + 1, cols] the greatest or least of each row's numbers; `nothing` is passed over."""
    found = np.full((len(history.rows) + 1, numbers.shape[1]), nothing, np.int64)
    if len(history.row):
        begins = np.flatnonzero(np.append(True, history.row[1:] != history.row[:-1]))
        found[:-1] = ufunc.reduceat(numbers, begins)
    return found


def _lowest_bit(values: Floats) -> Ints:
    """The exponent of the last bit set; _HIGH for 0."""
    mantissa, exponent = np.frexp(np.abs(values))
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    last = np.frexp((digits & -digits).astype(np.float64))[1] - 1
    return np.where(digits != 0, exponent.astype(np.int64) - 53 + last, _HIGH)


def _cut(scaled: Floats, count: int) -> tuple[Ints, Floats]:
    """[count, n, cols] integers of 30 bits each, the first in units of 2^-30, and what is left below the last."""
    limbs, rest = np.empty((count, *scaled.shape), np.int64), scaled
    for place in range(count):
        rest = np.ldexp(rest, _BITS)
        limbs[place] = rest
        rest = rest - limbs[place]
    return limbs, rest


def _carried(limbs: Ints) -> Ints:
    """The same number with every limb but the first between 0 and 2^30: zero only if all of them are."""
    limbs = limbs.copy()
    for place in range(len(limbs) - 1, 0, -1):
        limbs[place - 1] += limbs[place] >> _BITS
        limbs[place] &= _MASK
    return limbs


def _joined(limbs: Ints) -> Floats:
    """The number that limbs stand for, to a few parts in 2^53 of itself."""
    limbs = _carried(limbs)
    negative = limbs[0] < 0
    limbs = _carried(np.where(negative, -limbs, limbs))  # of one sign: nothing cancels
    found = np.zeros(limbs.shape[1:])
    for limb in limbs[::-1]:
        found = np.ldexp(found + limb, -_BITS)
    return np.where(negative, -found, found)


def _running(numbers: NDArray[Any]) -> Ints:
    """[n + 1, cols] running sums, from 0 on."""
    total = np.zeros((len(numbers) + 1, numbers.shape[1]), np.int64)
    np.cumsum(numbers, axis=0, out=total[1:])
    return total


def _between(running: Ints, first: Ints, shown: Ints) -> Ints:
    """[n, cols] sums of the `shown` [n, workers] numbers from `first` [n, workers] on, over all workers."""
    found = np.zeros((len(first), running.shape[1]), np.int64)
    for worker in range(first.shape[1]):
        begin = first[:, worker]
        found += running[begin + shown[:, worker]] - running[begin]
    return found
