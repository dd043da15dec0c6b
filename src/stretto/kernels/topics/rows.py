"""Shared by the topic samplers: count rows (packed or dense), topic totals of a visit, opening and closing a word.

**Packed rows** hold the topics that occur: entries topic << shift | count, uint32. A document's row has capacity for
all entries it can need, in whole sixteens; unused entries hold the padding PAD = K << shift, whose count is 0. A word's
row is packed if the word has fewer tokens than four times the topics (length[w] entries), else it has K dense counts
(length[w] = -1). K + 1 topics fit above `shift`, so the padding is not a topic.

**Totals.** A visit reads the totals at the start of the epoch plus the changes of the earlier visits of its two blocks:
total[k] + row_moved[r, k] + col_moved[c, k]. No other visit of this epoch has both blocks, so nothing is counted twice,
and the totals depend on the plan alone. A running visit sees its own changes at once.

**Heavy words.** A word with more tokens than a column block should have is split over all column blocks. Its counts are
read and changed as the totals are: those of heavy word h are total[(1 + h) K + k], with changes in row_moved and
col_moved at the same place. Its entry in each column block has length[w] = -2 - h and no row of its own.

Each worker has a `SamplerScratch`: weight[k] = (n_wk + beta) / (n_k + V beta) of the current word; bare[k] the same for
a word without tokens; their sums over groups of 64 topics, times alpha: mass[g] and bare_mass[g].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stretto.kernels.core.compile import inner, merged
from stretto.kernels.numeric.vector import add, load, mul, total

GROUP = 64
_ONE = np.float32(1.0)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Tokens(NamedTuple):
    """Tokens of the visits, n of them in m runs; a run is the tokens of one word, by document."""

    ptr: Any  # [V + 1] int64: tokens of each visit
    doc: Any  # [n + 64] uint16 or int32: document, relative to the first of the visit's row block
    topic: Any  # [n] uint16 or int32: topic of each token
    run_ptr: Any  # [V + 1] int64: runs of each visit
    run_word: Any  # [m] uint16 or int32: word, relative to the first of the visit's column block
    run_length: Any  # [m] int32: tokens
    key: Any  # [V] int64: the plan's number of each visit; with the position in the visit, the key of random numbers
    row_block: Any  # [V] int64: index in row_moved
    col_block: Any  # [V] int64: index in col_moved
    doc_base: Any  # [V] int64: the first document of the row block, in `TopicCounts`
    word_base: Any  # [V] int64: the first word of the column block


class TopicCounts(NamedTuple):
    """Counts of documents and words, and the totals of all topics."""

    doc_at: Any  # [D] int64: where a document's row begins
    doc_length: Any  # [D] int32: entries of packed rows
    doc_rows: Any  # uint32 packed, or uint16 with K counts (and zeros to whole sixteens) for each document
    word_at: Any  # [W] int64: where a word's row begins
    word_length: Any  # [W] int32: entries of a packed row, or -1, or -2 - h for a part of heavy word h
    word_rows: Any  # uint32: packed entries or K counts
    total: Any  # [(1 + H) K] int64: at the start of the epoch; after the totals, the counts of H heavy words
    row_moved: Any  # [R, (1 + H) K] int32: changes made this epoch by the visits of each row block
    col_moved: Any  # [C, (1 + H) K] int32: likewise of each column block


class TopicModel(NamedTuple):
    """alpha [KP] float32, zero beyond K topics; beta; vocabulary x beta (float32); shift; K; seed of the epoch."""

    alpha: Any
    early: Any  # [words] uint8: which words a turn of the first epoch is about; read only where turn is not 0
    beta: Any
    smooth: Any
    shift: int
    topics: int
    seed: Any  # uint64
    first: bool  # no token has a topic yet
    turn: int  # which words are drawn: 0 all, 1 those marked in `early`, 2 the others


class SamplerScratch(NamedTuple):
    """Scratch of one worker; KP is K + 1 in whole groups. Arrays may be longer than given here."""

    seen: Any  # [KP] int64: totals as this visit sees them
    inverse: Any  # [KP] float32: 1 / (n_k + V beta)
    weight: Any  # [KP] float32: of the current word, see above
    bare: Any  # [KP] float32: of a word without tokens
    count: Any  # [KP] int32: n_wk of the current word
    listed: Any  # [LIST] int64: its topics
    mass: Any  # [G] float32, G in whole sixteens: group sums of alpha x weight
    bare_mass: Any  # [G] float32: group sums of alpha x bare
    sums: Any  # float32: running sums of a document's chunks
    wide: Any  # [2] float64: sum of mass, of bare_mass; float32 would lose the small changes of many topics
    second_weight: Any  # weight, count and listed of a second word, see `two_words`
    second_count: Any
    second_listed: Any


def make_rooms(workers: int, topics: int, longest: int, most: int) -> SamplerScratch:
    """Allocate the scratch of all workers, [workers, ...] each.

    For K topics, documents of up to `longest` entries, runs of up to `most` tokens.
    """
    width = (topics + GROUP) // GROUP * GROUP
    sizes = {
        "seen": (width, np.int64),
        "inverse": (width, np.float32),
        "weight": (width, np.float32),
        "bare": (width, np.float32),
        "count": (width, np.int32),
        "listed": (width + most + 16, np.int64),
        "mass": ((width // GROUP + 15) // 16 * 16, np.float32),
        "bare_mass": ((width // GROUP + 15) // 16 * 16, np.float32),
        "sums": (longest + 32, np.float32),
        "wide": (16, np.float64),
        "second_weight": (width, np.float32),
        "second_count": (width, np.int32),
        "second_listed": (width + most + 16, np.int64),
    }
    return SamplerScratch(**{name: apart(workers, size, dtype) for name, (size, dtype) in sizes.items()})


def apart(workers: int, size: int, dtype: Any) -> Any:
    """Return [workers, size] zeros; rows are a few cache lines apart, to avoid false sharing."""
    padded = -(-(size * np.dtype(dtype).itemsize) // 256) * 256 + 256
    return np.zeros((workers, padded // np.dtype(dtype).itemsize), dtype)


@merged
def room_of(rooms, worker):
    """Return the scratch of one worker."""
    return SamplerScratch(
        rooms.seen[worker],
        rooms.inverse[worker],
        rooms.weight[worker],
        rooms.bare[worker],
        rooms.count[worker],
        rooms.listed[worker],
        rooms.mass[worker],
        rooms.bare_mass[worker],
        rooms.sums[worker],
        rooms.wide[worker],
        rooms.second_weight[worker],
        rooms.second_count[worker],
        rooms.second_listed[worker],
    )


@merged
def group_masses(alpha, weight, mass):
    """mass[g] = sum of alpha x weight over group g; return the sum of all."""
    whole = 0.0
    for g in range(alpha.shape[0] // GROUP):
        at = g * GROUP
        parts = add(
            add(mul(load(alpha, at), load(weight, at)), mul(load(alpha, at + 16), load(weight, at + 16))),
            add(mul(load(alpha, at + 32), load(weight, at + 32)), mul(load(alpha, at + 48), load(weight, at + 48))),
        )
        mass[g] = total(parts)
        whole += mass[g]
    return whole


@merged
def begin_visit(tokens, counts, model, room, v):
    """Compute the totals that visit v sees, and the weights of a word without tokens."""
    r, c = tokens.row_block[v], tokens.col_block[v]
    for k in range(model.topics):
        n = counts.total[k] + counts.row_moved[r, k] + counts.col_moved[c, k]
        room.seen[k] = n
        inverse = _ONE / (np.float32(n) + model.smooth)
        room.inverse[k] = inverse
        room.bare[k] = model.beta * inverse
        room.weight[k] = room.bare[k]
    room.wide[1] = group_masses(model.alpha, room.bare, room.bare_mass)


@merged
def end_visit(tokens, counts, model, room, v):
    """Add the changes of the totals to both blocks."""
    r, c = tokens.row_block[v], tokens.col_block[v]
    for k in range(model.topics):
        moved = np.int32(room.seen[k] - (counts.total[k] + counts.row_moved[r, k] + counts.col_moved[c, k]))
        counts.row_moved[r, k] += moved
        counts.col_moved[c, k] += moved


@inner(apart=True)  # inlined, these would lengthen the samplers, whose other words do not need them
def _read_heavy(total, row_moved, col_moved, first, topics, count):
    """count[k]: the count of a heavy word, whose K counts begin at `first`, as a visit of two blocks sees it."""
    for k in range(topics):
        count[k] = np.int32(total[first + k] + row_moved[first + k] + col_moved[first + k])


@inner(apart=True)
def _write_heavy(total, row_moved, col_moved, first, topics, count):
    """Add the changes of the counts of a heavy word to both blocks, and reset count."""
    for k in range(topics):
        moved = np.int32(count[k] - (total[first + k] + row_moved[first + k] + col_moved[first + k]))
        row_moved[first + k] += moved
        col_moved[first + k] += moved
        count[k] = 0


@merged
def is_due(model, w):
    """Return whether the tokens of word w are drawn in this turn."""
    return model.turn == 0 or (model.early[w] != 0) == (model.turn == 1)


@merged
def open_plain(counts, model, room, w, r, c):
    """Load the K counts of word w, and its weights."""
    at, length = counts.word_at[w], np.int64(counts.word_length[w])
    if length < -1:
        first = (-1 - length) * model.topics
        _read_heavy(counts.total, counts.row_moved[r], counts.col_moved[c], first, model.topics, room.count)
    else:
        for k in range(model.topics):
            room.count[k] = np.int32(counts.word_rows[at + k])
    for k in range(model.topics):
        room.weight[k] = (np.float32(room.count[k]) + model.beta) * room.inverse[k]


@merged
def open_word(counts, model, room, w, r, c):
    """Load counts and weights of word w for a visit of blocks (r, c) into the scratch.

    Return how many topics are listed, or -1 for K counts.
    """
    at, length = counts.word_at[w], np.int64(counts.word_length[w])
    if length < 0:
        open_plain(counts, model, room, w, r, c)
        room.wide[0] = group_masses(model.alpha, room.weight, room.mass)
        return np.int64(-1)
    for g in range(model.alpha.shape[0] // GROUP):
        room.mass[g] = room.bare_mass[g]
    whole = room.wide[1]
    low = np.uint32((1 << model.shift) - 1)
    for j in range(length):
        entry = counts.word_rows[at + j]
        k = np.int64(entry >> np.uint32(model.shift))
        n = np.int32(entry & low)
        room.count[k] = n
        room.listed[j] = k
        heavier = (np.float32(n) + model.beta) * room.inverse[k]
        more = model.alpha[k] * (heavier - room.weight[k])
        room.weight[k] = heavier
        room.mass[k // GROUP] += more
        whole += more
    room.wide[0] = whole
    return length


@merged
def close_word(counts, model, room, w, r, c, listed):
    """Write the counts of word w back, and reset the scratch."""
    at = counts.word_at[w]
    if listed < 0:
        length = np.int64(counts.word_length[w])
        if length < -1:
            first = (-1 - length) * model.topics
            _write_heavy(counts.total, counts.row_moved[r], counts.col_moved[c], first, model.topics, room.count)
        else:
            for k in range(model.topics):
                counts.word_rows[at + k] = np.uint32(room.count[k])
                room.count[k] = 0
        for k in range(model.topics):
            room.weight[k] = room.bare[k]
        return
    kept = np.int64(0)
    for j in range(listed):
        k = room.listed[j]
        n = room.count[k]
        if n > 0:  # a topic that was removed and added again is listed twice, and written once
            counts.word_rows[at + kept] = (np.uint32(k) << np.uint32(model.shift)) | np.uint32(n)
            kept += 1
        room.count[k] = 0
        room.weight[k] = room.bare[k]
    counts.word_length[w] = kept


@merged
def shift_topic(model, room, k, by, listed):
    """Change n_wk and n_k by one (by is 1 or -1), and all that depends on them; return how many topics are listed."""
    n = room.count[k] + by
    room.count[k] = n
    if by > 0 and n == 1 and listed >= 0:
        room.listed[listed] = k
        listed += 1
    room.seen[k] += by
    inverse = _ONE / (np.float32(room.seen[k]) + model.smooth)
    room.inverse[k] = inverse
    group = k // GROUP
    bare = model.beta * inverse
    change = model.alpha[k] * (bare - room.bare[k])
    room.bare[k] = bare
    room.bare_mass[group] += change
    room.wide[1] += change
    weight = (np.float32(n) + model.beta) * inverse
    change = model.alpha[k] * (weight - room.weight[k])
    room.weight[k] = weight
    room.mass[group] += change
    room.wide[0] += change
    return listed


@merged
def token_bits(seed, key, place):
    """Return 64 random bits for a token: by the epoch's seed, its visit, and its position in the visit."""
    x = seed + np.uint64(key) * np.uint64(0xD1B54A32D192ED03)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return _finish(x + np.uint64(place) * _GOLDEN)


@merged
def _finish(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
