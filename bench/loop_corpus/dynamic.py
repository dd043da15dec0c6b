"""Dynamic programming: alignment of sequences, knapsacks, chains of matrices, search trees."""

import numpy as np

import stretto as st

from .entry import CorpusLoop


def edit_distance(a, b, D):
    """The distance of Levenshtein."""
    n, m = len(a), len(b)
    for i in range(n + 1):
        D[i, 0] = i
    for j in range(m + 1):
        D[0, j] = j
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            D[i, j] = min(D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + cost)


def needleman_wunsch(a, b, F, move, match, mismatch, gap):
    """Global alignment, with the moves to trace it back."""
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            s = match if a[i - 1] == b[j - 1] else mismatch
            diagonal = F[i - 1, j - 1] + s
            up = F[i - 1, j] + gap
            left = F[i, j - 1] + gap
            if diagonal >= up and diagonal >= left:
                F[i, j], move[i, j] = diagonal, 0
            elif up >= left:
                F[i, j], move[i, j] = up, 1
            else:
                F[i, j], move[i, j] = left, 2


def smith_waterman(a, b, H, score, gap, best):
    """Local alignment with a matrix of scores."""
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            H[i, j] = max(0, H[i - 1, j - 1] + score[a[i - 1], b[j - 1]], H[i - 1, j] - gap, H[i, j - 1] - gap)
            best += H[i, j]


def gotoh(a, b, M, X, Y, score, opening, extending):
    """Alignment with affine gaps: three tables."""
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            M[i, j] = max(M[i - 1, j - 1], X[i - 1, j - 1], Y[i - 1, j - 1]) + score[a[i - 1], b[j - 1]]
            X[i, j] = max(M[i - 1, j] - opening, X[i - 1, j] - extending)
            Y[i, j] = max(M[i, j - 1] - opening, Y[i, j - 1] - extending)


def dtw(x, y, D):
    """Dynamic time warping."""
    for i in range(len(x)):
        for j in range(len(y)):
            cost = abs(x[i] - y[j])
            if i == 0 and j == 0:
                D[i, j] = cost
            elif i == 0:
                D[i, j] = cost + D[i, j - 1]
            elif j == 0:
                D[i, j] = cost + D[i - 1, j]
            else:
                D[i, j] = cost + min(D[i - 1, j], D[i, j - 1], D[i - 1, j - 1])


def search_database(query, text, start, stop, scores, match, mismatch, gap):
    """Smith–Waterman of one query against many sequences, which lie end to end in `text`."""
    for s in range(len(start)):
        row = np.zeros(len(query) + 1)
        best = 0.0
        for p in range(start[s], stop[s]):
            diagonal = 0.0
            for q in range(1, len(query) + 1):
                value = diagonal + (match if query[q - 1] == text[p] else mismatch)
                diagonal = row[q]
                row[q] = max(0.0, value, row[q] - gap, row[q - 1] - gap)
                best = max(best, row[q])
        scores[s] = best


def knapsack(weights, values, best, capacity):
    """The 0/1 knapsack, the whole table."""
    for i in range(1, len(weights) + 1):
        for c in range(capacity + 1):
            best[i, c] = best[i - 1, c]
            if weights[i - 1] <= c:
                best[i, c] = max(best[i, c], best[i - 1, c - weights[i - 1]] + values[i - 1])


def knapsack_in_place(weights, values, best, capacity):
    """The 0/1 knapsack in one row, from the right."""
    for i in range(len(weights)):
        for c in range(capacity, weights[i] - 1, -1):
            best[c] = max(best[c], best[c - weights[i]] + values[i])


def viterbi(observed, start, transition, emission, score, back):
    """The most likely states of a hidden Markov model; log probabilities."""
    states = len(start)
    for s in range(states):
        score[0, s] = start[s] + emission[s, observed[0]]
    for t in range(1, len(observed)):
        for s in range(states):
            best, arg = -np.inf, 0
            for r in range(states):
                p = score[t - 1, r] + transition[r, s]
                if p > best:
                    best, arg = p, r
            score[t, s] = best + emission[s, observed[t]]
            back[t, s] = arg


def matrix_chain(p, cost, split):
    """The cheapest order to multiply matrices of sizes p[0] x p[1], p[1] x p[2], …"""
    n = len(p) - 1
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i, j] = np.inf
            for k in range(i, j):
                q = cost[i, k] + cost[k + 1, j] + p[i] * p[k + 1] * p[j + 1]
                if q < cost[i, j]:
                    cost[i, j] = q
                    split[i, j] = k


def optimal_bst(weight, cost, root):
    """The search tree of the least expected depth; weight[i, j] is the sum of the frequencies of keys i to j - 1."""
    n = len(cost) - 1
    for length in range(1, n + 1):
        for i in range(0, n - length + 1):
            j = i + length
            best = np.inf
            for r in range(i, j):
                c = cost[i, r] + cost[r + 1, j] + weight[i, j]
                if c < best:
                    best = c
                    root[i, j] = r
            cost[i, j] = best


def text(rng, n, letters=4):
    return rng.integers(0, letters, n)


def table(n, m):
    return np.zeros((n + 1, m + 1))


def edit_data(rng, n, m):
    return {"a": text(rng, n), "b": text(rng, m), "D": np.zeros((n + 1, m + 1), np.int64)}


def needleman_data(rng, n, m):
    F = table(n, m)
    F[:, 0], F[0] = -np.arange(n + 1), -np.arange(m + 1)
    return {
        "a": text(rng, n),
        "b": text(rng, m),
        "F": F,
        "move": np.zeros(F.shape, np.int8),
        "match": 1.0,
        "mismatch": -1.0,
        "gap": -1.0,
    }


def smith_data(rng, n, m):
    score = np.where(np.eye(4) > 0, 2.0, -1.0)
    return {
        "a": text(rng, n),
        "b": text(rng, m),
        "H": table(n, m),
        "score": score,
        "gap": 1.5,
        "best": st.accumulator(0.0, op=max),
    }


def gotoh_data(rng, n, m):
    made = smith_data(rng, n, m)
    X, Y = np.full((n + 1, m + 1), -1e9), np.full((n + 1, m + 1), -1e9)
    return {
        "a": made["a"],
        "b": made["b"],
        "M": table(n, m),
        "X": X,
        "Y": Y,
        "score": made["score"],
        "opening": 2.0,
        "extending": 0.5,
    }


def dtw_data(rng, n, m):
    return {"x": rng.normal(size=n).cumsum(), "y": rng.normal(size=m).cumsum(), "D": np.zeros((n, m))}


def database_data(rng, sequences, length, query):
    sizes = rng.integers(length // 2, length, sequences)
    stop = np.cumsum(sizes)
    return {
        "query": text(rng, query),
        "text": text(rng, stop[-1]),
        "start": stop - sizes,
        "stop": stop,
        "scores": np.zeros(sequences),
        "match": 2.0,
        "mismatch": -1.0,
        "gap": 1.5,
    }


def knapsack_data(rng, items, capacity):
    return {
        "weights": rng.integers(1, capacity // 4, items),
        "values": rng.random(items),
        "best": np.zeros((items + 1, capacity + 1)),
        "capacity": capacity,
    }


def knapsack_row_data(rng, items, capacity):
    return knapsack_data(rng, items, capacity) | {"best": np.zeros(capacity + 1)}


def viterbi_data(rng, length, states, symbols):
    def logs(*shape):
        p = rng.random(shape)
        return np.log(p / p.sum(-1, keepdims=True))

    return {
        "observed": rng.integers(0, symbols, length),
        "start": logs(states),
        "transition": logs(states, states),
        "emission": logs(states, symbols),
        "score": np.zeros((length, states)),
        "back": np.zeros((length, states), np.int64),
    }


def chain_data(rng, n):
    return {"p": rng.integers(1, 50, n + 1), "cost": np.zeros((n, n)), "split": np.zeros((n, n), np.int64)}


def tree_data(rng, n):
    total = np.concatenate([[0], np.cumsum(rng.random(n))])
    return {
        "weight": total[None] - total[:, None],
        "cost": np.zeros((n + 1, n + 1)),
        "root": np.zeros((n + 1, n + 1), int),
    }


ROW = CorpusLoop(
    knapsack_in_place,
    knapsack_row_data,
    (9, 30),
    (1000, 10_000),
    warns="serial=True",
)
LOOPS = (
    CorpusLoop(edit_distance, edit_data, (14, 11), (3000, 3000)),
    CorpusLoop(needleman_wunsch, needleman_data, (14, 11), (2500, 2500)),
    CorpusLoop(smith_waterman, smith_data, (14, 11), (3000, 3000)),
    CorpusLoop(gotoh, gotoh_data, (14, 11), (2000, 2000)),
    CorpusLoop(dtw, dtw_data, (14, 11), (3000, 3000)),
    CorpusLoop(search_database, database_data, (8, 12, 7), (2000, 200, 60)),
    CorpusLoop(knapsack, knapsack_data, (9, 30), (1000, 10_000)),
    ROW,
    CorpusLoop(viterbi, viterbi_data, (20, 5, 4), (5000, 40, 30)),
    CorpusLoop(matrix_chain, chain_data, (12,), (400,)),
    CorpusLoop(optimal_bst, tree_data, (12,), (400,)),
)
