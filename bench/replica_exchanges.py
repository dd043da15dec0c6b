"""Exchanges of replicated states on 2 to 32 simulated nodes: seconds of an exchange, and bytes that a node sends.

A part on each node changes its copy of a state and exchanges it, by shards, by an elected holder, all-to-all and
around a ring. *Dense*: each part sends all rows; *sparse*: a filter sends a share of them, other ones in each part.
*Uneven*: half of the parts are on the first node. *Racks*: the nodes are in racks with an uplink of 1 Gbit each, links
of 1 Gbit and 100 µs. Seconds are virtual, of a run of eight iterations less one of four, divided by four: so the first
copies and the end do not count. kB are those that a node sends in an exchange, the mean of all nodes. `auto` is what
the cost model (`stretto.consistency.exchange`) chooses before the run.

The model counts bytes and messages on each link, and takes rates, latency and the cost of a message from the machine;
no constant in it was fitted. How far steps overlap was read off the cells of the second table: a first version added up
the two steps of shards and holders, which overlap from one exchange to the next, and once chose a ring that took 42 %
longer than shards. The cells of the first table, with other nodes, sizes, shares and links, were measured after it was
finished. A ring sends as many bytes as all-to-all, since changes are not summed on the way, and takes more steps. It
gains where neighbours have better links than others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import stretto as st
from stretto.consistency.exchange import WAYS

from . import report

LINKS: dict[str, dict[str, Any]] = {
    "1 Gbit, 100 µs": {"link": "1Gbit", "latency": "100us"},
    "1 Gbit, 10 ms": {"link": "1Gbit", "latency": "10ms"},
    "100 Mbit, 100 µs": {"link": "100Mbit", "latency": "100us"},
    "two racks": {"link": "1Gbit", "latency": "100us", "racks": 2, "uplink": "1Gbit"},
    "10 Gbit, 20 µs": {"link": "10Gbit", "latency": "20us"},
    "three racks": {"link": "1Gbit", "latency": "100us", "racks": 3, "uplink": "1Gbit"},
}
USUAL = "1 Gbit, 100 µs"
FEW, MANY = 4, 8


@dataclass(frozen=True)
class Cell:
    """One line of a table."""

    link: str
    nodes: int
    shape: tuple[int, int]  # of the state
    share: float  # of the rows that a part sends
    uneven: bool = False

    def words(self) -> list[object]:
        """What it is, for the table."""
        kind = "dense" if self.share == 1.0 else f"sparse, {self.share:.0%}"
        return [self.link, self.nodes, "{:,} × {}".format(*self.shape), kind + (", uneven" if self.uneven else "")]


def change(worker: Any, v: Any, share: float) -> None:
    """Changes rows of the copy: all of them, or some that differ from part to part."""
    if share < 1.0:
        rows = worker.random().integers(0, v.rows, max(1, int(share * v.rows)))
        v.array[rows] += 1.0
    else:
        v.array[:] += 1.0
    worker.work(1)


def measured(cell: Cell, way: str) -> tuple[float, float, str]:
    """Seconds of an exchange, bytes that a node sends in it on average, and the way that was taken."""
    found = []
    nodes, uneven = cell.nodes, cell.uneven
    parts = 2 * (nodes - 1) if uneven else nodes
    placement = {0: nodes - 1, **dict.fromkeys(range(1, nodes), 1)} if uneven else None
    rule = st.random_share(cell.share) if cell.share < 1.0 else None
    cluster = st.Simulated(nodes=nodes, threads=nodes - 1 if uneven else 1, **LINKS[cell.link])
    words = ""
    for iterations in (FEW, MANY):
        v = st.state(np.zeros(cell.shape), replicate=True, filter=rule, exchange=way)
        unit = st.unit(change, v, cell.share, parts=parts, iterations=iterations, placement=placement)
        result = st.run(unit, runtime=cluster)
        found.append((sum(stage.seconds for stage in result.stages), sum(stage.sent for stage in result.stages)))
        if way == "auto":
            words = result.plan.stages[0].exchanges[0].split(" by ")[1].split(",")[0]
    (few, sent_few), (many, sent_many) = found
    return (many - few) / (MANY - FEW), (sent_many - sent_few) / (MANY - FEW) / nodes, words or way


def seen() -> list[Cell]:
    """Cells that were used while the model was written."""
    shapes, shares = ((100, 1), (512, 32), (4096, 32)), (1.0, 0.1, 0.01)
    found = [Cell(USUAL, nodes, shape, share) for nodes in (2, 4, 8, 16, 32) for shape in shapes for share in shares]
    found += [Cell(USUAL, 8, shape, 1.0, uneven=True) for shape in shapes]
    links = ("1 Gbit, 10 ms", "100 Mbit, 100 µs", "two racks")
    return found + [Cell(link, 8, shape, share) for link in links for shape in shapes for share in shares]


def unseen() -> list[Cell]:
    """Cells that were measured after it was finished."""
    shapes, shares = ((1000, 1), (1024, 64), (8192, 16)), (1.0, 0.3, 0.03)
    found = [Cell(USUAL, nodes, shape, share) for nodes in (3, 6, 12, 24) for shape in shapes for share in shares]
    found += [Cell(USUAL, 6, shape, 1.0, uneven=True) for shape in shapes]
    links = ("10 Gbit, 20 µs", "three racks")
    return found + [Cell(link, 12, shape, share) for link in links for shape in shapes for share in shares]


def table(cells: list[Cell]) -> tuple[str, str]:
    """The table of some cells, and a sentence about what `auto` chose."""
    lines, ratios = [], []
    for cell in cells:
        found = {way: measured(cell, way) for way in WAYS}
        chosen = measured(cell, "auto")[2]
        ratios.append(found[chosen][0] / min(seconds for seconds, _, _ in found.values()))
        times = [f"{1e3 * seconds:.3g} ({nbytes / 1e3:,.3g})" for seconds, nbytes, _ in found.values()]
        lines.append([*cell.words(), *times, chosen, f"{ratios[-1] - 1:+.0%}"])
        print(*lines[-1], flush=True)
    head = ["link", "nodes", "state", "changes", *(f"{way}: ms (kB)" for way in WAYS), "auto", "over the best"]
    within, worst = sum(ratio <= 1.1 for ratio in ratios), max(ratios) - 1
    return report.table(
        head, lines
    ), f"`auto` is within 10 % of the best way in {within} of {len(ratios)}, at worst {worst:+.0%}."


def main() -> None:
    """Measure and save."""
    (after, kept), (before, fitted) = table(unseen()), table(seen())
    body = (
        f"## Cells that were not used\n\n{kept}\n\n{after}\n\n"
        f"## Cells that were used while the model was written\n\n{fitted}\n\n{before}"
    )
    report.save("replica_exchanges", "Exchanges of replicated states", report.text(__doc__), body)


if __name__ == "__main__":
    main()
