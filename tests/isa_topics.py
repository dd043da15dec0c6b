"""Prints a hash of whole runs of every sampler of topic models; run it under several processor settings and compare.

NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES= python tests/isa_topics.py
"""

from __future__ import annotations

import sys

from jobs import digest
from stretto.runtime.runtimes import Threads
from topic_jobs import lda_on, problem, run_passes, some_documents

RUNS = {
    "plain": problem(40),
    "packed": problem(300),
    "proposals": problem(40, "mh", steps=2),
}


def learned(name: str) -> str:
    """The hash of topics and counts after a few passes on two threads."""
    with lda_on(Threads(2), RUNS[name], some_documents()) as (job, crew):
        run_passes(job, crew, 4)
        return digest(job.arrays())


def hashes(names: list[str]) -> str:
    """A line for each run: its name and the hash of what it learned."""
    return "\n".join(f"{name}: {learned(name)}" for name in names)


if __name__ == "__main__":
    print(hashes(sys.argv[1:] or list(RUNS)))
