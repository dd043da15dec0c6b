"""Data, IdMap, as_data, duplicates and the generator."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from stretto.data.convert.convert import as_data
from stretto.data.describe import skew
from stretto.data.generate.ratings import ratings
from stretto.data.records.data import Data, held_out
from stretto.data.records.ids import IdMap
from stretto.data.records.repeated_pairs import find_duplicates
from stretto.errors import DataError

small = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 5)), max_size=40)


def columns(records: list[tuple[int, int, int]]) -> tuple[Any, Any, Any]:
    r, c, v = zip(*records, strict=True) if records else ((), (), ())
    return np.array(r, np.int32), np.array(c, np.int32), np.array(v, np.float32)


def test_importing_data_stays_light() -> None:
    heavy = ("numba", "scipy", "sklearn", "pandas", "fsspec")
    code = f"import sys, stretto.data\nprint([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_arrays_are_shared_and_frozen() -> None:
    r, c, v = np.array([0, 1], np.int32), np.array([1, 0], np.int32), np.array([1, 2], np.float32)
    d = Data.from_arrays(r, c, v)
    assert np.shares_memory(d.rows, r)
    assert np.shares_memory(d.values, v)
    with pytest.raises(ValueError, match="read-only"):
        d.values[0] = 9
    r[0] = 0  # the caller's own array stays writeable
    assert list(d) == [((0, 1), 1.0), ((1, 0), 2.0)]
    assert d.nnz == len(d) == 2


@pytest.mark.parametrize(
    ("rows", "cols", "values", "shape", "says"),
    [
        ([0, -1], [0, 0], [1, 1], None, "negative row index -1 at position 1"),
        ([0, 1], [0, 7], [1, 1], (2, 3), "column index 7 at position 1 is outside"),
        ([0, 1], [0, 1], [1, float("nan")], None, "value nan at position 1"),
        ([0, 1], [0, 1], [1, float("inf")], None, "value inf at position 1"),
        ([0, 1], [0, 1], [1, 1e40], None, "does not fit a 32-bit float"),
        ([0, 1.5], [0, 1], [1, 1], None, "1.5"),
        ([0, float("nan")], [0, 1], [1, 1], None, "nan"),
        ([0, 1], [0], [1, 1], None, "one of each per record"),
    ],
)
def test_bad_arrays(rows: Any, cols: Any, values: Any, shape: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        Data.from_arrays(rows, cols, values, shape)
    with pytest.raises(DataError, match=says):
        as_data((rows, cols, values), shape=shape)


def test_a_wrong_value_of_a_matrix_is_named_by_row_and_column() -> None:
    matrix = sparse.coo_array(([1.0, float("nan")], ([0, 4], [2, 3])), shape=(5, 5))
    with pytest.raises(DataError, match=r"value nan at position 1 \(row 4, column 3\) is not a finite number; drop"):
        as_data(matrix)


@given(small)
def test_csr_round_trip(records: list[tuple[int, int, int]]) -> None:
    d = as_data(columns(records), shape=(6, 6), duplicates="last")
    again = as_data(d.to_csr())
    assert again.shape == (6, 6)
    assert dict(again) == dict(d)


@given(small, st.sampled_from(["first", "last", "mean", "sum"]))
def test_duplicate_policies_match_a_dictionary(records: list[tuple[int, int, int]], policy: str) -> None:
    groups: dict[tuple[int, int], list[int]] = {}
    for i, j, v in records:
        groups.setdefault((i, j), []).append(v)
    rule = {"first": lambda g: g[0], "last": lambda g: g[-1], "mean": lambda g: sum(g) / len(g), "sum": sum}[policy]
    expected: list[Any] = [(pair, pytest.approx(rule(g))) for pair, g in groups.items()]
    assert list(as_data(columns(records), duplicates=policy)) == expected


@given(small)
def test_wide_indices_find_the_same_duplicates(records: list[tuple[int, int, int]]) -> None:
    r, c, _ = columns(records)
    narrow = find_duplicates(r, c, 6)
    wide = find_duplicates(r.astype(np.int64) * 2**60, c, 6)
    assert narrow[0].tolist() == wide[0].tolist()
    assert narrow[1].tolist() == wide[1].tolist()


def test_a_repeated_pair_is_refused_by_name() -> None:
    with pytest.raises(
        DataError, match=r"pair \(1, 2\) occurs twice, at positions 0 and 2, with values 3 and 5; say what"
    ):
        as_data(([1, 0, 1], [2, 2, 2], [3, 4, 5]))
    kept = as_data(([1, 0, 1], [2, 2, 2], [3, 4, 5]), duplicates="keep")
    assert len(kept) == 3
    assert as_data(kept) is kept  # decided already
    assert len(as_data(kept, duplicates="mean")) == 2
    with pytest.raises(DataError, match="no duplicate policy"):
        as_data(([1], [2], [3]), duplicates="max")


def test_looking_for_duplicates_takes_one_key_per_record() -> None:
    n = 1_000_000
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, 2**20, n, dtype=np.int32), rng.integers(0, 2**20, n, dtype=np.int32)
    tracemalloc.start()
    try:
        find_duplicates(rows, cols, 2**20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * n + (16 << 20)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_scipy_formats(kind: str, index: type) -> None:
    m = sparse.random(30, 20, 0.2, random_state=0, format=kind, dtype=np.float64)
    for name in ("indices", "indptr"):
        if hasattr(m, name):
            setattr(m, name, getattr(m, name).astype(index))
    d = as_data(m)
    assert d.rows.dtype == np.int32
    assert d.shape == (30, 20)
    np.testing.assert_allclose(d.to_csr().toarray(), m.toarray(), rtol=1e-6)


def test_scipy_duplicates_are_summed_and_the_input_left_alone() -> None:
    m = sparse.coo_array(([1.0, 2.0, 5.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert dict(as_data(m)) == {(0, 1): 3.0, (1, 0): 5.0}
    assert m.nnz == 3


def test_scipy_arrays_are_not_copied() -> None:
    m = sparse.random(30, 20, 0.2, random_state=0, format="coo", dtype=np.float32)
    d = as_data(m)
    assert np.shares_memory(d.rows, m.coords[0])
    assert np.shares_memory(d.values, m.data)


def test_tables() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"rating": [5, 3], "item": ["b", "a"], "user": ["x", "y"]})
    d = as_data(frame)
    assert d.row_ids is not None
    assert d.col_ids is not None
    assert d.row_ids.ids.tolist() == ["x", "y"]
    assert list(d) == [((0, 1), 5.0), ((1, 0), 3.0)]
    with pytest.raises(DataError, match="missing"):
        as_data(pandas.DataFrame({"u": ["x", None], "i": [1, 2], "r": [1, 2]}))
    with pytest.raises(DataError, match="'r' has 1 missing values, the first in row 1"):
        as_data(pandas.DataFrame({"u": [1, 2], "i": [1, 2], "r": [1, None]}))
    triples = np.array([(7, 8, 2.5)], dtype=[("u", "i4"), ("i", "i8"), ("r", "f8")])
    assert list(as_data(triples)) == [((0, 0), 2.5)]
    assert list(as_data(triples, map_ids=False)) == [((7, 8), 2.5)]
    with pytest.raises(DataError, match="cannot read ratings"):
        as_data(np.zeros((4, 4)))


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=20))
def test_text_ids_round_trip(ids: list[str]) -> None:
    m = IdMap.of(np.array(ids, dtype=np.dtypes.StringDType()))
    assert m.ids.tolist() == sorted(set(ids))
    assert m.decode(m.encode(m.ids)).tolist() == m.ids.tolist()
    assert IdMap.from_arrays(m.to_arrays()) == m


@given(st.lists(st.integers(-(2**62), 2**62), max_size=20))
def test_integer_ids_round_trip(ids: list[int]) -> None:
    m = IdMap.of(np.array(ids, dtype=np.int64))
    assert m.ids.tolist() == sorted(set(ids))
    assert m.decode(m.encode(ids)).tolist() == ids
    assert IdMap.from_arrays(m.to_arrays()) == m


def test_unknown_ids() -> None:
    m = IdMap.of([10, 30])
    assert m.encode([30, 7, 99], unknown="mark").tolist() == [1, -1, -1]
    with pytest.raises(DataError, match="id 7"):
        m.encode([10, 7])
    assert m.encode(["30"]).tolist() == [1]
    with pytest.raises(DataError, match="damaged"):
        IdMap.from_arrays({"ids": np.array([2, 1])})


def test_split_is_the_same_everywhere() -> None:
    d = ratings(5000, 200, 100, seed=2).data
    train, test = d.split(0.2, seed=7)
    assert len(train) + len(test) == len(d)
    assert 850 < len(test) < 1150
    whole = held_out(0, 5000, 0.2, 7)
    assert (np.concatenate([held_out(0, 1234, 0.2, 7), held_out(1234, 5000, 0.2, 7)]) == whole).all()
    assert (held_out(0, 5000, 0.2, 8) != whole).any()
    # fixed permanently: a recorded split must be found again by every later version
    assert np.flatnonzero(held_out(0, 64, 0.1, 0)).tolist() == [1, 18, 25, 27, 43, 47, 58]
    with pytest.raises(DataError, match="test share"):
        d.split(1.0)


def test_data_can_be_pickled() -> None:
    d = as_data((["a", "b"], [1, 2], [1.0, 2.0]))
    again = pickle.loads(pickle.dumps(d))
    assert list(again) == list(d)
    assert again.row_ids == d.row_ids


def test_describe() -> None:
    d = as_data(([0, 0, 0, 2], [0, 1, 2, 0], [1, 2, 3, 4]), shape=(3, 4)).describe()
    assert (d.nnz, d.shape, d.duplicates) == (4, (3, 4), 0)
    assert (d.mean, d.min, d.max) == (2.5, 1.0, 4.0)
    assert d.std == pytest.approx(np.std([1, 2, 3, 4]))
    assert (d.rows.empty, d.cols.empty, d.rows.hottest, d.rows.hottest_share) == (1, 1, 0, 0.75)
    assert "hottest is 0 with 75.00%" in str(d)
    assert skew(np.full(100, 7)).gini == pytest.approx(0.0, abs=1e-12)
    assert skew(np.full(100, 7)).zipf == pytest.approx(0.0, abs=1e-12)
    assert skew((1e6 / np.arange(1, 2001)).astype(np.int64)).zipf == pytest.approx(1.0, abs=0.01)
    assert as_data(([], [], [])).describe().nnz == 0


def test_generated_truth() -> None:
    made = ratings(40_000, 800, 500, noise=0.2, step=None, max_share=1 / 64, seed=5)
    d = made.data
    assert len(find_duplicates(d.rows, d.cols, 500)[0]) == 0
    said = d.describe()
    assert max(said.rows.hottest_share, said.cols.hottest_share) <= 1 / 64
    assert said.rows.zipf > 0.3
    truth = np.clip(made.mean + np.einsum("kr,kr->k", made.W[d.rows], made.H[d.cols]), 1, 5)
    assert np.sqrt(np.mean((truth - d.values) ** 2)) == pytest.approx(0.2, abs=0.02)
    again = ratings(40_000, 800, 500, noise=0.2, step=None, max_share=1 / 64, seed=5).data
    assert (again.rows == d.rows).all()
    assert (again.values == d.values).all()
    assert (ratings(40_000, 800, 500, seed=6).data.rows != d.rows).any()


def test_generator_edges() -> None:
    assert len(ratings(0, 3, 3).data) == 0
    assert len(ratings(50, 10, 10, row_skew=2, col_skew=2).data) == 50  # half full and very skewed
    assert set(ratings(1000, 100, 100, step=1.0).data.values.tolist()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    with pytest.raises(DataError, match="more than half"):
        ratings(60, 10, 10)
    with pytest.raises(DataError, match="even share"):
        ratings(10, 10, 10, max_share=0.01)


@pytest.mark.parametrize("n", [3, 400])
def test_long_names_are_found(n: int) -> None:
    names = [f"a name of more than sixteen bytes, {k}" for k in range(n)]
    users = IdMap.of(names)
    assert users.decode(users.encode(names)).tolist() == names
    assert users.decode(users.encode(names[1:2])).tolist() == names[1:2]
    assert users.encode(["a name of more than sixteen bytes, x", names[0]], "mark").tolist()[0] == -1
