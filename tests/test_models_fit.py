"""Fitting: what goes in, what comes out, and the same bits on every runtime."""

from __future__ import annotations

import gc
import os
import pickle
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

import stretto as st
from jobs import RUNTIMES, digest
from solvers import SOLVERS
from stretto.data.generate.ratings import ratings
from stretto.data.records.data import Data
from stretto.errors import DataError, Diverged, PlanError
from stretto.models.factorization.estimator import MatrixFactorization
from stretto.observe.events import EpochDone, Event

MADE = ratings(12_000, 300, 200, rank=4, noise=0.2, seed=3)
DATA = MADE.data


def model(**parameters: Any) -> MatrixFactorization:
    return MatrixFactorization(**{"n_components": 6, "max_iter": 4, "random_state": 0, "n_jobs": 2} | parameters)


def learned(fitted: MatrixFactorization) -> str:
    arrays = [fitted.user_factors_, fitted.item_factors_, fitted.user_bias_, fitted.item_bias_]
    return digest(arrays, fitted.mean_, [h["objective"] for h in fitted.history_])


IMPLICIT = {"solver": "als", "implicit": True, "alpha": 5.0}


@pytest.mark.parametrize("how", [*SOLVERS, IMPLICIT], ids=str)
def test_n_jobs_and_runtime_never_change_the_answer(how: dict[str, Any]) -> None:
    found = {learned(model(runtime=runtime, **how).fit(DATA)) for runtime in RUNTIMES}
    found |= {learned(model(n_jobs=n, **how).fit(DATA)) for n in (None, 1, -1)}
    assert len(found) == 1


@pytest.mark.parametrize("how", SOLVERS, ids=str)
def test_it_finds_the_truth(how: dict[str, Any]) -> None:
    train, test = DATA.split(0.1, seed=1)
    fitted = model(max_iter=20, l2_regularization=0.05, **how).fit(train, validation=test)
    errors = [history["test_rmse"] for history in fitted.history_]
    flat = float(np.std(test.values))
    assert errors[-1] < 0.75 * flat, "far better than the mean alone"
    assert -fitted.score(test) == pytest.approx(errors[-1], rel=1e-4)
    predicted = fitted.predict(np.stack([test.rows, test.cols], axis=1))
    assert np.sqrt(np.mean((predicted - test.values) ** 2)) == pytest.approx(errors[-1], rel=1e-4)
    assert fitted.history_[-1]["train_rmse"] < fitted.history_[0]["train_rmse"]


@pytest.mark.parametrize("optimizer", ["sgd", "adarevision"])
@pytest.mark.parametrize("loss", ["squared", "absolute", "logistic"])
def test_every_loss_falls(loss: str, optimizer: str) -> None:
    data = replace(DATA, values=(DATA.values > 3).astype(np.float32)) if loss == "logistic" else DATA
    fitted = model(loss=loss, max_iter=10, optimizer=optimizer).fit(data)
    objective = [history["objective"] for history in fitted.history_]
    assert objective[-1] < 0.95 * objective[0]
    assert fitted.score(data) > -objective[0]


def test_profile_fast_is_as_good() -> None:
    train, test = DATA.split(0.1, seed=1)
    exact, fast = (model(profile=profile, max_iter=10).fit(train).score(test) for profile in ("exact", "fast"))
    assert fast == pytest.approx(exact, rel=1e-2)


# --- what goes in ----------------------------------------------------------------------------------------


def forms() -> dict[str, Any]:
    csr = DATA.to_csr()
    wide = csr.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    return {
        "csr": csr,
        "csr with int64 indices": wide,
        "csc": csr.tocsc(),
        "coo": csr.tocoo(),
        "csr array": sparse.csr_array(csr),
        "float64": csr.astype(np.float64),
        "Data": DATA,
        "three arrays": (DATA.rows, DATA.cols, DATA.values),
        "records": st.as_data(np.stack([DATA.rows, DATA.cols, DATA.values], axis=1), columns=(0, 1, 2), map_ids=False),
        "dense": csr.toarray(),
    }


@pytest.mark.parametrize("form", forms())
def test_every_form_of_the_same_ratings_is_the_same(form: str) -> None:
    fitted = model().fit(forms()[form])
    wanted = model().fit(DATA)
    assert fitted.fingerprint_ == wanted.fingerprint_
    assert learned(fitted) == learned(wanted)
    assert fitted.n_features_in_ == 200


def table() -> Any:
    pandas = pytest.importorskip("pandas")
    frame = {"user": [f"u{r}" for r in DATA.rows], "item": [f"i{c}" for c in DATA.cols], "rating": DATA.values}
    return pandas.DataFrame(frame)


def test_a_table_with_names() -> None:
    frame = table()
    fitted = model().fit(frame)
    users, items = ["u3", "u17"], ["i5", "i9"]
    found, scores = fitted.recommend(users, 4)
    assert found.shape == scores.shape == (2, 4)
    assert all(name.startswith("i") for name in found.ravel())
    seen = set(frame[frame.user == "u3"].item)
    assert not seen & set(found[0])
    wanted = fitted.predict([["u3", name] for name in found[0]])
    np.testing.assert_allclose(scores[0], wanted, rtol=1e-5)
    near, _ = fitted.similar_items(items, 3)
    assert near.shape == (2, 3)
    assert "i5" not in near[0]
    known, unknown = fitted.predict([["u3", "i5"], ["nobody", "nothing"]])
    assert unknown == np.float32(fitted.mean_)
    assert known != unknown
    with pytest.raises(DataError, match="nobody"):
        fitted.recommend(["nobody"])


def test_names_are_carried_into_validation_and_score() -> None:
    frame = table()
    held = frame.sample(frac=0.1, random_state=0)
    fitted = model(max_iter=8).fit(frame.drop(held.index), validation=held)
    assert -fitted.score(held) == pytest.approx(fitted.history_[-1]["test_rmse"], rel=1e-4)
    assert fitted.history_[-1]["test_rmse"] < float(held.rating.std())


# --- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"n_components": 0}, "n_components must be a whole number at least 1; got 0"),
        ({"n_components": 2.5}, "n_components must be a whole number"),
        ({"n_components": "ten"}, "n_components must be"),
        ({"solver": "magic"}, "solver must be one of 'sgd', 'als', 'ccd'; got 'magic'"),
        ({"loss": "hinge"}, "loss must be one of 'squared', 'absolute', 'logistic', 'bpr', 'warp'; got 'hinge'"),
        ({"optimizer": "adam"}, "optimizer must be one of"),
        ({"linear_solver": "lu"}, "linear_solver must be one of"),
        ({"l2_regularization": -1.0}, "l2_regularization must be a number at least 0; got -1.0"),
        ({"l2_regularization": float("nan")}, "l2_regularization must be a number at least 0; got nan"),
        ({"learning_rate": 0.0}, "learning_rate must be a number more than 0; got 0.0"),
        ({"max_iter": 0}, "max_iter must be a whole number at least 1; got 0"),
        ({"solver": "als", "loss": "absolute"}, "solves loss='squared' alone, got 'absolute'; use solver='sgd'"),
        ({"implicit": True}, "implicit feedback needs solver='als', got 'sgd'"),
        ({"width": 0}, "width must be a whole number at least 1; got 0"),
        ({"n_jobs": 0}, "n_jobs=0, or st.Threads(0), has no meaning"),
        ({"profile": "quick"}, "profile must be one of 'exact', 'fast'; got 'quick'"),
        ({"memory": "lots"}, "cannot read 'lots' as an amount of memory"),
        ({"duplicates": "average"}, "average"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises((PlanError, DataError)) as caught:
        model(**parameters).fit(DATA)
    assert says in str(caught.value)


def test_bad_data_is_refused() -> None:
    bad = DATA.to_csr().astype(np.float64)
    bad.data[7] = np.nan
    with pytest.raises(DataError, match="nan"):
        model().fit(bad)
    with pytest.raises(DataError, match="no ratings to learn from"):
        model().fit(sparse.csr_matrix((5, 4)))
    with pytest.raises(DataError, match=r"the pair \(3, 4\) occurs twice"):
        model().fit((np.array([3, 1, 3]), np.array([4, 1, 4]), np.array([1.0, 2.0, 3.0])))


@pytest.mark.parametrize("solver", ["sgd", "als"])
def test_repeated_pairs_are_settled_as_asked(solver: str) -> None:
    rows, cols = (np.concatenate([index, index[:50]]) for index in (DATA.rows, DATA.cols))
    twice = Data.from_arrays(rows, cols, np.concatenate([DATA.values, 9 - DATA.values[:50]]), DATA.shape)
    with pytest.raises(DataError, match=rf"the pair \({DATA.rows[0]}, {DATA.cols[0]}\) occurs twice"):
        model(solver=solver).fit(twice)
    wanted = learned(model(solver=solver).fit(DATA))
    assert learned(model(solver=solver, duplicates="first").fit(twice)) == wanted
    assert learned(model(solver=solver, duplicates="mean").fit(twice)) != wanted
    kept = model(solver=solver, duplicates="keep").fit(twice)
    assert kept.n_iter_ == 4
    backwards = twice.take(np.arange(len(twice))[::-1])
    assert learned(model(solver=solver, duplicates="keep").fit(backwards)) == learned(kept), "input order shows"


def test_divergence_is_noticed() -> None:
    for profile in ("exact", "fast"):
        with pytest.raises(Diverged, match="lower learning_rate"):
            model(learning_rate=1e4, max_iter=20, profile=profile).fit(DATA)


# --- going on --------------------------------------------------------------------------------------------


def test_early_stopping_on_held_out_ratings() -> None:
    events: list[Event] = []
    fitted = model(
        max_iter=200,
        n_components=16,
        l2_regularization=0.0,
        early_stopping=True,
        n_iter_no_change=2,
        schedule="constant",
    )
    fitted.fit(DATA, session=st.Session(listeners=[events.append]))
    errors = [history["test_rmse"] for history in fitted.history_]
    assert fitted.n_iter_ == len(errors) < 200
    assert min(errors[-2:]) > min(errors[:-2]) - fitted.tol
    assert [e.epoch for e in events if isinstance(e, EpochDone)] == list(range(1, fitted.n_iter_ + 1))
    again = model(
        max_iter=200,
        n_components=16,
        l2_regularization=0.0,
        early_stopping=True,
        n_iter_no_change=2,
        schedule="constant",
        n_jobs=1,
    )
    assert learned(again.fit(DATA)) == learned(fitted)


@pytest.mark.parametrize("solver", ["sgd", "als"])
def test_warm_start_goes_on(solver: str) -> None:
    fitted = model(solver=solver, warm_start=True).fit(DATA)
    first, objective = fitted.fingerprint_, fitted.history_[-1]["objective"]
    fitted.fit(DATA)
    assert fitted.n_iter_ == len(fitted.history_) == 8
    assert fitted.history_[4]["objective"] < fitted.history_[0]["objective"]
    assert fitted.history_[-1]["objective"] < objective
    assert fitted.fingerprint_ != first, "another start is another plan"
    cold = model(solver=solver).fit(DATA).fit(DATA)
    assert cold.n_iter_ == 4


def test_partial_fit_grows() -> None:
    small = DATA.take((DATA.rows < 200) & (DATA.cols < 150))
    small = replace(small, shape=(200, 150))
    growing = model(schedule="constant")
    growing.partial_fit(small)
    assert growing.user_factors_.shape == (200, 6)
    before = growing.user_factors_.copy()
    growing.partial_fit(DATA)
    assert growing.user_factors_.shape == (300, 6)
    assert growing.item_factors_.shape == (200, 6)
    assert growing.n_features_in_ == 200
    growing.partial_fit(small)
    assert growing.user_factors_.shape == (300, 6), "nothing is forgotten"
    assert growing.n_iter_ == 3
    assert not np.array_equal(growing.user_factors_[:200], before)
    scores = [growing.partial_fit(DATA).score(DATA) for _ in range(4)]
    assert scores[-1] > scores[0]


def test_random_state() -> None:
    one, two = (learned(model(random_state=seed).fit(DATA)) for seed in (0, 1))
    assert one != two
    given = learned(model(random_state=np.random.RandomState(0)).fit(DATA))
    assert given == one, "a generator and its seed are the same"
    assert learned(model(random_state=None).fit(DATA)) != learned(model(random_state=None).fit(DATA))


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adarevision"])
def test_a_memory_budget_never_changes_the_answer(optimizer: str) -> None:
    whole, streamed = model(optimizer=optimizer).fit(DATA), model(optimizer=optimizer, memory=120_000).fit(DATA)
    assert streamed.plan_.physical.tile is not None
    assert streamed.fingerprint_ == whole.fingerprint_
    for name in ("user_factors_", "item_factors_", "user_bias_", "item_bias_"):
        np.testing.assert_array_equal(getattr(streamed, name), getattr(whole, name))
    np.testing.assert_array_equal(streamed.recommend([1, 2], 5)[0], whole.recommend([1, 2], 5)[0])
    with pytest.raises(PlanError, match=r"needs [\d.]+ KiB and may use 0.98 KiB"):
        model(memory=1000).fit(DATA)


# --- surroundings ----------------------------------------------------------------------------------------


def test_two_fits_at_once() -> None:
    wanted = {solver: learned(model(solver=solver).fit(DATA)) for solver in ("sgd", "als")}
    found: dict[str, str] = {}

    def fit(name: str, solver: str) -> None:
        found[name] = learned(model(solver=solver).fit(DATA))

    threads = [threading.Thread(target=fit, args=(f"{solver} {k}", solver)) for solver in wanted for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(found[name] == wanted[name.split()[0]] for name in found)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_after_fit() -> None:
    wanted = learned(model().fit(DATA))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - the child's lines are not seen by coverage
        status = 1
        try:
            os.write(writer, learned(model().fit(DATA)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert found == wanted


def test_the_plan_is_kept() -> None:
    fitted = model(n_jobs=2).fit(DATA)
    assert fitted.plan_.fingerprint == fitted.fingerprint_
    assert "2 workers" in fitted.plan_.explain()
    assert fitted.plan_.cost.entries == len(DATA)


def test_the_callers_arrays_are_untouched() -> None:
    csr = DATA.to_csr()
    copies: list[NDArray[Any]] = [csr.data.copy(), csr.indices.copy(), csr.indptr.copy()]
    model().fit(csr)
    for now, then in zip((csr.data, csr.indices, csr.indptr), copies, strict=True):
        np.testing.assert_array_equal(now, then)


def test_real_ratings(shared_data: Any) -> None:
    data = st.read(shared_data("movielens-1m", "ratings.tsv.xz"))
    train, test = data.split(0.1, seed=0)
    fitted = MatrixFactorization(n_components=32, random_state=0).fit(train, validation=test)
    assert fitted.history_[-1]["test_rmse"] < 0.87


def test_a_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    lines = [f"{r},{c},{v}" for r, c, v in zip(DATA.rows, DATA.cols, DATA.values, strict=True)]
    path.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    fitted = model().fit(path)
    assert fitted.n_iter_ == 4
    assert fitted.history_[-1]["objective"] < fitted.history_[0]["objective"]


def test_a_streamed_model_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors on disk live as long as the estimator; a pickled copy carries its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fitted = model(memory=120_000).fit(DATA)
    assert len(list(tmp_path.iterdir())) == 1
    copy = pickle.loads(pickle.dumps(fitted))
    wanted = fitted.predict([[1, 2], [3, 4]])
    del fitted
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(copy.predict([[1, 2], [3, 4]]), wanted)
