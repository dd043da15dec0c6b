"""The kernel of ranking losses: a twin in double precision, finite differences, and what it may draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from jobs import some_ratings
from ranking_twin import Twin
from stretto.data.records.data import Data
from stretto.kernels.numeric.lanes import aligned, padded
from stretto.runtime.blocks.step import BlockStep
from stretto.runtime.runtimes import Serial
from stretto.solvers.factorization.problem import FactorizationProblem
from stretto.solvers.factorization.ranking import Ranked, cut_columns, ranking_step
from test_kernels_grid import laid_out

f4 = np.float32
LOSSES = ["bpr", "warp", "logistic"]


@dataclass
class Model:
    """Blocks of some data, and factors to move."""

    data: Data
    blocks: int
    rank: int
    biased: bool = True
    scale: float = 0.3

    def __post_init__(self) -> None:
        random = np.random.default_rng(0)
        self.laid, self.order, self.rows, self.cols = laid_out(self.data, self.blocks)
        m, n = self.data.shape
        self.W, self.H = aligned((m, padded(self.rank))), aligned((n, padded(self.rank)))
        for state in (self.W, self.H):
            state[:, : self.rank] = random.normal(size=(len(state), self.rank)) * self.scale
        self.b, self.c = (random.normal(size=k if self.biased else 0).astype(f4) * f4(0.1) for k in (m, n))
        counts = np.bincount(self.data.cols, minlength=n)
        pool = np.sort(self.cols.place[counts > 0]).astype(np.int32)
        at = np.searchsorted(pool, self.cols.bounds)
        self.pool = (pool, at[self.order.col_block], at[self.order.col_block + 1])

    @property
    def states(self) -> tuple[Any, ...]:
        return self.W, self.H, self.b, self.c

    def twin(self) -> Twin:
        return Twin(self.laid, self.states, *self.pool)

    def step(self, problem: FactorizationProblem, epoch: int = 0, seed: int = 0, **weights: float) -> BlockStep:
        given: dict[str, Any] = {"confidence": 0.0, "mean_weight": 1.0} | weights
        ranked = Ranked(*self.pool, **given, seed=seed)
        laid = self.laid
        arrays = (laid.ptr, laid.u, laid.i, laid.r, laid.row_base, laid.col_base)
        return ranking_step(problem, self.order, epoch, arrays, self.states, ranked)

    def run(self, problem: FactorizationProblem, profile: str = "exact", **given: Any) -> BlockStep:
        step = self.step(problem, **given)
        with Serial().open() as crew:
            assert crew.run(step, profile).failed is None
        return step


def problem(loss: str, **given: Any) -> FactorizationProblem:
    known: dict[str, Any] = {
        "rank": 5,
        "loss": loss,
        "implicit": True,
        "learning_rate": 0.05,
        "schedule": "constant",
        "reg": 0.02,
    }
    return FactorizationProblem(**known | given)


@pytest.mark.parametrize("profile", ["exact", "fast"])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_pass_is_that_of_its_twin(loss: str, biased: bool, profile: str) -> None:
    data = some_ratings(1_500, 80, 60)
    signed = Data.from_arrays(data.rows, data.cols, np.where(data.rows % 5 == 0, -1.0, data.values), data.shape)
    model = Model(signed, 2, 20, biased=biased)
    twin = model.twin()
    weights = {"confidence": 0.4, "mean_weight": 2.0}
    step = model.run(problem(loss, rank=20, negatives=3, bias_reg=0.01), profile, epoch=2, seed=9, **weights)
    totals = twin.run(loss, step=0.05, lam=0.02, lam_bias=0.01, draws=3, seed=9, epoch=2, **weights)
    for state, expected in zip(model.states, (twin.W, twin.H, twin.b, twin.c), strict=True):
        np.testing.assert_allclose(state, expected, atol=2e-5)
    assert step.total() == pytest.approx(sum(totals), rel=1e-4)
    assert min(totals) > 0


def one_pair(loss: str) -> tuple[Model, int, int, int]:
    """A model of one row that has one of two items: (model, row, the item, the other one), in the plan's order."""
    data = Data.from_arrays([0, 1], [0, 1], [1.0, 1.0], (2, 2))
    model = Model(data, 1, 3, scale=0.6)
    return model, int(model.rows.place[0]), int(model.cols.place[0]), int(model.cols.place[1])


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_goes_down_the_gradient(loss: str) -> None:
    """Finite differences of the documented loss, of all numbers that two pairs move."""
    model, x, y, j = one_pair(loss)
    other = int(model.rows.place[1])
    level = math.log(1 + 1) / math.log(1 + 2)  # the first draw of two items

    def objective(flat: np.ndarray) -> float:
        W, H = flat[:6].reshape(2, 3), flat[6:12].reshape(2, 3)
        b, c = flat[12:14], flat[14:16]
        total = 0.0
        for row, have, lack in ((x, y, j), (other, j, y)):
            s = {item: W[row] @ H[item] + c[item] for item in (have, lack)}
            d = s[have] - s[lack]
            if loss == "bpr":
                total += math.log1p(math.exp(-d))
            elif loss == "warp":
                total += level * max(0.0, 1 - d)
            else:
                total += math.log1p(math.exp(-s[have] - b[row])) + math.log1p(math.exp(s[lack] + b[row]))
        return total

    flat = np.concatenate([model.W[:, :3].ravel(), model.H[:, :3].ravel(), model.b, model.c]).astype(np.float64)
    small = 1e-5
    slopes = [(objective(flat + small * e) - objective(flat - small * e)) / (2 * small) for e in np.eye(len(flat))]
    before = [state.astype(np.float64) for state in model.states]
    rate = 1e-3
    model.run(problem(loss, learning_rate=rate, reg=0.0, negatives=1))
    moved = [(state - old) / rate for state, old in zip(model.states, before, strict=True)]
    found = np.concatenate([moved[0][:, :3].ravel(), moved[1][:, :3].ravel(), moved[2], moved[3]])
    assert np.abs(found).max() > 0.1
    # The second pair is moved after the first one, so it sees factors that differ by one step.
    np.testing.assert_allclose(found, -np.array(slopes), atol=5e-3)


def test_only_items_that_the_row_lacks_are_drawn() -> None:
    """A row that has all items but one: only that one is moved down, whatever is drawn."""
    items = 12
    data = Data.from_arrays(np.zeros(items - 1, int), np.arange(items - 1), np.ones(items - 1), (1, items))
    model = Model(data, 1, 4)
    model.pool = (np.arange(items, dtype=np.int32), np.array([0]), np.array([items]))
    before = model.c.copy()
    model.run(problem("bpr", negatives=20, reg=0.0, learning_rate=0.01))
    down = np.flatnonzero(model.c < before)
    assert down.tolist() == [int(model.cols.place[items - 1])]


def test_a_row_that_has_every_item_is_left_as_it_is() -> None:
    data = Data.from_arrays([0, 0, 0], [0, 1, 2], [1.0, 1.0, 1.0], (1, 3))
    for loss in ("bpr", "warp"):
        model = Model(data, 1, 4)
        before = [state.copy() for state in model.states]
        assert model.run(problem(loss, negatives=4)).total() == 0.0
        for state, old in zip(model.states, before, strict=True):
            np.testing.assert_array_equal(state, old)


def test_epochs_and_seeds_draw_other_items() -> None:
    results = set()
    draws: tuple[dict[str, Any], ...] = ({"epoch": 0}, {"epoch": 1}, {"seed": 1})
    for given in draws:
        model = Model(some_ratings(600, 40, 50), 2, 4)
        model.run(problem("bpr"), **given)
        results.add(model.H.tobytes())
    assert len(results) == 3


def test_a_number_that_is_not_finite_fails_the_visit() -> None:
    for loss in LOSSES:
        model = Model(some_ratings(600, 40, 50), 2, 4)
        model.H[3] = np.nan
        with Serial().open() as crew:
            assert crew.run(model.step(problem(loss)), "exact").failed is not None


def test_no_block_of_columns_is_one_popular_item() -> None:
    counts = (1e6 / np.arange(1, 2001) ** 1.3).astype(np.int64)
    cut = cut_columns(counts, 16, seed=3)
    assert cut.sizes.min() >= 2000 / 16 / 4
