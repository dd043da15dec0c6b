"""Where the words of documents are: maximal runs of letters, digits and underscores in UTF-8 text."""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import kernel


@kernel
def find_words(buf, bounds, letters, least, starts, lengths, counts):
    """Find the words of at least `least` characters in each document; return how many there are.

    buf : valid UTF-8; document d is buf[bounds[d] : bounds[d + 1]]
    letters (0x110000,) bool : whether a character belongs to words
    starts (cap,) int64, lengths (cap,) int32 : result: where each word is, in bytes
    counts (documents,) int64 : result: words of each document
    """
    n = 0
    for d in range(len(counts)):
        before = n
        p = bounds[d]
        end = bounds[d + 1]
        start = p
        size = 0
        while p < end:
            c = np.int64(buf[p])
            width = 1
            if c >= 0xF0:
                c = ((c & 7) << 18) | ((np.int64(buf[p + 1]) & 63) << 12)
                c |= ((np.int64(buf[p + 2]) & 63) << 6) | (np.int64(buf[p + 3]) & 63)
                width = 4
            elif c >= 0xE0:
                c = ((c & 15) << 12) | ((np.int64(buf[p + 1]) & 63) << 6) | (np.int64(buf[p + 2]) & 63)
                width = 3
            elif c >= 0x80:
                c = ((c & 31) << 6) | (np.int64(buf[p + 1]) & 63)
                width = 2
            if letters[c]:
                if size == 0:
                    start = p
                size += 1
            else:
                if size >= least:
                    starts[n] = start
                    lengths[n] = p - start
                    n += 1
                size = 0
            p += width
        if size >= least:
            starts[n] = start
            lengths[n] = end - start
            n += 1
        counts[d] = n - before
    return n
