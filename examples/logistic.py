"""Sparse logistic regression: which of two classes, -1 or 1, from the few features that a sample has.

python examples/logistic.py                            generated samples
python examples/logistic.py train.svm                  a file of yours in svmlight's format

Which weights a sample reads and writes is known only from the data, so nearly any two samples might clash. The buffer
says that this may be: samples that run together read weights of a moment ago, and what they add is merged in order.
`@st.parallel(blocks=1000)` would make the moments shorter, which allows a larger step.
"""

import sys

import numpy as np

import stretto as st


@st.parallel
def epoch(samples, w, buffered, lr, loss):
    for _, (y, features) in samples:
        score = 0.0
        for f, x in features:
            score += w[f] * x
        e = np.exp(-abs(score))
        loss += np.log(1 + e) + max(-y * score, 0)
        slope = -y * (e if y * score > 0 else 1) / (1 + e)
        for f, x in features:
            buffered[f] -= lr * slope * x


def train(samples, epochs=10, lr=0.005):
    w, loss = st.zeros(samples.columns), st.accumulator(0.0)
    for t in range(epochs):
        loss.reset()
        epoch(samples, w, st.buffer(w), lr, loss)
        print(f"epoch {t + 1:2}: loss {loss.get() / len(samples):.4f}")
    return w


def generate(count=20_000, columns=500, seed=0):
    draw = np.random.default_rng(seed)
    X = (draw.random((count, columns)) < 0.03).astype("f4")
    return st.samples(X, np.where(X @ draw.standard_normal(columns) > 0, 1, -1))


if __name__ == "__main__":
    train(st.read(sys.argv[1]).samples() if len(sys.argv) > 1 else generate())
