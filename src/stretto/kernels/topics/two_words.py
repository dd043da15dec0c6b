"""Two words that are open at the same time, for the dense sampler.

Each has a `SamplerScratch`: counts, listed topics and weights are its own, all other arrays are shared. A change of a
topic total changes that topic's weight in both, so that all weights agree with the totals after it. There are no sums
over groups of topics, which only `packed` needs.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import merged

from .rows import SamplerScratch, open_plain

_ONE = np.float32(1.0)


@merged
def second_word(rooms, worker):
    """Return the scratch of one worker for its second word; `room_of` is that of the first."""
    return SamplerScratch(
        rooms.seen[worker],
        rooms.inverse[worker],
        rooms.second_weight[worker],
        rooms.bare[worker],
        rooms.second_count[worker],
        rooms.second_listed[worker],
        rooms.mass[worker],
        rooms.bare_mass[worker],
        rooms.sums[worker],
        rooms.wide[worker],
        rooms.weight[worker],
        rooms.count[worker],
        rooms.listed[worker],
    )


@merged
def open_counts(counts, model, room, w, r, c):
    """Load counts and weights of word w for a visit of blocks (r, c) into the scratch; `close_word` ends it.

    Return how many topics are listed, or -1 for K counts.
    """
    at, length = counts.word_at[w], np.int64(counts.word_length[w])
    if length < 0:
        open_plain(counts, model, room, w, r, c)
        return np.int64(-1)
    low = np.uint32((1 << model.shift) - 1)
    for j in range(length):
        entry = counts.word_rows[at + j]
        k = np.int64(entry >> np.uint32(model.shift))
        n = np.int32(entry & low)
        room.count[k] = n
        room.listed[j] = k
        room.weight[k] = (np.float32(n) + model.beta) * room.inverse[k]
    return length


@merged
def change_topic(model, room, other, k, by, listed):
    """Change n_wk and n_k by one, and the weights of both words; return how many topics are listed."""
    n = room.count[k] + by
    room.count[k] = n
    if by > 0 and n == 1 and listed >= 0:
        room.listed[listed] = k
        listed += 1
    room.seen[k] += by
    inverse = _ONE / (np.float32(room.seen[k]) + model.smooth)
    room.inverse[k] = inverse
    room.bare[k] = model.beta * inverse
    room.weight[k] = (np.float32(n) + model.beta) * inverse
    other.weight[k] = (np.float32(other.count[k]) + model.beta) * inverse
    return listed


@merged
def middle_run(tokens, v):
    """Return (run, its first token) nearest to the middle of a visit's tokens."""
    run, t = tokens.run_ptr[v], tokens.ptr[v]
    half = (tokens.ptr[v] + tokens.ptr[v + 1]) // 2
    while run < tokens.run_ptr[v + 1] and t + tokens.run_length[run] // 2 < half:
        t += tokens.run_length[run]
        run += 1
    return run, t
