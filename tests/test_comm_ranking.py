"""Ranks against plain NumPy, selection against sorting, and 16-bit rounding against NumPy's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stretto.comm.codec import round_f2
from stretto.comm.policy import RANKS
from stretto.comm.ranking import RankState, order, order_moved
from stretto.errors import DataError

DTYPES = ("f4", "f8", "i4", "i8")


def batch(seed: int, m: int, width: int, dtype: str) -> dict[str, Any]:
    """m changed rows; a third zero rows, a third not held, many equal."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-4, 5, (m, width)).astype(dtype)
    rows[rng.random(m) < 1 / 3] = 0
    return {
        "deltas": rng.integers(-4, 5, (m, width)).astype(dtype),
        "rows": rows,
        "held": rng.random(m) < 2 / 3,
        "scale": rng.choice([0.0, 0.5, 2.0], m).astype("f4"),
        "keys": rng.choice(np.arange(-3 * m, 3 * m), m, replace=False).astype(np.int64),
    }


def twin(rank: str, b: dict[str, Any]) -> list[int]:
    """The same in plain NumPy and a sort."""
    size = np.abs(b["deltas"].astype("f8")).sum(axis=1)
    if rank == "relative":
        of = np.abs(b["rows"].astype("f8")).sum(axis=1)
        size = np.array([d / a if h and a > 0 else d for d, a, h in zip(size, of, b["held"], strict=True)])
    elif rank == "effective":
        size = size * b["scale"]
    return sorted(range(len(size)), key=lambda i: (-size[i], i))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", ["absolute", "relative", "effective"])
def test_magnitudes(rank: str, dtype: str) -> None:
    for seed, (m, width) in enumerate([(0, 3), (1, 1), (50, 1), (70, 5), (40, 64), (30, 7)]):
        b = batch(seed, m, width, dtype)
        found = order(rank, **b, state=RankState())
        assert found.dtype == np.int64
        assert found.tolist() == twin(rank, b)


@given(st.sampled_from(RANKS), st.integers(0, 60), st.integers(0, 70), st.integers(0, 1000))
def test_the_first_are_those_of_the_whole_order(rank: str, m: int, n: int, seed: int) -> None:
    b = batch(seed, m, 2, "f4")
    one, two = RankState(seed=seed, last=seed % 50 - 25), RankState(seed=seed, last=seed % 50 - 25)
    whole = order(rank, **b, state=one)
    assert sorted(whole.tolist()) == list(range(m))
    assert order(rank, **b, state=two, n=n).tolist() == whole[:n].tolist()
    moved, size = np.abs(b["deltas"]).sum(axis=1), np.abs(b["rows"]).sum(axis=1)
    one, two = RankState(seed=seed), RankState(seed=seed)
    whole = order_moved(rank, moved, size, b["scale"], b["keys"], one)
    assert sorted(whole.tolist()) == list(range(m))
    assert order_moved(rank, moved, size, b["scale"], b["keys"], two, n).tolist() == whole[:n].tolist()


@pytest.mark.parametrize("rank", ["absolute", "relative", "effective"])
def test_shards_rank_like_caches(rank: str) -> None:
    b = batch(5, 60, 3, "f4")
    b["held"][:] = True
    moved, size = np.abs(b["deltas"]).sum(axis=1), np.abs(b["rows"]).sum(axis=1)
    assert order_moved(rank, moved, size, b["scale"], b["keys"], RankState()).tolist() == twin(rank, b)


def test_round_robin_goes_on_after_the_last_one_sent() -> None:
    keys = np.array([30, -5, 10, 2**62, 20, -(2**62)], dtype=np.int64)
    state = RankState()
    sent: list[int] = []
    for _ in range(4):
        chosen = order("round-robin", None, None, None, None, keys, state, 3)
        sent += keys[chosen].tolist()
        state.sent(sent[-1])
    assert sent == sorted(keys.tolist()) * 2
    state.sent(15)  # a key that has gone meanwhile
    assert keys[order("round-robin", None, None, None, None, keys, state)].tolist()[:2] == [20, 30]


def test_everybody_has_a_turn_while_new_rows_come() -> None:
    """Also when the lowest keys change all the time, a row is sent within one round."""
    rng, state = np.random.default_rng(3), RankState()
    first_seen: dict[int, int] = {}
    for turn in range(60):
        keys = np.unique(np.concatenate([np.arange(0, 40, 2), rng.integers(0, 40, 10)]))
        for key in keys[order("round-robin", None, None, None, None, keys, state, 5)]:
            first_seen.setdefault(int(key), turn)
            state.sent(key)
        if turn == 8:
            assert set(range(0, 40, 2)) <= set(first_seen)


def test_random_orders_are_drawn_anew_and_repeat_with_the_seed() -> None:
    keys = np.arange(1000, dtype=np.int64)
    one, two, other = RankState(seed=4), RankState(seed=4), RankState(seed=5)
    draws = [order("random", None, None, None, None, keys, one).tolist() for _ in range(3)]
    assert draws == [order("random", None, None, None, None, keys, two).tolist() for _ in range(3)]
    assert draws[0] != draws[1] != draws[2]
    assert draws[0] != order("random", None, None, None, None, keys, other).tolist()
    # By key, not by place: the same rows in another order go in the same order.
    three = RankState(seed=4)
    assert keys[::-1][order("random", None, None, None, None, keys[::-1].copy(), three)].tolist() == draws[0]


def test_random_prefers_nobody() -> None:
    keys, state = np.arange(50, dtype=np.int64), RankState(seed=1)
    counts = np.zeros(50)
    for _ in range(2000):
        counts[order("random", None, None, None, None, keys, state, 10)] += 1
    # 2000 draws of 10 from 50: mean 400, standard deviation 18.
    assert np.abs(counts - 400).max() < 5 * 18


def test_a_row_with_nan_goes_first() -> None:
    deltas, keys = np.array([[5.0], [np.nan], [7.0]], dtype="f4"), np.arange(3)
    held, rows = np.array([True] * 3), np.ones((3, 1), "f4")
    for rank in ("absolute", "relative", "effective"):
        assert order(rank, deltas, rows, held, np.ones(3, "f4"), keys, RankState())[0] == 1
        assert order_moved(rank, deltas[:, 0], rows[:, 0], np.ones(3, "f4"), keys, RankState())[0] == 1


def test_a_function_of_the_users() -> None:
    b = batch(2, 30, 4, "f4")

    def largest_column(deltas: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.abs(deltas).max(axis=1))

    expected = sorted(range(30), key=lambda i: (-np.abs(b["deltas"][i]).max(), i))
    assert order(largest_column, **b, state=RankState()).tolist() == expected
    negative = order(lambda d, r: -np.arange(30), **b, state=RankState())
    assert negative.tolist() == list(range(30))
    moved = np.array([1.0, 3.0, 2.0])
    found = order_moved(
        lambda d, r: d[:, 0] / r[:, 0], moved, np.array([1.0, 9.0, 4.0]), None, np.arange(3), RankState()
    )
    assert found.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (np.ones((30, 1)), r"float64 \[30, 1\] for 30 rows; return one number for each row"),
        (1.0, r"float64 \[\] for 30 rows"),
        (np.ones(29), r"\[29\] for 30 rows"),
        (np.array(["a"] * 30), "for 30 rows"),
        (np.where(np.arange(30) == 7, np.nan, 1.0), r"NaN for 1 of 30 rows \(the first is row 7"),
    ],
)
def test_a_function_that_returns_nonsense(returned: Any, said: str) -> None:
    def my_rank(deltas: Any, rows: Any) -> Any:
        return returned

    with pytest.raises(DataError, match=said) as error:
        order(my_rank, **batch(2, 30, 4, "f4"), state=RankState())
    assert "'my_rank'" in str(error.value)


# -- 16 bits --------------------------------------------------------------------------------------------------------


def every_half() -> NDArray[np.float64]:
    """All finite 16-bit floats, in rising order."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    return np.unique(halves[np.isfinite(halves)])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rounding_is_numpys_at_every_half_and_about_every_middle(dtype: str) -> None:
    halves = every_half()
    middles = (halves[1:] + halves[:-1]) / 2
    for values in (halves, middles):
        exact = values.astype(dtype)
        for a in (exact, np.nextafter(exact, np.array(np.inf, dtype)), np.nextafter(exact, np.array(-np.inf, dtype))):
            a = a[np.abs(a) < 65520]
            got, expected = round_f2(a), a.astype("f2").astype(dtype)
            assert got.dtype == np.dtype(dtype)
            np.testing.assert_array_equal(got, expected)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
def test_what_is_lost_can_be_sent_later(values: list[float]) -> None:
    """Sent in parts, everything arrives but what is smaller than the smallest step."""
    left = np.array(values, dtype="f8")
    np.clip(left, -3e5, 3e5, out=left)
    whole, arrived = left.copy(), np.zeros_like(left)
    for _ in range(12):
        sent = round_f2(left)
        assert (np.abs(sent) <= np.abs(left) * (1 + 2**-11) + 2**-25).all()
        arrived += sent
        left -= sent
    np.testing.assert_allclose(arrived, whole, rtol=0, atol=2**-25)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_too_large_is_sent_in_parts(dtype: str) -> None:
    a = np.array([1e6, -65520.0, 65519.0, 65504.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max], dtype=dtype)
    np.testing.assert_array_equal(
        round_f2(a), np.array([65504, -65504, 65504, 65504, np.inf, -np.inf, np.nan, 65504], dtype=dtype)
    )


def test_shapes_and_whole_numbers() -> None:
    a = np.arange(12, dtype="f4").reshape(3, 4) / 3
    assert round_f2(a[:, ::2]).shape == (3, 2)
    np.testing.assert_array_equal(round_f2(a[:, ::2]), a[:, ::2].astype("f2").astype("f4"))
    assert round_f2(a) is not a
    counts = np.array([[70_000, -3]], dtype="i4")
    assert round_f2(counts) is counts
    assert round_f2(np.zeros((0, 4), "f4")).shape == (0, 4)
