"""The order of a loop is kept where it was promised: nests of ranges against the undecorated function, to the last bit.

Nests keep their order unless the user says that any will do; so do ragged records, and iterations in conflict of a loop
that was inspected. Sparse and dense records may be visited in another order, and a loop that overwrites warns of it.
"""

from __future__ import annotations

import collections
import random
import textwrap
import warnings
from typing import Any

import numpy as np
import pytest

import stretto as st
from loop_bodies import fresh, function, three_ways
from loop_plain import Nest, Writer, compare
from stretto.errors import LoopError, OrderWarning, PlanError, SerialWarning
from stretto.loops.parallel import Loop
from stretto.testing.loops import reference

Array = np.ndarray[Any, Any]


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random(shape)


def strategies(loop: Loop, **arguments: Any) -> list[str]:
    return [part.prepared.analysis.strategy.name for part in loop.plan(**fresh(arguments)).parts]


# Each nest, what it is called with, and how it runs when nothing is said; None: it is refused.
NESTS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "Floyd-Warshall": (
        """
        def loop(D, n):
            for k in range(n):
                for i in range(n):
                    for j in range(n):
                        D[i, j] = min(D[i, j], D[i, k] + D[k, j])
        """,
        {"D": draw(24, 24), "n": 24},
        "stepped",
    ),
    "Gauss-Seidel": (
        """
        def loop(A, n):
            for i in range(1, n - 1):
                for j in range(1, n - 1):
                    A[i, j] = (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]) / 4
        """,
        {"A": draw(40, 40), "n": 40},
        "2d ordered",
    ),
    "Gauss-Seidel, several sweeps": (
        """
        def loop(A, T, n):
            for t in range(T):
                for i in range(1, n - 1):
                    for j in range(1, n - 1):
                        A[i, j] = (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]) / 4
        """,
        {"A": draw(24, 24), "T": 4, "n": 24},
        "2d transformed",
    ),
    "backwards": (
        """
        def loop(A, n):
            for i in range(n - 2, 0, -1):
                for j in range(n - 2, 0, -1):
                    A[i, j] = (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]) / 4
        """,
        {"A": draw(40, 40), "n": 40},
        "2d ordered",
    ),
    "heat in a rod": (
        """
        def loop(U, T, n):
            for t in range(1, T):
                for i in range(1, n - 1):
                    U[t, i] = 0.25 * U[t - 1, i - 1] + 0.5 * U[t - 1, i] + 0.25 * U[t - 1, i + 1]
        """,
        {"U": draw(30, 50), "T": 30, "n": 50},
        "2d transformed",
    ),
    "heat in a plate": (
        """
        def loop(U, T, n):
            for t in range(T):
                for i in range(1, n - 1):
                    for j in range(1, n - 1):
                        U[t + 1, i, j] = 0.25 * (U[t, i - 1, j] + U[t, i + 1, j] + U[t, i, j - 1] + U[t, i, j + 1])
        """,
        {"U": draw(9, 20, 20), "T": 8, "n": 20},
        "2d transformed",
    ),
    "heat in place": (
        """
        def loop(U, T, n):
            for t in range(T):
                for i in range(1, n - 1):
                    U[(t + 1) % 2, i] = 0.5 * U[t % 2, i] + 0.25 * (U[t % 2, i - 1] + U[t % 2, i + 1])
        """,
        {"U": draw(2, 50), "T": 12, "n": 50},
        "2d transformed",
    ),
    "prefix sums of columns": (
        """
        def loop(A, n):
            for i in range(1, n):
                for j in range(n):
                    A[i, j] += A[i - 1, j]
        """,
        {"A": draw(40, 40), "n": 40},
        "1d",
    ),
    "prefix sums of both axes": (
        """
        def loop(A, n):
            for i in range(1, n):
                for j in range(1, n):
                    A[i, j] = A[i, j] + A[i - 1, j] + A[i, j - 1] - A[i - 1, j - 1]
        """,
        {"A": draw(40, 40), "n": 40},
        "2d ordered",
    ),
    "prefix sums": (
        "def loop(a, n):\n    for i in range(1, n):\n        a[i] += a[i - 1]\n",
        {"a": draw(40), "n": 40},
        None,
    ),
    "edit distance": (
        """
        def loop(E, a, b, n, m):
            for i in range(1, n):
                for j in range(1, m):
                    c = 0 if a[i - 1] == b[j - 1] else 1
                    E[i, j] = min(E[i - 1, j] + 1, E[i, j - 1] + 1, E[i - 1, j - 1] + c)
        """,
        {
            "E": np.add.outer(np.arange(31), np.arange(26)),
            "a": np.arange(30) % 3,
            "b": np.arange(25) % 4,
            "n": 31,
            "m": 26,
        },
        "2d ordered",
    ),
    "Smith-Waterman": (
        """
        def loop(S, a, b, n, m):
            for i in range(1, n):
                for j in range(1, m):
                    match = 3 if a[i - 1] == b[j - 1] else -3
                    S[i, j] = max(0, S[i - 1, j - 1] + match, S[i - 1, j] - 2, S[i, j - 1] - 2)
        """,
        {
            "S": np.zeros((31, 26), np.int64),
            "a": np.arange(30) ** 2 % 5,
            "b": np.arange(25) ** 3 % 4,
            "n": 31,
            "m": 26,
        },
        "2d ordered",
    ),
    "Cholesky": (
        """
        def loop(A, n):
            for k in range(n):
                for i in range(k, n):
                    if i == k:
                        A[k, k] = A[k, k] ** 0.5
                    if i > k:
                        A[i, k] = A[i, k] / A[k, k]
                        for j in range(k + 1, i + 1):
                            A[i, j] -= A[i, k] * A[j, k]
        """,
        {"A": draw(20, 20) @ draw(20, 20).T + 20 * np.eye(20), "n": 20},
        "2d ordered",
    ),
    "the upper triangle, backwards": (
        """
        def loop(A, n):
            for i in range(n - 2, -1, -1):
                for j in range(n - 1, i, -1):
                    A[i, j] = A[i + 1, j] + A[i, j - 1] - A[i + 1, j - 1]
        """,
        {"A": draw(24, 24), "n": 24},
        "2d transformed",
    ),
    "palindromes, from short to long": (
        """
        def loop(P, n):
            for l in range(1, n):
                for i in range(n - l):
                    P[i, i + l] = max(P[i + 1, i + l], P[i, i + l - 1]) + (i * l) % 3
        """,
        {"P": np.zeros((24, 24), np.int64), "n": 24},
        "2d transformed",
    ),
    "a matrix in one dimension": (
        """
        def loop(a, n, m):
            for i in range(n):
                for j in range(1, m):
                    a[i * m + j] += a[i * m + j - 1]
        """,
        {"a": draw(20 * 13), "n": 20, "m": 13},
        "1d",
    ),
    "red and black": (
        """
        def loop(a, n):
            for i in range(n):
                a[2 * i + 1] = (a[2 * i] + a[2 * i + 2]) / 2
        """,
        {"a": draw(61), "n": 30},
        "independent",
    ),
    "mirrored": (
        """
        def loop(a, b, n):
            for i in range(n // 2):
                a[n - 1 - i] = 2 * a[i]
                b[i] = a[i] + b[n - 1 - i]
        """,
        {"a": draw(40), "b": draw(40, seed=1), "n": 40},
        "independent",
    ),
    "anti-diagonals": (
        """
        def loop(s, A, n):
            for i in range(n):
                for j in range(n):
                    s[i + j] += A[i, j] * s[i + j]
        """,
        {"s": draw(39), "A": draw(20, 20), "n": 20},
        "2d transformed",
    ),
    "four ranges": (
        """
        def loop(U, T, n):
            for t in range(T):
                for i in range(1, n - 1):
                    for j in range(1, n - 1):
                        for k in range(1, n - 1):
                            U[t + 1, i, j, k] = U[t, i - 1, j, k] + U[t, i + 1, j, k] - U[t, i, j - 1, k - 1]
        """,
        {"U": draw(5, 8, 8, 8), "T": 4, "n": 8},
        "2d ordered",
    ),
    "rows one after the other": (
        """
        def loop(U, T, n):
            for t in range(1, T):
                for i in range(1, n - 9):
                    for j in range(9, 50):
                        U[t, i, j] = U[t, i - 1, j - 9] + U[t, i - 1, j + 9] - U[t - 1, i + 9, j + 9]
        """,
        {"U": draw(4, 24, 60), "T": 4, "n": 24},
        "stepped",
    ),
    "knapsack": (
        """
        def loop(V, w, v, n, W):
            for i in range(n):
                for c in range(W):
                    V[i + 1, c] = max(V[i, c], V[i, c - w[i]] + v[i]) if c >= w[i] else V[i, c]
        """,
        {"V": np.zeros((13, 50)), "w": np.arange(12) % 7 + 1, "v": draw(12), "n": 12, "W": 50},
        "2d transformed",
    ),
    "triangular solve": (
        """
        def loop(L, x, n):
            for i in range(n):
                for j in range(n):
                    if j < i:
                        x[i] -= L[i, j] * x[j]
                    if j == i:
                        x[i] = x[i] / L[i, i]
        """,
        {"L": np.tril(draw(30, 30)) + 5 * np.eye(30), "x": draw(30), "n": 30},
        "2d ordered",
    ),
    "LU": (
        """
        def loop(A, n):
            for k in range(n):
                for i in range(k + 1, n):
                    A[i, k] = A[i, k] / A[k, k]
                    for j in range(k + 1, n):
                        A[i, j] -= A[i, k] * A[k, j]
        """,
        {"A": draw(20, 20) + 20 * np.eye(20), "n": 20},
        "2d ordered",
    ),
    "matrix chain": (
        """
        def loop(M, p, n):
            for l in range(1, n):
                for i in range(n):
                    for k in range(n):
                        if i + l < n and i <= k < i + l:
                            M[i, i + l] = min(M[i, i + l], M[i, k] + M[k + 1, i + l] + p[i] * p[k + 1] * p[i + l + 1])
        """,
        {"M": np.where(np.eye(10) > 0, 0.0, 1e18), "p": np.arange(11.0) % 4 + 1, "n": 10},
        "2d transformed",
    ),
    "matrix product": (
        """
        def loop(C, A, B, n):
            for i in range(n):
                for j in range(n):
                    for k in range(n):
                        C[i, j] += A[i, k] * B[k, j]
        """,
        {"C": np.zeros((20, 20)), "A": draw(20, 20), "B": draw(20, 20, seed=1), "n": 20},
        "1d",
    ),
    "the last one wins": (
        """
        def loop(last, n, m):
            for i in range(n):
                for j in range(m):
                    last[(7 * i + 3 * j) % 20] = 100 * i + j
        """,
        {"last": np.zeros(20, np.int64), "n": 30, "m": 20},
        "inspected",
    ),
    "gradient steps over ranges": (
        """
        def loop(A, W, H, n):
            for i in range(n):
                for j in range(n):
                    e = A[i, j] - W[i] * H[j]
                    W[i], H[j] = W[i] + 0.1 * e * H[j], H[j] + 0.1 * e * W[i]
        """,
        {"A": draw(40, 40), "W": draw(40), "H": draw(40, seed=1), "n": 40},
        "2d ordered",
    ),
}


@pytest.mark.parametrize("name", NESTS)
def test_nests_keep_their_order(name: str) -> None:
    """On any number of threads, cut finely: what plain Python computes; or the loop is refused."""
    source, arguments, strategy = NESTS[name]
    loop = st.parallel(blocks=5)(function(source))
    if strategy is None:
        with pytest.raises(LoopError, match="no strategy runs this loop in parallel"):
            loop.using(serial=False)(**fresh(arguments))
        return
    assert strategies(loop, **arguments) == [strategy]
    assert "that of the loop run serially, in its own order" in loop.explain(**fresh(arguments))
    after, plain = three_ways(loop, arguments, threads=(2, 3)), fresh(arguments)
    function(source)(**plain)
    for key, value in plain.items():
        np.testing.assert_array_equal(after[key], value, err_msg=key)


def test_another_order_is_taken_when_the_user_allows_it() -> None:
    """Then the result is that of the plan's order, `explain` says so, and nothing warns: it was asked for."""
    source, arguments, _ = NESTS["Floyd-Warshall"]
    loop = st.parallel(ordered=False, blocks=4)(function(source))
    assert strategies(loop, **arguments) == ["2d unordered"]
    text = loop.explain(**fresh(arguments))
    assert "in another order, the plan's, as ordered=False allows" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after, plain = three_ways(loop, arguments), fresh(arguments)
    function(source)(**plain)
    assert (after["D"] != plain["D"]).sum() > 30


# --- records ---------------------------------------------------------------------------------------------------------

OVERWRITES = """
def loop(d, last, total):
    for (i, j), r in d:
        last[i] = j
        total[j] += r
"""


def ratings(n: int = 12, m: int = 9, count: int = 2000) -> Any:
    rng = np.random.default_rng(0)
    return st.Data.from_arrays(rng.integers(0, n, count), rng.integers(0, m, count), rng.integers(1, 6, count), (n, m))


def run_twice(loop: Loop, *args: Any) -> None:
    loop(*args)
    loop(*args)


def test_a_loop_that_overwrites_warns_once() -> None:
    data = ratings()
    loop = st.parallel(blocks=4)(function(OVERWRITES))
    with pytest.warns(
        OrderWarning, match=r"<loop body \d+>:4: last\[i\] is overwritten, and d is visited .* plan"
    ) as said:
        run_twice(loop, data, np.zeros(12, np.int64), np.zeros(9))
    assert [warning.filename for warning in said] == [__file__]
    text = " ".join(loop.explain(data, np.zeros(12, np.int64), np.zeros(9)).split())
    assert "warning last[i] is overwritten, and d is visited in the order of the plan" in text


@pytest.mark.parametrize("ordered", [True, False])
def test_what_is_said_of_the_order_is_not_warned_of(ordered: bool) -> None:
    data, last = ratings(), np.zeros(12, np.int64)
    loop = st.parallel(ordered=ordered, blocks=4)(function(OVERWRITES))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(data, last, np.zeros(9))
    if ordered:  # the order of the indices: the last of a row is its largest column
        assert last.tolist() == [int(data.cols[data.rows == i].max()) for i in range(12)]
        assert "in the order of its indices, row by row" in loop.explain(data, last, np.zeros(9))
    else:
        plain, plan = np.zeros(12, np.int64), loop.plan(data, last, np.zeros(9))
        function(OVERWRITES)(plan.order(data), plain, np.zeros(9))
        assert last.tolist() == plain.tolist()


SGD = """
def loop(d, W, H):
    for (i, j), r in d:
        e = r - W[i] * H[j]
        W[i], H[j] = W[i] + 0.1 * e * H[j], H[j] + 0.1 * e * W[i]
"""


def test_steps_that_build_on_what_they_find_do_not_warn() -> None:
    """Stochastic gradient descent: any order is as good, and `explain` says which one it is."""
    data = ratings()
    loop = st.parallel(function(SGD))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(data, np.ones(12), np.ones(9))
    assert strategies(loop, d=data, W=np.ones(12), H=np.ones(9)) == ["2d unordered"]
    text = " ".join(loop.explain(data, np.ones(12), np.ones(9)).split())
    assert (
        "that of a serial loop over d in another order, the plan's; ordered=True keeps the order of the indices" in text
    )


@pytest.mark.parametrize(
    ("source", "strategy"),
    [
        ("def loop(d, s):\n    for (i, j), r in d:\n        s[i] = 2 * s[i] + r\n", "1d"),
        ("def loop(d, s):\n    for (i, j), r in d:\n        s[i] = r\n", "1d"),
        ("def loop(d, s):\n    for (i, j), r in d:\n        s[0] = r + i\n", "chain"),
    ],
)
def test_sparse_records_that_meet_keep_their_order(source: str, strategy: str) -> None:
    """Cut along one index, or one visit after the other: as plain Python over the data, not over the plan."""
    data = ratings()
    loop = st.parallel(blocks=5)(function(source))
    assert strategies(loop, d=data, s=np.zeros(12)) == [strategy]
    after, plain = three_ways(loop, {"d": data, "s": np.zeros(12)}), np.zeros(12)
    function(source)(data, plain)
    assert after["s"].tolist() == plain.tolist()
    assert "that of the loop run serially, in its own order" in loop.explain(data, plain)


def test_inspected_iterations_that_meet_keep_their_order() -> None:
    """Of ragged records and of ranges: s[k] is multiplied before it is added to, or after, as the loop says."""
    rng = np.random.default_rng(1)
    at = rng.integers(0, 4000, (3000, 2))
    ranges = """
def loop(at, s, n):
    for i in range(n):
        s[at[i, 0]] = 2 * s[at[i, 0]] + i
        s[at[i, 1]] = s[at[i, 1]] + s[at[i, 0]] % 7
"""
    loop = st.parallel(inspect=True)(function(ranges))
    arguments = {"at": at, "s": np.zeros(4000, np.int64), "n": 3000}
    assert strategies(loop, **arguments) == ["inspected"]
    after, plain = three_ways(loop, arguments), fresh(arguments)
    function(ranges)(**plain)
    np.testing.assert_array_equal(after["s"], plain["s"])
    assert "that of the loop run serially, in its own order" in loop.explain(**fresh(arguments))


def test_plan_order_wants_data() -> None:
    plan = st.parallel(function(SGD)).plan(ratings(), np.ones(12), np.ones(9))
    with pytest.raises(PlanError, match="its loops run over d; pass that"):
        plan.order(None)
    source, arguments, _ = NESTS["Gauss-Seidel"]
    with pytest.raises(PlanError, match="its loops run over ranges; pass no data"):
        st.parallel(function(source)).plan(**fresh(arguments)).order(ratings())
    two = "def loop(a, b):\n    for i in range(9):\n        a[i] = i\n    for i in range(4):\n        b[i] = i\n"
    plan = st.parallel(function(two)).plan(np.zeros(9), np.zeros(9))
    with pytest.raises(PlanError, match="several loops run over ranges; say which with loop=0, 1"):
        plan.order()
    assert [*plan.order(loop=1)] == [0, 1, 2, 3]


@pytest.mark.parametrize("ordered", [None, False])
@pytest.mark.parametrize("name", [name for name, (_, _, strategy) in NESTS.items() if strategy])
def test_the_order_of_ranges_is_that_of_the_plan(name: str, ordered: bool | None) -> None:
    """`plan.order()` has every iteration once; a serial run of the body in it gives what the plan computes."""
    source, arguments, _ = NESTS[name]
    plan = st.parallel(blocks=5, ordered=ordered)(function(source)).plan(**fresh(arguments))
    indices = [dim.name for dim in plan.parts[0].prepared.analysis.space.dims]
    lines = textwrap.dedent(source).strip().splitlines()
    over = ", ".join(indices)
    body = [f"    for {over} in points:", *(line[4 * (len(indices) - 1) :] for line in lines[1 + len(indices) :])]
    points = [*plan.order()]
    plain = fresh(arguments)
    function("\n".join([lines[0].replace("loop(", "loop(points, "), *body]) + "\n")(points, **plain)
    found = reference(plan).arrays
    assert len(set(points)) == len(points)
    for key in arguments:
        if isinstance(plain[key], np.ndarray):
            np.testing.assert_array_equal(found[key], plain[key], err_msg=key)
    if ordered is None:
        wanted = fresh(arguments)
        function(source)(**wanted)
        for key, value in wanted.items():
            np.testing.assert_array_equal(plain[key], value, err_msg=key)


def test_a_chain_warns_that_it_is_serial() -> None:
    source, arguments, _ = NESTS["the last one wins"]
    loop = st.parallel(inspect=False)(function(source))
    with pytest.warns(
        SerialWarning, match=r"<loop body \d+>:3: the iterations of this loop run one after the other, on"
    ):
        loop(**fresh(arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(**fresh(arguments))  # once is enough
    assert "warning     the iterations of this loop run one after the other" in loop.explain(**fresh(arguments))


# --- bounds and steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", ["n, 0, -1", "n - 1, -1, -3", "0, n, -1", "-3, n", "2, n, n", "n, n, -2"])
def test_ranges_count_either_way(bounds: str) -> None:
    source = f"""
        def loop(A, s, n):
            for i in range({bounds}):
                s[i + 4] = i + A[i + 4]
        """
    arguments = {"A": np.arange(30), "s": np.zeros(30, np.int64), "n": 20}
    after, plain = three_ways(st.parallel(blocks=3)(function(source)), arguments), fresh(arguments)
    function(source)(**plain)
    assert after["s"].tolist() == plain["s"].tolist()


def test_bounds_that_cannot_be() -> None:
    for bounds, problem in (
        ("n // m", "divided by 0"),
        ("0, n, m", "step of a range cannot be 0"),
        ("n % m", "divided by 0"),
    ):
        loop = st.parallel(function(f"def loop(s, n, m):\n    for i in range({bounds}):\n        s[i] = 1\n"))
        with pytest.raises(PlanError, match=problem):
            loop(np.zeros(9), 9, 0)


# --- random loops against plain Python -------------------------------------------------------------------------------


def test_random_nests_are_what_plain_python_makes_of_them() -> None:
    """Interpreted, so that there may be many; every strategy that keeps an order occurs."""
    cases = [Nest(random.Random(seed)).case() for seed in range(100)]
    found = collections.Counter(compare(case) for case in cases)
    assert found["same"] > 50, found
    kinds = {name for case in cases for name in case.strategies}
    assert kinds >= {"independent", "1d", "2d ordered", "2d transformed"}
    assert "2d unordered" not in kinds


def test_random_arithmetic_is_what_plain_python_makes_of_it() -> None:
    """Types mixed as users mix them, at the edges of their ranges; nothing is rounded, so nothing is approximate."""
    found = collections.Counter(compare(Writer(random.Random(seed)).case()) for seed in range(150))
    assert found["same"] > 60, found


def test_a_few_random_loops_compiled() -> None:
    for make, seeds in ((Nest, range(300, 306)), (Writer, range(300, 312))):
        found = collections.Counter(compare(make(random.Random(seed)).case(), compiled=True) for seed in seeds)
        assert found["same"] >= 2, found


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_random_loops() -> None:
    for make in (Nest, Writer):
        found = collections.Counter(compare(make(random.Random(seed)).case()) for seed in range(1000, 7000))
        assert found["same"] > 2000, found


def test_the_comparison_notices_a_difference() -> None:
    """A comparison that cannot fail would prove nothing: another order is another answer."""
    source, arguments, _ = NESTS["Floyd-Warshall"]
    plain = fresh(arguments)
    function(source)(**plain)
    other = reference(st.parallel(ordered=False, blocks=4)(function(source)).plan(**fresh(arguments))).arrays["D"]
    assert not np.array_equal(other, plain["D"])
