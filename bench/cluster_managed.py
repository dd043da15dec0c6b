"""Managed communication on a link that is really limited: cables of 100 Mbit in the laboratory, four machines.

Matrix factorisation (MovieLens-1M, rank 16, both factors served) and data-parallel LDA (AP, 100 topics) under SSP(2):
nothing but ends of clocks (BS), and managed at half the link with rows by random (R) and relative (RM) rank. Seconds to
the target are counted from the end of the first pass: before it, machines import and compile. "Most" is the most that a
machine sent in any second, by the kernel's counters of the data plane's ports; it should stay below 1.05 × the budget.

Then the same stratified factorisation in three placements: its item factor served block by block, read whole by all
(replicated), and rotating (the estimator; its blocks are cut finer).
"""

from __future__ import annotations

import math
from typing import Any

from . import report
from .bosen_common import said
from .laboratory import HOSTS, drive, laboratory

LINK, BUDGET, LIMIT = "100Mbit", "50Mbit", 6.25e6
TARGETS = {"ratings": -6.2e5, "corpus": -10.4}
MODES = (("BS", None, "random"), ("MC-50-R", BUDGET, "random"), ("MC-50-RM", BUDGET, "relative"))
SERVERS: dict[str, dict[str, Any]] = {
    "MF, adarevision": {"job": "ratings", "server": "adarevision", "rate": 0.2, "passes": 40},
    "MF, add": {"job": "ratings", "server": "add", "rate": 0.007, "decay": 0.98, "passes": 60},
    "LDA": {"job": "corpus", "passes": 40},
}


def reached(looks: list[list[float]], target: float) -> tuple[float, float]:
    """(passes, seconds from the end of the first one) until the objective is there; infinite if it never is."""
    for clock, seconds, _, objective in looks[1:]:
        if objective >= target:
            return clock, seconds - looks[1][1]
    return math.inf, math.inf


def convergence(lab: Any) -> list[list[object]]:
    """Each job under each mode."""
    rows: list[list[object]] = []
    for name, settings in SERVERS.items():
        options = dict(settings)
        job = options.pop("job")
        target = TARGETS[job]
        for mode, budget, rank in MODES:
            until = -target if job == "ratings" else target
            told = drive(lab, job, nodes=HOSTS, budget=budget, rank=rank, until=until, **options)
            passes, seconds = reached(told["looks"], target)
            most = max(told["kernel_most"])
            rows.append([
                name, mode, said(passes, 0), said(seconds, 2), f"{sum(told['kernel_bytes']) / 1e6:.1f}",
                f"{most / 1e6:.2f}", "–" if budget is None else f"{most / LIMIT:.2f}",
            ])  # fmt: skip
    return rows


def placements(lab: Any) -> list[list[object]]:
    """Stratified factorisation: bytes and time of a pass."""
    rows: list[list[object]] = []
    passes = 10
    for name, job, options in (
        ("served", "strata", {}),
        ("replicated", "strata", {"whole": True}),
        ("rotating", "rotation", {}),
    ):
        told = drive(lab, job, nodes=HOSTS, passes=passes, **options)
        rows.append([name, f"{told['took'] / passes:.3f}", f"{sum(told['kernel_bytes']) / passes / 1e6:.2f}"])
    return rows


def main() -> None:
    """Both tables."""
    with laboratory(link=LINK) as lab:
        first = report.table(
            ["job", "mode", "passes to target", "s to target", "MB sent", "most MB in a second", "of the budget"],
            convergence(lab),
        )
        second = report.table(["item factor", "s a pass", "MB a pass"], placements(lab))
    body = f"{first}\n\n{second}"
    report.save("cluster_managed", "Managed communication at 100 Mbit", report.text(__doc__), body, ["ray", "pyzmq"])


if __name__ == "__main__":
    main()
