"""One node's part of the steps of a plan: its memory, its workers, and the blocks that come and go.

On a node run the same compiled workers over the same `Pass` as on one machine, except that only the visits of its own
row blocks are there. One more thread looks for column blocks that have to leave (`kernels.departures`), copies them out
and sends them; blocks that arrive are copied into their place on the wire's thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.errors import RunError
from stretto.kernels import claims
from stretto.kernels.clock import read_cycles
from stretto.kernels.departures import arrive, await_departures
from stretto.plan.arrays import Pieces, StepSpec
from stretto.runtime import passes
from stretto.runtime.team import Team
from stretto.schedule.order import Ints, Order
from stretto.schedule.route import Route

from .elements import Elements
from .pages import Pages
from .ring import Block, Leave, Ring, raw
from .served_copies import ServedCopies

# Microseconds between two looks, of workers that wait for a block and of the thread that waits for blocks to leave. A
# look costs some ten microseconds of a processor that others could use, and a block travels for milliseconds.
NAP, WATCH = 250, 500


@dataclass(frozen=True, eq=False)
class Load:
    """A step for one node: everything that is the same in every run. shapes: of the arrays that are cut."""

    plan: int
    spec: StepSpec
    order: Order
    owner: Ints
    priority: Ints
    profile: str
    shapes: dict[str, tuple[tuple[int, ...], str]]
    given: dict[str, Any]  # constants, and arrays for faults
    pieces: dict[str, Pieces]  # of those cut by visits and only read, this node's
    scratch: dict[str, tuple[tuple[int, ...], str]]  # shape and dtype of one worker's


@dataclass(frozen=True, eq=False)
class Put:
    """States for one node, as they are after turns[c] visits of each column block in this epoch."""

    plan: int
    epoch: int
    turns: Ints
    pieces: dict[str, Pieces]


@dataclass(frozen=True, eq=False)
class Go:
    """A run: make every visit that is not in `finished`. parts: what each element of those per visit begins as.

    ahead: told while the run before it was being made, and begun only when that one has made all its visits. only: make
    these visits and no others, `finished` among them, and of each block the first. phase: make these visits alone, and
    count them from 0; those in `finished` were made in earlier phases.
    """

    plan: int
    epoch: int
    finished: Ints
    numbers: dict[str, Any]
    wholes: dict[str, NDArray[Any]]
    parts: dict[str, NDArray[Any]]
    ahead: bool = False
    only: Ints | None = None
    phase: Ints | None = None


@dataclass(frozen=True, eq=False)
class Ran:
    """What came of a run on a node. made: visits, and what they gave; log in nanoseconds since the node began."""

    epoch: int
    made: Ints
    out: NDArray[np.float64]
    parts: dict[str, NDArray[Any]]
    log: Ints
    failed: int  # −1: none
    faults: dict[str, NDArray[Any]]
    seconds: float
    waited: float  # seconds that workers waited for blocks, added up
    moved: int  # bytes of blocks sent
    fresh: dict[str, Pieces]  # of arrays that are zeros when an epoch begins, cut by rows: what there is now
    served: dict[str, Elements] = field(default_factory=dict)  # elements of served arrays that visits have changed
    slot_visits: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    slots: dict[str, Elements] = field(default_factory=dict)  # of arrays per slot, those of `slot_visits`


@dataclass(eq=False)
class Loaded:
    """A step on this node."""

    load: Load
    route: Route
    ring: Ring
    compiled: Callable[..., Any]
    args: dict[str, Any]
    pages: dict[str, Pages]
    own: Ints  # visits
    served: ServedCopies
    sizes: list[list[int]] = field(default_factory=list)  # [C][…] bytes of each rotating array's block

    @classmethod
    def of(cls, load: Load, node: int, threads: int) -> Loaded:
        spec = load.spec
        route = Route(load.order, load.owner)
        pages = {k: Pages(shape, dtype) for k, (shape, dtype) in load.shapes.items()}
        args: dict[str, Any] = dict.fromkeys(spec.arrays) | load.given
        for k, (shape, dtype) in load.scratch.items():
            args[k] = np.zeros((threads, *shape), dtype)
        for k, made in pages.items():
            args[k] = made.array
        for k in spec.of("flat view"):
            args[k] = args[spec.arrays[k].of].reshape(len(args[spec.arrays[k].of]), -1)
        entries = load.pieces
        if spec.reader is not None:
            entries = spec.reader.pieces(route.own_visits(node), threads)
        for k, pieces in entries.items():
            spec.ranges(k).fill(args[k], pieces)
        kernel = spec.kernel.load()[load.profile]
        found = cls(
            load, route, Ring(node, route), kernel, args, pages, route.own_visits(node), ServedCopies(spec, args)
        )
        found.sizes = [[int(found.view(k, block).nbytes) for k in spec.rotating] for block in range(load.order.cols)]
        return found

    def view(self, k: str, block: int) -> NDArray[Any]:
        """A block of a rotating array, live."""
        ranges = self.load.spec.ranges(k)
        return ranges.view(
            self.args[k], (int(ranges.first[block]), max(int(ranges.first[block]), int(ranges.last[block])))
        )

    def put(self, put: Put, node: int) -> None:
        for k, pieces in put.pieces.items():
            self.load.spec.ranges(k).fill(self.args[k], pieces)
        self.ring.settle(put.epoch, put.turns)

    def clear(self, by: str, blocks: Ints) -> None:
        """What is zeros when an epoch begins, of blocks for which one does."""
        spec = self.load.spec
        for k in spec.fresh(by):
            for _, piece in spec.ranges(k).pieces(self.args[k], blocks):
                piece[...] = 0

    def call(self) -> list[Any]:
        """Arguments as the worker takes them."""
        return self.load.spec.nested(self.args)

    def prepare(self, go: Go) -> NDArray[np.float64]:
        """The arguments of a run; where visits write their numbers to."""
        visits = len(self.load.order)
        for k in self.load.spec.of("numbering"):
            self.args[k] = np.arange(visits, dtype=np.int64) if go.phase is None else go.phase
        for k, number in go.numbers.items():
            self.args[k] = number
        for k, array in go.wholes.items():
            self.args[k] = array
        for k, one in go.parts.items():
            self.args[k] = np.repeat(one, visits, axis=0)
        for k in self.load.spec.of("fault"):
            self.args[k] = np.zeros_like(self.args[k])
        return np.zeros(visits if go.phase is None else len(go.phase))

    def pass_of(self, finished: Ints, col_done: Ints, only: Ints | None = None) -> claims.Pass:
        """The pass over this node's visits, or over those of them that are in `only`."""
        order = self.load.order
        taken = np.zeros(len(order), np.int64)
        taken[finished] = 1
        mine = np.zeros(len(order), bool)
        mine[self.own if only is None else np.intersect1d(self.own, only)] = True
        row_visits = order.row_visits[mine[order.row_visits]]
        counts = np.bincount(order.row_block[mine], minlength=order.rows)
        done = finished[mine[finished]]
        left = len(row_visits) - len(done)
        made = claims.Pass(
            row_block=order.row_block,
            col_block=order.col_block,
            row_turn=order.row_turn,
            col_turn=order.col_turn,
            priority=self.load.priority,
            row_first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            row_visits=row_visits,
            row_last=np.full(order.rows, -1, np.int64),
            row_done=np.bincount(order.row_block[done], minlength=order.rows).astype(np.int64),
            col_done=col_done,
            taken=taken,
            script=np.empty(0, np.int64),
            log=np.zeros((left, claims.LOG_COLUMNS), np.int64),
        )
        made.control[claims.LEFT], made.control[claims.NAP] = left, NAP
        return made

    def pass_of_phase(self, phase: Ints, col_done: Ints) -> claims.Pass:
        """The pass over this node's visits of a phase, counted from 0; the row blocks that they visit, likewise."""
        order, mine = self.load.order, self.mine(phase)
        rows, row = np.unique(order.row_block[phase[mine]], return_inverse=True)
        by_row = np.argsort(row, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(rows)))]).astype(np.int64)
        row_block, row_turn = np.zeros(len(phase), np.int64), np.zeros(len(phase), np.int64)
        row_block[mine] = row
        row_turn[mine[by_row]] = np.arange(len(mine)) - first[row[by_row]]
        made = claims.Pass(
            row_block=row_block,
            col_block=order.col_block[phase],
            row_turn=row_turn,
            col_turn=order.col_turn[phase],
            priority=self.load.priority[phase],
            row_first=first,
            row_visits=mine[by_row],
            row_last=np.full(len(rows), -1, np.int64),
            row_done=np.zeros(len(rows), np.int64),
            col_done=col_done,
            taken=np.zeros(len(phase), np.int64),
            script=np.empty(0, np.int64),
            log=np.zeros((len(mine), claims.LOG_COLUMNS), np.int64),
        )
        made.control[claims.LEFT], made.control[claims.NAP] = len(mine), NAP
        return made

    def mine(self, phase: Ints) -> Ints:
        """Places in a phase of the visits that this node makes."""
        return np.flatnonzero(self.route.node[phase] == self.ring.node).astype(np.int64)


def turns_of(order: Order, finished: Ints) -> Ints:
    """[C] how many visits of each column block are among the finished ones."""
    return np.bincount(order.col_block[finished], minlength=order.cols).astype(np.int64)


def _nothing(epoch: int) -> Ran:
    """Of a run that was stopped before it began."""
    none = np.zeros(0, np.int64)
    return Ran(epoch, none, np.zeros(0), {}, np.zeros((0, claims.LOG_COLUMNS), np.int64), -1, {}, 0.0, 0.0, 0, {})


class Progress(NamedTuple):
    """Where a node stands. mark: changes whenever it has got on; busy: what it could do now, visits and blocks to be
    sent on; 0: it waits for blocks, or for a run."""

    mark: tuple[int, ...]
    busy: int


class RingNode:
    """A node. send(block, to): have a message carried to another node."""

    def __init__(self, number: int, threads: int, send: Callable[[int, Block], None]) -> None:
        self.number, self._send, self._threads = number, send, threads
        self._team = Team(threads)
        self._plans: dict[int, Loaded] = {}
        self._changed = threading.Condition()  # guards the rings and what follows
        self._running: tuple[int, claims.Pass] | None = None  # the plan whose blocks are counted in this pass
        self._epoch = -1  # begun last
        self._stop_from: float = inf  # no visit of this epoch or a later one is claimed
        self._halted = False

    # -- calls of the driver -----------------------------------------------------------------------------------------

    def load(self, load: Load) -> None:
        """Make room for a step, and put what never changes there."""
        self._plans[load.plan] = Loaded.of(load, self.number, self._threads)

    def drop(self, plan: int) -> None:
        self._plans.pop(plan, None)

    def put(self, put: Put) -> None:
        """Take over the driver's states."""
        with self._changed:
            self._plans[put.plan].put(put, self.number)
            self._running = None

    def serve(self, plan: int, elements: dict[str, Elements]) -> None:
        """Take over elements of served arrays."""
        args = self._plans[plan].args
        for k, found in elements.items():
            found.write(args[k].reshape(-1))

    def warm(self, go: Go) -> None:
        """Have what a run needs compiled before time is measured."""
        loaded = self._plans[go.plan]
        out = loaded.prepare(go)
        words = claims.stopped()
        loaded.compiled(words, 0, out, *loaded.call())
        none = np.empty(0, np.int64)
        await_departures.exact(none, none, words[: claims.CONTROL_SLOTS], none, 0)
        arrive.exact(np.zeros(1, np.int64), 0, 0)

    def arrived(self, plan: int, turns: Ints, seconds: float) -> bool:
        """Whether all blocks are here that should be after turns[c] visits of each; waits so long for them."""
        ring = self._plans[plan].ring
        with self._changed:
            return self._changed.wait_for(lambda: self._halted or ring.complete(turns), seconds) and not self._halted

    def fetch(self, plan: int, turns: Ints) -> dict[str, Pieces]:
        """This node's part of what is learned."""
        loaded = self._plans[plan]
        spec = loaded.load.spec
        own, begun = loaded.route.own(self.number, turns), bool(turns.any())
        learned = {k: spec.ranges(k) for k in spec.cut(written=True) if begun or not spec.arrays[k].fresh}
        return {k: r.pieces(loaded.args[k], own[r.by]) for k, r in learned.items()}

    def stop(self, epoch: int) -> None:
        """Claim no more visits of this epoch, nor of later ones."""
        with self._changed:
            self._stop_from = epoch
            if self._running is not None and self._epoch >= epoch:
                self._running[1].control[claims.STOP] = 1

    def reached(self, least: int) -> int:
        """The epoch that was begun last, `least` if it was one before that; from now on no later one is begun."""
        with self._changed:
            found = max(self._epoch, least)
            self._stop_from = min(self._stop_from, found + 1)
            return found

    def halt(self) -> None:
        """End everything."""
        with self._changed:
            self._halted = True
            self._changed.notify_all()
        self.stop(0)
        self._team.close()

    def begin(self, go: Go) -> None:
        """A run is about to be made, and no other is: what `stop` said of the one before no longer holds."""
        with self._changed:
            self._epoch, self._stop_from = go.epoch - 1, inf

    def run(self, go: Go) -> Ran:
        """Make this node's visits; on a thread of its own."""
        loaded = self._plans[go.plan]
        ring, control = loaded.ring, np.zeros(0, np.int64)
        out = loaded.prepare(go)
        with self._changed:
            stopped = self._halted or go.epoch >= self._stop_from
            if go.ahead and stopped:
                return _nothing(go.epoch)  # the ring is still in the epoch before
            self._epoch = go.epoch
            if not len(go.finished):
                # Blocks that are on their way still are cleared when they come.
                own = loaded.route.own(self.number, np.zeros_like(loaded.route.turns))
                loaded.clear("rows", own["rows"])
                loaded.clear("cols", own["cols"])
            done = ring.start(go.epoch, turns_of(loaded.load.order, go.finished))
            if go.phase is None:
                pass_ = loaded.pass_of(go.finished, done, go.only)
            else:
                pass_ = loaded.pass_of_phase(go.phase, done)
                loaded.served.begin(go.phase[loaded.mine(go.phase)])
            control = pass_.control
            control[claims.STOP] = stopped
            self._running = (go.plan, pass_)

        def halt() -> None:
            control[claims.STOP] = 1

        began, cycles = time.perf_counter_ns(), read_cycles()
        args = loaded.call()
        shares = [(pass_.words, worker, out, *args) for worker in range(self._threads)]
        call = self._team.call(loaded.compiled, shares, halt)
        ready = np.zeros(loaded.load.order.cols, np.int64)
        moved = self._hand_on(loaded, pass_, ready)
        call.wait()
        moved += self._hand_on(loaded, pass_, ready)  # after a stop: those whose last visit was being made
        nanoseconds, gone = time.perf_counter_ns() - began, read_cycles() - cycles
        call.check()
        log = passes.logged(pass_)
        each = nanoseconds / max(1, gone)
        log[:, 2:] = (log[:, 2:] - cycles) * each
        log[:, 1] += self.number * self._threads
        out = out[log[:, 0]]
        failed = int(control[claims.FAILED]) - 1
        if go.phase is not None:
            log[:, 0] = go.phase[log[:, 0]]
            failed = int(go.phase[failed]) if failed >= 0 else -1
        made = np.ascontiguousarray(log[:, 0])
        if control[claims.LEFT]:
            with self._changed:  # a run that was told ahead is not begun
                self._stop_from = min(self._stop_from, go.epoch)
        spec, own_rows = loaded.load.spec, loaded.route.own_rows(self.number)
        return Ran(
            go.epoch,
            made,
            out,
            {k: loaded.args[k][made] for k in spec.of("per visit")},
            log,
            failed,
            {k: loaded.args[k] for k in spec.of("fault")},
            nanoseconds / 1e9,
            float(control[claims.WAITED]) * each / 1e9,
            moved,
            {k: spec.ranges(k).pieces(loaded.args[k], own_rows) for k in spec.fresh("rows")},
            *(() if go.phase is None else loaded.served.end(go.phase, loaded.mine(go.phase))),
        )

    def progress(self) -> Progress:
        """How far the run that is being made has come."""
        with self._changed:
            if self._running is None or self._running[0] not in self._plans:
                return Progress((self._epoch,), 1)
            (plan, pass_), left = self._running, int(self._running[1].control[claims.LEFT])
            ring = self._plans[plan].ring
            mark = (self._epoch, left, int(ring.here.sum()), ring.departing)
            if left == 0 or pass_.control[claims.STOP]:
                return Progress(mark, 1)  # it has to end
            at = pass_.row_first[:-1] + pass_.row_done
            visits = pass_.row_visits[at[at < pass_.row_first[1:]]]
            ready = pass_.col_done[pass_.col_block[visits]] == pass_.col_turn[visits]
            leaving = (ring.leave_at >= 0) & (pass_.col_done == ring.leave_at)
            return Progress(mark, int(ready.sum() + leaving.sum()))

    def sizes(self, plan: int, block: int) -> list[int] | None:
        """Bytes of every rotating array's block, None if there is no such block."""
        loaded = self._plans.get(plan)
        return loaded.sizes[block] if loaded is not None and 0 <= block < len(loaded.sizes) else None

    # -- blocks ------------------------------------------------------------------------------------------------------

    def _hand_on(self, loaded: Loaded, pass_: claims.Pass, ready: Ints) -> int:
        """Send blocks on as they come to the turn of another node, until the pass is over; the bytes of them."""
        ring, moved = loaded.ring, 0
        while count := await_departures.exact(pass_.col_done, ring.leave_at, pass_.control, ready, WATCH):
            for block in ready[:count].tolist():
                parts = tuple(raw(loaded.view(k, block)) for k in loaded.load.spec.rotating)
                with self._changed:
                    leave: Leave = ring.leaves(block)
                self._forget(loaded, block)
                message = Block(loaded.load.plan, leave.epoch, block, leave.turn, parts)
                moved += message.nbytes
                self._send(leave.node, message)
        return moved

    def _forget(self, loaded: Loaded, block: int) -> None:
        for k in loaded.load.spec.rotating:
            ranges = loaded.load.spec.ranges(k)
            if ranges.axis == 0:
                loaded.pages[k].forget(int(ranges.first[block]), int(ranges.last[block]))

    def arrives(self, message: Block) -> None:
        """A block has come. On the wire's thread. RunError if it does not belong here: the run could never end."""
        loaded = self._plans.get(message.plan)
        with self._changed:
            why = "there is no such plan" if loaded is None else loaded.ring.refuses(message)
            if not why and loaded is not None and [len(part) for part in message.parts] != loaded.sizes[message.block]:
                why = "it has another size"
            if why or loaded is None:
                raise RunError(
                    f"node {self.number} cannot take block {message.block} after turn {message.turn} of epoch "
                    f"{message.epoch}: {why}; please report this, with the logs of the hosts"
                )
            for k, part in zip(loaded.load.spec.rotating, message.parts, strict=True):
                place = loaded.view(k, message.block)
                place[...] = part.view(place.dtype).reshape(place.shape)
            turn = loaded.ring.arrives(message)
            if turn == 0:  # of the run that is being made; of the next, that clears it
                loaded.clear("cols", np.array([message.block]))
            if turn is not None and self._running is not None and self._running[0] == message.plan:
                arrive.exact(self._running[1].col_done, message.block, turn)
            self._changed.notify_all()
