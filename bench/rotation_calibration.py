"""Rotation on `st.Simulated` beside four real hosts: seconds of an epoch, predicted and measured.

Matrix factorisation (4 million generated ratings, 40,000 users, 4,000 items, rank 128) and LDA (30,000 generated
documents, 4,000 words, 100 topics, sparse sampler) on four machines of the laboratory: network namespaces with a Ray
node each, joined by links that `tc` limits. All four share the processors of this computer, so each is limited to a
quarter of one; the simulator is given CPU costs divided by the share of a processor that a busy process was seen to
get. No cost is fitted to the jobs predicted: `bench.rotation_costs` says where each comes from. A link carries 95 % of
its rate, the rest being headers of Ethernet, IP and TCP (1,448 of 1,514 bytes, and what ZeroMQ adds).

The time of an epoch is the median over epochs after the second, from one epoch's end to the next. Each pair runs in
several rounds; the share is measured anew in each. Measured: the median of the rounds, and all of them in brackets.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

import numpy as np

from . import report
from .laboratory import HOSTS, laboratory
from .rotation_costs import Alone, Wire, alone, drive, wire
from .rotation_jobs import JOBS, pace

CPUS = 0.25
RATES = {"1Gbit": 125e6, "100Mbit": 12.5e6, "50Mbit": 6.25e6}
CARRIED = 0.95  # of a link's rate
ROUNDS, EPOCHS = 2, 12
# A node's share of each job, of another seed.
SHARES: dict[str, dict[str, Any]] = {
    "mf": {"count": 1_000_000, "users": 10_000, "seed": 7, "epochs": 9},
    "lda": {"documents": 7_500, "seed": 7, "epochs": 9},
}
TITLES = {"mf": "matrix factorisation", "lda": "LDA"}


def predict(job: str, rate: float, cost: Alone, share: float, costs: Wire) -> tuple[float, float, float]:
    """Seconds of an epoch; of them, those that a node computes and those that its blocks take on its link."""
    told = JOBS[job](
        where="simulated", nodes=HOSTS, epochs=6, link=rate * CARRIED, latency=costs.latency,
        seconds_per_item=cost.item / share, message_cost=(costs.message / share, costs.byte / share),
    )  # fmt: skip
    moved = float(np.median(np.diff([one[1] for one in told["handled"]])))
    return pace(told["ends"]), told["items"] * cost.item / share / HOSTS, moved / HOSTS / (rate * CARRIED)


def verdict(ratios: list[float], within: float = 0.25) -> str:
    """How many predictions are within a share of what was measured."""
    met = sum(1 - within <= ratio <= 1 + within for ratio in ratios)
    return f"{met} of {len(ratios)} predictions are within {within:.0%}; the furthest off is {furthest(ratios):.2f}."


def furthest(ratios: list[float]) -> float:
    """The ratio that is furthest from 1, as a factor."""
    return max(ratios, key=lambda ratio: abs(np.log(ratio)))


def main() -> None:
    """A row for each pair."""
    items: dict[str, list[Alone]] = {job: [] for job in JOBS}
    measured: dict[tuple[str, str], list[float]] = {}
    spent: dict[tuple[str, str], list[float]] = {}
    failed: list[str] = []
    with laboratory() as lab:
        lab.cpus = CPUS
        lab.share()
        for job in JOBS:
            items[job].append(alone(lab, job, {"where": "serial", **SHARES[job]}))
            print(job, items[job][-1], flush=True)
        first = items["mf"][0]
        costs, light = wire(lab, HOSTS, first.share, first.item, RATES["1Gbit"] * CARRIED)
        print(costs, flush=True)
        for _ in range(ROUNDS):
            for link in RATES:
                for machine in lab.workers:  # the driver's own link stays as it is
                    lab.limit(machine.number, link)
                for job in JOBS:
                    try:
                        told, cpu = drive(lab, job, nodes=HOSTS, epochs=EPOCHS)
                    except (subprocess.TimeoutExpired, SystemExit) as error:
                        print(f"{job} at {link} failed: {str(error)[-500:]}", flush=True)
                        failed.append(f"{TITLES[job]} at {link}")
                        continue
                    measured.setdefault((job, link), []).append(pace(told["ends"]))
                    spent.setdefault((job, link), []).append(cpu)
                    print(link, job, measured[job, link], flush=True)
            for machine in lab.workers:
                lab.limit(machine.number, "1Gbit")
            for job in JOBS:
                items[job].append(alone(lab, job, {"where": "serial", **SHARES[job]}))
                print(job, items[job][-1], flush=True)
    share = float(np.median([one.share for each in items.values() for one in each]))
    cost = {job: Alone(float(np.median([one.item for one in each])), share) for job, each in items.items()}
    rows, ratios = [], []
    for (job, link), seconds in measured.items():
        predicted, computing, sending = predict(job, RATES[link], cost[job], share, costs)
        found = float(np.median(seconds))
        ratios.append(predicted / found)
        rows.append([
            TITLES[job], link, f"{1e3 * computing:.0f}", f"{1e3 * sending:.0f}", f"{1e3 * predicted:.0f}",
            f"{1e3 * found:.0f} ({', '.join(f'{1e3 * one:.0f}' for one in seconds)})", f"{ratios[-1]:.2f}",
            f"{1e3 * float(np.median(spent[job, link])):.0f}",
        ])  # fmt: skip
    head = ["job", "links", "ms a node computes", "ms its blocks take on its link", "predicted ms an epoch", "measured",
            "predicted / measured", "measured ms of CPU a node and epoch"]  # fmt: skip
    seen = "; ".join(
        f"{TITLES[job]} {1e9 * cost[job].item:.1f} ns an item, shares {', '.join(f'{one.share:.3f}' for one in each)}"
        for job, each in items.items()
    )
    body = "\n\n".join([
        report.table(head, rows), verdict(ratios), *([f"Runs that failed: {', '.join(failed)}."] if failed else []),
        f"Costs, from other runs. By machines alone: {seen}. A message costs {1e6 * costs.message:.0f} µs and "
        f"{1e9 * costs.byte:.1f} ns a byte of a processor at either end; from node to node it takes "
        f"{1e3 * costs.latency:.1f} ms beside that. The light jobs behind it:",
        report.table(["rank", "ms an epoch", "ms of CPU a node", "messages a node handles", "bytes"], light),
        f"Load at the end, from other programs too: {os.getloadavg()[0]:.1f} on {report.cores()} cores.",
    ])  # fmt: skip
    report.save("rotation_calibration", "Simulated rotation beside four hosts", report.text(__doc__), body,
                ["ray", "pyzmq"])  # fmt: skip


if __name__ == "__main__":
    main()
