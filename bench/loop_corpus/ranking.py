"""Ranking and recommendation: pairs and triples with given negatives, factorisation machines, hashing."""

import math

import numpy as np

import stretto as st

from .entry import CorpusLoop


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


def bpr(users, liked, other, W, H, lr, lam):
    """Bayesian personalised ranking: an item that was liked above one that was not."""
    for t in range(len(users)):
        u, i, j = users[t], liked[t], other[t]
        x = W[u] @ (H[i] - H[j])
        g = sigmoid(-x)
        w = W[u].copy()
        W[u] += lr * (g * (H[i] - H[j]) - lam * W[u])
        H[i] += lr * (g * w - lam * H[i])
        H[j] += lr * (-g * w - lam * H[j])


def bpr_hand(users, liked, other, W, H, lr, lam):
    for t in range(len(users)):
        w, a, b = W[users[t]], H[liked[t]], H[other[t]]
        x = 0.0
        for r in range(len(w)):
            x += w[r] * (a[r] - b[r])
        g = 1.0 / (1.0 + math.exp(x))
        for r in range(len(w)):
            wr = w[r]
            w[r] = wr + lr * (g * (a[r] - b[r]) - lam * wr)
            a[r] += lr * (g * wr - lam * a[r])
            b[r] += lr * (-g * wr - lam * b[r])


def ranknet(better, worse, X, w, lr):
    """RankNet with a linear score: pairs of documents, the first of which should be above the second."""
    for t in range(len(better)):
        d = X[better[t]] - X[worse[t]]
        g = sigmoid(-(w @ d))
        w += lr * g * d


def ranknet_buffered(better, worse, X, w, dw, lr):
    """The same with its steps in a buffer."""
    for t in range(len(better)):
        d = X[better[t]] - X[worse[t]]
        g = sigmoid(-(w @ d))
        dw += lr * g * d


def ranknet_hand(better, worse, X, w, lr):
    for t in range(len(better)):
        a, b = X[better[t]], X[worse[t]]
        s = 0.0
        for f in range(len(w)):
            s += w[f] * (a[f] - b[f])
        g = 1.0 / (1.0 + math.exp(s))
        for f in range(len(w)):
            w[f] += lr * g * (a[f] - b[f])


def factorization_machine(samples, b, w, V, lr, lam):
    """A factorisation machine of the second order, squared loss."""
    for _, (y, features) in samples:
        s = np.zeros(V.shape[1])
        p = b[0]
        q = 0.0
        for f, x in features:
            p += w[f] * x
            s += V[f] * x
            q += np.sum((V[f] * x) ** 2)
        p += 0.5 * (np.sum(s**2) - q)
        e = p - y
        b[0] -= lr * e
        for f, x in features:
            w[f] -= lr * (e * x + lam * w[f])
            V[f] -= lr * (e * x * (s - V[f] * x) + lam * V[f])


def machine_buffered(samples, b, w, V, db, dw, dV, lr, lam):
    """The same with its steps in buffers."""
    for _, (y, features) in samples:
        s = np.zeros(V.shape[1])
        p = b[0]
        q = 0.0
        for f, x in features:
            p += w[f] * x
            s += V[f] * x
            q += np.sum((V[f] * x) ** 2)
        p += 0.5 * (np.sum(s**2) - q)
        e = p - y
        db[0] -= lr * e
        for f, x in features:
            dw[f] -= lr * (e * x + lam * w[f])
            dV[f] -= lr * (e * x * (s - V[f] * x) + lam * V[f])


def factorization_machine_hand(ys, ptr, fs, xs, b, w, V, lr, lam):
    s = np.zeros(V.shape[1])
    for i in range(len(ys)):
        p, q = b[0], 0.0
        s[:] = 0
        for k in range(ptr[i], ptr[i + 1]):
            x, v = xs[k], V[fs[k]]
            p += w[fs[k]] * x
            for r in range(len(s)):
                z = v[r] * x
                s[r] += z
                q += z * z
        for r in range(len(s)):
            p += 0.5 * s[r] * s[r]
        e = p - 0.5 * q - ys[i]
        b[0] -= lr * e
        for k in range(ptr[i], ptr[i + 1]):
            f, x = fs[k], xs[k]
            w[f] -= lr * (e * x + lam * w[f])
            v = V[f]
            for r in range(len(s)):
                v[r] -= lr * (e * x * (s[r] - v[r] * x) + lam * v[r])


def logistic_mf(clicks, U, V, bu, bv, alpha, lr, lam):
    """Logistic matrix factorisation: clicks with confidence alpha * r."""
    for (u, i), r in clicks:
        p = sigmoid(U[u] @ V[i] + bu[u] + bv[i])
        g = alpha * r - (1 + alpha * r) * p
        U[u], V[i] = U[u] + lr * (g * V[i] - lam * U[u]), V[i] + lr * (g * U[u] - lam * V[i])
        bu[u] += lr * g
        bv[i] += lr * g


def logistic_mf_hand(us, vs, rs, U, V, bu, bv, alpha, lr, lam):
    for t in range(len(rs)):
        u, i, r = us[t], vs[t], rs[t]
        a, b = U[u], V[i]
        s = 0.0
        for k in range(len(a)):
            s += a[k] * b[k]
        g = alpha * r - (1 + alpha * r) / (1.0 + math.exp(-(s + bu[u] + bv[i])))
        for k in range(len(a)):
            ak = a[k]
            a[k] = ak + lr * (g * b[k] - lam * ak)
            b[k] = b[k] + lr * (g * ak - lam * b[k])
        bu[u] += lr * g
        bv[i] += lr * g


def contrastive_hashing(left, right, same, X, P, lr, margin):
    """Hash functions learned from pairs: codes of similar items agree, those of others differ by a margin."""
    for t in range(len(same)):
        x, z = X[left[t]], X[right[t]]
        u, v = np.tanh(P @ x), np.tanh(P @ z)
        d = u - v
        if same[t]:
            g = d
        elif np.sum(d * d) < margin:
            g = -d
        else:
            continue
        P -= lr * (np.outer(g * (1 - u * u), x) - np.outer(g * (1 - v * v), z))


def hashing_buffered(left, right, same, X, P, dP, lr, margin):
    """The same with its steps in a buffer."""
    for t in range(len(same)):
        x, z = X[left[t]], X[right[t]]
        u, v = np.tanh(P @ x), np.tanh(P @ z)
        d = u - v
        if same[t]:
            g = d.copy()
        elif np.sum(d * d) < margin:
            g = -d
        else:
            continue
        dP -= lr * (np.outer(g * (1 - u * u), x) - np.outer(g * (1 - v * v), z))


def contrastive_hashing_hand(left, right, same, X, P, lr, margin):
    bits = len(P)
    u, v = np.zeros(bits), np.zeros(bits)
    for t in range(len(same)):
        x, z = X[left[t]], X[right[t]]
        far = 0.0
        for k in range(bits):
            a, b = 0.0, 0.0
            for f in range(len(x)):
                a += P[k, f] * x[f]
                b += P[k, f] * z[f]
            u[k], v[k] = np.tanh(a), np.tanh(b)
            far += (u[k] - v[k]) ** 2
        if same[t]:
            sign = 1.0
        elif far < margin:
            sign = -1.0
        else:
            continue
        for k in range(bits):
            g = sign * (u[k] - v[k])
            gu, gv = g * (1 - u[k] * u[k]), g * (1 - v[k] * v[k])
            for f in range(len(x)):
                P[k, f] -= lr * (gu * x[f] - gv * z[f])


def bpr_data(rng, users, items, count, rank):
    return {
        "users": rng.integers(0, users, count),
        "liked": rng.integers(0, items // 2, count),
        "other": rng.integers(items // 2, items, count),
        "W": rng.normal(size=(users, rank)) * 0.1,
        "H": rng.normal(size=(items, rank)) * 0.1,
        "lr": 0.05,
        "lam": 0.01,
    }


def ranknet_data(rng, documents, features, count):
    X = rng.normal(size=(documents, features))
    pairs = rng.integers(0, documents, (2, count))
    return {"better": pairs[0], "worse": pairs[1], "X": X, "w": np.zeros(features), "lr": 0.01}


def machine_data(rng, count, features, rank):
    X = rng.random((count, features)) * (rng.random((count, features)) < 0.1)
    samples = st.samples(X, rng.normal(size=count))
    V = rng.normal(size=(features, rank)) * 0.1
    return {"samples": samples, "b": np.zeros(1), "w": np.zeros(features), "V": V, "lr": 0.01, "lam": 0.01}


def machine_buffered_data(rng, count, features, rank):
    made = machine_data(rng, count, features, rank)
    buffers = {f"d{name}": st.buffer(made[name]) for name in "bwV"}
    return {name: made[name] for name in ("samples", "b", "w", "V")} | buffers | {"lr": 0.001, "lam": 0.01}


def ranknet_buffered_data(rng, documents, features, count):
    made = ranknet_data(rng, documents, features, count)
    return {name: made[name] for name in ("better", "worse", "X", "w")} | {"dw": st.buffer(made["w"]), "lr": 0.001}


def clicks_data(rng, users, items, count, rank):
    clicks = st.Data.from_arrays(
        rng.integers(0, users, count), rng.integers(0, items, count), rng.integers(1, 6, count), (users, items)
    )
    U, V = rng.normal(size=(users, rank)) * 0.1, rng.normal(size=(items, rank)) * 0.1
    return {
        "clicks": clicks,
        "U": U,
        "V": V,
        "bu": np.zeros(users),
        "bv": np.zeros(items),
        "alpha": 0.5,
        "lr": 0.02,
        "lam": 0.01,
    }


def hashing_data(rng, items, features, bits, count):
    left, right = rng.integers(0, items, (2, count))
    P = rng.normal(size=(bits, features)) * 0.1
    return {
        "left": left,
        "right": right,
        "same": rng.random(count) < 0.5,
        "X": rng.normal(size=(items, features)),
        "P": P,
        "lr": 0.01,
        "margin": 2.0,
    }


def hashing_buffered_data(rng, items, features, bits, count):
    made = hashing_data(rng, items, features, bits, count)
    first = {name: made[name] for name in ("left", "right", "same", "X", "P")}
    return first | {"dP": st.buffer(made["P"]), "lr": 0.001, "margin": 2.0}


BPR = CorpusLoop(
    bpr,
    bpr_data,
    (90, 120, 60, 4),
    (50_000, 40_000, 400_000, 16),
    bpr_hand,
)
LOOPS = (
    CorpusLoop(
        hashing_buffered,
        hashing_buffered_data,
        (12, 6, 4, 30),
        (2000, 64, 16, 20_000),
        follows=True,
        hand=contrastive_hashing_hand,
    ),
    BPR,
    CorpusLoop(
        ranknet,
        ranknet_data,
        (20, 5, 50),
        (5000, 40, 200_000),
        ranknet_hand,
        warns="st.buffer(w)",
        instead="ranknet_buffered",
    ),
    CorpusLoop(
        ranknet_buffered, ranknet_buffered_data, (20, 5, 50), (5000, 40, 200_000), follows=True, hand=ranknet_hand
    ),
    CorpusLoop(
        factorization_machine,
        machine_data,
        (30, 20, 3),
        (20_000, 200, 8),
        factorization_machine_hand,
        warns="st.buffer(V)",
        instead="machine_buffered",
    ),
    CorpusLoop(
        machine_buffered,
        machine_buffered_data,
        (30, 20, 3),
        (20_000, 200, 8),
        follows=True,
        hand=factorization_machine_hand,
    ),
    CorpusLoop(logistic_mf, clicks_data, (15, 12, 90, 4), (5000, 4000, 400_000, 16), logistic_mf_hand),
    CorpusLoop(
        contrastive_hashing,
        hashing_data,
        (12, 6, 4, 30),
        (2000, 64, 16, 20_000),
        contrastive_hashing_hand,
        warns="st.buffer(P)",
        instead="hashing_buffered",
    ),
)
