"""Loops over nodes whose arrays are cut by rows or columns: the same bits as on threads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings

import stretto as st
from loop_author import Written, bodies
from loop_bodies import fresh, function, results
from ring_fleet import InProcess
from stretto.errors import LoopError, PlanError, RunError
from stretto.loops.parallel import Loop
from stretto.testing.arithmetic import same_bits

RNG = np.random.default_rng(5)
GRID: dict[str, Any] = {"blocks": (6, 5)}


def sparse(rows: int = 60, cols: int = 40, n: int = 900, dtype: Any = np.float32) -> Any:
    pairs = np.random.default_rng(1).choice(rows * cols, n, replace=False)
    values = np.random.default_rng(2).normal(size=n).astype(dtype)
    return st.Data.from_arrays(pairs // cols, pairs % cols, values, (rows, cols))


def arrays(rows: int = 60, cols: int = 40, width: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "W": rng.normal(size=(rows, width)).astype(np.float32),
        "H": rng.normal(size=(cols, width)).astype(np.float32),
    }


LOOPS: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    # name: source, arguments, options, the placement of something that matters
    "factorization": (
        """
        def loop(d, W, H, lr, loss, worst):
            for (i, j), r in d:
                e = r - W[i] @ H[j]
                loss += e * e
                worst += abs(e)
                W[i], H[j] = W[i] + lr * (e * H[j] - 0.1 * W[i]), H[j] + lr * (e * W[i] - 0.1 * H[j])
        """,
        {"d": sparse(), **arrays(), "lr": 0.05, "loss": st.accumulator(0.0), "worst": st.accumulator(0.0, op=max)},
        GRID,
        "2d unordered",
    ),
    "ordered": (
        """
        def loop(d, W, H):
            for (i, j), r in d:
                W[i], H[j] = 0.5 * W[i] + r * H[j], 0.5 * H[j] + r * W[i]
        """,
        {"d": sparse(), **arrays()},
        {**GRID, "ordered": True},
        "2d ordered",
    ),
    "rows alone": (
        """
        def loop(d, W, H, total):
            for (i, j), r in d:
                W[i] = 0.9 * W[i] + r * H[j]
                total[1] += r
        """,
        {"d": sparse(), **arrays(), "total": st.accumulator(np.zeros(3))},
        {"blocks": 7},
        "1d",
    ),
    "a grid, with offsets": (
        """
        def loop(n, m, A, B, c):
            for i in range(2, n, 3):
                for j in range(m):
                    A[i + 1, 2] = A[i + 1, 2] * 0.5 + B[j + 1] + c
                    B[j + 1] = B[j + 1] + 0.25 * A[i + 1, 2]
        """,
        {"n": 40, "m": 17, "A": RNG.normal(size=(44, 3)), "B": RNG.normal(size=19), "c": 2},
        {"blocks": (4, 3), "ordered": False},
        "2d unordered",
    ),
    "columns of a matrix": (
        """
        def loop(n, A, x):
            for j in range(n):
                for i in range(3):
                    A[i, j] = A[i, j] + x[j] * i
        """,
        {"n": 30, "A": RNG.normal(size=(3, 30)), "x": RNG.normal(size=30)},
        {"blocks": 4, "cut": ("j",)},
        "independent",
    ),
}


def on(nodes: int, threads: int = 1) -> Any:
    return InProcess(nodes, threads)


def made(name: str) -> tuple[Loop, dict[str, Any], str]:
    source, arguments, options, strategy = LOOPS[name]
    return st.parallel(**options)(function(source)), arguments, strategy


def calls(loop: Loop, arguments: dict[str, Any], times: int = 3) -> dict[str, Any]:
    """What the arguments hold after some calls."""
    mine = fresh(arguments)
    for _ in range(times):
        loop(**mine)
    return results(mine)


def same(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert mine.keys() == theirs.keys()
    for name, array in theirs.items():
        assert same_bits(array, mine[name]), name


@pytest.mark.parametrize("name", LOOPS)
def test_the_same_bits(name: str) -> None:
    loop, arguments, strategy = made(name)
    plan = loop.plan(**fresh(arguments))
    assert plan.parts[0].prepared.analysis.strategy.name == strategy
    expected = calls(loop.using(runtime=st.Serial()), arguments)
    same(calls(loop.using(runtime=on(3)), arguments), expected)
    same(calls(loop.using(runtime=on(2, threads=2)), arguments), expected)


def test_entries_are_sent_once_and_states_when_they_changed() -> None:
    loop, arguments, _ = made("factorization")
    runtime = on(2)
    mine = fresh(arguments)
    here = loop.using(runtime=runtime)
    for _ in range(3):
        here(**mine)
    hosts = runtime.hosts[0]
    assert len(runtime.hosts) == 1  # one crew for all calls
    assert hosts.asked.count("load") == 2
    assert hosts.asked.count("put") == 2
    mine["W"][7] += 1.0
    here(**mine)
    assert hosts.asked.count("load") == 2
    assert hosts.asked.count("put") == 4


def test_two_loops_and_numbers_between_them() -> None:
    source = """
        def loop(d, W, H, scale):
            for (i, j), r in d:
                W[i] = W[i] + scale * r * H[j]
            half = scale / 2
            for (i, j), r in d:
                H[j] = H[j] - half * r * W[i]
        """
    loop = st.parallel(blocks=5)(function(source))
    arguments = {"d": sparse(), **arrays(), "scale": 0.3}
    same(calls(loop.using(runtime=on(3)), arguments), calls(loop.using(runtime=st.Serial()), arguments))


def test_a_function_of_the_users() -> None:
    source = """
        def loop(d, W):
            for (i, j), r in d:
                W[i, 0] = W[i, 0] + squash(r)
        """
    loop = st.parallel(blocks=5)(function(source))
    arguments = {"d": sparse(), "W": arrays()["W"]}
    same(calls(loop.using(runtime=on(2)), arguments), calls(loop.using(runtime=st.Serial()), arguments))


def test_a_subscript_out_of_range_is_told_as_on_threads() -> None:
    source = """
        def loop(d, W, pick):
            for (i, j), r in d:
                W[i, pick[j]] = r
        """
    pick = np.zeros(40, np.int64)
    pick[3] = 77
    said = []
    for runtime in (st.Serial(), on(2)):
        loop = st.parallel(runtime=runtime, blocks=4)(function(source))
        with pytest.raises(RunError) as caught:
            loop(sparse(), arrays()["W"], pick)
        said.append(str(caught.value).partition(": ")[2])
    assert said[0] == said[1]
    assert "subscript 77 of W" in said[0]


# --- random loops ---------------------------------------------------------------------------------------------------


def check_all(count: int) -> None:
    """Random loops give the bits of threads, those with buffers and borders too."""
    tally: Counter[str] = Counter()

    def check(written: Written) -> None:
        note(repr(written))
        # Small data would be one visit, and one node would do everything.
        loop = written.loop().using(blocks=(5, 4))
        try:
            expected = calls(loop.using(runtime=st.Threads(2)), written.arguments, 2)
        except (PlanError, LoopError, RunError):
            return
        runtime = on(2 + tally.total() % 3)
        found = calls(loop.using(runtime=runtime), written.arguments, 2)
        same(found, expected)
        plan = runtime.crews[0]._plan
        tally["served" if plan is not None and plan.spec.of("served") else "cut"] += 1

    settings(max_examples=count, derandomize=True, database=None)(given(bodies())(check))()
    assert tally["served"], tally
    assert tally["cut"], tally


def test_a_few_random_loops() -> None:
    check_all(6)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_random_loops(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))
    check_all(300)
