"""Parts of the scoreboard side by side, each in a process of its own on cores of its own.

    for line in run([["--only", "lasso / a9a"], …], jobs=7, threads=2): …

A process runs `python -m bench.scoreboard_jobs ARGUMENTS`, which prints its rows, one JSON object a line, and nothing
else; what programs print goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from .scoreboard_rows import Options, linear_rows, slow_peers
from .scoreboard_store import stored

ROOT = Path(__file__).resolve().parent.parent


def run(parts: Sequence[Sequence[str]], jobs: int, threads: int) -> Iterator[dict[str, Any]]:
    """Rows of the parts in the order in which they end. jobs: processes at a time, each on `threads` cores."""
    cores = sorted(os.sched_getaffinity(0))
    if jobs * threads > len(cores):
        raise SystemExit(
            f"--jobs {jobs} of {threads} threads need {jobs * threads} cores; this machine has {len(cores)}"
        )
    free: SimpleQueue[list[int]] = SimpleQueue()
    for job in range(jobs):
        free.put(cores[job * threads : (job + 1) * threads])

    def one(arguments: Sequence[str]) -> list[dict[str, Any]]:
        mine = free.get()
        try:
            command = ["taskset", "-c", ",".join(map(str, mine)), sys.executable, "-m", "bench.scoreboard_jobs"]
            done = subprocess.run([*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        finally:
            free.put(mine)
        if done.returncode:
            print(f"{' '.join(arguments)} ended with {done.returncode}", file=sys.stderr, flush=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(one, part) for part in parts]):
            yield from future.result()


def main(argv: Sequence[str] | None = None) -> None:
    """Measure one part in this process."""
    parser = argparse.ArgumentParser(prog="python -m bench.scoreboard_jobs", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=20.0)
    asked = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with contextlib.redirect_stdout(sys.stderr):
        slow = slow_peers(stored().values()) if asked.threads > 1 else {}
        for row in linear_rows(Options(tuple(asked.only), asked.threads, asked.limit, slow)):
            print(json.dumps(asdict(row), ensure_ascii=False), file=out, flush=True)


if __name__ == "__main__":
    main()
