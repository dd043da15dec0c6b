"""Bösen's topic models on the simulated cluster: bounded staleness, managed communication, shorter clocks, rotation.

AP, 100 topics, 16 nodes with 2 threads. Real tokens, real protocol, real counts; time and network are virtual.

The network has the paper's proportions, not its numbers. It says that halving a clock doubles the bytes, and that
MC-640-RM used 63 % of the bandwidth of BS-8; if it used its whole budget, BS-8 filled a link of 1 Gbit/s and BS took an
eighth. So here a link carries 8 times what a node sends in a pass of BS, and budgets are 0.32 and 0.64 of a link. A
pass computes for 4 seconds, as 99.5 million tokens on 256 cores would at 100,000 tokens per second and core (our guess:
the paper prints no seconds). Handling a message costs the share of a node's cores that the cost measured by
`bench/simulated.py` has there.

$BENCH_KEPT=1: what was run before is not run again. $BENCH_RUNS=NAME,…: only these are run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from bench import lda_sets
from bench.table_lda import Corpus, Way, run
from bench.table_runs import Run

import stretto as st
from stretto.runtime.simulated.settings import MESSAGE_COST

from . import bosen_lda_tell, report

TOPICS, NODES, THREADS, BATCHES = 100, 16, 2, 16
PASSES, MARK = 25, 10  # at most; the target is what a single node has after MARK
PASS_SECONDS = 4.0
# Bytes that a node sends in a pass of BS, on average over 25: measured once, and what the network is made from.
PASS_BYTES = 0.9e6
LINK = 8 * PASS_BYTES / PASS_SECONDS
PAPER_BYTES = 1e9 / 8 / 8 * PASS_SECONDS  # an eighth of 1 Gbit/s
BURST = (1000, 1000)
KEPT = report.RESULTS / "bosen"


def managed(share: float, rank: str) -> Any:
    """A budget as a share of the link."""
    return st.tables.Managed(share * LINK, burst=BURST, rank=rank)


WAYS = {
    way.name: way
    for way in (
        Way("BS", 1, st.tables.SSP(2), st.tables.Eager(), "rows"),
        Way("MC-640-RM", 1, st.tables.SSP(2), managed(0.64, "relative"), "rows"),
        Way("MC-320-R", 1, st.tables.SSP(2), managed(0.32, "random"), "rows"),
        Way("MC-320-RM", 1, st.tables.SSP(2), managed(0.32, "relative"), "rows"),
        Way("MC-640-R", 1, st.tables.SSP(2), managed(0.64, "random"), "rows"),
        Way("BS-8", 8, st.tables.SSP(16), st.tables.Eager()),
        Way("BS-4", 4, st.tables.SSP(8), st.tables.Eager()),
        Way("BS-2", 2, st.tables.SSP(4), st.tables.Eager()),
        Way("Lazy", 1, st.tables.SSP(2), st.tables.Lazy()),
        Way("ASP-RR", 1, st.tables.ASP(), managed(0.64, "round-robin"), "rows"),
    )
}
ROTATIONS = {f"rotation-{nodes}": nodes for nodes in (8, 16, 24)}
NAMES = ("SN", *WAYS, *ROTATIONS)


@dataclass(frozen=True)
class Cluster:
    """What all runs have in common: how long a token takes, how fast links are."""

    per_token: float

    def of(self, nodes: int, threads: int, speed: float = 1.0) -> Any:
        """A cluster of n nodes."""
        scale = threads / 16  # the paper's nodes have 16 cores to share the cost
        per_byte = MESSAGE_COST[1] * scale * PAPER_BYTES / PASS_BYTES
        return st.Simulated(
            nodes=nodes,
            threads=threads,
            link=LINK,
            speed=speed,
            seconds_per_item=self.per_token,
            message_cost=(MESSAGE_COST[0] * scale, per_byte),
        )


@cache
def counts() -> Any:
    """The corpus."""
    return lda_sets.load("ap")


def cluster() -> Cluster:
    """One on which a pass of 16 nodes takes PASS_SECONDS."""
    return Cluster(PASS_SECONDS * NODES * THREADS / float(counts().sum()))


def single() -> Run:
    """One node with two threads: everything is seen at once."""
    corpus = Corpus(counts(), TOPICS, THREADS, BATCHES * NODES)
    return run(corpus, Way("SN", 1, st.tables.SSP(2), st.tables.Eager()), PASSES, cluster().of(1, THREADS))[0]


def spread(way: Way, target: float) -> Run:
    """A way on 16 nodes, until the target; the one that all are compared with goes on."""
    corpus = Corpus(counts(), TOPICS, NODES * THREADS, BATCHES)
    until = None if way.name == "BS" else _until(target)
    return run(corpus, way, PASSES, cluster().of(NODES, THREADS), until=until)[0]


def rotation(name: str, nodes: int, target: float) -> Run:
    """Words going round, one worker a node, which is as fast as its threads together; a clock for each block."""
    corpus = Corpus(counts(), TOPICS, nodes, 1, blocks=nodes)
    way = Way(name, nodes, st.tables.BSP(), st.tables.Lazy())
    return run(corpus, way, PASSES, cluster().of(nodes, 1, THREADS), until=_until(target))[0]


def span(nodes: int) -> float:
    """Seconds of a rotation's pass that its slowest workers compute, turn by turn."""
    shares = Corpus(counts(), TOPICS, nodes, 1, blocks=nodes).shares
    sizes = np.array([[len(batch.tokens) for batch in share.batches] for share in shares])
    turns = (np.arange(nodes)[:, None] + np.arange(nodes)) % nodes  # [worker, turn] the block it has
    longest = np.take_along_axis(sizes, turns, axis=1).max(axis=0)
    return float(longest.sum()) * cluster().per_token / THREADS


def _until(target: float) -> Callable[[Any], bool]:
    return lambda look: look.objective >= target


def kept_runs() -> tuple[dict[str, Run], dict[str, float]]:
    """Runs by name, and of rotations the seconds of a pass that are compute on their slowest chain."""
    kept = {name: there for name in NAMES if (there := Run.load(KEPT, name)) is not None}
    return kept, {name: span(nodes) for name, nodes in ROTATIONS.items() if name in kept}


def main() -> None:
    """Run what is not kept, then tell."""
    asked = [name for name in os.environ.get("BENCH_RUNS", "").split(",") if name] or list(NAMES)
    for name in [name for name in NAMES if name in asked]:
        if os.environ.get("BENCH_KEPT") and Run.load(KEPT, name) is not None:
            continue
        if name == "SN":
            found = single()
        else:
            alone = Run.load(KEPT, "SN")
            assert alone is not None, "SN comes first: it sets the target"
            target = alone.at(MARK).objective
            found = rotation(name, ROTATIONS[name], target) if name in ROTATIONS else spread(WAYS[name], target)
        found.save(KEPT)
        last = found.looks[-1]
        print(
            f"{name}: {last.epoch:g} passes, {last.objective:.3f}, {found.per_epoch:.2f} s and "
            f"{found.bytes_per_epoch / 1e6:.2f} MB of a node a pass, {found.spent:.0f} s of real time",
            flush=True,
        )
    kept, spans = kept_runs()
    if "SN" in kept and "BS" in kept:
        bosen_lda_tell.tell(kept, kept["SN"].at(MARK).objective, MARK, LINK, spans, report.text(__doc__))


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
