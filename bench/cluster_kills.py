"""Fifty random `kill -9`s of node processes across ten jobs on the laboratory: do all finish, and at what cost?

Four machines with a share of the processors each; matrix factorisation by rotation and multiclass regression by BSP
tables in turn, five kills in each, at random moments once it runs, also while another node is being replaced. A job
counts as the same if its bits are those of an undisturbed run.
"""

from __future__ import annotations

import random
from typing import Any

from . import report
from .laboratory import HOSTS, laboratory

JOBS, KILLS = 10, 5
PLANS: dict[str, dict[str, Any]] = {"factorise": {"epochs": 240}, "regression": {"clocks": 240, "pause": 0.03}}


def main() -> None:
    """Ten jobs, a table."""
    from drivers import Driver, struck

    draw = random.Random(7)
    rows: list[list[object]] = []
    with laboratory() as lab:
        driver = Driver(lab)
        calm = {job: driver.ask(job, nodes=HOSTS, timeout=200, **plan) for job, plan in PLANS.items()}
        for number in range(JOBS):
            job = list(PLANS)[number % 2]
            found, kills = struck(lab, driver, job, KILLS, draw, nodes=HOSTS, within=400, **PLANS[job])
            same = found.get("digest") == calm[job]["digest"]
            lost = found["seconds"] - calm[job]["seconds"]
            end = "same bits" if same else found.get("error", "OTHER BITS")
            rows.append([number + 1, job, kills, f"{calm[job]['seconds']:.1f}", f"{found['seconds']:.1f}",
                         f"{lost / max(1, kills):.1f}", end])  # fmt: skip
            print(*rows[-1], flush=True)
        driver.close()
    total = sum(int(str(row[2])) for row in rows)
    body = report.table(
        ["job", "what", "kills", "s undisturbed", "s with kills", "s lost by each", "how it ended"], rows
    )
    body += f"\n\n{total} kills; {sum(row[-1] == 'same bits' for row in rows)} of {JOBS} jobs ended with the same bits."
    report.save("cluster_kills", "Kills on a cluster", report.text(__doc__), body, ["ray", "pyzmq"])


if __name__ == "__main__":
    main()
