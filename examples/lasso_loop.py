"""The Lasso by coordinate descent: an ordinary loop over the columns, and a schedule that says which come next.

python examples/lasso_loop.py                          generated data, under three schedules

The loop says what happens to one column. In plain Python it goes through all of them, again and again; most are zero
and stay zero. A schedule that learns how far each coefficient moved spends its visits where something still happens,
and walks over all the others with half of its rounds. The loop itself is the same.

The columns of a round share the residual, so they are visited one after the other and see each other's changes. That is
why nobody has to check which columns are alike (`conflicts=None`). With `st.buffer(r)` they would run in parallel
without seeing each other, and then it matters.
"""

import numpy as np

import stretto as st

PRIORITISED = st.schedule.prioritised(width=32, conflicts=None, floor=0.5)


@st.parallel(schedule=PRIORITISED)
def sweep(columns, r, beta, lam):
    for j, (norm, column) in columns:
        slope = 0.0
        for i, x in column:
            slope += x * r[i]
        old = beta[j]
        z = slope + norm * old
        new = 0.0
        if abs(z) > lam:
            new = (z - lam) / norm if z > 0 else (z + lam) / norm
        if new != old:
            for i, x in column:
                r[i] -= x * (new - old)
            beta[j] = new


def gap(X, y, r, beta, lam):
    """How far the objective is at most above the best there is, as a share of |y|²/2."""
    dual = r * min(1.0, lam / np.abs(X.T @ r).max())
    return (r @ r / 2 + lam * np.abs(beta).sum() - y @ dual + dual @ dual / 2) / (y @ y / 2)


def fit(X, y, lam, loop=sweep, tolerance=1e-6, calls=200):
    """The coefficients, and how many columns were visited."""
    columns = st.samples(X.T, np.einsum("ij,ij->j", X, X))  # one record for each column: |x|² and its entries
    r, beta, visits = y.astype(float), np.zeros(X.shape[1]), 0
    for _ in range(calls):
        loop(columns, r, beta, lam)
        visits += sum(len(jobs) for jobs in loop.rounds)
        if gap(X, y, r, beta, lam) < tolerance:
            break
    return beta, visits


def generate(n=300, p=2000, relevant=30, alike=0.5, seed=0):
    """Sparse columns, and a response that a few of them make, which have something in common."""
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((n, p)) * (draw.random((n, p)) < 0.2)
    chosen = draw.choice(p, relevant, replace=False)
    common = draw.standard_normal((n, 1)) * (draw.random((n, 1)) < 0.2)
    X[:, chosen] = np.sqrt(1 - alike**2) * X[:, chosen] + alike * common
    return X, X[:, chosen] @ draw.uniform(1, 3, relevant) + 0.1 * draw.standard_normal(n)


if __name__ == "__main__":
    X, y = generate()
    lam = np.abs(X.T @ y).max() / 50
    for schedule in (st.schedule.cyclic(width=32), st.schedule.random(width=32), PRIORITISED):
        beta, visits = fit(X, y, lam, sweep.using(schedule=schedule))
        print(f"{visits:7,} columns visited, {np.count_nonzero(beta)} coefficients: {schedule.explain()}")
