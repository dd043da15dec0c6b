"""Mixtures and hidden states: expectation, maximisation, hidden Markov models, online clustering, naive Bayes."""

import math

import numpy as np

import stretto as st

from .entry import CorpusLoop


def gaussian_expectation(X, weight, mean, variance, share, loglik):
    """E-step of a mixture of Gaussians with diagonal covariances."""
    n, k = len(X), len(mean)
    for i in range(n):
        logp = np.zeros(k)
        for c in range(k):
            q = np.sum((X[i] - mean[c]) ** 2 / variance[c])
            logp[c] = math.log(weight[c]) - 0.5 * (q + np.sum(np.log(2 * np.pi * variance[c])))
        top = logp.max()
        p = np.exp(logp - top)
        total = p.sum()
        share[i] = p / total
        loglik += top + math.log(total)


def gaussian_expectation_hand(X, weight, mean, variance, share, loglik):
    n, d = X.shape
    k = len(mean)
    logp, constant = np.zeros(k), np.zeros(k)
    for c in range(k):
        s = 0.0
        for f in range(d):
            s += math.log(2 * np.pi * variance[c, f])
        constant[c] = math.log(weight[c]) - 0.5 * s
    for i in range(n):
        top = -np.inf
        for c in range(k):
            q = 0.0
            for f in range(d):
                z = X[i, f] - mean[c, f]
                q += z * z / variance[c, f]
            logp[c] = constant[c] - 0.5 * q
            top = max(top, logp[c])
        total = 0.0
        for c in range(k):
            logp[c] = math.exp(logp[c] - top)
            total += logp[c]
        for c in range(k):
            share[i, c] = logp[c] / total
        loglik[0] += top + math.log(total)


def gaussian_maximisation(X, share, count, total, square):
    """Sums of the M-step; the accumulators are the statistics of the mixture."""
    for i in range(len(X)):
        for c in range(share.shape[1]):
            count[c] += share[i, c]
            total[c] += share[i, c] * X[i]
            square[c] += share[i, c] * X[i] ** 2


def gaussian_maximisation_hand(X, share, count, total, square):
    for i in range(len(X)):
        for c in range(share.shape[1]):
            s = share[i, c]
            count[c] += s
            for f in range(X.shape[1]):
                z = s * X[i, f]
                total[c, f] += z
                square[c, f] += z * X[i, f]


def hmm_forward(observed, start, A, B, alpha, scale):
    """The scaled forward probabilities of a hidden Markov model."""
    alpha[0] = start * B[observed[0]]
    scale[0] = alpha[0].sum()
    alpha[0] /= scale[0]
    for t in range(1, len(observed)):
        for s in range(len(start)):
            alpha[t, s] = (alpha[t - 1] @ A[s]) * B[observed[t], s]
        scale[t] = alpha[t].sum()
        alpha[t] /= scale[t]


def hmm_backward(observed, A, B, beta, scale):
    """The scaled backward probabilities of a hidden Markov model."""
    n = len(observed)
    for t in range(n - 2, -1, -1):
        for s in range(beta.shape[1]):
            total = 0.0
            for r in range(beta.shape[1]):
                total += A[s, r] * B[observed[t + 1], r] * beta[t + 1, r]
            beta[t, s] = total / scale[t + 1]


def hmm_many(sequences, start, A, B, loglik):
    """The likelihood of many sequences of one length, each by its own forward recursion."""
    n, length = sequences.shape
    states = len(start)
    for q in range(n):
        alpha = start * B[sequences[q, 0]]
        total = 0.0
        for t in range(1, length):
            s = alpha.sum()
            total += np.log(s)
            alpha = alpha / s
            new = np.zeros(states)
            for i in range(states):
                for j in range(states):
                    new[j] += alpha[i] * A[i, j]
            alpha = new * B[sequences[q, t]]
        loglik[q] = total + np.log(alpha.sum())


def online_kmeans(X, centre, count, label):
    """MacQueen's k-means: the nearest centre moves towards each point."""
    for i in range(len(X)):
        best, nearest = np.inf, 0
        for c in range(len(centre)):
            d = np.sum((X[i] - centre[c]) ** 2)
            if d < best:
                best, nearest = d, c
        count[nearest] += 1
        centre[nearest] += (X[i] - centre[nearest]) / count[nearest]
        label[i] = nearest


def online_kmeans_buffered(X, centre, count, dcentre, dcount, label):
    """The same with its steps in buffers."""
    for i in range(len(X)):
        best, nearest = np.inf, 0
        for c in range(len(centre)):
            d = np.sum((X[i] - centre[c]) ** 2)
            if d < best:
                best, nearest = d, c
        dcount[nearest] += 1
        dcentre[nearest] += (X[i] - centre[nearest]) / count[nearest]
        label[i] = nearest


def online_kmeans_hand(X, centre, count, label):
    for i in range(len(X)):
        best, nearest = np.inf, 0
        for c in range(len(centre)):
            d = 0.0
            for f in range(X.shape[1]):
                z = X[i, f] - centre[c, f]
                d += z * z
            if d < best:
                best, nearest = d, c
        count[nearest] += 1
        for f in range(X.shape[1]):
            centre[nearest, f] += (X[i, f] - centre[nearest, f]) / count[nearest]
        label[i] = nearest


def naive_bayes(documents, prior, likelihood, label):
    """The class of each document: the largest sum of log likelihoods of its words."""
    for d, words in documents:
        score = prior.copy()
        for w, c in words:
            score += c * likelihood[w]
        label[d] = np.argmax(score)


def naive_bayes_hand(ptr, ws, cs, prior, likelihood, label):
    classes = len(prior)
    score = np.zeros(classes)
    for d in range(len(label)):
        for k in range(classes):
            score[k] = prior[k]
        for p in range(ptr[d], ptr[d + 1]):
            row, c = likelihood[ws[p]], cs[p]
            for k in range(classes):
                score[k] += c * row[k]
        best = 0
        for k in range(1, classes):
            if score[k] > score[best]:
                best = k
        label[d] = best


def shares(rng, *shape):
    p = rng.random(shape) + 0.1
    return p / p.sum(-1, keepdims=True)


def expectation_data(rng, n, d, k):
    return {
        "X": rng.normal(size=(n, d)),
        "weight": shares(rng, k),
        "mean": rng.normal(size=(k, d)),
        "variance": rng.random((k, d)) + 0.5,
        "share": np.zeros((n, k)),
        "loglik": st.accumulator(0.0),
    }


def maximisation_data(rng, n, d, k):
    return {
        "X": rng.normal(size=(n, d)),
        "share": shares(rng, n, k),
        "count": st.accumulator(np.zeros(k)),
        "total": st.accumulator(np.zeros((k, d))),
        "square": st.accumulator(np.zeros((k, d))),
    }


def forward_data(rng, n, states, symbols):
    return {
        "observed": rng.integers(0, symbols, n),
        "start": shares(rng, states),
        "A": shares(rng, states, states),
        "B": shares(rng, symbols, states),
        "alpha": np.zeros((n, states)),
        "scale": np.zeros(n),
    }


def backward_data(rng, n, states, symbols):
    return {
        "observed": rng.integers(0, symbols, n),
        "A": shares(rng, states, states),
        "B": shares(rng, symbols, states),
        "beta": np.ones((n, states)),
        "scale": rng.random(n) + 0.5,
    }


def many_data(rng, n, length, states, symbols):
    return {
        "sequences": rng.integers(0, symbols, (n, length)),
        "start": shares(rng, states),
        "A": shares(rng, states, states),
        "B": shares(rng, symbols, states),
        "loglik": np.zeros(n),
    }


def online_data(rng, n, d, k):
    return {
        "X": rng.normal(size=(n, d)),
        "centre": rng.normal(size=(k, d)),
        "count": np.ones(k),
        "label": np.zeros(n, np.int64),
    }


def online_buffered_data(rng, n, d, k):
    made = online_data(rng, n, d, k)
    X, centre, count = made["X"], made["centre"], made["count"]
    return {
        "X": X,
        "centre": centre,
        "count": count,
        "dcentre": st.buffer(centre),
        "dcount": st.buffer(count),
        "label": made["label"],
    }


def documents_data(rng, n, words, classes):
    rows, cols = np.nonzero(rng.random((n, words)) < 0.2)
    documents = st.Data.from_arrays(rows, cols, rng.integers(1, 4, len(rows)), (n, words)).group_by(0)
    return {
        "documents": documents,
        "prior": np.log(shares(rng, classes)),
        "likelihood": np.log(shares(rng, words, classes)),
        "label": np.zeros(n, np.int64),
    }


FORWARD = CorpusLoop(
    hmm_forward,
    forward_data,
    (20, 4, 5),
    (20_000, 24, 30),
    warns="serial=True",
)
LOOPS = (
    CorpusLoop(gaussian_expectation, expectation_data, (20, 3, 4), (50_000, 16, 10), gaussian_expectation_hand),
    CorpusLoop(gaussian_maximisation, maximisation_data, (20, 3, 4), (50_000, 16, 10), gaussian_maximisation_hand),
    FORWARD,
    CorpusLoop(hmm_backward, backward_data, (20, 4, 5), (20_000, 24, 30)),
    CorpusLoop(hmm_many, many_data, (7, 9, 4, 5), (2000, 50, 8, 10)),
    CorpusLoop(
        online_kmeans,
        online_data,
        (20, 3, 4),
        (50_000, 16, 20),
        online_kmeans_hand,
        warns="st.buffer(centre)",
        instead="online_kmeans_buffered",
    ),
    CorpusLoop(
        online_kmeans_buffered,
        online_buffered_data,
        (20, 3, 4),
        (50_000, 16, 20),
        follows=True,
        hand=online_kmeans_hand,
    ),
    CorpusLoop(naive_bayes, documents_data, (12, 15, 3), (3000, 500, 20), naive_bayes_hand),
)
