"""Lay out ratings in blocks through packed entries: one 64-bit word a rating while they are sorted.

Where indices local to a block fit in two bytes, a word holds a rating: a key of row and column above, the bits of its
value below. Two passes with the result of those in `grid`, in less than half of the time:

    pack_worker      each entry goes to its block, as a word
    unpack_worker    inside each block: sorted by row and column, interleaved, unpacked

A block of a sparse set has more rows and columns than entries. So words are sorted by digits of their keys (a stable
radix sort) with about as many values as there are entries; counters of every row and column would take longer.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty, zeros

from .grid import ROWS_DEALT

_LEAST_BITS, _MOST_BITS, _MOST_DIGITS = 6, 11, 6  # of a digit; more counters would not stay in the L1 cache
_KEY = np.uint64(32)  # lowest bit of the key, row and column, in a word
_VALUE = np.uint64(0xFFFFFFFF)
_LOCAL, _HALF = np.uint32(0xFFFF), np.uint32(16)


@kernel
def pack_worker(
    pass_,
    worker,
    out,
    bounds,
    rows,
    cols,
    values,
    row_code,
    col_code,
    visit_of,
    at,
    mean,
    scale,
    col_bits,
    keys,
    numbers,
):
    """Write each entry of a part to its block, as a word. at [V, visits]: where part v writes next; it is updated.

    row_code [m], col_code [n] uint32: block in the upper half, index local to it in the lower half. col_bits uint32:
    bits of a column index. keys [2·nnz] uint32 and numbers [2·nnz] float32 are two views of the words: the upper half
    is the row and the column, the lower half (value − mean)·scale. The column is that of `grid.turned`.
    """
    mask = (np.uint32(1) << col_bits) - np.uint32(1)
    v = next_visit(pass_, worker)
    while v >= 0:
        mine = at[v]
        for t in range(bounds[v], bounds[v + 1]):
            row, col = row_code[rows[t]], col_code[cols[t]]
            visit = visit_of[row >> _HALF, col >> _HALF]
            to = mine[visit]
            mine[visit] = to + 1
            numbers[2 * to] = (values[t] - mean) * scale
            row &= _LOCAL
            keys[2 * to + 1] = (row << col_bits) | (((col & _LOCAL) - row) & mask)
        out[v] = bounds[v + 1] - bounds[v]
        v = next_visit(pass_, worker, v)


@inner
def _bits_of(n):
    """Bits of the number n."""
    found = 0
    while n >> found:
        found += 1
    return found


@inner
def _sort_by_key(one, two, n, length, counters):
    """Sort one[:n] stably by keys of `length` bits, digit by digit; two is scratch. Return whether `two` is sorted."""
    most = min(max(_bits_of(n) - 1, _LEAST_BITS), _MOST_BITS)
    digits = -(-length // most)
    width = -(-length // max(digits, 1))
    values = 1 << width
    mask = np.uint64(values - 1)
    for k in range(digits * values):
        counters[k] = 0
    for t in range(n):  # one pass counts the values of every digit
        key = one[t] >> _KEY
        for digit in range(digits):
            counters[digit * values + np.int64(key & mask)] += 1
            key >>= np.uint64(width)
    flipped = False
    for digit in range(digits):
        begin = 0
        for k in range(digit * values, digit * values + values):
            count = counters[k]
            counters[k] = begin
            begin += count
        move = _KEY + np.uint64(digit * width)
        source, result = (two, one) if flipped else (one, two)
        for t in range(n):
            word = source[t]
            k = digit * values + np.int64((word >> move) & mask)
            result[counters[k]] = word
            counters[k] += 1
        flipped = not flipped
    return flipped


@inner
def _order_repeats(words, values, n):
    """Count equal keys of sorted words, and put those of each key in the order of their values.

    values [2·n] float32: another view of the words.
    """
    repeats = 0
    for t in range(1, n):
        if (words[t] ^ words[t - 1]) >> _KEY == 0:
            repeats += 1
            at = t
            while at > 0 and (words[at] ^ words[at - 1]) >> _KEY == 0 and values[2 * at] < values[2 * at - 2]:
                words[at], words[at - 1] = words[at - 1], words[at]
                at -= 1
    return repeats


@inner
def _unpack(words, n, lo, col_bits, u, i, bits, turns, begin):
    """Write sorted words to positions lo, …, lo + n − 1, with the entries of sixteen rows interleaved, as `grid`.

    turns [n] int32: scratch, the number of each word within its row; begin [n + 1] int64: zeros, and again afterwards.
    Of sixteen rows the first entries come first, then the second ones: a counting sort by `turns`. Most rows of a
    sparse block have one or two entries, so a loop over rows would mostly wait for mispredicted branches.
    """
    to_row = _KEY + np.uint64(col_bits)
    mask = (np.uint64(1) << np.uint64(col_bits)) - np.uint64(1)
    s = 0
    while s < n:
        held = 0
        turn = 0
        longest = 0
        e = s
        before = ~(words[s] >> to_row)
        while e < n:
            row = words[e] >> to_row
            fresh = row != before
            held += fresh
            if held > ROWS_DEALT:
                break
            turn = 0 if fresh else turn + 1
            longest = max(longest, turn)
            turns[e] = turn
            begin[turn + 1] += 1
            before = row
            e += 1
        begin[0] = lo + s
        for k in range(1, longest + 1):
            begin[k] += begin[k - 1]
        for t in range(s, e):
            word = words[t]
            turn = turns[t]
            to = begin[turn]
            begin[turn] = to + 1
            row = word >> to_row
            u[to] = row
            i[to] = ((word >> _KEY) + row) & mask
            bits[to] = word & _VALUE
        for k in range(longest + 2):
            begin[k] = 0
        s = e


@kernel(allocates=True)
def unpack_worker(pass_, worker, out, ptr, key_bits, col_bits, words, u, i, bits):
    """Put the words of each block in visiting order, unpacked; out [V]: pairs that occur more than once.

    ptr [V + 1]: bounds of each block's entries; key_bits, col_bits: bits of a key, and of its column. words [nnz]
    uint64 are overwritten. bits [nnz] uint32: those of the values.
    """
    longest = 0
    for v in range(ptr.shape[0] - 1):
        longest = max(longest, ptr[v + 1] - ptr[v])
    other = empty(longest, np.uint64)
    counters = empty(_MOST_DIGITS << _MOST_BITS, np.int32)
    turns = empty(longest, np.int32)
    begin = zeros(longest + 1, np.int64)
    v = next_visit(pass_, worker)
    while v >= 0:
        lo, n = ptr[v], ptr[v + 1] - ptr[v]
        found = words[lo : lo + n]
        if _sort_by_key(found, other, n, key_bits, counters):
            found = other
        out[v] = _order_repeats(found, found.view(np.float32), n)
        _unpack(found, n, lo, col_bits, u, i, bits, turns, begin)
        v = next_visit(pass_, worker, v)
