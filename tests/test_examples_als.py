"""ALS as a task of two units: convergence, the same bits everywhere, and what a partition of the user saves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import stretto as st
from examples_run import load

als = load("als_stages")
RANK, LAM, TURNS = 16, 0.05, 6


@pytest.fixture(scope="module")
def ratings() -> Any:
    return st.generate_ratings(60_000, 4_000, 2_000, seed=3).data


@pytest.fixture(scope="module")
def trained(ratings: Any) -> Any:
    return als.train(ratings, RANK, LAM, TURNS, runtime=st.Threads(2))


def rmse(ratings: Any, W: Any, H: Any) -> float:
    found = (W[ratings.rows] * H[ratings.cols]).sum(1)
    return float(np.sqrt(((ratings.values - found) ** 2).mean()))


def plain(ratings: Any) -> tuple[Any, Any]:
    """ALS in NumPy, with the normal equations of a whole side at a time."""
    W, H = (state.array.astype("f8") for state in als.start(ratings.shape, RANK))
    for _ in range(TURNS):
        for mine, other, rows, cols in ((W, H, ratings.rows, ratings.cols), (H, W, ratings.cols, ratings.rows)):
            count = np.bincount(rows, minlength=len(mine))
            A = np.zeros((len(mine), RANK, RANK))
            np.add.at(A, rows, other[cols][:, :, None] * other[cols][:, None, :])
            A += (LAM * count)[:, None, None] * np.eye(RANK)
            b = np.zeros_like(mine)
            np.add.at(b, rows, other[cols] * ratings.values[:, None])
            seen = count > 0
            mine[seen] = np.linalg.solve(A[seen], b[seen][:, :, None])[:, :, 0]
    return W, H


def test_the_error_falls_to_that_of_plain_als(ratings: Any, trained: Any) -> None:
    W, H, result = trained
    errors = result.history("items")
    assert len(errors) == TURNS
    assert all(after < before for before, after in pairwise(errors))
    expected = plain(ratings)
    assert rmse(ratings, W.array, H.array) == pytest.approx(rmse(ratings, *expected), rel=1e-6)
    np.testing.assert_allclose(W.array @ H.array[:50].T, expected[0] @ expected[1][:50].T, atol=1e-5)
    assert rmse(ratings, W.array, H.array) < 0.4 * rmse(ratings, 0 * W.array, H.array)


def test_factors_with_their_parts_need_fewer_bytes(ratings: Any, trained: Any) -> None:
    sent = {}
    for custom in (True, False):
        W, H, result = als.train(ratings, RANK, LAM, TURNS, runtime=st.Simulated(nodes=2, threads=8), custom=custom)
        assert W.array.tobytes() == trained[0].array.tobytes()
        assert H.array.tobytes() == trained[1].array.tobytes()
        assert {stage.nodes for stage in result.stages} == {(0, 1)}
        sent[custom] = sum(stage.sent + stage.moved for stage in result.stages)
    assert 0 < sent[True] < 0.85 * sent[False]


def test_rows_are_held_where_they_are_solved_for(ratings: Any) -> None:
    side = als.Side(ratings.rows, ratings.cols, ratings.values, ratings.shape[0])
    for part in range(als.PARTS):
        rows, counts, others, values = side.read(part, als.PARTS)
        assert len(others) == len(values) == counts.sum()
        assert (side.partition(rows, 4) == part // 4).all()
    assert sum(len(side.read(part, als.PARTS)[0]) for part in range(als.PARTS)) == ratings.shape[0]
    assert "python examples/als_stages.py  " in str(als.__doc__)
