"""`st.split`: what each method holds out, and that it is the same in every form of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st_
from scipy import sparse

import stretto as st
from stretto.errors import DataError, PlanError

RNG = np.random.default_rng(0)
_dense = sparse.random(60, 40, density=0.25, random_state=0).toarray()
_dense = np.where(_dense > 0, RNG.integers(1, 6, _dense.shape), 0).astype(np.float32)
_dense[[7, 8]] = 0  # a user without ratings, one with a single one
_dense[8, 3] = 2.0
X = sparse.csr_matrix(_dense)
SIZES = np.diff(X.indptr)
TIMES = RNG.integers(0, 50, X.nnz)
METHODS: dict[str, dict[str, Any]] = {
    "random": {},
    "leave_k_out": {"k": 2},
    "by_user": {"test": 0.3},
    "by_time": {"times": TIMES},
    "cold_users": {"test": 0.2},
    "cold_items": {"test": 0.2},
}


def of(part: Any) -> Any:
    return np.bincount(part.rows, minlength=60)


@pytest.mark.parametrize("method", METHODS)
def test_both_parts_are_the_whole(method: str) -> None:
    train, test = getattr(st.split, method)(X, **METHODS[method])
    assert train.shape == test.shape == X.shape
    assert abs(train.to_csr() + test.to_csr() - X).sum() == 0
    assert len(train) + len(test) == X.nnz
    again = getattr(st.split, method)(X.toarray(), **METHODS[method])[1]
    assert (again.to_csr() != test.to_csr()).nnz == 0
    if "times" not in METHODS[method]:
        other = getattr(st.split, method)(X, **METHODS[method] | {"seed": 1})[1]
        assert (other.to_csr() != test.to_csr()).nnz > 0


def test_the_call_is_the_random_split() -> None:
    for found, wanted in zip(st.split(X, test=0.2, seed=3), st.split.random(X, test=0.2, seed=3), strict=True):
        assert (found.to_csr() != wanted.to_csr()).nnz == 0


@pytest.mark.parametrize("k", [1, 2, 12])
def test_k_are_left_out_of_those_who_have_more(k: int) -> None:
    test = st.split.leave_k_out(X, k=k)[1]
    np.testing.assert_array_equal(of(test), np.where(k < SIZES, k, 0))


def test_a_share_of_each_user_is_held_out() -> None:
    test = st.split.by_user(X, test=0.3)[1]
    wanted = np.where(SIZES < 2, 0, np.clip(np.floor(0.3 * SIZES + 0.5), 1, SIZES - 1))
    np.testing.assert_array_equal(of(test), wanted)


@settings(max_examples=40, deadline=None)
@given(
    records=st_.lists(st_.tuples(st_.integers(0, 5), st_.integers(0, 4)), min_size=3, max_size=40),
    k=st_.integers(1, 4),
)
def test_the_last_ones_are_held_out(records: list[tuple[int, int]], k: int) -> None:
    """Against a sort of each user's records by time and position."""
    users = [user for user, _ in records]
    times = [time for _, time in records]
    items = list(range(len(records)))
    expected = set()
    for user in set(users):
        mine = sorted((times[at], at) for at in range(len(records)) if users[at] == user)
        if len(mine) > k:
            expected |= {at for _, at in mine[-k:]}
    data = st.Data.from_arrays(users, items, np.ones(len(items)))
    if expected:
        assert set(st.split.leave_k_out(data, k=k, times=times)[1].cols.tolist()) == expected
    else:
        with pytest.raises(DataError, match="no ratings left to measure on"):
            st.split.leave_k_out(data, k=k, times=times)


def test_what_came_after_is_held_out() -> None:
    train, test = st.split.by_time(X, times=TIMES, test=0.2)
    when = sparse.csr_matrix((TIMES + 1.0, X.indices, X.indptr), X.shape)  # no time is 0: those would vanish
    old, new = (np.asarray(when[part.rows, part.cols]).ravel() for part in (train, test))
    assert old.max() < new.min()
    assert 0.15 < len(test) / X.nnz <= 0.2


@pytest.mark.parametrize(("method", "axis"), [("cold_users", 0), ("cold_items", 1)])
def test_nobody_cold_is_in_training(method: str, axis: int) -> None:
    train, test = getattr(st.split, method)(X, test=0.25)
    index = [(part.rows, part.cols)[axis] for part in (train, test)]
    assert not np.intersect1d(*index).size
    present = np.count_nonzero(np.diff((X if axis == 0 else X.tocsc()).indptr))
    assert len(np.unique(index[1])) == np.floor(0.25 * present + 0.5)


def test_times_of_tables_and_files(tmp_path: Any) -> None:
    pandas = pytest.importorskip("pandas")
    coo = X.tocoo()
    stamps = 978_300_760 + TIMES
    frame = pandas.DataFrame({"user": coo.row, "item": coo.col, "rating": coo.data, "timestamp": stamps})
    wanted = st.split.leave_k_out(frame, times=stamps)[1]
    dates = frame.assign(timestamp=pandas.to_datetime(stamps, unit="s"))
    found = [
        st.split.leave_k_out(frame, times="timestamp")[1],
        st.split.leave_k_out(dates, times="timestamp")[1],
        st.split.leave_k_out(frame, times=dates["timestamp"].astype(str))[1],
    ]
    path = tmp_path / "ratings.csv"
    frame.to_csv(path, index=False)
    found += [st.split.leave_k_out(str(path), times=times)[1] for times in ("timestamp", 3)]
    plain = tmp_path / "ratings.dat"
    plain.write_text("".join(f"{u}::{i}::{r:g}::{t}\n" for u, i, r, t in frame.itertuples(index=False)))
    found.append(st.split.leave_k_out(plain, times=3)[1])
    for one in found:
        np.testing.assert_array_equal(one.rows, wanted.rows)
        np.testing.assert_array_equal(one.cols, wanted.cols)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: st.split.leave_k_out(X, k=0), PlanError, "leave_k_out: k must be a whole number at least 1; got 0"),
        (lambda: st.split.leave_k_out(X, k=60), DataError, "no ratings left to measure on"),
        (lambda: st.split.cold_users(X, test=0), PlanError, "test must be a number more than 0"),
        (lambda: st.split.by_time(X, times=[1, 2]), DataError, "ratings need as many times"),
        (lambda: st.split.by_time(X, times="when"), DataError, "names a column, and these ratings have none"),
        (lambda: st.split.by_time(X, times=np.full(X.nnz, np.nan)), DataError, "the time of rating 0 is missing"),
        (lambda: st.split.by_time(X, times=np.zeros(X.nnz)), DataError, "no ratings left to measure on"),
    ],
)
def test_what_cannot_be_split_is_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
