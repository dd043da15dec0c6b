"""Unimodular matrices: they lose no point, and what the search returns does what it says."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.loops.analyse.dependence import positive
from stretto.loops.analyse.facts import VectorEntry
from stretto.loops.analyse.strategy.unimodular import Matrix, apply, inverse, search, transformed

PLUS, EVERY = VectorEntry(1, math.inf), VectorEntry(-math.inf, math.inf)


def exact(*vectors: tuple[int, int]) -> list[tuple[VectorEntry, ...]]:
    return [tuple(VectorEntry(step, step) for step in vector) for vector in vectors]


def test_nine_points_need_one_skew() -> None:
    assert search(exact((1, 0), (0, 1), (1, 1), (1, -1))) == (((1, 0), (1, 1)), True)


def test_vectors_that_already_point_forward_stay() -> None:
    assert search(exact((1, 0), (0, 1))) == (((1, 0), (0, 1)), True)


def test_a_reversal_is_found() -> None:
    assert search(exact((1, -1), (0, -1))) == (((1, 0), (0, -1)), True)


def test_positive_infinity() -> None:
    backwards = (PLUS, VectorEntry(-1, -1))
    # Any distance ahead with one step back: skewing by one is enough, because ahead is at least one.
    assert search([backwards, (VectorEntry(0, 0), VectorEntry(1, 1))]) == (((1, 0), (1, 1)), True)


def test_one_row_at_a_time_where_nothing_can_be_tiled() -> None:
    found = search([(VectorEntry(1, 1), EVERY)])
    assert found == (((1, 0), (0, 1)), False)


@pytest.mark.parametrize("vectors", [exact((1, -9), (0, 1)), [(PLUS, EVERY), (VectorEntry(0, 0), PLUS)]])
def test_none_where_no_small_matrix_helps(vectors: list[tuple[VectorEntry, ...]]) -> None:
    assert search(vectors) is None


def test_a_vector_within_one_point_is_no_obstacle() -> None:
    assert search(exact((0, 0), (1, -1))) is not None


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_found_matrices_are_unimodular_and_forward(draw: random.Random) -> None:
    kinds = [EVERY, *(VectorEntry(step, step) for step in range(-3, 4))]
    raw = [(draw.choice(kinds), draw.choice(kinds)) for _ in range(draw.randint(1, 3))]
    vectors = [vector for pair in raw for vector in positive(pair)]
    found = search(vectors)
    if found is None:
        return
    matrix, tiled = found
    for point in itertools.product(range(-2, 3), repeat=2):
        assert apply(inverse(matrix), apply(matrix, point)) == point
    for vector in vectors:
        for step in sample(vector):
            time, space = apply(matrix, step)
            assert time > 0 or (tiled and time == 0 and space > 0)
            assert space >= 0 or not tiled
            assert all(e.low <= x <= e.high for e, x in zip(transformed(matrix, vector), (time, space), strict=True))


def sample(vector: tuple[VectorEntry, ...]) -> list[tuple[int, ...]]:
    """The vector's distances up to 20."""
    ranges = [range(int(max(e.low, -20)), int(min(e.high, 20)) + 1) for e in vector]
    return list(itertools.product(*ranges))


def test_the_search_agrees_with_trying_every_matrix() -> None:
    draw = random.Random(5)
    small: list[Matrix] = [
        ((a, b), (c, d)) for a, b, c, d in itertools.product(range(-3, 4), repeat=4) if abs(a * d - b * c) == 1
    ]
    for _ in range(60):
        vectors = [(draw.randint(0, 2), draw.randint(-4, 4)) for _ in range(3)]
        vectors = [v if v > (0, 0) else (1, 0) for v in vectors]
        can_tile = any(all(min(apply(matrix, v)) >= 0 for v in vectors) for matrix in small)
        can_step = any(all(apply(matrix, v)[0] > 0 for v in vectors) for matrix in small)
        found = search(exact(*vectors))
        assert (found is not None) == (can_tile or can_step)
        assert found is None or found[1] == can_tile
