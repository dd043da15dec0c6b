"""Linear algebra: triangular systems, factorisations of matrices, alternating updates."""

import numpy as np

import stretto as st

from .entry import CorpusLoop


def forward_substitution(L, b, x):
    """Solve L x = b for a lower triangular matrix."""
    n = len(b)
    for i in range(n):
        s = b[i]
        for j in range(i):
            s -= L[i, j] * x[j]
        x[i] = s / L[i, i]


def back_substitution(U, B, X):
    """Solve U X = B for an upper triangular matrix and many right-hand sides, which are the columns of B."""
    n, m = B.shape
    for i in range(n - 1, -1, -1):
        for c in range(m):
            s = B[i, c]
            for j in range(i + 1, n):
                s -= U[i, j] * X[j, c]
            X[i, c] = s / U[i, i]


def cholesky(A, L):
    """A = L L', row by row."""
    n = len(A)
    for i in range(n):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s -= L[i, k] * L[j, k]
            if i == j:
                L[i, j] = np.sqrt(s)
            else:
                L[i, j] = s / L[j, j]


def lu(A):
    """LU factorisation in place, without pivoting."""
    n = len(A)
    for k in range(n):
        for i in range(k + 1, n):
            A[i, k] /= A[k, k]
            for j in range(k + 1, n):
                A[i, j] -= A[i, k] * A[k, j]


def gram_schmidt(Q, R):
    """Modified Gram–Schmidt; the vectors are the rows of Q."""
    n = len(Q)
    for k in range(n):
        R[k, k] = np.sqrt(Q[k] @ Q[k])
        Q[k] /= R[k, k]
        for j in range(k + 1, n):
            R[k, j] = Q[k] @ Q[j]
            Q[j] -= R[k, j] * Q[k]


def gauss_seidel_dense(A, b, x):
    """A sweep of Gauss–Seidel for a dense system."""
    n = len(b)
    for i in range(n):
        s = A[i] @ x - A[i, i] * x[i]
        x[i] = (b[i] - s) / A[i, i]


def nmf(V, W, H, new):
    """The multiplicative update of Lee and Seung for H."""
    n, m = V.shape
    rank = W.shape[1]
    for r in range(rank):
        for j in range(m):
            up, down = 0.0, 0.0
            for i in range(n):
                guess = 0.0
                for q in range(rank):
                    guess += W[i, q] * H[q, j]
                up += W[i, r] * V[i, j]
                down += W[i, r] * guess
            new[r, j] = H[r, j] * up / (down + 1e-9)


def nmf_columns(V, W, H, new):
    """The same with slices of columns."""
    for j in range(V.shape[1]):
        v = V[:, j]
        h = H[:, j]
        guess = W @ h
        for r in range(W.shape[1]):
            new[r, j] = h[r] * (W[:, r] @ v) / (W[:, r] @ guess + 1e-9)


def als_gradient(rows, U, V, lam, lr):
    """Steps of gradient descent on the normal equations of every row's factors, as in alternating least squares."""
    for u, entries in rows:
        for _ in range(3):
            g = lam * U[u]
            for i, r in entries:
                g += (U[u] @ V[i] - r) * V[i]
            U[u] -= lr * g


def als_gradient_hand(ptr, items, rs, U, V, lam, lr):
    rank = U.shape[1]
    g = np.zeros(rank)
    for u in range(len(U)):
        for _ in range(3):
            for k in range(rank):
                g[k] = lam * U[u, k]
            for p in range(ptr[u], ptr[u + 1]):
                v = V[items[p]]
                s = 0.0
                for k in range(rank):
                    s += U[u, k] * v[k]
                e = s - rs[p]
                for k in range(rank):
                    g[k] += e * v[k]
            for k in range(rank):
                U[u, k] -= lr * g[k]


def als_exact(rows, U, V, lam):
    """Alternating least squares: the normal equations of every row, solved by elimination."""
    k = V.shape[1]
    for u, entries in rows:
        A = lam * np.eye(k)
        b = np.zeros(k)
        for i, r in entries:
            A += np.outer(V[i], V[i])
            b += r * V[i]
        U[u] = np.linalg.solve(A, b)


def als_elimination(rows, U, V, lam):
    """The same with an elimination written out."""
    for u, entries in rows:
        k = V.shape[1]
        A = np.zeros((k, k))
        b = np.zeros(k)
        for p in range(k):
            A[p, p] = lam
        for i, r in entries:
            for p in range(k):
                b[p] += r * V[i, p]
                for q in range(k):
                    A[p, q] += V[i, p] * V[i, q]
        for p in range(k):
            for q in range(p + 1, k):
                f = A[q, p] / A[p, p]
                for c in range(p, k):
                    A[q, c] -= f * A[p, c]
                b[q] -= f * b[p]
        for p in range(k - 1, -1, -1):
            s = b[p]
            for q in range(p + 1, k):
                s -= A[p, q] * U[u, q]
            U[u, p] = s / A[p, p]


def sparse_matvec(data, indices, indptr, x, y):
    """A matrix of compressed rows times a vector."""
    for i in range(len(y)):
        s = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            s += data[p] * x[indices[p]]
        y[i] = s


def thomas(a, b, c, d, x, cp, dp):
    """Many tridiagonal systems by Thomas' algorithm; one to a row."""
    m, n = b.shape
    for s in range(m):
        cp[s, 0] = c[s, 0] / b[s, 0]
        dp[s, 0] = d[s, 0] / b[s, 0]
        for i in range(1, n):
            q = b[s, i] - a[s, i] * cp[s, i - 1]
            cp[s, i] = c[s, i] / q
            dp[s, i] = (d[s, i] - a[s, i] * dp[s, i - 1]) / q
        x[s, n - 1] = dp[s, n - 1]
        for i in range(n - 2, -1, -1):
            x[s, i] = dp[s, i] - cp[s, i] * x[s, i + 1]


def dominant(rng, n):
    return rng.random((n, n)) + n * np.eye(n)


def forward_data(rng, n):
    return {"L": np.tril(dominant(rng, n)), "b": rng.random(n), "x": np.zeros(n)}


def back_data(rng, n, m):
    return {"U": np.triu(dominant(rng, n)), "B": rng.random((n, m)), "X": np.zeros((n, m))}


def cholesky_data(rng, n):
    A = rng.normal(size=(n, n))
    return {"A": A @ A.T + n * np.eye(n), "L": np.zeros((n, n))}


def lu_data(rng, n):
    return {"A": dominant(rng, n)}


def schmidt_data(rng, n, d):
    return {"Q": rng.normal(size=(n, d)), "R": np.zeros((n, n))}


def seidel_data(rng, n):
    return {"A": dominant(rng, n), "b": rng.random(n), "x": np.zeros(n)}


def nmf_data(rng, n, m, rank):
    return {"V": rng.random((n, m)), "W": rng.random((n, rank)), "H": rng.random((rank, m)), "new": np.zeros((rank, m))}


def factors_data(rng, n, m, count, rank):
    rows, cols = rng.integers(0, n, count), rng.integers(0, m, count)
    data = st.Data.from_arrays(rows, cols, rng.normal(size=count), (n, m)).group_by(0)
    return {
        "rows": data,
        "U": rng.normal(size=(n, rank)) * 0.1,
        "V": rng.normal(size=(m, rank)) * 0.1,
        "lam": 0.1,
        "lr": 0.01,
    }


def exact_data(rng, n, m, count, rank):
    made = factors_data(rng, n, m, count, rank)
    del made["lr"]
    return made


def matvec_data(rng, n, degree):
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 2 * degree, n))])
    return {
        "data": rng.normal(size=indptr[-1]),
        "indices": rng.integers(0, n, indptr[-1]),
        "indptr": indptr,
        "x": rng.normal(size=n),
        "y": np.zeros(n),
    }


def thomas_data(rng, m, n):
    a, c, d = (rng.random((m, n)) for _ in range(3))
    return {
        "a": a,
        "b": rng.random((m, n)) + 3,
        "c": c,
        "d": d,
        "x": np.zeros((m, n)),
        "cp": np.zeros((m, n)),
        "dp": np.zeros((m, n)),
    }


SUBSTITUTION = CorpusLoop(
    forward_substitution,
    forward_data,
    (12,),
    (3000,),
    warns="serial=True",
)
SCHMIDT = CorpusLoop(
    gram_schmidt,
    schmidt_data,
    (7, 12),
    (200, 500),
    warns="serial=True",
)
SEIDEL = CorpusLoop(
    gauss_seidel_dense,
    seidel_data,
    (12,),
    (3000,),
    warns="serial=True",
)
LOOPS = (
    SUBSTITUTION,
    CorpusLoop(back_substitution, back_data, (12, 5), (400, 100)),
    CorpusLoop(cholesky, cholesky_data, (12,), (500,)),
    CorpusLoop(lu, lu_data, (12,), (400,)),
    SCHMIDT,
    SEIDEL,
    CorpusLoop(nmf, nmf_data, (9, 8, 3), (200, 150, 8)),
    CorpusLoop(nmf_columns, nmf_data, (9, 8, 3), (200, 150, 8)),
    CorpusLoop(als_gradient, factors_data, (12, 9, 50, 3), (5000, 3000, 300_000, 16), als_gradient_hand),
    CorpusLoop(
        als_exact,
        exact_data,
        (12, 9, 50, 3),
        (5000, 3000, 300_000, 16),
        tolerance=1e-8,
    ),
    CorpusLoop(als_elimination, exact_data, (12, 9, 50, 3), (5000, 3000, 300_000, 16), follows=True),
    CorpusLoop(sparse_matvec, matvec_data, (20, 4), (200_000, 10)),
    CorpusLoop(thomas, thomas_data, (5, 12), (2000, 200)),
)
