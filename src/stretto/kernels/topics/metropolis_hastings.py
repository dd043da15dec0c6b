"""Metropolis-Hastings sampling for topic models: the cost of a proposal does not depend on the number of topics.

For a token with topic s, proposals alternate `steps` times between its word and its document:

- **word**: k in proportion to stale_k, the weights (n_wk + beta) / (n_k + V beta) at the time when the word was opened.
  If a run has many tokens, k is drawn from an alias table over the word's own topics. The part common to all words,
  beta / (n_k + V beta), has one alias table for the visit. The acceptance probability
  (n_dk + alpha_k) weight_k stale_s / ((n_ds + alpha_s) weight_s stale_k) corrects for the stale weights.
  The stale weights still count the token itself, at its topic `old`. A proposal that depends on the token's own topic
  gives wrong probabilities (far off for a word with few tokens). So a draw of `old` is kept only with probability
  stale without the token / stale with it, and repeated otherwise.
- **document**: k in proportion to the present n_dk + alpha_k. Accepted with probability weight_k / weight_s.

Counts exclude the token itself. The counts of a document are found by comparing sixteen entries of its packed row at a
time, so the cost depends slightly on the distinct topics of a document, and not on K.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel, merged
from stretto.kernels.numeric.alias import alias, alias_draw, fill_alias
from stretto.kernels.numeric.lane_search import bits, count_bits, lane, running, shift_right
from stretto.kernels.numeric.vector import add, both, cast, equal, less_equal, load, pick, splat, store, sub
from stretto.kernels.numeric.vector_memory import ahead

from .packed import find_entry, move_entry
from .rows import GROUP, apart, begin_visit, close_word, end_visit, is_due, open_word, room_of, shift_topic, token_bits

_NIL, _ONE = np.float32(0.0), np.float32(1.0)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# A run gets an alias table if it has at least this many tokens for each entry of the table.
_WORTH = 1
_TINY = np.float32(1e-30)
# Limit of redraws, for tiny beta. Otherwise they end by themselves, after about 1 / (K beta) draws for a word that
# occurs once.
_TRIES = 256


class Tables(NamedTuple):
    """Alias tables and stale weights of one worker."""

    stale: Any  # [KP] float32: weights at the time when the word was opened
    bare: Any  # [KP] float32: part common to all words, at the start of the visit
    bare_chance: Any  # [KP] float32: alias table of `bare`
    bare_other: Any  # [KP] int32: its aliases
    chance: Any  # [KP] float32: alias table of the word's own part
    other: Any  # [KP] int32: its aliases
    own: Any  # [KP] float32: weights of the word's own part, then their running sums
    left: Any  # [KP] int32: scratch
    opened: Any  # [KP] float32: n_wk of the word's own topics at that time
    inverse: Any  # [KP] float32: their 1 / (n_k + V beta)
    counted: Any  # int32: running counts of a document's chunks


@merged
def _next(state):
    """Return the next 64 random bits of a token, and the state after them."""
    state += _GOLDEN
    x = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31)), state


@merged
def _unit(random):
    return np.float32(np.int64(random >> np.uint64(40))) * np.float32(1.0 / 16777216.0)


@merged
def _tokens_of(rows, at, chunks, model, topic):
    """Return n_dk of a packed row."""
    place = find_entry(rows, at, chunks, model.shift, topic)
    return np.int64(rows[at + place] & np.uint32((1 << model.shift) - 1)) if place >= 0 else np.int64(0)


@merged
def _nth_token(rows, at, chunks, model, old, n, counted):
    """Return the topic of a document's n-th token, ordered by their entries' lanes, without one token of `old`."""
    low, wanted = splat(np.uint32((1 << model.shift) - 1)), splat(np.uint32(old))
    gathered = splat(np.int32(0))
    for chunk in range(chunks):
        entry = load(rows, at + chunk * 16)
        held = cast(both(entry, low), np.int32(0))
        mine = equal(shift_right(entry, model.shift), wanted)
        gathered = add(gathered, pick(mine, sub(held, splat(np.int32(1))), held))
        store(counted, chunk * 16, gathered)
    reach = running(gathered)
    place = count_bits(bits(less_equal(reach, splat(np.int32(n)))))
    rest = n - np.int64(lane(reach, place)) + np.int64(lane(gathered, place))
    chunk = np.int64(0)
    while counted[chunk * 16 + place] <= rest:
        chunk += 1
    return np.int64(rows[at + chunk * 16 + place] >> np.uint32(model.shift))


@merged
def _word_tables(model, room, tables, listed, run):
    """Compute the stale weights of the word just opened, and an alias table of its own part if the run is long enough.

    Returns (entries of the own part, its sum, whether a table was built).
    """
    n = model.topics if listed < 0 else listed
    whole = _NIL
    for j in range(n):
        k = j if listed < 0 else room.listed[j]
        tables.stale[k] = tables.bare[k] + np.float32(room.count[k]) * room.inverse[k]
        tables.own[j] = np.float32(room.count[k]) * room.inverse[k]
        tables.opened[k] = np.float32(room.count[k])
        tables.inverse[k] = room.inverse[k]
        whole += tables.own[j]
    tabled = run >= n * _WORTH > 0 and whole > _NIL
    if tabled:
        alias(tables.own, n, whole, tables.chance, tables.other, tables.left)
    else:
        for j in range(1, n):
            tables.own[j] += tables.own[j - 1]
        for j in range(n, n + 16):
            tables.own[j] = np.inf
    return n, whole, tabled


@merged
def _propose_word(room, tables, listed, n, whole, tabled, bare_whole, topics, one, two):
    """Draw a topic in proportion to the stale weights."""
    x = _unit(one) * (whole + bare_whole)
    if x >= whole:
        return alias_draw(topics, tables.bare_chance, tables.bare_other, two)
    if tabled:
        j = alias_draw(n, tables.chance, tables.other, two)
    else:
        # Sixteen running sums at a time: faster than bisection for the few entries of a word without a table.
        j = np.int64(0)
        passed = count_bits(bits(less_equal(load(tables.own, 0), splat(x))))
        while passed == 16:
            j += 16
            passed = count_bits(bits(less_equal(load(tables.own, j), splat(x))))
        j = min(j + passed, n - 1)
    return j if listed < 0 else room.listed[j]


@merged
def _stale_without(model, tables, old):
    """Return the stale weight of a token's own topic without the token itself."""
    bare = model.beta * tables.bare[old] / max(model.beta - tables.bare[old], _TINY)
    inverse = tables.inverse[old] / max(_ONE - tables.inverse[old], _TINY)
    return bare + (tables.opened[old] - _ONE) * inverse


def make_tables(workers: int, topics: int, longest: int) -> Tables:
    """Allocate the tables of all workers, [workers, ...] each."""
    width = (topics + GROUP) // GROUP * GROUP
    real, whole = np.float32, np.int32
    kinds = (real, real, real, whole, real, whole, real, whole, real, real, whole)
    sizes = [width] * 10 + [longest + 32]
    return Tables(*(apart(workers, size, kind) for size, kind in zip(sizes, kinds, strict=True)))


@kernel
def mh_worker(pass_, worker, out, tokens, counts, model, rooms, every, steps, doc_tokens, prior_chance, prior_other):
    """Move every token of each visit by `steps` pairs of proposals.

    every: the tables of all workers. doc_tokens [D] int32; prior_chance, prior_other [K]: alias table of alpha. out
    [V]: tokens whose topic changed. A token without a topic gets its first from its word's weights.
    """
    room = room_of(rooms, worker)
    tables = Tables(
        every.stale[worker],
        every.bare[worker],
        every.bare_chance[worker],
        every.bare_other[worker],
        every.chance[worker],
        every.other[worker],
        every.own[worker],
        every.left[worker],
        every.opened[worker],
        every.inverse[worker],
        every.counted[worker],
    )
    alphas = _NIL
    for k in range(model.topics):
        alphas += model.alpha[k]
    rows = counts.doc_rows
    last = counts.doc_at.shape[0] - 1  # a prefetched token may belong to the next visit, with another first document
    v = next_visit(pass_, worker)
    while v >= 0:
        begin_visit(tokens, counts, model, room, v)
        bare_whole = _NIL
        for k in range(model.topics):
            tables.bare[k] = room.bare[k]
            tables.stale[k] = room.bare[k]
            bare_whole += room.bare[k]
        alias(tables.bare, model.topics, bare_whole, tables.bare_chance, tables.bare_other, tables.left)
        base, t, moved = tokens.doc_base[v], tokens.ptr[v], 0
        r, c = tokens.row_block[v], tokens.col_block[v]
        for run in range(tokens.run_ptr[v], tokens.run_ptr[v + 1]):
            w = tokens.word_base[v] + np.int64(tokens.run_word[run])
            if not is_due(model, w):
                t += tokens.run_length[run]
                continue
            listed = open_word(counts, model, room, w, r, c)
            opened = listed
            n, whole, tabled = _word_tables(model, room, tables, listed, tokens.run_length[run])
            for _ in range(tokens.run_length[run]):
                soon = counts.doc_at[min(base + np.int64(tokens.doc[t + 16]), last)]
                ahead(rows, soon)
                ahead(rows, soon + 16)
                d = base + np.int64(tokens.doc[t])
                at, length = counts.doc_at[d], np.int64(counts.doc_length[d])
                chunks = (length + 15) // 16
                state = token_bits(model.seed, tokens.key[v], t - tokens.ptr[v])
                old = model.topics if model.first else np.int64(tokens.topic[t])
                one, state = _next(state)
                two, state = _next(state)
                s = old
                if model.first:
                    s = _propose_word(room, tables, opened, n, whole, tabled, bare_whole, model.topics, one, two)
                    one, state = _next(state)
                    two, state = _next(state)
                held = np.int64(doc_tokens[d]) - 1  # other tokens that have a topic
                if model.first:
                    held = np.int64(0)
                    for j in range(length):
                        held += np.int64(rows[at + j] & np.uint32((1 << model.shift) - 1))
                less_one = np.float32(0.0) if model.first else _ONE
                now = np.float32(_tokens_of(rows, at, chunks, model, s)) - (less_one if s == old else _NIL)
                weight_old, stale_old, kept = _NIL, _NIL, _ONE
                if not model.first:
                    stale_old = _stale_without(model, tables, old)
                    kept = stale_old / tables.stale[old]
                    weight_old = (np.float32(room.count[old] - 1) + model.beta) / (
                        np.float32(room.seen[old] - 1) + model.smooth
                    )
                weight = weight_old if s == old else room.weight[s]
                for _step in range(steps):
                    k = _propose_word(room, tables, opened, n, whole, tabled, bare_whole, model.topics, one, two)
                    one, state = _next(state)
                    tries = 0
                    while k == old and _unit(one) >= kept and tries < _TRIES:
                        one, state = _next(state)
                        two, state = _next(state)
                        k = _propose_word(room, tables, opened, n, whole, tabled, bare_whole, model.topics, one, two)
                        one, state = _next(state)
                        tries += 1
                    one, state = _next(state)
                    if k != s:
                        there = np.float32(_tokens_of(rows, at, chunks, model, k))
                        there -= less_one if k == old else _NIL
                        other = weight_old if k == old else room.weight[k]
                        stale = stale_old if k == old else tables.stale[k]
                        chance = (there + model.alpha[k]) * other * (stale_old if s == old else tables.stale[s])
                        if _unit(one) * (now + model.alpha[s]) * weight * stale < chance:
                            s, now, weight = k, there, other
                    one, state = _next(state)
                    two, state = _next(state)
                    x = _unit(one) * (np.float32(held) + alphas)
                    if x < np.float32(held):
                        left_out = np.int64(-1) if model.first else old
                        k = _nth_token(rows, at, chunks, model, left_out, min(np.int64(x), held - 1), tables.counted)
                    else:
                        k = alias_draw(model.topics, prior_chance, prior_other, two)
                    one, state = _next(state)
                    two, state = _next(state)
                    if k != s:
                        other = weight_old if k == old else room.weight[k]
                        if _unit(one) * weight < other:
                            s, weight = k, other
                            now = np.float32(_tokens_of(rows, at, chunks, model, k))
                            now -= less_one if k == old else _NIL
                    one, state = _next(state)
                if s != old:
                    moved += 1
                    tokens.topic[t] = s
                    place = find_entry(rows, at, chunks, model.shift, s)
                    place_old = np.int64(-1)
                    if not model.first:
                        place_old = find_entry(rows, at, chunks, model.shift, old)
                    counts.doc_length[d] = move_entry(rows, at, length, model, place_old, place, s)
                    if not model.first:
                        listed = shift_topic(model, room, old, -1, listed)
                    listed = shift_topic(model, room, s, 1, listed)
                t += 1
            for j in range(n):
                k = j if opened < 0 else room.listed[j]
                tables.stale[k] = tables.bare[k]
            close_word(counts, model, room, w, r, c, listed)
        end_visit(tokens, counts, model, room, v)
        out[v] = moved
        v = next_visit(pass_, worker, v)


def prior_table(prior: Any) -> tuple[Any, Any]:
    """Return (chance float32 [K], other int32 [K]): the alias table of a prior."""
    n = len(prior)
    weights = np.asarray(prior, np.float32)
    chance, other, left = np.zeros(n, np.float32), np.zeros(n, np.int32), np.zeros(n, np.int32)
    fill_alias(weights, np.float32(weights.sum(dtype=np.float64)), chance, other, left)
    return chance, other
