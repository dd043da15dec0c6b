"""Prints a hash of what every kernel here computes; run it under several processor settings and compare.

NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES= python tests/isa_script.py
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from kernelrun import cut, run
from stretto.kernels.factorization import als, ccd, predict, topn
from stretto.kernels.factorization.fold_in import newton_worker
from stretto.kernels.numeric import lanes

f4 = np.float32
NO_PRIOR = np.zeros((0, 0), np.float32)
NO_BASE = (np.float32(0.0), np.float32(0.0))  # ridges that do not grow with the ratings
NONE = np.zeros(0, f4)


def problem(rows: int, cols: int, rank: int, seed: int = 0) -> dict[str, Any]:
    """Ratings in row and column order, with some rows and columns empty, and two factors."""
    random = np.random.default_rng(seed)
    dense = np.where(random.random((rows, cols)) < 0.4, np.round(random.random((rows, cols)) * 8 - 2) / 2, 0.0).astype(
        f4
    )
    dense[rows // 2] = 0
    dense[:, cols // 3] = 0
    found: dict[str, Any] = {"dense": dense}
    for name, table in (("csr", dense), ("csc", dense.T)):
        at = np.nonzero(table)
        counts = np.bincount(at[0], minlength=len(table))
        ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        found[name] = (ptr, at[1].astype(np.int32), np.ascontiguousarray(table[at]))
    found["rows"], found["cols"] = np.nonzero(dense)
    for name, n in (("X", rows), ("Y", cols)):
        found[name] = lanes.aligned((n, lanes.padded(rank)))
        found[name][:, :rank] = random.normal(size=(n, rank)) * 0.4
    return found


def gram_of(Y: Any, blocks: int = 3, way: str = "forwards") -> Any:
    """Yᵀ Y through the two kernels that make it."""
    partial = np.zeros((blocks, Y.shape[1], Y.shape[1]), f4)
    run(als.gram_worker, cut(len(Y), blocks), Y, partial, way=way)
    gram = np.zeros(partial.shape[1:], f4)
    als.fold_gram(partial, gram)
    return gram


def results(way: str = "forwards") -> list[Any]:
    """Every array that the kernels make from one small problem."""
    made: list[Any] = []
    for rows, cols, rank in ((37, 83, 20), (9, 5, 3)):
        p = problem(rows, cols, rank)
        X, Y, bounds = p["X"], p["Y"], cut(rows, 4)
        scratch = als.scratch(3, X.shape[1])
        gram, nothing = gram_of(Y, way=way), np.zeros((0, X.shape[1]), f4)
        offset = p["Y"][:, 0].copy()
        for g, own in ((nothing, 1), (gram, -1)):
            common = (*p["csr"], NONE, Y, g, offset, f4(1.5), f4(0.05), own, f4(0.3), f4(2.0), NO_PRIOR)
            for worker, more in ((als.cholesky_worker, (*NO_BASE, scratch)), (als.cg_worker, (3, scratch))):
                solved = X.copy()
                out = run(worker, bounds, *common[:4], solved, *common[4:], *more, way=way)
                made += [solved, out]
        model = (X, Y, X[:, 1].copy(), Y[:, 1].copy(), f4(1.5))
        made.append(run(als.squared_worker, bounds, *p["csr"], NONE, *model, way=way))
        made.append(run(als.implicit_worker, bounds, *p["csr"], X, Y, gram, f4(2.0), scratch, way=way))
        for loss in range(3):
            folded = np.zeros_like(X)
            out = run(
                newton_worker, bounds, *p["csr"], folded, Y, offset, f4(0.05), 1, f4(0.3), NO_PRIOR, loss, way=way
            )
            made += [folded, out]
        pairs = (p["rows"].astype(np.int32), p["cols"].astype(np.int32))
        predicted = np.zeros(len(pairs[0]), f4)
        chunks = cut(len(pairs[0]), 5)
        made += [run(predict.predict_worker, chunks, *pairs, *model, predicted, way=way), predicted]
        made += [run(predict.cost_worker, chunks, *pairs, p["csr"][2], *model, loss, way=way) for loss in range(3)]
        made += list(recommended(p, 6, way=way))
        made += list(swept(p, 2, way=way))
    return made


def recommended(
    p: dict[str, Any], n: int, way: str = "forwards", mask: Any = None, seen: bool = True
) -> tuple[Any, Any]:
    """ids and scores of the top n of every row of X, with Y's first column as bias."""
    X, Y = p["X"], p["Y"]
    panels, bias = topn.panels_for(*Y.shape)
    run(topn.pack_worker, cut(len(bias), 2), Y, Y[:, 0].copy(), panels, bias, way=way)
    ids, scores = np.empty((len(X), n), np.int32), np.empty((len(X), n), f4)
    allowed = topn.allowed_words(len(Y), mask)
    filtered = p["csr"][:2] if seen else (np.zeros(1, np.int64), np.zeros(0, np.int32))
    users = np.arange(len(X))
    args = (users, X, X[:, 0].copy(), panels, bias, *topn.NO_BOUNDS, allowed, *filtered, ids, scores)
    run(topn.recommend_worker, cut(len(X), 4), *args, way=way)
    return ids, scores


def swept(p: dict[str, Any], epochs: int, way: str = "forwards", inner: int = 2, reg: float = 0.05) -> tuple[Any, ...]:
    """CCD++ from the factors of the problem: U, V, both residuals, the loss by epoch."""
    rank = int(np.flatnonzero(p["Y"].any(axis=0)).max(initial=-1)) + 1
    U, V = ccd.to_columns(p["X"], rank), ccd.to_columns(p["Y"], rank)
    sides = []
    for name, W, H in (("csr", p["X"], p["Y"]), ("csc", p["Y"], p["X"])):
        ptr, idx, values = p[name]
        residual = np.empty_like(values)
        run(ccd.residual_worker, cut(len(W), 4), ptr, idx, values, W, H, NONE, NONE, f4(0), residual, way=way)
        sides.append((cut(len(W), 4), ptr, idx, residual))
    (rows, cols), ridge, losses = sides, (f4(reg), True), []
    for _ in range(epochs):
        last_u, last_v = np.zeros(U.shape[1], f4), np.zeros(V.shape[1], f4)
        for u, v in zip(U, V, strict=True):
            old_u = u.copy()
            run(ccd.turn_worker, *rows, u, v, v, last_u, last_v, *ridge, way=way)
            run(ccd.turn_worker, *cols, v, u, old_u, last_v, last_u, *ridge, way=way)
            for _ in range(inner - 1):
                run(ccd.sweep_worker, *rows, u, v, *ridge, way=way)
                run(ccd.sweep_worker, *cols, v, u, *ridge, way=way)
            last_u, last_v = u, v
        losses.append(run(ccd.settle_worker, *rows, last_u, last_v, way=way).sum())
        run(ccd.settle_worker, *cols, last_v, last_u, way=way)
    return U, V, rows[3], cols[3], np.array(losses)


def digest(arrays: list[Any]) -> str:
    """One hash over all bits."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


if __name__ == "__main__":
    print(digest(results()))
