"""States between stages on four namespace hosts: direct transfers, local stores, and how a model is prepared.

**Transfers.** A task of stages with one worker, each on the next host, all of which read and change the whole model.
*Direct*: the model goes from host to host. *Over all hosts*: it is cut over all hosts after each stage and gathered for
the next, as where a parameter server is the only storage between stages. Medians over ten transitions; bytes are those
of the model that crossed the network for a stage, and *the link alone* is what they take at 1 Gbit, one host after
another.

**Preparation** (FlexPS, Fig. 10). A stage of one host with two workers (parts) makes sparse steps: each iteration reads
and changes 2,000 rows of a model of 4,000,000 float64 (32 MB), drawn at random from a tenth of it. *Served*: the model
stays on all hosts, and every iteration reads and sends over the network. *Whole*: the host takes all of it first. *On
demand*: it takes chunks of 64 KiB when they are first used. Seconds of all iterations with their transitions, medians
over three hosts, one after another, before each of which a stage cuts the model over all hosts; the driver divides many
iterations into stages. Bytes are those of chunks that moved and of messages while the stages ran.

Hosts are network namespaces of this computer with a Ray node each, all on its processors, joined at 1 Gbit.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

import numpy as np

import stretto as st

from . import report

HOSTS, LINK = 4, 1e9  # bits per second
SIZES = (10_000, 1_000_000, 10_000_000)  # float64
STEPS, NODES = (1, 10, 100, 400), (1, 2, 3)
MODEL, USED = 4_000_000, 10  # numbers of the model; one in so many is used


def touch(worker: Any, w: Any) -> None:
    """Reads and changes every row."""
    rows = np.arange(w.rows)
    w.add(rows, 0.5 * w.read() + 1.0)


def sparse_step(worker: Any, w: Any) -> None:
    """Reads and changes some rows of the first tenth."""
    rows = np.unique(worker.random().integers(MODEL // USED, size=1000))
    w.add(rows, 0.01 * w.read(rows) + 1.0)


def seed_rows(worker: Any, rows: Any, w: Any) -> None:
    """Cuts the model over all hosts."""
    w.add(np.asarray(rows), np.ones(len(rows)))


def transfers(runtime: Any) -> list[dict[str, Any]]:
    """By size and way: seconds of the transitions, and bytes of a stage."""
    found = []
    for size in SIZES:
        for way in ("direct", "shards"):
            w = st.zeros(size, "f8")
            turns = st.seq(*(st.unit(touch, w, placement={node: 1}, preparation="whole") for node in range(HOSTS)))
            result = st.run(st.loop(turns, times=3), runtime=runtime, transfer=way)
            later = result.stages[2:]
            found.append(
                {
                    "size": size,
                    "way": way,
                    "seconds": statistics.median(stage.transition for stage in later),
                    "bytes": statistics.median(stage.moved for stage in later),
                    "sum": float(w.array.sum()),
                }
            )
    return found


def preparations(runtime: Any) -> list[dict[str, Any]]:
    """By iterations and preparation: seconds of a stage with its transition, and bytes."""
    found = []
    for steps in STEPS:
        for how in ("served", "whole", "on-demand"):
            w = st.zeros(MODEL, "f8")
            # Each time on another host, so that no chunk is left from the last time.
            task = st.seq(
                *(
                    unit
                    for node in NODES
                    for unit in (
                        st.unit(seed_rows, np.arange(0, MODEL, 8192), w, parts=HOSTS),
                        st.unit(sparse_step, w, parts=2, placement={node: 1}, iterations=steps, preparation=how),
                    )
                )
            )
            stages = [stage for stage in st.run(task, runtime=runtime).stages if stage.unit == "sparse_step"]
            # Many iterations are divided into stages.
            turns = [[stage for stage in stages if stage.nodes == (node,)] for node in NODES]
            if any(sum(stage.iterations for stage in some) != steps for some in turns):
                raise SystemExit(f"{how}: not {steps} iterations")
            found.append(
                {
                    "steps": steps,
                    "how": how,
                    "seconds": statistics.median(sum(one.seconds + one.transition for one in some) for some in turns),
                    "bytes": statistics.median(sum(one.moved + one.sent for one in some) for some in turns),
                    "sum": float(w.array.sum()),
                }
            )
    return found


def on_hosts() -> None:
    """Measure on the driver's machine; the last line is JSON."""
    cluster = st.Cluster(nodes=HOSTS, patience=30.0, start_within=300.0)
    print(json.dumps({"transfers": transfers(cluster), "preparations": preparations(cluster)}))


def main() -> None:
    """Measure and save."""
    from .laboratory import laboratory

    with laboratory(HOSTS) as lab:
        done = lab.run([sys.executable, "-c", "from bench.stage_transfers import on_hosts; on_hosts()"], timeout=900)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"it failed:\n{done.stdout[-4000:]}")
    told = json.loads(lines[-1])
    rows = [
        [
            f"{one['size']:,}",
            {"direct": "direct", "shards": "over all hosts"}[one["way"]],
            f"{1e3 * one['seconds']:.1f}",
            f"{one['bytes'] / 1e6:.2f}",
            f"{8e3 * one['bytes'] / LINK:.1f}",
        ]
        for one in told["transfers"]
    ]
    same = len({(one["size"], one["sum"]) for one in told["transfers"]}) == len(SIZES)
    first = report.table(["numbers", "way", "transition, ms", "MB for a stage", "the link alone, ms"], rows)
    by = {(one["steps"], one["how"]): one for one in told["preparations"]}
    by_steps: list[list[object]] = []
    for steps in STEPS:
        ones = [by[steps, how] for how in ("served", "whole", "on-demand")]
        by_steps.append(
            [steps, *(f"{one['seconds']:.3f}" for one in ones), *(f"{one['bytes'] / 1e6:.1f}" for one in ones)]
        )
        same = same and len({one["sum"] for one in ones}) == 1
    ways = ("served", "whole", "on demand")
    second = report.table(["iterations", *(f"{w}, s" for w in ways), *(f"{w}, MB" for w in ways)], by_steps)
    body = f"## Transfers\n\n{first}\n\n## Preparation\n\n{second}\n\nResults are equal: {'yes' if same else 'NO'}."
    report.save("stage_transfers", "States between stages", report.text(__doc__), body, ["ray"])


if __name__ == "__main__":
    main()
