"""Functions over the parts of a data set that nodes hold, from the driver's side.

    held = parts.make(load, pieces)             # a value for each part, on the node that has the part
    found = held.map(price, v)                  # results in the order of the parts
    fold = held.derive(take_rows, rows)         # other values, made of these where they are

The number of parts is the caller's, and never depends on the nodes: part k of P belongs to node k·N // P. Functions are
pure (see `parts_task`). So when a host is lost, all begin again: the values that a call needs are recomputed from what
they were made of, and the call is repeated. Results are the same bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from stretto.errors import DataError, RunError
from stretto.runtime.cluster.hosts.calls import HostLost
from stretto.runtime.interrupts import deferring_ctrl_c

from .task import Failed, Work

_WITHIN = 60.0  # seconds for any call to be answered
_BYTES, _ITEMS = 5e6, 2e5  # a second that any control plane carries, that any node reads

Function = Callable[..., Any]


class PartHosts(Protocol):
    """What is needed of `hosts.Hosts`."""

    nodes: int
    where: tuple[int, ...]
    incarnation: int

    def begin(self, make: Callable[..., Any], payloads: Any) -> None: ...
    def ask_each(
        self, what: str, args: Mapping[int, tuple[Any, ...]], *, timeout: float | None = None
    ) -> dict[int, Any]: ...
    def lose(self, lost: HostLost) -> None: ...
    def progressed(self) -> None: ...


class Parts:
    """Values that the hosts hold.

    Parameters
    ----------
    hosts : PartHosts
        `hosts.Hosts`, entered, or simulated ones.
    make_task : function
        For `Begin.make`.
    beginning : function()
        Called before the hosts begin this task, which ends the one they have.
    """

    def __init__(self, hosts: PartHosts, make_task: Callable[..., Any], beginning: Callable[[], None]) -> None:
        self._hosts, self._make_task, self._beginning = hosts, make_task, beginning
        self._incarnation = -1  # in which the hosts began the task; another one has ended it
        self._made: set[int] = set()  # numbers of the values that hosts have in this incarnation
        self._numbered = 0
        self._unused: list[int] = []  # numbers of values that nobody refers to any more

    def make(self, function: Function, each: Sequence[Any], *shared: Any, items: float = 0.0) -> Held:
        """One value for each of `each`: function(crew, {part: own}, *shared) -> {part: value}, called once on a host
        for all parts that it has.

        items: what the function reads, in all.
        """
        held = self._held(len(each), function, dict(enumerate(each)), shared, items, None)
        self.call(held, None)
        return held

    def _held(
        self,
        count: int,
        function: Function,
        own: dict[int, Any],
        shared: tuple[Any, ...],
        items: float,
        base: Held | None,
    ) -> Held:
        number, self._numbered = self._numbered, self._numbered + 1
        held = Held(self, number, count, function, own, shared, items, base)
        weakref.finalize(held, self._unused.append, number)
        return held

    def call(self, held: Held, work: Work | None) -> dict[int, Any]:
        """Results by part. None: see that the values are there."""
        with deferring_ctrl_c():
            while True:
                try:
                    self._ready(held)
                    found = {} if work is None else self._ask("map", work, held.count)
                    break
                except HostLost as lost:
                    self._hosts.lose(lost)
                    self._incarnation = -1
            self._hosts.progressed()
        return found

    def _ready(self, held: Held) -> None:
        """Have the values on the hosts."""
        if self._incarnation != self._hosts.incarnation:
            self._beginning()
            self._made.clear()
            self._unused.clear()
            self._hosts.begin(self._make_task, dict.fromkeys(range(self._hosts.nodes)))
            self._incarnation = self._hosts.incarnation
        self._drop()
        if held.number in self._made:
            return
        if held.base is None:
            self._ask("make", Work(held.function, held.own, held.shared, -1, held.number, held.items), held.count)
        else:
            self._ready(held.base)
            work = Work(held.function, held.own, held.shared, held.base.number, held.number, held.items)
            self._ask("map", work, held.count)
        self._made.add(held.number)

    def _drop(self) -> None:
        """Let the hosts forget what is not used any more."""
        gone = [number for number in self._unused if number in self._made]
        self._unused.clear()
        if gone:
            self._made.difference_update(gone)
            self._hosts.ask_each("drop", dict.fromkeys(sorted(set(self._hosts.where)), (gone,)))

    def _ask(self, what: str, work: Work, count: int) -> dict[int, Any]:
        """To every host what is for its parts; results by part."""
        where, nodes = self._hosts.where, self._hosts.nodes
        shares: dict[int, dict[int, Any]] = {}
        for part, own in work.own.items():
            shares.setdefault(where[part * nodes // count], {})[part] = own
        total = max(1, len(work.own))
        args = {
            host: (
                Work(work.function, own, work.shared, work.values, work.into, work.items * len(own) / total),
            )
            for host, own in shares.items()
        }  # fmt: skip
        timeout = _WITHIN + nbytes_of((work.own, work.shared)) / _BYTES + work.items / _ITEMS
        found: dict[int, Any] = {}
        failed: list[tuple[int, int, BaseException]] = []
        for host, answer in self._hosts.ask_each(what, args, timeout=timeout).items():
            if isinstance(answer, Failed):
                failed.append((answer.part, host, answer.error))
            elif answer is not None:
                found |= answer
        if failed:
            part, host, error = min(failed, key=lambda one: one[:2])
            self._raise(part, host, error, count)
        return found

    def _raise(self, part: int, host: int, error: BaseException, count: int) -> NoReturn:
        """Name the node: the host's first one where the function was called for all of its parts."""
        where = self._hosts.where
        node = where.index(host) if part < 0 else part * self._hosts.nodes // count
        at = f"node {node} of the cluster, on host {host}" + (f", part {part} of {count}" if part >= 0 else "")
        kind: type[Exception] = DataError if isinstance(error, DataError) else RunError
        words = str(error) if isinstance(error, DataError | RunError) else f"{type(error).__name__}: {error}"
        raise kind(f"{at}: {words}") from error


class Held:
    """Values of all parts, on the nodes; they are forgotten there when nobody refers to this any more.

    number : under which hosts know them
    count : parts
    function, own, shared, items, base : how they are made, from the values `base` or from nothing
    """

    def __init__(
        self,
        parts: Parts,
        number: int,
        count: int,
        function: Function,
        own: dict[int, Any],
        shared: tuple[Any, ...],
        items: float,
        base: Held | None,
    ) -> None:
        self.number, self.count, self.base = number, count, base
        self.function, self.own, self.shared, self.items = function, own, shared, items
        self._parts = parts

    def map(
        self, function: Function, *shared: Any, each: Mapping[int, Any] | None = None, items: float = 0.0
    ) -> dict[int, Any]:
        """function(crew, value, own, *shared) for each part, or for those in `each`: results by part, in their order.

        Parameters
        ----------
        shared : arguments of all parts
            Each host receives them once.
        each : mapping of part to own
            What is for one part alone; None: nothing, and all parts are called.
        items : float
            Entries that are read in all.
        """
        own = dict.fromkeys(range(self.count)) if each is None else dict(each)
        found = self._parts.call(self, Work(function, own, shared, self.number, -1, items)) if own else {}
        return {part: found[part] for part in sorted(found)}

    def derive(self, function: Function, *shared: Any, items: float = 0.0) -> Held:
        """Other values, made of these on the nodes that have them: function(crew, value, None, *shared)."""
        own: dict[int, Any] = dict.fromkeys(range(self.count))
        held = self._parts._held(self.count, function, own, shared, items, self)
        self._parts.call(held, None)
        return held


def nbytes_of(value: Any) -> int:
    """Bytes of the arrays in nested containers."""
    if isinstance(value, Mapping):
        return sum(map(nbytes_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(nbytes_of, value))
    return int(getattr(value, "nbytes", 0))
