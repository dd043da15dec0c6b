"""Top-n items of every user by score, without storing all scores.

`pack_worker` packs item factors once into *panels* of 64 items. A visit takes a block of users. While a panel is in the
L1 cache, it is multiplied with four users at a time in a register tile. The 64 scores of a user are compared with the
worst of the user's n best so far; the result is one word with a bit for each item that is better. Most words are
soon empty. Items seen before (sorted, as in a CSR matrix) and items not allowed are removed from the word first.

A large search skips most scores by upper bounds. With an orthonormal basis B [width, d], w·h is Bᵀw·Bᵀh plus the
product of the rests, which is at most the product of their lengths (Cauchy and Schwarz). So the bound is an inner
product of d + 1 numbers: of `heads`, packed like the items, and the user's. The scores of a user in a panel are
computed if the bound of some item exceeds the worst of the user's n best, less what rounding could explain. They are
the same chains then, so bounds change no bit. Where they exclude too little, none is computed for some panels. The
basis holds the main directions of the items (`bounds_of`), and the longest items come first (`order`), so that limits
rise early.

    score(u, j) = bias[j] + Σ_k W[u, k]·H[j, k]      one chain of fused multiply-adds; base[u] is added at the very end

Of equal scores the lower index comes first, so the result is deterministic. Cosine neighbours are the same search over
rows of length one (`normalise_worker`), with each item as its own seen item.

Shapes, with P = ⌈items / 64⌉: panels [P · width, 64], bias [P, 64] float32 (`panels_for`); heads [P · (d + 1), 64],
basis [d, width] float32, order [items] int32, or of length 0; allowed [P] int64 (`allowed_words`); users [m] rows of W;
seen_ptr [rows + 1], seen [n] (length 0: nothing is filtered); ids [m, n] int32, scores [m, n] float32, best first, −1
and −∞ where there are fewer than n.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty, empty2
from stretto.kernels.numeric import lanes
from stretto.kernels.numeric.tile import COLUMNS, ROWS, above, lowest_bit, row_scores
from stretto.kernels.numeric.tile import scores as tile_scores

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_INF = np.float32(np.inf)
_SLACK = np.float32(1e-4)  # of reach · (1 + length): more than all roundings of a score and its bound together
_OVER = np.float32(1e-6)  # of the squared length, for each column: more than the roundings of a rest
_BATCH, _RETRY = 16, 256  # panels after which bounds are judged, and tried again
_ITEMS = 1 << 14  # items that decide the basis
_ITERATIONS = 8  # of orthogonal iteration: the directions need not be exact
NO_BOUNDS = (
    np.zeros((0, COLUMNS), np.float32), np.zeros((0, 0), np.float32), np.float32(0.0), np.zeros(0, np.int32)
)  # fmt: skip


def panels_for(items: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Allocate panels and their biases for `pack_worker` to fill."""
    count = -(-items // COLUMNS)
    return lanes.aligned((count * width, COLUMNS)), lanes.aligned((count, COLUMNS))


def allowed_words(items: int, mask: np.ndarray | None = None) -> np.ndarray:
    """[P] int64: bit c of word p is set when item 64 p + c may be recommended; mask [items] bool, None allows all.

    >>> [bin(w) for w in allowed_words(3)]
    ['0b111']
    """
    count = -(-items // COLUMNS)
    bits = np.zeros(count * COLUMNS, dtype=bool)
    bits[:items] = True if mask is None else mask
    return np.packbits(bits, bitorder="little").view("<i8")


def bounds_of(H: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """(heads [items, depth], basis [depth − 1, width]) of items H [items, width].

    The rows of the basis have the largest sums of squares of H·basisᵀ. The last column of `heads` is the length of
    what is outside.
    """
    some = H[:: -(-len(H) // _ITEMS)].astype(np.float64)
    basis = lanes.aligned((depth - 1, H.shape[1]))
    gram = some.T @ some
    found = np.eye(H.shape[1], depth - 1)
    for _ in range(_ITERATIONS):
        found = np.linalg.qr(gram @ found)[0]
    basis[:] = found.T
    main = H @ basis.T
    rest = np.einsum("ik,ik->i", H, H) * (_ONE + _OVER * np.float32(H.shape[1])) - np.einsum("ik,ik->i", main, main)
    return np.column_stack([main, np.sqrt(np.maximum(rest, _ZERO))]), basis


@kernel
def pack_worker(pass_, worker, out, bounds, H, item_bias, panels, bias):
    """Fill panels bounds[v] … bounds[v + 1] − 1 from H [items, width] and item_bias [items] (or length 0).

    out [V]: Σ of all packed numbers.
    """
    width = H.shape[1]
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for b in range(bounds[v], bounds[v + 1]):
            for k in range(width):
                lanes.clear(panels, b * width + k)
            lanes.clear(bias, b)
            for c in range(min(COLUMNS, H.shape[0] - b * COLUMNS)):
                j = b * COLUMNS + c
                for k in range(width):
                    panels[b * width + k, c] = H[j, k]
                    total += H[j, k]
                if item_bias.shape[0] > 0:
                    bias[b, c] = item_bias[j]
                    total += item_bias[j]
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@kernel
def normalise_worker(pass_, worker, out, bounds, H, unit):
    """unit[i] = H[i] / ‖H[i]‖, a zero row stays zero. out [V]: Σ ‖H[i]‖."""
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            length = np.sqrt(lanes.dot(H, i, H, i))
            lanes.scaled(unit, i, _ONE / length if length > _ZERO else _ZERO, H, i)
            total += length
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@inner
def _insert(ids, scores, u, S, r, live, first_item):
    """Insert the items of `live`, lowest first, into the sorted list; return the new worst score.

    Items come in ascending order, so an item goes behind entries with an equal score. A list is faster than a heap
    here: its branches are predictable, and after a few panels few items are inserted.
    """
    last = ids.shape[1] - 1
    while live != 0:
        c = lowest_bit(live)
        live &= live - 1
        score = S[r, c]
        if score > scores[u, last]:
            at = last
            while at > 0 and scores[u, at - 1] < score:
                scores[u, at] = scores[u, at - 1]
                ids[u, at] = ids[u, at - 1]
                at -= 1
            scores[u, at] = score
            ids[u, at] = first_item + c
    return scores[u, last]


@inner
def _is_seen(seen, low, high, item):
    """Whether seen[low:high], ascending, has an item."""
    while low < high:
        middle = (low + high) >> 1
        if seen[middle] < item:
            low = middle + 1
        elif seen[middle] > item:
            high = middle
        else:
            return True
    return False


@inner
def _insert_any(ids, scores, u, S, r, live, order, seen, low, high):
    """`_insert` for items order[0 … 63] in any order, those of seen[low:high] left out."""
    last = ids.shape[1] - 1
    while live != 0:
        c = lowest_bit(live)
        live &= live - 1
        score, item = S[r, c], order[c]
        better = score > scores[u, last] or (score == scores[u, last] and item < ids[u, last])
        if better and not _is_seen(seen, low, high, item):
            at = last
            while at > 0 and (scores[u, at - 1] < score or (scores[u, at - 1] == score and ids[u, at - 1] > item)):
                scores[u, at] = scores[u, at - 1]
                ids[u, at] = ids[u, at - 1]
                at -= 1
            scores[u, at] = score
            ids[u, at] = item
    return scores[u, last]


@inner
def _lay_out_bound(Q, at, column, basis, W, user):
    """Fill a column of Q with Bᵀw and the length of the rest of w; return the length of w."""
    depth = basis.shape[0]
    whole = lanes.dot(W, user, W, user)
    main = _ZERO
    for d in range(depth):
        total = lanes.dot(W, user, basis, d)
        Q[at + d, column] = total
        main += total * total
    Q[at + depth, column] = np.sqrt(max(_ZERO, whole * (_ONE + _OVER * np.float32(basis.shape[1])) - main))
    return np.sqrt(whole)


@kernel(allocates=True)
def recommend_worker(
    pass_,
    worker,
    out,
    bounds,
    users,
    W,
    base,
    panels,
    bias,
    heads,
    basis,
    reach,
    order,
    allowed,
    seen_ptr,
    seen,
    ids,
    scores,
):
    """Find the best ids.shape[1] items of each of `users`. out [V]: how many were found in a block.

    A user outside W (−1) has no factors and no seen items, and gets the items with the highest bias. base [rows] or
    length 0. heads, basis, reach, order: bounds, or `NO_BOUNDS`; reach float32: at least every |bias| and length of an
    item, more for wide rows, which round more often. With bounds, panels, bias and allowed have the items in `order`.
    """
    width = W.shape[1]
    bounded = heads.shape[0] > 0
    depth = basis.shape[0] + 1 if bounded else 0
    largest = ROWS
    for v in range(bounds.shape[0] - 1):
        largest = max(largest, bounds[v + 1] - bounds[v] + ROWS)
    Q = empty2(largest // ROWS * width, ROWS, np.float32)  # four users side by side, as the tile reads them
    short = empty2(largest // ROWS * depth, ROWS, np.float32)  # the same for bounds
    limit = empty(largest, np.float32)
    slack = empty(largest, np.float32)
    cursor = empty(largest, np.int64)
    end = empty(largest, np.int64)
    S = empty2(ROWS, COLUMNS, np.float32)
    v = next_visit(pass_, worker)
    while v >= 0:
        first, count = bounds[v], bounds[v + 1] - bounds[v]
        groups = -(-count // ROWS)
        finite = True
        for n in range(groups * ROWS):
            user = users[first + n] if n < count else -1
            known = user >= 0 and user < W.shape[0]
            limit[n] = -_INF if n < count and ids.shape[1] > 0 else _INF
            slack[n] = _SLACK * reach
            cursor[n] = 0
            end[n] = 0
            for k in range(width):
                Q[n // ROWS * width + k, n % ROWS] = W[user, k] if known else _ZERO
            if known:
                finite = finite and np.isfinite(lanes.dot(W, user, W, user))
                if seen.shape[0] > 0:
                    cursor[n], end[n] = seen_ptr[user], seen_ptr[user + 1]
                if bounded:
                    slack[n] += slack[n] * _lay_out_bound(short, n // ROWS * depth, n % ROWS, basis, W, user)
            elif bounded:
                for k in range(depth):
                    short[n // ROWS * depth + k, n % ROWS] = _ZERO
            if n < count:
                for k in range(ids.shape[1]):
                    ids[first + n, k] = -1
                    scores[first + n, k] = -_INF
        testing, tested, passed = False, 0, 0
        for b in range(bias.shape[0]):
            begin = b * COLUMNS
            if bounded and b % _BATCH == 0:
                if testing:
                    testing = 2 * passed <= tested
                elif b % _RETRY == _BATCH:
                    testing = True
                tested, passed = 0, 0
            for g in range(groups):
                rows = (1 << ROWS) - 1
                if testing:
                    rows = 0
                    tile_scores(S, bias, b, short, g * depth, heads, b * depth, depth)
                    for r in range(ROWS):
                        if above(S, r, limit[g * ROWS + r] - slack[g * ROWS + r]) & allowed[b] != 0:
                            rows |= 1 << r
                            passed += 1
                            row_scores(S, r, bias, b, Q, g * width, panels, b * width, width)
                    tested += ROWS
                else:
                    tile_scores(S, bias, b, Q, g * width, panels, b * width, width)
                for r in range(ROWS):
                    if not rows >> r & 1:
                        continue
                    n = g * ROWS + r
                    if bounded:
                        live = above(S, r, limit[n] - slack[n]) & allowed[b]  # equal scores are compared by item
                        if live != 0:
                            some = order[begin : begin + COLUMNS]
                            limit[n] = _insert_any(ids, scores, first + n, S, r, live, some, seen, cursor[n], end[n])
                        continue
                    live = above(S, r, limit[n]) & allowed[b]
                    if live != 0:
                        at = cursor[n]
                        while at < end[n] and seen[at] < begin + COLUMNS:
                            if seen[at] >= begin:
                                live &= ~(np.int64(1) << np.int64(seen[at] - begin))
                            at += 1
                        cursor[n] = at
                        limit[n] = _insert(ids, scores, first + n, S, r, live, begin)
        found = 0
        for n in range(count):
            u, user = first + n, users[first + n]
            shift = base[user] if base.shape[0] > 0 and user >= 0 and user < W.shape[0] else _ZERO
            for k in range(ids.shape[1]):
                scores[u, k] += shift
                found += ids[u, k] >= 0
        out[v] = found
        if not finite:
            fail(pass_, v)
        v = next_visit(pass_, worker, v)
