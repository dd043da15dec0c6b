"""`st.Cluster`: run on several processes.

st.Cluster(nodes=4, threads=8)                       a running Ray cluster, or a local one that is started
st.Cluster("10.0.0.5:6379", nodes=16, threads=16)    that Ray cluster
st.Cluster("processes", nodes=2)                     processes of this machine, without Ray
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from stretto.errors import RunError
from stretto.runtime.opening import OpensCrew

from .settings import ClusterSettings

if TYPE_CHECKING:
    from stretto.runtime.rounds.rounds import RoundsRun
    from stretto.runtime.rounds.started import StartedNodes
    from stretto.runtime.tables.job import TableJob, TableOutcome
    from stretto.schedule.pipeline import Pipeline

    from .rounds.driver import RemoteWork


@dataclass(frozen=True)
class Cluster(ClusterSettings, OpensCrew):
    """Nodes on one or several machines. Ray starts and restarts them; they send changes to each other over ZeroMQ.

    Parameters
    ----------
    address : str, default "auto"
        Address of a Ray cluster. "auto": the cluster that this program runs in, that RAY_ADDRESS names, or that runs on
        this machine; if there is none, one is started. "local": always start one. "processes": plain processes of this
        machine, without Ray.
    nodes : int, default 2
        Nodes, distributed evenly over the machines as far as they have free processors.
    threads : int, default 1
        Threads of each node.
    encrypt : bool, default True
        Encrypt messages between nodes (CURVE) and admit only the keys of this job. False only to measure the cost.
    patience : str or float, default 5.0
        A node that sends nothing for this long is lost. A node that is alive but makes no progress is lost after six
        times as long.
    start_within : str or float, default 60.0
        Time for all nodes to start.
    replace_within : str or float, default 30.0
        Time for a lost node to be replaced. After that the other nodes take over its work.
    restarts : int, default 100
        Losses of nodes after which the run gives up.

    Examples
    --------
    >>> import stretto as st
    >>> cluster = st.Cluster("processes", nodes=4, threads=2)
    >>> cluster.workers
    8
    """

    @contextmanager
    def crew(self) -> Iterator[Any]:
        """Open a crew that runs passes over blocks on the nodes. The caller handles signals."""
        _check_installed(self.address)
        from .blocks.block_executor import ClusterCrew
        from .hosts.hosts import Hosts

        with Hosts(self) as hosts, closing(ClusterCrew(hosts)) as crew:
            yield crew

    def serve(self, job: TableJob) -> TableOutcome:
        """Run a job over tables.

        Parameters
        ----------
        job : TableJob
            The worker function and its tables, checked.
        """
        _check_installed(self.address)
        from .tables.driver import run

        return run(self, job)

    @contextmanager
    def stages(self) -> Iterator[Any]:
        """Open a session of stages: the nodes start once, and one job over tables follows another."""
        _check_installed(self.address)
        from .hosts.hosts import Hosts
        from .stages.session import ClusterStages

        with Hosts(self) as hosts:
            yield ClusterStages(hosts, self.threads)

    @contextmanager
    def rounds(self, pipeline: Pipeline, work: RemoteWork) -> Iterator[RoundsRun]:
        """Open the rounds of a program whose updates run on the nodes.

        Parameters
        ----------
        pipeline : Pipeline
            Which rounds may be in progress.
        work : RemoteWork
            The functions of the program.
        """
        with self.started() as nodes, nodes.rounds(pipeline, work) as rounds:
            yield rounds

    @contextmanager
    def started(self) -> Iterator[StartedNodes]:
        """Start the nodes, for several programs one after another."""
        _check_installed(self.address)
        from stretto.runtime.rounds.started import StartedNodes

        from .hosts.fleet import packed
        from .hosts.hosts import Hosts
        from .rounds.driver import HostRounds
        from .rounds.task import make_rounds_task

        with Hosts(self) as hosts:
            yield StartedNodes(
                self, lambda pipeline, work: HostRounds(pipeline, work, hosts, make_rounds_task, pack=packed)
            )


def _check_installed(address: str) -> None:
    """RunError with what to install if a package is missing."""
    needed = ["zmq", "cloudpickle"] if address == "processes" else ["ray", "zmq", "cloudpickle"]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise RunError(
            f"Cluster(address={address!r}) needs {', '.join(missing)}, which is not installed: "
            "pip install 'stretto[cluster]'"
        )
