"""Factors of a sparse tensor of three axes by stochastic gradient descent: CP, and Tucker with a core.

python examples/tensors.py                             100,000 values of 400 × 300 × 50
python examples/tensors.py 1000000                     as many as you like

CP models x as Σ A[i, r] B[j, r] C[k, r], Tucker as Σ G[p, q, r] A[i, p] B[j, q] C[k, r]. An iteration changes a row of
each factor, so blocks that differ in all three indices run together, in a rotation without barriers. The core of Tucker
is the same in all of an epoch; after it, a second loop adds up the normal equations of the best core for the factors.
"""

import sys
import time

import numpy as np

import stretto as st


@st.parallel
def cp_epoch(data, A, B, C, lr, lam, loss):
    for (i, j, k), x in data:
        e = x - (A[i] * B[j]) @ C[k]
        loss += e * e
        a = A[i] + lr * (e * B[j] * C[k] - lam * A[i])
        b = B[j] + lr * (e * A[i] * C[k] - lam * B[j])
        C[k] = C[k] + lr * (e * A[i] * B[j] - lam * C[k])
        A[i], B[j] = a, b


@st.parallel
def tucker_epoch(data, A, B, C, G, lr, lam, loss):
    P, Q, R = G.shape
    for (i, j, k), x in data:
        da = np.zeros(P)
        db = np.zeros(Q)
        dc = np.zeros(R)
        e = x
        for p in range(P):
            for q in range(Q):
                for r in range(R):
                    g = G[p, q, r]
                    da[p] += g * B[j, q] * C[k, r]
                    db[q] += g * A[i, p] * C[k, r]
                    dc[r] += g * A[i, p] * B[j, q]
                    e -= g * A[i, p] * B[j, q] * C[k, r]
        loss += e * e
        for p in range(P):
            A[i, p] += lr * (e * da[p] - lam * A[i, p])
        for q in range(Q):
            B[j, q] += lr * (e * db[q] - lam * B[j, q])
        for r in range(R):
            C[k, r] += lr * (e * dc[r] - lam * C[k, r])


@st.parallel
def core_equations(data, A, B, C, H, h):
    P, Q, R = A.shape[1], B.shape[1], C.shape[1]
    for (i, j, k), x in data:
        f = np.zeros(P * Q * R)
        for p in range(P):
            for q in range(Q):
                for r in range(R):
                    f[(p * Q + q) * R + r] = A[i, p] * B[j, q] * C[k, r]
        for a in range(P * Q * R):
            h[a] += x * f[a]
            for b in range(P * Q * R):
                H[a, b] += f[a] * f[b]


def generate(n, shape=(400, 300, 50), rank=3, noise=0.05, seed=0):
    """A sparse tensor of this rank with noise, at random places."""
    draw = np.random.default_rng(seed)
    factors = [draw.normal(size=(size, rank)) for size in shape]
    index = tuple(draw.integers(0, size, n) for size in shape)
    values = np.prod([factor[at] for factor, at in zip(factors, index, strict=True)], axis=0).sum(axis=1)
    return st.sparse(index, values + noise * draw.normal(size=n), shape)


def cp(data, rank=4, epochs=30, lr=0.02, lam=1e-4):
    """Factors, and the root of the mean squared error of each epoch."""
    A, B, C = (st.random((size, rank), dtype="f8", scale=0.5, seed=s) for s, size in enumerate(data.shape))
    loss, errors = st.accumulator(0.0), []
    for _ in range(epochs):
        loss.reset()
        cp_epoch(data, A, B, C, lr, lam, loss)
        errors.append((loss.get() / len(data)) ** 0.5)
    return (A, B, C), errors


def tucker(data, ranks=(3, 3, 3), epochs=30, lr=0.02, lam=1e-4):
    """Factors, the core, and the root of the mean squared error of each epoch."""
    A, B, C = (st.random((size, rank), dtype="f8", scale=0.5, seed=s) for s, (size, rank) in
               enumerate(zip(data.shape, ranks, strict=True)))  # fmt: skip
    G, size = st.random(ranks, dtype="f8", scale=0.5, seed=9), int(np.prod(ranks))
    H, h = st.accumulator(np.zeros((size, size))), st.accumulator(np.zeros(size))
    loss, errors = st.accumulator(0.0), []
    for _ in range(epochs):
        for total in (loss, H, h):
            total.reset()
        tucker_epoch(data, A, B, C, G, lr, lam, loss)
        core_equations(data, A, B, C, H, h)
        G = st.state(np.linalg.solve(H.get() + lam * np.eye(size), h.get()).reshape(ranks))
        errors.append((loss.get() / len(data)) ** 0.5)
    return (A, B, C), G, errors


if __name__ == "__main__":
    data = generate(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    for name, fit in (("CP", cp), ("Tucker", tucker)):
        start = time.perf_counter()
        *_, errors = fit(data)
        print(
            f"{name}: root mean square error {errors[0]:.3f} to {errors[-1]:.3f} in {time.perf_counter() - start:.1f} s"
        )
