"""Stop 2: which worker took which block of the ratings, and when, as it really happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st
from stretto.observe.events import Event, PassDone, PlanMade

from .stop import Shown

WORKERS, RANK = 4, 64


def rotation_stop(folder: Path) -> Shown:
    """Fit a factorisation on four threads, and draw the last epoch."""
    ratings = st.generate_ratings(400_000, 3_000, 2_000, rank=4, noise=0.3, seed=1).data
    heard: dict[str, Any] = {}

    def listen(event: Event) -> None:
        if isinstance(event, PlanMade):
            heard["blocks"] = event.blocks
        elif isinstance(event, PassDone) and event.visits is not None:
            heard["visits"] = event.visits

    record = folder / "rotation"
    session = st.Session(record=record, listeners=[listen])
    runtime = st.Threads(WORKERS)
    model = st.MatrixFactorization(RANK, max_iter=3, width=WORKERS, random_state=0, runtime=runtime)
    model.fit(ratings, session=session)
    blocks, visits = np.asarray(heard["blocks"]), np.asarray(heard["visits"])
    clashes, together = _overlaps(blocks, visits)
    count = int(blocks[:, 0].max()) + 1
    picture = _grid(blocks, visits)
    says = (
        f"The ratings are cut into {count} × {count} blocks. Two blocks of one line share users, and two of one column "
        "share items, so they may not run together. "
        f"In the epoch that is drawn {together} pairs of visits overlapped in time, and {clashes} of these pairs "
        "shared a line or a column. There is no barrier: a worker takes the next block as soon as its users and items "
        "are free."
    )
    facts = {"blocks": len(blocks), "pairs_at_once": together, "clashes": clashes, "fingerprint": model.fingerprint_}
    return Shown(picture, says, facts, record)


def _overlaps(blocks: NDArray[Any], visits: NDArray[Any]) -> tuple[int, int]:
    """(pairs of visits at one time that share a row or column block, pairs at one time)."""
    start, end = visits[:, 2], visits[:, 3]
    at_once = (start[:, None] < end[None, :]) & (start[None, :] < end[:, None])
    at_once &= np.triu(np.ones_like(at_once), 1)
    of = blocks[visits[:, 0].astype(np.int64)]
    share = (of[:, None, 0] == of[None, :, 0]) | (of[:, None, 1] == of[None, :, 1])
    return int((at_once & share).sum()), int(at_once.sum())


def _grid(blocks: NDArray[Any], visits: NDArray[Any]) -> str:
    """The grid of blocks: the worker of each as a letter, and its place in the order as a number."""
    rows, cols = blocks.max(axis=0) + 1
    order = {int(visit): k + 1 for k, visit in enumerate(visits[np.argsort(visits[:, 2], kind="stable"), 0])}
    of = {int(visit): int(worker) for visit, worker in visits[:, :2]}
    cell = {(int(r), int(c)): k for k, (r, c) in enumerate(blocks)}
    lines = ["  worker (A, B, …) and place in time of each block; lines are users, columns are items", ""]
    for r in range(rows):
        known = [cell.get((r, c)) for c in range(cols)]
        texts = ["" if k is None or k not in of else f"{chr(65 + of[k])}{order[k]}" for k in known]
        lines.append("  " + " ".join(f"{text:>4}" for text in texts))
    return "\n".join(lines)
