"""Working sets as a spec: the support and the nearest of the pool, ties by number, sizes that grow and stop growing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stretto.errors import PlanError
from stretto.schedule.working_sets import working_sets


@settings(max_examples=150)
@given(
    p=some.integers(1, 60),
    first=some.integers(1, 40),
    growth=some.sampled_from([1.1, 2.0, 5.0]),
    samples=some.integers(1, 20),
    seed=some.integers(0, 2**31),
)
def test_a_set_holds_the_support_and_the_nearest(p: int, first: int, growth: float, samples: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    distance = rng.integers(-3, 4, p).astype(float)  # many ties
    distance[rng.random(p) < 0.3] = np.inf
    support = np.flatnonzero(rng.random(p) < rng.choice([0.0, 0.1, 0.5]))
    chosen = working_sets(first, growth=growth).choose(support, distance.copy(), samples)
    assert chosen.dtype == np.int64
    assert np.all(np.diff(chosen) > 0)
    assert set(support) <= set(chosen)
    pool = set(np.flatnonzero(distance < np.inf)) | set(support)
    assert set(chosen) <= pool
    held = len(support)
    wanted = max(first, held + 1 + held // 4, min(int(growth * held), 2 * samples))
    assert len(chosen) == min(wanted, len(pool))
    # The others in order of distance, ties by number.
    others = sorted(pool - set(support), key=lambda j: (distance[j], j))
    assert set(chosen) - set(support) == set(others[: len(chosen) - len(support)])


def test_sizes_of_sets() -> None:
    spec = working_sets()
    assert [spec.start_size(p, sparse=False) for p in (10, 2500, 1_000_000)] == [100, 100, 2000]
    assert spec.start_size(1_000_000, sparse=True) == 100
    assert working_sets(7).start_size(1_000_000, sparse=True) == 7
    assert len(spec.choose(np.empty(0, np.int64), np.full(5, np.inf), 10)) == 0
    with pytest.raises(PlanError, match="first must be at least 1; got 0"):
        working_sets(0)
    with pytest.raises(PlanError, match="growth must be more than 1"):
        working_sets(growth=1.0)
    assert "300 features first" in working_sets(300).explain()
    assert "no column is dropped" in working_sets(screen=False).explain()


def test_sets_grow_quickly_up_to_twice_the_samples_and_slowly_beyond() -> None:
    """A set that is no larger than the support would be the last one, whatever pulls from outside."""
    spec, distance = working_sets(1), np.zeros(1000)
    assert [len(spec.choose(np.arange(held), distance, 50)) for held in (10, 40, 60, 99, 100, 400)] == [
        20, 80, 100, 124, 126, 501,
    ]  # fmt: skip
