"""Sparse logistic regression with AdaRevision: buffered gradients, applied by a function of ours.

python examples/logistic_adarevision.py                generated samples
python examples/logistic_adarevision.py train.svm      a file of yours in svmlight's format

Samples that run together compute gradients from weights of a moment ago. AdaRevision (McMahan and Streeter, 2014) makes
up for that: with every weight the buffer remembers the sum of gradients its reader had seen, and when the reader's
gradient arrives, what others have added since (`back`) enters the step size and revises the steps already taken.
"""

import sys

import numpy as np

import stretto as st


@st.parallel
def epoch(samples, w, gradient, loss):
    for _, (y, features) in samples:
        score = 0.0
        for f, x in features:
            score += w[f] * x
        e = np.exp(-abs(score))
        loss += np.log(1 + e) + max(-y * score, 0)
        slope = -y * (e if y * score > 0 else 1) / (1 + e)
        for f, x in features:
            gradient[f] += slope * x


def adarevision(lr):
    def step(w, g, z, zmax, total, seen):
        back = total - seen
        old = lr / np.sqrt(zmax)
        z = z + g * g + 2 * g * back
        zmax = max(zmax, z)
        new = lr / np.sqrt(zmax)
        return w - new * g + (old - new) * back, z, zmax, total + g

    return step


def train(samples, epochs=10, lr=0.3):
    w, z, zmax, total = st.zeros(samples.columns), *(st.full(samples.columns, v) for v in (1.0, 1.0, 0.0))
    gradient = st.buffer(w, apply=adarevision(lr), with_=(z, zmax, total), snapshot=total)
    loss = st.accumulator(0.0)
    for t in range(epochs):
        loss.reset()
        epoch(samples, w, gradient, loss)
        print(f"epoch {t + 1:2}: loss {loss.get() / len(samples):.4f}")
    return w


def generate(count=20_000, columns=500, seed=0):
    draw = np.random.default_rng(seed)
    X = (draw.random((count, columns)) < 0.03).astype("f4")
    return st.samples(X, np.where(X @ draw.standard_normal(columns) > 0, 1, -1))


if __name__ == "__main__":
    train(st.read(sys.argv[1]).samples() if len(sys.argv) > 1 else generate())
