"""Shortest paths between all pairs of nodes, by Floyd and Warshall.

python examples/shortest_paths.py                      300 nodes
python examples/shortest_paths.py 800                  as many as you like

Round k allows paths through node k. In a round an element is compared with one of its row and one of its column, so
blocks that share neither run together; a block of the next round starts as soon as its row and its column are done.
The distances are those of the loop as it is written, to the last bit.
"""

import sys
import time

import numpy as np

import stretto as st


@st.parallel
def shortest_paths(D):
    n = len(D)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                D[i, j] = min(D[i, j], D[i, k] + D[k, j])


def generate(n, roads=4, seed=0):
    """Distances of a random network of towns: infinite where no road is."""
    draw = np.random.default_rng(seed)
    places = draw.random((n, 2))
    D = np.full((n, n), np.inf)
    np.fill_diagonal(D, 0.0)
    for i in range(n):
        apart = np.linalg.norm(places - places[i], axis=1)
        near = np.argsort(apart)[1 : roads + 1]
        D[i, near] = D[near, i] = apart[near]
    return D


if __name__ == "__main__":
    D = generate(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
    shortest_paths(generate(40))  # compiles
    start = time.perf_counter()
    shortest_paths(D)
    print(f"{time.perf_counter() - start:.2f} s; the longest shortest path is {D[np.isfinite(D)].max():.3f}")
