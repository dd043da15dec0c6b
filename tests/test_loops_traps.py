"""Traps: aliases, swaps, races, subscripts out of range, arithmetic at the edges. Each loop runs three ways."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

import stretto as st
from loop_bodies import fresh, function, three_ways
from stretto.errors import DataError, LoopError, PlanError, RunError, StrettoError
from stretto.loops.parallel import Loop

Array = np.ndarray[Any, Any]
REFUSED = (LoopError, PlanError)


def rows(n: int, k: int, dtype: str = "f4", seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(n, k)).astype(dtype)


def pairs(n: int = 12, m: int = 9, count: int = 80, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=count).astype("f4")
    return st.Data.from_arrays(rng.integers(0, n, count), rng.integers(0, m, count), values, shape=(n, m))


def loop(source: str, captured: dict[str, Any] | None = None, **options: Any) -> Loop:
    made: Loop = st.parallel(**options)(function(source, **(captured or {})))
    return made


def run(source: str, captured: dict[str, Any] | None = None, /, **arguments: Any) -> dict[str, Any]:
    """Three ways; the arguments afterwards."""
    return three_ways(loop(source, captured), arguments)


def agrees(source: str, captured: dict[str, Any] | None = None, /, **arguments: Any) -> dict[str, Any]:
    """Three ways, and plain Python gives about the same; only for loops whose iterations may go in any order."""
    after = run(source, captured, **arguments)
    plain = fresh(arguments)
    with np.errstate(all="ignore"):
        function(source, **(captured or {}))(**plain)
    for name, value in plain.items():
        if isinstance(value, np.ndarray) and value.dtype.names is None:
            np.testing.assert_allclose(np.asarray(after[name]), value, rtol=2e-5, atol=1e-6, err_msg=name)
    return after


# --- dependences ----------------------------------------------------------------------------------------------------

SHIFTED = """
def loop(W, n):
    for i in range(1, n):
        W[i] += W[i - 1]
"""


@pytest.mark.parametrize("ordered", [None, True, False])
def test_a_shifted_row_cannot_be_split(ordered: bool | None) -> None:
    with pytest.raises(LoopError, match=r"line 4 writes W\[i\], line 4 reads W\[i - 1\]: iterations p and p \+ \(1\)"):
        loop(SHIFTED, ordered=ordered, serial=False)(rows(40, 5), 40)


@pytest.mark.parametrize("ordered", [None, True, False])
def test_gauss_seidel_in_order(ordered: bool | None) -> None:
    source = """
def loop(A, n, m):
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            A[i, j] = (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]) / 4
"""
    A = rows(30, 24, "f8")
    after = three_ways(loop(source, ordered=ordered, blocks=4), {"A": A, "n": 30, "m": 24})
    expect = A.copy()
    function(source)(expect, 30, 24)
    if ordered is False:
        assert not np.array_equal(after["A"], expect)  # another serial order, and it is the user who allows it
    else:
        np.testing.assert_array_equal(after["A"], expect)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_the_last_one_wins_and_does_not_race(threads: int) -> None:
    """Records that write one element are visited one at a time, in the order of the plan."""
    source = """
def loop(d, last, total):
    for (i, j), r in d:
        last[i] = j
        total[j] += r
"""
    data = pairs(4, 300, 6000)
    mine = loop(source, blocks=(4, 8), ordered=False)
    before = {"d": data, "last": np.zeros(4, np.int64), "total": np.zeros(300, np.float32)}
    plain = fresh(before)
    plan = mine.plan(**before)
    mine.plain(plan.order(data), plain["last"], plain["total"])
    mine.runtime = st.Threads(threads)
    for _ in range(4):
        after = fresh(before)
        mine(**after)
        np.testing.assert_array_equal(after["last"], plain["last"])
        np.testing.assert_array_equal(after["total"], plain["total"])


def test_one_place_for_all_is_a_chain() -> None:
    """The last record of the data is the last to write, as in plain Python, however many threads there are."""
    source = """
def loop(d, last):
    for (i, j), r in d:
        last[0] = j
        last[1] = i
"""
    data = pairs(12, 9, 83)
    made = loop(source, blocks=5)
    after = three_ways(made, {"d": data, "last": np.zeros(3, np.int64)}, threads=(2, 3, 4))
    assert made.plan(data, np.zeros(3, np.int64)).parts[0].prepared.analysis.strategy.name == "chain"
    assert after["last"].tolist() == [data.cols[-1], data.rows[-1], 0]


# --- assignments and aliases ----------------------------------------------------------------------------------------


def test_swapped_numbers() -> None:
    agrees(
        """
def loop(A, n):
    for i in range(n):
        a, b = A[i, 0], A[i, 1]
        a, b = b, a
        A[i, 0], A[i, 1] = a * 2, b
        A[i, 2], A[i, 3] = A[i, 3], A[i, 2]
        k = 0
        k, A[i, k] = 1, 7.5
""",
        A=rows(10, 4),
        n=10,
    )


@pytest.mark.parametrize("width", [3, 17, 130])
def test_swapped_rows(width: int) -> None:
    bare = """
def loop(W, V, n):
    for i in range(n):
        W[i], V[i] = V[i], W[i]
"""
    with pytest.raises(LoopError, match="copy"):
        run(bare, W=rows(5, width), V=rows(5, width, seed=1), n=5)
    agrees(bare.replace("V[i], W[i]\n", "V[i].copy(), W[i].copy()\n"), W=rows(5, width), V=rows(5, width, seed=1), n=5)


@pytest.mark.parametrize("width", [3, 40, 130])
def test_two_rows_of_one_array_in_one_statement(width: int) -> None:
    source = """
def loop(A, n):
    for i in range(0, n, 2):
        A[i], A[i + 1] = A[i + 1] * 2, A[i] * 3
"""
    agrees(source, A=rows(10, width), n=10)


@pytest.mark.parametrize(("first", "second"), [(0, 10), (10, 0), (0, 0), (3, 130)])
def test_overlapping_slices_in_one_statement(first: int, second: int) -> None:
    """Right-hand sides first, then the left-hand sides from left to right, however long the rows are."""
    agrees(
        f"""
def loop(W, n):
    for i in range(n):
        W[i, {first}:{first + 130}], W[i, {second}:{second + 130}] = W[i, 0:130] * 2, W[i, 0:130] + 1
        W[i, {second}:{second + 130}], W[i, {first}:{first + 130}] = 5.0, W[i, {first}:{first + 130}] - 1
        W[i, {first}:{first + 130}] += W[i, {second}:{second + 130}]
""",
        W=rows(4, 270),
        n=4,
    )


@pytest.mark.parametrize("width", [3, 17, 40, 130])
def test_a_name_for_a_row_follows_the_array(width: int) -> None:
    agrees(
        """
def loop(W, H, s, n):
    for i in range(n):
        w = W[i]
        W[i] = W[i] * 2
        s[i] = sum(w)
        w += 1
        w[0] = 9
        w[1:3] = 4.0
        g = 0.5 * H[i]
        g += w
        s[i] += g @ H[i]
""",
        W=rows(6, width),
        H=rows(6, width, seed=1),
        s=np.zeros(6, np.float32),
        n=6,
    )


def test_an_index_that_changes_after_a_name_was_given() -> None:
    agrees(
        """
def loop(W, s, n):
    for i in range(n):
        k = i
        w = W[k]
        k = 0
        s[i] = w[2] + sum(w) + k
""",
        W=rows(6, 4),
        s=np.zeros(6, np.float32),
        n=6,
    )


@pytest.mark.parametrize("width", [3, 130])
@pytest.mark.parametrize("subscript", ["", "        g[0] = 1\n"])
def test_a_second_name_for_a_local_row(width: int, subscript: str) -> None:
    """`h = g` is the same row until g is given another one; after that Python keeps the old one for h."""
    source = f"""
def loop(W, H, n):
    for i in range(n):
        g = 2 * H[i]
{subscript}        h = g
        g = g * 3
        W[i] = h + g
"""
    with pytest.raises(LoopError, match="copy"):
        run(source, W=rows(5, width), H=rows(5, width, seed=1), n=5)
    agrees(source.replace("h = g\n", "h = g.copy()\n"), W=rows(5, width), H=rows(5, width, seed=1), n=5)
    agrees(source.replace("g = g * 3", "g *= 3"), W=rows(5, width), H=rows(5, width, seed=1), n=5)


def test_a_second_name_for_a_local_array() -> None:
    source = """
def loop(W, n):
    for i in range(n):
        p = np.zeros(3)
        p[0] = i + 1
        q = p
        p = np.zeros(3)
        W[i] = q + p
"""
    with pytest.raises(LoopError, match="copy"):
        run(source, W=rows(5, 3), n=5)
    agrees(source.replace("q = p\n", "q = p.copy()\n"), W=rows(5, 3), n=5)


@pytest.mark.parametrize("head", ["for k in range(3):", "while k < 2:"])
def test_a_name_that_moves_inside_a_loop(head: str) -> None:
    """In the second round the name stands for what the first round gave it."""
    source = f"""
def loop(W, H, s, n):
    for i in range(n):
        k = 0
        w = W[i]
        {head}
            s[i] += w[0]
            w = H[k]
            k = k + 1
        s[i] *= 2
"""
    with pytest.raises(LoopError, match=r"w may stand for one row here or for another|cannot be assigned"):
        run(source, W=rows(6, 4), H=rows(6, 4, seed=1), s=np.zeros(6, np.float32), n=6)


def test_a_name_that_moves_before_a_break() -> None:
    source = """
def loop(W, H, s, n):
    for i in range(n):
        w = W[i]
        for k in range(3):
            w = H[k]
            if k == 1:
                break
            w = W[i]
        s[i] = w[0]
"""
    with pytest.raises(LoopError, match="w may stand for one row here or for another"):
        run(source, W=rows(6, 4), H=rows(6, 4, seed=1), s=np.zeros(6, np.float32), n=6)


def test_a_counter_that_is_something_else_elsewhere() -> None:
    source = """
def loop(s, n):
    for i in range(n):
        for k in range(3):
            s[i] += k
        k = 0.5
        s[i] += k
"""
    with pytest.raises(LoopError, match="k counts a loop"):
        run(source, s=np.zeros(5), n=5)


def test_names_that_look_like_ours() -> None:
    """The generated source must keep the user's names apart from its own, and from each other."""
    A = np.zeros(6, [("x", "f4"), ("y", "f4")])
    A["x"] = np.arange(6)
    after = run(
        """
def loop(A, A_x, B_flat, t, n, g, v, bad):
    for i in range(n):
        t1 = A[i]["x"] + A_x[i]
        at_0 = i
        k = i
        B_pending = t1 * t
        w = B_flat[k]
        k = 0
        at_0 = at_0 + 1
        A[i]["y"] = t1 + w[0] + B_pending + at_0 + bad + v
        g += t1
""",
        A=A,
        A_x=np.arange(6, dtype=np.float32) * 10,
        B_flat=rows(6, 3),
        t=0.5,
        n=6,
        g=st.accumulator(0.0),
        v=2,
        bad=1.5,
    )
    w = rows(6, 3)[:, 0]
    i = np.arange(6)
    np.testing.assert_allclose(after["A"]["y"], 11 * i * 1.5 + w + i + 1 + 3.5, rtol=1e-6)
    assert after["g"].get() == 165


def test_a_local_defined_on_one_path_only() -> None:
    source = """
def loop(W, n):
    for i in range(n):
        if W[i] > 0:
            x = 1.0
        W[i] = x
"""
    with pytest.raises(LoopError, match="x may have no value"):
        run(source, W=np.ones(4), n=4)
    agrees(
        source.replace("        W[i] = x", "        else:\n            x = 2.0\n        W[i] = x"), W=np.ones(4), n=4
    )


def test_leaving_loops() -> None:
    agrees(
        """
def loop(W, n):
    for i in range(n):
        k = 0
        s = 0.0
        while True:
            k += 1
            if k % 2 == 0:
                continue
            s += k
            if k > i:
                break
        for a in range(4):
            if a == 1:
                continue
            for b in range(5):
                if b > a:
                    break
                s += 10 * b
            if s > 60:
                break
        if i % 3 == 0:
            continue
        W[i] = s + k + a
""",
        W=np.zeros(12),
        n=12,
    )


def add_half(value: Any, delta: Any) -> Any:
    return value + delta / 2


def test_lines_between_the_loops_write_elements() -> None:
    """In the order of the text: before, between and after loops, with names and `if` among them."""

    @st.parallel
    def loop(x, s, A):  # type: ignore[no-untyped-def]
        n = len(x)
        s[0] = x[0]
        s[n - 1] += 2 * s[0]
        for i in range(1, n):
            s[i] += s[0] + x[i]
        m = n - 2
        if m > 0:
            A[0] = s[m]
        else:
            A[0, 1] = 7.0
        A[1, 0] = A[0, 0]
        for i in range(n):
            s[i] *= A[1, 0]
        A[1, 1] = s[0]

    for n in (1, 2, 5, 40):
        rng = np.random.default_rng(n)
        arguments = {"x": rng.normal(size=n), "s": np.zeros(n), "A": np.ones((2, 3))}
        plain = fresh(arguments)
        loop.plain(**plain)
        after = three_ways(loop, arguments)
        for name in ("s", "A"):
            np.testing.assert_array_equal(plain[name], after[name])


def test_a_way_that_leaves_needs_no_values() -> None:
    """`continue` and `break` end a way through an `if`: what follows sees the values of the others."""

    @st.parallel
    def loop(x, W, out):  # type: ignore[no-untyped-def]
        for i in range(len(x)):
            if x[i] > 0.5:
                g = x[i] * W[i]
            elif x[i] > 0:
                g = -W[i]
            else:
                continue
            total = 0.0
            for k in range(4):
                if k == 2:
                    if x[i] > 0.8:
                        break
                    else:
                        continue
                else:
                    f = g[k]
                total += f
            out[i] = np.sum(g) + total

    rng = np.random.default_rng(0)
    arguments = {"x": rng.normal(size=60), "W": rng.normal(size=(60, 5)), "out": np.zeros(60)}
    plain = fresh(arguments)
    loop.plain(**plain)
    np.testing.assert_allclose(three_ways(loop, arguments)["out"], plain["out"], rtol=1e-12)


def test_a_local_array_is_as_long_as_an_array_behind_a_buffer() -> None:
    """Its size is read before a visit has a copy of that array; Numba said that a name was not defined."""

    @st.parallel(width=2, blocks=4)
    def loop(picks, G, dG, out):  # type: ignore[no-untyped-def]
        for t in range(len(picks)):
            s = np.zeros(G.shape[0])
            for p in range(len(G)):
                s[p] += G[p, picks[t]]
                dG[p, picks[t]] += s[p]
            out[t] = s.sum()

    G = np.arange(12.0).reshape(3, 4)
    after = three_ways(loop, {"picks": np.arange(9) % 4, "G": G, "dG": st.buffer(G), "out": np.zeros(9)})
    assert after["out"][:4].tolist() == G.sum(axis=0).tolist()


@pytest.mark.parametrize("apply", [None, add_half])
@pytest.mark.parametrize("every", [None, 1, 3])
def test_continue_counts_as_an_iteration_of_a_buffer(apply: Any, every: int | None) -> None:
    source = """
def loop(d, W, B):
    for (i, j), r in d:
        if j % 3 == 0:
            continue
        B[j] += r * W[j]
"""
    W = np.ones(9, np.float32)
    data = pairs()
    mine = loop(source, blocks=5)
    after = three_ways(mine, {"d": data, "W": W, "B": st.buffer(W, apply=apply, every=every)})
    plain = fresh({"W": W, "B": st.buffer(W, apply=apply, every=every)})
    mine.plain(mine.plan(data, plain["W"], plain["B"]).order(data), plain["W"], plain["B"])
    np.testing.assert_allclose(after["W"], plain["W"], rtol=1e-5)


# --- subscripts -----------------------------------------------------------------------------------------------------

GOOD = np.arange(6)


@pytest.mark.parametrize("bad", [-1, 6, 10**12, -(10**12)])
@pytest.mark.parametrize(
    ("line", "array"),
    [
        ("s[i] = R[k]", "R"),
        ("s[i] = T[k, 2]", "T"),
        ("s[i] = T[1, k]", "T"),
        ("s[i] = sum(T[k])", "T"),
        ("s[i] = sum(T[1, k:6])", "T"),
        ("s[i] = sum(T[1, 0:k])", "T"),
        ("s[i] = sum(T[1, k:k])", "T"),
        ("acc[k] += 1.0", "acc"),
        ("B[k] += 1.0", "B"),
        ("F[k] += 1.0", "F"),
        ("W[i, k] = 1.0", "W"),
        ("W[i, k:6] = 1.0", "W"),
        ("W[i, 0:k] = 1.0", "W"),
        ("W[i, 0:k] += T[1, 0:k]", "T"),
    ],
)
def test_a_subscript_out_of_range_is_an_error(bad: int, line: str, array: str) -> None:
    """Never wrapped, never read or written past the end; the message says where."""
    source = f"""
def loop(s, R, T, W, acc, B, F, at, n):
    for i in range(n):
        k = at[i]
        {line}
"""
    if bad == 6 and ("k:" in line or ":k" in line):
        bad = 7  # six is a good end of a slice
    at = GOOD.copy()
    at[3] = bad
    arguments = {
        "s": np.zeros(6),
        "R": rows(1, 6)[0],
        "T": rows(6, 6),
        "W": np.zeros((6, 6), np.float32),
        "acc": st.accumulator(np.zeros(6)),
        "B": st.buffer(np.zeros(6)),
        "F": st.buffer(np.zeros(6), apply=add_half),
        "at": at,
        "n": 6,
    }
    made = loop(source)
    for runtime in (st.Serial(), st.Threads(2)):
        made.runtime = runtime
        given = fresh(arguments)
        with pytest.raises(RunError) as problem:
            made(**given)
        assert ":5:" in str(problem.value), problem.value
        assert array in str(problem.value), problem.value
        assert line in str(problem.value), problem.value
        assert not given["W"][4:].any(), "iterations after the bad one write nothing"
        assert not given["W"][3].any()
        arguments["at"][3], kept = 3, arguments["at"][3]
        mended = fresh(arguments)
        made(**mended)  # what the failed run left behind is gone
        other = three_ways(loop(source), arguments, threads=())
        for name in ("B", "F"):
            np.testing.assert_array_equal(mended[name].target, other[name].target)
        arguments["at"][3] = kept


def test_the_interpreter_says_so_too() -> None:
    from stretto.testing.loops import reference

    source = """
def loop(s, T, at, n):
    for i in range(n):
        s[i] = sum(T[1, 4:at[i]])
"""
    with pytest.raises(RunError, match="line 4"):
        reference(loop(source).plan(s=np.zeros(6), T=rows(6, 6), at=GOOD, n=6))


@pytest.mark.parametrize("subscript", ["W[i, 0:9]", "W[i, -7:]", "W[i, 7:9]"])
def test_a_slice_that_cannot_be_inside(subscript: str) -> None:
    """Constant ends that do not fit are found before anything runs, or as it runs; never ignored."""
    source = f"""
def loop(s, W, n):
    for i in range(n):
        s[i] = sum({subscript})
"""
    with pytest.raises((LoopError, PlanError, RunError)):
        loop(source).using(runtime=st.Serial())(np.zeros(4), rows(4, 6), 4)


@pytest.mark.parametrize("shape", [(0, 16), (0, 200), (3, 0), (0,)])
def test_arrays_without_elements(shape: tuple[int, ...]) -> None:
    one = len(shape) == 1
    source = f"""
def loop(s, W, at, n):
    for i in range(n):
        s[i] = {"W[at[i]]" if one else "W[at[i], 0] + sum(W[at[i]])"}
"""
    with pytest.raises(RunError):
        loop(source).using(runtime=st.Serial())(np.zeros(4), np.zeros(shape, np.float32), np.zeros(4, np.int64), 4)


def test_rows_without_elements() -> None:
    agrees(
        """
def loop(W, s, n):
    for i in range(n):
        W[i] = W[i] * 2 + 1
        s[i] = sum(W[i]) + W[i] @ W[i]
""",
        W=np.zeros((4, 0), np.float32),
        s=np.ones(4),
        n=4,
    )


@pytest.mark.parametrize("dtype", ["i1", "i4", "u1", "u4", "u8"])
def test_ranges_of_narrow_integers_are_not_trusted(dtype: str) -> None:
    """NumPy's integers wrap around, so what is proven of Python's must not be believed of them."""
    high = np.iinfo(dtype).max
    small = np.dtype(dtype).type
    source = """
def loop(s, R, a, b, n):
    for i in range(n):
        s[i] = R[(a + b) // 2]
"""
    big = small(min(high, 2**62) - 3)
    given: dict[str, Any] = {"s": np.zeros(4), "R": np.arange(400.0), "a": big, "b": small(10), "n": 4}
    with np.errstate(over="ignore"):
        at = int((given["a"] + given["b"]) // small(2))
    if 0 <= at < 400:
        assert run(source, **given)["s"][0] == at
        return
    with pytest.raises(RunError):
        loop(source).using(runtime=st.Serial())(**given)


def test_a_changed_offset_is_noticed() -> None:
    made = loop("""
def loop(s, R, k, n):
    for i in range(n):
        s[i] = R[i + k]
""")
    s, R = np.zeros(4), np.arange(8.0)
    made(s, R, 2, 4)
    assert s.tolist() == [2, 3, 4, 5]
    made(s, R, 4, 4)
    assert s.tolist() == [4, 5, 6, 7]
    for k in (5, -1):
        with pytest.raises(RunError):
            made(s, R, k, 4)
    made(s, R, 0, 4)
    assert s.tolist() == [0, 1, 2, 3]


def test_data_that_changed_in_place_are_noticed() -> None:
    """Dense data share the user's memory; what was proven of their values holds only while they stay."""
    a = np.zeros(8, np.int64)
    data, hits = st.dense(a), np.zeros(3)
    made = loop("""
def loop(d, hits, s):
    for i, k in d:
        s[i] = hits[k]
""")
    made(data, hits, np.zeros(8))
    a[5] = 10**12
    with pytest.raises(StrettoError):
        made(data, hits, np.zeros(8))


def test_lengths_must_agree() -> None:
    source = """
def loop(W, V, n):
    for i in range(n):
        W[i] += V[i]
"""
    with pytest.raises(LoopError, match="elements meets"):
        run(source, W=rows(4, 5), V=rows(4, 6), n=4)
    with pytest.raises(LoopError):
        run(source, W=rows(4, 5), V=rows(4, 1), n=4)


# --- arithmetic -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "u4", "i8", "u8"])
def test_integers_wrap_around(dtype: str) -> None:
    info = np.iinfo(dtype)
    edge = np.array([info.max, info.min, info.max - 1, 1, 0, 7], dtype)
    agrees(
        """
def loop(A, B, C, D, n):
    for i in range(n):
        B[i] = A[i] + A[i]
        C[i] = A[i] * A[i] - 3
        D[i] = abs(-A[i]) // 2
        A[i] += 1
""",
        A=edge,
        B=np.zeros_like(edge),
        C=np.zeros_like(edge),
        D=np.zeros_like(edge),
        n=6,
    )


def test_division_by_zero_and_its_like() -> None:
    """Integers give 0, as NumPy's do; floats give inf and NaN; the least integer over -1 is itself."""
    after = run(
        """
def loop(A, B, F, G, z, n):
    for i in range(n):
        B[i, 0], B[i, 1] = A[i] // z, A[i] % z
        B[i, 2], B[i, 3] = A[i] // (z - 1), A[i] % (z - 1)
        F[i] = G[i] / z
        G[i] = (G[i] // 0.0) + (G[i] % 0.0)
""",
        A=np.array([5, -5, 0, np.iinfo("i8").min]),
        B=np.zeros((4, 4), np.int64),
        F=np.zeros(4),
        G=np.array([1.0, -1.0, 0.0, -0.0]),
        z=0,
        n=4,
    )
    least = np.iinfo("i8").min
    assert after["B"].tolist() == [[0, 0, -5, 0], [0, 0, 5, 0], [0, 0, 0, 0], [0, 0, least, 0]]
    assert after["F"][:2].tolist() == [np.inf, -np.inf]
    assert np.isnan(after["F"][2:]).all()
    assert np.isnan(after["G"]).all()


def test_large_literals_do_not_become_floats() -> None:
    source = """
def loop(A, n):
    for i in range(n):
        A[i, 0] = 4611686018427387904 * 2 + i
        A[i, 1] = -(-9223372036854775807 - 1)
        A[i, 2] = 9223372036854775807 + 1 - i
        A[i, 3] = (1 << 62) * 4 + 3
"""
    after = run(source, A=np.zeros((2, 4), np.int64), n=2)
    least = np.iinfo("i8").min
    assert after["A"][0].tolist() == [least, least, least, 3]
    assert after["A"][1].tolist() == [least + 1, least, 2**63 - 1, 3]


@pytest.mark.parametrize("literal", ["1e30", "np.inf", "np.nan", "-1e19", 'float("-inf")'])
def test_an_integer_that_no_float_fits(literal: str) -> None:
    """Written down it is refused; what becomes of one that is met as the loop runs is in test_loops_defined."""
    for line in (f"A[i] = int({literal})", f"A[i] = {literal}", f"A[i] = np.int64({literal})"):
        with pytest.raises(LoopError, match="out of bounds for int64"):
            loop(f"def loop(A, n):\n    for i in range(n):\n        {line}\n")(np.zeros(2, np.int64), 2)


def test_not_a_number_and_signed_zero() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5], np.float32)
    W = np.stack([np.roll(special, k) for k in range(7)])
    run(
        """
def loop(W, V, s, n):
    for i in range(n):
        V[i] = np.maximum(W[i], -0.0) + np.minimum(W[i], 0.0)
        s[i, 0] = np.max(W[i, 0:3])
        s[i, 1] = np.min(W[i, 2:6])
        s[i, 2] = max(W[i, 0], W[i, 1])
        s[i, 3] = min(W[i, 1], W[i, 0])
        s[i, 4] = np.sqrt(W[i, 0]) + np.log(W[i, 1])
        s[i, 5] = np.exp(W[i, 2])
        s[i, 6] = -W[i, 3]
        s[i, 7] = W[i] @ W[i]
        W[i] = -(W[i] * 2.0) - V[i] * W[i]
""",
        W=W,
        V=np.zeros_like(W),
        s=np.zeros((7, 8), np.float32),
        n=7,
    )


def test_infinities_in_accumulators_raise_no_warning() -> None:
    after = run(
        """
def loop(W, total, worst, n):
    for i in range(n):
        total += W[i]
        worst += W[i]
""",
        W=np.array([np.inf, 1.0, -np.inf, 3e38, 3e38], np.float32),
        total=st.accumulator(np.float32(0)),
        worst=st.accumulator(np.float32(-np.inf), op=max),
        n=5,
    )
    assert np.isnan(after["total"].get())
    assert after["worst"].get() == np.inf


@numba.njit
def reciprocal(x):  # type: ignore[no-untyped-def]
    return 1 / x


def test_an_exception_in_a_function_of_the_users() -> None:
    """numba.njit raises where Python does; the loop ends with that, and every worker ends."""
    made = loop(
        """
def loop(d, W, s):
    for (i, j), r in d:
        W[i] += r
        s[j] += reciprocal(r * 0)
""",
        {"reciprocal": reciprocal},
        blocks=4,
    )
    for runtime in (st.Serial(), st.Threads(2)):
        with pytest.raises((ZeroDivisionError, RunError)):
            made.using(runtime=runtime)(pairs(), np.zeros(12), np.zeros(9))


# --- sizes ----------------------------------------------------------------------------------------------------------

EVERY = """
def loop(d, W, H, loss, B):
    for (i, j), r in d:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i] += e * H[j]
        B[j] += e
"""


@pytest.mark.parametrize("count", [0, 1])
def test_few_records(count: int) -> None:
    data = st.Data.from_arrays([2] * count, [1] * count, np.ones(count, np.float32), shape=(4, 3))
    after = run(
        EVERY, d=data, W=rows(4, 5), H=rows(3, 5), loss=st.accumulator(1.0), B=st.buffer(np.zeros(3, np.float32))
    )
    assert (after["loss"].get() == 1.0) == (count == 0)


@pytest.mark.parametrize("n", [0, 1])
def test_few_numbers(n: int) -> None:
    for head in ("range(n)", "range(3, n)", "range(0, n, 5)"):
        run(f"def loop(W, n):\n    for i in {head}:\n        W[i] += i + 1\n", W=np.zeros(2), n=n)


def test_empty_ragged_and_dense() -> None:
    source = "def loop(d, W):\n    for i, (y, fs) in d:\n        for k, x in fs:\n            W[i] += x * y\n"
    for n in (0, 1, 3):
        run(source, d=st.samples(np.zeros((n, 4)), np.zeros(n)), W=np.zeros(max(1, n)))
        run("def loop(d, W):\n    for i, x in d:\n        W[i] += x\n", d=st.dense(np.ones(n)), W=np.zeros(max(1, n)))


# --- arguments ------------------------------------------------------------------------------------------------------

DOUBLE = """
def loop(W, V, n):
    for i in range(n):
        W[i] += 2 * V[i]
"""


def test_arguments_that_overlap() -> None:
    A = rows(8, 4)
    for W, V in ((A, A), (A[:4], A[2:6]), (A[:4], A[3:7].T[:4])):
        with pytest.raises(PlanError, match="share memory"):
            loop(DOUBLE)(W, V, 4)
    with pytest.raises(PlanError, match="share memory"):
        loop("def loop(W, n):\n    for i in range(n):\n        W[i] += 2 * V[i]\n", {"V": A})(A, 4)
    loop(DOUBLE)(A[:4], A[4:], 4)


def test_data_that_are_written_to() -> None:
    """`st.dense(a)` shares a's memory, so a loop over it that writes to a reads what others wrote."""
    a = np.arange(10.0)
    source = "def loop(d, a):\n    for i, x in d:\n        a[(i + 1) % 10] = x\n"
    with pytest.raises(REFUSED):
        loop(source)(st.dense(a), a)
    with pytest.raises(REFUSED):
        loop("def loop(d, a):\n    for i, x in d:\n        a[i] = x + 1\n")(st.dense(a), a)
    s = np.zeros(10)  # reading is harmless
    loop("def loop(d, a, s):\n    for i, x in d:\n        s[i] = x + a[i]\n")(st.dense(a), a, s)
    assert s.tolist() == (2 * a).tolist()


def test_layouts() -> None:
    """Arrays that do not lie row by row are copied and given back."""
    V, expect = rows(6, 5), rows(6, 5, seed=1)
    whole = np.zeros((12, 10), np.float32)
    for W in (np.asfortranarray(expect), whole[::2, ::2], whole[6:, 5:], whole[::-1][:6, :5], np.zeros((5, 6), "f4").T):
        W[...] = rows(6, 5, seed=1)
        before = whole.copy()
        loop(DOUBLE)(W, np.asfortranarray(V), 6)
        np.testing.assert_array_equal(W, expect + 2 * V)
        W[...] = rows(6, 5, seed=1)
        np.testing.assert_array_equal(whole, before)


def test_memory_that_is_not_aligned() -> None:
    raw = np.zeros(4 * 6 * 17 + 1, np.uint8)
    W = raw[1:].view(np.float32).reshape(6, 17)
    loop(DOUBLE)(W, rows(6, 17), 6)
    np.testing.assert_array_equal(W, 2 * rows(6, 17))


def test_arrays_that_cannot_be_written() -> None:
    W = rows(6, 5)
    W.flags.writeable = False
    with pytest.raises(PlanError, match=r"W.*read-only|W.*cannot be written"):
        loop(DOUBLE)(W, rows(6, 5), 6)
    V = rows(6, 5)
    loop(DOUBLE)(V, W, 6)
    np.testing.assert_array_equal(V, 3 * W)
    view = np.broadcast_to(np.float32(1), (6, 5))
    loop(DOUBLE)(V, view, 6)
    with pytest.raises(PlanError):
        loop("def loop(B, n):\n    for i in range(n):\n        B[i] += 1.0\n")(st.buffer(W[0]), 5)


@pytest.mark.parametrize("dtype", ["f2", "c8", "c16", "g", "U3", "O", "M8[s]", ">f4", ">i8"])
def test_types_that_a_loop_does_not_know(dtype: str) -> None:
    W = np.zeros((6, 5), dtype)
    with pytest.raises(PlanError, match="W"):
        loop(DOUBLE)(W, rows(6, 5), 6)


def test_arrays_of_structs() -> None:
    A = np.zeros(5, [("x", "f4"), ("k", "i4"), ("f", "b1")])
    A["x"], A["k"] = np.arange(5), np.arange(5) * 2
    after = run(
        """
def loop(A, s, n):
    for i in range(n):
        A[i]["x"] += A[i]["k"]
        A[i]["f"] = A[i]["x"] > 4
        s[i] = A[i]["x"]
""",
        A=A,
        s=np.zeros(5),
        n=5,
    )
    assert after["A"]["x"].tolist() == [0, 3, 6, 9, 12]
    assert after["A"]["f"].tolist() == [False, False, True, True, True]
    assert after["A"]["k"].tolist() == [0, 2, 4, 6, 8]


def test_states_and_arrays_together() -> None:
    W, V = st.state(rows(6, 5)), rows(6, 5, seed=1)
    loop(DOUBLE)(W, V, 6)
    np.testing.assert_array_equal(W.array, rows(6, 5) + 2 * V)


# --- what is captured -----------------------------------------------------------------------------------------------


def test_captured_values_are_those_of_the_call() -> None:
    fn = function(
        "def loop(s, n):\n    for i in range(n):\n        s[i] = factor * table[i]\n", factor=2, table=np.ones(4)
    )
    made = st.parallel(fn)
    s = np.zeros(4)
    made(s, 4)
    assert s.tolist() == [2] * 4
    fn.__globals__["factor"] = 3
    made(s, 4)
    assert s.tolist() == [3] * 4
    fn.__globals__["table"][1] = 5
    made(s, 4)
    assert s.tolist() == [3, 15, 3, 3]
    fn.__globals__["table"] = np.arange(4, dtype=np.float32)
    made(s, 4)
    assert s.tolist() == [0, 3, 6, 9]
    fn.__globals__["factor"] = 0.5
    made(s, 4)
    assert s.tolist() == [0, 0.5, 1, 1.5]


WRITES = {
    "an element": "G[0] = i",
    "its own element": "G[i] = i",
    "all of it": "G[:] = i",
    "an update": "G[i] += 1",
    "one of two targets": "s[i], G[i] = 1, 2",
    "a row": "M[i] = 1.0",
    "a slice": "M[i, 0:2] = 1.0",
    "a name for a row": "w = M[i]\n        w[0] = 1.0",
    "a row through its name": "w = M[i]\n        w += 1.0",
    "a field": 'S[i]["x"] = 1.0',
    "a captured state": "Z[i] = 1.0",
}


@pytest.mark.parametrize("line", WRITES.values(), ids=WRITES)
def test_what_comes_from_outside_is_not_written(line: str) -> None:
    """Such a write would be lost, or be seen by no analysis; the line is named, and the way."""
    around = {"G": np.zeros(40), "M": np.zeros((40, 3)), "S": np.zeros(40, [("x", "f8")]), "Z": st.zeros(40)}
    made = loop(f"def loop(s, n):\n    for i in range(n):\n        {line}\n", around)
    with pytest.raises(LoopError, match=r"<loop body \d+>:[34]: [GMSZ] comes from outside .* as an argument"):
        made(np.zeros(40), 40)
    assert not any(np.asarray(around[name]).any() for name in "GMZ")
    assert not np.asarray(around["S"])["x"].any()


def test_what_comes_from_outside_a_nested_function_is_not_written() -> None:
    source = """
        def outer():
            G = np.zeros(9)
            def loop(s, n):
                for i in range(n):
                    G[i] = s[i]
            return loop
        loop = outer
    """
    with pytest.raises(LoopError, match="G comes from outside"):
        st.parallel(function(source)())(np.zeros(9), 9)


def test_defaults_buffers_and_accumulators_are_written() -> None:
    """A default is an argument; a buffer and an accumulator are meant to be written to, wherever they come from."""
    D, behind = np.zeros(9), np.zeros(3)
    around = {"D": D, "total": st.accumulator(np.zeros(3)), "b": st.buffer(behind)}
    source = """
        def loop(n, d=D):
            for i in range(n):
                d[i] += 1.0
                total[i % 3] += 1.0
                b[i % 3] += 2.0
    """
    loop(source, around)(9)
    assert D.tolist() == [1] * 9
    assert around["total"].get().tolist() == [3] * 3  # type: ignore[attr-defined]
    assert behind.tolist() == [6] * 3


def test_numbers_and_types_of_modules_are_those_of_the_call() -> None:
    """They are part of the loop's tree, which is made anew when one of them changes; so are modules themselves."""
    import types

    settings, other = types.ModuleType("settings"), types.ModuleType("other")
    settings.rate, settings.kind, other.rate, other.kind = 2, "f4", 7.5, "f8"  # type: ignore[attr-defined]
    fn = function("""
        def loop(s, n):
            for i in range(n):
                p = np.zeros(2, settings.kind)
                p[0] = 16777217
                s[i] = settings.rate * p[0]
    """, settings=settings)  # fmt: skip
    made = st.parallel(fn)

    def same() -> None:
        found, wanted = np.zeros(3), np.zeros(3)
        made(found, 3)
        fn(wanted, 3)
        assert found.tolist() == wanted.tolist()

    same()
    for module, name, value in (
        (settings, "rate", 3.5),
        (settings, "kind", np.dtype("f8")),
        (other, "rate", np.float32(0.1)),
        (other, "kind", np.float32),
    ):
        fn.__globals__["settings"] = module
        setattr(module, name, value)
        same()


def test_the_largest_of_two_zeros() -> None:
    """Equal is equal: the first of 0.0 and -0.0 stays, in whatever order NumPy would compare them."""
    source = """
def loop(W, most, least, n):
    for i in range(n):
        most += W[i]
        least += W[i]
"""
    for first in (0.0, -0.0):
        W = np.array([first, -first] * 20, np.float32)
        most = st.accumulator(np.float32(first), op=max)
        three_ways(
            loop(source, blocks=7), {"W": W, "most": most, "least": st.accumulator(np.float32(first), op=min), "n": 40}
        )


def test_a_slice_that_ends_beyond_all_integers() -> None:
    source = """
def loop(s, R, at, n):
    for i in range(n):
        s[i] = sum(R[at[i]:at[i] + 5])
"""
    at = np.array([0, 1, 2**63 - 2, 1])
    with pytest.raises(RunError, match="R"):
        loop(source).using(runtime=st.Serial())(np.zeros(4), np.arange(9.0), at, 4)


def test_a_loop_that_counts_down_fills_the_log_of_a_buffer() -> None:
    """The space for a visit's flushes follows from how often its inner loops run, whichever way they count."""
    source = """
        def loop(n, B):
            for i in range(n):
                for c in range(4, 0, -1):
                    B[c + i % 3] += 1.0
                for c in range(6, 0, -2):
                    B[c] += 0.5
    """
    made = loop(source, blocks=5)
    room = 0
    for every in (1, 3):
        W = st.zeros(9, "f8")
        B = st.buffer(W, apply=lambda w, d: w + 2 * d, every=every)
        made(40, B)
        ran = made.plan(40, B).parts[0].prepared
        room = ran.idle[0]["B"].arrays["keys", "B"].shape[1]
        assert room >= int(ran.idle[0]["B"].arrays["count", "B"].max())
        assert W.array.sum() == 2 * 40 * (4 + 1.5)
    assert room >= 8 * 7


# --- what changes between calls, and what goes wrong in the middle of one ------------------------------------------


def test_a_function_that_raises_ends_the_loop() -> None:
    """The other workers do not wait for the visit that was never finished."""

    def picky(x: float) -> float:
        if x == 3.0:
            raise ValueError("not three")
        return x

    source = """
        def loop(X, W, H, n, m):
            for i in range(n):
                for j in range(m):
                    W[i] += picky(X[i, j])
                    H[j] += X[i, j]
    """
    made = loop(source, {"picky": numba.njit(picky)}, blocks=4, runtime=st.Threads(2))
    X = np.arange(64.0).reshape(8, 8)
    with pytest.raises(ValueError, match="not three"):
        made(X, np.zeros(8), np.zeros(8), 8, 8)
    W = np.zeros(8)
    made(X + 100, W, np.zeros(8), 8, 8)
    np.testing.assert_array_equal(W, (X + 100).sum(axis=1))


def test_a_buffer_before_a_transpose_is_not_the_matrix_itself() -> None:
    source = """
        def loop(x, W, b, n):
            for i in range(n):
                b[0, 1] += x[i] + 0 * W[1, 1]
    """
    W = np.zeros((2, 2))
    with pytest.raises(PlanError, match="share memory"):
        loop(source)(np.ones(4), W, st.buffer(W.T), 4)


def test_arrays_of_one_buffer_that_overlap_are_refused() -> None:
    source = """
        def loop(b, n):
            for i in range(n):
                b[i] += 1.0
    """
    both = np.zeros(6)
    b = st.buffer(both[:4], apply=lambda w, d, g: (w + d, g + 1), with_=(both[2:],))
    with pytest.raises(PlanError, match="share memory"):
        loop(source)(b, 4)


def test_ragged_data_that_changed_in_place_are_noticed() -> None:
    """A CSR matrix lends its arrays; columns that were proven to be in range may not be any more."""
    sparse = pytest.importorskip("scipy.sparse")
    X = sparse.csr_matrix(np.eye(6))
    samples = st.samples(X, np.ones(6))
    source = """
        def loop(samples, w, s):
            for i, (y, features) in samples:
                for f, x in features:
                    s[i] += w[f] * x
    """
    made = loop(source)
    made(samples, np.ones(6), np.zeros(6))
    X.indices[2] = 10**6
    with pytest.raises(RunError, match="1000000"):
        made(samples, np.ones(6), np.zeros(6))


def test_a_bad_subscript_in_the_middle_ends_the_iterations() -> None:
    source = """
        def loop(at, A, y, n):
            for i in range(n):
                y[i] = 1 + A[0, at[i], 0]
    """
    at, y = np.array([0, 0, 9, 0, 0]), np.zeros(5)
    with pytest.raises(RunError, match="subscript 9 of A"):
        loop(source, runtime=st.Serial())(at, np.zeros((2, 3, 2)), y, 5)
    assert not y[3:].any()


def test_a_function_that_is_defined_anew_is_called() -> None:
    around = {"step": numba.njit(lambda x: x + 1)}
    plain = function("""
        def loop(y, n):
            for i in range(n):
                y[i] = step(y[i])
    """, **around)  # fmt: skip
    made, y = st.parallel(plain), np.zeros(3)
    made(y, 3)
    plain.__globals__["step"] = numba.njit(lambda x: x + 100)
    made(y, 3)
    assert y.tolist() == [101, 101, 101]


def test_a_number_that_a_buffers_function_uses_may_change() -> None:
    source = """
        def loop(b, n):
            for i in range(n):
                b[0] += 1.0
    """
    apply = function("def loop(w, d):\n    return w + rate * d\n", rate=1.0)
    w, made = np.zeros(1), loop(source)
    b = st.buffer(w, apply=apply)
    made(b, 4)
    apply.__globals__["rate"] = 10.0
    made(b, 4)
    assert w[0] == 44


def test_what_is_only_read_is_not_given_back() -> None:
    """The copy of an array that is not contiguous must not undo what the loop did elsewhere in the same memory."""
    room = np.arange(8.0)
    total = room[2:3].reshape(())
    source = """
        def loop(x, total, n):
            for i in range(n):
                total += x[i]
    """
    loop(source)(room[::2], total, 4)
    assert total == 2 + (0 + 2 + 4 + 6)


@pytest.mark.parametrize("options", [{"width": 0}, {"width": -1}, {"profile": "quick"}])
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        loop("def loop(y, n):\n    for i in range(n):\n        y[i] = 1.0\n", **options)


def test_a_number_made_between_loops_fits_in_64_bits() -> None:
    source = """
        def loop(y, n):
            m = n * 2**62
            for i in range(3):
                y[i] = y[i] + m
    """
    with pytest.raises(LoopError, match="64 bits"):
        loop(source)(np.zeros(3), 8)


def test_floats_do_not_go_into_whole_numbers() -> None:
    """Plain Python refuses it; a sum that is cut at every step would look right and be wrong."""
    source = "def loop(x, s):\n    for i in range(len(x)):\n        s += x[i]\n"
    with pytest.raises(LoopError, match="holds whole numbers"):
        loop(source)(np.linspace(0, 1, 50), st.accumulator(0))
    with pytest.raises(LoopError, match="holds whole numbers"):
        loop("def loop(x, b):\n    for i in range(len(x)):\n        b[0] += x[i]\n")(
            np.ones(5), st.buffer(st.zeros(3, "i8"))
        )


def test_a_number_that_is_carried_is_named() -> None:
    source = "def loop(x, y):\n    s = 0.0\n    for i in range(len(x)):\n        s += x[i]\n        y[i] = s\n"
    with pytest.raises(LoopError, match="cannot be carried from one iteration to the next"):
        loop(source)(np.ones(5), np.zeros(5))
    with pytest.raises(LoopError, match="cannot be carried from one iteration to the next"):
        loop("def loop(x, s):\n    for i in range(len(x)):\n        s += x[i]\n")(np.ones(5), 0.0)


def test_what_cannot_be_decorated_or_run() -> None:
    import numba

    with pytest.raises(TypeError, match="leave out numba"):
        st.parallel(numba.njit(lambda x: x))
    with pytest.raises(TypeError, match="is not a runtime"):
        loop(DOUBLE).using(runtime="threads")  # type: ignore[arg-type]

    class Model:
        step = loop(DOUBLE)

    with pytest.raises(TypeError, match="is a method"):
        Model().step(1)
    assert Model.step is not None
    with pytest.raises(TypeError, match=r"loop\(W, V, n\): missing a required argument: 'n'"):
        loop(DOUBLE)(np.ones(5), np.zeros(5))


def test_a_refusal_has_a_short_traceback() -> None:
    with pytest.raises(PlanError) as caught:
        loop("def loop(x):\n    for i in range(1, len(x)):\n        x[i] = x[i - 1]\n", serial=False)(np.ones(5))
    frames = [entry.name for entry in caught.traceback]
    assert frames == ["test_a_refusal_has_a_short_traceback", "__call__"]
    assert "every iteration needs what an earlier one wrote to x" in str(caught.value)


def test_a_function_that_forgets_its_helpers() -> None:
    """The new value alone is not enough where `with_` names arrays: plain and compiled both say so."""
    source = "def loop(n, B):\n    for i in range(n):\n        B[0] += 1.0\n"
    made = loop(source)
    B = st.buffer(st.zeros(3), apply=lambda w, d, g: w + d, with_=(st.zeros(3),))
    with pytest.raises(DataError, match="as a tuple"):
        made.plain(3, B)
    with pytest.raises(PlanError, match="Numba cannot compile a function that the loop uses"):
        made(3, B)
