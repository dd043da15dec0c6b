"""Passes over columns and over samples against NumPy and SciPy, in every storage and however they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy import optimize, special

from kernelrun import WAYS, cut, run
from linear_problems import loss_of
from stretto.kernels.linear import column_statistics as statistics
from stretto.kernels.linear import columns as kernels
from stretto.kernels.linear import sample_losses
from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.linear.columns import column_bounds
from stretto.solvers.linear.losses.loss import Logistic, Squared
from working_made import STORAGES, Floats, columns_of, numbers

SIZES = [1, 15, 16, 17, 31, 32, 63, 64, 65, 200]  # around the lengths of the compiled chains


def close(made: Floats, expected: Floats, size: Floats) -> None:
    """Equal but for the rounding of sums whose terms are as large as `size` in all."""
    assert np.all(np.abs(made - expected) <= 1e-14 * size + 1e-300)


def weights(n: int) -> Floats:
    """Some of them zero, not all."""
    rng = np.random.default_rng(n)
    found = np.where(rng.random(n) < 0.25, 0.0, rng.uniform(0.1, 3.0, n))
    found[n // 2] = 1.0
    return found


# --- columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("n", SIZES)
def test_a_survey_finds_means_norms_and_products(storage: str, n: int) -> None:
    X = numbers(n, 21, 0.4 if storage.startswith("sparse") else 1.0, seed=n)
    X[:, 4], X[:, 9] = 0.0, 2.5
    weight, v = weights(n), np.random.default_rng(1).normal(size=n)
    for centred in (True, False):
        with columns_of(X, storage) as columns:
            mean, norm, product = columns.survey(weight, centred, v)
        expected = weight @ X / weight.sum() if centred else np.zeros(21)
        close(mean, expected, np.abs(X).max(axis=0) * 4)
        spread = np.sqrt(weight @ (X - expected) ** 2)
        assert np.all(np.abs(norm - spread) <= 1e-13 * np.sqrt(weight @ X**2))
        close(product, v @ X, 10 * np.abs(v) @ np.abs(X))


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("n", SIZES)
def test_prices_squares_and_sums_of_chosen_columns(storage: str, n: int) -> None:
    rng = np.random.default_rng(n)
    X = numbers(n, 33, 0.4 if storage.startswith("sparse") else 1.0, seed=n)
    which = rng.permutation(33)[:13]
    weight, v, coef, mean = weights(n), rng.normal(size=n), rng.normal(size=13), rng.normal(size=13)
    with columns_of(X, storage) as columns:
        product, square, z = np.full(33, np.nan), np.empty(13), np.ones(n)
        columns.price(which, v, product)
        columns.squares(which, weight, mean, square)
        columns.add(which, coef, z)
    close(product[which], v @ X[:, which], 10 * np.abs(v) @ np.abs(X[:, which]))
    assert np.isnan(np.delete(product, which)).all(), "the others are left alone"
    size = weight @ (np.abs(X[:, which]) + np.abs(mean)) ** 2
    close(square, weight @ (X[:, which] - mean) ** 2, 10 * size)
    close(z, 1.0 + X[:, which] @ coef, 10 * (1.0 + np.abs(X[:, which]) @ np.abs(coef)))


@pytest.mark.parametrize("storage", STORAGES)
def test_nothing_chosen_does_nothing(storage: str) -> None:
    none = np.empty(0, np.int64)
    with columns_of(numbers(20, 6), storage) as columns:
        product, z = np.full(6, np.nan), np.ones(20)
        columns.price(none, np.ones(20), product)
        columns.squares(none, np.ones(20), np.empty(0), np.empty(0))
        columns.add(none, np.empty(0), z)
    assert np.isnan(product).all()
    np.testing.assert_array_equal(z, np.ones(20))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_the_order_of_visits_changes_no_bit(storage: str, way: str) -> None:
    X = numbers(150, 40, 0.4)
    rng = np.random.default_rng(0)
    weight, v, which, coef = weights(150), rng.normal(size=150), rng.permutation(40)[:30], rng.normal(size=30)
    kind = storage
    with columns_of(X, storage) as columns:
        mean, norm, product = columns.survey(weight, True, v)
        square, z = np.empty(30), np.zeros(150)
        columns.squares(which, weight, mean[which], square)
        columns.add(which, coef, z)
        mass = float(weight.sum())
        parts = columns.parts
        made: list[Any] = [np.full(40, np.nan) for _ in range(3)]
        survey = getattr(statistics, f"survey_{kind}_worker")
        said = run(survey, cut(40, 7), *parts, weight, -1.0, mass, True, v, *made, way=way)
        for one, other in zip(made, (mean, norm, product), strict=True):
            np.testing.assert_array_equal(one, other)
        assert said.sum() == pytest.approx(norm.sum())
        priced, squared, added = np.zeros(40), np.empty(30), np.zeros(150)
        run(getattr(kernels, f"price_{kind}_worker"), cut(30, 50), which, *parts, v, priced, way=way)
        np.testing.assert_array_equal(priced[which], product[which])
        squares = getattr(statistics, f"square_{kind}_worker")
        run(squares, cut(30, 4), which, *parts, weight, mass, mean[which], squared, way=way)
        np.testing.assert_array_equal(squared, square)
        rows = cut(150, 6 if storage == "dense" else 1)
        run(getattr(kernels, f"add_{kind}_worker"), rows, which, coef, *parts, added, way=way)
        np.testing.assert_array_equal(added, z)


@settings(max_examples=50)
@given(entries=some.lists(some.integers(0, 200_000), min_size=1, max_size=300))
def test_visits_cover_all_columns_and_are_about_equal(entries: list[int]) -> None:
    counts = np.array(entries, np.int64)
    bounds = column_bounds(counts)
    assert (bounds[0], bounds[-1]) == (0, len(counts))
    assert np.all(np.diff(bounds) > 0)
    work = np.add.reduceat(counts, bounds[:-1])
    visits = max(1, min(256, int(counts.sum()) // (1 << 16)))
    assert len(work) <= visits
    assert work.max() <= counts.sum() / visits + counts.max() + 1


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_many_visits_on_many_threads(storage: str) -> None:
    """Enough entries for several visits; no number depends on who made them."""
    X = numbers(700, 500, 1.0 if storage == "dense" else 0.8)
    weight, v = weights(700), np.random.default_rng(2).normal(size=700)
    found: list[Any] = []
    for runtime in (Serial(), Threads(1), Threads(3)):
        with columns_of(X, storage, runtime) as columns:
            assert len(column_bounds(columns.entries)) > 3
            z = np.zeros(700)
            columns.add(np.arange(500), v[:500], z)
            found.append((*columns.survey(weight, True, v), z))
    for other in found[1:]:
        for one, first in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(one, first)


# --- samples ----------------------------------------------------------------------------------------------------------

N = 40
RNG = np.random.default_rng(0)
Y, Z, WEIGHT = RNG.normal(size=N), RNG.normal(size=N) * 3, weights(N)
SIGNS = np.where(RNG.random(N) < 0.4, 1.0, -1.0)


def test_the_squared_loss() -> None:
    v = np.empty(N)
    value, pull = sample_losses.look_squared(Y, Z, WEIGHT, 0.7, v)
    assert value == pytest.approx(float(WEIGHT @ loss_of("squared", Y, Z + 0.7)))
    np.testing.assert_allclose(v, WEIGHT * (Y - Z - 0.7), rtol=1e-14, atol=1e-300)
    assert pull == pytest.approx(v.sum())


def test_the_logistic_loss_also_far_out() -> None:
    z = Z.copy()
    z[:6] = [800.0, -800.0, 40.0, -40.0, 0.0, 1e-9]
    for signs in (SIGNS, -SIGNS):
        at = Logistic(signs, WEIGHT, True, "exact").look(z, 0.3, settle=False)
        wrong, right = special.expit(-signs * (z + 0.3)), special.expit(signs * (z + 0.3))
        assert at.b == 0.3
        assert at.value == pytest.approx(float(-WEIGHT @ special.log_expit(signs * (z + 0.3))), rel=1e-13)
        np.testing.assert_allclose(at.v, WEIGHT * signs * wrong, rtol=1e-13, atol=1e-300)
        np.testing.assert_allclose(at.d, WEIGHT * wrong * right, rtol=1e-13, atol=1e-300)


def test_what_is_not_a_number_shows_in_the_loss() -> None:
    z = Z.copy()
    z[N // 2] = np.nan
    for of in (Squared(Y, WEIGHT, False, "exact"), Logistic(SIGNS, WEIGHT, False, "exact")):
        assert np.isnan(of.look(z, 0.0).value)


@pytest.mark.parametrize("begin", [0.0, 30.0, -500.0, 1e6])
@pytest.mark.parametrize("spread", [0.01, 3.0, 300.0])
def test_the_logistic_intercept_is_settled_from_anywhere(begin: float, spread: float) -> None:
    z = Z * spread
    at = Logistic(SIGNS, WEIGHT, True, "exact").look(z, begin)

    def slope(at: float) -> float:
        return float(WEIGHT @ (SIGNS * special.expit(-SIGNS * (z + at))))

    assert abs(slope(at.b)) <= 1e-12 * WEIGHT.sum()
    if spread < 100.0:  # else the loss is flat between the classes, and many intercepts are best
        assert at.b == pytest.approx(optimize.brentq(slope, -2e3, 2e3, xtol=1e-13), abs=1e-9)
    assert at.value == pytest.approx(float(WEIGHT @ loss_of("logistic", SIGNS, z + at.b)), rel=1e-13)
    assert abs(at.v.sum()) <= 1e-12 * WEIGHT.sum()


def test_the_squared_intercept_is_the_mean_of_what_is_left() -> None:
    far = Y + 1e6
    at = Squared(far, WEIGHT, True, "exact").look(Z, 0.0)
    assert at.b == pytest.approx(float(WEIGHT @ (far - Z) / WEIGHT.sum()), rel=1e-14)
    assert abs(at.v.sum()) <= 1e-9
    assert Squared(far, WEIGHT, True, "exact").look(Z, 0.5, settle=False).b == 0.5
    without = Squared(far, WEIGHT, False, "exact").look(Z, 0.0)
    assert without.b == 0.0
    np.testing.assert_allclose(without.v, WEIGHT * (far - Z), rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
def test_a_dual_value_is_the_least_that_loss_and_line_leave(loss: str, scale: float) -> None:
    """min over z of weight·loss(y, z) + θz, sample by sample, by a search that knows nothing of conjugates."""
    y = Y if loss == "squared" else SIGNS
    of = (Squared if loss == "squared" else Logistic)(y, WEIGHT, False, "exact")
    at = of.look(Z, 0.0)
    total = 0.0
    for yi, weight, theta in zip(y, WEIGHT, scale * at.v, strict=True):
        if weight:

            def left(z: float, yi: float = yi, weight: float = weight, theta: float = theta) -> float:
                return float(weight * loss_of(loss, np.array(yi), np.array(z)) + theta * z)

            total += optimize.minimize_scalar(left, bracket=(-1.0, 1.0), options={"xtol": 1e-12}).fun
    assert of.dual(at, scale, Z) == pytest.approx(total, rel=1e-9, abs=1e-9)


def test_entropies() -> None:
    v, a = np.empty(N), np.linspace(0.0, 1.0, N)  # the ends too: 0·log 0 is 0
    v[:] = WEIGHT * SIGNS * a
    expected = float(WEIGHT @ (special.entr(a) + special.entr(1.0 - a)))
    assert sample_losses.dual_logistic(SIGNS, WEIGHT, v, 1.0, np.empty(N)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_primal_and_dual_meet_at_the_settled_intercept(loss: str) -> None:
    """With z = 0 nothing is left to gain: the dual value of v is the loss itself."""
    y = Y + 5.0 if loss == "squared" else SIGNS
    of = (Squared if loss == "squared" else Logistic)(y, WEIGHT, True, "exact")
    at = of.look(np.zeros(N), 0.0)
    assert of.dual(at, 1.0, np.zeros(N)) == pytest.approx(at.value, rel=1e-12)
    assert of.dual(at, 0.5, np.zeros(N)) < at.value
