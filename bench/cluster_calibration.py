"""Predicted and measured: three jobs over tables on `st.Simulated` and on the laboratory's four machines, 1 Gbit.

No cost is fitted to these jobs' times. All costs are CPU time of a node's process, measured on the laboratory by other
runs (`bench.cluster_costs`). What an item costs: every machine for itself, with its worker's share of the data and
nothing that travels. What a message, a byte and waking a thread cost: a job that does nothing but read and add rows of
16 numbers, or of 100 counts of which 4 change (for LDA), together less alone. A machine has 0.4 processors, which
leaves some for Ray and the driver, and a busy process gets the share of them that was measured beside; CPU costs are
divided by it. The objective is not evaluated meanwhile. The time of a pass is that between the ends of a third of the
passes and of the last. CPU: what a machine's process used in a pass, and in brackets what the costs say, for items and
for messages.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from . import report
from .cluster_costs import measure, on_each, pace
from .cluster_jobs import JOBS
from .laboratory import HOSTS, drive, laboratory

PLANS: dict[str, dict[str, Any]] = {"pictures": {"passes": 24}, "ratings": {"passes": 24}, "corpus": {"passes": 15}}
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
  were three to four times too dear, most likely because matrix products had two threads there;
- the same with one thread (120 µs, 4.4 ns): 0.74, 0.55, 0.52. Machines' processes used 1.4 to 1.8 times the CPU time
  that the costs gave. So all costs are measured on the laboratory now, with every machine busy and memory gone through
  between clocks; which of these it was that mattered was not taken apart. That sparse rows have a cost of their own was
  decided when runs that did not end (others used the computer) let LDA be guessed at two thirds of what it takes."""
KINDS = {"pictures": "dense", "ratings": "dense", "corpus": "sparse"}
TITLES = {"pictures": "regression, BSP", "ratings": "factorisation, SSP(2)", "corpus": "LDA, SSP(2)"}


def item_of(lab: Any, job: str, options: dict[str, Any]) -> float:
    """CPU seconds of an item: what a process spends on its worker's share where nothing travels."""
    alone = {"address": "processes", "nodes": HOSTS, "every": options["passes"], **options}
    told = on_each(lab, ["-m", "bench.cluster_jobs", job, json.dumps(alone)[:-1] + ', "alone": HERE}'])
    return float(np.mean([one["spent"][0] * len(one["ends"]) / one["items"] for one in told]))


def main() -> None:
    """A row for each job."""
    rows: list[list[object]] = []
    with laboratory() as lab:
        lab.cpus = CPUS
        lab.share()
        costs = measure(lab)
        print(costs, flush=True)
        items = {job: item_of(lab, job, options) for job, options in PLANS.items()}
        print(items, flush=True)
        measured = {
            job: drive(lab, job, nodes=HOSTS, every=options["passes"], **options) for job, options in PLANS.items()
        }
    share = costs.share
    for job, options in PLANS.items():
        message = costs.message[KINDS[job]]
        foreseen = JOBS[job](
            where="simulated",
            nodes=HOSTS,
            link="1Gbit",
            latency=costs.latency,
            seconds_per_item=items[job] / share,
            message_cost=tuple(part / share for part in message),
            **options,
        )
        passes, told = options["passes"], measured[job]
        found = pace(told["ends"], passes)
        predicted = pace([look[1] for look in foreseen["looks"][1:]], passes)
        spent = 1e3 * told["spent"][0] * len(told["ends"]) / passes
        computing = 1e3 * items[job] * foreseen["items"] / HOSTS / passes
        messages, nbytes = (sum(each[at] for each in foreseen["reasons"].values()) for at in (0, 2))
        handling = 2e3 * (message[0] * messages + message[1] * nbytes) / HOSTS / passes
        rows.append([
            TITLES[job], f"{items[job] * 1e6:.3f}", f"{predicted * 1e3:.0f}", f"{found * 1e3:.0f}",
            f"{predicted / found:.2f}", f"{spent:.0f} ({computing:.0f} + {handling:.0f})",
        ])  # fmt: skip
    head = ["job", "µs an item", "predicted ms a pass", "measured", "predicted / measured", "ms of CPU (costs say)"]
    body = report.table(head, rows)
    per_message, per_byte = costs.message["dense"]
    body += (
        f"\n\nA message costs {per_message * 1e6:.0f} µs and {per_byte * 1e9:.1f} ns a byte "
        f"({costs.message['sparse'][1] * 1e9:.1f} ns where rows are sparse) of a processor at either end; from node to "
        f"node it takes {costs.latency * 1e6:.0f} µs beside that. A busy process gets {share:.2f} processors. The "
        "clocks behind it:\n\n"
    )
    clocks = [
        [*run, how, f"{1e3 * one.seconds:.2f}", f"{1e3 * one.cpu:.2f}", f"{one.messages:.1f}", f"{one.bytes:,.0f}"]
        for how, behind in (("alone", costs.alone), ("together", costs.together))
        for run, one in behind.items()
    ]
    head = ["rows are", "rows", "how", "ms a clock", "ms of CPU", "messages a node", "bytes a node"]
    body += report.table(head, clocks) + EARLIER
    report.save(
        "cluster_calibration", "The simulator beside the laboratory", report.text(__doc__), body, ["ray", "pyzmq"]
    )


if __name__ == "__main__":
    main()
