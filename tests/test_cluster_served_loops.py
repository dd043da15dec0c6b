"""Loops over nodes whose arrays no node owns: buffers, stencils, transformed and inspected loops, chains."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import stretto as st
from loop_bodies import fresh, function, results
from plan_cases import LOOPS as CASES
from plan_cases import run_loop
from ring_fleet import InProcess, QueueHosts
from stretto.errors import RunError
from stretto.testing.arithmetic import same_bits

RNG = np.random.default_rng(5)


def sparse(rows: int = 60, cols: int = 40, n: int = 900) -> Any:
    pairs = np.random.default_rng(1).choice(rows * cols, n, replace=False)
    values = np.random.default_rng(2).normal(size=n).astype(np.float32)
    return st.Data.from_arrays(pairs // cols, pairs % cols, values, (rows, cols))


def rows(n: int, width: int = 5) -> Any:
    return np.random.default_rng(3).normal(size=(n, width)).astype(np.float32)


def grown(w: float, d: float, n: float) -> tuple[float, float]:
    return w + d / (1.0 + n), n + d * d


def buffered(**options: Any) -> dict[str, Any]:
    c, w, G = (RNG.random(n).astype(np.float32) for n in (40, 60, 40))
    if options:
        options["with_"] = (G,)
    return {"d": sparse(), "w": w, "c": c, "G": G, "step": st.buffer(c, **options), "total": st.accumulator(0.0)}


def behind() -> dict[str, Any]:
    w = RNG.random(7)
    return {"x": RNG.random(90), "w": w, "step": st.buffer(w)}


def factors() -> dict[str, Any]:
    c = RNG.normal(size=40).astype(np.float32)
    return {"d": sparse(), "W": rows(60), "H": rows(40), "c": c, "step": st.buffer(c)}


BOTH = """
    def loop(d, W, H, c, step):
        for (i, j), r in d:
            e = r - W[i] @ H[j] - c[j]
            W[i], H[j] = W[i] + 0.05 * e * H[j], H[j] + 0.05 * e * W[i]
            step[j] += 0.1 * e
    """

ADDED = """
    def loop(d, w, c, G, step, total):
        for (i, j), r in d:
            step[j] += 0.1 * (r - w[i] - c[j])
            total += c[j]
    """

LOOPS: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    # name: source, arguments, options, strategy
    "stencil": (
        """
        def loop(A, B, total):
            n, m = A.shape
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    A[i, j] = 0.25 * (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]) + B[j - 1]
                    total += A[i, j]
        """,
        {"A": RNG.normal(size=(33, 25)), "B": RNG.normal(size=25), "total": st.accumulator(0.0)},
        {"blocks": (6, 5), "ordered": True},
        "2d ordered",
    ),
    "stencil in any order": (
        """
        def loop(n, A):
            for i in range(0, n, 2):
                for j in range(n - 1, 0, -1):
                    A[i, j] = 0.5 * (A[i + 2, j] + A[i, j - 1])
        """,
        {"n": 24, "A": RNG.normal(size=(27, 27)).astype(np.float32)},
        {"blocks": (4, 4), "ordered": False},
        "2d unordered",
    ),
    "transformed": (
        """
        def loop(A):
            n, m = A.shape
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    A[i, j] = 0.3 * A[i - 1, j + 1] + 0.2 * A[i - 1, j - 1] + 0.5 * A[i, j - 1]
        """,
        {"A": RNG.normal(size=(22, 19)).astype(np.float32)},
        {"blocks": (4, 5)},
        "2d transformed",
    ),
    "buffer": (ADDED, buffered(), {"width": 4}, "buffered"),
    "buffer with a function": (ADDED, buffered(apply=grown, every=3), {"width": 4}, "buffered"),
    "buffer and rotation": (BOTH, factors(), {"blocks": (6, 4), "width": 3}, "2d unordered"),
    "buffer and wavefront": (BOTH, factors(), {"blocks": (4, 6), "width": 3, "ordered": True}, "2d ordered"),
    "edges": (
        """
        def loop(n, source, target, x, limit):
            for e in range(n):
                a, b = source[e], target[e]
                if x[a] > limit:
                    x[a], x[b] = 0.75 * x[a] + 0.25 * x[b], 0.25 * x[a] + 0.75 * x[b]
        """,
        {
            "n": 500, "source": 2 * RNG.integers(0, 200, 500), "target": 1 + 2 * RNG.integers(0, 200, 500),
            "x": RNG.normal(size=400).astype(np.float32), "limit": -0.5,
        },
        {"inspect": True, "width": 4},
        "inspected",
    ),
    "chain of computed places": (
        """
        def loop(n, x, count):
            for i in range(n):
                at = int(x[i] * 10) % 7
                count[at] = i
        """,
        {"n": 300, "x": RNG.random(300), "count": np.zeros(7, np.int64)},
        {"blocks": 6, "inspect": False},
        "chain",
    ),
    "recurrence in order": (
        """
        def loop(x, s, total):
            for i in range(1, len(x)):
                s[i] = 0.9 * s[i - 1] + x[i]
                total += s[i]
        """,
        {"x": RNG.random(300), "s": RNG.random(300), "total": st.accumulator(0.0)},
        {"blocks": 6, "serial": True},
        "chain",
    ),
    "records in order": (
        """
        def loop(d, w, c):
            for (i, j), r in d:
                w[i] += 0.1 * (r - w[int(c[j] * 59)])
        """,
        {"d": sparse(), "w": RNG.random(60), "c": RNG.random(40)},
        {"blocks": 6, "serial": True},
        "chain",
    ),
    "ragged records in order": (
        """
        def loop(d, w):
            for _, entries in d:
                s = 0.0
                for j, r in entries:
                    s += w[j]
                for j, r in entries:
                    w[j] += 0.1 * (r - s)
        """,
        {"d": sparse().group_by(0), "w": RNG.random(40)},
        {"blocks": 6, "serial": True},
        "chain",
    ),
    "buffered writes in order": (
        """
        def loop(x, w, step):
            for i in range(1, len(x)):
                x[i] = 0.5 * x[i - 1] + w[i % 7]
                step[i % 7] += 0.01 * x[i]
        """,
        behind(),
        {"blocks": 6, "serial": True},
        "chain",
    ),
}  # fmt: skip


def made(name: str) -> tuple[Any, dict[str, Any], str]:
    source, arguments, options, strategy = LOOPS[name]
    return st.parallel(**options)(function(source)), arguments, strategy


def calls(loop: Any, arguments: dict[str, Any], times: int = 3) -> dict[str, Any]:
    mine = fresh(arguments)
    for _ in range(times):
        loop(**mine)
    return results(mine)


def same(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert mine.keys() == theirs.keys()
    for name, array in theirs.items():
        assert same_bits(array, mine[name]), name


def on(nodes: int, threads: int = 1) -> Any:
    return InProcess(nodes, threads)


def plan_of(runtime: Any) -> Any:
    return runtime.crews[0]._plan


@pytest.mark.parametrize("name", CASES)
def test_every_case_of_the_matrix(name: str) -> None:
    same(run_loop(name, on(3)), run_loop(name, st.Serial()))


@pytest.mark.parametrize("name", LOOPS)
def test_the_same_bits(name: str) -> None:
    loop, arguments, strategy = made(name)
    plan = loop.plan(**fresh(arguments))
    assert plan.parts[0].prepared.analysis.strategy.name == strategy
    expected = calls(loop.using(runtime=st.Serial()), arguments)
    three = on(3)
    same(calls(loop.using(runtime=three), arguments), expected)
    assert plan_of(three).spec.of("served")
    # A chain is one visit after another: one node makes them all.
    assert len(np.unique(plan_of(three).route.node)) == (1 if strategy == "chain" else 3)
    same(calls(loop.using(runtime=on(2, threads=2)), arguments), expected)


def test_on_processes() -> None:
    runtime = st.Cluster("processes", nodes=2)
    for name in ("buffer with a function", "stencil"):
        loop, arguments, _ = made(name)
        same(calls(loop.using(runtime=runtime), arguments, 2), calls(loop.using(runtime=st.Serial()), arguments, 2))


# --- what is sent ---------------------------------------------------------------------------------------------------


def test_only_borders_are_sent_once_nodes_have_their_blocks() -> None:
    loop, arguments, _ = made("stencil")
    runtime, mine = on(3), fresh(arguments)
    here = loop.using(runtime=runtime)
    sent = []
    for _ in range(3):
        before = plan_of(runtime).served.sent if runtime.crews else 0
        here(**mine)
        sent.append(plan_of(runtime).served.sent - before)
    everything = mine["A"].nbytes + mine["B"].nbytes
    assert sent[0] >= everything * 0.9
    assert sent[1] == sent[2]
    # Two borders of two rows each, as values and where they are.
    assert sent[1] < 2 * 2 * 2 * 25 * 16


def test_a_buffered_loop_fetches_what_its_visits_read() -> None:
    source = """
        def loop(samples, w, step):
            for _, (y, features) in samples:
                s = 0.0
                for f, x in features:
                    s += w[f] * x
                for f, x in features:
                    step[f] -= 0.1 * (s - y) * x
        """
    wide = 4000
    X = np.zeros((60, wide), np.float32)
    for row in range(60):
        X[row, RNG.choice(wide, 5, replace=False)] = 1.0
    w = np.zeros(wide, np.float32)
    arguments = {"samples": st.samples(csr_array(X), np.ones(60, np.float32)), "w": w, "step": st.buffer(w)}
    loop, runtime = st.parallel(width=4)(function(source)), on(3)
    expected = calls(loop.using(runtime=st.Serial()), arguments, 2)
    same(calls(loop.using(runtime=runtime), arguments, 2), expected)
    # 300 entries in all, touched twice and changed at every visit; the array is 16,000 bytes, in every one of 15 waves.
    assert plan_of(runtime).served.sent < 2 * 300 * 8 * 3


def test_what_the_caller_changes_between_calls() -> None:
    loop, arguments, _ = made("edges")
    there, here = fresh(arguments), fresh(arguments)
    runtime = on(3)
    served, serial = loop.using(runtime=runtime), loop.using(runtime=st.Serial())
    for change in (lambda _: None, lambda a: a["x"].__setitem__(7, 3.0), lambda a: a.__setitem__("limit", 0.1)):
        for arguments, run in ((there, served), (here, serial)):
            change(arguments)
            run(**arguments)
        same(results(there), results(here))
    assert runtime.hosts[0].asked.count("load") == 3  # the visits are the same: loaded once, on three hosts


def test_places_that_change_between_calls() -> None:
    """The prefetch function lists them anew."""
    source = """
        def loop(d, W, where, table):
            for (i, _), r in d:
                W[i] = W[i] + r * table[where[i]]
        """
    arguments = {"d": sparse(), "W": rows(60), "where": np.arange(60) % 7, "table": rows(50)}
    there, here = fresh(arguments), fresh(arguments)
    loop = st.parallel(blocks=6)(function(source))
    served, serial = loop.using(runtime=on(2)), loop.using(runtime=st.Serial())
    for step in (1, 3):
        for mine, run in ((there, served), (here, serial)):
            mine["where"][...] = np.arange(60) * step % 50
            run(**mine)
        same(results(there), results(here))


SCHEDULED = {
    "together": (
        """
        def loop(n, x, y, total):
            for i in range(n):
                x[i] = 0.5 * x[i] + y[i]
                total += x[i]
        """,
        {"n": 60, "x": rows(60), "y": rows(60, 1)[:, 0], "total": st.accumulator(np.zeros(5))},
    ),
    "buffered": (
        """
        def loop(columns, beta, r, step):
            for j, (_, column) in columns:
                g = 0.0
                for i, x in column:
                    g += x * r[i]
                d = 0.02 * g
                beta[j] = beta[j] + d
                for i, x in column:
                    step[i] -= d * x
        """,
        {},
    ),
}


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_schedule_chooses_the_rounds_on_the_driver(name: str) -> None:
    source, arguments = SCHEDULED[name]
    if name == "buffered":
        r = rows(50, 1)[:, 0]
        columns = st.samples(csr_array(RNG.random((30, 50)).astype(np.float32)), np.zeros(30, np.float32))
        arguments = {"columns": columns, "beta": np.zeros(30, np.float32), "r": r, "step": st.buffer(r)}
        schedule = st.schedule.prioritised(width=7, conflicts=None)
        loop = st.parallel(schedule=schedule, watch="beta", width=3)(function(source))
    else:
        schedule = st.schedule.prioritised(width=7, conflicts=None)
        loop = st.parallel(schedule=schedule, watch="x", width=3)(function(source))
    runtime = on(3)
    same(calls(loop.using(runtime=runtime), arguments), calls(loop.using(runtime=st.Serial()), arguments))
    assert len(np.unique(plan_of(runtime).route.node)) == 3


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stencil", "buffer and rotation", "edges", "buffer with a function"])
def test_hosts_that_are_lost(name: str) -> None:
    loop, arguments, _ = made(name)
    expected = calls(loop.using(runtime=st.Serial()), arguments)
    for seed in range(4):
        draw = random.Random(seed)
        at = set(draw.sample(range(5, 40), 4))
        runtime = on(3)

        def prepare(hosts: QueueHosts, at: set[int] = at, draw: random.Random = draw) -> None:
            asked = iter(range(1, 10_000))

            def before(_: str) -> None:
                alive = [number for number, host in hosts.hosts.items() if not host.dead]
                if next(asked) in at and len(alive) > 1:
                    hosts.kill(draw.choice(alive))

            hosts.before = before

        runtime.prepare = prepare
        same(calls(loop.using(runtime=runtime), arguments), expected)
        assert runtime.hosts[0].incarnation > 1


def test_a_subscript_out_of_range() -> None:
    source = """
        def loop(n, pick, x, y):
            for e in range(n):
                x[pick[e]] = y[e] + x[pick[e]]
        """
    pick = RNG.permutation(90)
    pick[40] = 99
    said = []
    for runtime in (st.Serial(), on(3)):
        loop = st.parallel(runtime=runtime, inspect=True, width=4)(function(source))
        x = np.zeros(90)
        for _ in range(2):  # the second call begins anew
            with pytest.raises(RunError) as caught:
                loop(90, pick, x, np.ones(90))
        said.append(str(caught.value).partition(": ")[2])
    assert said[0] == said[1]
    assert "subscript 99 of x" in said[0]
