"""Regression and classification one sample at a time, over ragged samples or rows of a matrix."""

import math

import numpy as np
import scipy.sparse as sp

import stretto as st

from .entry import CorpusLoop


def perceptron(samples, w, b, mistakes):
    """Rosenblatt's perceptron."""
    for _, (y, features) in samples:
        score = b[0]
        for f, x in features:
            score += w[f] * x
        if y * score <= 0:
            mistakes += 1
            for f, x in features:
                w[f] += y * x
            b[0] += y


def perceptron_buffered(samples, w, b, dw, db, mistakes):
    """The same with its steps in buffers."""
    for _, (y, features) in samples:
        score = b[0]
        for f, x in features:
            score += w[f] * x
        if y * score <= 0:
            mistakes += 1
            for f, x in features:
                dw[f] += y * x
            db[0] += y


def pegasos(samples, w, scale, lam, t0):
    """A support vector machine by stochastic subgradients; the weights are scale[0] * w."""
    for i, (y, features) in samples:
        eta = 1 / (lam * (t0 + i + 1))
        s = 0.0
        for f, x in features:
            s += w[f] * x
        s *= scale[0]
        scale[0] *= 1 - eta * lam
        if y * s < 1:
            for f, x in features:
                w[f] += eta * y * x / scale[0]


def pegasos_buffered(samples, w, scale, dw, dscale, lam, t0):
    """The same with its steps in buffers."""
    for i, (y, features) in samples:
        eta = 1 / (lam * (t0 + i + 1))
        s = 0.0
        for f, x in features:
            s += w[f] * x
        s *= scale[0]
        dscale[0] -= eta * lam * scale[0]
        if y * s < 1:
            for f, x in features:
                dw[f] += eta * y * x / scale[0]


def adagrad_logistic(samples, w, G, lr, loss):
    """Logistic regression with AdaGrad."""
    for _, (y, features) in samples:
        s = sum(w[f] * x for f, x in features)
        p = 1 / (1 + math.exp(-s))
        loss += -math.log(p) if y > 0 else -math.log(1 - p)
        for f, x in features:
            g = (p - y) * x
            G[f] += g * g
            w[f] -= lr * g / math.sqrt(G[f])


def kaczmarz(rows, x, norm):
    """Kaczmarz' method: projections on one equation after another."""
    for i, (b, entries) in rows:
        s = 0.0
        for j, a in entries:
            s += a * x[j]
        step = (b - s) / norm[i]
        for j, a in entries:
            x[j] += step * a


def ridge_descent(columns, r, beta, lam):
    """Ridge regression by coordinate descent; r is the residual."""
    for j, (norm, column) in columns:
        g = 0.0
        for i, x in column:
            g += x * r[i]
        new = (g + norm * beta[j]) / (norm + lam)
        d = new - beta[j]
        beta[j] = new
        for i, x in column:
            r[i] -= d * x


def ftrl(samples, z, n, alpha, beta, l1, l2):
    """FTRL-proximal, as for click prediction."""
    for _, (y, features) in samples:
        s = 0.0
        for f, x in features:
            if abs(z[f]) > l1:
                sign = -1.0 if z[f] < 0 else 1.0
                s -= x * (z[f] - sign * l1) / ((beta + math.sqrt(n[f])) / alpha + l2)
        p = 1 / (1 + math.exp(-max(min(s, 35.0), -35.0)))
        for f, x in features:
            g = (p - y) * x
            w = 0.0
            if abs(z[f]) > l1:
                sign = -1.0 if z[f] < 0 else 1.0
                w = -(z[f] - sign * l1) / ((beta + math.sqrt(n[f])) / alpha + l2)
            sigma = (math.sqrt(n[f] + g * g) - math.sqrt(n[f])) / alpha
            z[f] += g - sigma * w
            n[f] += g * g


def softmax_sgd(X, y, W, lr):
    """Multinomial logistic regression, dense rows."""
    for i in range(len(X)):
        scores = W @ X[i]
        p = np.exp(scores - scores.max())
        p /= p.sum()
        p[y[i]] -= 1
        for c in range(len(W)):
            W[c] -= lr * p[c] * X[i]


def softmax_buffered(X, y, W, dW, lr):
    """The same with its steps in a buffer."""
    for i in range(len(X)):
        scores = W @ X[i]
        p = np.exp(scores - scores.max())
        p /= p.sum()
        p[y[i]] -= 1
        for c in range(len(W)):
            dW[c] -= lr * p[c] * X[i]


def softmax_sgd_hand(X, y, W, lr):
    n, d = X.shape
    classes = len(W)
    p = np.zeros(classes)
    for i in range(n):
        top = -np.inf
        for c in range(classes):
            s = 0.0
            for f in range(d):
                s += W[c, f] * X[i, f]
            p[c] = s
            top = max(top, s)
        total = 0.0
        for c in range(classes):
            p[c] = math.exp(p[c] - top)
            total += p[c]
        for c in range(classes):
            p[c] /= total
        p[y[i]] -= 1
        for c in range(classes):
            for f in range(d):
                W[c, f] -= lr * p[c] * X[i, f]


def sparse(rng, n, d):
    """A matrix with about ten values a row, or fewer where it is narrow."""
    size = n * min(d // 50 + 2, 10)
    return sp.csr_matrix((rng.random(size), (rng.integers(0, n, size), rng.integers(0, d, size))), (n, d))


def signs(rng, n):
    return np.where(rng.random(n) < 0.5, 1.0, -1.0)


def perceptron_data(rng, n, d):
    return {
        "samples": st.samples(sparse(rng, n, d), signs(rng, n)),
        "w": np.zeros(d),
        "b": np.zeros(1),
        "mistakes": st.accumulator(0),
    }


def perceptron_buffered_data(rng, n, d):
    samples, w, b, mistakes = perceptron_data(rng, n, d).values()
    return {"samples": samples, "w": w, "b": b, "dw": st.buffer(w), "db": st.buffer(b), "mistakes": mistakes}


def pegasos_buffered_data(rng, n, d):
    samples, w, scale, lam, _ = pegasos_data(rng, n, d).values()
    return {
        "samples": samples,
        "w": w,
        "scale": scale,
        "dw": st.buffer(w),
        "dscale": st.buffer(scale),
        "lam": lam,
        "t0": 10 * n,
    }


def softmax_buffered_data(rng, n, d, classes):
    X, y, W, lr = softmax_data(rng, n, d, classes).values()
    return {"X": X, "y": y, "W": W, "dW": st.buffer(W), "lr": lr / 10}


def pegasos_data(rng, n, d):
    return {
        "samples": st.samples(sparse(rng, n, d), signs(rng, n)),
        "w": np.zeros(d),
        "scale": np.ones(1),
        "lam": 0.01,
        "t0": 1,
    }


def adagrad_data(rng, n, d):
    samples = st.samples(sparse(rng, n, d), (rng.random(n) < 0.5).astype(float))
    return {"samples": samples, "w": np.zeros(d), "G": np.full(d, 1e-6), "lr": 0.1, "loss": st.accumulator(0.0)}


def kaczmarz_data(rng, n, d):
    A = sparse(rng, n, d)
    norm = A.power(2).sum(axis=1).A1 + 1e-9
    return {"rows": st.samples(A, rng.normal(size=n)), "x": np.zeros(d), "norm": norm}


def ridge_data(rng, n, d):
    X = sparse(rng, n, d)
    norm = X.power(2).sum(axis=0).A1
    return {"columns": st.samples(X.T.tocsr(), norm), "r": rng.normal(size=n), "beta": np.zeros(d), "lam": 0.1}


def ftrl_data(rng, n, d):
    samples = st.samples(sparse(rng, n, d), (rng.random(n) < 0.5).astype(float))
    return {"samples": samples, "z": np.zeros(d), "n": np.zeros(d), "alpha": 0.1, "beta": 1.0, "l1": 0.1, "l2": 0.1}


def softmax_data(rng, n, d, classes):
    return {"X": rng.normal(size=(n, d)), "y": rng.integers(0, classes, n), "W": np.zeros((classes, d)), "lr": 0.01}


ROWS = tuple(
    CorpusLoop(
        function,
        make,
        small,
        large,
    )
    for function, make, small, large in (
        (adagrad_logistic, adagrad_data, (30, 100), (50_000, 100_000)),
        (kaczmarz, kaczmarz_data, (30, 100), (50_000, 100_000)),
        (ridge_descent, ridge_data, (100, 30), (100_000, 50_000)),
        (ftrl, ftrl_data, (30, 100), (50_000, 100_000)),
    )
)
LOOPS = (
    CorpusLoop(
        perceptron, perceptron_data, (30, 20), (100_000, 500), warns="st.buffer(w)", instead="perceptron_buffered"
    ),
    CorpusLoop(perceptron_buffered, perceptron_buffered_data, (30, 20), (100_000, 500), follows=True),
    CorpusLoop(pegasos, pegasos_data, (30, 20), (100_000, 500), warns="st.buffer(scale)", instead="pegasos_buffered"),
    CorpusLoop(pegasos_buffered, pegasos_buffered_data, (30, 20), (100_000, 500), follows=True),
    *ROWS,
    CorpusLoop(
        softmax_sgd,
        softmax_data,
        (20, 5, 3),
        (20_000, 40, 10),
        softmax_sgd_hand,
        warns="st.buffer(W)",
        instead="softmax_buffered",
    ),
    CorpusLoop(
        softmax_buffered, softmax_buffered_data, (20, 5, 3), (20_000, 40, 10), follows=True, hand=softmax_sgd_hand
    ),
)
