"""Matrix factorization by alternating least squares, as a task of two units that take turns.

python examples/als_stages.py                 generated ratings
python examples/als_stages.py ratings.dat     a file of yours, in any format that `st.read` knows

A part of `solve` owns a range of users (or items) with about as many ratings as any other part has, and solves for the
factors of each of them exactly. `partition=` keeps the factors that a part solves for on the node of the part: they are
read and written there, and only factors of the other side travel. The last lines compare the bytes that simulated nodes
send each other.
"""

import sys

import numpy as np

import stretto as st

PARTS = 16


class Side:
    """The users, or the items: which of them a part owns, and the ratings of these."""

    def __init__(self, ids, others, values, count):
        self.counts = np.bincount(ids, minlength=count)
        order = np.argsort(ids, kind="stable")
        self.others, self.values = others[order], values[order]
        self.first = np.concatenate([[0], np.cumsum(self.counts)])  # of each row: where its ratings begin
        share = np.linspace(0, len(ids), PARTS + 1)
        self.bounds = np.searchsorted(self.first, share)  # rows of part k: bounds[k] to bounds[k + 1]
        self.bounds[0], self.bounds[-1] = 0, count

    def read(self, part, parts):
        """The ratings of a part's rows: how many each has, by whom, and the values."""
        rows = np.arange(self.bounds[part], self.bounds[part + 1])
        at = slice(self.first[self.bounds[part]], self.first[self.bounds[part + 1]])
        return rows, self.counts[rows], self.others[at], self.values[at]

    def partition(self, rows, nodes):
        """The node of each row: that of the part which owns it. Parts are on the nodes in their order."""
        part = np.clip(np.searchsorted(self.bounds, rows, "right") - 1, 0, PARTS - 1)
        return part * nodes // PARTS


def solve(worker, ratings, mine, other, lam):
    """Solve for the factors of the part's rows; the value is the squared error before."""
    rows, counts, others, values = ratings
    needed, where = np.unique(others, return_inverse=True)
    fixed, old = other.read(needed), mine.read(rows)
    new, error, rank, end = np.zeros_like(old), 0.0, old.shape[1], np.cumsum(counts)
    for k in np.flatnonzero(counts):
        at = slice(end[k] - counts[k], end[k])
        F, r = fixed[where[at]], values[at]
        error += float(((r - F @ old[k]) ** 2).sum())
        new[k] = np.linalg.solve(F.T @ F + lam * counts[k] * np.eye(rank), F.T @ r)
    mine.add(rows, new - old)
    worker.work(float(counts.sum()) * rank)
    return error


def start(shape, rank):
    """The first factors; those of users are solved for first, so that only those of items matter."""
    return st.zeros((shape[0], rank), "f8"), st.random((shape[1], rank), scale=1.0, seed=1, dtype="f8")


def train(ratings, rank=16, lam=0.05, turns=10, runtime=None, custom=True):
    """Train; returns the factors, and the result of the task. custom: factors are with the parts that own them."""
    users = Side(ratings.rows, ratings.cols, ratings.values.astype("f8"), ratings.shape[0])
    items = Side(ratings.cols, ratings.rows, ratings.values.astype("f8"), ratings.shape[1])
    W, H = start(ratings.shape, rank)

    def unit(name, side, mine, other_side, other):
        partition = {"mine": side.partition, "other": other_side.partition} if custom else None
        return st.unit(solve, st.source(side.read), mine, other, lam, parts=PARTS, partition=partition, name=name)

    turn = st.seq(unit("users", users, W, items, H), unit("items", items, H, users, W))
    return W, H, st.run(st.loop(turn, times=turns), runtime=runtime)


def main():
    """Train on threads, then compare the bytes on simulated nodes."""
    ratings = st.read(sys.argv[1]) if len(sys.argv) > 1 else st.generate_ratings(200_000, 8_000, 3_000).data
    _, _, result = train(ratings)
    for turn, error in enumerate(result.history("items")):
        print(f"turn {turn}: RMSE {np.sqrt(error / len(ratings)):.4f}")
    for custom in (True, False):
        result = train(ratings, turns=2, runtime=st.Simulated(nodes=4, threads=4), custom=custom)[2]
        sent = sum(stage.sent + stage.moved for stage in result.stages)
        print(f"{'factors with their parts' if custom else 'even shares'}: {sent / 1e6:.1f} MB sent in two turns")


if __name__ == "__main__":
    main()
