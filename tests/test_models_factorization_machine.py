"""`FactorizationMachine`: a planted model, the same bits at any number of threads, scikit-learn's checks, files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import stretto as st
from stretto.errors import DataError, PlanError

FM = st.FactorizationMachine
REPEATS = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "stochastic steps: a sample given twice is in two mini-batches",
)
SIZES = [60, 40, 8]


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        FM(random_state=0, n_jobs=1),
        FM(loss="squared", n_components=4, random_state=0, max_iter=20, n_jobs=2),
        FM(early_stopping=True, l2_factors=0.01, random_state=0, runtime=st.Serial()),
    ],
    expected_failed_checks=lambda e: REPEATS,
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def planted(n: int = 12_000, seed: int = 0) -> tuple[Any, Any, Any]:
    """One-hot columns of three variables, the scores of a machine, and the variable of each column."""
    rng = np.random.default_rng(seed)
    picked = np.stack([rng.integers(0, size, n) for size in SIZES], axis=1)
    X = OneHotEncoder(categories=[np.arange(size) for size in SIZES]).fit_transform(picked)
    truth = np.random.default_rng(7)
    V, w = truth.normal(size=(sum(SIZES), 3)), truth.normal(size=sum(SIZES))
    S = X @ V
    z = X @ w + 0.5 * ((S**2).sum(1) - X.power(2) @ (V**2).sum(1))
    return scipy.sparse.csr_array(X), z, np.repeat(np.arange(3), SIZES)


X, Z, FIELDS = planted()
Y = (np.random.default_rng(1).random(len(Z)) < 1 / (1 + np.exp(-Z))).astype(int)
HALF = len(Z) // 2


def of(model: Any) -> list[Any]:
    return [model.coef_, model.factors_, np.array(model.intercept_), np.array(model.l2_factors_)]


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(of(a), of(b), strict=True))


@pytest.mark.parametrize("field_aware", [False, True])
def test_a_planted_machine_is_recovered(field_aware: bool) -> None:
    given: dict[str, Any] = {"field_aware": True, "fields": FIELDS, "n_components": 4} if field_aware else {}
    model = FM(loss="squared", random_state=0, max_iter=20, **given).fit(X[:HALF], Z[:HALF])
    ridge = Ridge(1e-3).fit(X[:HALF], Z[:HALF])
    assert ridge.score(X[HALF:], Z[HALF:]) < 0.6  # pairs matter
    assert model.score(X[HALF:], Z[HALF:]) > (0.93 if field_aware else 0.97)
    expected = Z[HALF:] - model.predict(X[HALF:])
    assert abs(expected.mean()) < 0.1


def test_log_loss_is_near_that_of_the_truth() -> None:
    model = FM(random_state=0).fit(X[:HALF], Y[:HALF])
    linear = LogisticRegression().fit(X[:HALF], Y[:HALF])
    truth = log_loss(Y[HALF:], 1 / (1 + np.exp(-Z[HALF:])))
    ours, theirs = (log_loss(Y[HALF:], one.predict_proba(X[HALF:])) for one in (model, linear))
    assert ours < truth + 0.6 * (theirs - truth)
    assert list(model.classes_) == [0, 1]
    assert model.score(X[HALF:], Y[HALF:]) > linear.score(X[HALF:], Y[HALF:])


def test_predictions_are_the_formula() -> None:
    rng = np.random.default_rng(0)
    A = scipy.sparse.csr_array(rng.normal(3, 2, (300, 9)) * (rng.random((300, 9)) < 0.5))
    y = 100 + 5 * rng.normal(size=300)
    dense = A.toarray()
    plain = FM(3, loss="squared", random_state=0, max_iter=3).fit(A, y)
    G = plain.factors_ @ plain.factors_.T
    pairs = [sum(G[i, j] * r[i] * r[j] for i in range(9) for j in range(i)) for r in dense]
    np.testing.assert_allclose(plain.predict(A), plain.intercept_ + dense @ plain.coef_ + pairs, rtol=1e-5)
    fields = np.arange(9) % 3
    aware = FM(3, loss="squared", field_aware=True, fields=fields, random_state=0, max_iter=3).fit(A, y)
    V = aware.factors_
    assert V.shape == (9, 3, 3)
    pairs = [sum(V[i, fields[j]] @ V[j, fields[i]] * r[i] * r[j] for i in range(9) for j in range(i)) for r in dense]
    np.testing.assert_allclose(aware.predict(dense), aware.intercept_ + dense @ aware.coef_ + pairs, rtol=1e-5)


@pytest.mark.parametrize("given", [{"l2_factors": 0.01}, {"field_aware": True, "fields": FIELDS, "n_components": 4}])
def test_the_same_bits_at_any_number_of_workers(given: dict[str, Any]) -> None:
    # Batches large enough that threads share them.
    options = {"batch_size": 2048, "max_iter": 3, "random_state": 3, **given}
    runtimes: list[Any] = [st.Serial(), st.Threads(1), st.Threads(2), st.Threads(4)]
    fits = [FM(runtime=runtime, **options).fit(X, Y) for runtime in runtimes]
    assert all(same(fits[0], one) for one in fits[1:])
    assert len({one.fingerprint_ for one in fits}) == 1
    assert not same(fits[0], FM(**options | {"random_state": 4}).fit(X, Y))
    probabilities = [one.predict_proba(X) for one in fits]
    assert all(np.array_equal(probabilities[0], one) for one in probabilities[1:])


def test_any_storage_gives_the_same_model() -> None:
    small, y = X[:800], Y[:800]
    model = FM(random_state=0, max_iter=2).fit(small, y)
    long = small.copy()
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    for other in (small.tocsc(), small.tocoo(), long, small.astype(np.float32), small.toarray(), small.astype(int)):
        assert same(model, FM(random_state=0, max_iter=2).fit(other, y))
        assert np.array_equal(model.predict_proba(small), model.predict_proba(other))


def test_units_of_columns_and_target_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(400, 5)) * (rng.random((400, 5)) < 0.7)
    y = A[:, 0] * A[:, 1] + A[:, 2]
    model = FM(loss="squared", random_state=0).fit(A, y)
    other = FM(loss="squared", random_state=0).fit(A * 1024.0, y * 64.0 + 1e3)
    np.testing.assert_allclose(other.predict(A * 1024.0), model.predict(A) * 64.0 + 1e3, rtol=1e-5)


def test_the_penalty_is_chosen_by_the_data() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4000, 6))
    y = (A[:, 0] * A[:, 1] + 2 * A[:, 2] * A[:, 3] > 0).astype(int)  # few numbers: a weak penalty
    few = FM(random_state=0, max_iter=20).fit(A, y)
    assert few.l2_factors_ < 0.008
    assert few.l2_ == pytest.approx(0.1 * few.l2_factors_)
    assert few.score(A, y) > FM(random_state=0, max_iter=20, l2_factors=0.008).fit(A, y).score(A, y)
    noise = FM(random_state=0).fit(X, rng.integers(0, 2, len(Z)))  # nothing to learn: the strongest
    assert noise.l2_factors_ == 0.008


def test_early_stopping_keeps_the_best_epoch() -> None:
    noisy = (Y + (np.random.default_rng(5).random(len(Y)) < 0.3)) % 2
    options: dict[str, Any] = {"l2_factors": 0.0, "random_state": 0, "max_iter": 30, "learning_rate": 0.6}
    model = FM(early_stopping=True, **options).fit(X, noisy, validation=(X[HALF:], noisy[HALF:]))
    held = [one["validation"] for one in model.history_]
    assert len(held) == model.n_iter_ <= 30
    stopped = FM(early_stopping=True, **options).fit(X[:HALF], noisy[:HALF], validation=(X[HALF:], noisy[HALF:]))
    losses = [one["validation"] for one in stopped.history_]
    assert stopped.n_iter_ < 30
    assert log_loss(noisy[HALF:], stopped.predict_proba(X[HALF:])) == pytest.approx(min(losses), rel=1e-5)
    assert losses[-1] > min(losses)
    part = FM(early_stopping=True, validation_fraction=0.3, **options).fit(X, noisy)
    assert "validation" in part.history_[0]


def test_parts_and_warm_starts() -> None:
    parts = FM(random_state=0, l2_factors=0.008)
    for _ in range(4):
        for first in range(0, HALF, 2000):
            rows = slice(first, first + 2000)
            parts.partial_fit(X[rows], Y[rows], classes=[0, 1])
    whole = FM(random_state=0, l2_factors=0.008).fit(X[:HALF], Y[:HALF])
    losses = [log_loss(Y[HALF:], one.predict_proba(X[HALF:])) for one in (parts, whole)]
    assert losses[0] < losses[1] + 0.02
    before = parts.history_[0]["objective"]
    assert parts.history_[-1]["objective"] < before
    warm = FM(random_state=0, max_iter=2, warm_start=True, l2_factors=0.008).fit(X, Y)
    first = warm.history_[0]["objective"]
    assert warm.fit(X, Y).history_[0]["objective"] < first - 0.02
    with pytest.raises(DataError, match=r"y holds 7, and the classes are \[0, 1\]"):
        parts.partial_fit(X[:5], [7, 0, 1, 0, 1])
    with pytest.raises(PlanError, match="n_components or fields were changed"):
        parts.set_params(n_components=3).partial_fit(X[:5], Y[:5])


def test_weights_of_zero_are_samples_left_out() -> None:
    weight = np.ones(len(Y))
    weight[HALF:] = 0.0
    weighted = FM(random_state=0, max_iter=2, l2_factors=0.01).fit(X, Y, sample_weight=weight)
    wrong = np.where(weight > 0, Y, 1 - Y)
    assert same(weighted, FM(random_state=0, max_iter=2, l2_factors=0.01).fit(X, wrong, sample_weight=weight))
    heavy = FM(random_state=0, max_iter=4, l2_factors=0.01).fit(X, Y, sample_weight=np.where(Y == 1, 20.0, 1.0))
    assert heavy.predict_proba(X)[:, 1].mean() > weighted.predict_proba(X)[:, 1].mean() + 0.2


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_saved_and_pickled(loss: str, tmp_path: Path) -> None:
    target = np.where(Y == 1, "yes", "no") if loss == "logistic" else Z
    given: dict[str, Any] = {"field_aware": True, "fields": FIELDS} if loss == "squared" else {}
    model = FM(2, loss=loss, max_iter=2, random_state=0, **given).fit(X[:2000], target[:2000])
    model.save(tmp_path / "model.safetensors")
    for other in (FM.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert same(model, other)
        assert np.array_equal(model.predict(X), other.predict(X))
        assert other.history_ == model.history_
        assert other.n_iter_ == 2
        assert same(other.partial_fit(X, target), pickle.loads(pickle.dumps(model)).partial_fit(X, target))
    with pytest.raises(DataError, match=r"it is a model of FactorizationMachine: FactorizationMachine\.load reads it"):
        st.Lasso.load(tmp_path / "model.safetensors")


def test_a_plan_says_what_fit_does() -> None:
    model = FM(random_state=0, max_iter=2)
    plan = model.plan(X, Y)
    text = " ".join(plan.explain().split())
    assert "AdaGrad on mini-batches" in text
    assert "2 epochs" in text
    assert "l2_factors chosen on a held-out part" in text
    assert not hasattr(model, "coef_")
    ran = plan.run(runtime=st.Serial())
    assert ran.fingerprint_ == plan.fingerprint
    assert same(ran, FM(random_state=0, max_iter=2).fit(X, Y))
    with pytest.raises(PlanError, match="mini-batches change the parameters of all features in one memory"):
        FM(runtime=st.Cluster(nodes=2)).fit(X, Y)


def test_a_run_is_resumed(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    class Stop:
        def setup(self, estimator: Any, context: Any) -> None: ...
        def teardown(self, estimator: Any, context: Any) -> None: ...
        def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...
        def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any, fitted_estimator: Any) -> bool:
            if context.parent is not None and metadata["epoch"] == 4:
                assert fitted_estimator.predict(X[:2]).shape == (2,)
                raise Enough
            return False

    saving = st.Saving(tmp_path, every_epochs=1)
    options: dict[str, Any] = {"random_state": 0, "max_iter": 6}
    with pytest.raises(Enough):
        FM(**options).set_callbacks(Stop()).fit(X, Y, session=st.Session(saving=saving))
    resumed = FM(**options).fit(X, Y, session=st.Session(saving=saving, resume=True))
    assert resumed.n_iter_ == 6
    assert same(resumed, FM(**options).fit(X, Y))


def test_frames_keep_their_names() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["a", "b", "c"])
    model = FM(loss="squared", max_iter=2).fit(frame, frame["a"] * frame["b"])
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


def test_wrong_arguments() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"loss": "hinge"}, "loss must be"),
        ({"n_components": 0}, "n_components must be"),
        ({"field_aware": True}, "field_aware=True needs fields="),
        ({"fields": FIELDS}, "has no effect with field_aware=False"),
        ({"field_aware": True, "fields": [0, 1]}, "fields must be an array of the field of each of the 108 features"),
        ({"field_aware": True, "fields": -FIELDS}, "fields must be"),
        ({"field_aware": True, "fields": 0 * FIELDS}, "puts all features into field 0"),
        ({"tol": 0.1}, "it belongs to early_stopping=True"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"validation_fraction": 1.0}, "validation_fraction must be"),
    ]
    for given, text in cases:
        with pytest.raises(PlanError, match=text):
            FM(**given).fit(X, Y)
    with pytest.raises(DataError, match="one class: 1"):
        FM().fit(X, np.ones(len(Y)))
    with pytest.raises(DataError, match="Only binary classification is supported"):
        FM().fit(X, np.arange(len(Y)) % 3)
    with pytest.raises(PlanError, match="validation must be"):
        FM().fit(X, Y, validation=X)
    with pytest.raises(DataError, match="X of validation has 9 features"):
        FM().fit(X, Y, validation=(X[:, :9], Y))
    assert not hasattr(FM(loss="squared"), "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba needs loss='logistic'"):
        FM(loss="squared").predict_proba  # noqa: B018
