"""Records of every kind: what loops compile against and what plain Python iterates are the same numbers."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import stretto
from stretto.data.records.data import Data
from stretto.data.records.ids import IdMap
from stretto.data.records.record_sets import Ragged, Sparse
from stretto.data.records.records import Column, RaggedColumn, Records, iterate
from stretto.errors import DataError

triples = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 4)), max_size=30)


def data_of(records: list[tuple[int, int, int]], labels: Any = None) -> Data:
    r, c, v = zip(*records, strict=True) if records else ((), (), ())
    return Data.from_arrays(r, c, v, (5, 6), labels=labels)


# --- records --------------------------------------------------------------------------------------------------------


def test_records_are_checked_and_frozen() -> None:
    values = np.arange(3.0)
    made = Records("sparse", (2, 2), (np.array([0, 1, 1]), np.array([0, 0, 1])), Column(values))
    assert len(made) == 3
    assert np.shares_memory(made.columns[0].values, values)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="read-only"):
        made.index[0][0] = 1
    with pytest.raises(DataError, match="one length"):
        Records("sparse", (2,), (np.array([0]),), Column(values))
    with pytest.raises(DataError, match="one length"):
        Records("dense", (2, 2), (), Column(values))
    with pytest.raises(DataError, match="2 index arrays"):
        Records("sparse", (3,), (np.arange(3), np.arange(3)), Column(values))
    with pytest.raises(DataError, match="one dimension"):
        Records("ragged", (1, 3), (), Column(values))
    with pytest.raises(DataError, match="flat array of numbers"):
        Column(np.array(["a"]))
    with pytest.raises(DataError, match="never fall"):
        RaggedColumn(np.array([0, 2, 1]), (np.zeros(1),))
    with pytest.raises(DataError, match="parts of that length"):
        RaggedColumn(np.array([0, 2]), (np.zeros(3),))


def test_columns_are_contiguous_and_native() -> None:
    made = Column(np.arange(10, dtype=">i4")[::2])
    assert made.values.flags.c_contiguous
    assert made.values.dtype == np.int32
    assert made.values.tolist() == [0, 2, 4, 6, 8]


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6))
def test_ragged_columns_iterate_as_lists(rows: list[list[int]]) -> None:
    ptr = np.cumsum([0, *map(len, rows)])
    flat = np.array([x for row in rows for x in row], dtype=np.int32)
    one = Records("ragged", (len(rows),), (), RaggedColumn(ptr, (flat,)))
    assert list(iterate(one)) == list(enumerate(rows))
    two = Records("ragged", (len(rows),), (), (Column(np.arange(len(rows))), RaggedColumn(ptr, (flat, flat * 0.5))))
    assert list(iterate(two)) == [(k, (k, [(x, x / 2) for x in row])) for k, row in enumerate(rows)]


def test_long_data_iterate_in_slices() -> None:
    n = 40_000
    made = Records("ragged", (n,), (), RaggedColumn(np.arange(n + 1), (np.arange(n),)))
    assert [value for _, value in iterate(made)] == [[k] for k in range(n)]


@given(st.data())
def test_records_in_another_order(data: Any) -> None:
    kinds = (
        data_of([(0, 1, 2), (3, 4, 1), (0, 0, 3)]),
        stretto.dense(np.arange(6).reshape(2, 3)),
        stretto.samples(np.tri(4), [1, 2, 3, 4]),
    )
    made = data.draw(st.sampled_from(kinds))
    which = data.draw(st.permutations(range(len(made))))[: data.draw(st.integers(0, len(made)))]
    everything = list(made)
    assert list(iterate(made.records(), np.array(which, np.int64))) == [everything[k] for k in which]


# --- Data -----------------------------------------------------------------------------------------------------------


@given(triples)
def test_data_and_their_records(records: list[tuple[int, int, int]]) -> None:
    d = data_of(records)
    view = d.records()
    assert view is d.records()
    assert (view.kind, view.shape, len(view)) == ("sparse", (5, 6), len(d))
    assert np.shares_memory(view.index[0], d.rows) or not records
    assert list(iterate(view)) == list(d)


def test_the_view_goes_with_the_data() -> None:
    d = data_of([(0, 1, 2)])
    view, data = weakref.ref(d.records()), weakref.ref(d)
    again = pickle.loads(pickle.dumps(d))
    assert list(again) == list(d)
    del d
    gc.collect()
    assert data() is None
    assert view() is None


@given(triples)
def test_numbered(records: list[tuple[int, int, int]]) -> None:
    d = data_of(records)
    assert list(d.numbered()) == [(index, (p, v)) for p, (index, v) in enumerate(d)]
    alone = d.numbered(values=False)
    assert list(alone) == [(index, p) for p, (index, _) in enumerate(d)]
    column = alone.records().value
    assert isinstance(column, Column)
    assert column.unique
    assert np.array_equal(alone.records().index[0], d.rows)


@given(triples, st.sampled_from([0, 1]))
def test_group_by(records: list[tuple[int, int, int]], axis: int) -> None:
    d = data_of(records)
    grouped = d.group_by(axis)
    expected: list[Any] = [(k, []) for k in range((5, 6)[axis])]
    for index, v in d:
        expected[index[axis]][1].append((index[1 - axis], v))
    assert list(grouped) == expected
    assert grouped.columns == (6, 5)[axis]
    assert grouped.entries == len(d)


def test_group_by_more_dimensions_and_values() -> None:
    points = data_of([(0, 1, 2), (3, 4, 1), (0, 0, 3)]).map(lambda i, v: ((*i, 1), v), index=True, shape=(5, 6, 2))
    assert next(iter(points.group_by(0))) == (0, [(1, 1, 2.0), (0, 1, 3.0)])
    assert list(data_of([(0, 1, 2)]).numbered().group_by(1))[1] == (1, [(0, 0, 2.0)])
    assert list(stretto.dense([[1, 2], [3, 4]]).group_by(1)) == [(0, [(0, 1), (1, 3)]), (1, [(0, 2), (1, 4)])]
    with pytest.raises(DataError, match="no axis 2"):
        data_of([]).group_by(2)
    with pytest.raises(DataError, match="two or more dimensions"):
        data_of([]).group_by(0).group_by(0)


@given(triples)
def test_expanded(records: list[tuple[int, int, int]]) -> None:
    d = data_of(records)
    tokens = d.expanded()
    assert isinstance(tokens, Data)
    assert list(tokens) == [(index, 1.0) for index, v in d for _ in range(int(v))]
    ints = d.map(int).expanded()
    assert [index for index, _ in ints] == [index for index, _ in tokens]


def test_only_counts_expand() -> None:
    with pytest.raises(DataError, match=r"record 1 has the value 0\.5, which is not a count"):
        Data.from_arrays([0, 1], [0, 1], [1, 0.5]).expanded()
    with pytest.raises(DataError, match="not a count"):
        Data.from_arrays([0], [0], [-1]).expanded()


def test_samples_of_data() -> None:
    d = data_of([(0, 1, 2), (3, 4, 1), (0, 0, 3)], labels=[1.0, 0, 0, 1, 0])
    assert list(d.samples())[:2] == [(0, (1.0, [(1, 2.0), (0, 3.0)])), (1, (0.0, []))]
    assert list(stretto.samples(d, [5, 6, 7, 8, 9]))[3] == (3, (8, [(4, 1.0)]))
    with pytest.raises(DataError, match=r"no labels; pass them with st\.samples"):
        data_of([]).samples()


# --- samples and dense ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dense"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples(kind: str, dtype: Any) -> None:
    m = sparse.random_array((8, 5), density=0.4, rng=np.random.default_rng(0), format="csr", dtype=dtype)
    given_ = m.toarray() if kind == "dense" else m.asformat(kind)
    y = np.arange(8) % 2 * 2 - 1
    expected = [
        (i, (int(y[i]), list(zip(m[[i]].indices.tolist(), m[[i]].data.tolist(), strict=True)))) for i in range(8)
    ]
    made = stretto.samples(given_, y)
    assert [(i, (label, sorted(features))) for i, (label, features) in made] == expected
    assert [(i, sorted(features)) for i, features in stretto.samples(given_)] == [(i, f) for i, (_, f) in expected]
    assert (made.shape, made.columns) == ((8,), 5)
    label, features = made.records().columns
    assert isinstance(label, Column)
    assert isinstance(features, RaggedColumn)
    assert label.values.dtype == y.dtype
    assert features.parts[1].dtype == dtype
    assert features.parts[0].dtype == np.int32


def test_samples_share_memory_and_leave_the_input_alone() -> None:
    m = sparse.random_array((8, 5), density=0.4, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    features = stretto.samples(m).records().value
    assert isinstance(features, RaggedColumn)
    assert np.shares_memory(features.parts[1], m.data)
    twice = sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    assert list(stretto.samples(twice)) == [(0, [(1, 3.0)])]
    assert twice.nnz == 2


def test_bad_samples() -> None:
    with pytest.raises(DataError, match="8 rows need one number each as labels"):
        stretto.samples(np.eye(8), [1, 2])
    with pytest.raises(DataError, match="row 1, column 1 holds nan"):
        stretto.samples(np.diag([1.0, np.nan]))
    with pytest.raises(DataError, match="label of row 1 is nan"):
        stretto.samples(np.eye(2), [0.0, np.nan])
    with pytest.raises(DataError, match="give a matrix of numbers"):
        stretto.samples(np.zeros(3))


def test_dense() -> None:
    A = np.arange(6.0).reshape(2, 3)
    d = stretto.dense(A)
    assert list(d) == [((i, j), A[i, j]) for i in range(2) for j in range(3)]
    assert list(stretto.dense(A.T)) == [((j, i), A[i, j]) for j in range(3) for i in range(2)]
    assert list(stretto.dense([5, 6])) == [(0, 5), (1, 6)]
    assert np.shares_memory(d.records().columns[0].values, A)  # type: ignore[union-attr]
    points = np.array([(1, 2.5), (3, 4.5)], dtype=[("n", "i2"), ("x", "f4")])
    assert list(stretto.dense(points)) == [(0, (1, 2.5)), (1, (3, 4.5))]
    assert stretto.dense(A).records().index == ()
    assert list(stretto.dense(stretto.zeros(2))) == [(0, 0.0), (1, 0.0)]
    assert list(d.numbered(values=False))[4] == ((1, 1), 4)
    assert repr(d) == "Dense(2 x 3, array)"
    with pytest.raises(DataError, match="single number"):
        stretto.dense(3.0)


# --- shuffle --------------------------------------------------------------------------------------------------------


@given(triples, st.sampled_from([None, 0, 1]), st.integers(0, 5))
def test_shuffled_data(records: list[tuple[int, int, int]], axis: int | None, seed: int) -> None:
    d = data_of(records, labels=[10.0, 11, 12, 13, 14])
    new = d.shuffle(axis, seed)
    row, col = (np.arange(n) if place is None else place for n, place in zip((5, 6), new.places, strict=True))
    assert sorted(row) == list(range(5))
    assert (new.places[0] is None) == (axis == 1)
    assert list(new) == [((row[i], col[j]), v) for (i, j), v in d]
    assert new.labels is not None
    assert new.labels[row].tolist() == [10.0, 11, 12, 13, 14]
    twice = new.shuffle(0, seed + 1)
    assert twice.places[0] is not None
    assert [i for (i, _), _ in twice] == [twice.places[0][i] for (i, _), _ in d]
    general = d.numbered().shuffle(axis, seed)
    assert isinstance(general, Sparse)
    assert [index for index, _ in general] == [index for index, _ in new]


def test_names_still_fit_after_a_shuffle() -> None:
    ids = IdMap.of(["ada", "bob", "eve", "kim"])
    d = Data.from_arrays([0, 1, 2, 3], [0, 0, 0, 0], [1, 2, 3, 4], row_ids=ids, col_ids=IdMap.of([7]))
    new = d.shuffle(0, seed=1).shuffle(0, seed=2)
    names = new.row_ids
    assert names is not None
    assert new.rows.tolist() != d.rows.tolist()
    assert names.decode(new.rows).tolist() == ["ada", "bob", "eve", "kim"]
    assert names.encode(["ada", "bob", "eve", "kim"]).tolist() == new.rows.tolist()
    assert names.encode(["kim", "zoe"], unknown="mark").tolist() == [new.rows[3], -1]
    for again in (IdMap.from_arrays(names.to_arrays()), pickle.loads(pickle.dumps(names))):
        assert again == names
        assert again.encode(["eve"]).tolist() == [new.rows[2]]
    damaged = {**names.to_arrays(), "place": np.zeros(4, np.int32)}
    with pytest.raises(DataError, match="no permutation"):
        IdMap.from_arrays(damaged)
    assert Data.from_arrays([0, 1], [0, 0], [1, 2], row_ids=IdMap.of([0, 1])).shuffle(0, 3).row_ids is not None


def test_shuffle_balances_neighbours() -> None:
    busy = Data.from_arrays(
        np.repeat(np.arange(1000), np.where(np.arange(1000) < 100, 91, 1)), np.zeros(10_000), np.ones(10_000)
    )
    halves = [np.mean(part.rows < 500) for part in (busy, busy.shuffle(0))]
    assert halves[0] > 0.9
    assert 0.35 < halves[1] < 0.65


def test_shuffled_ragged_data() -> None:
    made = stretto.samples(np.arange(12.0).reshape(4, 3), [0, 1, 2, 3])
    new = made.shuffle(seed=1)
    assert isinstance(new, Ragged)
    place = new.places[0]
    assert place is not None
    found = dict(new)
    assert all(found[int(place[i])] == value for i, value in made)
    assert new.columns == 3
    with pytest.raises(DataError, match="no axis 1"):
        made.shuffle(1)
    with pytest.raises(DataError, match="nothing to balance"):
        stretto.dense([1, 2]).shuffle()
