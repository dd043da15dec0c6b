"""Frames of every library and arrays of records: which column is what, and what becomes of ids."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import stretto as st
from stretto.data.convert.convert import as_data
from stretto.data.convert.roles import ColumnChoice, find_roles
from stretto.data.reading.columns import FEW
from stretto.data.records.data import Data
from stretto.data.records.ids import IdMap
from stretto.errors import DataError
from stretto.models.factorization.align import AxisIds, aligned, entries_of
from stretto.models.factorization.arguments import as_matrix, as_pairs

LIBRARIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "Polars": pl.DataFrame,
    "Polars, lazy": pl.LazyFrame,
    "Arrow table": pa.table,
    "Arrow batch": pa.record_batch,
}
every_library = pytest.mark.parametrize("library", LIBRARIES)


def outside(data: Data) -> list[tuple[Any, Any, float]]:
    """Records under their outside names."""
    rows = data.rows if data.row_ids is None else data.row_ids.decode(data.rows)
    cols = data.cols if data.col_ids is None else data.col_ids.decode(data.cols)
    return list(zip(rows.tolist(), cols.tolist(), data.values.tolist(), strict=True))


# --- which column is what ------------------------------------------------------------------------


@every_library
def test_columns_go_by_name_whatever_their_order_and_company(library: str) -> None:
    columns = {
        "timestamp": [978300760, 978302109, 978301968],
        "rating": [5.0, 3.5, 1.0],
        "movieId": [10, 10, 7],
        "note": ["a", "b", "c"],
        "userId": [10_000_000, 10_000_001, 10_000_000],
    }
    data = as_matrix(LIBRARIES[library](columns))
    assert outside(data) == [(10_000_000, 10, 5.0), (10_000_001, 10, 3.5), (10_000_000, 7, 1.0)]
    assert data.shape == (2, 2)  # ids are mapped: no ten million rows
    named = {"a": columns["rating"], "b": columns["movieId"], "c": columns["userId"]}
    assert outside(as_data(LIBRARIES[library](named), user="c", item="b", rating="a")) == outside(data)
    assert outside(as_data(LIBRARIES[library](named), columns=("c", "b", "a"))) == outside(data)
    assert outside(as_data(LIBRARIES[library](named), columns=(2, 1, 0))) == outside(data)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["user", "item", "rating"], (0, 1, 2)),
        (["User-ID", "ISBN", "Book-Rating"], (0, 1, 2)),
        (["reviewerID", "asin", "reviewerName", "overall", "summary"], (0, 1, 3)),
        (["timestamp", "visitor id", "event", "itemid", "count"], (1, 3, 4)),
        (["r", "i", "u"], (2, 1, 0)),
        (["v", "j", "i"], (2, 1, 0)),
        (["", "user", "item", "rating"], (1, 2, 3)),
        (["doc", "word", "count"], (0, 1, 2)),
        ([0, 1, 2], (0, 1, 2)),
    ],
)
def test_well_known_names(names: list[Any], found: tuple[int, int, int]) -> None:
    assert find_roles(names, ColumnChoice()) == found


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["user", "item", "timestamp"], r'no column is called rating.*rating="timestamp", or.*columns=\(.user., .item'),
        (["user", "item"], r"columns=\('user', 'item'\) if every value is 1"),
        (["user", "item", "rating", "score"], "'rating' and 'score' may each be the rating column"),
        (["movie", "movieId", "user", "rating"], "'movie' and 'movieId' may each be the item column"),
        (["a", "b", "c"], 'which column is the user and item and rating; say it with user="…", item="…", rating="…"'),
        (["rating", "who", "what"], "which column is the user and item"),
        (["user", "alien", "brazil", "casablanca"], r'wide table.*frame.melt\("user"'),
        (["user", "1", "2"], "wide table"),
        (["x1", "x2", "x3", "x4", "x5"], "wide table"),
        ([0, 1, 2, 3], r"4 columns without names.*columns=\(0, 1, 2\)"),
        ([0, 1], "2 columns without names"),
    ],
)
def test_what_is_ambiguous_is_refused_with_the_way(names: list[Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        find_roles(names, ColumnChoice())


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"user": "who"}, "no column 'who'; its columns are user, item, rating"),
        ({"user": "item"}, 'user="item" and item="item" name one column|not clear'),
        ({"columns": (0, 1, 7)}, "no column 7"),
        ({"columns": (0, 1, -1)}, "-1 is neither a name nor a position from 0 on"),
        ({"columns": (0, 1, True)}, "True is neither"),
        ({"columns": (0, 1, 1.5)}, "1.5 is neither"),
        ({"columns": (0, 0, 1)}, "names or positions of user, item and rating"),
        ({"columns": (0, "user", 1)}, "takes one column twice"),
        ({"columns": (0,)}, "names or positions of user, item and rating"),
        ({"columns": "abc"}, "names or positions of user, item and rating"),
        ({"columns": 3}, "names or positions of user, item and rating"),
        ({"columns": (0, 1, 2), "user": "user"}, "says it again; leave one of them out"),
        ({"rating": 2}, r"rating=2: give the name of a column"),
    ],
)
def test_choices_that_mean_nothing(choice: dict[str, Any], says: str) -> None:
    frame = pd.DataFrame({"user": [1], "item": [2], "rating": [3.0]})
    with pytest.raises(DataError, match=says):
        as_data(frame, **choice)


def test_names_that_occur_twice_and_ids_in_the_index() -> None:
    with pytest.raises(DataError, match=r"two columns .* have one name"):
        as_data(pd.DataFrame([[1, 2, 3.0]], columns=["user", "user", "rating"]))
    indexed = pd.DataFrame({"user": [1], "item": [2], "rating": [3.0]}).set_index("user")
    with pytest.raises(DataError, match=r"index \(user\) is no column: frame.reset_index\(\) makes it one"):
        as_data(indexed)
    pivoted = pd.DataFrame({"user": [1, 2], "item": ["a", "b"], "rating": [3.0, 4.0]}).pivot(
        index="user", columns="item", values="rating"
    )
    with pytest.raises(DataError, match="not clear"):
        as_data(pivoted)


def test_a_structured_array_is_a_table_too() -> None:
    kind = [("rating", "f4"), ("item", "U3"), ("when", "i8"), ("user", "i8")]
    table = np.array([(5, "tea", 1, 70), (3, "rye", 2, 80)], dtype=kind)
    assert outside(as_data(table)) == [(70, "tea", 5.0), (80, "rye", 3.0)]


# --- ids ------------------------------------------------------------------------


@every_library
def test_ids_of_every_kind(library: str) -> None:
    frame = LIBRARIES[library]
    big = 2**62

    def ids(users: Any) -> list[Any]:
        found = as_data(frame({"user": users, "item": [1, 2], "rating": [1.0, 2.0]}))
        return [row for row, _, _ in outside(found)]

    assert ids([-5, big]) == [-5, big]
    assert ids(["007", "7"]) == ["007", "7"]
    assert ids(["zoë", " zoë"]) == ["zoë", " zoë"]
    assert ids([7.0, 8.0]) == [7, 8]
    assert ids(np.array([7, 8], np.uint8)) == [7, 8]


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pd.array([1, None], dtype="Int64"), "'user' has 1 missing ids, the first in row 1"),
        (pd.Series([1.0, np.nan]), "missing"),
        (pd.Series(["a", None]), "missing"),
        (pd.Series([True, False]), "true and false, which are no ids"),
        (pd.Series([1.5, 2.0]), "fractional"),
        (pd.Series([2.0**53, 1.0]), "very large"),
        (pd.Series(np.array([2**24, 1], np.float32)), "very large"),
        (pd.to_datetime(pd.Series(["2024-01-01", "2024-01-02"])), "Datetime.*which is no id"),
        (pd.Series([1, "a"], dtype=object), "all integers or all text; found 'a'"),
        (pd.Series([True, 7], dtype=object), "found True"),
        (pd.Series([2**70, 7], dtype=object), "does not fit 64 signed bits"),
        (pd.Series(np.array([2**63, 7], np.uint64)), "does not fit 64 signed bits; give such ids as text"),
        (pd.Series([[1], [2]], dtype=object), "all integers or all text"),
    ],
)
def test_what_cannot_be_ids(column: Any, says: str) -> None:
    frame = pd.DataFrame({"item": [1, 2], "rating": [1.0, 2.0]})
    frame["user"] = column
    with pytest.raises(DataError, match=says):
        as_data(frame)
    with pytest.raises(DataError):
        as_pairs(frame[["user", "item"]], IdMap.of([1, 7]), IdMap.of([1, 2]))


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pd.Series(["5", "4"]), "no numbers; convert it, or name another column with rating="),
        (pd.to_datetime(pd.Series(["2024-01-01", "2024-01-02"])), "no numbers"),
        (pd.array([1, None], dtype="Int64"), "1 missing values"),
        (pd.Series([1.0, np.inf]), "value inf at position 1"),
        (pd.Series([1.0, 1e39]), "does not fit a 32-bit float"),
    ],
)
def test_what_cannot_be_ratings(column: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        as_data(pd.DataFrame({"user": [1, 2], "item": [1, 2], "rating": column}))


def test_not_a_number_in_polars_and_categories_and_decimals() -> None:
    with pytest.raises(DataError, match="value nan at position 0"):
        as_data(pl.DataFrame({"user": [1], "item": [2], "rating": [float("nan")]}))
    with pytest.raises(DataError, match="128"):
        as_data(pl.DataFrame({"user": pl.Series([1], dtype=pl.Int128), "item": [2], "rating": [1.0]}))
    with pytest.raises(DataError, match="no id"):
        as_data(pl.DataFrame({"user": [datetime(2024, 1, 1)], "item": [2], "rating": [1.0]}))
    expected = [("b", 4, 1.0), ("a", 4, 2.0)]
    for kind in (pl.Categorical, pl.Enum(["a", "b"])):
        users = pl.Series(["b", "a"], dtype=kind)
        assert outside(as_data(pl.DataFrame({"user": users, "item": [4, 4], "rating": [1, 2]}))) == expected
    frame = pd.DataFrame({"user": pd.Categorical(["b", "a"]), "item": pd.Categorical([4, 4]), "rating": [1, 2]})
    assert outside(as_data(frame)) == expected
    frame = pd.DataFrame({"user": pd.array(["b", "a"], "string"), "item": pd.array([4, 4], "Int8"), "rating": [1, 2]})
    assert outside(as_data(frame)) == expected
    values = pa.array([Decimal("1.5"), Decimal("2.5")])
    assert as_data(pa.table({"user": [1, 2], "item": [1, 1], "rating": values})).values.tolist() == [1.5, 2.5]
    liked = as_data(pd.DataFrame({"user": [1, 2], "item": [1, 1], "rating": [True, False]}))
    assert liked.values.tolist() == [1.0, 0.0]


@every_library
def test_frames_of_no_and_of_one_row(library: str) -> None:
    empty = as_data(LIBRARIES[library]({"user": [], "item": [], "rating": []}))
    assert (len(empty), empty.shape) == (0, (0, 0))
    one = as_data(LIBRARIES[library]({"user": [9], "item": ["x"], "rating": [2]}))
    assert outside(one) == [(9, "x", 2.0)]


@pytest.mark.parametrize("n", [FEW - 1, FEW + 1])
@pytest.mark.parametrize("step", [1, 3, 10**9])
def test_mapping_is_the_same_for_few_and_for_many(n: int, step: int) -> None:
    ids = np.random.default_rng(0).permutation(n).astype(np.int64) * step - 5
    given = ids.copy()
    data = as_data((ids, np.zeros(n, np.int32), np.ones(n)), map_ids=True)
    assert data.row_ids is not None
    np.testing.assert_array_equal(data.row_ids.ids, np.sort(ids))
    np.testing.assert_array_equal(data.row_ids.decode(data.rows), given)
    np.testing.assert_array_equal(ids, given)


def test_a_map_of_integers_knows_them_as_python_writes_them() -> None:
    ids = IdMap.of([7, -3, 10])
    assert ids.encode(["7", "-3", "10"]).tolist() == [1, 0, 2]
    odd = ["007", " 7", "7 ", "+7", "7.0", "1_0", "٧", "", "seven", "-0", str(2**80)]
    assert ids.encode(odd, unknown="mark").tolist() == [-1] * len(odd)
    with pytest.raises(DataError, match=r"id '007' \(position 0\) is not among the 3 known ids"):
        ids.encode(["007"])
    assert IdMap.of(["7", "007"]).encode([7]).tolist() == [1]


# --- arrays and tuples ------------------------------------------------------------------------


def test_positions_stay_and_ids_in_disguise_are_refused() -> None:
    assert as_data(([0, 3], [2, 0], [1.0, 2.0])).shape == (4, 3)
    tuple_of_ids = ([10_000_000, 10_000_001], [1, 2], [1.0, 2.0])
    with pytest.raises(DataError, match=r"look like ids; pass map_ids=True .* or shape= to keep 10,000,002 rows"):
        as_data(tuple_of_ids)
    assert as_data(tuple_of_ids, map_ids=True).shape == (2, 2)
    assert as_data(tuple_of_ids, map_ids=False).shape == (10_000_002, 3)
    assert as_data(tuple_of_ids, shape=(20_000_000, 5)).shape == (20_000_000, 5)
    with pytest.raises(DataError, match="shape"):
        as_data(tuple_of_ids, shape=(20_000_000, 5), map_ids=True)
    for shape in ((1,), "ab", (1.5, 2), (-1, 2), 7):
        with pytest.raises(DataError, match="numbers of rows and columns"):
            as_data(([0], [0], [1.0]), shape=shape)  # type: ignore[arg-type]
    matrix = sparse.coo_array(([1.0], ([10_000_000], [1])), shape=(20_000_000, 2))
    assert as_data(matrix).shape == (20_000_000, 2)  # a matrix is as large as it says


def test_floats_that_are_not_exact_are_no_indices() -> None:
    for kind, exact in ((np.float16, 2**11), (np.float32, 2**24), (np.float64, 2**53)):
        rows = np.array([exact, 0], kind)
        with pytest.raises(DataError, match="too large for exact float"):
            as_data((rows, [0, 1], [1.0, 2.0]))
        with pytest.raises(DataError, match="very large"):
            as_data((rows, [0, 1], [1.0, 2.0]), map_ids=True)
    assert as_data((np.array([2**24 - 1], np.float32), [0], [1.0]), map_ids=False).shape == (2**24, 1)


def test_an_array_of_records_is_named_as_one() -> None:
    array = np.array([[70, 9, 4, 978300760], [80, 9, 5, 978302109]])
    expected = [(70, 9, 4.0), (80, 9, 5.0)]
    assert outside(as_data(array, columns=(0, 1, 2))) == expected
    assert outside(as_data(array[:, :3].astype(float), columns=(0, 1, 2))) == expected
    assert outside(as_data(array[:, [2, 1, 0]], columns=(2, 1, 0))) == expected
    assert outside(as_data(array, columns=(0, 1))) == [(70, 9, 1.0), (80, 9, 1.0)]
    for matrix in (array[:, :3], np.array([[5, 3, 1], [4, 2, 0], [1, 1, 5], [2, 5, 4]]), [[1, 2, 3], [4, 5, 6]]):
        with pytest.raises(DataError, match=r"may be a matrix or .*records.*columns=\(0, 1, 2\)"):
            as_data(matrix)
        with pytest.raises(DataError, match=r"may be a matrix .*records.*columns=\(0, 1, 2\)"):
            as_matrix(matrix)
    with pytest.raises(DataError, match="may be a matrix of ratings or records"):
        as_matrix(array)  # the fourth column holds time stamps
    assert as_matrix(array % 97).shape == (2, 4)  # and here it does not
    assert as_matrix(array[:, :3] - 0.5).shape == (2, 3)
    records = [("ann", 7, 5.0), ("bob", 9, 3.0)]
    assert outside(as_data(records)) == records
    assert outside(as_matrix(np.array(records, dtype=object))) == records
    with pytest.raises(DataError, match="have no names; give positions"):
        as_data(array, columns=("user", "item"))


def test_a_list_of_three_lists_is_no_tuple_of_columns() -> None:
    rows = [[0, 1, 2, 3], [1, 0, 1, 0], [5, 4, 3, 2]]
    assert len(as_data(tuple(rows))) == 4
    with pytest.raises(DataError, match="cannot read ratings from list"):
        as_data(rows)
    assert as_matrix(rows).shape == (3, 4)


@pytest.mark.parametrize("series", [pd.Series, pl.Series, lambda x: pa.chunked_array([pa.array(x)])])
def test_a_tuple_of_series(series: Any) -> None:
    data = as_data((series(["b", "a"]), series([1, 0]), series([1.0, 2.0])))
    assert outside(data) == [("b", 1, 1.0), ("a", 0, 2.0)]
    with pytest.raises(DataError, match="missing"):
        as_data((series([1, None]), series([1, 0]), series([1.0, 2.0])))
    with pytest.raises(DataError, match="missing"):
        as_data((series([1, 2]), series([1, 0]), series([1.0, None])))


def test_masked_entries_and_mixed_lists_are_refused() -> None:
    with pytest.raises(DataError, match="1 entries are masked"):
        as_data((np.ma.array([0, 1], mask=[False, True]), [0, 1], [1.0, 2.0]))
    with pytest.raises(DataError, match="masked"):
        as_matrix(np.ma.array([[1.0, 2.5], [3.0, 4.0]], mask=[[False, True], [False, False]]))
    with pytest.raises(DataError, match="all integers or all text"):
        as_data(([1, "a"], [0, 1], [1.0, 2.0]))


@pytest.mark.parametrize("X", [None, 7, "text", b"bytes", {}, [], [[]], [[1], [2, 3]], object(), np.zeros((2, 2, 2))])
def test_what_is_no_data(X: Any) -> None:
    with pytest.raises(DataError):
        as_data(X)


# --- damaged sparse matrices ------------------------------------------------------------------------


def damaged(kind: str) -> dict[str, Any]:
    def change(name: str, function: Callable[[Any], Any], form: str = kind) -> Any:
        matrix = sparse.random(30, 20, 0.3, format=form, random_state=0)
        setattr(matrix, name, function(getattr(matrix, name).copy()))
        return matrix

    def at(place: int, value: int) -> Callable[[Any], Any]:
        def put(array: Any) -> Any:
            array[place] = value
            return array

        return put

    if kind == "coo":
        return {
            "row": change("row", at(3, 2**30)),
            "negative": change("col", at(3, -7)),
            "short": change("data", lambda array: array[:-5]),
        }
    return {
        "index": change("indices", at(3, 2**30)),
        "negative": change("indices", at(3, -7)),
        "bounds fall": change("indptr", at(3, 10**6)),
        "bounds begin": change("indptr", at(0, -5)),
        "bounds end": change("indptr", at(-1, 10**6)),
        "bounds short": change("indptr", lambda array: array[:-3]),
        "entries short": change("indices", lambda array: array[:-5]),
        "data short": change("data", lambda array: array[:-5]),
        "fractional": change("indices", lambda array: array.astype(float)),
    }


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo"])
def test_damaged_sparse_matrices_are_refused_before_scipy_trusts_them(kind: str) -> None:
    for name, matrix in damaged(kind).items():
        with pytest.raises(DataError, match=r"is damaged: .*build the matrix anew"):
            raise AssertionError(f"{name}: {as_data(matrix)}")


def test_sums_of_small_integers_do_not_wrap() -> None:
    values, places = np.array([100, 100], np.int8), ([0, 0], [1, 1])
    for form in ("coo", "csr"):
        matrix = sparse.coo_array((values, places), shape=(2, 2))
        if form == "csr":
            matrix = sparse.csr_array((values, [1, 1], [0, 2, 2]), shape=(2, 2))
        assert dict(as_data(matrix)) == {(0, 1): 200.0}
        assert matrix.data.dtype == np.int8


# --- estimators ------------------------------------------------------------------------


@every_library
def test_pairs_go_by_name(library: str) -> None:
    users, items = IdMap.of([10, 20]), IdMap.of(["a", "b"])
    frame = LIBRARIES[library]({"item": ["b", "zzz"], "when": [1, 2], "user": [20, 10]})
    rows, cols = as_pairs(frame, users, items)
    assert (rows.tolist(), cols.tolist()) == ([1, 0], [1, -1])
    for names in (["a", "b"], ["user", "b"], ["user", "userId", "item"]):
        other = LIBRARIES[library]({name: [20] for name in names})
        # Advice that can be followed: predict has no arguments that name columns.
        with pytest.raises(DataError, match="not clear which columns are the user and the item; rename them") as said:
            as_pairs(other, users, items)
        assert "user=" not in str(said.value)
        if library != "Polars, lazy":  # whose columns have no values yet
            assert as_pairs((other[names[0]], other[names[1]]), users, users)[0].tolist() == [1]


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame({"who": ["a", "b"], "what": ["x", "y"], "rating": [1.0, 2.0]}),
        pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "score": [1.0, 2.0], "rating": [1.0, 2.0]}),
        (np.array([1, 9_000_000]), np.array([0, 1]), np.array([1.0, 2.0])),
    ],
    ids=["unknown names", "two ratings", "positions that look like ids"],
)
def test_an_estimator_says_whose_arguments_it_advises(X: Any) -> None:
    with pytest.raises(DataError, match=r"(user|rating|map_ids)=.* \(arguments of st\.as_data, whose result estim"):
        st.MatrixFactorization().fit(X)


def test_data_in_the_numbering_of_another() -> None:
    users, items = AxisIds(IdMap.of([10, 20]), 2, "row"), AxisIds(IdMap.of(["a", "b"]), 2, "column")

    def numbered(X: Any, rows: AxisIds, cols: AxisIds) -> list[Any]:
        found = aligned(entries_of(X, None, "error", named=True), rows, cols)
        return list(zip(found.rows.tolist(), found.cols.tolist(), found.values.tolist(), strict=True))

    frame = pd.DataFrame({"user": [20, 10, 30], "item": ["b", "a", "c"], "rating": [1.0, 2.0, 3.0]})
    assert numbered(frame, users, items) == [(1, 1, 1.0), (0, 0, 2.0), (-1, -1, 3.0)]
    # A model that knows ids is asked by ids, in a tuple of arrays too.
    by_tuple = tuple(frame[name].to_numpy() for name in ("user", "item", "rating"))
    assert numbered(by_tuple, users, items) == numbered(frame, users, items)
    # A side that was trained on positions takes integers as positions, not as ranks among the new ones.
    places = AxisIds(None, 8, "column")
    mixed = pd.DataFrame({"user": [20, 10], "item": [7, 3], "rating": [1.0, 2.0]})
    assert numbered(mixed, users, places) == [(1, 7, 1.0), (0, 3, 2.0)]
    with pytest.raises(DataError, match="the model knows columns by index, and these data name them by text"):
        numbered(frame, users, places)


def test_a_model_of_a_frame_with_large_ids() -> None:
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 40, (400, 2)), axis=0)
    frame = pl.DataFrame(
        {"rating": rng.integers(1, 6, len(pairs)), "movie_id": pairs[:, 1] + 10**9, "user_id": pairs[:, 0] + 10**7}
    )
    model = st.MatrixFactorization(n_components=2, max_iter=2, random_state=0).fit(frame)
    assert model.user_factors_.shape[0] == len(np.unique(pairs[:, 0]))
    best, _ = model.recommend([10**7 + int(pairs[0, 0])], 2)
    assert set(best.ravel().tolist()) <= {int(item) + 10**9 for item in pairs[:, 1]}
