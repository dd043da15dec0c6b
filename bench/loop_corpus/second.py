"""The second lot: loops that were written when the first were accepted, and counted before anything was changed."""

import math

import numpy as np

import stretto as st

from .entry import CorpusLoop


def ica(X, W, lr):
    """Independent components by natural gradients (Bell and Sejnowski, Amari), sample by sample."""
    d = len(W)
    for t in range(len(X)):
        y = W @ X[t]
        g = np.tanh(y)
        W += lr * (np.eye(d) - np.outer(g, y)) @ W


def als_implicit(users, U, V, G, lam, alpha):
    """Alternating least squares with confidences (Hu, Koren and Volinsky): one small system for each user."""
    k = V.shape[1]
    for u, liked in users:
        A = G + lam * np.eye(k)
        b = np.zeros(k)
        for i, r in liked:
            A += alpha * r * np.outer(V[i], V[i])
            b += (1 + alpha * r) * V[i]
        U[u] = np.linalg.solve(A, b)


def transe(head, relation, tail, bad, E, R, lr, margin):
    """TransE: entities as points, relations as translations, one corrupted tail for each fact."""
    for t in range(len(head)):
        h, r, p, n = head[t], relation[t], tail[t], bad[t]
        good = E[h] + R[r] - E[p]
        worse = E[h] + R[r] - E[n]
        if margin + np.linalg.norm(good) - np.linalg.norm(worse) > 0:
            a = good / np.linalg.norm(good)
            b = worse / np.linalg.norm(worse)
            E[h] -= lr * (a - b)
            R[r] -= lr * (a - b)
            E[p] += lr * a
            E[n] -= lr * b


def bpr_features(users, liked, other, F, W, M, lr, lam):
    """Ranking of items by their features (VBPR without the bias): an embedding M that all of them share."""
    for t in range(len(users)):
        u, i, j = users[t], liked[t], other[t]
        d = F[i] - F[j]
        w = W[u].copy()
        s = 1 / (1 + math.exp(w @ (M @ d)))
        W[u] += lr * (s * (M @ d) - lam * w)
        M += lr * (s * np.outer(w, d) - lam * M)


def louvain(indptr, indices, community, degree, total, m2):
    """A round of moves of Louvain's method on a graph without weights."""
    n = len(community)
    for v in range(n):
        links = np.zeros(n)
        for p in range(indptr[v], indptr[v + 1]):
            if indices[p] != v:
                links[community[indices[p]]] += 1.0
        old = community[v]
        total[old] -= degree[v]
        best, gain = old, links[old] - total[old] * degree[v] / m2
        for p in range(indptr[v], indptr[v + 1]):
            c = community[indices[p]]
            g = links[c] - total[c] * degree[v] / m2
            if g > gain:
                best, gain = c, g
        total[best] += degree[v]
        community[v] = best


def sinkhorn(K, a, b, u, v, rounds):
    """Optimal transport with entropy: rows and columns in turn."""
    n, m = K.shape
    for _ in range(rounds):
        for i in range(n):
            u[i] = a[i] / (K[i] @ v)
        for j in range(m):
            v[j] = b[j] / (K[:, j] @ u)


def kalman(Y, level, slope, q, r, filtered):
    """A Kalman filter of a local linear trend for each of many series."""
    for s in range(len(Y)):
        x = np.array([level[s], slope[s]])
        P = np.eye(2)
        F = np.array([[1.0, 1.0], [0.0, 1.0]])
        for t in range(Y.shape[1]):
            x = F @ x
            P = F @ P @ F.T + q * np.eye(2)
            gain = P[:, 0] / (P[0, 0] + r)
            e = Y[s, t] - x[0]
            x = x + gain * e
            P = P - np.outer(gain, P[0])
            filtered[s, t] = x[0]


def crf_forward(scores, lengths, A, Z):
    """Log partition functions of a linear-chain CRF, one for each sentence."""
    labels = len(A)
    for s in range(len(scores)):
        alpha = scores[s, 0].copy()
        for t in range(1, lengths[s]):
            new = np.empty(labels)
            for k in range(labels):
                z = alpha + A[:, k]
                top = np.max(z)
                new[k] = scores[s, t, k] + top + np.log(np.sum(np.exp(z - top)))
            alpha = new
        top = max(alpha)
        Z[s] = top + math.log(sum(np.exp(alpha - top)))


def loess(x, y, width, fit):
    """Local linear regression with tricube weights."""
    for i in range(len(x)):
        d = np.abs(x - x[i])
        far = np.sort(d)[width - 1] + 1e-12
        w = np.where(d < far, (1 - (d / far) ** 3) ** 3, 0.0)
        sw = np.sum(w)
        mx, my = np.sum(w * x) / sw, np.sum(w * y) / sw
        sxx = np.sum(w * (x - mx) ** 2)
        sxy = np.sum(w * (x - mx) * (y - my))
        fit[i] = my + (sxy / sxx if sxx > 0 else 0.0) * (x[i] - mx)


def som(X, grid, lr, radius):
    """A self-organising map: the winner and its neighbours move towards the sample."""
    rows, cols, _ = grid.shape
    for t in range(len(X)):
        best, at = np.inf, (0, 0)
        for a in range(rows):
            for b in range(cols):
                d = np.sum((grid[a, b] - X[t]) ** 2)
                if d < best:
                    best, at = d, (a, b)
        for a in range(rows):
            for b in range(cols):
                h = math.exp(-((a - at[0]) ** 2 + (b - at[1]) ** 2) / (2 * radius**2))
                grid[a, b] += lr * h * (X[t] - grid[a, b])


def perceptron_multiclass(X, y, W):
    """One vector for each class; a wrong answer moves two of them."""
    for t in range(len(y)):
        guess = np.argmax(W @ X[t])
        if guess != y[t]:
            W[y[t]] += X[t]
            W[guess] -= X[t]


def dbscan_counts(X, eps, least, core):
    """Points with many neighbours."""
    n = len(X)
    for i in range(n):
        count = 0
        for j in range(n):
            d = X[i] - X[j]
            if d @ d <= eps * eps:
                count += 1
        core[i] = count >= least


def mean_shift(X, modes, bandwidth, rounds):
    """Every point climbs to the mode of a Gaussian kernel density."""
    for i in range(len(X)):
        m = X[i].copy()
        for _ in range(rounds):
            total, weight = np.zeros(X.shape[1]), 0.0
            for j in range(len(X)):
                k = math.exp(-0.5 * np.sum((X[j] - m) ** 2) / bandwidth**2)
                total += k * X[j]
                weight += k
            step = total / weight - m
            m += step
            if np.abs(step).max() < 1e-6:
                break
        modes[i] = m


def annealing(spin, J, temperatures, seed):
    """Simulated annealing of a spin glass on a torus."""
    n, m = spin.shape
    for t in range(len(temperatures)):
        for i in range(n):
            for j in range(m):
                field = (
                    J[0, i, j] * spin[(i + 1) % n, j]
                    + J[0, (i - 1) % n, j] * spin[(i - 1) % n, j]
                    + J[1, i, j] * spin[i, (j + 1) % m]
                    + J[1, i, (j - 1) % m] * spin[i, (j - 1) % m]
                )
                rise = 2.0 * spin[i, j] * field
                if rise <= 0 or st.uniform(seed, t, i, j) < math.exp(-rise / temperatures[t]):
                    spin[i, j] = -spin[i, j]


def incomplete_lu(indptr, indices, data, diagonal):
    """ILU(0) of a sparse matrix in place: no element that was zero becomes another number."""
    n = len(indptr) - 1
    for i in range(1, n):
        for p in range(indptr[i], diagonal[i]):
            k = indices[p]
            data[p] /= data[diagonal[k]]
            for q in range(p + 1, indptr[i + 1]):
                for r in range(diagonal[k] + 1, indptr[k + 1]):
                    if indices[r] == indices[q]:
                        data[q] -= data[p] * data[r]


def ssor(indptr, indices, data, diagonal, b, x, omega):
    """A symmetric sweep of successive over-relaxation: forwards, then backwards."""
    n = len(x)
    for i in range(n):
        s = b[i]
        for p in range(indptr[i], indptr[i + 1]):
            if p != diagonal[i]:
                s -= data[p] * x[indices[p]]
        x[i] += omega * (s / data[diagonal[i]] - x[i])
    for i in range(n - 1, -1, -1):
        s = b[i]
        for p in range(indptr[i], indptr[i + 1]):
            if p != diagonal[i]:
                s -= data[p] * x[indices[p]]
        x[i] += omega * (s / data[diagonal[i]] - x[i])


def knapsack_two(value, weight, size, best):
    """A knapsack with a limit of weight and one of size; a table for each number of things."""
    things, heavy, large = best.shape
    for t in range(1, things):
        for w in range(heavy):
            for s in range(large):
                best[t, w, s] = best[t - 1, w, s]
                if w >= weight[t - 1] and s >= size[t - 1]:
                    taken = best[t - 1, w - weight[t - 1], s - size[t - 1]] + value[t - 1]
                    best[t, w, s] = max(best[t, w, s], taken)


def cyk(words, lexicon, left, right, parent, chart):
    """Parsing by Cocke, Younger and Kasami: which symbols derive words i to j; rules parent → left right."""
    n = len(words)
    for i in range(n):
        for a in range(chart.shape[2]):
            chart[i, i, a] = lexicon[words[i], a]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            for k in range(i, j):
                for r in range(len(parent)):
                    if chart[i, k, left[r]] and chart[k + 1, j, right[r]]:
                        chart[i, j, parent[r]] = True


def nussinov(bases, N):
    """Folding of RNA: the most pairs of bases between i and j."""
    n = len(bases)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            best = max(N[i + 1, j], N[i, j - 1])
            if bases[i] + bases[j] == 3:
                best = max(best, N[i + 1, j - 1] + 1)
            for k in range(i + 1, j):
                best = max(best, N[i, k] + N[k + 1, j])
            N[i, j] = best


def k_core(indptr, indices, degree, alive, k, rounds):
    """Peeling: nodes with fewer than k neighbours leave, and their neighbours lose one."""
    for _ in range(rounds):
        for v in range(len(alive)):
            if alive[v] and degree[v] < k:
                alive[v] = False
                for p in range(indptr[v], indptr[v + 1]):
                    degree[indices[p]] -= 1


# --- data -------------------------------------------------------------------------------------------------------------


def graph(rng, n, links):
    """A random graph without weights, both ways, as rows."""
    a, b = rng.integers(0, n, (2, n * links // 2))
    edges = np.unique(np.concatenate([a[a != b] * n + b[a != b], b[a != b] * n + a[a != b]]))
    source, target = edges // n, edges % n
    return np.searchsorted(source, np.arange(n + 1)), target


def system(rng, n, links):
    """A sparse matrix with a heavy diagonal, as rows, and where the diagonal is."""
    indptr, indices = graph(rng, n, links)
    keys = np.sort(np.concatenate([np.repeat(np.arange(n), np.diff(indptr)) * n + indices, np.arange(n) * (n + 1)]))
    rows, cols = keys // n, keys % n
    data = rng.normal(size=len(keys))
    data[rows == cols] = 4.0 * links
    return {"indptr": np.searchsorted(rows, np.arange(n + 1)), "indices": cols, "data": data,
            "diagonal": np.flatnonzero(rows == cols)}  # fmt: skip


def ica_data(rng, n, d):
    return {"X": rng.laplace(size=(n, d)), "W": np.eye(d) + 0.1 * rng.normal(size=(d, d)), "lr": 0.01}


def implicit_data(rng, n, m, count, k):
    users = st.Data.from_arrays(rng.integers(0, n, count), rng.integers(0, m, count), rng.random(count), (n, m))
    V = rng.normal(size=(m, k))
    return {"users": users.group_by(0), "U": np.zeros((n, k)), "V": V, "G": V.T @ V, "lam": 0.1, "alpha": 4.0}


def transe_data(rng, entities, relations, facts, k):
    names = ("head", "relation", "tail", "bad")
    ids = {name: rng.integers(0, relations if name == "relation" else entities, facts) for name in names}
    E, R = rng.normal(size=(entities, k)), rng.normal(size=(relations, k))
    return {**ids, "E": E, "R": R, "lr": 0.05, "margin": 1.0}


def features_data(rng, users, items, count, d, k):
    return {"users": rng.integers(0, users, count), "liked": rng.integers(0, items, count),
            "other": rng.integers(0, items, count), "F": rng.normal(size=(items, d)),
            "W": 0.1 * rng.normal(size=(users, k)), "M": 0.1 * rng.normal(size=(k, d)), "lr": 0.05,
            "lam": 0.01}  # fmt: skip


def louvain_data(rng, n, links):
    indptr, indices = graph(rng, n, links)
    degree = np.diff(indptr).astype(float)
    return {"indptr": indptr, "indices": indices, "community": np.arange(n), "degree": degree,
            "total": degree.copy(), "m2": degree.sum()}  # fmt: skip


def sinkhorn_data(rng, n, m, rounds):
    return {"K": np.exp(-rng.random((n, m))), "a": np.full(n, 1 / n), "b": np.full(m, 1 / m), "u": np.ones(n),
            "v": np.ones(m), "rounds": rounds}  # fmt: skip


def kalman_data(rng, n, steps):
    Y = np.cumsum(rng.normal(size=(n, steps)), axis=1)
    return {"Y": Y, "level": Y[:, 0].copy(), "slope": np.zeros(n), "q": 0.1, "r": 1.0,
            "filtered": np.zeros((n, steps))}  # fmt: skip


def crf_data(rng, n, longest, labels):
    return {"scores": rng.normal(size=(n, longest, labels)), "lengths": rng.integers(1, longest + 1, n),
            "A": rng.normal(size=(labels, labels)), "Z": np.zeros(n)}  # fmt: skip


def loess_data(rng, n, width):
    x = np.sort(rng.random(n))
    return {"x": x, "y": np.sin(6 * x) + 0.1 * rng.normal(size=n), "width": width, "fit": np.zeros(n)}


def som_data(rng, n, side, d):
    return {"X": rng.random((n, d)), "grid": rng.random((side, side, d)), "lr": 0.1, "radius": 1.5}


def classes_data(rng, n, d, classes):
    return {"X": rng.normal(size=(n, d)), "y": rng.integers(0, classes, n), "W": np.zeros((classes, d))}


def counts_data(rng, n, d):
    return {"X": rng.random((n, d)), "eps": 0.3, "least": 4, "core": np.zeros(n, bool)}


def shift_data(rng, n, d, rounds):
    return {"X": rng.normal(size=(n, d)), "modes": np.zeros((n, d)), "bandwidth": 0.7, "rounds": rounds}


def glass_data(rng, n, m, sweeps):
    return {"spin": rng.choice([-1.0, 1.0], (n, m)), "J": rng.normal(size=(2, n, m)),
            "temperatures": np.linspace(2.0, 0.2, sweeps), "seed": 1}  # fmt: skip


def relaxation_data(rng, n, links):
    return {**system(rng, n, links), "b": rng.normal(size=n), "x": np.zeros(n), "omega": 1.2}


def limits_data(rng, things, heavy, large):
    return {"value": rng.random(things), "weight": rng.integers(1, heavy // 2, things),
            "size": rng.integers(1, large // 2, things), "best": np.zeros((things + 1, heavy, large))}  # fmt: skip


def grammar_data(rng, n, symbols, rules):
    ids = {name: rng.integers(0, symbols, rules) for name in ("left", "right", "parent")}
    return {"words": rng.integers(0, 9, n), "lexicon": rng.random((9, symbols)) < 0.4, **ids,
            "chart": np.zeros((n, n, symbols), bool)}  # fmt: skip


def bases_data(rng, n):
    return {"bases": rng.integers(0, 4, n), "N": np.zeros((n, n), np.int64)}


def core_data(rng, n, links, k, rounds):
    indptr, indices = graph(rng, n, links)
    return {"indptr": indptr, "indices": indices, "degree": np.diff(indptr), "alive": np.ones(n, bool), "k": k,
            "rounds": rounds}  # fmt: skip


LOOPS = (
    CorpusLoop(ica, ica_data, (20, 4), (50_000, 16), warns="st.buffer(W)", lot=2),
    CorpusLoop(als_implicit, implicit_data, (12, 9, 40, 3), (5000, 3000, 200_000, 16), lot=2, tolerance=1e-8),
    CorpusLoop(transe, transe_data, (60, 30, 25, 4), (20_000, 500, 200_000, 32), lot=2),
    CorpusLoop(
        bpr_features, features_data, (20, 15, 30, 5, 3), (2000, 2000, 50_000, 64, 16), warns="st.buffer(M)", lot=2
    ),
    CorpusLoop(louvain, louvain_data, (25, 4), (2000, 10), warns="serial=True", lot=2),
    CorpusLoop(sinkhorn, sinkhorn_data, (7, 9, 5), (500, 600, 20), warns="serial=True", lot=2),
    CorpusLoop(kalman, kalman_data, (6, 12), (2000, 200), lot=2),
    CorpusLoop(crf_forward, crf_data, (7, 9, 4), (2000, 30, 12), lot=2),
    CorpusLoop(loess, loess_data, (25, 8), (1500, 200), lot=2),
    CorpusLoop(som, som_data, (15, 4, 3), (5000, 12, 8), warns="st.buffer(grid)", lot=2),
    CorpusLoop(perceptron_multiclass, classes_data, (25, 5, 4), (50_000, 40, 10), warns="serial=True", lot=2),
    CorpusLoop(dbscan_counts, counts_data, (25, 3), (3000, 4), lot=2),
    CorpusLoop(mean_shift, shift_data, (15, 3, 4), (800, 4, 10), lot=2),
    CorpusLoop(annealing, glass_data, (8, 7, 3), (256, 256, 10), lot=2),
    CorpusLoop(incomplete_lu, system, (15, 4), (20_000, 6), lot=2),
    CorpusLoop(ssor, relaxation_data, (20, 4), (100_000, 6), lot=2),
    CorpusLoop(knapsack_two, limits_data, (6, 9, 8), (60, 120, 120), lot=2),
    CorpusLoop(cyk, grammar_data, (9, 5, 8), (60, 12, 60), lot=2),
    CorpusLoop(nussinov, bases_data, (18,), (400,), lot=2),
    CorpusLoop(k_core, core_data, (25, 4, 3, 4), (100_000, 6, 4, 8), lot=2),
)
