"""One node's part of a static plan: its arrays, and column blocks that arrive and leave. No thread, no clock.

`RingNode` is the common base of the cluster's nodes (`runtime.cluster.blocks.threads`: compiled workers on threads) and
simulated nodes (`runtime.simulated.blocks.node`: one visit after another in virtual time). The subclass makes the
visits and calls

    started = node.start(go)            # a run begins; None: it was stopped before
    node.hand_on(loaded, block)         # the next visit of a block belongs to another node: send it
    node.arrives(message)               # a block has arrived
    node.result(started, …)             # the report of the run
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.errors import RunError
from stretto.kernels.core import claims
from stretto.plan.arrays import Pieces
from stretto.runtime.cluster.net.elements import ElementRuns
from stretto.schedule.orders.order import Ints

from .exchange import Exchanges
from .loaded_step import LoadedStep
from .ring import Block, Ring, raw
from .step_messages import LoadStep, NodeRunResult, PutStates, StartRun, turns_of


class StartedRun(NamedTuple):
    """A run that has begun."""

    loaded: LoadedStep  # its step
    go: StartRun  # the request
    out: NDArray[np.float64]  # the numbers that its visits return


class RingNode(ABC):
    """A node.

    Parameters
    ----------
    number : int
    threads : int
        Workers that make visits at the same time.
    send : function(node, block)
        Have a block carried to another node.
    guard : context manager
        Held around what other threads may see, where there are any.
    """

    def __init__(
        self,
        number: int,
        threads: int,
        send: Callable[[int, Block], None],
        guard: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.number, self._send, self._threads = number, send, threads
        self._guard: AbstractContextManager[Any] = nullcontext() if guard is None else guard
        self._plans: dict[int, LoadedStep] = {}
        self.exchanges = Exchanges(number, send)
        self._counted: int | None = None  # the plan of the current run, whose visits may wait for blocks
        self._epoch = -1  # of the run that began last
        self._stop_from: float = inf  # no visit of this epoch or a later one is claimed
        self._halted = False

    # -- implemented by subclasses -----------------------------------------------------------------------------------

    @abstractmethod
    def _begin_visits(self, loaded: LoadedStep, go: StartRun, done: Ints, stopped: bool) -> None:
        """Prepare the visits of a run.

        Parameters
        ----------
        done : [C] array of int
            Visits of each block that were made, −1 for a block that has not arrived.
        """

    @abstractmethod
    def _end_visits(self) -> None:
        """Claim no more visits of the run."""

    @abstractmethod
    def _release(self, block: int, turn: int) -> None:
        """Allow the visits of a block from this turn on."""

    def _came(self) -> None:  # noqa: B027 (optional)
        """A block has arrived, for this run or the next."""

    def _prepare(self, loaded: LoadedStep, go: StartRun) -> NDArray[np.float64]:
        return loaded.prepare(go)

    # -- calls of the driver -----------------------------------------------------------------------------------------

    def load(self, load: LoadStep) -> None:
        """Allocate the arrays of a step and fill in the constant ones."""
        exchange = None if load.spec.reader is None else self.exchanges.begin(load.plan, load.nodes)
        self._plans[load.plan] = LoadedStep.of(load, self.number, self._threads, exchange=exchange)
        self.exchanges.end(load.plan)

    def drop(self, plan: int) -> None:
        """Free a step."""
        self._plans.pop(plan, None)

    def put(self, put: PutStates) -> None:
        """Copy states of the driver into this node's arrays."""
        with self._guard:
            self._plans[put.plan].put(put, self.number)
            self._counted = None

    def serve(self, plan: int, elements: dict[str, ElementRuns]) -> None:
        """Copy elements of served arrays into this node's arrays."""
        args = self._plans[plan].args
        for k, found in elements.items():
            found.write(args[k].reshape(-1))

    def warm(self, go: StartRun) -> None:
        """Compile what a run needs before time is measured."""
        loaded = self._plans[go.plan]
        out = self._prepare(loaded, go)
        loaded.compiled(claims.stopped(), 0, out, *loaded.call())

    def arrived(self, plan: int, turns: Ints, seconds: float) -> bool:
        """Whether all blocks have arrived that belong to this node after turns[c] visits; waits up to `seconds` for
        them.
        """
        return self._plans[plan].ring.complete(turns)

    def fetch(self, plan: int, turns: Ints) -> dict[str, Pieces]:
        """This node's chunks of the states."""
        loaded = self._plans[plan]
        spec = loaded.load.spec
        own, begun = loaded.route.own(self.number, turns), bool(turns.any())
        learned = {k: spec.ranges(k) for k in spec.cut(written=True) if begun or not spec.arrays[k].fresh}
        return {k: r.pieces(loaded.args[k], own[r.by]) for k, r in learned.items()}

    def stop(self, epoch: int) -> None:
        """Claim no more visits of this epoch or of later ones."""
        with self._guard:
            self._stop_from = epoch
            if self._counted is not None and self._epoch >= epoch:
                self._end_visits()

    def reached(self, least: int) -> int:
        """The epoch that began last, at least `least`; no later epoch begins from now on."""
        with self._guard:
            found = max(self._epoch, least)
            self._stop_from = min(self._stop_from, found + 1)
            return found

    def halt(self) -> None:
        """Stop all visits and release waiting threads."""
        self._halted = True
        self.exchanges.halt()
        self.stop(0)

    def begin(self, go: StartRun) -> None:
        """Prepare for a new run while no other is in progress: an earlier `stop` no longer applies."""
        with self._guard:
            self._epoch, self._stop_from = go.epoch - 1, inf

    def sizes(self, plan: int, block: int) -> list[int] | None:
        """Bytes of each rotating array's block; None if there is no such block."""
        loaded = self._plans.get(plan)
        return loaded.sizes[block] if loaded is not None and 0 <= block < len(loaded.sizes) else None

    # -- a run -------------------------------------------------------------------------------------------------------

    def start(self, go: StartRun) -> StartedRun | None:
        """Begin a run; None if it was stopped before, while the ring is still in the previous epoch."""
        loaded = self._plans[go.plan]
        out = self._prepare(loaded, go)
        with self._guard:
            stopped = self._halted or go.epoch >= self._stop_from
            if go.ahead and stopped:
                return None
            self._epoch = go.epoch
            if not len(go.finished):
                # Blocks that are still in flight are zeroed when they arrive.
                own = loaded.route.own(self.number, np.zeros_like(loaded.route.turns))
                loaded.clear("rows", own["rows"])
                loaded.clear("cols", own["cols"])
            done = loaded.ring.start(go.epoch, turns_of(loaded.load.order, go.finished))
            if go.phase is not None:
                loaded.served.begin(go.phase[loaded.mine(go.phase)])
            self._begin_visits(loaded, go, done, stopped)
            self._counted = go.plan
        return StartedRun(loaded, go, out)

    def result(
        self, started: StartedRun, log: Ints, left: int, failed: int, seconds: float, waited: float, moved: int
    ) -> NodeRunResult:
        """The report of a run. Visits of a phase are numbered from 0.

        Parameters
        ----------
        started : StartedRun
            The run.
        log : array of int
            Nanoseconds since the run began.
        left : int
            Visits not made.
        failed : int
            The visit that failed, or −1.
        seconds, waited : float
            Duration, and waiting time summed over workers.
        moved : int
            Bytes of blocks sent.
        """
        loaded, go, out = started
        out = out[log[:, 0]]
        if go.phase is not None:
            log[:, 0] = go.phase[log[:, 0]]
            failed = int(go.phase[failed]) if failed >= 0 else -1
        made = np.ascontiguousarray(log[:, 0])
        if left:
            with self._guard:  # an announced run does not begin
                self._stop_from = min(self._stop_from, go.epoch)
        spec, own_rows = loaded.load.spec, loaded.route.own_rows(self.number)
        return NodeRunResult(
            go.epoch,
            made,
            out,
            {k: loaded.args[k][made] for k in spec.of("per visit")},
            log,
            failed,
            {k: loaded.args[k] for k in spec.of("fault")},
            seconds,
            waited,
            moved,
            {k: spec.ranges(k).pieces(loaded.args[k], own_rows) for k in spec.fresh("rows")},
            *(() if go.phase is None else loaded.served.end(go.phase, loaded.mine(go.phase))),
        )

    def _mark(self, ring: Ring, left: int) -> tuple[int, ...]:
        """Numbers that change with any progress of the run."""
        return (self._epoch, left, int(ring.here.sum()), ring.departing)

    # -- blocks ------------------------------------------------------------------------------------------------------

    def hand_on(self, loaded: LoadedStep, block: int) -> int:
        """Send a block whose next visit belongs to another node; return the bytes of the message."""
        parts = tuple(raw(loaded.view(k, block)) for k in loaded.load.spec.rotating)
        with self._guard:
            leave = loaded.ring.leaves(block)
        self._forget(loaded, block)
        message = Block(loaded.load.plan, leave.epoch, block, leave.turn, parts)
        self._send(leave.node, message)
        return message.nbytes

    def _forget(self, loaded: LoadedStep, block: int) -> None:
        for k in loaded.load.spec.rotating:
            ranges = loaded.load.spec.ranges(k)
            if ranges.axis == 0:
                loaded.pages[k].forget(int(ranges.first[block]), int(ranges.last[block]))

    def arrives(self, message: Block) -> None:
        """Receive a block. RunError if it does not belong to this node: the run could never end."""
        loaded = self._plans.get(message.plan)
        with self._guard:
            why = "there is no such plan" if loaded is None else loaded.ring.refuses(message)
            if not why and loaded is not None and [len(part) for part in message.parts] != loaded.sizes[message.block]:
                why = "it has another size"
            if why or loaded is None:
                raise RunError(
                    f"node {self.number} received block {message.block} after turn {message.turn} of epoch "
                    f"{message.epoch} and cannot use it: {why}; please report this, with the logs of the hosts"
                )
            for k, part in zip(loaded.load.spec.rotating, message.parts, strict=True):
                place = loaded.view(k, message.block)
                place[...] = part.view(place.dtype).reshape(place.shape)
            turn = loaded.ring.arrives(message)
            if turn == 0:  # of the current run; the next run zeroes its own
                loaded.clear("cols", np.array([message.block]))
            if turn is not None and self._counted == message.plan:
                self._release(message.block, turn)
            self._came()
