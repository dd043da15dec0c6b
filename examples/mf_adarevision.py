"""Matrix factorization with AdaRevision: a step size for every number, which shrinks with the gradients it has seen.

python examples/mf_adarevision.py                      generated ratings
python examples/mf_adarevision.py ratings.dat          a file of yours, in any format that `st.read` knows

AdaRevision (McMahan and Streeter, 2014) is AdaGrad that makes up for gradients which come late. This loop keeps its
dependences, blocks that share neither a user nor an item running together, so no gradient ever is late: what is to be
made up for is zero, the largest sum of squares so far is the last one, and the step is lr / sqrt(Z).
`logistic_adarevision.py` has the other case.
"""

import sys

import numpy as np

import stretto as st


@st.parallel
def epoch(ratings, W, H, ZW, ZH, mean, lr, lam, loss):
    for (i, j), r in ratings:
        e = r - mean - W[i] @ H[j]
        loss += e * e
        gw, gh = lam * W[i] - e * H[j], lam * H[j] - e * W[i]
        ZW[i] += gw * gw
        ZH[j] += gh * gh
        W[i] -= lr * gw / np.sqrt(ZW[i])
        H[j] -= lr * gh / np.sqrt(ZH[j])


def train(ratings, rank=16, epochs=10, lr=0.1, lam=0.05, seed=0):
    W = st.random((ratings.shape[0], rank), scale=0.1, seed=seed)
    H = st.random((ratings.shape[1], rank), scale=0.1, seed=seed + 1)
    ZW, ZH = st.full(W.shape, 1.0), st.full(H.shape, 1.0)
    mean, loss = float(ratings.values.mean()), st.accumulator(0.0)
    for t in range(epochs):
        loss.reset()
        epoch(ratings, W, H, ZW, ZH, mean, lr, lam, loss)
        print(f"epoch {t + 1:2}: RMSE {(loss.get() / len(ratings)) ** 0.5:.4f}")
    return W, H


if __name__ == "__main__":
    train(st.read(sys.argv[1]) if len(sys.argv) > 1 else st.generate_ratings(500_000, 5_000, 2_000).data)
