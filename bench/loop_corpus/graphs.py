"""Graphs: edges as compressed rows or as pairs; ranks, labels, paths, similarities, messages."""

import numpy as np

import stretto as st

from .entry import CorpusLoop


def pagerank_push(indptr, indices, rank, residual, damping, epsilon):
    """One sweep of PageRank by pushes: a page hands its residual on to the pages that it links to."""
    for u in range(len(rank)):
        r = residual[u]
        degree = indptr[u + 1] - indptr[u]
        if r > epsilon * degree and degree > 0:
            rank[u] += (1 - damping) * r
            residual[u] = 0.0
            for p in range(indptr[u], indptr[u + 1]):
                residual[indices[p]] += damping * r / degree


def pagerank_push_buffered(indptr, indices, rank, residual, added, damping, epsilon):
    """The same with the residuals of other pages in a buffer."""
    for u in range(len(rank)):
        r = residual[u]
        degree = indptr[u + 1] - indptr[u]
        if r > epsilon * degree and degree > 0:
            rank[u] += (1 - damping) * r
            added[u] -= r
            for p in range(indptr[u], indptr[u + 1]):
                added[indices[p]] += damping * r / degree


def hits(links, hub, authority, new_hub, new_authority):
    """One step of Kleinberg's hubs and authorities."""
    for (u, v), w in links:
        new_authority[v] += w * hub[u]
        new_hub[u] += w * authority[v]


def label_propagation(indptr, indices, weights, labels, classes):
    """A node takes the label that most of its neighbours have."""
    for v in range(len(labels)):
        votes = np.zeros(classes)
        for p in range(indptr[v], indptr[v + 1]):
            votes[labels[indices[p]]] += weights[p]
        if indptr[v + 1] > indptr[v]:
            labels[v] = np.argmax(votes)


def soft_labels(indptr, indices, weights, F, Y, new, alpha):
    """Label spreading of Zhou et al.: shares of the classes, a mean of the neighbours' and of what is known."""
    for v in range(len(F)):
        total = np.zeros(F.shape[1])
        for p in range(indptr[v], indptr[v + 1]):
            total += weights[p] * F[indices[p]]
        new[v] = alpha * total + (1 - alpha) * Y[v]


def soft_labels_hand(indptr, indices, weights, F, Y, new, alpha):
    for v in range(len(F)):
        row = new[v]
        for c in range(len(row)):
            row[c] = 0.0
        for p in range(indptr[v], indptr[v + 1]):
            other, w = F[indices[p]], weights[p]
            for c in range(len(row)):
                row[c] += w * other[c]
        for c in range(len(row)):
            row[c] = alpha * row[c] + (1 - alpha) * Y[v, c]


def floyd_warshall(D, P):
    """All shortest paths, with the node before the last."""
    n = len(D)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if D[i, k] + D[k, j] < D[i, j]:
                    D[i, j] = D[i, k] + D[k, j]
                    P[i, j] = P[k, j]


def bellman_ford(source, target, length, distance, rounds):
    """Shortest paths from one node: every edge, again and again."""
    for _ in range(rounds):
        for e in range(len(length)):
            distance[target[e]] = min(distance[target[e]], distance[source[e]] + length[e])


def simrank(indptr, indices, S, new, decay):
    """SimRank: two nodes are alike if those that point to them are."""
    n = len(S)
    for a in range(n):
        for b in range(n):
            if a == b:
                new[a, b] = 1.0
                continue
            total = 0.0
            for p in range(indptr[a], indptr[a + 1]):
                for q in range(indptr[b], indptr[b + 1]):
                    total += S[indices[p], indices[q]]
            pairs = (indptr[a + 1] - indptr[a]) * (indptr[b + 1] - indptr[b])
            new[a, b] = decay * total / pairs if pairs > 0 else 0.0


def nearest_neighbours(queries, points, found, distance):
    """The k nearest points of each query, kept sorted by insertion."""
    k = found.shape[1]
    for q in range(len(queries)):
        for p in range(len(points)):
            d = np.sum((queries[q] - points[p]) ** 2)
            if d < distance[q, k - 1]:
                at = k - 1
                while at > 0 and distance[q, at - 1] > d:
                    distance[q, at] = distance[q, at - 1]
                    found[q, at] = found[q, at - 1]
                    at -= 1
                distance[q, at] = d
                found[q, at] = p


def nearest_neighbours_hand(queries, points, found, distance):
    k, width = found.shape[1], points.shape[1]
    for q in range(len(queries)):
        near, which, x = distance[q], found[q], queries[q]
        for p in range(len(points)):
            d = 0.0
            for f in range(width):
                z = x[f] - points[p, f]
                d += z * z
            if d < near[k - 1]:
                at = k - 1
                while at > 0 and near[at - 1] > d:
                    near[at] = near[at - 1]
                    which[at] = which[at - 1]
                    at -= 1
                near[at] = d
                which[at] = p


def triangles(indptr, indices, count):
    """Triangles of a graph, by merging sorted neighbours of both ends of every edge."""
    for u in range(len(indptr) - 1):
        for p in range(indptr[u], indptr[u + 1]):
            v = indices[p]
            if v <= u:
                continue
            a, b = indptr[u], indptr[v]
            while a < indptr[u + 1] and b < indptr[v + 1]:
                if indices[a] < indices[b]:
                    a += 1
                elif indices[a] > indices[b]:
                    b += 1
                else:
                    if indices[a] > v:
                        count += 1
                    a += 1
                    b += 1


def belief_chain(unary, pairwise, forward, backward, belief):
    """Belief propagation on a chain: messages to the right, messages to the left, beliefs."""
    n, k = unary.shape
    for t in range(1, n):
        for s in range(k):
            m = 0.0
            for r in range(k):
                m += forward[t - 1, r] * unary[t - 1, r] * pairwise[r, s]
            forward[t, s] = m
        forward[t] /= np.sum(forward[t])
    for t in range(n - 2, -1, -1):
        for s in range(k):
            m = 0.0
            for r in range(k):
                m += backward[t + 1, r] * unary[t + 1, r] * pairwise[s, r]
            backward[t, s] = m
        backward[t] /= np.sum(backward[t])
    for t in range(n):
        b = forward[t] * unary[t] * backward[t]
        belief[t] = b / b.sum()


def belief_grid(cost, right, down, smooth):
    """One sweep of min-sum messages over a grid, as in stereo matching: to the right and downwards."""
    n, m, labels = cost.shape
    for i in range(n - 1):
        for j in range(m - 1):
            h = np.zeros(labels)
            for d in range(labels):
                h[d] = cost[i, j, d] + right[i, j, d] + down[i, j, d]
            low = np.min(h)
            for d in range(labels):
                best = low + smooth
                for e in range(labels):
                    best = min(best, h[e] + 0.5 * abs(d - e))
                right[i, j + 1, d] = best - low
                down[i + 1, j, d] = best - low


def compressed(rng, n, degree):
    """Compressed rows with sorted neighbours, without repetitions."""
    rows = [np.unique(rng.integers(0, n, rng.integers(0, 2 * degree))) for _ in range(n)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return indptr, np.concatenate(rows)


def push_data(rng, n, degree):
    indptr, indices = compressed(rng, n, degree)
    return {
        "indptr": indptr,
        "indices": indices,
        "rank": np.zeros(n),
        "residual": np.ones(n) / n,
        "damping": 0.85,
        "epsilon": 1e-3 / n,
    }


def push_buffered_data(rng, n, degree):
    made = push_data(rng, n, degree)
    first = {name: made[name] for name in ("indptr", "indices", "rank", "residual")}
    return first | {"added": st.buffer(made["residual"]), "damping": 0.85, "epsilon": 1e-3 / n}


def links_data(rng, n, degree):
    rows, cols = rng.integers(0, n, (2, n * degree))
    links = st.Data.from_arrays(rows, cols, np.ones(n * degree), (n, n))
    return {
        "links": links,
        "hub": rng.random(n),
        "authority": rng.random(n),
        "new_hub": np.zeros(n),
        "new_authority": np.zeros(n),
    }


def labels_data(rng, n, degree, classes):
    indptr, indices = compressed(rng, n, degree)
    return {
        "indptr": indptr,
        "indices": indices,
        "weights": rng.random(len(indices)),
        "labels": rng.integers(0, classes, n),
        "classes": classes,
    }


def soft_data(rng, n, degree, classes):
    indptr, indices = compressed(rng, n, degree)
    F, Y = rng.random((n, classes)), rng.random((n, classes))
    return {
        "indptr": indptr,
        "indices": indices,
        "weights": rng.random(len(indices)),
        "F": F,
        "Y": Y,
        "new": np.zeros((n, classes)),
        "alpha": 0.9,
    }


def paths_data(rng, n):
    return {"D": rng.random((n, n)), "P": np.repeat(np.arange(n)[:, None], n, axis=1)}


def edges_data(rng, n, degree, rounds):
    source, target = rng.integers(0, n, (2, n * degree))
    distance = np.full(n, np.inf)
    distance[0] = 0
    return {
        "source": source,
        "target": target,
        "length": rng.random(n * degree),
        "distance": distance,
        "rounds": rounds,
    }


def simrank_data(rng, n, degree):
    indptr, indices = compressed(rng, n, degree)
    return {
        "indptr": indptr,
        "indices": indices,
        "S": np.eye(n) + rng.random((n, n)) * 0.1,
        "new": np.zeros((n, n)),
        "decay": 0.8,
    }


def neighbours_data(rng, queries, points, features, k):
    return {
        "queries": rng.random((queries, features)),
        "points": rng.random((points, features)),
        "found": np.zeros((queries, k), np.int64),
        "distance": np.full((queries, k), np.inf),
    }


def triangles_data(rng, n, degree):
    indptr, indices = compressed(rng, n, degree)
    return {"indptr": indptr, "indices": indices, "count": st.accumulator(0)}


def chain_data(rng, n, k):
    ones = np.ones((n, k)) / k
    return {
        "unary": rng.random((n, k)),
        "pairwise": rng.random((k, k)),
        "forward": ones,
        "backward": ones.copy(),
        "belief": np.zeros((n, k)),
    }


def grid_data(rng, n, m, labels):
    shape = n, m, labels
    return {"cost": rng.random(shape), "right": np.zeros(shape), "down": np.zeros(shape), "smooth": 1.0}


FORD = CorpusLoop(
    bellman_ford,
    edges_data,
    (50, 2, 4),
    (50_000, 8, 5),
)
LABELS = CorpusLoop(
    label_propagation,
    labels_data,
    (200, 1, 3),
    (100_000, 3, 10),
)
CHAIN = CorpusLoop(
    belief_chain,
    chain_data,
    (12, 3),
    (20_000, 16),
    warns="serial=True",
)
LOOPS = (
    LABELS,
    CorpusLoop(
        pagerank_push, push_data, (20, 4), (200_000, 8), warns="st.buffer(residual)", instead="pagerank_push_buffered"
    ),
    CorpusLoop(pagerank_push_buffered, push_buffered_data, (20, 4), (200_000, 8), follows=True),
    CorpusLoop(hits, links_data, (20, 4), (200_000, 8)),
    CorpusLoop(soft_labels, soft_data, (20, 4, 3), (50_000, 8, 16), soft_labels_hand),
    CorpusLoop(floyd_warshall, paths_data, (12,), (400,)),
    FORD,
    CorpusLoop(simrank, simrank_data, (12, 3), (500, 6)),
    CorpusLoop(nearest_neighbours, neighbours_data, (6, 20, 4, 3), (500, 5000, 16, 10), nearest_neighbours_hand),
    CorpusLoop(triangles, triangles_data, (30, 6), (20_000, 20)),
    CHAIN,
    CorpusLoop(belief_grid, grid_data, (6, 7, 3), (200, 200, 16)),
)
