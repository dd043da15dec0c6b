"""The task of a host in a static plan: its nodes, their links to other nodes, and the driver's calls.

    ask("load", {node: Load})       a step: allocate arrays and fill in the constant ones
    ask("apply", function, items)   → [function(item, crew), …]
    ask("put", {node: Put})         the driver's states
    ask("serve", {node: Serve})     elements of served arrays that the next run touches
    ask("warm", Go)                 compile what a run needs
    ask("run", Go, …)               start a run, and after it the next
    ask("stop", epoch)              claim no more visits of this epoch or a later one
    ask("reached", least)           → {node: epoch}, begun last, at least `least`; no later one begins from now on
    ask("progress")                 → {node: Progress} of nodes that are in a run
    ask("arrived", plan, turns, s)  → whether all blocks have arrived that belong to this host; waits up to s seconds
    ask("fetch", plan, turns)       → {node: {argument: chunks}}, the states
    ask("drop", plan)               free a step
    ask("counters")                 → (duplicate frames, gaps)

It reports the events ("ran", node, Ran) when a node has made its visits, and ("failed", node, (−1, epoch, error)).

Subclasses of `RingTask` make the visits: on threads (`runtime.cluster.blocks.threads`), or in virtual time
(`runtime.simulated.blocks.host`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from stretto.comm.link import Frame
from stretto.errors import RunError
from stretto.runtime.cluster.hosts.calls import RING, BeginTask, HostApi, HostEvent
from stretto.runtime.cluster.hosts.remote_errors import portable
from stretto.runtime.cluster.net.frame_checks import Malformed, NoCheck, RowFormat
from stretto.runtime.cluster.net.task_links import TaskLinks
from stretto.runtime.runtimes import Threads

from .exchange import entries_fit
from .node import RingNode
from .ring import ENTRIES, TAKEN, Block
from .served_arrays import ServeElements
from .step_messages import LoadStep, NodeProgress, PutStates, StartRun

WITHIN = 60.0  # seconds for a sent block to arrive


class BlockCheck(NoCheck):
    """Accepts blocks of the loaded steps, of the right sizes."""

    def __init__(self, task: RingTask) -> None:
        self._task = task

    def table(self, number: int) -> RowFormat | None:
        raise Malformed("a table where there are blocks")

    def block(self, plan: int, block: int, sizes: Sequence[int]) -> None:
        if plan in (ENTRIES, TAKEN):
            if sizes and (plan == TAKEN or not entries_fit(sizes)):
                raise Malformed("entries of wrong sizes")
            return
        known = next((node.sizes(plan, block) for node in self._task.nodes.values()), None)
        if known is None:
            raise Malformed("no such block")
        if list(sizes) != known:
            raise Malformed("a block of another size")


class RingTask(ABC):
    """The nodes of a host in one incarnation."""

    channel = RING

    def __init__(self, host: HostApi, begin: BeginTask) -> None:
        self._host, self._begin = host, begin
        self._links = TaskLinks(host, begin, RING)
        self.nodes: Mapping[int, RingNode] = {node: self._node(node) for node in begin.nodes_of(host.number)}
        self.check = BlockCheck(self)

    @abstractmethod
    def _node(self, number: int) -> RingNode:
        """Create a node."""

    @abstractmethod
    def _run(self, go: StartRun) -> None:
        """Start a run on all nodes, after those that were started before."""

    @abstractmethod
    def _progress(self) -> dict[int, NodeProgress]:
        """Progress of the nodes that are in a run."""

    def start(self) -> None:  # noqa: B027 (part of `calls.HostTask`)
        """Nothing to do before the driver's first call."""

    def halt(self) -> None:
        """Make no more visits and send nothing."""
        self._links.halt()
        for node in self.nodes.values():
            node.halt()

    # -- the wire ----------------------------------------------------------------------------------------------------

    def _send(self, node: int, to: int, block: Block) -> None:
        self._links.send(node, to, block)

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Handle frames of another node, of this or another host."""
        node = self.nodes.get(target)
        if node is None:
            return
        for block in self._links.receive(source, target, frames):
            self._take(node, source, block)

    def _take(self, node: RingNode, source: int, block: Block) -> None:
        try:
            if block.plan in (ENTRIES, TAKEN):
                node.exchanges.arrives(source, block)
            else:
                node.arrives(block)
        except Exception as error:
            self._tell("failed", node.number, (-1, block.epoch, portable(error)))

    def tend(self, now: float) -> float:
        """Send acknowledgements and retransmissions that are due."""
        return self._links.tend(now)

    def reset(self, now: float, nodes: Sequence[int]) -> None:
        """The lost connection to these nodes was re-established."""
        self._links.reset(nodes)

    # -- the driver --------------------------------------------------------------------------------------------------

    def ask(self, what: str, *args: Any) -> Any:
        """Answer a call of the driver; see the module's docstring."""
        match what:
            case "load":
                # Nodes that read files wait for each other.
                loads = cast(dict[int, LoadStep], args[0])
                with ThreadPoolExecutor(max(1, len(loads))) as pool:
                    list(pool.map(self._load, loads, loads.values()))
            case "apply":
                function, items = args
                with Threads(self._host.threads).open() as crew:
                    return [function(item, crew) for item in items]
            case "put":
                for node, put in cast(dict[int, PutStates], args[0]).items():
                    self.nodes[node].put(put)
            case "serve":
                for node, serve in cast(dict[int, ServeElements], args[0]).items():
                    self.nodes[node].serve(serve.plan, serve.elements)
            case "warm":
                for ring_node in self.nodes.values():
                    ring_node.warm(args[0])
            case "run":
                for go in args:
                    self._run(go)
            case "stop":
                for ring_node in self.nodes.values():
                    ring_node.stop(args[0])
            case "reached":
                return {n: ring_node.reached(args[0]) for n, ring_node in self.nodes.items()}
            case "progress":
                return self._progress()
            case "fetch":
                return {n: ring_node.fetch(*args) for n, ring_node in self.nodes.items()}
            case "arrived":
                return all(ring_node.arrived(*args) for ring_node in self.nodes.values())
            case "drop":
                for ring_node in self.nodes.values():
                    ring_node.drop(args[0])
            case "counters":
                return self._links.counters()
            case _:
                raise RunError(f"a host was asked for {what!r}, and blocks have no such call; please report this")
        return None

    def _load(self, node: int, load: LoadStep) -> None:
        try:
            self.nodes[node].load(load)
        except BaseException:
            for other in self.nodes.values():  # they would wait without end
                other.exchanges.halt()
            raise

    def _tell(self, what: str, node: int, value: Any) -> None:
        self._host.tell(HostEvent(self._begin.incarnation, self._host.number, what, node, value))
