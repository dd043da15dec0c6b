"""Matrix factorization over parameter tables: item factors are shared, user factors stay with their worker.

python examples/tables_mf.py                     generated ratings
python examples/tables_mf.py ratings.dat         a file of yours, in any format that `st.read` knows

Every worker has the ratings of some users. It reads the rows of the items in a batch, computes gradients, and adds them
to the table, whose server function turns them into steps that allow for what others did meanwhile (AdaRevision). The
last run is the same on a simulated cluster of four machines.
"""

import sys

import numpy as np

import stretto as st


def by_user(ratings):
    """The ratings, those of a user next to each other, so that an even cut gives a worker whole stretches of users."""
    return ratings.take(np.argsort(ratings.rows, kind="stable"))


def train(ratings, rank=16, workers=4, epochs=8, batch=500, rate=0.1, lam=0.02, seed=0, **where):
    ratings, mean = by_user(ratings), float(ratings.values.mean())
    users, items = ratings.shape

    def start(n, scale=0.3):
        return np.random.default_rng(seed).uniform(-scale, scale, (n, rank)).astype("f4")

    def worker(w):
        H = w.table("items")
        W = w.local.setdefault("W", start(users))  # only the rows of its own users are ever touched
        z = w.local.setdefault("z", np.ones((users, rank), "f4"))
        for _ in w.clocks(epochs):
            for part in w.batches(ratings, batch):
                columns, at = np.unique(part.cols, return_inverse=True)
                h, u = H.read(columns)[at], W[part.rows]
                e = (part.values - mean - (u * h).sum(axis=1))[:, None]
                gradient = np.zeros((len(columns), rank), "f4")
                np.add.at(gradient, at, lam * h - e * u)
                H.add(columns, gradient)
                step = lam * u - e * h
                np.add.at(z, part.rows, step * step)
                np.subtract.at(W, part.rows, rate / np.sqrt(z[part.rows]) * step)

    def rmse(view):
        bounds = [k * len(ratings) // workers for k in range(workers + 1)]
        squares = 0.0
        for k, local in enumerate(view.local):
            part = slice(bounds[k], bounds[k + 1])
            W = local.get("W", start(users))
            fitted = (W[ratings.rows[part]] * view["items"][ratings.cols[part]]).sum(axis=1)
            squares += float(((ratings.values[part] - mean - fitted) ** 2).sum())
        return (squares / len(ratings)) ** 0.5

    tables = {"items": st.tables.Table(rows=items, cols=rank, start=start(items), apply=st.tables.adarevision(rate))}
    result = st.run(worker, workers=workers, tables=tables, watch=rmse, seed=seed, **where)
    last = result.history[-1]
    print(f"clock {last.clock}: RMSE {last.objective:.4f}, {last.seconds:.2f} s, {last.bytes / 1e6:.1f} MB sent")
    return result


if __name__ == "__main__":
    data = st.read(sys.argv[1]) if len(sys.argv) > 1 else st.generate_ratings(100_000, 2_000, 500, rank=4).data
    train(data, sync=st.BSP())
    train(data, sync=st.SSP(2))
    cluster = st.Simulated(nodes=4, threads=1, link="100Mbit", seconds_per_item=2e-6)
    train(data, sync=st.SSP(2), comm=st.tables.Managed("20Mbit"), runtime=cluster)
