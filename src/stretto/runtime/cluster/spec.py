"""`Cluster`: where a job runs when one process is not enough, as a value.

st.Cluster(nodes=4, threads=8)                       a running Ray cluster, or a local one that is started
st.Cluster("10.0.0.5:6379", nodes=16, threads=16)    that Ray cluster
st.Cluster("processes", nodes=2)                     plain processes of this machine, without Ray
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from stretto.checks import flags, shown, whole
from stretto.comm.units import seconds
from stretto.errors import PlanError, RunError
from stretto.runtime.interrupts import raising_ctrl_c

if TYPE_CHECKING:
    from stretto.runtime.rounds.rounds import RoundsRun
    from stretto.runtime.tables.job import Outcome, TableJob
    from stretto.schedule.pipeline import Pipeline

    from .rounds.driver import RemoteWork


@dataclass(frozen=True)
class Cluster:
    """Nodes that tell each other over ZeroMQ what has changed; Ray starts them and starts them again.

    address : of a Ray cluster; "auto": the one this program runs in, RAY_ADDRESS names or runs on this machine, else
        one that is started here; "local": always that; "processes": plain processes of this machine
    nodes : how many; spread over machines as evenly as they have room. threads : workers of each that run at a time
    encrypt : CURVE between nodes, only this job's keys admitted. False only to measure what it costs
    patience : a node that nobody hears of for so long is lost; one that lives but stands still, after six times that
    start_within : until all nodes must be there. replace_within : until a lost one must be replaced; after that the
        others share its work
    restarts : losses of nodes after which the run gives up
    """

    address: str = "auto"
    nodes: int = 2
    threads: int = 1
    encrypt: bool = True
    patience: str | float = 5.0
    start_within: str | float = 60.0
    replace_within: str | float = 30.0
    restarts: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.address, str) or not self.address:
            raise PlanError(
                f"Cluster: address={shown(self.address)}; give 'auto', the address of a Ray cluster such as "
                "'10.0.0.5:6379', or 'processes' for processes of this machine"
            )
        flags(encrypt=self.encrypt, owner="Cluster")
        for name, least in (("nodes", 1), ("threads", 1), ("restarts", 0)):
            object.__setattr__(self, name, whole(name, getattr(self, name), least, "Cluster"))
        for name in ("patience", "start_within", "replace_within"):
            value = seconds(getattr(self, name))
            if not value > 0:
                raise PlanError(f"Cluster: {name}={getattr(self, name)!r}; give a time above zero, such as '5s'")
            object.__setattr__(self, name, value)

    @property
    def workers(self) -> int:
        """Threads of all nodes."""
        return self.nodes * self.threads

    @contextmanager
    def open(self) -> Iterator[Any]:
        """A crew that runs passes over blocks on the nodes, for one job, whose Ctrl-C is not lost."""
        with raising_ctrl_c(), self.crew() as crew:
            yield crew

    @contextmanager
    def crew(self) -> Iterator[Any]:
        """A crew, perhaps for several jobs: those who run them see to signals."""
        _check_installed(self.address)
        from .blocks.block_executor import ClusterCrew
        from .hosts.hosts import Hosts

        with Hosts(self) as hosts:
            crew = ClusterCrew(hosts)
            try:
                yield crew
            finally:
                crew.close()

    def serve(self, job: TableJob) -> Outcome:
        """Run a job over tables."""
        _check_installed(self.address)
        from .tables.driver import run

        return run(self, job)

    @contextmanager
    def rounds(self, pipeline: Pipeline, work: RemoteWork) -> Iterator[RoundsRun]:
        """Rounds of a program whose updates run on the nodes."""
        _check_installed(self.address)
        from .hosts.fleet import packed
        from .hosts.hosts import Hosts
        from .rounds.driver import HostRounds
        from .rounds.task import make_rounds_task

        with Hosts(self) as hosts:
            yield HostRounds(pipeline, work, hosts, make_rounds_task, pack=packed)


def _check_installed(address: str) -> None:
    """Refuse, with what to install, where the extra is missing."""
    needed = ["zmq", "cloudpickle"] if address == "processes" else ["ray", "zmq", "cloudpickle"]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise RunError(
            f"Cluster(address={address!r}) needs {', '.join(missing)}, which is not installed: "
            "pip install 'stretto[cluster]'"
        )
