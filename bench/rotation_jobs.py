"""Rotation jobs that run unchanged on a cluster, simulated and in one process: those that `bench.rotation_*` measure.

    python -m bench.rotation_jobs mf '{"where": "cluster", "nodes": 4}'

prints one line of JSON: ends [seconds at which epochs ended, on the clock of the runtime], spent [CPU seconds of this
process at those times], items of an epoch, objective of the last epoch, and where the nodes are simulated also
handled [by then: what handling messages cost a node on average, bytes of blocks that all nodes sent].
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

import stretto as st
from stretto.observe.events import EpochDone
from stretto.runtime.session import Session


class Simulated(st.Simulated):
    """A simulated cluster that shows its crew, as `opened`. Plans go by the name of the class."""

    opened: Any

    @contextmanager
    def crew(self) -> Iterator[Any]:
        """As any simulated cluster's."""
        with super().crew() as crew:
            object.__setattr__(self, "opened", crew)
            yield crew


class Watch:
    """When epochs ended, and what the nodes had done by then."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.ends: list[float] = []
        self.spent: list[float] = []
        self.handled: list[tuple[float, int]] = []

    def note(self, event: Any) -> None:
        """A listener."""
        if not isinstance(event, EpochDone):
            return
        self.items, self.objective = event.items, float(event.objective)
        self.spent.append(time.process_time())
        if isinstance(self.runtime, Simulated):
            self.ends.append(self.runtime.report.seconds)
            hosts = self.runtime.opened.hosts._hosts
            self.handled.append((float(np.mean([host.spent for host in hosts])), self.runtime.report.moved))
        else:
            self.ends.append(time.monotonic())

    def told(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {"ends": self.ends, "spent": self.spent, "handled": self.handled, "items": self.items,
                "objective": self.objective}  # fmt: skip


def runtime(where: str, nodes: int, more: dict[str, Any]) -> Any:
    """st.Cluster, st.Simulated or st.Serial."""
    if where == "cluster":
        return st.Cluster(nodes=nodes, **{"patience": 20.0, "start_within": 120.0, **more})
    return Simulated(nodes=nodes, **{"threads": 1, **more}) if where == "simulated" else st.Serial()


@cache
def ratings(count: int, users: int, items: int, seed: int) -> st.Data:
    """Generated ratings."""
    return st.generate_ratings(count, users, items, rank=8, noise=0.5, seed=seed).data


@cache
def counts(documents: int, words: int, length: float, seed: int) -> st.Data:
    """Generated documents."""
    from stretto.data.generate.corpus import corpus

    return corpus(documents, words, 50, length, seed=seed).data


def mf(
    where: str = "serial",
    nodes: int = 4,
    count: int = 4_000_000,
    users: int = 40_000,
    items: int = 4_000,
    rank: int = 128,
    epochs: int = 12,
    seed: int = 1,
    width: int = 16,
    **more: Any,
) -> dict[str, Any]:
    """Matrix factorisation by SGD: item factors rotate, and every node keeps the factors of its users."""
    on = runtime(where, nodes, more)
    watch = Watch(on)
    model = st.MatrixFactorization(
        n_components=rank, max_iter=epochs, random_state=0, duplicates="last", biases=False, width=width, runtime=on
    )
    model.fit(ratings(count, users, items, seed), session=Session(listeners=[watch.note]))
    return watch.told()


def lda(
    where: str = "serial",
    nodes: int = 4,
    documents: int = 30_000,
    words: int = 4_000,
    length: float = 100.0,
    topics: int = 100,
    epochs: int = 12,
    seed: int = 1,
    width: int = 16,
    **more: Any,
) -> dict[str, Any]:
    """LDA with the sparse sampler: counts of words rotate, and every node keeps its documents."""
    on = runtime(where, nodes, more)
    watch = Watch(on)
    model = st.LatentDirichletAllocation(
        topics, sampler="sparse", max_iter=epochs, first_topics="random", evaluate_every=epochs, random_state=0,
        width=width, runtime=on,
    )  # fmt: skip
    model.fit(counts(documents, words, length, seed), session=Session(listeners=[watch.note]))
    return watch.told()


JOBS: dict[str, Callable[..., dict[str, Any]]] = {"mf": mf, "lda": lda}


def pace(ends: list[float], skipped: int = 2) -> float:
    """Seconds of an epoch, the median: memory is touched and caches are filled in the first ones."""
    return float(np.median(np.diff(ends)[skipped:]))


def main() -> None:
    """One job, as requested. By the module's own name: nodes find its functions there, and not in their `__main__`."""
    from bench.rotation_jobs import JOBS as jobs

    print(json.dumps(jobs[sys.argv[1]](**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
