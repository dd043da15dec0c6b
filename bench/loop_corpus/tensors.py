"""Tensors: factorisation by gradient steps over observed entries, and products along one axis."""

import numpy as np

import stretto as st

from .entry import CorpusLoop


def cp_sgd(ii, jj, kk, X, A, B, C, lr, lam):
    """CP decomposition of a tensor of which some entries are known."""
    for t in range(len(X)):
        i, j, k = ii[t], jj[t], kk[t]
        e = X[t] - np.sum(A[i] * B[j] * C[k])
        a, b, c = A[i].copy(), B[j].copy(), C[k].copy()
        A[i] += lr * (e * b * c - lam * a)
        B[j] += lr * (e * a * c - lam * b)
        C[k] += lr * (e * a * b - lam * c)


def cp_sgd_hand(ii, jj, kk, X, A, B, C, lr, lam):
    rank = A.shape[1]
    for t in range(len(X)):
        a, b, c = A[ii[t]], B[jj[t]], C[kk[t]]
        s = 0.0
        for r in range(rank):
            s += a[r] * b[r] * c[r]
        e = X[t] - s
        for r in range(rank):
            ar, br, cr = a[r], b[r], c[r]
            a[r] = ar + lr * (e * br * cr - lam * ar)
            b[r] = br + lr * (e * ar * cr - lam * br)
            c[r] = cr + lr * (e * ar * br - lam * cr)


def mttkrp(ii, jj, kk, X, B, C, M):
    """Matricised tensor times Khatri–Rao product: the expensive part of CP by alternating least squares."""
    for t in range(len(X)):
        M[ii[t]] += X[t] * B[jj[t]] * C[kk[t]]


def mttkrp_hand(ii, jj, kk, X, B, C, M):
    for t in range(len(X)):
        m, b, c, x = M[ii[t]], B[jj[t]], C[kk[t]], X[t]
        for r in range(len(m)):
            m[r] += x * b[r] * c[r]


def tucker_sgd(ii, jj, kk, X, G, A, B, C, lr):
    """Tucker decomposition: a core tensor and three factors."""
    for t in range(len(X)):
        i, j, k = ii[t], jj[t], kk[t]
        guess = 0.0
        for p in range(G.shape[0]):
            for q in range(G.shape[1]):
                for r in range(G.shape[2]):
                    guess += G[p, q, r] * A[i, p] * B[j, q] * C[k, r]
        e = X[t] - guess
        da, db, dc = np.zeros(G.shape[0]), np.zeros(G.shape[1]), np.zeros(G.shape[2])
        for p in range(G.shape[0]):
            for q in range(G.shape[1]):
                for r in range(G.shape[2]):
                    da[p] += G[p, q, r] * B[j, q] * C[k, r]
                    db[q] += G[p, q, r] * A[i, p] * C[k, r]
                    dc[r] += G[p, q, r] * A[i, p] * B[j, q]
                    G[p, q, r] += lr * e * A[i, p] * B[j, q] * C[k, r]
        A[i] += lr * e * da
        B[j] += lr * e * db
        C[k] += lr * e * dc


def ttm(X, U, Y):
    """A tensor times a matrix along its last axis."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            for p in range(U.shape[0]):
                s = 0.0
                for k in range(X.shape[2]):
                    s += X[i, j, k] * U[p, k]
                Y[i, j, p] = s


def tucker_sgd_buffered(ii, jj, kk, X, G, A, B, C, dG, lr):
    """The same with the steps of the core, which every entry takes, in a buffer."""
    for t in range(len(X)):
        i, j, k = ii[t], jj[t], kk[t]
        guess = 0.0
        for p in range(G.shape[0]):
            for q in range(G.shape[1]):
                for r in range(G.shape[2]):
                    guess += G[p, q, r] * A[i, p] * B[j, q] * C[k, r]
        e = X[t] - guess
        da = np.zeros(G.shape[0])
        db = np.zeros(G.shape[1])
        dc = np.zeros(G.shape[2])
        for p in range(G.shape[0]):
            for q in range(G.shape[1]):
                for r in range(G.shape[2]):
                    da[p] += G[p, q, r] * B[j, q] * C[k, r]
                    db[q] += G[p, q, r] * A[i, p] * C[k, r]
                    dc[r] += G[p, q, r] * A[i, p] * B[j, q]
                    dG[p, q, r] += lr * e * A[i, p] * B[j, q] * C[k, r]
        A[i] += lr * e * da
        B[j] += lr * e * db
        C[k] += lr * e * dc


def entries(rng, shape, count):
    return [rng.integers(0, n, count) for n in shape]


def cp_data(rng, side, count, rank):
    ii, jj, kk = entries(rng, (side, side, side), count)
    A, B, C = (rng.normal(size=(side, rank)) * 0.3 for _ in range(3))
    return {"ii": ii, "jj": jj, "kk": kk, "X": rng.normal(size=count), "A": A, "B": B, "C": C, "lr": 0.01, "lam": 0.1}


def mttkrp_data(rng, side, count, rank):
    ii, jj, kk = entries(rng, (side, side, side), count)
    B, C = (rng.normal(size=(side, rank)) for _ in range(2))
    return {"ii": ii, "jj": jj, "kk": kk, "X": rng.normal(size=count), "B": B, "C": C, "M": np.zeros((side, rank))}


def tucker_data(rng, side, count, rank):
    made = cp_data(rng, side, count, rank)
    G = rng.normal(size=(rank, rank, rank)) * 0.3
    return (
        {name: made[name] for name in ("ii", "jj", "kk", "X")}
        | {"G": G}
        | {name: made[name] for name in ("A", "B", "C", "lr")}
    )


def tucker_buffered_data(rng, side, count, rank):
    made = tucker_data(rng, side, count, rank)
    lr = made.pop("lr")
    return made | {"dG": st.buffer(made["G"]), "lr": lr}


def sums_data(rng, side, count, rank):
    return mttkrp_data(rng, side, count, rank) | {"M": st.accumulator(np.zeros((side, rank)))}


def ttm_data(rng, n, m, k, p):
    return {"X": rng.normal(size=(n, m, k)), "U": rng.normal(size=(p, k)), "Y": np.zeros((n, m, p))}


CP = CorpusLoop(
    cp_sgd,
    cp_data,
    (60, 60, 4),
    (20_000, 400_000, 16),
    cp_sgd_hand,
)
LOOPS = (
    CP,
    CorpusLoop(
        mttkrp,
        mttkrp_data,
        (9, 60, 4),
        (2000, 400_000, 16),
        mttkrp_hand,
    ),
    CorpusLoop(
        mttkrp, sums_data, (9, 60, 4), (2000, 400_000, 16), mttkrp_hand, follows=True, title="mttkrp, accumulated"
    ),
    CorpusLoop(
        tucker_sgd, tucker_data, (9, 40, 3), (500, 50_000, 5), warns="st.buffer(G)", instead="tucker_sgd_buffered"
    ),
    CorpusLoop(
        tucker_sgd_buffered,
        tucker_buffered_data,
        (40, 40, 3),
        (20_000, 50_000, 5),
        options={"inspect": True},
        follows=True,
    ),
    CorpusLoop(ttm, ttm_data, (4, 5, 6, 3), (100, 100, 32, 16)),
)
