"""Topic models larger than memory: a generated corpus of 200 million tokens, 1000 topics, 1 GiB.

The corpus (`BENCH_TOKENS`) is written to disk first, then read and trained on for three passes in a process of its own,
once in memory and once within the budget. Peak memory is that of the process less what it has before it reads anything.
Throughput is that of the passes after the first, as their workers saw it; what a pass waits for the disk before it
begins is in the time of the whole fit.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import report

BUDGET = 1 << 30
TOPICS = 1_000
EPOCHS = 3


def peak() -> int:
    """Most memory this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one(order: dict[str, Any]) -> dict[str, Any]:
    """Fit, and say how fast and how large."""
    import stretto as st
    from stretto.observe.events import EpochDone

    warm = order["file"] + ".warm"
    settings: dict[str, Any] = {"max_iter": EPOCHS, "doc_topic_prior": 50 / TOPICS, "random_state": 1}
    settings["evaluate_every"] = 0
    st.LatentDirichletAllocation(TOPICS, **{**settings, "max_iter": 2}).fit(warm)  # compiles, and loads what fits need
    before = peak()
    seconds: list[float] = []

    def hear(event: Any) -> None:
        if isinstance(event, EpochDone):
            seconds.append(event.seconds)

    memory = BUDGET if order["streamed"] else None
    began = time.perf_counter()
    model = st.LatentDirichletAllocation(TOPICS, memory=memory, **settings)
    model.fit(order["file"], session=st.Session(listeners=[hear]))
    whole = time.perf_counter() - began
    return {
        "seconds": seconds[1:],
        "whole": whole,
        "grown": peak() - before,
        "tokens": int(model.topics_.totals.sum()),
        "hash": int(model.topics_.count.astype("i8") @ (model.topics_.topic.astype("i8") + 1)),
        "tile": model.plan_.physical.tile,
    }


def main() -> None:
    """Both ways, one after the other."""
    from stretto.data.generate.corpus import write_corpus

    tokens = int(os.environ.get("BENCH_TOKENS", "200_000_000"))
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        file = str(Path(folder) / "docword.txt")
        write_corpus(file, tokens // 100, 50_000, 200, 100, seed=1)
        write_corpus(f"{file}.warm", 2_000, 5_000, 20, 100, seed=1)
        found = {}
        for way in ("memory", "disk"):
            order = json.dumps({"file": file, "streamed": way == "disk"})
            done = subprocess.run(
                [sys.executable, "-m", "bench.lda_memory", order],
                cwd=Path(__file__).parent.parent,
                env={**os.environ, "TMPDIR": folder},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found[way] = json.loads(done.stdout.splitlines()[-1])
            print(way, found[way], flush=True)
    rows = []
    speeds = {way: got["tokens"] / (sum(got["seconds"]) / len(got["seconds"])) for way, got in found.items()}
    for way, got in found.items():
        title = "in memory" if way == "memory" else f"within {BUDGET / 2**30:.0f} GiB"
        share = f"{speeds[way] / speeds['memory']:.0%}"
        grown = f"{got['grown'] / 2**30:.2f} GiB"
        whole = f"{got['whole']:.0f} s ({found['memory']['whole'] / got['whole']:.0%})"
        rows.append([title, f"{speeds[way] / 1e6:.1f} M", share, grown, whole, got["hash"]])
    about = f"{found['disk']['tokens']:,} tokens, {TOPICS} topics."
    table = report.table(["", "tokens/s", "of in memory", "peak memory", "fit, reading included", "hash"], rows)
    report.save("lda_memory", "Topic models larger than memory", report.text(__doc__), f"{about}\n\n{table}")


if __name__ == "__main__":
    print(json.dumps(one(json.loads(sys.argv[1]))), flush=True)
