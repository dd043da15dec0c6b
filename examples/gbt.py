"""Gradient boosted trees: each tree corrects what the trees before it still get wrong.

python examples/gbt.py                                 generated numbers to predict
python examples/gbt.py housing.csv                     numbers of yours, no header, what to predict last

Features are cut into bins by their quantiles. A tree grows level by level: the gradients of the samples are added up
for every feature, node and bin, and from these histograms the best cut is read off. The histograms are the work. What
is written for one feature concerns no other, so features run together.
"""

import sys

import numpy as np

import stretto as st

BINS = 64


@st.parallel
def histograms(bins, node, gradient, hessian, G, H):
    for f in range(bins.shape[0]):
        for s in range(bins.shape[1]):
            G[f, node[s], bins[f, s]] += gradient[s]
            H[f, node[s], bins[f, s]] += hessian[s]


@st.parallel
def cuts(G, H, lam, gain, cut):
    for f in range(G.shape[0]):
        for v in range(G.shape[1]):
            g, h = G[f, v].sum(), H[f, v].sum()
            left_g, left_h, best, where = 0.0, 0.0, 0.0, len(G[f, v])  # a cut past the last bin keeps all on the left
            for b in range(len(G[f, v]) - 1):
                left_g += G[f, v, b]
                left_h += H[f, v, b]
                right_g, right_h = g - left_g, h - left_h
                better = left_g**2 / (left_h + lam) + right_g**2 / (right_h + lam) - g**2 / (h + lam)
                if better > best and left_h >= 1.0 and right_h >= 1.0:
                    best, where = better, b
            gain[f, v] = best
            cut[f, v] = where


def descend(bins, node, feature, cut):
    """The samples of each node v to 2v, or to 2v + 1 where its feature is past its cut."""
    return 2 * node + (bins[feature[node], np.arange(len(node))] > cut[node])


def grow(bins, gradient, hessian, depth, lam):
    """A tree: feature and cut of every node, level by level, and the value of each leaf; and each sample's leaf."""
    features, nodes = len(bins), 2 ** (depth - 1)
    G, H = st.zeros((features, nodes, BINS), "f8"), st.zeros((features, nodes, BINS), "f8")
    gain, cut = st.zeros((features, nodes), "f8"), st.zeros((features, nodes), "i4")
    node, levels = np.zeros(bins.shape[1], dtype=np.int64), []
    for _ in range(depth):
        G[:], H[:] = 0, 0
        histograms(bins, node, gradient, hessian, G, H)
        cuts(G, H, lam, gain, cut)
        feature = np.argmax(np.asarray(gain), axis=0)
        levels.append((feature, np.asarray(cut)[feature, np.arange(nodes)]))
        node = descend(bins, node, *levels[-1])
    g, h = (np.bincount(node, weights=w, minlength=2 * nodes) for w in (gradient, hessian))
    return levels, -g / (h + lam), node


class Boosted:
    """loss: 'squared' for numbers, 'logistic' for 0 and 1 (predictions are then log-odds)."""

    def __init__(self, trees=100, depth=4, lr=0.1, lam=1.0, loss="squared"):
        self.trees, self.depth, self.lr, self.lam, self.loss = trees, depth, lr, lam, loss

    def fit(self, X, y, every=0):
        self.edges = np.quantile(X, np.linspace(0, 1, BINS + 1)[1:-1], axis=0)
        bins, self.grown = self.binned(X), []
        mean = y.mean()
        self.base = mean if self.loss == "squared" else np.log(mean / (1 - mean))
        score = np.full(len(y), self.base)
        for t in range(self.trees):
            guess = score if self.loss == "squared" else 1 / (1 + np.exp(-score))
            hessian = np.ones(len(y)) if self.loss == "squared" else guess * (1 - guess)
            levels, value, leaf = grow(bins, guess - y, hessian, self.depth, self.lam)
            score += self.lr * value[leaf]
            self.grown.append((levels, value))
            if every and (t + 1) % every == 0:
                print(f"tree {t + 1:4}: mean squared error {np.mean((guess - y) ** 2):.4f}")
        return self

    def predict(self, X):
        bins, score = self.binned(X), np.full(len(X), self.base)
        for levels, value in self.grown:
            node = np.zeros(len(X), dtype=np.int64)
            for feature, cut in levels:
                node = descend(bins, node, feature, cut)
            score += self.lr * value[node]
        return score

    def binned(self, X):
        """[features, samples]: a feature's bins lie side by side, as the histograms read them."""
        return np.array([np.searchsorted(*pair, side="right") for pair in zip(self.edges.T, X.T, strict=True)], "u1")


def generate(n=20_000, features=10, seed=0):
    """Numbers that depend on five of the features, two of them together (Friedman 1991)."""
    draw = np.random.default_rng(seed)
    X = draw.random((n, features))
    wave, bow, line = np.sin(np.pi * X[:, 0] * X[:, 1]), (X[:, 2] - 0.5) ** 2, 2 * X[:, 3] + X[:, 4]
    return X, 10 * wave + 20 * bow + 5 * line + draw.normal(size=n)


if __name__ == "__main__":
    table = np.loadtxt(sys.argv[1], delimiter=",") if len(sys.argv) > 1 else np.column_stack(generate())
    table = np.random.default_rng(0).permutation(table)
    X, y, held = table[:, :-1], table[:, -1], len(table) // 5
    model = Boosted().fit(X[held:], y[held:], every=10)
    left = np.mean((model.predict(X[:held]) - y[:held]) ** 2)
    print(f"held out: mean squared error {left:.4f}, of the mean alone {np.var(y[:held]):.4f}")
