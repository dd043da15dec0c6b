"""Side features: what they add, that they do no harm, the same bits everywhere, and rows from features alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import stretto as st
from stretto.errors import DataError, PlanError
from stretto.models.factorization.estimator import MatrixFactorization
from stretto.models.factorization.side.tables import read_features
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.runtimes import Serial, Threads
from stretto.runtime.session import Session
from stretto.solvers.factorization.features import NO_MAP, FeatureRegression

USERS, ITEMS, COLD = 1200, 100, 100


class Planted:
    """Ratings whose user factors follow from features; the last `COLD` users have no ratings in `X`."""

    def __init__(self) -> None:
        r = np.random.default_rng(0)
        self.F = (r.random((USERS, 12)) < 0.3).astype(float)
        self.noise = (r.random((USERS, 12)) < 0.3).astype(float)
        self.W = (self.F - 0.3) @ r.normal(size=(12, 3)) * 0.8 + 0.3 * r.normal(size=(USERS, 3))
        self.H = r.normal(size=(ITEMS, 3))
        self.rows = np.repeat(np.arange(USERS), 12)
        self.cols = np.concatenate([r.choice(ITEMS, 12, replace=False) for _ in range(USERS)])
        self.values = 3 + (self.W[self.rows] * self.H[self.cols]).sum(axis=1) + 0.4 * r.normal(size=len(self.rows))
        cold, held = self.rows >= USERS - COLD, r.random(len(self.rows)) < 0.1
        self.cold, self.held, known = cold, ~cold & held, ~cold & ~held
        self.X = self.matrix(known)

    def matrix(self, which: Any) -> Any:
        values, at = self.values[which], (self.rows[which], self.cols[which])
        return sp.csr_matrix((values, at), shape=(USERS, ITEMS))

    def rmse(self, model: MatrixFactorization, which: Any) -> float:
        pairs = np.stack([self.rows[which], self.cols[which]], axis=1)
        return float(np.sqrt(np.mean((model.predict(pairs) - self.values[which]) ** 2)))


PLANTED = Planted()


def model(**parameters: Any) -> MatrixFactorization:
    return MatrixFactorization(**{"n_components": 4, "max_iter": 15, "random_state": 0, "n_jobs": 2} | parameters)


def same(a: MatrixFactorization, b: MatrixFactorization) -> None:
    for name in ("user_factors_", "item_factors_", "user_bias_", "item_bias_"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


# --- what a fit learns -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["sgd", "als"])
def test_features_help_and_useless_ones_do_no_harm(solver: str) -> None:
    p = PLANTED
    plain, useful, useless = (
        model(solver=solver).fit(p.X, user_features=features) for features in (None, p.F, sp.csr_matrix(p.noise))
    )
    assert p.rmse(useful, p.held) < 0.97 * p.rmse(plain, p.held)
    assert p.rmse(useful, p.cold) < 0.8 * p.rmse(plain, p.cold)
    assert p.rmse(useless, p.held) < 1.003 * p.rmse(plain, p.held)
    assert p.rmse(useless, p.cold) < 1.003 * p.rmse(plain, p.cold)
    assert np.isinf(useless.user_feature_map_.penalty).all()
    assert plain.user_feature_map_ is None
    assert useful.item_feature_map_ is None


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "absolute", "biases": False},
        {"solver": "als"},
        {"solver": "als", "linear_solver": "cg"},
        {"solver": "als", "implicit": True},
        {"loss": "bpr"},
    ],
    ids=str,
)
def test_same_bits_for_any_number_of_workers_and_the_plan_knows_the_features(options: Any) -> None:
    p, small = PLANTED, {"max_iter": 4} | options
    features = {"user_features": p.F, "item_features": p.H}
    serial = model(runtime=Serial(), **small).fit(p.X, **features)
    for workers in (2, 4):
        threads = model(n_jobs=workers, **small).fit(p.X, **features)
        same(serial, threads)
        assert threads.fingerprint_ == serial.fingerprint_
    assert model(**small).plan(p.X, **features).fingerprint == serial.fingerprint_
    assert model(**small).plan(p.X, user_features=p.F).fingerprint != serial.fingerprint_
    assert model(**small).plan(p.X).fingerprint == model(**small).fit(p.X).fingerprint_
    same(serial, model(**small).plan(p.X, **features).run())
    assert np.isfinite(serial.user_factors_).all()
    assert serial.user_factors_[-COLD:].any(), "users without ratings have the factors of their features"


def test_a_run_goes_on_from_its_checkpoint_with_the_same_bits(tmp_path: Path) -> None:
    for solver in ("sgd", "als"):
        whole = model(solver=solver, max_iter=8).fit(PLANTED.X, user_features=PLANTED.F)
        folder = tmp_path / solver
        half = model(solver=solver, max_iter=8)

        class Stop(Exception):
            pass

        def stop(event: Any) -> None:
            if type(event).__name__ == "EpochDone" and event.epoch == 5:
                raise Stop

        with pytest.raises(Stop):
            half.fit(
                PLANTED.X,
                user_features=PLANTED.F,
                session=Session(saving=Saving(folder, every_epochs=1), listeners=(stop,)),
            )
        again = model(solver=solver, max_iter=8)
        again.fit(
            PLANTED.X, user_features=PLANTED.F, session=Session(saving=Saving(folder, every_epochs=1), resume=True)
        )
        same(whole, again)


def test_regression_is_that_of_the_normal_equations() -> None:
    r = np.random.default_rng(3)
    F = r.random((200, 7)) * (r.random((200, 7)) < 0.4)
    F[:, 3] = 2.0  # does not vary
    T, w = r.normal(size=(200, 3)) + F[:, :3], r.integers(0, 9, 200).astype(float)
    Z = F - (w @ F) / w.sum()
    spread = np.sqrt((w[:, None] * Z * Z).sum(axis=0) / w.sum())
    spread[3] = np.inf
    Z = Z / spread
    penalties = np.array([0.1, NO_MAP, 2.0])
    with Threads(2).open() as crew:
        table = read_features(sp.csr_matrix(F), "user_features")
        regression = FeatureRegression(table.matrix, w, crew)
        A, level = regression.solve(T, penalties, np.zeros((7, 3)), steps=100, tol=1e-12)
    np.testing.assert_allclose(level, w @ T / w.sum())
    for k in (0, 2):
        left = Z.T @ (w[:, None] * Z) + penalties[k] * w.sum() * np.eye(7)
        np.testing.assert_allclose(A[:, k], np.linalg.solve(left, Z.T @ (w * (T[:, k] - level[k]))), atol=1e-10)
    assert not A[:, 1].any()


# --- forms of features -------------------------------------------------------------------------------------------


def frames() -> tuple[Any, Any]:
    """Ratings with text ids, and features of all users in another order."""
    pandas = pytest.importorskip("pandas")
    coo = PLANTED.X.tocoo()
    ratings = pandas.DataFrame({"user": [f"u{k:04}" for k in coo.row], "item": coo.col, "rating": coo.data})
    features = pandas.DataFrame(PLANTED.F, columns=[f"f{k}" for k in range(12)])
    features.insert(3, "user_id", [f"u{k:04}" for k in range(USERS)])
    return ratings, features.sample(frac=1, random_state=0)


def test_frames_by_id_add_users_without_ratings() -> None:
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    ratings, features = frames()
    fitted = model(max_iter=5).fit(ratings, user_features=features)
    assert len(fitted.user_ids_) == USERS
    by_position = model(max_iter=5).fit(PLANTED.X, user_features=PLANTED.F)
    np.testing.assert_allclose(fitted.user_factors_, by_position.user_factors_, atol=1e-5)
    numbers = features.drop(columns="user_id")
    pairs = (features["user_id"].to_numpy(), sp.csr_matrix(numbers.to_numpy()))
    for form in (polars.from_pandas(features), pyarrow.Table.from_pandas(features, preserve_index=False), pairs):
        same(fitted, model(max_iter=5).fit(ratings, user_features=form))
    items, _ = fitted.recommend([f"u{USERS - 1:04}"], n=3)
    assert len(set(items[0].tolist())) == 3


def test_text_is_one_feature_for_each_value() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [7, 5, 9], "genres": ["b|a", "", "c"], "year": [1990, 0, 2000]})
    table = read_features(frame, "item_features")
    assert table.columns.feature_names() == ["genres=a", "genres=b", "genres=c", "year"]
    dense = np.zeros((3, 4))
    dense[0, [0, 1, 3]], dense[2, [2, 3]] = [1, 1, 1990], [1, 2000]
    made = sp.csr_matrix((table.matrix.values, table.matrix.indices, table.matrix.indptr), shape=(3, 4))
    np.testing.assert_array_equal(made.toarray(), dense)
    assert np.array_equal(np.asarray(table.ids), [7, 5, 9])
    new = read_features(frame.assign(genres=["a", "z", "c"]), "item_features", table.columns)
    assert np.diff(new.matrix.indptr).tolist() == [2, 0, 2], "an unknown value is no feature"


# --- new rows and columns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"solver": "als"}, {"loss": "absolute"}], ids=str)
def test_new_users_from_features_from_ratings_and_from_both(options: Any) -> None:
    p = PLANTED
    fitted = model(**options).fit(p.X[:-COLD], user_features=p.F[:-COLD])
    known = p.cold & (np.random.default_rng(5).random(len(p.rows)) < 0.5)
    asked = p.cold & ~known

    def rmse(new: Any) -> float:
        pairs = np.stack([p.rows[asked] - (USERS - COLD), p.cols[asked]], axis=1)
        return float(np.sqrt(np.mean((new.predict(pairs) - p.values[asked]) ** 2)))

    ratings = p.matrix(known)[-COLD:]
    alone, rated = fitted.fold_in(user_features=p.F[-COLD:]), fitted.fold_in(ratings)
    both = fitted.fold_in(ratings, user_features=p.F[-COLD:])
    assert rmse(both) < min(rmse(alone), rmse(rated))
    assert alone.recommend(n=5)[0].shape == (COLD, 5)
    few = fitted.fold_in(p.matrix(known & (p.rows < USERS - 50))[-COLD:], user_features=p.F[-COLD:])
    np.testing.assert_array_equal(few.factors[-50:], alone.factors[-50:])
    np.testing.assert_array_equal(few.factors[:50], both.factors[:50])


def test_the_fold_in_of_features_and_ratings_is_ridge_regression_to_the_mean() -> None:
    p = PLANTED
    fitted = model(solver="als", l2_regularization=0.1, bias_l2_regularization=0.2).fit(
        p.X[:-1], user_features=p.F[:-1]
    )
    row = p.matrix(p.rows == USERS - 1)[-1:]
    features = p.F[-1:]
    mean = fitted.fold_in(user_features=features)
    new = fitted.fold_in(row, user_features=features)
    Y = np.c_[fitted.item_factors_[row.indices], np.ones(row.nnz)].astype(float)
    ridge = row.nnz * np.diag([0.1] * 4 + [0.2])
    prior = np.append(mean.factors[0], mean.bias[0])
    target = row.data - fitted.mean_ - fitted.item_bias_[row.indices]
    expected = np.linalg.solve(Y.T @ Y + ridge, Y.T @ target + ridge @ prior)
    np.testing.assert_allclose(np.append(new.factors[0], new.bias[0]), expected, rtol=2e-3, atol=2e-3)


def test_new_users_by_id_of_ratings_and_features() -> None:
    pandas = pytest.importorskip("pandas")
    ratings, features = frames()
    fitted = model(max_iter=5).fit(ratings, user_features=features)
    some = pandas.DataFrame({"user": ["zoe", "abe", "zoe"], "item": [1, 2, 3], "rating": [5.0, 1.0, 4.0]})
    about = features.head(2).assign(user_id=["zoe", "mia"])
    new = fitted.fold_in(some, user_features=about)
    assert new.ids.tolist() == ["abe", "mia", "zoe"]
    alone = fitted.fold_in(user_features=about)
    assert alone.ids.tolist() == ["mia", "zoe"]
    np.testing.assert_array_equal(new.factors[1], alone.factors[0])
    assert (new.factors[2] != alone.factors[1]).any()
    items, _ = new.recommend(n=100)
    assert 1 not in items[2].tolist()
    assert 1 in items[1].tolist()


def test_new_items_are_added_with_the_factors_of_their_features(tmp_path: Path) -> None:
    p = PLANTED
    X, rng = p.X.tocoo(), np.random.default_rng(2)
    names = 2 * rng.permutation(1000)[:ITEMS]
    old = np.sort(names)[:80]
    features = dict(zip(names.tolist(), p.H, strict=True))
    kept = np.isin(names[X.col], old)
    few = st.as_data((X.row[kept], names[X.col][kept], X.data[kept]), map_ids=True)
    for options in ({}, {"solver": "als", "implicit": True}):
        fitted = model(**options).fit(few, item_features=(old, np.array([features[k] for k in old])))
        map_ = fitted.item_feature_map_
        fitted.save(tmp_path / "model")
        before = fitted.recommend([3, 4], n=80)
        new = 98 * np.arange(20) + 1  # ids between those of the model
        about = (new, np.array([features[k] for k in np.sort(names)[80:]]))
        assert fitted.add_items(about) is fitted
        assert fitted.item_factors_.shape == (100, 4)
        assert fitted.n_features_in_ == 100
        place = fitted.item_ids_.encode(new)
        expected = (about[1] - map_.mean) / map_.spread @ map_.coef + map_.level
        np.testing.assert_allclose(fitted.item_factors_[place], expected[:, :4], atol=1e-5)
        after = fitted.recommend([3, 4], n=80, items=old)
        np.testing.assert_array_equal(before[0], after[0])
        loaded = MatrixFactorization.load(tmp_path / "model")
        loaded.add_items(about)
        same(fitted, loaded)
        np.testing.assert_array_equal(loaded.recommend([3], n=90)[0], fitted.recommend([3], n=90)[0])
        with pytest.raises(DataError, match=r"has item .* already"):
            fitted.add_items((new[:1], p.H[:1]))


def test_saved_models_fold_in_features(tmp_path: Path) -> None:
    ratings, features = frames()
    fitted = model(max_iter=3).fit(ratings, user_features=features)
    fitted.save(tmp_path / "model")
    loaded = MatrixFactorization.load(tmp_path / "model")
    about = features.head(5)
    np.testing.assert_array_equal(
        loaded.fold_in(user_features=about).factors, fitted.fold_in(user_features=about).factors
    )
    assert loaded.user_feature_map_ is not None
    assert fitted.user_feature_map_ is not None
    assert loaded.user_feature_map_.columns == fitted.user_feature_map_.columns


def test_evaluation_of_cold_users_starts_from_their_features() -> None:
    p = PLANTED
    train, test = st.split.cold_users(p.matrix(slice(None)), test=0.2, seed=0)
    plain, useful = (model(solver="als").fit(train, user_features=F) for F in (None, p.F))
    found = [st.evaluate(one, test, metrics=["rmse"])["rmse"] for one in (plain, useful)]
    assert found[1] < 0.95 * found[0]


# --- what is refused ---------------------------------------------------------------------------------------------


def test_refusals_say_what_to_do() -> None:
    p = PLANTED
    for options, why in (
        ({"solver": "ccd"}, "solver='als' or 'sgd'"),
        ({"optimizer": "adagrad"}, "optimizer='sgd'"),
        ({"memory": "1GiB"}, "leave memory= out"),
    ):
        with pytest.raises(PlanError, match=why):
            model(**options).fit(p.X, user_features=p.F)
    pandas = pytest.importorskip("pandas")
    ratings, features = frames()
    for given, why in (
        (p.F[:5], "has 5 rows without ids"),
        (p.F[:, 0], "got shape"),
        (np.zeros((USERS, 0)), "has no features"),
        (np.where(p.F > 0, np.nan, 0.0), "missing or infinite"),
        ((np.arange(3), p.F[:3], 1), "give \\(ids, matrix\\)"),
        ((np.zeros(USERS, int), p.F), "more than once"),
        ((np.arange(USERS) + 5, p.F), "the ratings have none"),
        (pandas.DataFrame({"user": [1], "item": [2]}).assign(when=pandas.Timestamp(0)), "is no feature"),
    ):
        with pytest.raises(DataError, match=why):
            model().fit(p.X, user_features=given)
    with pytest.raises(DataError, match="describes no row"):
        model().fit(ratings, user_features=features.assign(user_id=[f"x{k}" for k in range(USERS)]))
    fitted = model(max_iter=2).fit(ratings, user_features=features)
    with pytest.raises(DataError, match="was fitted without item_features"):
        fitted.add_items(p.H)
    with pytest.raises(DataError, match="lacks the column 'f3'"):
        fitted.fold_in(user_features=features.drop(columns="f3"))
    with pytest.raises(DataError, match="got neither"):
        fitted.fold_in()
    with pytest.raises(PlanError, match="partial_fit does not go on"):
        fitted.partial_fit(ratings)
    with pytest.warns(UserWarning, match="nothing about"):
        model(max_iter=2).fit(ratings, user_features=features[features["user_id"] > "u0100"])


# --- from the command line ---------------------------------------------------------------------------------------


def test_train_and_resume_read_features_from_files(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from stretto.cli import app

    ratings, features = frames()
    ratings.to_csv(tmp_path / "ratings.csv", index=False)
    features.to_csv(tmp_path / "users.csv", index=False)
    run = str(tmp_path / "run")
    given = ["--rank", "4", "--epochs", "4", "--schedule", "constant", "--user-features", str(tmp_path / "users.csv")]
    done = CliRunner().invoke(app, ["train", "mf", str(tmp_path / "ratings.csv"), *given, "--out", run, "--quiet"])
    assert done.exit_code == 0, done.output
    (file,) = Path(run).glob("*.safetensors")
    trained = MatrixFactorization.load(file)
    assert len(trained.fold_in(user_features=features.head(3))) == 3
    more = CliRunner().invoke(app, ["resume", run, "--epochs", "6"])
    assert more.exit_code == 0, more.output
    assert MatrixFactorization.load(file).n_iter_ == 6
