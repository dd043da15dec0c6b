"""Sparse logistic regression without a buffer: samples that share no feature run together, found in the data.

python examples/logistic_inspected.py                  generated samples
python examples/logistic_inspected.py train.svm        a file of yours in svmlight's format

Which weights a sample touches is known only from the data, so `inspect=True` runs the part of the body that computes
the subscripts once, and groups samples that do not clash. The result is that of a serial run, without stale weights.
Where the data leave too little to run together, as when every sample has a feature in common, the call is refused with
the figure; then `logistic.py` and its buffer are the way.
"""

import sys

import numpy as np

import stretto as st


@st.parallel(inspect=True)
def epoch(samples, w, lr, loss):
    for _, (y, features) in samples:
        score = 0.0
        for f, x in features:
            score += w[f] * x
        e = np.exp(-abs(score))
        loss += np.log(1 + e) + max(-y * score, 0)
        slope = -y * (e if y * score > 0 else 1) / (1 + e)
        for f, x in features:
            w[f] -= lr * slope * x


def train(samples, epochs=10, lr=0.1):
    w, loss = st.zeros(samples.columns), st.accumulator(0.0)
    for t in range(epochs):
        loss.reset()
        epoch(samples, w, lr, loss)
        print(f"epoch {t + 1:2}: loss {loss.get() / len(samples):.4f}")
    return w


def generate(count=20_000, columns=20_000, each=5, seed=0):
    draw = np.random.default_rng(seed)
    rows, cols = np.repeat(np.arange(count), each), draw.integers(columns, size=count * each)
    y = np.sign(np.bincount(rows, draw.standard_normal(columns)[cols]))
    return st.samples(st.Data.from_arrays(rows, cols, np.ones(len(rows)), (count, columns)), y)


if __name__ == "__main__":
    train(st.read(sys.argv[1]).samples() if len(sys.argv) > 1 else generate())
