"""Server functions: how a shard applies a change when it is not simply added.

    add                          row += change; the default, and the only one whose result a cache knows in advance
    average                      row += change / workers: averages the models of all workers
    adagrad(rate)                changes are gradients; z += g², row −= rate / √z · g
    proximal(rate, l1, l2)       row ← the smallest of l1 |x| + l2 x² / 2 + (x − (row − rate · g))² / (2 rate)
    adarevision(rate)            AdaGrad that corrects for changes by others between the reading of a row and the
                                 arrival of the gradient computed from it (McMahan and Streeter 2014)
    server_function(apply, …)    a row function of your own, compiled by Numba

A server function is an immutable value without rows. It has four hooks:

    a row is created      `create`      fills the row and its states
    a change arrives      `apply`       changes the row and its states, returns the factor it multiplied the change with
    a row is sent         `snapshot`    the state kept with its version, until no node holds that version any more
    between clocks        `allow_send`  how many further snapshots a push may need

An example is momentum:

    def momentum(row, state, delta, old, params):      # row, delta [cols]; state [states, cols]; params as given
        for k in range(len(row)):
            state[0, k] = params[1] * state[0, k] + delta[k]
            row[k] -= params[0] * state[0, k]
        return params[0]

    st.tables.Table(rows=1000, apply=st.tables.server_function(momentum, states=1, params=(0.1, 0.9)))
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from stretto.checks import number
from stretto.errors import PlanError

SendBound = Callable[[int, int], int]
ROW = -1  # `snapshot` of the row itself


@dataclass(frozen=True, eq=False)
class ServerFunction:
    """What a shard does with a change. Made by `st.tables.adagrad`, `st.tables.server_function` and their like.

    Attributes
    ----------
    name : str
        Its name, for messages.
    rule : str
        "add", "average", "adagrad", "proximal", "adarevision" or "user".
    params : tuple of float
        Numbers that the rule is given. "average" without any takes the number of workers of the run.
    starts : tuple of float
        What each state [cols] of a new row is filled with.
    additive : bool
        Whether the change is simply added, so that a cache may show it at once.
    floating : bool
        Whether it needs a table of floats.
    versioned : bool
        Whether changes name the version of the row that they were computed from.
    snapshot : int or None
        Which state is kept for each version; -1 for the row itself.
    snapshots : int or None
        Snapshots that a shard may keep for pushes between clocks; None for no bound.
    apply : callable or None
        The user's function for a change.
    create : callable or None
        The user's function for a new row.
    send_bound : callable or None
        The user's bound on snapshots: function(kept, wanted) -> how many more.
    """

    name: str
    rule: str
    params: tuple[float, ...] = ()
    starts: tuple[float, ...] = ()
    additive: bool = False
    floating: bool = True
    versioned: bool = False
    snapshot: int | None = None
    snapshots: int | None = None
    apply: Callable[..., Any] | None = None
    create: Callable[..., Any] | None = None
    send_bound: SendBound | None = None

    @property
    def states(self) -> int:
        """How many arrays [cols] are kept beside each row."""
        return len(self.starts)

    def allow_send(self, kept: int, wanted: int) -> int:
        """How many of the snapshots that pushes between clocks would make are allowed.

        Parameters
        ----------
        kept : int
            Snapshots that the shard keeps now.
        wanted : int
            Snapshots that the pushes would add.

        Examples
        --------
        >>> adarevision(0.1, snapshots=100).allow_send(kept=98, wanted=5)
        2
        """
        if self.send_bound is not None:
            return min(wanted, max(0, int(self.send_bound(kept, wanted))))
        return wanted if self.snapshots is None else min(wanted, max(0, self.snapshots - kept))

    def check(self, table: str, dtype: str) -> None:
        """Refuse a table that this function cannot serve.

        Parameters
        ----------
        table : str
            Name of the table.
        dtype : str
            Type of its numbers.
        """
        if self.floating and dtype[0] != "f":
            raise PlanError(
                f"table {table!r}: {self.name} needs floats, and the table holds {dtype}; choose dtype 'f4' or 'f8', "
                "or apply=st.tables.add"
            )

    def __repr__(self) -> str:
        inside = ", ".join(f"{value:g}" for value in self.params)
        return f"{self.name}({inside})" if inside else self.name


add = ServerFunction("add", "add", additive=True, floating=False)
"""A server function that adds: row += change. The default, and the only one whose result a cache knows in advance.

Examples
--------
>>> import stretto as st
>>> st.tables.Table(rows=10, cols=4, apply=st.tables.add).apply
add
"""

average = ServerFunction("average", "average")
"""A server function that averages the workers' models: row += change / workers.

Examples
--------
>>> import stretto as st
>>> st.tables.Table(rows=10, cols=4, apply=st.tables.average).apply
average
"""


def adagrad(rate: float, start: float = 1.0) -> ServerFunction:
    """A server function for gradients: steps of rate / √z for each element (AdaGrad).

    z is `start` plus the sum of the element's squared gradients.

    Parameters
    ----------
    rate : float
        Learning rate, more than 0.
    start : float, default 1.0
        First value of z, more than 0.

    Returns
    -------
    ServerFunction

    Examples
    --------
    >>> import stretto as st
    >>> st.tables.Table(rows=10, cols=4, apply=st.tables.adagrad(0.1)).apply
    adagrad(0.1)
    """
    step, z = _positive("adagrad", "rate", rate), _positive("adagrad", "start", start)
    return ServerFunction("adagrad", "adagrad", (step,), (z,))


def proximal(rate: float, l1: float = 0.0, l2: float = 0.0) -> ServerFunction:
    """A server function for gradients: a step of size `rate`, then the proximal step of `l1·|x| + l2·x²/2`.

    With l1 rows hold exact zeros. The proximal step is made once for each change that arrives, so fewer and larger
    changes shrink a row less.

    Parameters
    ----------
    rate : float
        Learning rate, more than 0.
    l1 : float, default 0.0
        Weight of `|x|`, 0 or more.
    l2 : float, default 0.0
        Weight of x²/2, 0 or more.

    Returns
    -------
    ServerFunction

    Examples
    --------
    >>> import stretto as st
    >>> st.tables.proximal(0.1, l1=0.01)
    proximal(0.1, 0.01, 0)
    """
    step = _positive("proximal", "rate", rate)
    for name, value in (("l1", l1), ("l2", l2)):
        if not (_is_number(value) and 0 <= value < math.inf):
            raise PlanError(f"proximal({name}={value!r}): give a number, 0 or more")
    return ServerFunction("proximal", "proximal", (step, float(l1), float(l2)))


def adarevision(rate: float, snapshots: int | None = None) -> ServerFunction:
    """A server function for gradients: AdaGrad that corrects for delay (McMahan and Streeter 2014).

    The correction covers what other workers did between the reading of a row and the arrival of the gradient.

    Parameters
    ----------
    rate : float
        Learning rate, more than 0.
    snapshots : int or None, default None
        Snapshots that each shard keeps at most for pushes between clocks; further pushes wait for the end of the clock.
        None for no bound.

    Returns
    -------
    ServerFunction

    Examples
    --------
    >>> import stretto as st
    >>> st.tables.adarevision(0.1)
    adarevision(0.1)
    """
    if snapshots is not None:
        number("snapshots", snapshots, least=0, whole=True, owner="adarevision", why="None has no bound")
    return ServerFunction(
        "adarevision",
        "adarevision",
        (_positive("adarevision", "rate", rate),),
        (0.0, 1.0, 1.0),  # G: the sum of gradients, z, z′: the largest z so far
        versioned=True,
        snapshot=0,
        snapshots=snapshots,
    )


def server_function(
    apply: Callable[..., Any],
    *,
    states: int | Sequence[float] = 0,
    create: Callable[..., Any] | None = None,
    versioned: bool | None = None,
    snapshot: int | str | None = None,
    snapshots: int | None = None,
    params: Sequence[float] = (),
    additive: bool = False,
    allow_send: SendBound | None = None,
    name: str | None = None,
) -> ServerFunction:
    """A server function of your own: what a shard does with a change.

    Parameters
    ----------
    apply : callable
        function(row [cols], state [states, cols], delta [cols], old [cols] or [0], params [p]) -> factor. It changes
        row and state in place and must not write to the others. Numba compiles it for each table. It returns the factor
        that delta was multiplied with, or the mean of several (1.0 if there is none), which rank="effective" uses.
    states : int or sequence of float, default 0
        Number of arrays kept beside each row, or what each of them is filled with at the start.
    create : callable or None, default None
        function(row, state, key), called once for each new row after the start values were set. Compiled as well.
    versioned : bool or None, default None
        Whether rows have versions. Follows from `snapshot`; a contradiction is refused.
    snapshot : int, "row" or None, default None
        What `old` holds of the row as it was when the change was computed: the number of a state, or the row itself.
    snapshots : int or None, default None
        Snapshots that a shard keeps at most for pushes between clocks; None for no bound.
    params : sequence of float, default ()
        Numbers that `apply` is given.
    additive : bool, default False
        Promise that `apply` is row += delta, so that caches may show a change at once.
    allow_send : callable or None, default None
        function(kept, wanted) -> how many more snapshots are allowed, instead of a fixed bound.
    name : str or None, default None
        Name for messages; None takes that of `apply`.

    Returns
    -------
    ServerFunction

    Examples
    --------
    >>> import stretto as st
    >>> def momentum(row, state, delta, old, params):
    ...     for k in range(len(row)):
    ...         state[0, k] = params[1] * state[0, k] + delta[k]
    ...         row[k] -= params[0] * state[0, k]
    ...     return params[0]
    >>> st.tables.server_function(momentum, states=1, params=(0.1, 0.9))
    momentum(0.1, 0.9)
    """
    called = name if name is not None else str(getattr(apply, "__name__", repr(apply)))
    _check_signature(called, "apply", apply, "(row, state, delta, old, params)")
    if create is not None:
        _check_signature(called, "create", create, "(row, state, key)")
    starts = (0.0,) * states if isinstance(states, int) else tuple(float(value) for value in states)
    kept = _snapshot(called, snapshot, len(starts))
    if versioned is not None and versioned != (kept is not None):
        remedy = "say with snapshot= what is kept" if versioned else "leave out snapshot="
        raise PlanError(f"server_function {called!r}: versioned={versioned} with snapshot={snapshot!r}; {remedy}")
    return ServerFunction(
        called,
        "user",
        tuple(float(value) for value in params),
        starts,
        additive=additive,
        floating=False,
        versioned=kept is not None,
        snapshot=kept,
        snapshots=snapshots,
        apply=apply,
        create=create,
        send_bound=allow_send,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _positive(function: str, name: str, value: float) -> float:
    if not (_is_number(value) and 0 < value < math.inf):
        raise PlanError(f"{function}({name}={value!r}): give a number above 0")
    return float(value)


def _snapshot(function: str, snapshot: int | str | None, states: int) -> int | None:
    if snapshot is None:
        return None
    if snapshot == "row":
        return ROW
    if isinstance(snapshot, int) and not isinstance(snapshot, bool) and 0 <= snapshot < states:
        return snapshot
    raise PlanError(
        f"server_function {function!r}: snapshot={snapshot!r}; give 'row' or the number of a state, of which there are "
        f"{states}"
    )


def _check_signature(function: str, which: str, given: Callable[..., Any], wanted: str) -> None:
    if not callable(given):
        raise PlanError(f"server_function {function!r}: {which}={given!r} is not a function of {wanted}")
    try:
        inspect.signature(getattr(given, "py_func", given)).bind(*range(wanted.count(",") + 1))
    except TypeError:
        raise PlanError(f"server_function {function!r}: {which} must be a function of {wanted}") from None
