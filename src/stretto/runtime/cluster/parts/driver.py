"""The driver's interface to distributed parts of a data set: create, map and derive values on the nodes.

    held = parts.make(load, sources)            # a value for each part, on the node that has the part
    found = held.map(price, v)                  # results in the order of the parts
    fold = held.derive(take_rows, rows)         # other values, computed from these on the same nodes

The caller chooses the number of parts, independently of the nodes: part k of P belongs to node k·N // P. Functions are
pure (see `runtime.cluster.parts.task`). So when a host is lost, all hosts restart: the values that a call needs are
recomputed, and the call is repeated. Results are the same bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from stretto.data.parts.placement import holder
from stretto.errors import DataError, RunError
from stretto.runtime.cluster.hosts.calls import HostLost, TaskHosts
from stretto.runtime.interrupts import deferring_ctrl_c

from .calls import Failed, HostCall

_WITHIN = 60.0  # seconds for any call to be answered
_BYTES, _ITEMS = 5e6, 2e5  # bytes per second of the slowest control connection; items per second of the slowest reader

Function = Callable[..., Any]


class RemoteParts:
    """Creates values on the hosts.

    Parameters
    ----------
    hosts : TaskHosts
        `hosts.Hosts`, entered, or simulated ones.
    make_task : function
        For `BeginTask.make`.
    beginning : function()
        Called before the hosts start this task, which ends their current one.
    """

    def __init__(self, hosts: TaskHosts, make_task: Callable[..., Any], beginning: Callable[[], None]) -> None:
        self._hosts, self._make_task, self._beginning = hosts, make_task, beginning
        self._incarnation = -1  # the incarnation in which this task runs; a later one has replaced it
        self._made: set[int] = set()  # numbers of the values that hosts have in this incarnation
        self._numbered = 0
        self._unused: list[int] = []  # numbers of values without references

    def make(self, function: Function, each: Sequence[Any], *shared: Any, items: float = 0.0) -> RemoteValues:
        """Create one value for each of `each`.

        Parameters
        ----------
        function : callable
            function(crew, {part: own}, *shared) -> {part: value}, called once on a host for all parts that it has.
        each : sequence
            The argument `own` of each part.
        shared : arguments of all parts
            Each host receives them once.
        items : float
            Entries that the function reads, in all.
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
        base: RemoteValues | None,
    ) -> RemoteValues:
        number, self._numbered = self._numbered, self._numbered + 1
        held = RemoteValues(self, number, count, function, own, shared, items, base)
        weakref.finalize(held, self._unused.append, number)
        return held

    def call(self, held: RemoteValues, work: HostCall | None) -> dict[int, Any]:
        """Results by part. None: only create the values."""
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

    def _ready(self, held: RemoteValues) -> None:
        """Create the values on the hosts, unless they exist."""
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
            self._ask("make", HostCall(held.function, held.own, held.shared, -1, held.number, held.items), held.count)
        else:
            self._ready(held.base)
            work = HostCall(held.function, held.own, held.shared, held.base.number, held.number, held.items)
            self._ask("map", work, held.count)
        self._made.add(held.number)

    def _drop(self) -> None:
        """Have the hosts discard unused values."""
        gone = [number for number in self._unused if number in self._made]
        self._unused.clear()
        if gone:
            self._made.difference_update(gone)
            self._hosts.ask_each("drop", dict.fromkeys(sorted(set(self._hosts.where)), (gone,)))

    def _ask(self, what: str, work: HostCall, count: int) -> dict[int, Any]:
        """Send every host the work for its parts; return the results by part."""
        where, nodes = self._hosts.where, self._hosts.nodes
        shares: dict[int, dict[int, Any]] = {}
        for part, own in work.own.items():
            shares.setdefault(where[holder(part, count, nodes)], {})[part] = own
        total = max(1, len(work.own))
        args = {
            host: (
                HostCall(work.function, own, work.shared, work.values, work.into, work.items * len(own) / total),
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
        """Raise an error with its node: the host's first one if the function was called for all of its parts."""
        where = self._hosts.where
        node = where.index(host) if part < 0 else holder(part, count, self._hosts.nodes)
        at = f"node {node} of the cluster, on host {host}" + (f", part {part} of {count}" if part >= 0 else "")
        kind: type[Exception] = DataError if isinstance(error, DataError) else RunError
        words = str(error) if isinstance(error, DataError | RunError) else f"{type(error).__name__}: {error}"
        raise kind(f"{at}: {words}") from error


class RemoteValues:
    """Values of all parts, on the nodes; discarded when this object is.

    Attributes
    ----------
    number : int
        The hosts' key of the values.
    count : int
        Parts.
    function, own, shared, items, base
        How the values are computed, from the values `base` or from nothing.
    """

    def __init__(
        self,
        parts: RemoteParts,
        number: int,
        count: int,
        function: Function,
        own: dict[int, Any],
        shared: tuple[Any, ...],
        items: float,
        base: RemoteValues | None,
    ) -> None:
        self.number, self.count, self.base = number, count, base
        self.function, self.own, self.shared, self.items = function, own, shared, items
        self._parts = parts

    def map(
        self, function: Function, *shared: Any, each: Mapping[int, Any] | None = None, items: float = 0.0
    ) -> dict[int, Any]:
        """Call function(crew, value, own, *shared) for each part, or for those in `each`; results by part, in their
        order.

        Parameters
        ----------
        shared : arguments of all parts
            Each host receives them once.
        each : mapping of part to own
            Arguments of single parts; None: there are none, and all parts are called.
        items : float
            Entries that are read in all.
        """
        own = dict.fromkeys(range(self.count)) if each is None else dict(each)
        found = self._parts.call(self, HostCall(function, own, shared, self.number, -1, items)) if own else {}
        return {part: found[part] for part in sorted(found)}

    def derive(self, function: Function, *shared: Any, items: float = 0.0) -> RemoteValues:
        """Compute other values from these on the same nodes: function(crew, value, None, *shared)."""
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
