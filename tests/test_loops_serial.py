"""Loops whose iterations depend on each other everywhere: they run in order, compiled, on one worker, and warn."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

import stretto as st
from loop_bodies import fresh, function, results, three_ways
from loop_plain import Nest, compare
from stretto.errors import LoopError, PlanError, SerialWarning
from stretto.loops.layout import inspector
from stretto.loops.parallel import Loop
from stretto.testing.arithmetic import same_bits
from stretto.testing.loops import reference

ADVICE = "leave serial=False out: the loop is compiled and runs in its order, on one worker"


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(shape)


def sparse() -> Any:
    given = np.random.default_rng(1)
    rows, cols = given.integers(0, 30, 400), given.integers(0, 20, 400)
    return st.Data.from_arrays(rows, cols, given.random(400).astype("f4"), (30, 20))


def samples() -> Any:
    X = draw(120, 15) * (draw(120, 15, seed=1) < 0.3)
    return st.samples(X, (X.sum(axis=1) > 2).astype("f4"))


# Each loop, and what it is called with.
LOOPS: dict[str, tuple[str, dict[str, Any]]] = {
    "prefix sum": (
        """
        def loop(x, s):
            for i in range(1, len(x)):
                s[i] = s[i - 1] + x[i]
        """,
        {"x": draw(200), "s": np.zeros(200)},
    ),
    "suffix sum": (
        """
        def loop(x, s):
            for i in range(len(x) - 2, -1, -1):
                s[i] = s[i + 1] + x[i]
        """,
        {"x": draw(200), "s": np.zeros(200)},
    ),
    "knapsack in place": (
        """
        def loop(weights, values, best, capacity):
            for i in range(len(weights)):
                for c in range(capacity, weights[i] - 1, -1):
                    best[c] = max(best[c], best[c - weights[i]] + values[i])
        """,
        {"weights": np.arange(3, 21), "values": draw(18), "best": np.zeros(51), "capacity": 50},
    ),
    "forward substitution": (
        """
        def loop(L, b, x):
            for i in range(len(b)):
                s = b[i]
                for j in range(i):
                    s -= L[i, j] * x[j]
                x[i] = s / L[i, i]
        """,
        {"L": draw(40, 40) + np.eye(40), "b": draw(40, seed=1), "x": np.zeros(40)},
    ),
    "online k-means over records": (
        """
        def loop(points, centre, count, label):
            for i, entries in points:
                best = 1e300
                nearest = 0
                for c in range(len(centre)):
                    d = 0.0
                    for f, x in entries:
                        d += (x - centre[c, f]) * (x - centre[c, f])
                    if d < best:
                        best = d
                        nearest = c
                count[nearest] += 1
                for f, x in entries:
                    centre[nearest, f] += (x - centre[nearest, f]) / count[nearest]
                label[i] = nearest
        """,
        {
            "points": sparse().group_by(0),
            "centre": draw(4, 20, seed=2),
            "count": np.ones(4),
            "label": np.zeros(30, np.int64),
        },
    ),
    "perceptron over samples": (
        """
        def loop(samples, w):
            for _, (y, features) in samples:
                s = 0.0
                for f, x in features:
                    s += w[f] * x
                if (2 * y - 1) * s <= 0:
                    for f, x in features:
                        w[f] += (2 * y - 1) * x
        """,
        {"samples": samples(), "w": np.zeros(15)},
    ),
    "moving average of sparse records": (
        """
        def loop(data, mean, seen):
            for (i, j), r in data:
                mean[0] += 0.1 * (r - mean[0])
                seen[i] = mean[0]
        """,
        {"data": sparse(), "mean": np.zeros(1), "seen": np.zeros(30)},
    ),
    "moving average of the elements of an array": (
        """
        def loop(data, mean, seen):
            for (i, j), r in data:
                mean[0] += 0.1 * (r - mean[0])
                seen[i, j] = mean[0]
        """,
        {"data": st.dense(draw(9, 11)), "mean": np.zeros(1), "seen": np.zeros((9, 11))},
    ),
    "a carried value and a sum": (
        """
        def loop(x, total):
            for i in range(2, len(x)):
                x[i] = 0.9 * x[i - 1] - 0.2 * x[i - 2] + 0.1
                total += x[i]
        """,
        {"x": draw(150), "total": st.accumulator(0.0)},
    ),
}


def strategies(loop: Loop, arguments: dict[str, Any]) -> list[str]:
    return [part.prepared.analysis.strategy.name for part in loop.plan(**fresh(arguments)).parts]


@pytest.mark.parametrize("name", LOOPS)
def test_bits_of_the_reference_in_the_order_of_the_loop(name: str) -> None:
    """1, 2 and 4 workers have the bits of the interpreter, and the function as it is the same values."""
    source, arguments = LOOPS[name]
    loop = st.parallel(serial=True, blocks=5)(function(source))
    assert strategies(loop, arguments) == ["chain"]
    plan = loop.plan(**fresh(arguments))
    assert len(plan.plans[0].order) > 1, "several visits: their order matters"
    assert plan.grade == "identical"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the user asked: no SerialWarning
        found = results(three_ways(loop, arguments, threads=(1, 2, 4)))
    plain = fresh(arguments)
    function(source)(**plain)  # over the records as they come
    for key, wanted in results(plain).items():
        np.testing.assert_allclose(found[key], wanted, rtol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", LOOPS)
def test_refused_with_an_option_which_the_message_names(name: str) -> None:
    source, arguments = LOOPS[name]
    with pytest.raises(LoopError, match="no strategy runs this loop") as refusal:
        st.parallel(serial=False)(function(source)).plan(**fresh(arguments))
    assert ADVICE in str(refusal.value)
    assert ".plain" not in str(refusal.value)


@pytest.mark.parametrize("name", ["prefix sum", "perceptron over samples"])
def test_without_options_it_runs_in_its_order_and_warns_of_what_is_in_the_way(name: str) -> None:
    """The accesses that clash with their lines, the ways out, and the option that silences it; once."""
    source, arguments = LOOPS[name]
    loop = st.parallel(function(source))
    given = fresh(arguments)
    with pytest.warns(SerialWarning) as caught:
        loop(**given)
    (said,) = [str(one.message) for one in caught]
    assert caught[0].filename == __file__
    assert "run one after the other, on one worker; no strategy runs it in parallel with the same result:" in said
    clash = "line 4 writes s[i], line 4 reads s[i - 1]: iterations p and p + (1)" if name == "prefix sum" else "reads w"
    assert clash in said
    assert "      4 | s[i] = s[i - 1] + x[i]" in said or name != "prefix sum"
    assert "pass dw = st.buffer(w)" in said or name == "prefix sum"
    assert "serial=True: keep it in order, on one worker, without this warning" in said
    wanted = reference(loop.plan(**fresh(arguments))).arrays
    assert all(same_bits(given[key], array) for key, array in wanted.items())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(**fresh(arguments))
    assert ("clashes" if name == "prefix sum" else "ways out") in loop.explain(**fresh(arguments))


def test_explain_says_what_runs_and_why() -> None:
    source, arguments = LOOPS["prefix sum"]
    text = st.parallel(serial=True)(function(source)).explain(**fresh(arguments))
    assert "chain: one visit after the other, in the order of the loop: no faster than one worker" in text
    assert "because     serial=True, and nothing runs in parallel: line 4 writes s[i], line 4 reads s[i - 1]" in text
    assert "result      that of the loop run serially, in its own order" in text
    assert "warning" not in text
    assert "1d: i is not 0 in (1)" in text


@pytest.mark.parametrize("ordered", [None, False, True])
def test_the_order_over_data_is_that_of_the_records(ordered: bool | None) -> None:
    """With `ordered=True`, as ever, that of their indices; `plan.order` says which."""
    source, arguments = LOOPS["moving average of sparse records"]
    loop = st.parallel(serial=True, ordered=ordered, blocks=3)(function(source))
    plan = loop.plan(**fresh(arguments))
    assert strategies(loop, arguments) == ["chain"]
    data = arguments["data"]
    told, records = [index for index, _ in plan.order(data)], [index for index, _ in data]
    assert records != sorted(records)
    assert told == (sorted(records) if ordered else records)
    plain, found = fresh(arguments), results(three_ways(loop, arguments, threads=(2,)))
    function(source)(**{**plain, "data": plan.order(data)})
    np.testing.assert_allclose(found["seen"], plain["seen"], rtol=1e-12)


def test_a_loop_with_a_parallel_strategy_keeps_it() -> None:
    source = """
        def loop(data, W, H):
            for (i, j), r in data:
                e = r - W[i] @ H[j]
                W[i], H[j] = W[i] + 0.1 * e * H[j], H[j] + 0.1 * e * W[i]
        """
    arguments = {"data": sparse(), "W": draw(30, 4), "H": draw(20, 4)}
    plain, asked = (st.parallel(serial=serial)(function(source)) for serial in (False, True))
    assert strategies(asked, arguments) == ["2d unordered"]
    given = fresh(arguments)
    assert [a.order.name for a in asked.plan(**given).plans] == [a.order.name for a in plain.plan(**given).plans]


def test_of_several_loops_those_that_need_it() -> None:
    source = """
        def loop(x, s, B, n):
            for i in range(1, len(x)):
                s[i] = s[i - 1] + x[i]
            for i in range(len(x)):
                x[i] = s[i] * 2
            for i in range(n - 1):
                for j in range(i + 1, n):
                    B[i, j] = B[i, j] + s[i]
        """
    arguments = {"x": draw(60), "s": np.zeros(60), "B": draw(30, 30), "n": 30}
    loop = st.parallel(serial=True)(function(source))
    assert strategies(loop, arguments) == ["chain", "independent", "independent"]
    three_ways(loop, arguments, threads=(2, 4))


def test_inner_ranges_become_indices_before_the_loop_is_given_up() -> None:
    """A range that depends on an outer index gives a parallel strategy here, which `serial=True` must not hide."""
    source = """
        def loop(P, n):
            for i in range(n - 2, -1, -1):
                for j in range(i + 1, n):
                    P[i, j] = max(P[i + 1, j], P[i, j - 1])
        """
    arguments = {"P": draw(30, 30), "n": 30}
    plain, asked = (st.parallel(serial=serial)(function(source)) for serial in (False, True))
    assert strategies(asked, arguments) == strategies(plain, arguments) != ["chain"]


def test_buffered_writes_stay_buffered() -> None:
    """Beside a carried value: each visit sees its own additions, and later visits see them too."""
    source = """
        def loop(x, w, step):
            for i in range(1, len(x)):
                x[i] = 0.5 * x[i - 1] + w[i % 7]
                step[i % 7] += 0.01 * x[i]
        """
    w = draw(7)
    arguments = {"x": draw(90), "w": w, "step": st.buffer(w)}
    with pytest.raises(LoopError, match=ADVICE):
        st.parallel(serial=False)(function(source)).plan(**fresh(arguments))
    loop = st.parallel(serial=True, blocks=4)(function(source))
    assert strategies(loop, arguments) == ["chain"]
    three_ways(loop, arguments, threads=(1, 2, 4))


def test_random_nests_are_what_plain_python_makes_of_them() -> None:
    """Interpreted; with the option few are refused, and those that were before run as chains."""
    cases = [Nest(random.Random(seed)).case() for seed in range(100)]
    before = [compare(case, serial=False) for case in cases]
    after = [compare(case, serial=True) for case in cases]
    assert not any(old == "same" != new for old, new in zip(before, after, strict=True))
    taken = [case.strategies for case, old, new in zip(cases, before, after, strict=True) if old == "refused" != new]
    assert len(taken) > 5, before
    assert all("chain" in strategies for strategies in taken)
    for seed in range(300, 306):
        compare(Nest(random.Random(seed)).case(), compiled=True, serial=True)


# --- with other options -----------------------------------------------------------------------------------------------

HOT = """
    def loop(samples, w):
        for _, (y, features) in samples:
            for f, x in features:
                w[f] += x * (y - w[0])
    """


def test_inspection_comes_first_and_the_order_where_it_finds_too_little() -> None:
    X = draw(120, 15)
    arguments = {"samples": st.samples(X, np.ones(120, "f4")), "w": np.zeros(15)}
    with pytest.raises(LoopError, match=r"(?s)too little.*exempt the writes to w"):
        st.parallel(inspect=True, serial=False)(function(HOT)).plan(**fresh(arguments))
    loop = st.parallel(inspect=True, blocks=4)(function(HOT))
    assert strategies(loop, arguments) == ["chain"]
    assert "inspected: an inspection finds too little to run together" in " ".join(
        loop.explain(**fresh(arguments)).split()
    )
    three_ways(loop, arguments, threads=(2, 4))

    source = "def loop(data, w, n):\n    for i, x in data:\n        w[(7 * i) % n] += x\n"
    seldom = {"data": st.dense(draw(64)), "w": np.zeros(64), "n": 64}
    assert strategies(st.parallel(inspect=True, serial=True)(function(source)), seldom) == ["inspected"]


SELDOM = """
    def loop(data, at, w, total):
        for i, x in data:
            w[at[i]] = 0.5 * w[at[i]] + x
            total += x
    """


def seldom(at: Any) -> dict[str, Any]:
    return {"data": st.dense(draw(len(at))), "at": at, "w": np.zeros(len(at)), "total": st.accumulator(0.0)}


def test_subscripts_from_the_data_are_inspected_without_being_asked() -> None:
    """With the bits of the serial loop. Not with `serial=True`, which says that it may be serial."""
    arguments = seldom(np.random.default_rng(0).integers(0, 200, 200))
    plain = function(SELDOM)
    assert strategies(st.parallel(plain), arguments) == ["inspected"]
    assert strategies(st.parallel(serial=False)(plain), arguments) == ["inspected"]
    assert strategies(st.parallel(serial=True)(plain), arguments) == ["chain"]
    assert strategies(st.parallel(inspect=False)(plain), arguments) == ["chain"]
    text = st.parallel(plain).explain(**fresh(arguments))
    assert "the data decide which iterations meet: line 4 reads w[at[i]]" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = results(three_ways(st.parallel(plain), arguments, threads=(1, 2, 4)))
    in_order = fresh(arguments)
    st.parallel(serial=True)(plain)(**in_order)
    assert same_bits(found["w"], in_order["w"])
    with pytest.raises(LoopError, match="leave inspect=False out"):
        st.parallel(inspect=False, serial=False)(plain).plan(**fresh(arguments))


def test_what_changes_from_call_to_call_is_not_inspected_again_and_again() -> None:
    """One inspection takes as long as many calls. `inspect=True` makes it all the same."""
    arguments = seldom(np.random.default_rng(0).integers(0, 200, 200))
    automatic, asked = (st.parallel(inspect=inspect)(function(SELDOM)) for inspect in (None, True))
    for loop in (automatic, asked):
        loop(**arguments)
    arguments["at"][:] = arguments["at"][::-1].copy()
    given = {**arguments, "w": np.zeros(200)}
    with pytest.warns(SerialWarning, match="differs from call to call"):
        automatic(**given)
    assert [part.prepared.analysis.strategy.name for part in automatic.plan(**given).parts] == ["chain"]
    assert [part.prepared.analysis.strategy.name for part in asked.plan(**given).parts] == ["inspected"]
    wanted = np.zeros(200)
    function(SELDOM)(**{**given, "w": wanted, "total": 0.0})
    np.testing.assert_allclose(given["w"], wanted, rtol=1e-12)
    # Data that are made anew for each call are inspected a few times.
    loop, found = st.parallel(function(SELDOM)), []
    for _ in range(6):
        found += strategies(loop, {**arguments, "data": st.dense(draw(200))})
    assert found == ["inspected"] * 4 + ["chain"] * 2


def test_a_large_inspection_is_left_to_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = seldom(np.random.default_rng(0).integers(0, 200, 200))
    monkeypatch.setattr(inspector, "MOST", 300)
    loop = st.parallel(function(SELDOM))
    assert strategies(loop, arguments) == ["chain"]
    assert "not inspected, since this loop makes more than 300 accesses" in loop.explain(**fresh(arguments))
    assert strategies(st.parallel(inspect=True)(function(SELDOM)), arguments) == ["inspected"]


def test_with_false_no_loop_runs_on_one_worker() -> None:
    """Neither one in which only the last store counts."""
    source = "def loop(x, last):\n    for i in range(len(x)):\n        last[0] = x[i]\n"
    with pytest.raises(LoopError, match="only stores over stores stand in the way"):
        st.parallel(serial=False)(function(source)).plan(np.ones(9), np.zeros(1))


def test_options_that_contradict_it() -> None:
    source, arguments = LOOPS["prefix sum"]
    with pytest.raises(PlanError, match="serial= and schedule= contradict each other"):
        st.parallel(serial=True, schedule=st.schedule.cyclic(4))(function(source))
    with pytest.raises(PlanError, match="cannot be cut along i as cut= asks"):
        st.parallel(serial=True, cut="i")(function(source)).plan(**fresh(arguments))


def test_a_carried_number_becomes_an_array_as_its_refusal_says() -> None:
    source = """
        def loop(x, s, seen):
            for i in range(len(x)):
                s{0} = 0.9 * s{0} + x[i]
                seen[i] = s{0}
        """
    with pytest.raises(LoopError, match=r"array of one element, s\[0\] = …"):
        st.parallel(serial=True)(function(source.replace("{0}", ""))).plan(draw(50), 0.0, np.zeros(50))
    loop = st.parallel(serial=True)(function(source.replace("{0}", "[0]")))
    three_ways(loop, {"x": draw(50), "s": np.zeros(1), "seen": np.zeros(50)}, threads=(2,))


@pytest.mark.parametrize("size", [0, 1, 2])
def test_few_iterations(size: int) -> None:
    source, _ = LOOPS["prefix sum"]
    three_ways(st.parallel(serial=True)(function(source)), {"x": np.ones(size), "s": np.zeros(size)}, threads=(2,))


def test_using_turns_it_on() -> None:
    source, arguments = LOOPS["prefix sum"]
    loop = st.parallel(function(source)).using(serial=True)
    given = fresh(arguments)
    loop(**given)
    assert same_bits(given["s"], reference(loop.plan(**fresh(arguments))).arrays["s"])
    np.testing.assert_array_equal(given["s"][1:], np.cumsum(given["x"][1:]))
