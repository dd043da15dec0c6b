"""SMPFRAME's figures on four namespace hosts: Figure 7 and Table 3 (static schedules at 1, 2 and 4 hosts) and Figure 12
(rounds in flight).

The hosts are network namespaces of this computer with a Ray node each, joined by links that `tc` limits; each may use
half a processor, and the driver is on a machine apart. **Static schedules**: matrix factorisation (8 million generated
ratings, 80,000 users, 4,000 items, rank 128) and LDA (40,000 generated documents of 100 words on average, 4,000 words,
100 topics) by rotation. Bits do not depend on the number of hosts, so the objective of an epoch does not either, and
the time to any objective shrinks as the time of an epoch: the median over epochs after the second. **Rounds in
flight**: the Lasso of `program_pipeline` as a program, 16 parts of 250 rows, rounds of 32 coordinates, at depth 1, 2,
3 and 5 on links of 1 Gbit and 20 Mbit; *rounds to 1 %* as there. There are no longer cables here: what depth can hide
is the time that messages take on the way and through the processes at both ends. Sizes of the static jobs are the
second that were tried: with 2 million ratings at rank 64 and 15,000 documents, where an epoch takes 0.1 and 0.4 s on
one host, 2 and 4 hosts were 1.13× and 0.56× (ratings), 1.32× and 1.30× (tokens) as fast as one.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

import numpy as np
from bench.program_bits import started
from bench.program_pipeline import TARGET, Lasso, problem, simulated

import stretto as st

from . import report

HOSTS, CPUS = 4, 0.5
DEPTHS, LINKS = (1, 2, 3, 5), ("1Gbit", "20Mbit")
ROUNDS = 250
STATIC: dict[str, dict[str, Any]] = {
    "mf": {"count": 8_000_000, "users": 80_000, "rank": 128, "epochs": 7},
    "lda": {"documents": 40_000, "epochs": 7},
}
TITLES = {"mf": ("matrix factorisation", "ratings"), "lda": ("LDA", "tokens")}


def depths(cluster: st.Cluster) -> list[dict[str, Any]]:
    """Rounds in flight on a cluster that is started once."""
    X, y = problem()
    found = []
    with started(cluster) as runtime:
        hosts: Any = runtime
        st.run(Lasso(X, y), rounds=20, pipeline=3, every=20, runtime=hosts)  # nodes import and compile
        for depth in DEPTHS:
            result = st.run(Lasso(X, y), rounds=ROUNDS, pipeline=depth, every=5, runtime=hosts)
            looks = [(look.round, look.seconds, look.objective) for look in result.history]
            found.append({"depth": depth, "looks": looks, "bits": bits(result)})
    return found


def bits(result: Any) -> str:
    """A hash of what was learned."""
    found = hashlib.sha256()
    for name in sorted(result.params):
        found.update(np.ascontiguousarray(result.params[name]).tobytes())
    return found.hexdigest()[:16]


def on_hosts() -> None:
    """Rounds in flight, on the driver's machine; the last line is JSON."""
    print(json.dumps(depths(st.Cluster(nodes=HOSTS, patience=30.0, start_within=300.0))))


def pipeline_table(by_link: dict[str, list[dict[str, Any]]]) -> str:
    """Figure 12."""
    X, y = problem()
    wanted = {
        depth: bits(st.run(Lasso(X, y), rounds=ROUNDS, pipeline=depth, every=5, runtime=simulated("100us")))
        for depth in DEPTHS
    }
    best = min(look[2] for runs in by_link.values() for run in runs for look in run["looks"])
    rows = []
    for link, runs in by_link.items():
        first_rate = _rate(runs[0]["looks"])
        for run in runs:
            looks = run["looks"]
            goal = best + TARGET * (looks[0][2] - best)
            reached = next((look for look in looks if look[2] <= goal), None)
            cells = ("-", "-") if reached is None else (reached[0], f"{reached[1] - looks[1][1]:.2f}")
            same = "yes" if run["bits"] == wanted[run["depth"]] else "NO"
            rate = _rate(looks)
            rows.append([link, run["depth"], f"{rate:.0f}", f"{rate / first_rate:.2f}×", *cells, same])
    columns = ["links", "depth", "rounds/s", "over depth 1", "rounds to 1 %", "seconds to 1 %", "bits as simulated"]
    return report.table(columns, rows)


def _rate(looks: list[Any]) -> float:
    """Rounds per second from the first evaluation after data were sent."""
    return float((looks[-1][0] - looks[1][0]) / (looks[-1][1] - looks[1][1]))


def static_table(lab: Any) -> str:
    """Figure 7 and Table 3."""
    from bench.rotation_costs import drive
    from bench.rotation_jobs import pace

    rows = []
    for job, settings in STATIC.items():
        title, items = TITLES[job]
        first = 0.0
        for nodes in (1, 2, 4):
            told, _ = drive(lab, job, timeout=600, nodes=nodes, **settings)
            seconds = pace(told["ends"])
            first = first or seconds
            rows.append([title, nodes, f"{seconds:.2f}", f"{told['items'] / seconds / 1e6:.2f} million {items}",
                         f"{first / seconds:.2f}×", f"{told['objective']:.10g}"])  # fmt: skip
            print(*rows[-1], flush=True)
    return report.table(["job", "hosts", "seconds an epoch", "a second", "over one host", "objective at the end"], rows)


def main() -> None:
    """Measure and save."""
    from bench.laboratory import laboratory

    by_link: dict[str, list[dict[str, Any]]] = {}
    with laboratory(HOSTS, link=LINKS[0]) as lab:
        for machine in lab.workers:
            machine.limit(CPUS)
        for link in LINKS:
            for number in range(len(lab.machines)):
                lab.limit(number, link)
            code = "from reproductions.smpframe_hosts import on_hosts; on_hosts()"
            done = lab.run([sys.executable, "-c", code], timeout=900)
            lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
            if not lines:
                raise SystemExit(f"it failed:\n{done.stdout[-4000:]}")
            by_link[link] = json.loads(lines[-1])
        for number in range(len(lab.machines)):
            lab.limit(number, LINKS[0])
        static = static_table(lab)
    load = f"Load at the end, from other programs too: {os.getloadavg()[0]:.1f} on {report.cores()} cores."
    body = "\n\n".join(
        [
            "## Static schedules (Figure 7, Table 3)",
            static,
            "## Rounds in flight (Figure 12)",
            pipeline_table(by_link),
            load,
        ]
    )
    report.save("smpframe_hosts", "SMPFRAME on namespace hosts", report.text(__doc__), body, ["ray", "pyzmq"])


if __name__ == "__main__":
    main()
