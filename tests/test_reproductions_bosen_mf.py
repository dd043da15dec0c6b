"""Runs for reproductions/bosen_mf.py, on a few ratings: they learn, repeat themselves, and managing sends more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench.table_mf import LAM, Kept, Mode, Ratings, adaptive, gradients

import stretto as st

pytestmark = pytest.mark.slow  # reproductions are no part of `make test`

BS = Mode("BS", rate=0.3, clocks=4)
MANAGED = Mode("MC", rate=0.3, clocks=4, budget="50Mbit")


@pytest.fixture(scope="module")
def ratings() -> Ratings:
    made = st.generate_ratings(4_000, 150, 80, rank=3, noise=0.1, seed=3)
    return Ratings(made.data, nodes=3, threads=2, rank=4, batches=4)


def losses(run: Kept) -> list[float]:
    return [-look.objective for look in run.looks]


def test_every_rating_is_dealt_out_once(ratings: Ratings) -> None:
    dealt = sorted(
        (int(rows[i]), int(cols[j]), float(value))
        for part in ratings.parts
        for rows, cols, users, items, values in part
        for i, j, value in zip(users, items, values, strict=True)
    )
    users, items, values = ratings.all
    assert dealt == sorted(zip(users.tolist(), items.tolist(), values.tolist(), strict=True))


def test_gradients_are_those_of_the_loss(ratings: Ratings) -> None:
    users, items, values = ratings.all
    W, H = ratings.W.astype("f8"), ratings.H.astype("f8")
    dW, dH = np.zeros_like(W), np.zeros_like(H)
    gradients(users, items, values.astype("f8"), W, H, LAM, dW, dH)
    error = values - (W[users] * H[items]).sum(axis=1)
    wanted = np.zeros_like(W)
    np.add.at(wanted, users, np.float32(LAM) * W[users] - error[:, None] * H[items])
    np.testing.assert_allclose(dW, wanted, rtol=1e-9, atol=1e-9)
    wanted = np.zeros_like(H)
    np.add.at(wanted, items, np.float32(LAM) * H[items] - error[:, None] * W[users])
    np.testing.assert_allclose(dH, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "mode", [BS, MANAGED, Mode("add", server="add", rate=0.05, decay=0.9, clocks=4), replace(BS, lazy=True)]
)
def test_the_loss_falls(ratings: Ratings, mode: Mode) -> None:
    run = ratings.run(mode)
    assert run.looks[-1].epoch == 4
    assert losses(run)[-1] < 0.95 * losses(run)[0]


def test_one_machine_learns_faster_than_stale_ones(ratings: Ratings) -> None:
    assert losses(ratings.single(BS))[-1] < losses(ratings.run(BS))[-1]


def test_one_rating_at_a_time_is_adagrad(ratings: Ratings) -> None:
    users, items, values = (part[:1] for part in ratings.all)
    W, H = ratings.W.copy(), ratings.H.copy()
    adaptive(users, items, values, W, H, np.ones_like(W), np.ones_like(H), LAM, 0.3)
    w, h = ratings.W[users[0]], ratings.H[items[0]]
    g = LAM * w - (values[0] - w @ h) * h
    np.testing.assert_allclose(W[users[0]], w - 0.3 / np.sqrt(1 + g * g) * g, rtol=1e-5)


@pytest.mark.parametrize("mode", [BS, MANAGED])
def test_runs_repeat_themselves(ratings: Ratings, mode: Mode) -> None:
    first, again = ratings.run(mode), ratings.run(mode)
    assert first.looks == again.looks
    assert first.reasons == again.reasons


def test_managed_sends_between_clocks(ratings: Ratings) -> None:
    eager, managed = ratings.run(BS), ratings.run(MANAGED)
    assert "updates rank" not in eager.reasons
    assert "rows rank" not in eager.reasons
    assert managed.reasons["updates rank"][1] > 0
    assert managed.reasons["rows rank"][1] > 0
    assert managed.looks[-1].bytes > eager.looks[-1].bytes


def test_a_run_ends_at_its_target_and_is_kept(ratings: Ratings, tmp_path: Path) -> None:
    found = losses(ratings.run(BS))
    run = ratings.run(BS, until=found[2])
    assert losses(run) == found[:3]
    run.save(tmp_path)
    kept = Kept.load(tmp_path, "BS")
    assert kept is not None
    assert kept.looks == run.looks
