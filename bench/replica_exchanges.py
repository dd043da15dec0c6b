"""Exchanges of replicated states on 2 to 32 simulated nodes: seconds of an exchange, and bytes that a node sends.

A part on each node changes its copy of a state and exchanges it, by shards, by an elected holder, all-to-all and
around a ring. *Small*: 100 numbers; *medium*: 512 rows of 32 numbers, 128 KiB; *large*: 4,096 such rows, 1 MiB.
*Dense*: each part sends all rows; *sparse*: a filter sends 10 or 1 % of them, other ones in each part. *Uneven*: half of the parts are on the first node.
Seconds are virtual, of a run of eight iterations less one of four, divided by four: so the first copies and the end do
not count. kB are those that a node sends in an exchange, the mean of all nodes. `auto` is what the cost model
(`stretto.consistency.exchange`) chooses before the run.

The model has no number that was fitted: it counts bytes and messages, and takes rate, latency and the cost of a message
from the machine. Cells with 4 and 16 nodes, 100 and 100,000 numbers and links of 1 Gbit, 100 µs were looked at when it
was written, and it was not changed afterwards. Those with 2, 8 and 32 nodes, uneven parts or other links were not. A
ring sends as many bytes as all-to-all, since changes are not summed on the way, and takes more steps: it is never the
least here. It is for networks in which only neighbours have good links.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import stretto as st
from stretto.consistency.exchange import WAYS

from . import report

LINKS = {
    "1 Gbit, 100 µs": ("1Gbit", "100us"),
    "1 Gbit, 10 ms": ("1Gbit", "10ms"),
    "100 Mbit, 100 µs": ("100Mbit", "100us"),
}
SIZES = {"small": (100, 1), "medium": (512, 32), "large": (4096, 32)}
SHARES = {1.0: "dense", 0.1: "sparse, 10 %", 0.01: "sparse, 1 %"}
SEEN = (4, 16)  # numbers of nodes that were looked at while the model was written
FEW, MANY = 4, 8


def change(worker: Any, v: Any, share: float) -> None:
    """Changes rows of the copy: all of them, or some that differ from part to part."""
    if share < 1.0:
        rows = worker.random().integers(0, v.rows, max(1, int(share * v.rows)))
        v.array[rows] += 1.0
    else:
        v.array[:] += 1.0
    worker.work(1)


def cell(
    nodes: int, size: str, share: float, uneven: bool, link: tuple[str, str], way: str
) -> tuple[float, float, str]:
    """Seconds of an exchange, bytes that a node sends in it on average, and the way that was taken."""
    found = []
    parts = 2 * (nodes - 1) if uneven else nodes
    placement = {0: nodes - 1, **dict.fromkeys(range(1, nodes), 1)} if uneven else None
    rule = st.random_share(share) if share < 1.0 else None
    cluster = st.Simulated(nodes=nodes, threads=nodes - 1 if uneven else 1, link=link[0], latency=link[1])
    words = ""
    for iterations in (FEW, MANY):
        v = st.state(np.zeros(SIZES[size]), replicate=True, filter=rule, exchange=way)
        unit = st.unit(change, v, share, parts=parts, iterations=iterations, placement=placement)
        result = st.run(unit, runtime=cluster)
        found.append((sum(stage.seconds for stage in result.stages), sum(stage.sent for stage in result.stages)))
        if way == "auto":
            words = result.plan.stages[0].exchanges[0].split(" by ")[1].split(",")[0]
    (few, sent_few), (many, sent_many) = found
    return (many - few) / (MANY - FEW), (sent_many - sent_few) / (MANY - FEW) / nodes, words or way


def cells() -> list[tuple[str, int, str, float, bool]]:
    """(link, nodes, size, share, uneven) of each row of the table."""
    first = next(iter(LINKS))
    found = [(first, nodes, size, share, False) for nodes in (2, 4, 8, 16, 32) for size in SIZES for share in SHARES]
    found += [(first, 8, size, 1.0, True) for size in SIZES]
    found += [(link, 8, size, share, False) for link in list(LINKS)[1:] for size in SIZES for share in SHARES]
    return found


def main() -> None:
    """Measure and save."""
    lines, over = [], {True: list[float](), False: list[float]()}
    for link, nodes, size, share, uneven in cells():
        found = {way: cell(nodes, size, share, uneven, LINKS[link], way) for way in WAYS}
        _, _, chosen = cell(nodes, size, share, uneven, LINKS[link], "auto")
        best = min(seconds for seconds, _, _ in found.values())
        ratio = found[chosen][0] / best
        over[nodes in SEEN and not uneven].append(ratio)
        kind = SHARES[share] + (", uneven" if uneven else "")
        lines.append(
            [link, nodes, size, kind]
            + [f"{1e3 * found[way][0]:.3g} ({found[way][1] / 1e3:.3g})" for way in WAYS]
            + [chosen, f"{ratio - 1:+.0%}"]
        )
        print(*lines[-1], flush=True)
    body = report.table(
        ["link", "nodes", "state", "changes", *(f"{way}: ms (kB)" for way in WAYS), "auto", "over the best"], lines
    )
    worst = {seen: f"{max(ratios) - 1:+.0%}" for seen, ratios in over.items()}
    within = sum(ratio <= 1.1 for ratio in over[False])
    body += (
        f"\n\nOf the {len(over[False])} cells that were not looked at before, `auto` is within 10 % of the best way in "
        f"{within}; at worst {worst[False]}. Of the others at worst {worst[True]}.\n"
    )
    report.save("replica_exchanges", "Exchanges of replicated states", report.text(__doc__), body)


if __name__ == "__main__":
    main()
