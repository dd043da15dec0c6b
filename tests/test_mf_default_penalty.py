"""The default penalty of factors: in standard deviations of the ratings, so that their unit does not matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import PlanError
from stretto.solvers.factorization.penalties import NoiseEstimate, penalties
from stretto.solvers.factorization.problem import FactorizationProblem


def dense_ratings(factor: float = 1.0) -> tuple[st.Data, st.Data]:
    """(train, test): ratings from −10 to 10 of which users gave most, with more noise than structure."""
    rng = np.random.default_rng(3)
    users, items = 1500, 60
    structure = rng.standard_normal((users, 4)) @ rng.standard_normal((4, items))
    ratings = 2.4 * rng.standard_normal((users, 1)) + structure + 3.9 * rng.standard_normal((users, items))
    rows, cols = np.nonzero(rng.random((users, items)) < 0.7)
    values = np.clip(ratings, -10, 10)[rows, cols] * factor
    data = st.Data.from_arrays(rows, cols, values, (users, items), source="dense ratings")
    return data.split(0.1, seed=0)


def errors(train: st.Data, test: st.Data, **settings: Any) -> list[float]:
    model = st.MatrixFactorization(32, random_state=0, **settings).fit(train, validation=test)
    return [epoch["test_rmse"] for epoch in model.history_]


def test_dense_ratings_of_wide_range_do_not_overfit() -> None:
    train, test = dense_ratings()
    twenty, fixed = errors(train, test), errors(train, test, l2_regularization=0.05)
    assert twenty[-1] <= 1.004 * min(twenty)
    assert fixed[-1] > 1.05 * min(fixed)  # what a fixed penalty did
    assert twenty[-1] < min(fixed)


def sparse_ratings() -> tuple[st.Data, st.Data]:
    """(train, test): most users and items have a few ratings, and biases explain more than factors."""
    rng = np.random.default_rng(5)
    users, items, n = 4000, 3000, 30_000
    rows, cols = (rng.choice(size, n, p=np.arange(1, size + 1) ** -0.8 / (np.arange(1, size + 1) ** -0.8).sum())
                  for size in (users, items))  # fmt: skip
    keys = np.unique(rows * items + cols)
    rows, cols = np.divmod(rng.permutation(keys), items)
    biases = 0.5 * rng.standard_normal(users)[rows] + 0.4 * rng.standard_normal(items)[cols]
    values = 3.5 + biases + 0.8 * rng.standard_normal(len(rows))
    return st.Data.from_arrays(rows, cols, values, (users, items), source="sparse ratings").split(0.1, seed=0)


def test_rows_with_few_ratings_do_not_overfit() -> None:
    """The penalty that counts once for each row and column keeps their biases near 0."""
    train, test = sparse_ratings()
    found, every = errors(train, test), errors(train, test, bias_l2_regularization=0.05)
    assert found[-1] <= 1.002 * min(found)
    assert every[-1] > 1.005 * found[-1]


@pytest.mark.parametrize("ratings", [dense_ratings, sparse_ratings], ids=["dense", "sparse"])
def test_more_epochs_do_not_overfit(ratings: Any) -> None:
    """The sum of the steps does not grow; that of linearly falling steps does, which overfits."""
    train, test = ratings()
    twenty, eighty = errors(train, test), errors(train, test, max_iter=80)
    linear = errors(train, test, max_iter=80, schedule="linear")
    assert eighty[-1] < 1.003 * twenty[-1]
    assert linear[-1] > 1.01 * eighty[-1]


def test_schedules() -> None:
    def steps(epochs: int, **settings: Any) -> list[float]:
        problem = FactorizationProblem(4, epochs=epochs, **settings)
        return [problem.step_at(epoch) for epoch in range(epochs)]

    given = {"learning_rate": 0.04}
    assert steps(20, **given) == steps(20, schedule="linear") == steps(20, schedule="polynomial")
    assert steps(20) == steps(20, schedule="adaptive") != steps(20, schedule="linear")
    for epochs in (40, 200):
        assert steps(epochs, **given) == steps(epochs, schedule="polynomial") != steps(epochs, schedule="linear")
        for settings, least in (({}, 0.08), (given, 0.04)):
            assert sum(steps(epochs, **settings)) == pytest.approx(sum(steps(20, **settings)), rel=0.15)
            assert steps(epochs, **settings)[-1] == pytest.approx(least / epochs)
    assert steps(40, optimizer="adagrad") == steps(40, optimizer="adagrad", schedule="linear")


@pytest.mark.parametrize("solver", ["sgd", "als", "ccd"])
def test_the_unit_of_the_ratings_does_not_matter(solver: str) -> None:
    settings: dict[str, Any] = {"solver": solver, "max_iter": 3}
    plain, large = errors(*dense_ratings(), **settings), errors(*dense_ratings(64.0), **settings)
    np.testing.assert_allclose(np.array(large) / 64.0, plain, rtol=1e-4)


@pytest.mark.parametrize("how", [{"solver": "als"}, {"solver": "ccd"}, {"optimizer": "adagrad"}], ids=str)
def test_the_default_of_the_others_is_a_twentieth_of_the_standard_deviation(how: dict[str, Any]) -> None:
    train, test = dense_ratings()
    scale = float(st.MatrixFactorization(4, max_iter=1, random_state=0).fit(train).scale_)
    named = errors(train, test, max_iter=3, l2_regularization=0.05 * scale, bias_l2_regularization=0.05, **how)
    np.testing.assert_allclose(errors(train, test, max_iter=3, **how), named, rtol=1e-6)


def test_partial_fit_counts_penalties_for_each_rating() -> None:
    """A batch has some ratings of a row; a penalty once for each row would count in every batch."""
    train, _ = dense_ratings()
    first, second = train.split(0.5, seed=1)
    fitted = st.MatrixFactorization(8, random_state=0).partial_fit(first)
    assert fitted._learned.problem.by_row
    fitted.partial_fit(second)
    assert not fitted._learned.problem.by_row
    assert penalties(fitted._learned.problem, 1.0).bias_ridge == 0


def clear_ratings() -> tuple[st.Data, st.Data]:
    """(train, test): ratings that factors explain nearly all of."""
    return st.generate_ratings(60_000, 1_000, 400, rank=4, noise=0.1, seed=2).data.split(0.1, seed=0)


def test_penalties_of_factors_follow_the_noise_of_the_ratings() -> None:
    """Measured in an early epoch, and the same wherever the fit runs; rows are folded in with what was measured."""
    fitted = {}
    for name, ratings in (("clear", clear_ratings), ("noisy", dense_ratings)):
        train, _ = ratings()
        runs = [st.MatrixFactorization(8, random_state=0, n_jobs=jobs).fit(train) for jobs in (1, 2)]
        assert runs[0].history_ == runs[1].history_
        fitted[name] = runs[0]
        noise = runs[0]._learned.problem.noise
        assert noise == pytest.approx((runs[0].history_[3]["train_rmse"] / runs[0].scale_) ** 2)
        reg = penalties(runs[0]._learned.problem, 1.0)
        assert reg.factors == pytest.approx(0.055 * noise)
        assert reg.ridge == pytest.approx(5.2 * noise)
    clear, noisy = (fitted[name]._learned.problem.noise for name in ("clear", "noisy"))
    assert clear < 0.2
    assert noisy > 0.4


def test_ratings_with_little_noise_get_a_weak_penalty() -> None:
    train, test = clear_ratings()
    weak, usual = errors(train, test), errors(train, test, schedule="polynomial")
    assert weak[-1] < 0.95 * usual[-1]


def test_an_early_error_cannot_raise_the_penalty() -> None:
    noise = NoiseEstimate()
    for epoch, error in enumerate((0.9, 0.8, 0.5, 0.7, 0.1)):
        noise.add(epoch, error)
    assert [noise.at(epoch) for epoch in (0, 1, 2, 3, 4, 5, 19)] == [None, None, 0.44, 0.44, 0.44, 0.7, 0.7]
    assert noise.last() == 0.7
    assert NoiseEstimate().last() is None


def test_rows_with_many_ratings_are_exact_early() -> None:
    """Equal steps keep the factors of items with a thousand ratings noisy until the last epochs."""
    train, test = dense_ratings()
    adaptive, equal = errors(train, test), errors(train, test, schedule="polynomial")
    assert adaptive[6] < min(equal[:10])


def test_biases_are_learned_in_the_first_epoch() -> None:
    """Their steps fall as those of a running mean, so one epoch of sparse ratings is better than two of equal
    steps.
    """
    train, test = sparse_ratings()
    assert errors(train, test)[0] < min(errors(train, test, schedule="polynomial")[:2])


def test_steps_stay_large_where_there_is_little_noise() -> None:
    problem = FactorizationProblem(4)
    clear, noisy = (replace(problem, noise=noise) for noise in (0.1, 0.8))
    assert noisy.decay_at(9) == pytest.approx(8 * clear.decay_at(9))
    assert clear.bias_step_at(9) == noisy.bias_step_at(9)
    linear = replace(problem, schedule="linear")
    assert (linear.decay_at(9), linear.bias_step_at(9)) == (0.0, (linear.step_at(9), 0.0))


def test_adaptive_steps_are_for_plain_sgd() -> None:
    train, _ = dense_ratings()
    with pytest.raises(PlanError, match="schedule='adaptive' is for optimizer='sgd'"):
        st.MatrixFactorization(4, optimizer="adagrad", schedule="adaptive").fit(train)


def test_a_saved_model_keeps_the_noise(tmp_path: Any) -> None:
    train, test = clear_ratings()
    model = st.MatrixFactorization(4, max_iter=6, random_state=0).fit(train)
    model.save(tmp_path / "model")
    loaded = st.MatrixFactorization.load(tmp_path / "model")
    assert loaded._learned.problem.noise == model._learned.problem.noise is not None
    np.testing.assert_array_equal(loaded.fold_in(test).factors, model.fold_in(test).factors)
    again = model.set_params(warm_start=True).fit(train)
    assert again._learned.problem.noise == loaded._learned.problem.noise
