"""The classes of y: two whole numbers are found without sorting, with the same result as by sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stretto.models.linear.classifier import _any_classes, _two_classes

BITS = np.random.default_rng(0).integers(0, 2, 200)


@pytest.mark.parametrize("kind", [bool, np.int64, np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("first", [0, 1])
def test_two_whole_numbers(kind: Any, first: int) -> None:
    y = (BITS ^ BITS[0] ^ first).astype(kind)
    found = _two_classes(y)
    assert found is not None
    for mine, sorted_ in zip(found, _any_classes(y), strict=True):
        assert mine.dtype == sorted_.dtype
        np.testing.assert_array_equal(mine, sorted_)


@pytest.mark.parametrize(
    "y",
    [
        np.ones(200),
        np.arange(200) % 3,
        np.where(BITS, np.nan, 1.0),
        np.where(BITS, np.inf, 1.0),
        np.where(BITS, 0.5, 1.0),
        np.where(BITS, "a", "b"),
        BITS[:10],
        BITS.reshape(-1, 2),
    ],
    ids=["one", "three", "nan", "inf", "half", "names", "few", "two columns"],
)
def test_others_are_left_to_sorting(y: Any) -> None:
    assert _two_classes(y) is None
