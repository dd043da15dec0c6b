"""Word vectors by skip-gram with negative sampling, as in word2vec: words that keep the same company come to lie close.

python examples/skipgram.py                            a generated text, whose words come in groups
python examples/skipgram.py text.txt                   a text of yours, one sentence to a line

A pair of a word and one of its neighbours pulls their vectors together, and pushes the word away from a few words drawn
at random. Which words those are is known only as the loop runs, so any two pairs may clash: the vectors are written
through buffers, and visits that run together do not see each other's steps until the next wave.
"""

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import stretto as st


@st.parallel
def epoch(pairs, noise, words, contexts, add_words, add_contexts, negatives, lr, t, loss):
    for (w, c), p in pairs:
        step = np.zeros(words.shape[1], np.float32)
        for k in range(negatives + 1):
            target = c if k == 0 else noise[st.integers(len(noise), t, p, k)]
            chance = 1 / (1 + math.exp(-(words[w] @ contexts[target])))
            error = 1 - chance if k == 0 else -chance
            loss -= math.log(max(1 - abs(error), 1e-7))
            step += error * contexts[target]
            add_contexts[target] += lr * error * words[w]
        add_words[w] += lr * step


def pairs_of(sentences, window=3, least=5):
    """Every word with every neighbour up to `window` places away, without words met fewer than `least` times."""
    counts = Counter(word for sentence in sentences for word in sentence)
    names = [word for word, count in counts.most_common() if count >= least]
    number = {word: k for k, word in enumerate(names)}
    rows, cols = [], []
    for sentence in sentences:
        known = [number[word] for word in sentence if word in number]
        for at, word in enumerate(known):
            near = known[max(0, at - window) : at] + known[at + 1 : at + 1 + window]
            rows += [word] * len(near)
            cols += near
    order = np.random.default_rng(0).permutation(len(rows))  # a visit should meet all kinds of sentences
    shape = len(names), len(names)
    pairs = st.Data.from_arrays(np.array(rows)[order], np.array(cols)[order], np.ones(len(rows)), shape)
    return pairs, names


def train(pairs, width=32, epochs=5, negatives=5, lr=0.05, seed=0):
    """A vector for each word."""
    words, contexts = st.random((pairs.shape[0], width), 0.5 / width, seed), st.zeros((pairs.shape[0], width))
    share = np.bincount(pairs.cols, minlength=pairs.shape[0]) ** 0.75  # rare words are drawn more often than they occur
    noise = np.repeat(np.arange(len(share)), np.ceil(share / share.sum() * 100_000).astype(int))
    numbered, loss = pairs.numbered(values=False), st.accumulator(0.0)
    waves = 1 + len(pairs) // (4 * len(words))  # in a wave a word is met a few times: steps that do not see each other
    step = epoch.using(blocks=16 * waves, width=16)
    for t in range(epochs):
        loss.reset()
        buffers = st.buffer(words), st.buffer(contexts)
        step(numbered, noise, words, contexts, *buffers, negatives, lr * (1 - t / epochs), t, loss)
        print(f"epoch {t + 1}: loss {loss.get() / len(pairs):.4f}")
    return np.asarray(words)


def closest(vectors, word, count=5):
    """The words whose vectors point the same way."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.argsort(-(unit @ unit[word]))[1 : count + 1]


def generate(sentences=2000, groups=10, size=40, length=12, seed=0):
    """Sentences of words of one group each."""
    draw = np.random.default_rng(seed)
    group, which = draw.integers(groups, size=(sentences, 1)), draw.integers(size, size=(sentences, length))
    return [[f"{'abcdefghij'[g]}{k}" for k in row] for (g,), row in zip(group, which, strict=True)]


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text().lower().splitlines() if len(sys.argv) > 1 else []
    pairs, names = pairs_of([line.split() for line in lines] or generate())
    vectors = train(pairs)
    for word in range(5):
        print(f"{names[word]}: {', '.join(names[other] for other in closest(vectors, word))}")
