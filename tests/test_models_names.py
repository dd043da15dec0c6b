"""Estimators take scikit-learn's words; former names of parameters and attributes work, and warn."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import stretto as st
from jobs import some_ratings

X = some_ratings(2000, 80, 60).to_csr()
COUNTS = np.random.default_rng(0).poisson(0.7, (30, 20))
FORMER = {"rank": "n_components", "epochs": "max_iter", "reg": "l2_regularization"}
FORMER |= {"bias_reg": "bias_l2_regularization"}
ATTRIBUTES = {"row_factors_": "user_factors_", "col_factors_": "item_factors_", "row_bias_": "user_bias_"}
ATTRIBUTES |= {"col_bias_": "item_bias_", "row_ids_": "user_ids_", "col_ids_": "item_ids_"}


def model(**more: Any) -> st.MatrixFactorization:
    return st.MatrixFactorization(**{"n_components": 3, "max_iter": 2, "random_state": 0, "n_jobs": 1} | more)


@pytest.mark.parametrize(("old", "new"), FORMER.items())
def test_former_parameters_work_and_warn(old: str, new: str) -> None:
    message = rf"^MatrixFactorization\({old}=…\) is deprecated .*; use {new}=… instead$"
    with pytest.warns(FutureWarning, match=message):
        made = st.MatrixFactorization(**dict[str, Any]({old: 7}))
    with pytest.warns(FutureWarning, match=message):
        changed = st.MatrixFactorization().set_params(**{old: 7})
    expected = st.MatrixFactorization().get_params() | {new: 7}
    assert made.get_params() == changed.get_params() == clone(made).get_params() == expected
    assert old not in expected
    with pytest.warns(FutureWarning, match=rf"MatrixFactorization\.{old} is deprecated"):
        assert getattr(made, old) == 7
    with pytest.warns(FutureWarning, match=rf"MatrixFactorization\.{old} is deprecated"):
        setattr(made, old, 8)
    assert getattr(made, new) == 8


def test_topic_models_take_max_iter() -> None:
    with pytest.warns(FutureWarning, match=r"LatentDirichletAllocation\(epochs=…\) is .*; use max_iter=… instead"):
        assert st.LatentDirichletAllocation(2, epochs=7).max_iter == 7  # type: ignore[call-arg]
    topics = st.LatentDirichletAllocation(2, max_iter=3, random_state=0, n_jobs=1)
    frame = pd.DataFrame(COUNTS, columns=[f"word{k}" for k in range(20)])
    shares = topics.set_output(transform="pandas").fit_transform(frame)
    names = [f"latentdirichletallocation{k}" for k in range(2)]
    assert [*shares.columns] == [*topics.get_feature_names_out()] == names
    assert (topics.n_iter_, topics.n_features_in_, topics.feature_names_in_[3]) == (3, 20, "word3")


def test_the_fingerprint_does_not_depend_on_the_spelling() -> None:
    with pytest.warns(FutureWarning):
        old = st.MatrixFactorization(rank=3, epochs=2, reg=0.1, random_state=0, n_jobs=1)  # type: ignore[call-arg]
    new = model(l2_regularization=0.1)
    assert old.fit(X).fingerprint_ == new.fit(X).fingerprint_
    np.testing.assert_array_equal(old.user_factors_, new.user_factors_)


@pytest.mark.filterwarnings("always::FutureWarning")
def test_a_grid_search_under_former_names() -> None:
    with pytest.warns(FutureWarning, match="rank=…"):
        search = GridSearchCV(model(), {"rank": [2, 3]}, cv=2).fit(X)
    assert search.best_estimator_.n_components == search.best_params_["rank"]


@pytest.mark.parametrize(("old", "new"), ATTRIBUTES.items())
def test_former_attributes_work_and_warn(old: str, new: str) -> None:
    assert not hasattr(model(), old)
    fitted = model().fit(X)
    with pytest.warns(FutureWarning, match=rf"^MatrixFactorization\.{old} is deprecated .*; use {new} instead$"):
        assert getattr(fitted, old) is getattr(fitted, new)


def test_errors_name_what_is_written() -> None:
    with pytest.raises(ValueError, match="n_components must be a whole number at least 1; got 0"):
        model(n_components=0).fit(X)
    with pytest.raises(ValueError, match=r"goes on from a fit with n_components=3, and n_components is 4 now"):
        model(warm_start=True).fit(X).set_params(n_components=4).fit(X)


def test_components_have_names() -> None:
    fitted = model().fit(X)
    names = [f"matrixfactorization{k}" for k in range(3)]
    assert [*fitted.get_feature_names_out()] == names
    frame = fitted.set_output(transform="pandas").transform(X)
    assert [*frame.columns] == names
    np.testing.assert_array_equal(frame.to_numpy(), fitted.set_output(transform="default").transform(X))


def test_the_frame_of_a_table_is_indexed_by_users() -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame({"user": random.integers(100, 130, 200), "item": random.integers(0, 9, 200)}).drop_duplicates()
    table["rating"] = random.normal(size=len(table))
    fitted = model().fit(table)
    frame = fitted.set_output(transform="pandas").transform(table)
    assert [*frame.index] == sorted(set(table["user"]))
    assert frame.shape == (len(frame), 3)


def test_a_model_saved_under_former_names_is_read(tmp_path: Path) -> None:
    fitted = model(l2_regularization=0.2).fit(X)
    fitted.save(tmp_path / "new.safetensors")
    arrays, notes = load_file(tmp_path / "new.safetensors"), _notes(tmp_path / "new.safetensors")
    assert {"row_factors_", "col_factors_", "row_bias_", "col_bias_"} <= set(arrays)
    about = json.loads(notes["model"])
    back = {new: old for old, new in FORMER.items()}
    about["parameters"] = {back.get(name, name): value for name, value in about["parameters"].items()}
    save_file(arrays, tmp_path / "old.safetensors", metadata=notes | {"model": json.dumps(about)})
    for file in ("new", "old"):
        found = st.MatrixFactorization.load(tmp_path / f"{file}.safetensors")
        assert found.get_params() == fitted.get_params()
        np.testing.assert_array_equal(found.predict([[0, 1], [5, 7]]), fitted.predict([[0, 1], [5, 7]]))


def test_a_pickle_under_former_names_is_read() -> None:
    fitted = model().fit(X)
    back = {new: old for old, new in (FORMER | ATTRIBUTES).items()}
    state = {back.get(name, name): value for name, value in fitted.__getstate__().items()}
    found = st.MatrixFactorization.__new__(st.MatrixFactorization)
    found.__setstate__(state)
    for one in (found, pickle.loads(pickle.dumps(fitted))):
        assert one.get_params() == fitted.get_params()
        np.testing.assert_array_equal(one.user_factors_, fitted.user_factors_)


def _notes(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(str(path), framework="numpy") as file:
        return dict(file.metadata())
