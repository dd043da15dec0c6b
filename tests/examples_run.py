"""An example's loop run every way there is: interpreted, compiled on any number of workers, and as plain Python.

    three_ways(mf.epoch, lambda: (ratings, st.random((30, 4)), st.random((20, 4), seed=1), 0.01, 0.05, st.zeros(())))

`make` gives fresh arguments each time it is called, always with the same data: state and accumulators are written to.
Bits are compared with the reference interpreter. Plain Python differs in its rounding: NumPy adds the terms of `@` and
`sum` in an order of its own, so 8 ulp for each operation grow with the number of updates that build on each other.
`rtol` and `atol` say how far; integers are equal.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import sys
import tokenize
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st
from stretto.loops.loop_plan import LoopPlan
from stretto.loops.parallel import Loop
from stretto.testing.arithmetic import same_bits
from stretto.testing.loops import reference

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
RUNTIMES = (st.Serial(), st.Threads(1), st.Threads(2), st.Threads(3))


def load(name: str) -> ModuleType:
    """examples/<name>.py as a module; nothing of it runs but its definitions."""
    known = sys.modules.get(f"examples.{name}")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(f"examples.{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"examples.{name}"] = module
    spec.loader.exec_module(module)
    return module


def lines_written(name: str) -> int:
    """How many lines a user writes: those that hold neither nothing, nor a comment, nor a docstring alone."""
    text = (EXAMPLES / f"{name}.py").read_text()
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    written: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            written |= set(range(token.start[0], token.end[0] + 1))
    return len(written - said)


def strategies(plan: LoopPlan) -> list[str]:
    """The strategy of each loop of a plan."""
    return [part.prepared.analysis.strategy.name for part in plan.parts]


def three_ways(
    loop: Loop,
    make: Callable[[], Sequence[Any]],
    *,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    plain: bool = True,
    runtimes: Sequence[Any] = RUNTIMES,
) -> LoopPlan:
    """Assert that every way gives the same; the plan of a call, for more to be said about it.

    plain=False leaves out plain Python, for functions whose loops cannot be given an order from outside.
    """
    expect = reference(loop.using(runtime=st.Serial()).plan(*make()))
    for runtime in runtimes:
        args = make()
        other = loop.using(runtime=runtime)
        live = other.plan(*args)
        other(*args)
        _same(live, expect.arrays, expect.accumulators, f"{loop.tree.name} on {runtime}")
    args = make()
    plan = loop.using(runtime=st.Serial()).plan(*args)
    if plain:
        data = list(plan.held.data.values())
        loop.plain(*(plan.order(arg) if any(arg is one for one in data) else arg for arg in args))
        for name, found in _live(plan).items():
            wanted = expect.arrays.get(name, expect.accumulators.get(name))
            assert wanted is not None, name
            assert found.dtype == wanted.dtype, name
            if found.dtype.kind == "f":
                np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, err_msg=f"{name}, plain Python")
            else:
                np.testing.assert_array_equal(found, wanted, err_msg=f"{name}, plain Python")
    return plan


def prepares_once(loop: Loop, make: Callable[[], Sequence[Any]]) -> None:
    """Assert that a second call, with other state but the same data, analyses, lays out and compiles nothing."""
    mine = loop.using(runtime=st.Threads(2))
    mine(*make())
    first = [kept.prepared for kept in mine._kept.values()]
    mine(*make())
    again = [kept.prepared for kept in mine._kept.values()]
    assert list(map(id, first)) == list(map(id, again))


def _live(plan: LoopPlan) -> dict[str, NDArray[Any]]:
    held = plan.held
    return {**held.arrays, **{name: accumulator.array for name, accumulator in held.accumulators.items()}}


def _same(plan: LoopPlan, arrays: dict[str, NDArray[Any]], accumulators: dict[str, NDArray[Any]], where: str) -> None:
    live = _live(plan)
    assert live.keys() == {**arrays, **accumulators}.keys()
    for name, wanted in {**arrays, **accumulators}.items():
        assert same_bits(wanted, live[name]), f"{where}: {name} differs from the reference"
