"""Collapsed Gibbs sampling for few topics: every document has K dense counts, and a draw reads all of them.

Up to about 256 topics, sixteen multiplications at a time are faster than collecting the topics of a document (twice as
fast at 100). The draws are those of `kernels.topics.packed`: exact, the token itself not counted.

**Two words at a time.** The steps of one draw wait for each other, and a word's next draw waits for the weights that
this one changes: the processor is idle most of the time. So a visit's runs are divided into two halves, and tokens of
two words are drawn in pairs, one from each half. Neither draw of a pair sees the other's change of the topic totals;
the next pair does. Two tokens of one document are drawn one after the other.

A token leaves its counts in a register, not in memory: a vector load that follows a store to one of its elements waits
until the store is complete. Counts and weights are written only for a token whose topic changes.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel, merged
from stretto.kernels.numeric.lane_search import bits, count_bits, lane, running
from stretto.kernels.numeric.vector import add, cast, equal, less_equal, load, mul, pick, splat, store, sub
from stretto.kernels.numeric.vector_memory import ahead, get, put

from .rows import begin_visit, close_word, end_visit, is_due, room_of, token_bits
from .two_words import change_topic, middle_run, open_counts, second_word

_NIL, _ONE = np.float32(0.0), np.float32(1.0)
_UNIT = np.float32(1.0 / 16777216.0)
_S40 = np.uint64(40)
MOST_TOPICS = 256
FEWEST_PAIRED = 1024  # tokens of a visit: among fewer, one token is a larger part of a topic's total
_PLACES = np.arange(MOST_TOPICS).astype(np.int32)


@merged
def _draw(rows, at, chunks, model, room, old, random):
    """Return a new topic for a token of the word in `room`, whose document's counts begin at `at`."""
    own = _NIL
    if not model.first:
        weight = (np.float32(room.count[old] - 1) + model.beta) / (np.float32(room.seen[old] - 1) + model.smooth)
        own = (np.float32(get(rows, at + old) - 1) + model.alpha[old]) * weight
    place_old, share_old, gathered = splat(np.int32(old)), splat(own), splat(_NIL)
    for chunk in range(chunks):
        share = mul(
            add(cast(load(rows, at + chunk * 16), _NIL), load(model.alpha, chunk * 16)), load(room.weight, chunk * 16)
        )
        gathered = add(gathered, pick(equal(load(_PLACES, chunk * 16), place_old), share_old, share))
        store(room.sums, chunk * 16, gathered)
    reach = running(gathered)
    x = np.float32(np.int64(random >> _S40)) * _UNIT * lane(reach, 15)
    goal = splat(x)
    place = min(count_bits(bits(less_equal(reach, goal))), 15)
    goal = sub(goal, sub(reach, gathered))
    before, one = splat(_NIL), splat(_ONE)
    for chunk in range(chunks - 1):
        before = pick(less_equal(load(room.sums, chunk * 16), goal), add(before, one), before)
    return min(np.int64(lane(before, place)) * 16 + place, model.topics - 1)


@merged
def _move(rows, at, model, room, other, old, new, listed):
    """Move a token of the word in `room` from one topic to another; return how many topics are listed."""
    if not model.first:
        put(rows, at + old, np.uint16(get(rows, at + old) - 1))
        listed = change_topic(model, room, other, old, -1, listed)
    put(rows, at + new, np.uint16(get(rows, at + new) + 1))
    return change_topic(model, room, other, new, 1, listed)


@kernel
def gibbs_dense_worker(pass_, worker, out, tokens, counts, model, rooms, width):
    """Draw a topic for every token of each visit; counts.doc_rows are uint16, `width` for each document.

    out [V]: tokens whose topic changed.
    """
    room = room_of(rooms, worker)
    pair = second_word(rooms, worker)
    rows, chunks = counts.doc_rows, width // 16
    v = next_visit(pass_, worker)
    while v >= 0:
        begin_visit(tokens, counts, model, room, v)
        for k in range(model.topics):
            pair.weight[k] = room.bare[k]
        base, moved, key, begin = tokens.doc_base[v], 0, tokens.key[v], tokens.ptr[v]
        r, c, words = tokens.row_block[v], tokens.col_block[v], tokens.word_base[v]
        run, t, left, listed, end = tokens.run_ptr[v], tokens.ptr[v], np.int64(0), np.int64(0), tokens.run_ptr[v + 1]
        run_b, t_b = middle_run(tokens, v)
        if model.first or tokens.ptr[v + 1] - begin < FEWEST_PAIRED:  # word by word
            run_b, t_b = end, tokens.ptr[v + 1]
        middle, left_b, listed_b = run_b, np.int64(0), np.int64(0)
        while run < middle and run_b < end:
            if left == 0:
                left = np.int64(tokens.run_length[run])
                listed = open_counts(counts, model, room, words + np.int64(tokens.run_word[run]), r, c)
            if left_b == 0:
                left_b = np.int64(tokens.run_length[run_b])
                listed_b = open_counts(counts, model, pair, words + np.int64(tokens.run_word[run_b]), r, c)
            together = min(left, left_b)
            for _ in range(together):
                soon = (base + np.int64(tokens.doc[t + 12])) * width
                soon_b = (base + np.int64(tokens.doc[t_b + 12])) * width
                for line in range(0, width, 32):
                    ahead(rows, soon + line)
                    ahead(rows, soon_b + line)
                at, at_b = (base + np.int64(tokens.doc[t])) * width, (base + np.int64(tokens.doc[t_b])) * width
                old = old_b = np.int64(-1)
                if not model.first:
                    old, old_b = np.int64(tokens.topic[t]), np.int64(tokens.topic[t_b])
                new = _draw(rows, at, chunks, model, room, old, token_bits(model.seed, key, t - begin))
                random = token_bits(model.seed, key, t_b - begin)
                new_b = _draw(rows, at_b, chunks, model, pair, old_b, random)
                if new != old:
                    moved += 1
                    tokens.topic[t] = new
                    listed = _move(rows, at, model, room, pair, old, new, listed)
                    if at == at_b:
                        new_b = _draw(rows, at_b, chunks, model, pair, old_b, random)
                if new_b != old_b:
                    moved += 1
                    tokens.topic[t_b] = new_b
                    listed_b = _move(rows, at_b, model, pair, room, old_b, new_b, listed_b)
                t += 1
                t_b += 1
            left -= together
            left_b -= together
            if left == 0:
                close_word(counts, model, room, words + np.int64(tokens.run_word[run]), r, c, listed)
                run += 1
            if left_b == 0:
                close_word(counts, model, pair, words + np.int64(tokens.run_word[run_b]), r, c, listed_b)
                run_b += 1
        # What one half has left.
        mine, other = room, pair
        if run < middle:
            end = middle
        else:
            mine, other = pair, room
            run, t, left, listed = run_b, t_b, left_b, listed_b
        while run < end:
            w = words + np.int64(tokens.run_word[run])
            if not is_due(model, w):  # only in the first epoch, which has no second half
                t += np.int64(tokens.run_length[run])
                run += 1
                continue
            if left == 0:
                left = np.int64(tokens.run_length[run])
                listed = open_counts(counts, model, mine, w, r, c)
            for _ in range(left):
                at = (base + np.int64(tokens.doc[t])) * width
                old = np.int64(-1)
                if not model.first:
                    old = np.int64(tokens.topic[t])
                new = _draw(rows, at, chunks, model, mine, old, token_bits(model.seed, key, t - begin))
                if new != old:
                    moved += 1
                    tokens.topic[t] = new
                    listed = _move(rows, at, model, mine, other, old, new, listed)
                t += 1
            close_word(counts, model, mine, w, r, c, listed)
            left = np.int64(0)
            run += 1
        end_visit(tokens, counts, model, room, v)
        out[v] = moved
        v = next_visit(pass_, worker, v)
