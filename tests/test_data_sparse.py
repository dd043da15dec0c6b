"""Sparse records with any number of indices, from arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import DataError


def test_three_indices() -> None:
    index = ([0, 1, 1], [2, 0, 2], np.array([3, 3, 0], np.uint8))
    data = st.sparse(index, [5.0, 4.0, 3.0])
    assert data.shape == (2, 3, 4)
    assert list(data) == [((0, 2, 3), 5.0), ((1, 0, 3), 4.0), ((1, 2, 0), 3.0)]
    assert st.sparse(index, [5.0, 4.0, 3.0], (9, 9, 9)).shape == (9, 9, 9)


def test_one_index_and_several_values() -> None:
    assert list(st.sparse([4, 0], ([1, 2], [0.5, 1.5]))) == [(4, (1, 0.5)), (0, (2, 1.5))]
    assert len(st.sparse(([], []), [], (3, 3))) == 0


def test_the_indices_are_copied() -> None:
    """What the caller does to the arrays later leaves no index outside the shape."""
    rows = np.array([0, 1])
    data = st.sparse((rows, [0, 1]), [1.0, 2.0])
    rows[0] = 99
    assert [index for index, _ in data] == [(0, 0), (1, 1)]


@pytest.mark.parametrize(
    ("index", "values", "shape", "problem"),
    [
        (([0, 1], [0]), [1.0, 2.0], None, "flat arrays of one length"),
        (([[0, 1]], [[0, 1]]), [1.0, 2.0], None, "flat arrays of one length"),
        ((), [1.0], None, "flat arrays of one length"),
        (([0.5, 1.0], [0, 1]), [1.0, 2.0], None, "an array of integers, got float64"),
        (([0, -1], [0, 1]), [1.0, 2.0], None, "an index is 0 or more, got -1"),
        ((np.array([0, 2**63], np.uint64), [0, 1]), [1.0, 2.0], None, "an index is at most 2.*63 - 1, got 9223"),
        (([0, 1], [0, 1]), [1.0, 2.0], (2, 1), r"shape=\(2, 1\) does not hold the indices"),
        (([0, 1], [0, 1]), [1.0, 2.0], (2, 2, 2), "does not hold the indices"),
        (([0, 1], [0, 1]), ["a", "b"], None, "a flat array of numbers"),
    ],
)
def test_what_is_refused(index: Any, values: Any, shape: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        st.sparse(index, values, shape)
