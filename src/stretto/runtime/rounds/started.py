"""A runtime whose nodes keep running from one program to the next.

    with started(st.Cluster(nodes=4)) as where:
        st.run(first, runtime=where, rounds=100)
        st.run(second, runtime=where, rounds=100)      # on the same processes

Starting processes takes seconds, so a fit that runs several programs starts them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from stretto.runtime.chosen import name_of

if TYPE_CHECKING:
    from stretto.runtime.cluster.rounds.driver import RemoteWork
    from stretto.schedule.pipeline import Pipeline

    from .rounds import RoundsRun


class StartedNodes:
    """A runtime for programs, whose nodes have been started and serve one program after another.

    Parameters
    ----------
    spec : Cluster or Simulated
        The runtime that the nodes belong to.
    rounds : function(pipeline, work) -> RoundsRun
        Creates the rounds of a program on the nodes.
    """

    one_memory = False

    def __init__(self, spec: Any, rounds: Callable[[Pipeline, RemoteWork], RoundsRun]) -> None:
        self._spec, self._rounds = spec, rounds
        self.name = name_of(spec)
        self.nodes: int = spec.nodes
        self.workers: int = spec.workers

    def __repr__(self) -> str:
        return repr(self._spec)

    @contextmanager
    def rounds(self, pipeline: Pipeline, work: RemoteWork) -> Iterator[RoundsRun]:
        """Open the rounds of a program."""
        yield self._rounds(pipeline, work)


def started(runtime: Any) -> AbstractContextManager[Any]:
    """Start the nodes of a runtime once, for several programs; a runtime without nodes is given back as it is."""
    start = getattr(runtime, "started", None)
    return nullcontext(runtime) if start is None else start()
