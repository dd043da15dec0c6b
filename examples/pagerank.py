"""PageRank: a page is worth what the pages that link to it hand on.

python examples/pagerank.py                            a generated web
python examples/pagerank.py links.tsv                  a file of yours: on each line from, to, counted from 0

Each iteration writes the rank of one page and reads those of the sweep before, so all of them may run together.
"""

import sys

import numpy as np

import stretto as st


@st.parallel
def sweep(pages, share, rank, damping, rest, change):
    for p, sources in pages:
        worth = 0.0
        for q, weight in sources:
            worth += weight * share[q]
        new = rest + damping * worth
        change += abs(new - rank[p])
        rank[p] = new


def pagerank(links, damping=0.85, tolerance=1e-10, sweeps=100):
    n = max(links.shape)
    pages = st.Data.from_arrays(links.rows, links.cols, links.values, (n, n)).group_by(1)  # with their sources
    out = np.bincount(links.rows, links.values, minlength=n)
    rank, change = st.full(n, 1 / n, "f8"), st.accumulator(0.0)
    for t in range(sweeps):
        lost = rank[out == 0].sum()  # pages without links hand their rank to everybody
        change.reset()
        sweep(pages, rank / np.where(out, out, 1), rank, damping, (1 - damping + damping * lost) / n, change)
        print(f"sweep {t + 1:2}: change {change.get():.2e}")
        if change.get() < tolerance:
            break
    return rank


def generate(count=200_000, pages=20_000, seed=0):
    draw = np.random.default_rng(seed)
    linked = (pages * draw.random((2, count)) ** [[1], [3]]).astype(int)  # the first pages are popular
    pairs = np.unique(linked, axis=1)
    return st.Data.from_arrays(*pairs, np.ones(len(pairs.T)))


if __name__ == "__main__":
    file = {"columns": (0, 1), "raw_ids": True, "duplicates": "first"}
    rank = pagerank(st.read(sys.argv[1], **file) if len(sys.argv) > 1 else generate())
    print("first:", np.argsort(-rank.array)[:5])
