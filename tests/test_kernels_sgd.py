"""The SGD kernels: bit for bit what their NumPy twin computes, within rounding of textbook SGD in double precision."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import sgd_twin
from jobs import digest, small_data, some_ratings
from stretto.data.records.data import Data
from stretto.kernels.factorization.adarevision_sgd import FACTOR
from stretto.kernels.factorization.loss_codes import CODES
from stretto.kernels.factorization.sgd import is_sparse
from stretto.kernels.numeric.lanes import aligned, padded
from stretto.runtime.blocks.layout import Blocks
from stretto.runtime.blocks.source import InMemory
from stretto.runtime.blocks.step import StepOutcome
from stretto.runtime.blocks.survey import survey
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.schedule.orders.order import Order
from stretto.solvers.factorization.penalties import penalties, shares_of
from stretto.solvers.factorization.problem import FactorizationProblem
from stretto.solvers.factorization.sgd import sgd_step
from test_kernels_grid import laid_out

f4 = np.float32
OPTIMIZERS = ["sgd", "adagrad", "adarevision"]
SCALE = 3.0
STEP, LAM, LAM_BIAS = f4(0.05), f4(float(f4(0.07)) / SCALE), f4(0.07)


class Model:
    """Blocks of some data, and factors to move."""

    def __init__(self, data: Data, blocks: int, rank: int, *, biased: bool, seed: int = 0) -> None:
        self.rank = rank
        self.blocks: Blocks
        self.order: Order
        self.blocks, self.order, self.rows, self.cols = laid_out(data, blocks, mean=0.5, scale=SCALE)
        random = np.random.default_rng(seed)
        m, n = data.shape
        self.W, self.H = aligned((m, padded(rank))), aligned((n, padded(rank)))
        self.W[:, :rank], self.H[:, :rank] = random.normal(size=(m, rank)) * 0.3, random.normal(size=(n, rank)) * 0.3
        self.b, self.c = (random.normal(size=k if biased else 0).astype(f4) * f4(0.1) for k in (m, n))
        self.gw, self.gh = (1 + random.random(k).astype(f4) for k in (m, n))
        self.zw, self.zh = (1 + random.random(state.shape).astype(f4) for state in (self.W, self.H))
        self.zb, self.zc = (1 + random.random(len(state)).astype(f4) for state in (self.b, self.c))

    def squares(self, optimizer: str) -> list[NDArray[Any]]:
        kept = {"adagrad": [self.gw, self.gh], "adarevision": [self.zw, self.zh, self.zb, self.zc]}
        return kept.get(optimizer, [])

    def states(self, optimizer: str = "sgd") -> list[NDArray[Any]]:
        return [self.W, self.H, self.b, self.c, *self.squares(optimizer)]

    def tail(self, optimizer: str, loss: str, limit: float = math.inf) -> tuple[Any, ...]:
        """What the twin receives besides blocks and states."""
        return (STEP, LAM, LAM_BIAS, CODES[loss], f4(limit), *((self.rank,) if optimizer == "adagrad" else ()))

    def run(
        self,
        optimizer: str,
        loss: str,
        profile: str = "exact",
        runtime: Runtime | None = None,
        limit: float = math.inf,
    ) -> StepOutcome:
        """One pass of the compiled kernel."""
        problem = FactorizationProblem(
            self.rank,
            loss=loss,
            reg=float(LAM) * SCALE,
            bias_reg=float(LAM_BIAS),
            learning_rate=float(STEP),
            schedule="constant",
            optimizer=optimizer,
        )
        blocks, states, squares = self.blocks, tuple(self.states()), tuple(self.squares(optimizer))
        arrays = (blocks.ptr, blocks.u, blocks.i, blocks.r, blocks.row_base, blocks.col_base)
        step = sgd_step(problem, self.order, 0, SCALE, limit, arrays, states, squares)
        with (runtime or Serial()).open() as crew:
            return crew.run(step, profile)

    def twin(self, optimizer: str, loss: str, limit: float = math.inf) -> NDArray[np.float64]:
        """The same pass by the twin."""
        one_pass: Any = getattr(sgd_twin, optimizer)
        found: NDArray[np.float64] = one_pass(self.blocks, *self.states(optimizer), *self.tail(optimizer, loss, limit))
        return found


@given(*[st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**50), max_value=2.0**50)] * 3)
def test_the_twin_rounds_once(x: float, y: float, z: float) -> None:
    found = float(sgd_twin.fma(f4(x), f4(y), f4(z)))
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    below, above = (float(np.nextafter(f4(found), f4(s * np.inf))) for s in (-1, 1))
    distance = abs(Fraction(found) - exact)
    assert distance <= abs(Fraction(below) - exact)
    assert distance <= abs(Fraction(above) - exact)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", sorted(CODES))
@pytest.mark.parametrize("biased", [True, False], ids=["biases", "no biases"])
@pytest.mark.parametrize("limit", [math.inf, 0.25], ids=["no limit", "limited"])
def test_the_kernel_is_its_twin(optimizer: str, loss: str, biased: bool, limit: float) -> None:
    data = some_ratings(400, 40, 30)
    mine, twin = (Model(data, 4, 20, biased=biased) for _ in range(2))
    done = mine.run(optimizer, loss, limit=limit)
    out = twin.twin(optimizer, loss, limit)
    for one, two in zip(mine.states(optimizer), twin.states(optimizer), strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(done.step.out, out)


@pytest.mark.parametrize("entries", [90, 290], ids=["steps by entry", "steps by visit"])
@pytest.mark.parametrize("schedule", ["constant", "adaptive"])
@pytest.mark.parametrize("biased", [True, False], ids=["biases", "no biases"])
def test_default_penalties_also_count_once_for_each_row_and_column(biased: bool, schedule: str, entries: int) -> None:
    """Bit for bit; a step shrinks the factors of a row with few ratings to zero, and not beyond."""
    data = some_ratings(entries, 30, 20)
    one, two = (Model(data, 2, 20, biased=biased) for _ in range(2))
    assert bool(is_sparse(one.blocks.ptr, one.W, one.H)) == (entries < 2 * (30 + 20))
    problem = FactorizationProblem(20, biases=biased, learning_rate=2.0, schedule=schedule)
    decay = f4(problem.decay_at(7))
    bias = tuple(f4(each) for each in problem.bias_step_at(7))
    assert (decay > 0) == (schedule == "adaptive")
    arrays = (one.blocks.ptr, one.blocks.u, one.blocks.i, one.blocks.r, one.blocks.row_base, one.blocks.col_base)
    with Serial().open() as crew:
        shares = shares_of(problem, survey(InMemory(data), crew), one.rows, one.cols)
        step = sgd_step(problem, one.order, 7, SCALE, 0.25, arrays, tuple(one.states()), (), shares)
        crew.run(step, "exact")
    reg, size = penalties(problem, SCALE), f4(problem.step_at(7))
    assert size == 2.0 or schedule == "adaptive"
    assert reg.ridge > 0
    assert (reg.bias_ridge > 0) == biased
    counts = np.maximum(np.bincount(data.rows, minlength=30), 1)
    np.testing.assert_array_equal(shares[0][one.rows.place], (1 / counts).astype(f4))
    assert entries > 90 or 2.0 * (reg.factors + reg.ridge / counts.min()) > 1
    tail = (size, f4(reg.factors), f4(reg.biases), CODES["squared"], f4(0.25))
    one_pass: Any = sgd_twin.sgd
    wanted = one_pass(two.blocks, *two.states(), *tail, (f4(reg.ridge), f4(reg.bias_ridge)), shares, decay, bias)
    assert np.array_equal(step.out, wanted)
    assert digest(one.states()) == digest(two.states())


@settings(max_examples=25)
@given(
    small_data(20, 60),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([1, 3, 16, 17, 40, 130]),
    st.booleans(),
    st.sampled_from(OPTIMIZERS),
)
def test_the_kernel_is_its_twin_for_any_shape(data: Data, blocks: int, rank: int, biased: bool, optimizer: str) -> None:
    mine, twin = (Model(data, blocks, rank, biased=biased) for _ in range(2))
    mine.run(optimizer, "squared", runtime=Threads(3))
    twin.twin(optimizer, "squared")
    for one, two in zip(mine.states(optimizer), twin.states(optimizer), strict=True):
        np.testing.assert_array_equal(one, two)


def textbook(model: Model, loss: str) -> tuple[list[NDArray[np.float64]], float]:
    """Stochastic gradient descent as it is written in books, in double precision, over the same order."""
    W, H, b, c = (state.astype(np.float64) for state in model.states())
    blocks, step, lam, lam_bias, total = model.blocks, float(STEP), float(LAM), float(LAM_BIAS), 0.0
    for v in range(len(blocks.ptr) - 1):
        for t in range(blocks.ptr[v], blocks.ptr[v + 1]):
            x, y = blocks.row_base[v] + int(blocks.u[t]), blocks.col_base[v] + int(blocks.i[t])
            r, p = float(blocks.r[t]), W[x] @ H[y] + b[x] + c[y]
            if loss == "squared":
                cost, pull = (r - p) ** 2, r - p
            elif loss == "absolute":
                cost, pull = abs(r - p), np.sign(r - p)
            else:
                cost = np.logaddexp(0, -p if r > 0 else p)
                pull = (r > 0) - 1 / (1 + math.exp(-p))
            total += float(cost)
            W[x], H[y] = W[x] + step * (pull * H[y] - lam * W[x]), H[y] + step * (pull * W[x] - lam * H[y])
            b[x] += step * (pull - lam_bias * b[x])
            c[y] += step * (pull - lam_bias * c[y])
    return [W, H, b, c], total


@pytest.mark.parametrize("profile", ["exact", "fast"])
@pytest.mark.parametrize("loss", sorted(CODES))
def test_the_kernel_is_textbook_sgd(loss: str, profile: str) -> None:
    model = Model(some_ratings(3000, 100, 80), 4, 24, biased=True)
    wanted, total = textbook(model, loss)
    done = model.run("sgd", loss, profile)
    # The sign of the absolute loss may flip where a prediction meets its rating to the last bit.
    within = 2e-5 if loss != "absolute" else 2e-4
    for found, state in zip(model.states(), wanted, strict=True):
        np.testing.assert_allclose(found, state, atol=within)
    assert done.step.total() == pytest.approx(total, rel=1e-5)


def late(w: NDArray[Any], g: NDArray[Any], G: NDArray[Any], G_old: NDArray[Any], z: NDArray[Any], most: Any) -> None:
    """AdaRevision as it is written, in place: a gradient g that was worked out when the sum of gradients was G_old.

    z: the sum of squares with corrections, most: the largest it has been.
    """
    b = G - G_old
    before = STEP / np.sqrt(most)
    z += g * g + 2 * g * b
    most[...] = np.maximum(most, z)
    after = STEP / np.sqrt(most)
    w += -after * g + (before - after) * b
    G += g


@pytest.mark.parametrize("profile", ["exact", "fast"])
def test_the_kernel_is_adarevision_without_delays(profile: str) -> None:
    """Every gradient is worked out from what the one before left: the whole rule, in double precision."""
    model = Model(some_ratings(3000, 100, 80), 4, 24, biased=True)
    W, H, b, c, *squares = (state.astype(np.float64) for state in model.states("adarevision"))
    states = [W, H, b[:, None], c[:, None]]
    sums = [np.zeros_like(state) for state in states]
    z = [square.reshape(state.shape) for square, state in zip(squares, states, strict=True)]
    most, blocks, total = [square.copy() for square in z], model.blocks, 0.0
    for v in range(len(blocks.ptr) - 1):
        for t in range(blocks.ptr[v], blocks.ptr[v + 1]):
            x, y = blocks.row_base[v] + int(blocks.u[t]), blocks.col_base[v] + int(blocks.i[t])
            e = float(blocks.r[t]) - W[x] @ H[y] - b[x] - c[y]
            total += e * e
            read = [G[at].copy() for G, at in zip(sums, (x, y, x, y), strict=True)]
            lam, lam_bias = float(LAM), float(LAM_BIAS)
            gradients = (lam * W[x] - e * H[y], lam * H[y] - e * W[x], lam_bias * b[[x]] - e, lam_bias * c[[y]] - e)
            for k, at in enumerate((x, y, x, y)):
                late(states[k][at], gradients[k], sums[k][at], read[k], z[k][at], most[k][at])
    done = model.run("adarevision", "squared", profile)
    for found, state in zip(model.states("adarevision"), [W, H, b, c, *squares], strict=True):
        np.testing.assert_allclose(found, state, rtol=2e-5, atol=2e-5)
    assert done.step.total() == pytest.approx(total, rel=1e-5)


def test_the_inverse_root_is_right() -> None:
    """What the twin works out, which is what the kernel works out, beside the true value, over all z there can be."""
    random = np.random.default_rng(0)
    octaves = np.arange(1 << 22, dtype=np.uint32) * np.uint32(4) + f4(1).view(np.uint32)
    z = np.concatenate([octaves.view(f4), np.exp(random.uniform(0, 88, 100_000)).astype(f4)])
    found = sgd_twin.moved(np.zeros_like(z), np.ones_like(z), z).astype(np.float64) / FACTOR
    assert np.abs(found * np.sqrt(z.astype(np.float64)) - 1).max() < 4.5e-7


@pytest.mark.parametrize("profile", ["exact", "fast"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_visit_that_goes_wrong_is_named(profile: str, optimizer: str, bad: float) -> None:
    model = Model(some_ratings(400, 40, 30), 4, 5, biased=True)
    poisoned = int(model.order.row_block[6])
    model.W[model.rows.bounds[poisoned], 0] = bad
    done = model.run(optimizer, "squared", profile)
    assert done.failed is not None
    assert model.order.row_block[done.failed] == poisoned
    assert done.finished is not None
    assert len(done.finished) < len(model.order)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_padding_stays_zero_and_empty_rows_stay_put(optimizer: str) -> None:
    data = Data.from_arrays([0, 0, 5], [1, 2, 2], [1.0, 2.0, 3.0], (9, 4))
    model = Model(data, 2, 3, biased=True)
    before = [state.copy() for state in model.states(optimizer)]
    model.run(optimizer, "squared")
    assert not model.W[:, 3:].any()
    assert not model.H[:, 3:].any()
    untouched = model.rows.place[[1, 2, 3, 4, 6, 7, 8]]
    for now, then in zip(model.states(optimizer)[::2], before[::2], strict=True):  # those along the rows
        np.testing.assert_array_equal(now[untouched], then[untouched])
    assert not np.array_equal(model.W[model.rows.place[0]], before[0][model.rows.place[0]])
