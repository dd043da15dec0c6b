"""Matrix factorization by stochastic gradient descent: predict a rating as the product of two short rows.

python examples/mf.py                                  generated ratings
python examples/mf.py ratings.dat                      a file of yours, in any format that `st.read` knows

Two ratings clash only if they share a user or an item, so blocks of the matrix that share neither run together.
"""

import sys

import stretto as st


@st.parallel
def epoch(ratings, W, H, mean, lr, lam, loss):
    for (i, j), r in ratings:
        e = r - mean - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * (e * H[j] - lam * W[i]), H[j] + lr * (e * W[i] - lam * H[j])


def train(ratings, rank=16, epochs=10, lr=0.02, lam=0.05, seed=0):
    W = st.random((ratings.shape[0], rank), scale=0.1, seed=seed)
    H = st.random((ratings.shape[1], rank), scale=0.1, seed=seed + 1)
    mean, loss = float(ratings.values.mean()), st.accumulator(0.0)
    for t in range(epochs):
        loss.reset()
        epoch(ratings, W, H, mean, lr, lam, loss)
        print(f"epoch {t + 1:2}: RMSE {(loss.get() / len(ratings)) ** 0.5:.4f}")
    return W, H


if __name__ == "__main__":
    train(st.read(sys.argv[1]) if len(sys.argv) > 1 else st.generate_ratings(500_000, 5_000, 2_000).data)
