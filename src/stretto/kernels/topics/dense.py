"""Collapsed Gibbs sampling for few topics: every document has K dense counts, and a draw reads all of them.

Up to about 256 topics, sixteen multiplications at a time are faster than collecting the topics of a document (twice as
fast at 100). The draws are the same as those of `kernels.topics.packed`: exact, the token itself not counted.

A token leaves its counts in a register, not in memory: a vector load that follows a store to one of its elements waits
until the store is complete. Counts and weights are written only for a token whose topic changes.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel, merged
from stretto.kernels.numeric.lane_search import bits, count_bits, lane, running
from stretto.kernels.numeric.vector import add, cast, equal, fma, less_equal, load, pick, splat, store, sub
from stretto.kernels.numeric.vector_memory import ahead, get, put

from .rows import begin_visit, close_word, end_visit, open_word, room_of, token_bits

_NIL, _ONE = np.float32(0.0), np.float32(1.0)
_UNIT = np.float32(1.0 / 16777216.0)
_S40 = np.uint64(40)
_PLACES = np.arange(16).astype(np.int32)
MOST_TOPICS = 256


@merged
def _change(model, room, k, by, listed):
    """Change n_wk and n_k by one; return how many topics are listed."""
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
    return listed


@kernel
def gibbs_dense_worker(pass_, worker, out, tokens, counts, model, rooms, width):
    """Draw a topic for every token of each visit; counts.doc_rows are uint16, `width` for each document.

    out [V]: tokens whose topic changed.
    """
    room = room_of(rooms, worker)
    rows, chunks = counts.doc_rows, width // 16
    one, nil, alone, places = splat(np.int32(1)), splat(np.int32(0)), splat(_ONE), load(_PLACES, 0)
    v = next_visit(pass_, worker)
    while v >= 0:
        begin_visit(tokens, counts, model, room, v)
        base, t, moved = tokens.doc_base[v], tokens.ptr[v], 0
        r, c = tokens.row_block[v], tokens.col_block[v]
        for run in range(tokens.run_ptr[v], tokens.run_ptr[v + 1]):
            w = tokens.word_base[v] + np.int64(tokens.run_word[run])
            listed = open_word(counts, model, room, w, r, c)
            for _ in range(tokens.run_length[run]):
                soon = (base + np.int64(tokens.doc[t + 12])) * width
                for line in range(0, width, 32):
                    ahead(rows, soon + line)
                at = (base + np.int64(tokens.doc[t])) * width
                old, weight_old = np.int64(-1), _NIL
                if not model.first:
                    old = np.int64(tokens.topic[t])
                    n = np.float32(room.count[old] - 1)
                    weight_old = (n + model.beta) * (_ONE / (np.float32(room.seen[old] - 1) + model.smooth))
                away, gathered = splat(weight_old), splat(_NIL)
                for chunk in range(chunks):
                    mine = equal(places, splat(np.int32(old - chunk * 16)))
                    held = cast(load(rows, at + chunk * 16), _NIL)
                    mix = add(pick(mine, sub(held, alone), held), load(model.alpha, chunk * 16))
                    gathered = fma(mix, pick(mine, away, load(room.weight, chunk * 16)), gathered)
                    store(room.sums, chunk * 16, gathered)
                reach = running(gathered)
                random = token_bits(model.seed, tokens.key[v], t - tokens.ptr[v])
                x = np.float32(np.int64(random >> _S40)) * _UNIT * lane(reach, 15)
                goal = splat(x)
                place = min(count_bits(bits(less_equal(reach, goal))), 15)
                goal = sub(goal, sub(reach, gathered))
                before = nil
                for chunk in range(chunks - 1):
                    before = add(before, pick(less_equal(load(room.sums, chunk * 16), goal), one, nil))
                new = min(np.int64(lane(before, place)) * 16 + place, model.topics - 1)
                if new != old:
                    moved += 1
                    tokens.topic[t] = new
                    if not model.first:
                        put(rows, at + old, np.uint16(get(rows, at + old) - 1))
                        listed = _change(model, room, old, -1, listed)
                    put(rows, at + new, np.uint16(get(rows, at + new) + 1))
                    listed = _change(model, room, new, 1, listed)
                t += 1
            close_word(counts, model, room, w, r, c, listed)
        end_visit(tokens, counts, model, room, v)
        out[v] = moved
        v = next_visit(pass_, worker, v)
