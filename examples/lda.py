"""Latent Dirichlet allocation by collapsed Gibbs sampling: the topics of a collection of documents.

python examples/lda.py                                 a generated collection
python examples/lda.py ap.dat 100                      counts of yours (lda-c, UCI docword, svmlight, …) and topics

Every token, one word at one place of a document, has a topic. A sweep draws each anew, in proportion to how much of its
document and how much of its word has each topic. Tokens that share neither document nor word are drawn together. All of
them share the totals of the topics; those may lag by a wave, so they are written through a buffer.
"""

import math
import sys

import numpy as np

import stretto as st


@st.parallel
def sweep(tokens, topic, docs, words, totals, changes, alpha, beta, epoch):
    topics, smooth = len(totals), beta * len(words)
    for (d, w), p in tokens:
        old = topic[p]
        docs[d, old] -= 1
        words[w, old] -= 1
        changes[old] -= 1
        reach = np.empty(topics)  # float64, added up in this order: plain Python draws the same topics
        mass = 0.0
        for k in range(topics):
            mass += (docs[d, k] + alpha) * (words[w, k] + beta) / (totals[k] + smooth)
            reach[k] = mass
        at, new = st.uniform(epoch, p) * mass, 0
        while reach[new] <= at:
            new += 1
        topic[p] = new
        docs[d, new] += 1
        words[w, new] += 1
        changes[new] += 1


@st.parallel
def begin(tokens, topic, docs, words, changes, topics, seed):
    for (d, w), p in tokens:
        new = st.integers(topics, seed, p)
        topic[p] = new
        docs[d, new] += 1
        words[w, new] += 1
        changes[new] += 1


@st.parallel
def likelihood(tokens, docs, words, totals, alpha, beta, total):
    for (d, w), _ in tokens:
        mix = (docs[d] + alpha) / (docs[d].sum() + alpha * len(totals))
        total += math.log(mix @ ((words[w] + beta) / (totals + beta * len(words))))


def train(counts, topics=20, sweeps=50, alpha=0.1, beta=0.01, seed=0):
    """The topic of every token; how often each topic occurs in each document, in each word, and in all."""
    tokens, total = counts.expanded().numbered(values=False), st.accumulator(0.0)
    topic, totals = st.zeros(len(tokens), "i4"), st.zeros(topics, "i4")
    docs, words = st.zeros((tokens.shape[0], topics), "i4"), st.zeros((tokens.shape[1], topics), "i4")
    begin(tokens, topic, docs, words, st.buffer(totals), topics, seed)
    for t in range(sweeps):
        sweep(tokens, topic, docs, words, totals, st.buffer(totals), alpha, beta, t)
        if (t + 1) % 10 == 0:
            total.reset()
            likelihood(tokens, docs, words, totals, alpha, beta, total)
            print(f"sweep {t + 1:3}: perplexity {math.exp(-total.get() / len(tokens)):8.1f}")
    return topic, docs, words, totals


def generate(documents=500, vocabulary=2000, topics=20, length=100, seed=0):
    """Documents of `length` tokens from a few topics each."""
    draw = np.random.default_rng(seed)
    theta, phi = draw.dirichlet([0.1] * topics, documents), draw.dirichlet([0.02] * vocabulary, topics)
    counts = np.array([draw.multinomial(length, share @ phi) for share in theta])
    return st.Data.from_arrays(*counts.nonzero(), counts[counts.nonzero()], counts.shape)


if __name__ == "__main__":
    given = sys.argv[1:]
    train(st.read(given[0]) if given else generate(), topics=int(given[1]) if len(given) > 1 else 20)
