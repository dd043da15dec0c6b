"""Serving of factor models: filters, similar rows, explanations, arrays, updates, and what loading imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import stretto as st
from jobs import some_ratings
from stretto.errors import DataError, PlanError
from stretto.solvers.factorization.penalties import penalties

DATA = some_ratings(3000, 90, 70)
USERS = np.array([f"user {i:02}" for i in range(90)])
ITEMS = np.array([f"item {j:02}" for j in range(70)])
RATINGS = USERS[DATA.rows], ITEMS[DATA.cols], DATA.values
COUNTS = USERS[DATA.rows], ITEMS[DATA.cols], np.maximum(np.round(3 * np.abs(DATA.values)), 1)
DATA_PAIRS = np.stack(RATINGS[:2], axis=1)
LOSSES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "als": {"solver": "als"},
    "no biases": {"solver": "als", "biases": False},
    "ccd": {"solver": "ccd"},
    "absolute": {"loss": "absolute"},
    "logistic": {"loss": "logistic"},
    "implicit": {"solver": "als", "implicit": True},
    "bpr": {"loss": "bpr"},
    "warp": {"loss": "warp"},
    "ranking, logistic": {"loss": "logistic", "implicit": True},
}


def fitted(name: str, data: Any = None, **more: Any) -> st.MatrixFactorization:
    given = {"n_components": 5, "max_iter": 6, "random_state": 0, "n_jobs": 2} | LOSSES[name] | more
    counts = name in {"implicit", "bpr", "warp", "ranking, logistic"}
    made: st.MatrixFactorization = st.MatrixFactorization(**given).fit(data or (COUNTS if counts else RATINGS))
    return made


@pytest.fixture(scope="module")
def als() -> st.MatrixFactorization:
    return fitted("als")


def scores_of(model: Any) -> Any:
    """Every score, by NumPy from the plain arrays."""
    a = model.to_numpy()
    return a["mean"] + a["user_bias"][:, None] + a["item_bias"] + a["user_factors"] @ a["item_factors"].T


def brute(model: Any, users: list[int], n: int, allowed: Any) -> list[list[str]]:
    """The best items by NumPy. allowed(user): the positions it may get."""
    scores = scores_of(model)
    found = []
    for user in users:
        may = np.array(sorted(allowed(user)), int)
        found.append(ITEMS[may[np.argsort(-scores[user, may], kind="stable")]][:n].tolist())
    return found


def seen(user: int) -> set[int]:
    return set(DATA.cols[DATA.rows == user].tolist())


# --- filters and frames ------------------------------------------------------------------------------------------


def test_filter_lists_by_brute_force(als: Any) -> None:
    asked, everything = [3, 50, 3, 88], set(range(70))
    some, banned = set(range(0, 70, 2)), {4, 8, 60}
    own, without = {3: {1, 2, 3, 4, 5, 60}}, {50: {10, 12, 14}, 88: set(range(40))}
    cases: list[tuple[dict[str, Any], Any]] = [
        ({}, lambda u: everything - seen(u)),
        ({"filter_seen": False, "exclude": ITEMS[sorted(banned)]}, lambda u: everything - banned),
        ({"items": set(ITEMS[sorted(some)]), "exclude": ITEMS[4:5]}, lambda u: some - {4} - seen(u)),
        (
            {
                "items": {f"user {u:02}": ITEMS[sorted(one)] for u, one in own.items()},
                "exclude": {f"user {u:02}": ITEMS[sorted(one)] for u, one in without.items()},
            },
            lambda u: own.get(u, everything) - without.get(u, set()) - seen(u),
        ),
        (
            {"items": ITEMS[sorted(some)], "exclude": {"user 50": ["item 10"]}, "filter_seen": False},
            lambda u: some - ({10} if u == 50 else set()),
        ),
    ]
    for options, allowed in cases:
        wanted = brute(als, asked, 6, allowed)
        bits = []
        for jobs in (1, 2, 4):
            found, scores = als.set_params(n_jobs=jobs).recommend(USERS[asked], 6, **options)
            bits.append(scores.tobytes())
            for k, best in enumerate(wanted):
                assert found[k].tolist() == best + [""] * (6 - len(best)), options
                assert np.isneginf(scores[k, len(best) :]).all()
        assert len(set(bits)) == 1
    assert als.recommend([], 3, exclude={"user 50": ["item 10"]})[0].shape == (0, 3)


def test_lists_of_many_users_are_merged_in_batches(als: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = {name: ITEMS[k % 60 : k % 60 + 10] for k, name in enumerate(USERS)}
    whole = als.recommend(USERS, 4, exclude=lists)
    monkeypatch.setattr("stretto.models.factorization.serving.filters._MASK_BYTES", 700)
    for one, other in zip(als.recommend(USERS, 4, exclude=lists), whole, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames(als: Any, kind: str) -> None:
    library = pytest.importorskip({"arrow": "pyarrow"}.get(kind, kind))
    users, options = ["user 07", "user 03"], {"items": {"user 03": ["item 01", "item 02"]}, "filter_seen": False}
    found, scores = als.recommend(users, 3, **options)
    frame = als.recommend(users, 3, **options, as_frame=kind)
    columns = frame.to_pydict() if kind == "arrow" else {name: frame[name].to_list() for name in frame.columns}
    assert columns["user"] == ["user 07"] * 3 + ["user 03"] * 2
    assert columns["item"] == found[0].tolist() + found[1][:2].tolist()
    assert columns["rank"] == [1, 2, 3, 1, 2]
    assert columns["score"] == pytest.approx([*scores[0].tolist(), *scores[1][:2].tolist()])
    brought = library.array(["user 07"]) if kind == "arrow" else library.Series(["user 07"])
    assert type(als.recommend(brought, 1, as_frame=True)).__module__.split(".")[0] == library.__name__
    similar = als.similar_items(["item 03"], 2, as_frame=kind)
    assert list(similar.column_names if kind == "arrow" else similar.columns) == ["item", "similar", "rank", "score"]
    assert len(als.recommend_new({"item 03": 4.0}, n=2, as_frame=kind)) == 2


def test_what_is_asked_wrongly(als: Any) -> None:
    with pytest.raises(DataError, match=r"no row 'nobody'.*recommend_new\(their ratings"):
        als.recommend(["nobody"])
    with pytest.raises(DataError, match="no column 'nothing' in the training data; it has 70, such as 'item 00'"):
        als.recommend(USERS[:1], exclude=["nothing"])
    with pytest.raises(DataError, match="no row 'nobody'"):
        als.recommend(USERS[:1], items={"nobody": ["item 01"]})
    for method, ids in (("similar_users", USERS), ("similar_items", ITEMS)):
        with pytest.raises(DataError, match=r"there is no (row|column) 'x'"):
            getattr(als, method)(["x"])
        with pytest.raises(PlanError, match=f"{method}: metric must be"):
            getattr(als, method)(ids[:1], metric="euclid")
        with pytest.raises(PlanError, match=f"{method}: n must be"):
            getattr(als, method)(ids[:1], 0)
        with pytest.raises(PlanError, match=f"{method}: as_frame must be True, False, 'pandas'"):
            getattr(als, method)(ids[:1], as_frame="excel")
    with pytest.raises(DataError, match="takes one user, got 2"):
        als.explain_recommendation(USERS[:2], "item 01")
    with pytest.raises(DataError, match=r"ratings is a mapping \{item: rating\}, got list"):
        als.explain_recommendation("user 01", "item 01", ratings=["item 02"])
    with pytest.raises(DataError, match=r"ratings is a mapping \{item: rating\}, got dok_array"):
        als.explain_recommendation("user 01", "item 01", ratings=scipy.sparse.dok_array((1, 2)))
    with pytest.raises(DataError, match="the rating of 'item 02' is 'good'"):
        als.recommend_new({"item 02": "good"})
    with pytest.raises(DataError, match="there are no ratings"):
        als.recommend_new({})
    with pytest.raises(TypeError, match=r"Recommender\.load"):
        st.Recommender()


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.recommend(USERS[:1], exclude=[np.nan]),
        lambda m: m.recommend(USERS[:1], exclude={"user 01": None}),
        lambda m: m.recommend(USERS[:1], items=[["item 01"]]),
        lambda m: m.recommend(USERS[:1], True),
        lambda m: m.recommend(None),
        lambda m: m.recommend_new({"a": {"item 01": 1}, "b": 3}),
        lambda m: m.recommend_new({"a": {"item 01": 1}, 2: {"item 01": 3}}),
        lambda m: m.recommend_new({"item 01": float("nan")}),
        lambda m: m.recommend_new({"nothing": 1.0}),
        lambda m: m.explain_recommendation("user 01", None),
        lambda m: m.explain_recommendation("user 01", "item 02", ratings={"item 01": float("inf")}),
        lambda m: m.explain_recommendation("user 01", "item 02", ratings={"item 01": 1e30}),
        lambda m: m.explain_recommendation("user 01", "item 02", ratings={}),
        lambda m: m.similar_users(None),
    ],
)
def test_hostile_arguments_are_refused_by_name(als: Any, call: Any) -> None:
    with pytest.raises((DataError, PlanError)):
        call(als)


# --- new users, similar rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
def test_new_users_in_one_call_and_why(name: str) -> None:
    model = fitted(name)
    ratings = {"ada": {"item 01": 4.0, "item 07": 1.0, "item 33": 2.0}, "bo": {"item 02": 3.0, "item 50": 1.0}}
    users, items, scores = model.recommend_new(ratings, n=4)
    assert users.tolist() == ["ada", "bo"]
    new = model.fold_in(ratings)
    for one, other in zip(new.recommend(4), (items, scores), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not {"item 01", "item 07", "item 33"} & set(items[0].tolist())
    excluded = model.recommend_new(ratings, n=4, exclude={"ada": items[0][:1]})[1]
    assert excluded[0][:3].tolist() == items[0][1:].tolist()
    for user, own in ratings.items():
        for why in new.explain_recommendation(user, ITEMS[10:20]):
            assert sorted(why.items.tolist()) == sorted(own)
            assert dict(zip(why.items.tolist(), why.values.tolist(), strict=True)) == own
            assert why.score == pytest.approx(float(new.predict([[user, why.item]])[0]), abs=1e-6)
            assert abs(why.rest) < 2e-4 * max(1.0, np.abs(why.contributions).sum())
            assert np.all(np.diff(why.contributions) <= 0)
    # A user of training: the parts add up to the score that recommend and predict give.
    why = model.explain_recommendation("user 05", "item 40")
    parts = why.mean + why.item_bias + why.contributions.sum() + why.rest
    assert why.score == pytest.approx(float(model.predict([["user 05", "item 40"]])[0]), abs=1e-6)
    assert parts == pytest.approx(why.score, abs=1e-9)
    bits = {
        model.set_params(n_jobs=jobs).explain_recommendation("user 05", "item 40").contributions.tobytes()
        for jobs in (1, 2, 4)
    }
    assert len(bits) == 1


def test_ways_to_write_new_ratings(als: Any) -> None:
    one = als.recommend_new({"item 01": 4.0, "item 07": 1.0}, n=3)
    assert one[0].tolist() == [0]
    table = (np.array(["eve", "eve"]), np.array(["item 01", "item 07"]), np.array([4.0, 1.0]))
    np.testing.assert_array_equal(als.recommend_new(table, n=3)[1], one[1])
    pairs = als.recommend_new([["eve", "item 01"], ["eve", "item 07"]], [4.0, 1.0], n=3)
    np.testing.assert_array_equal(pairs[2], one[2])
    lists = fitted("implicit").recommend_new({"eve": ["item 01", "item 07"], "bo": {"item 02"}}, n=3)
    assert lists[0].tolist() == ["bo", "eve"]
    by_index = st.MatrixFactorization(4, solver="als", max_iter=3, random_state=0).fit(DATA)
    assert by_index.recommend_new({3: 4.0, 9: 2.0}, n=2)[1].shape == (1, 2)


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_similar_users_and_items_by_brute_force(als: Any, metric: str) -> None:
    for method, factors, ids in (
        ("similar_users", als.user_factors_, USERS),
        ("similar_items", als.item_factors_, ITEMS),
    ):
        vectors = factors.astype(float)
        if metric == "cosine":
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        similarity = vectors @ vectors.T
        np.fill_diagonal(similarity, -np.inf)
        bits = set()
        for jobs in (1, 2, 4):
            found, scores = getattr(als.set_params(n_jobs=jobs), method)(ids, 5, metric=metric)
            bits.add(scores.tobytes())
        np.testing.assert_array_equal(found, ids[np.argsort(-similarity, axis=1, kind="stable")[:, :5]])
        np.testing.assert_allclose(scores, -np.sort(-similarity, axis=1)[:, :5], rtol=1e-4, atol=1e-5)
        assert len(bits) == 1


# --- why ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["als", "sgd", "implicit", "no biases"])
def test_contributions_are_those_of_the_linear_smoother(name: str) -> None:
    """In NumPy: the solution for a row is A⁻¹ Σ w z Y, and a term of it for each rating."""
    model = fitted(name)
    learned, user, item = model._learned, 5, 40
    reg, problem = penalties(learned.problem, learned.scale), learned.problem
    mine = np.flatnonzero(DATA.rows == user)
    cols, values = DATA.cols[mine], (COUNTS if name == "implicit" else RATINGS)[2][mine].astype(float)
    ones = [np.ones((70, 1))] if problem.biases else []
    Y = np.hstack([model.item_factors_ / np.sqrt(learned.scale), *ones]).astype(float)
    ridge = np.full(Y.shape[1], reg.factors * len(cols) + reg.ridge)
    if problem.biases:
        ridge[-1] = reg.biases * len(cols) + reg.bias_ridge
    if name == "implicit":
        c = learned.confidence * values
        A = Y.T @ Y + (Y[cols].T * c) @ Y[cols] + reg.factors * (len(cols) + c.sum()) * np.eye(Y.shape[1])
        response = 1 + c
    else:
        A = Y[cols].T @ Y[cols] + np.diag(ridge)
        response = (values - model.mean_ - model.item_bias_[cols]) / learned.scale
    wanted = learned.scale * (Y[cols] @ np.linalg.solve(A, Y[item])) * response
    why = model.explain_recommendation(f"user {user:02}", f"item {item:02}")
    found = dict(zip(why.items.tolist(), why.contributions.tolist(), strict=True))
    assert [found[name] for name in ITEMS[cols]] == pytest.approx(wanted.tolist(), rel=1e-4, abs=1e-5)
    assert why.mean == model.mean_
    assert "score" in str(why)
    assert len(why.to_frame("pandas")) == len(cols)


def test_als_at_its_minimum_leaves_no_rest() -> None:
    why = fitted("als", max_iter=60).explain_recommendation("user 05", "item 40")
    assert abs(why.rest) < 1e-3 < np.abs(why.contributions).sum()


@pytest.mark.parametrize("loss", ["bpr", "warp"])
def test_steps_are_counted_for_the_item_they_were_made_for(loss: str) -> None:
    """Item k alone has component k, and the only one that can be drawn is 2: only item 0 moves component 0."""
    model = fitted(loss, n_components=3, biases=False)
    model.item_factors_ = np.zeros_like(model.item_factors_)
    model.item_factors_[[0, 1, 2], [0, 1, 2]] = 1.0
    new = model.fold_in({"item 00": 1.0, "item 01": 1.0})
    for item in (0, 1):
        why = new.explain_recommendation(0, f"item {item:02}")
        assert why.items[0] == f"item {item:02}"
        assert why.contributions[0] == pytest.approx(why.score, rel=1e-4)
        assert why.contributions[0] > 0.1
        assert why.contributions[1] == 0


# --- arrays, files, Recommender ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["als", "implicit"])
def test_plain_arrays_give_the_predictions(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    model.export(tmp_path / "model.npz")
    model.export(tmp_path / "folder")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        one = {key: file[key] for key in file.files}
    two = {path.stem: np.load(path, allow_pickle=False, mmap_mode="r") for path in (tmp_path / "folder").glob("*.npy")}
    assert one.keys() == two.keys() == model.to_numpy().keys()
    for a in (one, two):
        np.testing.assert_array_equal(a["user_ids"], USERS)
        scores = a["mean"] + a["user_bias"][:, None] + a["item_bias"] + a["user_factors"] @ a["item_factors"].T
        pairs = [[u, i] for u in USERS[:9] for i in ITEMS]
        np.testing.assert_allclose(scores[:9].ravel(), model.predict(pairs), rtol=1e-5, atol=1e-5)


def test_a_recommender_gives_the_bits_of_the_model(als: Any, tmp_path: Path) -> None:
    als.save(tmp_path / "model")
    als.save(tmp_path / "more", ratings=True)
    light, more = st.Recommender.load(tmp_path / "model"), st.Recommender.load(tmp_path / "more", n_jobs=1)
    own = als.recommender()
    assert repr(light) == "Recommender(90 users, 70 items, 5 components)"
    new = {"ada": {"item 01": 4.0, "item 07": 1.0}}
    lists: dict[str, Any] = {"exclude": {"user 02": ["item 03"]}}
    for other in (light, more, own):
        for _ in range(2):  # with and without what it keeps
            for a, b in (
                (als.recommend(USERS, 4, **lists), other.recommend(USERS, 4, **lists)),
                (als.recommend_new(new), other.recommend_new(new)),
                (als.similar_users(USERS), other.similar_users(USERS)),
                ([als.predict([["user 01", "item 02"]])], [other.predict([["user 01", "item 02"]])]),
            ):
                for x, y in zip(a, b, strict=True):
                    np.testing.assert_array_equal(x, y)
    wanted = als.explain_recommendation("user 05", "item 40")
    ratings = dict(zip(wanted.items.tolist(), wanted.values.tolist(), strict=True))
    for why in (
        more.explain_recommendation("user 05", "item 40"),
        own.explain_recommendation("user 05", ["item 40"])[0],
        light.explain_recommendation("user 05", "item 40", ratings=ratings),
        st.MatrixFactorization.load(tmp_path / "more").explain_recommendation("user 05", "item 40"),
    ):
        np.testing.assert_array_equal(why.contributions, wanted.contributions)
    for without in (light, st.MatrixFactorization.load(tmp_path / "model")):
        with pytest.raises(DataError, match=r"does not know the values.*save\(path, ratings=True\)"):
            without.explain_recommendation("user 05", "item 40")
    with pytest.raises(DataError, match="without the ratings"):
        st.MatrixFactorization.load(tmp_path / "model").save(tmp_path / "again", ratings=True)
    with pytest.raises(DataError, match="no such model file"):
        st.Recommender.load(tmp_path / "nothing")


def test_loading_imports_no_compiler(als: Any, tmp_path: Path) -> None:
    als.save(tmp_path / "model")
    code = "import stretto, sys\nstretto.{}.load(sys.argv[1])\nprint(*[m for m in {} if m in sys.modules])"
    heavy = ("numba", "llvmlite", "scipy", "sklearn", "pandas", "stretto.data")
    for name, left_out in (("Recommender", heavy), ("MatrixFactorization", heavy[:2])):
        command = [sys.executable, "-c", code.format(name, left_out), str(tmp_path / "model")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [], name


# --- further ratings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["als", "ccd", "implicit", "no biases"])
def test_further_ratings_of_least_squares(name: str, tmp_path: Path) -> None:
    """New users, new items and new ratings of known ones: solved for exactly, and nothing else is touched."""
    users, items, values = COUNTS if name == "implicit" else RATINGS
    rng = np.random.default_rng(0)
    late = (DATA.rows >= 80) | (DATA.cols >= 65) | ((DATA.rows < 10) & (rng.random(len(users)) < 0.1))
    parts = [(users[mask], items[mask], values[mask]) for mask in (~late, late)]
    made = []
    for jobs in (1, 2, 4):
        model = fitted(name, parts[0], n_jobs=jobs)
        before = model.to_numpy()
        made.append(model.partial_fit(parts[1]).to_numpy())
    for other in made[1:]:
        for key, array in made[0].items():
            np.testing.assert_array_equal(array, other[key])
    assert model.n_ratings_ == len(users)
    np.testing.assert_array_equal(made[0]["user_ids"], USERS)
    # Users of the further ratings are what their ratings, all of them, say with these items; others stay.
    touched = np.unique(DATA.rows[late])
    all_of = np.isin(DATA.rows, touched)
    new = model.fold_in((users[all_of], items[all_of], values[all_of]))
    np.testing.assert_array_equal(new.factors, model.user_factors_[touched])
    np.testing.assert_array_equal(new.bias, model.user_bias_[touched])
    left = np.setdiff1d(np.arange(80), touched)
    np.testing.assert_array_equal(model.user_factors_[left], before["user_factors"][left])
    others = np.setdiff1d(np.arange(65), DATA.cols[late])
    np.testing.assert_array_equal(model.item_factors_[others], before["item_factors"][others])
    # What they have is seen, and a rating of a known pair replaces the earlier one.
    assert not set(model.recommend(["user 85"], 70)[0][0].tolist()) & set(items[DATA.rows == 85].tolist())
    row, again = users[:1], (users[:1], items[:1], np.array([1.0], np.float32))
    model.save(tmp_path / "model", ratings=True)
    bits, entries = [], []
    for policy in ("error", "last", "first", "keep"):
        loaded = st.MatrixFactorization.load(tmp_path / "model").set_params(duplicates=policy).partial_fit(again)
        bits.append(loaded.user_factors_[np.flatnonzero(row[0] == USERS)].tobytes())
        entries.append(loaded.n_ratings_ - len(users))
    assert entries == [0, 0, 0, 1]
    assert bits[0] == bits[1]
    assert len(set(bits)) == 3
    with pytest.raises(DataError, match="occurs twice"):
        model.partial_fit(tuple(np.tile(part, 2) for part in again))


def test_further_ratings_gain_most_of_what_a_fit_gains() -> None:
    late = np.random.default_rng(1).random(len(DATA)) < 0.2
    parts = [tuple(a[mask] for a in RATINGS) for mask in (~late, late)]
    model, whole = fitted("als", parts[0], max_iter=15), fitted("als", max_iter=15)
    before = model.score(DATA_PAIRS, DATA.values)
    model.partial_fit(parts[1])
    after, best = model.score(DATA_PAIRS, DATA.values), whole.score(DATA_PAIRS, DATA.values)
    assert after - before > 0.5 * (best - before)


def test_the_first_part_is_a_fit_and_a_file_without_ratings_is_refused(tmp_path: Path) -> None:
    given: dict[str, Any] = {"n_components": 4, "solver": "als", "max_iter": 4, "random_state": 0}
    first = st.MatrixFactorization(**given).partial_fit(RATINGS)
    np.testing.assert_array_equal(first.user_factors_, st.MatrixFactorization(**given).fit(RATINGS).user_factors_)
    first.save(tmp_path / "model")
    with pytest.raises(DataError, match=r"needs the earlier ratings.*save\(path, ratings=True\)"):
        st.MatrixFactorization.load(tmp_path / "model").partial_fit((["x"], ["item 01"], [3.0]))
