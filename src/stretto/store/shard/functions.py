"""Server functions: what a shard does with a change instead of adding it.

    add                          row += change; the default, and the only one whose result a cache can know beforehand
    average                      row += change / workers: every worker's change counts for its share, as when the models
                                 of all workers are averaged
    adagrad(rate)                changes are gradients; z += g², row −= rate / √z · g
    proximal(rate, l1, l2)       row ← the smallest of l1 |x| + l2 x² / 2 + (x − (row − rate · g))² / (2 rate)
    adarevision(rate)            AdaGrad that makes up for what others did between the reading of a row and the arrival
                                 of the gradient computed from it (McMahan and Streeter 2014); AdaGrad if nobody did
    server_function(apply, …)    a row function of your own, compiled by Numba

A server function is a value; it holds what it needs to know and no row. Four moments matter, and each has its hook:

    a row is made       `create`      fills the row and its states
    a change arrives    `apply`       changes the row and its states, returns the factor the change was multiplied with
    a row is sent       `snapshot`    what of it is kept with its version, until nobody holds that version any more
    a row could be      `allow_send`  how many further snapshots a push between clocks may cost

Momentum, for one:

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

from stretto.errors import PlanError

Room = Callable[[int, int], int]
ROW = -1  # `snapshot` of the row itself


@dataclass(frozen=True, eq=False)
class ServerFunction:
    """What a shard does with a change. Made by the functions of this module.

    rule : "add", "average", "adagrad", "proximal", "adarevision" or "user". params : numbers the rule is given;
    "average" without any takes the number of workers of the run.
    starts : what each state [cols] of a new row is filled with. additive : the change is simply added, so a cache may
    show it at once. floating : makes sense for tables of floats only. versioned : changes name the version of the row
    they were computed from. snapshot : which state is kept for each version, ROW for the row itself.
    snapshots : how many of them a shard may keep for pushes between clocks; None for no bound.
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
    room: Room | None = None

    @property
    def states(self) -> int:
        """How many arrays [cols] are kept beside each row."""
        return len(self.starts)

    def allow_send(self, kept: int, wanted: int) -> int:
        """Of `wanted` new snapshots that pushes between clocks would make, how many may be; `kept` are there.

        >>> adarevision(0.1, snapshots=100).allow_send(kept=98, wanted=5)
        2
        """
        if self.room is not None:
            return min(wanted, max(0, int(self.room(kept, wanted))))
        return wanted if self.snapshots is None else min(wanted, max(0, self.snapshots - kept))

    def check(self, table: str, dtype: str) -> None:
        """Refuse a table this function cannot serve."""
        if self.floating and dtype[0] != "f":
            raise PlanError(
                f"table {table!r}: {self.name} needs floats, and the table holds {dtype}; choose dtype 'f4' or 'f8', "
                "or apply=st.tables.add"
            )

    def __repr__(self) -> str:
        inside = ", ".join(f"{value:g}" for value in self.params)
        return f"{self.name}({inside})" if inside else self.name


add = ServerFunction("add", "add", additive=True, floating=False)
average = ServerFunction("average", "average")


def adagrad(rate: float, start: float = 1.0) -> ServerFunction:
    """Steps of rate / √z for each element, z being `start` plus the sum of its squared gradients.

    >>> adagrad(0.1)
    adagrad(0.1)
    """
    step, z = _positive("adagrad", "rate", rate), _positive("adagrad", "start", start)
    return ServerFunction("adagrad", "adagrad", (step,), (z,))


def proximal(rate: float, l1: float = 0.0, l2: float = 0.0) -> ServerFunction:
    """A gradient step of size `rate`, then the proximal step of l1 |x| + l2 x² / 2: rows hold exact zeros under l1.

    The proximal step is made once for each change that arrives, so fewer and larger changes are shrunk less.
    """
    step = _positive("proximal", "rate", rate)
    for name, value in (("l1", l1), ("l2", l2)):
        if not (_is_number(value) and 0 <= value < math.inf):
            raise PlanError(f"proximal({name}={value!r}): give a number, 0 or more")
    return ServerFunction("proximal", "proximal", (step, float(l1), float(l2)))


def adarevision(rate: float, snapshots: int | None = None) -> ServerFunction:
    """Adaptive steps that allow for delay. Changes are gradients.

    snapshots : kept by each shard at most for pushes between clocks; further pushes wait for the end of the clock.
    """
    if snapshots is not None and (not isinstance(snapshots, int) or isinstance(snapshots, bool) or snapshots < 0):
        raise PlanError(f"adarevision(snapshots={snapshots!r}): give a whole number, 0 or more, or None for no bound")
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
    allow_send: Room | None = None,
    name: str | None = None,
) -> ServerFunction:
    """A server function of your own.

    apply : function(row [cols], state [states, cols], delta [cols], old [cols] or [0], params [p]) -> factor, changing
        row and state in place. It is compiled by Numba, for each table it serves, and must not write to the others.
        Return the factor that delta was multiplied with, or the mean of several (1.0 if there is none): rank
        "effective" looks at it.
    states : how many arrays are kept beside each row, or what each of them is filled with at the start.
    create : function(row, state, key), called once for each new row, after start values were put in. Compiled too.
    snapshot : for versioned rows, what `old` holds of the row as it was when the change was computed: the number of a
        state, or "row" for the row itself. Setting it makes the rows versioned; `versioned` may say so again.
    snapshots, allow_send : a bound on snapshots for pushes between clocks, or function(kept, wanted) -> how many more.
    additive : promise that apply(row, …, delta, …) is row += delta, so that caches may show a change at once.
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
        room=allow_send,
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
