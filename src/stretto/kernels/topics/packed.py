"""Collapsed Gibbs sampling for any number of topics: exact draws; the time depends on the document, not on K.

The probability of topic k for a token of word w in document d, the token itself not counted, is in proportion to

    (n_dk + alpha_k) (n_wk + beta) / (n_k + V beta) = n_dk weight_k + alpha_k weight_k.

Tokens are visited word by word, so `weight` stays in the L1 cache. The first part is summed over the document's topics,
sixteen at a time, which are contiguous in memory. The second part is common to all tokens of the word. It is kept as
sums over groups of 64 topics: a draw from it finds the group first, then the topic in it.

The sum of the document's part is kept lane by lane: sums[c, l] holds the sum of lane l up to chunk c. A draw finds its
lane in the running sums of the last chunk, then the chunk in which that lane exceeds it: one search across the lanes
for any length of the row.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel, merged
from stretto.kernels.numeric.lane_search import bits, collect, count_bits, lane, lowest_bit, running, shift_right
from stretto.kernels.numeric.vector import add, both, cast, equal, less_equal, load, mul, pick, splat, store, sub, total
from stretto.kernels.numeric.vector_memory import ahead

from .rows import GROUP, begin_visit, close_word, end_visit, is_due, open_word, room_of, shift_topic, token_bits

_NIL, _ONE = np.float32(0.0), np.float32(1.0)
_UNIT = np.float32(1.0 / 16777216.0)
_PLACES = np.arange(16).astype(np.int32)
_S40 = np.uint64(40)
_LOW24 = np.uint64(0xFFFFFF)


@merged
def find_topic(model, room, x, old, weight_old):
    """Return the topic at which the running sum of alpha_k weight_k exceeds x, with weight_old for the topic old."""
    places = load(_PLACES, 0)
    old_group = old // GROUP
    lift = model.alpha[old] * (weight_old - room.weight[old])
    groups = model.alpha.shape[0] // GROUP
    chunks = (groups + 15) // 16
    chunk = np.int64(0)
    while True:
        mass = load(room.mass, chunk * 16)
        mine = equal(places, splat(np.int32(old_group - chunk * 16)))
        mass = pick(mine, add(mass, splat(lift)), mass)
        whole = total(mass)
        if x < whole or chunk == chunks - 1:
            break
        x -= whole
        chunk += 1
    reach = running(mass)
    place = min(count_bits(bits(less_equal(reach, splat(x)))), 15)
    x -= lane(reach, place) - lane(mass, place)
    group = min(chunk * 16 + place, groups - 1)
    at = group * GROUP
    first = np.int32(old - at)
    away = splat(weight_old)
    one, nil = splat(np.int32(1)), splat(np.int32(0))
    a = mul(load(model.alpha, at), pick(equal(places, splat(first)), away, load(room.weight, at)))
    b = mul(
        load(model.alpha, at + 16),
        pick(equal(places, splat(np.int32(first - 16))), away, load(room.weight, at + 16)),
    )
    c = mul(
        load(model.alpha, at + 32),
        pick(equal(places, splat(np.int32(first - 32))), away, load(room.weight, at + 32)),
    )
    d = mul(
        load(model.alpha, at + 48),
        pick(equal(places, splat(np.int32(first - 48))), away, load(room.weight, at + 48)),
    )
    b = add(a, b)
    c = add(b, c)
    d = add(c, d)
    reach = running(d)
    goal = splat(x)
    place = min(count_bits(bits(less_equal(reach, goal))), 15)
    goal = sub(goal, sub(reach, d))
    chunk_of = add(
        add(pick(less_equal(a, goal), one, nil), pick(less_equal(b, goal), one, nil)),
        pick(less_equal(c, goal), one, nil),
    )
    k = min(at + np.int64(lane(chunk_of, place)) * 16 + place, model.topics - 1)
    while k > 0 and model.alpha[k] == _NIL:  # rounding may lead past the last topic that can be drawn
        k -= 1
    return k


@merged
def find_entry(rows, at, chunks, shift, topic):
    """Return the place of a topic in a packed row with a given number of chunks, or -1."""
    wanted = splat(np.uint32(topic))
    for chunk in range(chunks):
        found = bits(equal(shift_right(load(rows, at + chunk * 16), shift), wanted))
        if found != 0:
            return chunk * 16 + lowest_bit(found)
    return np.int64(-1)


@merged
def move_entry(rows, at, length, model, place_old, place_new, new):
    """Move one token of a document's row from one entry to another (place_new -1: append a new entry).

    place_old -1: the token had no topic. Returns the new length. An entry without tokens is replaced by the last.
    """
    if place_new >= 0:
        rows[at + place_new] += np.uint32(1)
    else:
        rows[at + length] = (np.uint32(new) << np.uint32(model.shift)) | np.uint32(1)
        length += 1
    if place_old >= 0:
        entry = rows[at + place_old] - np.uint32(1)
        if entry & np.uint32((1 << model.shift) - 1):
            rows[at + place_old] = entry
        else:
            length -= 1
            rows[at + place_old] = rows[at + length]
            rows[at + length] = np.uint32(model.topics) << np.uint32(model.shift)
    return length


@merged
def draw(counts, model, room, d, old, random):
    """Return (new topic, its place in the document's row or -1, the place of old) for a token whose topic was old."""
    rows, at = counts.doc_rows, counts.doc_at[d]
    chunks = (np.int64(counts.doc_length[d]) + 15) // 16
    weight_old = _NIL
    if not model.first:
        n = np.float32(room.count[old] - 1)
        weight_old = (n + model.beta) / (np.float32(room.seen[old] - 1) + model.smooth)
    low, wanted, away = splat(np.uint32((1 << model.shift) - 1)), splat(np.uint32(old)), splat(weight_old)
    gathered = splat(_NIL)
    place_old = np.int64(-1)
    for chunk in range(chunks):
        entry = load(rows, at + chunk * 16)
        mine = equal(shift_right(entry, model.shift), wanted)
        tokens = cast(cast(both(entry, low), np.int32(0)), _NIL)
        tokens = pick(mine, sub(tokens, splat(_ONE)), tokens)
        weight = pick(mine, away, collect(room.weight, rows, at + chunk * 16, model.shift))
        gathered = add(gathered, mul(tokens, weight))
        store(room.sums, chunk * 16, gathered)
        found = bits(mine)
        place_old = chunk * 16 + lowest_bit(found) if found != 0 else place_old
    reach = running(gathered)
    shared = np.float32(room.wide[0])
    if not model.first:
        shared += model.alpha[old] * (weight_old - room.weight[old])
    else:
        place_old = np.int64(-1)
    unit = np.float32(np.int64(random >> _S40)) * _UNIT
    x = unit * (shared + lane(reach, 15))
    if x >= shared and chunks > 0:
        x -= shared
        place = min(count_bits(bits(less_equal(reach, splat(x)))), 15)
        x -= lane(reach, place) - lane(gathered, place)
        chunk = np.int64(0)
        while chunk < chunks - 1 and room.sums[chunk * 16 + place] <= x:
            chunk += 1
        place += chunk * 16
        entry = rows[at + place]
        tokens = np.int64(entry & np.uint32((1 << model.shift) - 1)) - np.int64(place == place_old)
        if tokens > 0:
            return np.int64(entry >> np.uint32(model.shift)), place, place_old
        # Rounding led to an entry without tokens, once in millions of draws: draw from the common part.
    # The common part uses other bits: the resolution of those above is coarser than many of its topics.
    x = np.float32(np.int64(random & _LOW24)) * _UNIT * shared
    new = find_topic(model, room, x, old, weight_old)
    return new, find_entry(rows, at, chunks, model.shift, new), place_old


@kernel
def gibbs_packed_worker(pass_, worker, out, tokens, counts, model, rooms):
    """Draw a topic for every token of each visit. out [V]: tokens whose topic changed."""
    room = room_of(rooms, worker)
    last = counts.doc_at.shape[0] - 1  # a prefetched token may belong to the next visit, with another first document
    v = next_visit(pass_, worker)
    while v >= 0:
        begin_visit(tokens, counts, model, room, v)
        base, t, moved = tokens.doc_base[v], tokens.ptr[v], 0
        r, c = tokens.row_block[v], tokens.col_block[v]
        for run in range(tokens.run_ptr[v], tokens.run_ptr[v + 1]):
            w = tokens.word_base[v] + np.int64(tokens.run_word[run])
            if not is_due(model, w):
                t += tokens.run_length[run]
                continue
            listed = open_word(counts, model, room, w, r, c)
            for _ in range(tokens.run_length[run]):
                soon = counts.doc_at[min(base + np.int64(tokens.doc[t + 16]), last)]
                ahead(counts.doc_rows, soon)
                ahead(counts.doc_rows, soon + 16)
                d = base + np.int64(tokens.doc[t])
                old = model.topics if model.first else np.int64(tokens.topic[t])
                random = token_bits(model.seed, tokens.key[v], t - tokens.ptr[v])
                new, place, place_old = draw(counts, model, room, d, old, random)
                if new != old:
                    moved += 1
                    tokens.topic[t] = new
                    length = np.int64(counts.doc_length[d])
                    length = move_entry(counts.doc_rows, counts.doc_at[d], length, model, place_old, place, new)
                    counts.doc_length[d] = length
                    if not model.first:
                        listed = shift_topic(model, room, old, -1, listed)
                    listed = shift_topic(model, room, new, 1, listed)
                t += 1
            close_word(counts, model, room, w, r, c, listed)
        end_visit(tokens, counts, model, room, v)
        out[v] = moved
        v = next_visit(pass_, worker, v)
