"""What a host does when steps run on several nodes: its nodes, the links between them and others, the driver's calls.

    ask("load", {node: Load})       a step: room, and what never changes
    ask("put", {node: Put})         the driver's states
    ask("serve", {node: Serve})     elements of served arrays that the next run touches
    ask("warm", Go)                 compile what a run needs
    ask("run", Go, …)               begin a run, and when it is made the next
    ask("stop", epoch)              claim no more visits of this epoch or a later one
    ask("reached", least)           → {node: epoch}, begun last, or `least`; no later one is begun from now on
    ask("progress")                 → {node: Progress} of those that are making a run
    ask("arrived", plan, turns, s)  → whether all blocks have come that belong here then; waits so long for them
    ask("fetch", plan, turns)       → {node: {argument: pieces}}, what was learned
    ask("drop", plan)               forget a step
    ask("counters")                 → (frames that came twice, gaps)

Told are "ran", node, Ran when a node has made its visits, and "failed", node, (−1, epoch, error).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Any, cast

from stretto.comm.link import Frame, Link
from stretto.errors import RunError

from .checks import Malformed, NoCheck, Shape
from .hosting import RING, Begin, HostApi, Told
from .ring import Block
from .ring_node import Go, Load, Put, RingNode
from .served import Serve
from .telling import portable

WITHIN = 60.0  # seconds for a block to arrive that was sent


def make_ring_task(host: HostApi, begin: Begin) -> RingTask:
    """For `Begin.make`."""
    return RingTask(host, begin)


class BlockCheck(NoCheck):
    """What may come over the wire: blocks of the steps that are loaded, of their right sizes."""

    def __init__(self, task: RingTask) -> None:
        self._task = task

    def table(self, number: int) -> Shape | None:
        raise Malformed("a table where there are blocks")

    def block(self, plan: int, block: int, sizes: Sequence[int]) -> None:
        known = next((node.sizes(plan, block) for node in self._task.nodes.values()), None)
        if known is None:
            raise Malformed("no such block")
        if list(sizes) != known:
            raise Malformed("a block of another size")


class RingTask:
    """One incarnation of the ring on a host."""

    channel = RING

    def __init__(self, host: HostApi, begin: Begin) -> None:
        self._host, self._begin = host, begin
        self._links: dict[tuple[int, int], Link] = {}
        self._lock = threading.Lock()  # of the links: frames are posted in the order of their numbers
        self._runs: dict[int, threading.Thread] = {}  # by node: makes the runs that are to be made
        self._gos: dict[int, deque[Go]] = {}  # those runs, the one that is being made first
        self._turns = threading.Lock()  # of these two
        self._halted = False
        self.nodes = {node: self._node(node) for node in begin.nodes_of(host.number)}
        self.check = BlockCheck(self)

    def _node(self, number: int) -> RingNode:
        return RingNode(number, self._host.threads, lambda to, block: self._send(number, to, block))

    def start(self) -> None:
        """Nothing is done before the driver asks for it."""

    def halt(self) -> None:
        """End all threads."""
        with self._lock:
            self._halted = True
        for node in self.nodes.values():
            node.stop(0)
        for thread in list(self._runs.values()):
            thread.join()
        for node in self.nodes.values():
            node.halt()

    # -- the wire ----------------------------------------------------------------------------------------------------

    def _link(self, node: int, peer: int) -> Link:
        link = self._links.get((node, peer))
        if link is None:
            link = self._links[node, peer] = Link(node, peer, self._begin.incarnation)
        return link

    def _send(self, node: int, to: int, block: Block) -> None:
        with self._lock:
            if self._halted:
                return
            link = self._link(node, to)
            quiet = not link.unacknowledged
            frame = link.send(cast(Any, block))
            self._host.post(self._begin, node, to, RING, [frame])
        if quiet:
            self._host.rouse()  # so that somebody looks whether it is acknowledged

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Frames of another node, or of another on this host."""
        node = self.nodes.get(target)
        if node is None:
            return
        with self._lock:
            link = self._link(target, source)
            blocks: list[Any] = []
            for frame in frames:
                if frame.incarnation == self._begin.incarnation:
                    blocks += link.receive(frame)
            replies, link.replies[:] = list(link.replies), []
            if replies and not self._halted:
                self._host.post(self._begin, target, source, RING, replies)
        for block in blocks:
            if isinstance(block, Block):
                self._take(node, block)

    def _take(self, node: RingNode, block: Block) -> None:
        try:
            node.arrives(block)
        except Exception as error:
            self._tell("failed", node.number, (-1, block.epoch, portable(error)))

    def tend(self, now: float) -> float:
        """Acknowledge and send again what is due."""
        wake = inf
        with self._lock:
            if self._halted:
                return wake
            for (node, peer), link in self._links.items():
                wake = min(wake, link.tend(now))
                if link.replies:
                    replies, link.replies[:] = list(link.replies), []
                    self._host.post(self._begin, node, peer, RING, replies)
        return wake

    def reset(self, now: float, nodes: Sequence[int]) -> None:
        """The connection to these nodes was lost and is there again."""
        with self._lock:
            for (node, peer), link in self._links.items():
                again = link.reset() if peer in nodes and not self._halted else []
                if again:
                    self._host.post(self._begin, node, peer, RING, again)

    # -- the driver --------------------------------------------------------------------------------------------------

    def ask(self, what: str, *args: Any) -> Any:
        """See above."""
        match what:
            case "load":
                for node, load in cast(dict[int, Load], args[0]).items():
                    self.nodes[node].load(load)
            case "put":
                for node, put in cast(dict[int, Put], args[0]).items():
                    self.nodes[node].put(put)
            case "serve":
                for node, serve in cast(dict[int, Serve], args[0]).items():
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
                return {n: self.nodes[n].progress() for n, gos in self._gos.items() if gos}
            case "fetch":
                return {n: ring_node.fetch(*args) for n, ring_node in self.nodes.items()}
            case "arrived":
                return all(ring_node.arrived(*args) for ring_node in self.nodes.values())
            case "drop":
                for ring_node in self.nodes.values():
                    ring_node.drop(args[0])
            case "counters":
                links = self._links.values()
                return sum(link.duplicates for link in links), sum(link.gaps for link in links)
            case _:
                raise RunError(f"a host of the ring cannot answer {what!r}")
        return None

    def _run(self, go: Go) -> None:
        for number, node in self.nodes.items():
            if not go.ahead:
                node.begin(go)
            with self._turns:
                gos = self._gos.setdefault(number, deque())
                gos.append(go)
                if len(gos) > 1:
                    continue  # somebody makes the one before, and then looks for the next
                name = f"stretto-ring-{number}"
                self._runs[number] = threading.Thread(target=self._make, args=(node, gos), name=name, daemon=True)
                self._runs[number].start()

    def _make(self, node: RingNode, gos: deque[Go]) -> None:
        """Make a node's runs until there are no more."""
        more = True
        while more:
            go = gos[0]
            what: str
            value: Any
            try:
                what, value = "ran", node.run(go)
            except BaseException as error:
                what, value = "failed", (-1, go.epoch, portable(error))
                node.stop(0)
            # Told after it is taken off: whoever hears of it may ask for the next run at once.
            with self._turns:
                gos.popleft()
                more = bool(gos)
            self._tell(what, node.number, value)

    def _tell(self, what: str, node: int, value: Any) -> None:
        self._host.tell(Told(self._begin.incarnation, self._host.number, what, node, value))
