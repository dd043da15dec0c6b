"""Mapping of ids to indices: numbering distinct strings; counting, marking and renumbering integers by lookup table.

Each loop makes one table access per record and almost no arithmetic. They are compiled because the equivalent NumPy
operations widen, copy or sort the whole column.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import kernel


@kernel
def intern(buf, starts, lengths, k, slots, hashes, offsets, count, text, codes):
    """Number distinct strings in the order of their first occurrence; the table persists across calls.

    starts (n,) int64, lengths (n,) int32 : the strings, from the k-th on
    codes (n,) int32 : result: their numbers
    slots (a power of two,) int32 : open addressing, number + 1, 0 is free
    hashes, offsets (+ 1) : one per number
    text : all distinct strings, one after another
    Returns (strings done, distinct strings); done < n means the table or the text is full and must grow.
    """
    mask = len(slots) - 1
    while k < len(starts):
        a = starts[k]
        size = np.int64(lengths[k])
        if 2 * (count + 1) > len(slots) or count + 1 > len(hashes) or offsets[count] + size > len(text):
            break
        h = np.uint64(14695981039346656037)
        for i in range(size):
            h = (h ^ np.uint64(buf[a + i])) * np.uint64(1099511628211)
        h ^= h >> np.uint64(29)
        at = np.int64(h & np.uint64(mask))
        while True:
            code = slots[at] - 1
            if code < 0:
                slots[at] = count + 1
                hashes[count] = h
                o = offsets[count]
                for i in range(size):
                    text[o + i] = buf[a + i]
                offsets[count + 1] = o + size
                codes[k] = count
                count += 1
                break
            if hashes[code] == h and offsets[code + 1] - offsets[code] == size:
                o = offsets[code]
                same = True
                for i in range(size):
                    if text[o + i] != buf[a + i]:
                        same = False
                        break
                if same:
                    codes[k] = code
                    break
            at = (at + 1) & mask
        k += 1
    return k, count


@kernel
def rehash(slots, hashes, count):
    """Fill an empty, larger `slots` with the numbers 0..count-1."""
    mask = len(slots) - 1
    for code in range(count):
        at = np.int64(hashes[code] & np.uint64(mask))
        while slots[at] != 0:
            at = (at + 1) & mask
        slots[at] = code + 1


@kernel
def tally(ids, low, counts):
    """`counts[id - low] += 1` for every id; all of them must be in range."""
    for k in range(len(ids)):
        counts[ids[k] - low] += 1


@kernel
def mark(ids, low, seen):
    """`seen[id - low] = 1` for every id; all of them must be in range."""
    for k in range(len(ids)):
        seen[ids[k] - low] = 1


@kernel
def renumber(ids, low, index, out):
    """`out[k] = index[ids[k] - low]`; `out` may be `ids` itself."""
    for k in range(len(ids)):
        out[k] = index[ids[k] - low]
