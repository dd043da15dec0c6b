"""`save` and `load` of every estimator: one file, the same predictions; wrong and damaged files are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import stretto as st
from stretto.errors import DataError, PlanError

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 8))
Y = X[:, 0] - 2 * X[:, 3] + 0.1 * rng.normal(size=60)
COUNTS = rng.poisson(1.0, (30, 12))
TEXT = np.array(["low", "mid", "high"])[np.digitize(Y, [-1, 1])]
HALF = {True: 2.0, False: 0.5}

MODELS: dict[str, Callable[[], Any]] = {
    "Lasso": lambda: st.Lasso(0.05).fit(X, Y),
    "GroupLasso": lambda: st.GroupLasso(0.05, groups=[[j] for j in range(X.shape[1])]).fit(X, Y),
    "MultiTaskLasso": lambda: st.MultiTaskLasso(0.05).fit(X, np.c_[Y, -Y]),
    "PoissonRegressor": lambda: st.PoissonRegressor(0.05).fit(X, np.abs(np.round(Y))),
    "HuberElasticNet": lambda: st.HuberElasticNet(0.05).fit(X, Y),
    "ElasticNet": lambda: st.ElasticNet(np.float64(0.05), l1_ratio=0.3, random_state=np.random.RandomState(0)).fit(
        X, Y
    ),
    "LassoCV": lambda: st.LassoCV(alphas=np.array([0.1, 0.01]), cv=3).fit(X, Y),
    "ElasticNetCV": lambda: st.ElasticNetCV(l1_ratio=[0.5, 0.9], n_alphas=3, cv=3).fit(X, Y),
    "two classes": lambda: st.LogisticRegression(0.5, class_weight=HALF, runtime=st.Serial()).fit(X, Y > 0),
    "LogisticRegressionCV": lambda: st.LogisticRegressionCV(Cs=3, l1_ratios=[0.5, 1.0], cv=3).fit(X, TEXT),
    "three classes": lambda: st.LogisticRegression(0.5, l1_ratio=1.0).fit(X, TEXT),
    "LinearSVC": lambda: st.LinearSVC(0.5, loss="hinge", class_weight="balanced").fit(X, TEXT),
    "FactorizationMachine": lambda: st.FactorizationMachine(3, max_iter=2, random_state=0).fit(X, Y > 0),
    "objects": lambda: st.LogisticRegression().fit(X, TEXT.astype(object)),
    "scheduled": lambda: st.Lasso(0.1, schedule=st.schedule.cyclic(), max_iter=500).fit(X, Y),
    "MatrixFactorization": lambda: st.MatrixFactorization(3, max_iter=2, random_state=0).fit(abs(X)),
    "LatentDirichletAllocation": lambda: st.LatentDirichletAllocation(2, max_iter=3, random_state=0).fit(COUNTS),
}


def answers(model: Any) -> list[Any]:
    """What a model says, by each method that it has."""
    asked: dict[str, Any] = {"predict": X, "predict_proba": X, "transform": X}
    if isinstance(model, st.LatentDirichletAllocation):
        asked = {"transform": COUNTS}
    if isinstance(model, st.MatrixFactorization):
        asked = {"predict": np.array([[0, 1], [5, 7]]), "transform": abs(X)}
    return [getattr(model, name)(data) for name, data in asked.items() if hasattr(model, name)]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_what_it_was(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    model.save(file := tmp_path / "there" / "model.safetensors")
    found = type(model).load(file)
    before = file.read_bytes()
    for again in (model, found):  # `found` has None for what is not kept: runtime, schedule, random generators
        again.save(file)
        assert file.read_bytes() == before
    for now, then in zip(answers(found), answers(model), strict=True):
        np.testing.assert_array_equal(now, then)
    elsewhere = {"runtime", "schedule", "random_state"}
    ours, theirs = ({k: v for k, v in one.get_params().items() if k not in elsewhere} for one in (found, model))
    np.testing.assert_equal(ours, theirs if name != "LassoCV" else theirs | {"alphas": theirs["alphas"].tolist()})
    learned = {key for key in vars(model) if key.endswith("_") and not key.startswith("_")} - {"plan_"}
    assert learned <= set(vars(found))
    for key in learned:
        if isinstance(value := getattr(model, key), np.ndarray | float | int):
            np.testing.assert_array_equal(getattr(found, key), value)
            assert type(getattr(found, key)) is type(value), key
    assert found.fingerprint_ == model.fingerprint_


def test_names_of_features_are_kept(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(8)])
    st.Lasso(0.05).fit(frame, Y).save(tmp_path / "model")
    found = st.Lasso.load(tmp_path / "model")
    assert [*found.feature_names_in_] == [*frame.columns]
    assert found.predict(frame).shape == (60,)
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame.rename(columns={"x0": "other"}))


def test_a_loaded_model_goes_on(tmp_path: Path) -> None:
    st.Lasso(0.05, warm_start=True).fit(X, Y).save(tmp_path / "model")
    found = st.Lasso.load(tmp_path / "model")
    assert found.fit(X, Y).n_iter_ == 1


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_another_class_is_refused_and_says_which(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    model.save(tmp_path / "model")
    other: Any = st.Lasso if not isinstance(model, st.Lasso) else st.ElasticNet
    own = type(model).__name__
    with pytest.raises(DataError, match=rf"not a model of {other.__name__} .*{own}: {own}\.load reads it"):
        other.load(tmp_path / "model")
    with pytest.raises(DataError, match=rf"{own}\.load reads it"):
        next(kind for kind in (st.MatrixFactorization, st.LatentDirichletAllocation) if kind is not type(model)).load(
            tmp_path / "model"
        )


@pytest.mark.parametrize("name", ["Lasso", "three classes", "MatrixFactorization", "LatentDirichletAllocation"])
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    model, file = MODELS[name](), tmp_path / "model"
    model.save(file)
    whole = file.read_bytes()
    for size in (0, 5, 40, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(DataError, match="train and save it again"):
            type(model).load(file)
    with pytest.raises(DataError, match="no such model file; train one with fit and save"):
        type(model).load(tmp_path / "nowhere")


def test_what_describes_it_is_damaged(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    for about in ("{", "{}", '{"parameters": {"alpha": 1}, "fitted": {}, "numbers": []}'):
        save_file({"a": np.zeros(1)}, tmp_path / "model", metadata={"format": "stretto/lasso/1", "model": about})
        with pytest.raises(DataError, match="damaged"):
            st.Lasso.load(tmp_path / "model")
    save_file({"a": np.zeros(1)}, tmp_path / "model", metadata={"format": "stretto/lasso/9", "model": "{}"})
    with pytest.raises(DataError, match="another version of Stretto"):
        st.Lasso.load(tmp_path / "model")
    save_file({"a": np.zeros(1)}, tmp_path / "model")
    with pytest.raises(DataError, match="name one that save has written"):
        st.Lasso.load(tmp_path / "model")


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        st.Lasso().save(tmp_path / "model")
    from sklearn.model_selection import KFold

    model = st.LassoCV(n_alphas=3, cv=KFold(3)).fit(X, Y)
    with pytest.raises(PlanError, match=r"LassoCV\.save: cv=KFold cannot be stored .*set_params"):
        model.save(tmp_path / "model")
    model.set_params(cv=None).save(tmp_path / "model")
