"""Parse `--runtime`: the runtime a command uses, as one word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stretto.errors import PlanError

if TYPE_CHECKING:
    from stretto.runtime.cluster.spec import Cluster
    from stretto.runtime.runtimes import Serial, Threads

_WORDS = "threads, serial, cluster, or cluster:ADDRESS such as cluster:10.0.0.5:6379 or cluster:processes"


def place(text: str | None, workers: int | None, nodes: int | None) -> Serial | Threads | Cluster:
    """The runtime a user named. workers: threads, of each node where there are several.

    >>> place("cluster:processes", 2, 4).nodes
    4
    """
    from stretto.runtime.cluster.spec import Cluster
    from stretto.runtime.runtimes import Serial, Threads

    kind, _, address = (text or "threads").partition(":")
    if kind == "cluster":
        return Cluster(
            address or "auto", nodes=2 if nodes is None else nodes, threads=1 if workers is None else workers
        )
    if nodes is not None:
        raise PlanError(f"--nodes {nodes} is for a cluster; add --runtime cluster, or leave it out")
    if kind == "threads" and not address:
        return Threads(workers)
    if kind == "serial" and not address:
        return Serial()
    raise PlanError(f"--runtime {text}: there are {_WORDS}")
