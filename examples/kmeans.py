"""k-means: points in groups, each around the mean of its points.

python examples/kmeans.py                              generated points
python examples/kmeans.py points.npy 8                 a NumPy file with a point in every row, and the number of groups

An iteration writes the label of its own point; sums and counts are accumulators, which every visit keeps for itself and
which are folded in order. So points may be taken in any order and together, and the answer is always the same.
"""

import sys

import numpy as np

import stretto as st


@st.parallel
def assign(X, centres, label, sums, counts, cost):
    for i in range(len(X)):
        nearest, best = 0, np.inf
        for c in range(len(centres)):
            d = X[i] - centres[c]
            if d @ d < best:
                nearest, best = c, d @ d
        label[i] = nearest
        sums[nearest] += X[i]
        counts[nearest] += 1
        cost += best


def kmeans(X, k, passes=20, seed=0):
    centres = X[np.random.default_rng(seed).choice(len(X), k, replace=False)]
    label = st.full(len(X), -1, "i4")
    sums, counts, cost = st.accumulator(np.zeros_like(centres)), st.accumulator(np.zeros(k, int)), st.accumulator(0.0)
    for t in range(passes):
        for one in (sums, counts, cost):
            one.reset()
        before = label.copy()
        assign(X, centres, label, sums, counts, cost)
        print(f"pass {t + 1:2}: mean squared distance {cost.get() / len(X):.4f}")
        if np.array_equal(label, before):
            break
        filled = counts.get()[:, None]
        means = sums.get() / np.maximum(filled, 1)
        centres = np.where(filled, means, centres).astype(X.dtype)  # an empty group stays where it is
    return centres, label


def generate(count=100_000, k=8, width=16, seed=0):
    draw = np.random.default_rng(seed)
    return draw.standard_normal((k, width))[draw.integers(k, size=count)] * 3 + draw.standard_normal((count, width))


if __name__ == "__main__":
    X, k = (np.load(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (generate(), 8)
    kmeans(X, k)
