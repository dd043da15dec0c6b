"""Hash 64-bit words at the speed of memory: a fingerprint of data, without protection against forgery.

Word i belongs to lane i mod 4. A lane takes a word by a round of xxHash64, acc ← rotate(acc + word·P2, 31)·P1, which is
one-to-one in acc and in the word: one changed word always changes the result.
"""

from __future__ import annotations

import numpy as np

from .compile import kernel

LANES = 4

_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_LEFT, _RIGHT = np.uint64(31), np.uint64(33)


@kernel
def hash_words(words, lanes):
    """Take words [n] uint64 into lanes [4] uint64; n is a multiple of 4."""
    a, b, c, d = lanes[0], lanes[1], lanes[2], lanes[3]
    for i in range(0, words.shape[0], LANES):
        a += words[i] * _P2
        b += words[i + 1] * _P2
        c += words[i + 2] * _P2
        d += words[i + 3] * _P2
        a = ((a << _LEFT) | (a >> _RIGHT)) * _P1
        b = ((b << _LEFT) | (b >> _RIGHT)) * _P1
        c = ((c << _LEFT) | (c >> _RIGHT)) * _P1
        d = ((d << _LEFT) | (d >> _RIGHT)) * _P1
    lanes[0], lanes[1], lanes[2], lanes[3] = a, b, c, d
