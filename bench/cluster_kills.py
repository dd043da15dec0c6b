"""Fifty random `kill -9`s of node processes across ten jobs on the laboratory: do all finish, and at what cost?

Four machines with a share of the processors each; matrix factorisation by rotation and multiclass regression by BSP
tables in turn, about five kills in each, at random moments once it runs, also while another node is being replaced: a
kill comes 0.2 to 5 seconds after the one before. What a job was spared because it ended before, the next one gets. A
job counts as the same if its bits are those of an undisturbed run. $BENCH_JOBS=N: fewer jobs.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

from . import report
from .laboratory import HOSTS, laboratory

JOBS, KILLS = 10, 5
PLANS: dict[str, dict[str, Any]] = {"factorise": {"epochs": 240}, "regression": {"clocks": 240, "pause": 0.03}}


def main() -> None:
    """Ten jobs, a table."""
    from drivers import Driver, struck

    draw, jobs = random.Random(7), int(os.environ.get("BENCH_JOBS", JOBS))
    rows: list[list[object]] = []
    killed = 0
    lost: list[float] = []
    began = time.monotonic()
    with laboratory() as lab:
        driver = Driver(lab)
        calm = {job: driver.ask(job, nodes=HOSTS, timeout=200, **plan) for job, plan in PLANS.items()}
        for number in range(jobs):
            job = list(PLANS)[number % 2]
            wanted = KILLS * (number + 1) - killed
            found, kills = struck(lab, driver, job, wanted, draw, nodes=HOSTS, within=400, **PLANS[job])
            killed += kills
            same = found.get("digest") == calm[job]["digest"]
            lost.append(found["seconds"] - calm[job]["seconds"])
            end = "same bits" if same else found.get("error", "OTHER BITS")
            rows.append([number + 1, job, kills, f"{calm[job]['seconds']:.1f}", f"{found['seconds']:.1f}",
                         f"{lost[-1] / max(1, kills):.1f}", end])  # fmt: skip
            print(*rows[-1], flush=True)
        driver.close()
    body = report.table(
        ["job", "what", "kills", "s undisturbed", "s with kills", "s lost by each", "how it ended"], rows
    )
    same_bits = sum(row[-1] == "same bits" for row in rows)
    body += f"\n\n{killed} kills; {same_bits} of {jobs} jobs ended with the same bits. Seconds lost by a kill: "
    body += (
        f"{sum(lost) / max(1, killed):.1f} on average. All of it took {(time.monotonic() - began) / 60:.0f} minutes."
    )
    report.save("cluster_kills", "Kills on a cluster", report.text(__doc__), body, ["ray", "pyzmq"])


if __name__ == "__main__":
    main()
