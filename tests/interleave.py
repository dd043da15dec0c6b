"""All interleavings of a small run: two nodes of one worker each, every order of worker steps and message deliveries.

An action touches one node: its worker takes a step, or it takes the next frame of the other node. So a node's state
follows from its own actions and the frames it was given, and each such state is made once, by running the node from the
start through them. The states of both together form a graph without cycles; walking it once, with every edge checked,
checks every interleaving, and the paths through it are counted.

    walk = Walk(SSP(1)); walk.run()
    walk.interleavings, walk.states, walk.stuck, walk.behind
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from stretto.comm.link import Frame
from stretto.comm.policy import Eager, Policy
from stretto.store.layout import Layout, TableSpec
from stretto.store.node import StoreNode
from stretto.store.recording import Recording
from stretto.store.shard.functions import add

Step = tuple[str, tuple[int, ...]]  # what is done, with which rows: "read", "add", "tick", "leave", or two: "add tick"
KEEP = 1_000_000  # states, so that a mistake does not fill the memory


class Seen(NamedTuple):
    """A read that was served: the adds of each worker in each row, and the values."""

    clock: int
    rows: tuple[int, ...]
    witness: tuple[tuple[int, ...], ...]
    values: tuple[float, ...]


@dataclass(eq=False)
class Local:
    """A node after some actions. done: steps its worker has made; waits: it was refused and not yet called again.

    sent, read: frames sent and rows read by the last action. final: what its shard holds, when its worker is done.
    live: the node itself, until it has gone on with a further action.
    """

    number: int
    actions: tuple[Any, ...]
    live: StoreNode | None
    done: int = 0
    waits: bool = False
    sent: tuple[Any, ...] = ()
    read: Seen | None = None
    after: dict[Any, Local] = field(default_factory=dict)
    final: dict[int, tuple[tuple[int, ...], float]] = field(default_factory=dict)


Both = tuple[Local, Local]
Frames = tuple[Frame, ...]
Wires = tuple[Frames, Frames]  # on the way to node 0, to node 1; which ones follows from the states of both


class Walk:
    """rule: anything with need(clock), exact and speculate. scripts: the steps of both workers."""

    def __init__(self, rule: Any, scripts: Sequence[Sequence[Step]], policy: Policy | None = None) -> None:
        self.scripts = tuple(tuple(script) for script in scripts)
        table = TableSpec("x", add, rows=2, cols=1, dtype="f8", partition="range")
        self.layout = Layout((table,), 2, 2, rule, policy or Eager(), witness=True)
        self.locals = 0
        self.frames: dict[Any, Frame] = {}
        self.roots = [Local(number, (), self._node(number)) for number in range(2)]
        # What the scripts say: for each worker the (clock, row) of every add, by step.
        self.adds = [self._adds(script) for script in self.scripts]
        self.paths: dict[Both, int] = {}
        self.ends = 0  # states in which nothing more can happen
        self.stuck: list[Both] = []  # those among them in which somebody waits
        self._checked: set[tuple[Local, int]] = set()
        self.behind: set[int] = set()
        self.ahead: set[int] = set()
        self.wrong: list[str] = []

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _node(self, number: int) -> StoreNode:
        return StoreNode(self.layout, number, recording=Recording(self.layout, record="full"))

    def next(self, local: Local, action: Any) -> Local:
        """The node after one action more."""
        found = local.after.get(action)
        if found is None:
            self.locals += 1
            assert self.locals < KEEP, "too many states: a smaller scope is needed"
            node, local.live = local.live, None
            if node is None:  # it has gone another way: record it anew
                node, again = self._node(local.number), Local(local.number, (), None)
                for earlier in local.actions:
                    self._act(node, earlier, again)
            found = Local(local.number, (*local.actions, action), node, local.done, local.waits)
            self._act(node, action, found)
            if found.done == len(self.scripts[local.number]):
                keys, values = node.shard.table(0)
                _, witness = node.shard.witness(0)
                for key, value, counts in zip(keys.tolist(), values[:, 0].tolist(), witness.tolist(), strict=True):
                    found.final[key] = tuple(counts), value
            local.after[action] = found
        return found

    def _act(self, node: StoreNode, action: Any, local: Local) -> None:
        """Take one action; its outcome goes to `local`."""
        local.read = None
        if action == "step":
            local.waits, local.read = self._step(node, local.number, local.done)
            local.done += not local.waits
        else:
            node.receive(0.0, 1 - local.number, action)
        if node.woken:
            local.waits = False
            node.woken.clear()
        # Frames without a message only acknowledge; without a window nothing in a table depends on them.
        local.sent = tuple(self._same(frame) for _, frame in node.frames if frame.message is not None)
        node.frames.clear()

    def _step(self, node: StoreNode, worker: int, step: int) -> tuple[bool, Seen | None]:
        """Whether the worker was refused, and what it read."""
        whats, rows = self.scripts[worker][step]
        keys = np.array(rows, dtype=np.int64)
        read = None
        for what in whats.split():
            if what == "tick":
                assert node.tick(0.0, worker)
            elif what == "leave":
                node.leave(0.0, worker)
            elif what == "add":
                node.add(0.0, worker, 0, keys, np.full((len(keys), 1), self.delta(worker, step)))
            else:
                out = np.empty((len(keys), 1))
                if not node.read(0.0, worker, 0, keys, out):
                    return True, None
                assert node.recording is not None
                event = node.recording.reads[-1]
                witness = tuple(tuple(line) for line in event.seen.tolist())
                read = Seen(event.clock, rows, witness, tuple(out[:, 0].tolist()))
        return False, read

    def _same(self, frame: Frame) -> Frame:
        """One frame for all that say the same: what it acknowledges is left out, which only keeps more for a resend."""
        message = frame.message
        said = tuple(_plain(getattr(message, entry.name)) for entry in fields(message))  # type: ignore[arg-type]
        key = (frame.source, frame.sequence, type(message).__name__, said)
        if key not in self.frames:
            self.frames[key] = Frame(0, frame.source, frame.sequence, 0, message, False, frame.nbytes)
        return self.frames[key]

    def delta(self, worker: int, step: int) -> float:
        """Every add has a decimal digit of its own, so that a value says which were made, and how often."""
        at = [k for k, (whats, _) in enumerate(self.scripts[worker]) if "add" in whats].index(step)
        return 10.0 ** (worker * 6 + at)

    # -- both together ----------------------------------------------------------------------------------------------

    def run(self) -> Walk:
        """Walk the whole graph. What is still to do is a list, since paths are long."""
        self.start = self.roots[0], self.roots[1]
        todo: list[tuple[Both, Wires]] = [(self.start, ((), ()))]
        children: dict[Both, list[tuple[Both, Wires]]] = {}
        while todo:
            both, wires = todo[-1]
            if both in self.paths:
                todo.pop()
                continue
            if both not in children:
                children[both] = self._children(both, wires)
                missing = [child for child in children[both] if child[0] not in self.paths]
                if missing:
                    todo += missing
                    continue
            below = children.pop(both)
            self.paths[both] = sum(self.paths[child] for child, _ in below) if below else 1
            todo.pop()
        return self

    @property
    def interleavings(self) -> int:
        return self.paths[self.start]

    @property
    def states(self) -> int:
        return len(self.paths)

    def _children(self, both: Both, wires: Wires) -> list[tuple[Both, Wires]]:
        """The states one action away, each checked."""
        found: list[tuple[Both, Wires]] = []
        for k in range(2):
            local = both[k]
            if local.done < len(self.scripts[k]) and not local.waits:
                self._reach(both, wires, k, "step", wires[k], found)
            if wires[k]:
                self._reach(both, wires, k, wires[k][0], wires[k][1:], found)
        if not found:
            self._check_end(both)
        return found

    def _reach(
        self, both: Both, wires: Wires, k: int, action: Any, left: Frames, found: list[tuple[Both, Wires]]
    ) -> None:
        after = self.next(both[k], action)
        other = both[1 - k]
        away = (*wires[1 - k], *after.sent)
        if after.read is not None and (after, other.done) not in self._checked:
            self._checked.add((after, other.done))
            self._check(k, after.read, (after.done, other.done) if k == 0 else (other.done, after.done))
        found.append(((after, other), (left, away)) if k == 0 else ((other, after), (away, left)))

    # -- what must hold ---------------------------------------------------------------------------------------------

    def _adds(self, script: Sequence[Step]) -> list[tuple[int, int, int]]:
        """(step, clock, row) of every add, in order."""
        clock, found = 0, []
        for step, (whats, rows) in enumerate(script):
            for what in whats.split():
                if what == "tick":
                    clock += 1
                elif what == "add":
                    found += [(step, clock, row) for row in rows]
        return found

    def _check(self, reader: int, read: Seen, done: tuple[int, int]) -> None:
        """One read, when the workers had done n steps: nothing is lost, doubled or made up, own adds are included.
        How far it was behind and ahead of the other is noted, for those who know the rule."""
        for row, counts, value in zip(read.rows, read.witness, read.values, strict=True):
            total = 0.0
            for worker, count in enumerate(counts):
                mine = [add for add in self.adds[worker] if add[2] == row]
                made = sum(step < done[worker] for step, _, _ in mine)
                total += sum(self.delta(worker, step) for step, _, _ in mine[:count])
                if count > made:
                    self.wrong.append(f"worker {reader} saw {count} adds of worker {worker} to row {row}; made: {made}")
                missing = [clock for _, clock, _ in mine[count:]]
                if worker == reader:
                    if count < made:
                        self.wrong.append(f"worker {reader} missed its own add to row {row}")
                    continue
                if missing:
                    self.behind.add(read.clock - missing[0])
                if count:
                    self.ahead.add(mine[count - 1][1] - read.clock)
            if total != value:
                self.wrong.append(f"row {row} is {value}; its adds make {total}")

    def _check_end(self, both: Both) -> None:
        """Nothing more can happen: both are done and the shards hold every add once, or a worker waits without end."""
        self.ends += 1
        if any(local.done < len(script) for local, script in zip(both, self.scripts, strict=True)):
            self.stuck.append(both)
            return
        final = {**both[0].final, **both[1].final}
        for row in range(2):
            mine = [[step for step, _, r in self.adds[w] if r == row] for w in range(2)]
            counts = tuple(len(steps) for steps in mine)
            value = sum(self.delta(w, step) for w in range(2) for step in mine[w])
            if final.get(row, ((0, 0), 0.0)) != (counts, value):
                self.wrong.append(f"at the end row {row} is {final.get(row)}, not {(counts, value)}")


def _plain(value: Any) -> Any:
    """Something that can be compared."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(_plain(part) for part in value) if isinstance(value, tuple) else value
