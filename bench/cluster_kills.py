"""Fifty random `kill -9`s of node processes across ten jobs on the laboratory: do all finish, and at what cost?

Four machines with a share of the processors each; matrix factorisation by rotation and multiclass regression by BSP
tables in turn, about five kills in each, at random moments once it runs, also while another node is being replaced: a
kill comes 0.2 to 5 seconds after the one before. What a job was spared because it ended before, the next one gets. A
job counts as the same if its bits are those of an undisturbed run. $BENCH_JOBS=N: fewer jobs.

`--programs`: a program by rounds whose parts have states, and paths of Lassos whose columns are on the nodes, instead.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Sequence
from typing import Any

from . import report
from .laboratory import HOSTS, laboratory

JOBS, KILLS = 10, 5
PLANS: dict[str, dict[str, Any]] = {"factorise": {"epochs": 240}, "regression": {"clocks": 240, "pause": 0.03}}
PROGRAMS: dict[str, dict[str, Any]] = {"program": {"rounds": 600, "pause": 0.001}, "lasso": {"steps": 100}}


def main(argv: Sequence[str] = ()) -> None:
    """Ten jobs, a table."""
    from drivers import Driver, struck

    parser = argparse.ArgumentParser(prog="python -m bench cluster_kills", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--programs", action="store_true", help="programs and linear models")
    programs = parser.parse_args(list(argv)).programs
    plans = PROGRAMS if programs else PLANS

    draw, jobs = random.Random(7), int(os.environ.get("BENCH_JOBS", JOBS))
    rows: list[list[object]] = []
    killed = 0
    lost: list[float] = []
    began = time.monotonic()
    with laboratory() as lab:
        driver = Driver(lab)
        calm = {job: driver.ask(job, nodes=HOSTS, timeout=200, **plan) for job, plan in plans.items()}
        for number in range(jobs):
            job = list(plans)[number % 2]
            wanted = KILLS * (number + 1) - killed
            found, kills = struck(lab, driver, job, wanted, draw, nodes=HOSTS, within=400, **plans[job])
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
    name, title = ("program_kills", "Kills of programs") if programs else ("cluster_kills", "Kills on a cluster")
    command = "cluster_kills --programs" if programs else "cluster_kills"
    report.save(name, title, report.text(__doc__), body, ["ray", "pyzmq"], command)


if __name__ == "__main__":
    main()
