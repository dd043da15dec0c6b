"""Predicted and measured: three jobs over tables on `st.Simulated` and on the laboratory's four machines, 1 Gbit.

What an item costs is measured by the same job run serially on one machine of the laboratory, with its share of the
processors; handling a message costs what the simulator assumes, divided by that share. Nothing is fitted. The time of a
pass is that between the looks after a third of the passes and after the last.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from stretto.runtime.simulated.spec import MESSAGE_COST

from . import report
from .cluster_jobs import JOBS
from .laboratory import HOSTS, drive, laboratory

PLANS: dict[str, dict[str, Any]] = {"pictures": {"passes": 30}, "ratings": {"passes": 30}, "corpus": {"passes": 21}}
TITLES = {"pictures": "regression, BSP", "ratings": "factorisation, SSP(2)", "corpus": "LDA, SSP(2)"}


def pace(looks: list[list[float]]) -> float:
    """Seconds of a pass, the first third left out."""
    first = len(looks) // 3
    return (looks[-1][1] - looks[first][1]) / (len(looks) - 1 - first)


def alone(lab: Any, job: str, options: dict[str, Any]) -> dict[str, Any]:
    """The job run serially on one machine, with its share of the processors."""
    code = [sys.executable, "-m", "bench.cluster_jobs", job, json.dumps({**options, "where": "serial", "nodes": HOSTS})]
    done = lab.run(code, host=1, timeout=400)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    """A row for each job."""
    rows: list[list[object]] = []
    with laboratory() as lab:
        for job, options in PLANS.items():
            serial = alone(lab, job, options)
            passes = len(serial["looks"]) - 1
            item = pace(serial["looks"]) * passes / serial["items"]
            told = drive(lab, job, nodes=HOSTS, **options)
            cost = tuple(part / lab.cpus for part in MESSAGE_COST)
            foreseen = JOBS[job](
                where="simulated", nodes=HOSTS, link="1Gbit", seconds_per_item=item, message_cost=cost, **options
            )
            measured, predicted = pace(told["looks"]), pace(foreseen["looks"])
            rows.append([
                TITLES[job], f"{item * 1e6:.2f}", f"{predicted * 1e3:.0f}", f"{measured * 1e3:.0f}",
                f"{predicted / measured:.2f}",
            ])  # fmt: skip
    body = report.table(["job", "µs an item", "predicted ms a pass", "measured", "predicted / measured"], rows)
    report.save(
        "cluster_calibration", "The simulator beside the laboratory", report.text(__doc__), body, ["ray", "pyzmq"]
    )


if __name__ == "__main__":
    main()
