"""Predicted and measured: three jobs over tables on `st.Simulated` and on the laboratory's four machines, 1 Gbit.

No cost is fitted to these jobs' times. What an item of each costs is the CPU time of workers' threads, measured on four
plain processes of this machine. What a message, a byte and waking a thread cost is measured once for all, by a job that
does nothing but communicate, on the laboratory (`bench.cluster_costs`). A machine of the laboratory has 0.4 processors,
which leaves some for Ray and the driver: CPU costs are divided by it. Nobody looks at the objective meanwhile, which
would take processors away that the simulator knows nothing of. The time of a pass is that between the ends of a third
of the passes and of the last. CPU: what a machine's process used in a pass, and how much of that was the worker's
thread.

The way of measuring was changed three times after seeing ratios; each is told below the table.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from . import report
from .cluster_costs import Costs, item, pace
from .cluster_jobs import JOBS
from .laboratory import HOSTS, drive, laboratory

PLANS: dict[str, dict[str, Any]] = {"pictures": {"passes": 30}, "ratings": {"passes": 30}, "corpus": {"passes": 21}}
CPUS = 0.4
EARLIER = """

Earlier ways, regression, factorisation, LDA, as predicted / measured:

- an item by a serial run on a machine of the laboratory, a message at the default 15 µs and 1 ns a byte: 0.15, 1.40,
  1.49 (on a computer that others used);
- an item by all workers on one process, messages by two processes (131 µs, 4.2 ns a byte), 0.5 processors, the driver
  computing the objective after every pass: 0.99, 0.40, 0.56;
- the same with 0.4 processors and no objective (150 µs, 2.9 ns): 0.57, 0.69, 0.61. Processes then used 48, 35 and 74 ms
  of CPU a pass where the costs gave 31, 26 and 49: the processors were busy, and the costs too low;
- an item by workers' threads and messages by four processes (106 µs, 2.5 ns): 1.18, 0.65, 0.72. The regression's items
  were three to four times too dear, most likely because matrix products had two threads there; here one."""
TITLES = {"pictures": "regression, BSP", "ratings": "factorisation, SSP(2)", "corpus": "LDA, SSP(2)"}


def costs_of(lab: Any) -> Costs:
    """What messages cost on the laboratory's machines."""
    done = lab.run([sys.executable, "-m", "bench.cluster_costs"], timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"the costs of messages could not be measured:\n{done.stdout[-3000:]}")
    found = json.loads(lines[-1])
    return Costs(tuple(found["message"]), found["latency"])


def main() -> None:
    """A row for each job."""
    items = {job: item(JOBS[job], options, HOSTS) for job, options in PLANS.items()}
    rows: list[list[object]] = []
    with laboratory() as lab:
        lab.cpus = CPUS
        lab.share()
        costs = costs_of(lab)
        measured = {
            job: drive(lab, job, nodes=HOSTS, every=options["passes"], **options) for job, options in PLANS.items()
        }
    for job, options in PLANS.items():
        foreseen = JOBS[job](
            where="simulated",
            nodes=HOSTS,
            link="1Gbit",
            latency=costs.latency,
            seconds_per_item=items[job] / CPUS,
            message_cost=tuple(part / CPUS for part in costs.message),
            **options,
        )
        passes, told = options["passes"], measured[job]
        found = pace(told["ends"], passes)
        predicted = pace([look[1] for look in foreseen["looks"][1:]], passes)
        spent = [1e3 * each * len(told["ends"]) / passes for each in told["spent"]]
        rows.append([
            TITLES[job], f"{items[job] * 1e6:.3f}", f"{predicted * 1e3:.0f}", f"{found * 1e3:.0f}",
            f"{predicted / found:.2f}", f"{spent[0]:.0f} ({spent[1]:.0f})",
        ])  # fmt: skip
    head = ["job", "µs an item", "predicted ms a pass", "measured", "predicted / measured", "ms of CPU (the thread's)"]
    body = report.table(head, rows)
    per_message, per_byte = costs.message
    body += (
        f"\n\nA message costs {per_message * 1e6:.0f} µs and {per_byte * 1e9:.1f} ns a byte of a processor at either "
        f"end; from node to node it takes {costs.latency * 1e6:.0f} µs beside that. A machine has {CPUS:g} processors."
    )
    body += EARLIER
    report.save(
        "cluster_calibration", "The simulator beside the laboratory", report.text(__doc__), body, ["ray", "pyzmq"]
    )


if __name__ == "__main__":
    main()
