"""Stop 5: a node is killed in the middle of a fit, and the result has the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import stretto as st

from .stop import Shown, bars

AT, BACK, DETECT = 0.02, 0.05, 0.01  # virtual seconds


def crash_stop(folder: Path) -> Shown:
    """Fit a factorisation on four simulated nodes, undisturbed and with a node that crashes."""
    ratings = st.generate_ratings(60_000, 800, 600, rank=4, noise=0.3, seed=1).data
    record = folder / "crash"
    expected, _ = _fit(ratings, st.Serial(), None)
    calm, undisturbed = _fit(ratings, _cluster(()), None)
    killed, report = _fit(ratings, _cluster((st.faults.Crash(1, at=AT, back_after=BACK),)), record)
    same = all(
        np.array_equal(one.user_factors_, expected.user_factors_)
        and np.array_equal(one.item_factors_, expected.item_factors_)
        for one in (calm, killed)
    )
    losses = int(len(report.losses) if hasattr(report.losses, "__len__") else report.losses)
    picture = bars(
        [
            ("undisturbed", undisturbed.seconds, f"{undisturbed.seconds * 1e3:.0f} ms"),
            ("node 1 killed", report.seconds, f"{report.seconds * 1e3:.0f} ms, {losses} node lost"),
        ]
    )
    says = (
        f"After {AT * 1e3:.0f} ms of virtual time node 1 of 4 loses all that it has in memory (the cluster is "
        "simulated; the driver and its messages are those of a real one). "
        f"The others notice after {DETECT * 1e3:.0f} ms, the node is back after {BACK * 1e3:.0f} ms, and all go on "
        "from what was saved last. The factors are "
        + ("bit for bit those of a serial run without a fault." if same else "other ones, which is a defect.")
    )
    facts = {"same_bits": same, "losses": losses, "seconds": undisturbed.seconds, "seconds_killed": report.seconds}
    return Shown("  virtual time of a fit on 4 nodes\n\n" + picture, says, facts, record)


def _cluster(faults: tuple[Any, ...]) -> Any:
    return st.Simulated(nodes=4, threads=2, seconds_per_item=1e-6, faults=faults, detect=DETECT)


def _fit(ratings: Any, runtime: Any, record: Path | None) -> tuple[Any, Any]:
    """(model, report of the simulation)."""
    model = st.MatrixFactorization(8, max_iter=4, width=4, random_state=0, runtime=runtime)
    model.fit(ratings, session=None if record is None else st.Session(record=record))
    return model, getattr(runtime, "report", None)
