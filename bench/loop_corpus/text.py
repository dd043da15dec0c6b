"""Text: word vectors, topic counts, sketches and histograms."""

import math

import numpy as np

import stretto as st

from .entry import CorpusLoop


def skipgram(words, contexts, negatives, U, V, lr):
    """Skip-gram with negative sampling, as word2vec does it, the negatives drawn beforehand."""
    for t in range(len(words)):
        w = words[t]
        step = np.zeros(U.shape[1])
        for k in range(negatives.shape[1] + 1):
            if k == 0:
                c, y = contexts[t], 1.0
            else:
                c, y = negatives[t, k - 1], 0.0
            g = lr * (y - 1 / (1 + np.exp(-U[w] @ V[c])))
            step += g * V[c]
            V[c] += g * U[w]
        U[w] += step


def skipgram_hand(words, contexts, negatives, U, V, lr):
    width = U.shape[1]
    step = np.zeros(width)
    for t in range(len(words)):
        u = U[words[t]]
        step[:] = 0
        for k in range(negatives.shape[1] + 1):
            if k == 0:
                c, y = contexts[t], 1.0
            else:
                c, y = negatives[t, k - 1], 0.0
            v = V[c]
            s = 0.0
            for r in range(width):
                s += u[r] * v[r]
            g = lr * (y - 1 / (1 + math.exp(-s)))
            for r in range(width):
                step[r] += g * v[r]
                v[r] += g * u[r]
        for r in range(width):
            u[r] += step[r]


def glove(counts, W, C, bw, bc, GW, GC, gbw, gbc, lr, xmax, alpha):
    """GloVe with AdaGrad."""
    for (i, j), x in counts:
        weight = (x / xmax) ** alpha if x < xmax else 1.0
        diff = W[i] @ C[j] + bw[i] + bc[j] - math.log(x)
        g = weight * diff
        dw, dc = g * C[j], g * W[i]
        GW[i] += dw**2
        GC[j] += dc**2
        W[i] -= lr * dw / np.sqrt(GW[i])
        C[j] -= lr * dc / np.sqrt(GC[j])
        gbw[i] += g**2
        gbc[j] += g**2
        bw[i] -= lr * g / math.sqrt(gbw[i])
        bc[j] -= lr * g / math.sqrt(gbc[j])


def glove_hand(rows, cols, xs, W, C, bw, bc, GW, GC, gbw, gbc, lr, xmax, alpha):
    for t in range(len(xs)):
        i, j, x = rows[t], cols[t], float(xs[t])
        weight = (x / xmax) ** alpha if x < xmax else 1.0
        w, c, gw, gc = W[i], C[j], GW[i], GC[j]
        s = 0.0
        for r in range(len(w)):
            s += w[r] * c[r]
        g = weight * (s + bw[i] + bc[j] - math.log(x))
        for r in range(len(w)):
            dw, dc = g * c[r], g * w[r]
            gw[r] += dw * dw
            gc[r] += dc * dc
            w[r] -= lr * dw / math.sqrt(gw[r])
            c[r] -= lr * dc / math.sqrt(gc[r])
        gbw[i] += g * g
        gbc[j] += g * g
        bw[i] -= lr * g / math.sqrt(gbw[i])
        bc[j] -= lr * g / math.sqrt(gbc[j])


def lda_gibbs(document, word, topic, by_document, by_word, totals, alpha, beta, t):
    """One sweep of collapsed Gibbs sampling of a topic model."""
    vocabulary, k = by_word.shape
    for n in range(len(word)):
        d, w, z = document[n], word[n], topic[n]
        by_document[d, z] -= 1
        by_word[w, z] -= 1
        totals[z] -= 1
        p = (by_document[d] + alpha) * (by_word[w] + beta) / (totals + vocabulary * beta)
        u = st.uniform(t, n) * p.sum()
        z = 0
        s = p[0]
        while s < u and z < k - 1:
            z += 1
            s += p[z]
        topic[n] = z
        by_document[d, z] += 1
        by_word[w, z] += 1
        totals[z] += 1


def lda_gibbs_buffered(document, word, topic, by_document, by_word, totals, dd, dw, dt, alpha, beta, t):
    """The same with its counts in buffers; AD-LDA."""
    vocabulary, k = by_word.shape
    for n in range(len(word)):
        d, w, z = document[n], word[n], topic[n]
        dd[d, z] -= 1
        dw[w, z] -= 1
        dt[z] -= 1
        p = (by_document[d] + alpha) * (by_word[w] + beta) / (totals + vocabulary * beta)
        u = st.uniform(t, n) * p.sum()
        z = 0
        s = p[0]
        while s < u and z < k - 1:
            z += 1
            s += p[z]
        topic[n] = z
        dd[d, z] += 1
        dw[w, z] += 1
        dt[z] += 1


def count_sketch(keys, a, b, prime, sketch):
    """A count sketch: every row of it hashes a key to a column and a sign."""
    depth, width = sketch.shape
    for n in range(len(keys)):
        for r in range(depth):
            h = (a[r] * keys[n] + b[r]) % prime
            sign = 1 if h % 2 == 0 else -1
            sketch[r, (h // 2) % width] += sign


def histogram(x, low, high, counts):
    """A histogram of what is in the range."""
    bins = len(counts)
    for i in range(len(x)):
        if low <= x[i] < high:
            counts[int((x[i] - low) / (high - low) * bins)] += 1


def cooccurrence(tokens, window, counts):
    """How often words occur near each other, nearer ones counting more."""
    for i in range(len(tokens)):
        for j in range(max(0, i - window), i):
            counts[tokens[i], tokens[j]] += 1.0 / (i - j)
            counts[tokens[j], tokens[i]] += 1.0 / (i - j)


def skipgram_data(rng, vocabulary, count, width, negatives):
    return {
        "words": rng.integers(0, vocabulary, count),
        "contexts": rng.integers(0, vocabulary, count),
        "negatives": rng.integers(0, vocabulary, (count, negatives)),
        "U": rng.normal(size=(vocabulary, width)) * 0.1,
        "V": rng.normal(size=(vocabulary, width)) * 0.1,
        "lr": 0.05,
    }


def glove_data(rng, vocabulary, count, width):
    rows, cols = rng.integers(0, vocabulary, (2, count))
    counts = st.Data.from_arrays(rows, cols, rng.exponential(20, count) + 1, (vocabulary, vocabulary))
    W, C = (rng.normal(size=(vocabulary, width)) * 0.1 for _ in range(2))
    one, ones = np.ones(vocabulary), np.ones((vocabulary, width))
    return {
        "counts": counts,
        "W": W,
        "C": C,
        "bw": one * 0,
        "bc": one * 0,
        "GW": ones,
        "GC": ones.copy(),
        "gbw": one,
        "gbc": one.copy(),
        "lr": 0.05,
        "xmax": 100.0,
        "alpha": 0.75,
    }


def topics_data(rng, documents, vocabulary, tokens, topics):
    document, word = np.sort(rng.integers(0, documents, tokens)), rng.integers(0, vocabulary, tokens)
    topic = rng.integers(0, topics, tokens)
    by_document, by_word = np.zeros((documents, topics), np.int64), np.zeros((vocabulary, topics), np.int64)
    np.add.at(by_document, (document, topic), 1)
    np.add.at(by_word, (word, topic), 1)
    return {
        "document": document,
        "word": word,
        "topic": topic,
        "by_document": by_document,
        "by_word": by_word,
        "totals": np.bincount(topic, minlength=topics),
        "alpha": 0.1,
        "beta": 0.01,
        "t": 0,
    }


def topics_buffered_data(rng, documents, vocabulary, tokens, topics):
    made = topics_data(rng, documents, vocabulary, tokens, topics)
    counts = {name: made[name] for name in ("by_document", "by_word", "totals")}
    first = {name: made[name] for name in ("document", "word", "topic")} | counts
    return (
        first
        | {short: st.buffer(made[name]) for short, name in zip(("dd", "dw", "dt"), counts, strict=True)}
        | {"alpha": 0.1, "beta": 0.01, "t": 0}
    )


def sketch_data(rng, count, depth, width):
    prime = 2_147_483_647
    return {
        "keys": rng.integers(0, 1000, count),
        "a": rng.integers(1, prime, depth),
        "b": rng.integers(0, prime, depth),
        "prime": prime,
        "sketch": st.accumulator(np.zeros((depth, width), np.int64)),
    }


def histogram_data(rng, count, bins):
    return {"x": rng.normal(size=count), "low": -2.0, "high": 2.0, "counts": np.zeros(bins, np.int64)}


def histogram_sums_data(rng, count, bins):
    return histogram_data(rng, count, bins) | {"counts": st.accumulator(np.zeros(bins, np.int64))}


def cooccurrence_sums_data(rng, vocabulary, count, window):
    made = cooccurrence_data(rng, vocabulary, count, window)
    return made | {"counts": st.accumulator(np.zeros((vocabulary, vocabulary)))}


def cooccurrence_data(rng, vocabulary, count, window):
    return {
        "tokens": rng.integers(0, vocabulary, count),
        "window": window,
        "counts": np.zeros((vocabulary, vocabulary)),
    }


WORDS = CorpusLoop(
    skipgram,
    skipgram_data,
    (120, 30, 4, 2),
    (50_000, 100_000, 32, 5),
    skipgram_hand,
)
LOOPS = (
    WORDS,
    CorpusLoop(glove, glove_data, (12, 50, 4), (3000, 300_000, 32), glove_hand),
    CorpusLoop(
        lda_gibbs,
        topics_data,
        (5, 9, 60, 4),
        (500, 2000, 200_000, 20),
        warns="st.buffer(by_word)",
        instead="lda_gibbs_buffered",
    ),
    CorpusLoop(lda_gibbs_buffered, topics_buffered_data, (5, 9, 60, 4), (500, 2000, 200_000, 20), follows=True),
    CorpusLoop(count_sketch, sketch_data, (40, 3, 8), (500_000, 5, 1000)),
    CorpusLoop(
        histogram,
        histogram_data,
        (50, 7),
        (3_000_000, 100),
    ),
    CorpusLoop(histogram, histogram_sums_data, (50, 7), (3_000_000, 100), follows=True, title="histogram, accumulated"),
    CorpusLoop(
        cooccurrence,
        cooccurrence_data,
        (6, 30, 3),
        (1000, 300_000, 5),
    ),
    CorpusLoop(
        cooccurrence,
        cooccurrence_sums_data,
        (6, 30, 3),
        (1000, 300_000, 5),
        follows=True,
        title="cooccurrence, accumulated",
    ),
)
