"""Loop functions from source text, and every way of running them compared.

`three_ways` runs one loop with the reference interpreter, compiled on one thread and compiled on several, and compares
bits. `loop_author` writes random functions.
"""

from __future__ import annotations

import copy
import itertools
import linecache
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numba
import numpy as np

import stretto as st
from stretto.loops.parallel import Loop
from stretto.state.accumulator import Accumulator
from stretto.state.buffer import Buffer
from stretto.state.state import State
from stretto.testing.arithmetic import same_bits
from stretto.testing.loops import reference


@numba.njit
def squash(x):  # type: ignore[no-untyped-def]
    return x / (1.0 + abs(x))


@numba.njit
def mix(a, b):  # type: ignore[no-untyped-def]
    return (a * 31 + b) % 1009


def larger(a: Any, b: Any) -> Any:
    """An operator of the user's own."""
    return a if a > b else b


def halfway(value: Any, delta: Any) -> Any:
    """What a buffer applies."""
    return value + delta / 2


def adaptive(value: Any, delta: Any, past: Any) -> Any:
    """What a buffer with a helper array applies."""
    past = past + delta * delta
    return value + delta / (1 + past), past


SLACK = 0.25
FACTORS = np.linspace(-1, 1, 11).astype("f4")


def reach(w: Any, v: Any) -> Any:
    """A plain function of rows, with a number of this module."""
    d = w - v
    return np.sqrt(d @ d + SLACK)


def bounded(w: Any, most: Any = 2.0) -> Any:
    """A row, from several places, by way of another function."""
    if reach(w, w * 0.5) < most:
        return w
    t = w / (1.0 + abs(np.max(w)))
    if t[0] > 0:
        return t * 2.0
    return np.minimum(t, most)


def nudge(w: Any, v: Any, x: Any) -> None:
    """Changes a row."""
    w += x * v
    if w[0] > 1:
        return
    w[1] = x


def both(x: Any, y: Any) -> Any:
    if x > y:
        return x, y
    y += 1
    return y, x


def above(w: Any, x: Any) -> Any:
    """Leaves a loop."""
    for k in range(len(w)):
        if w[k] * FACTORS[k % 11] > x:
            return k
    return -1


PLAIN = {f.__name__: f for f in (reach, bounded, nudge, both, above)}
AROUND: dict[str, Any] = {"math": math, "np": np, "st": st, "squash": squash, "mix": mix, **PLAIN}
_numbers = itertools.count()


def function(source: str, **captured: Any) -> Callable[..., Any]:
    """The function `loop` of a source text, kept where a notebook keeps what is typed."""
    file = f"<loop body {next(_numbers)}>"
    source = textwrap.dedent(source)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    around = {**AROUND, **captured}
    exec(compile(source, file, "exec"), around)
    made: Callable[..., Any] = around["loop"]
    return made


# --- running --------------------------------------------------------------------------------------------------------


def fresh(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with arrays of their own; buffers stand before the copies."""
    memo: dict[int, np.ndarray[Any, Any]] = {}

    def array(given: Any) -> Any:
        bare = given.array if isinstance(given, State) else given
        if id(bare) not in memo:
            memo[id(bare)] = bare.copy(order="K")
        return State._of(memo[id(bare)]) if isinstance(given, State) else memo[id(bare)]

    def one(value: Any) -> Any:
        if isinstance(value, np.ndarray | State):
            return array(value)
        if isinstance(value, Accumulator):
            other = copy.copy(value)
            other.array = value.array.copy()
            return other
        if isinstance(value, Buffer):
            helpers = tuple(array(helper) for helper in value.helpers)
            snapshot = None if value.snapshot is None else helpers[value.snapshot]
            return Buffer(array(value.target), value.apply, helpers, snapshot, value.every)
        return value

    return {name: one(value) for name, value in arguments.items()}


def results(arguments: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Every array, and what accumulators hold."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in arguments.items():
        if isinstance(value, Accumulator | State):
            found[name] = np.asarray(value.array)
        elif isinstance(value, np.ndarray):
            found[name] = value
        elif isinstance(value, Buffer):
            found[f"{name}.target"] = value.target
            found |= {f"{name}.with{k}": helper for k, helper in enumerate(value.helpers)}
    return found


def three_ways(loop: Loop, arguments: Mapping[str, Any], threads: Sequence[int] = (2, 3)) -> dict[str, Any]:
    """Run a loop by the interpreter, serially and on threads; compare all bits; the arguments after one of the runs.

    The loop keeps what it prepared, so all ways share one plan and one compiled function.
    """
    mine = Loop(loop.plain, loop.options, st.Serial())
    plan = mine.plan(**fresh(arguments))
    expect = reference(plan)
    after: dict[str, Any] = {}
    runtimes: list[st.Serial | st.Threads] = [st.Serial(), *(st.Threads(count) for count in threads)]
    for runtime in runtimes:
        mine.runtime = runtime
        after = fresh(arguments)
        mine(**after)
        for name, array in results(after).items():
            wanted = expect.accumulators.get(name, expect.arrays.get(name))
            if wanted is None:  # an array behind a buffer that is an argument too, or one that is not used
                continue
            if wanted.dtype.names:
                assert np.array_equal(wanted, array), name
                continue
            assert same_bits(wanted, array), f"{name} on {runtime}:\n{wanted}\n{array}"
    return after
