"""Jobs on processes that never end by themselves, for tests that press Ctrl-C: python sigint_script.py KIND."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import stretto as st


def epoch(ratings: Any, W: Any, H: Any) -> None:
    for (i, j), value in ratings:
        error = value - W[i] @ H[j]
        new = W[i] + 0.01 * error * H[j]
        H[j] = H[j] + 0.01 * error * W[i]
        W[i] = new


def worker(w: Any) -> None:
    for clock in w.clocks(10**9):
        if clock == 5:
            print("in its sixth clock")
        w.table("x").add([w.number], [1.0])
        w.table("x").read()


def main(kind: str) -> None:
    data = st.generate_ratings(20_000, 300, 200).data
    runtime = st.Cluster("processes", nodes=2)
    loop = st.parallel(runtime=runtime)(epoch)
    W, H = np.ones((300, 4), np.float32), np.ones((200, 4), np.float32)
    print("begun", flush=True)
    while True:
        if kind == "factorise":
            st.MatrixFactorization(n_components=4, max_iter=20, random_state=0, runtime=runtime).fit(data)
        elif kind == "loop":
            loop(data, W, H)
        else:
            result = st.run(worker, workers=2, tables={"x": st.tables.Table(rows=2)}, runtime=runtime)
            if result.stopped == "interrupted":
                raise KeyboardInterrupt
        print("round", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
