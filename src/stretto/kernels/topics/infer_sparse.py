"""Topic proportions of documents for many topics (sparse φ): the fixed point of `infer` on each document's best topics.

A trained word has few of many topics, so φ is stored by its sparse part: φ_wk = value_wk + floor_k, where floor_k is
β/(n_k + Vβ). A document is done in four stages:

1. A pass from the prior over every topic, along the sparse rows of its words, finds Σ_w c_w φ_wk / z_w of each topic k.
2. The topics with the highest product of this and √α_k become *active*: 256 for a document of up to 256 different
   words, more for longer ones. (Its product with α_k is the proportion after that pass, which hides rare topics.)
3. φ of its words at the active topics is gathered into a small matrix that stays in the cache, and `settle` iterates on
   it. The inactive topics stay at their prior, a_k = α_k, and contribute to every z_w by their exact sum, which is
   reach_w = Σ_k α_k φ_wk minus the part of the active ones.
4. A last pass over every topic updates the inactive ones too.

For a document of more than LONG different words the matrix would be large: its passes use the sparse rows instead, and
are exact for every topic. The choice depends on the document only.

Shapes are those of `infer`, alpha [K].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric import lanes
from stretto.kernels.numeric.lanes import LANES, dot
from stretto.kernels.numeric.scalar import log
from stretto.kernels.numeric.vector import add, fma, get, load, put, splat, store, total

from .infer import LONGER, settle, share, write_shares

LONG = 2048
_SHORT, _MIDDLE = 256, 1024
_SPARE = 16
_INFINITE = np.int32(0x7F800000)  # the bits of infinity
_ZERO = np.float32(0.0)


class SparseInferScratch(NamedTuple):
    """Scratch memory of all workers."""

    matrix: np.ndarray  # [workers, (most + 1) · active] float32: φ of the document's words at its active topics
    vectors: np.ndarray  # [workers, 4 · active] float32: a, scratch, alpha, floor of the active topics
    topics: np.ndarray  # [workers, 4, padded K] float32: scores, a, sums, √α
    slots: np.ndarray  # [workers, 2, K + spare] int32: the column of each topic; the topic of each column
    words: np.ndarray  # [workers, 2, most + spare] float32: count, mass of inactive topics
    rows: np.ndarray  # [workers, most + spare] int32: row of φ of each word


def active_most(m: int) -> int:
    """Return how many topics may be active in a document of m different words.

    >>> active_most(80), active_most(700)
    (256, 384)
    """
    return 256 if m <= _SHORT else 384 if m <= _MIDDLE else 512


def room_for(workers: int, most: int, K: int) -> SparseInferScratch:
    """Allocate scratch for documents of at most `most` different words: up to 4 MiB per worker, and 24 bytes a topic.

    >>> room_for(1, 80, 1000).matrix.shape
    (1, 20736)
    """
    most = min(most, LONG)
    active = lanes.padded(min(active_most(most), K))
    return SparseInferScratch(
        lanes.aligned((workers, (most + 1) * active)),
        lanes.aligned((workers, 4 * active)),
        lanes.aligned((workers, 4, lanes.padded(K))),
        np.zeros((workers, 2, K + _SPARE), np.int32),
        lanes.aligned((workers, 2, lanes.padded(most + _SPARE))),
        np.zeros((workers, most + _SPARE), np.int32),
    )


_most_of = inner(active_most)


@inner
def _product(trained, e, a):
    return get(trained.value, e) * get(a, np.int64(get(trained.topic, e)))


@inner
def _along(trained, w, a):
    """Return Σ_k value_wk a_k, with four accumulators, since a single one would wait for every addition."""
    e, last = trained.ptr[w], trained.ptr[w + 1]
    s0, s1, s2, s3 = _ZERO, _ZERO, _ZERO, _ZERO
    while e + 4 <= last:
        s0 += _product(trained, e, a)
        s1 += _product(trained, e + 1, a)
        s2 += _product(trained, e + 2, a)
        s3 += _product(trained, e + 3, a)
        e += 4
    while e < last:
        s0 += _product(trained, e, a)
        e += 1
    return (s0 + s1) + (s2 + s3)


@inner
def _scatter(trained, w, s, sums):
    """sums_k += s · value_wk."""
    for e in range(trained.ptr[w], trained.ptr[w + 1]):
        k = np.int64(get(trained.topic, e))
        put(sums, k, get(sums, k) + s * get(trained.value, e))


@inner
def _higher(score, K, edge):
    """Count the scores above `edge`."""
    found = 0
    for k in range(K):
        found += score[k] > edge
    return found


@inner
def _choose(score, K, most, slot, chosen):
    """Choose the `most` highest of score [K], none that is 0, of equal ones the lower topic; all if there are no more.

    The scores are not negative and are given as the bits of float32, which sort like the numbers. slot[k]: the index of
    topic k among the chosen; for other topics, the number of the chosen rounded up to whole lanes. The search stops
    when the choice is short by less than a vector of lanes, since finding the rest costs more than it gains. Returns
    how many are chosen.
    """
    edge, ties = np.int32(0 if most < K else -1), 0
    if _higher(score, K, edge) > most:
        low, high, found = edge, _INFINITE, 0
        while high - low > 1 and found <= most - LANES:
            middle = np.int32(low + (high - low) // 2)
            above = _higher(score, K, middle)
            if above > most:
                low = middle
            else:
                high, found = middle, above
        edge = high
        ties = most - found if high - low <= 1 else 0
    count = 0
    for k in range(K):
        put(chosen, count, k)
        count += np.int64(get(score, k) > edge)
    for k in range(K if ties > 0 else 0):
        if score[k] == edge and ties > 0:
            chosen[count] = k
            count += 1
            ties -= 1
    wide = (count + LANES - 1) // LANES * LANES
    for k in range(K):
        slot[k] = wide
    for j in range(count):
        slot[chosen[j]] = j
    return count


@inner
def _gather(trained, row, rest, m, wide, slot, matrix, vectors):
    """Gather φ of words row[:m] at the active topics into matrix [m, wide], the others' part of z_w into rest.

    Sets row[t] = t.
    """
    for t in range(m):
        w, at = row[t], t * wide
        for c in range(0, wide, LANES):
            store(matrix, at + c, splat(_ZERO))
        for e in range(trained.ptr[w], trained.ptr[w + 1]):
            # Inactive topics are written to the start of the next row, which is filled later.
            j = np.int64(get(slot, np.int64(get(trained.topic, e))))
            put(matrix, at + j, get(trained.value, e))
        mass = splat(_ZERO)
        for c in range(0, wide, LANES):
            phi = add(load(matrix, at + c), load(vectors, 3 * wide + c))
            store(matrix, at + c, phi)
            mass = fma(phi, load(vectors, 2 * wide + c), mass)
        rest[t] = max(_ZERO, trained.reach[w] - total(mass))
        row[t] = t


@inner
def _on_active(trained, m, n, active, passes, tol, room, worker):
    """Run stage 3: a is the result of the first pass on entry, converged on return; rest[t] returns z.

    Returns the number of passes.
    """
    a, chosen, slot = room.topics[worker, 1], room.slots[worker, 1], room.slots[worker, 0]
    count, rest, row = room.words[worker, 0], room.words[worker, 1], room.rows[worker]
    matrix, vectors = room.matrix[worker], room.vectors[worker]
    wide = (active + LANES - 1) // LANES * LANES
    its = vectors[: 4 * wide].reshape((4, wide))
    its[:] = _ZERO
    for j in range(active):
        its[0, j], its[2, j], its[3, j] = a[chosen[j]], trained.alpha[chosen[j]], trained.floor[chosen[j]]
    _gather(trained, row, rest, m, wide, slot, matrix, vectors)
    Y = matrix[: m * wide].reshape((m, wide))
    made = settle(Y, row, count, rest, m, its[2], its[:2], n, passes, tol)
    for t in range(m):
        rest[t] += dot(Y, t, its, 0)
    for k in range(trained.alpha.shape[0]):
        a[k] = trained.alpha[k]
    for j in range(active):
        a[chosen[j]] = its[0, j]
    return made


@inner
def _whole_pass(trained, first, m, words, counts, z, a, fresh, sums):
    """Make one pass over every topic: fresh = α + a · Σ_w c_w φ_wk / z_w; z [m], or length 0: it is Σ_k φ_wk a_k."""
    known = z.shape[0] > 0
    below, seen = 0.0, 0.0
    for k in range(0 if known else trained.alpha.shape[0]):
        below += trained.floor[k] * a[k]
    sums[:] = _ZERO
    for t in range(m):
        w = words[first + t]
        s = share(counts[first + t], z[t] if known else _along(trained, w, a) + np.float32(below))
        seen += s
        _scatter(trained, w, s, sums)
    for k in range(trained.alpha.shape[0]):
        fresh[k] = trained.alpha[k] + a[k] * (sums[k] + trained.floor[k] * np.float32(seen))


@inner
def _on_all(trained, first, m, words, counts, n, a, fresh, sums, passes, tol):
    """Make passes over every topic for a long document; a is the start on entry and α + N on return.

    Returns the number of passes.
    """
    made, done = 0, False
    while not done:
        _whole_pass(trained, first, m, words, counts, sums[:0], a, fresh, sums)
        made += 1
        moved = 0.0
        for k in range(trained.alpha.shape[0]):
            moved += abs(fresh[k] - a[k])
        done = moved <= tol * n or made == passes
        for k in range(trained.alpha.shape[0]):
            a[k] = fresh[k] if done else max(trained.alpha[k], a[k] + LONGER * (fresh[k] - a[k]))
    return made


@kernel
def sparse_worker(pass_, worker, out, bounds, indptr, words, counts, trained, passes, tol, theta, room):
    """Compute theta[d] for the documents of each visit. out [visits]: Σ tokens · passes."""
    alpha = trained.alpha
    K = alpha.shape[0]
    score, a = room.topics[worker, 0], room.topics[worker, 1]
    sums, root = room.topics[worker, 2], room.topics[worker, 3]
    slot, chosen = room.slots[worker, 0], room.slots[worker, 1]
    count, rest, row = room.words[worker, 0], room.words[worker, 1], room.rows[worker]
    bits = score.view(np.int32)
    prior = 0.0
    for k in range(K):
        prior += alpha[k]
        root[k] = np.sqrt(alpha[k])
    v = next_visit(pass_, worker)
    while v >= 0:
        spent = 0.0
        for d in range(bounds[v], bounds[v + 1]):
            first, m = indptr[d], indptr[d + 1] - indptr[d]
            n = 0.0
            for t in range(first, first + m):
                n += counts[t]
            if not n > 0.0:
                write_shares(theta, d, alpha)
                continue
            if m > LONG:
                for k in range(K):
                    a[k] = alpha[k] * np.float32(1.0 + n / prior)
                spent += n * _on_all(trained, first, m, words, counts, n, a, score, sums, passes, tol)
                write_shares(theta, d, a)
                continue
            for t in range(m):
                row[t], count[t] = words[first + t], counts[first + t]
                rest[t] = trained.reach[row[t]]
            _whole_pass(trained, first, m, words, counts, rest[:m], alpha, a, sums)
            made, active = 1, 0
            if passes > 1:
                for k in range(K):
                    score[k] = root[k] * sums[k]
                active = _choose(bits, K, min(K, _most_of(m)), slot, chosen)
            if active > 0:
                made += 1 + _on_active(trained, m, np.float32(n), active, passes - 2, tol, room, worker)
                _whole_pass(trained, first, m, words, counts, rest[:m], a, a, sums)
            write_shares(theta, d, a)
            spent += n * made
        out[v] = spent
        v = next_visit(pass_, worker, v)


@kernel
def sparse_likelihood_worker(pass_, worker, out, bounds, indptr, words, counts, trained, theta, value):
    """value [D] float64: Σ_w c_w ln Σ_k θ_dk φ_wk; theta [D, K]. out [visits]: their sums."""
    v = next_visit(pass_, worker)
    while v >= 0:
        whole = 0.0
        for d in range(bounds[v], bounds[v + 1]):
            below, found = 0.0, 0.0
            for k in range(theta.shape[1]):
                below += np.float64(trained.floor[k]) * theta[d, k]
            for e in range(indptr[d], indptr[d + 1]):
                if counts[e] > _ZERO:
                    found += np.float64(counts[e]) * log(np.float64(_along(trained, words[e], theta[d])) + below)
            value[d] = found
            whole += found
        out[v] = whole
        v = next_visit(pass_, worker, v)
