"""Groups without conflicts: checked pair by pair on small random touches."""

from __future__ import annotations

import itertools

import hypothesis.strategies as some
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from stretto.kernels.rounds import colouring
from stretto.schedule.orders.conflicts import Groups, Touches, group, hottest, touches

ELEMENTS = 12


@some.composite
def random_touches(draw: some.DrawFn) -> list[list[tuple[int, bool]]]:
    """For each iteration the (element, written) it touches, with repetitions; few elements make hot data."""
    few = draw(some.sampled_from([3, ELEMENTS]))
    one = some.tuples(some.integers(0, few - 1), some.booleans())
    return draw(some.lists(some.lists(one, max_size=4), max_size=40))


def pack(rows: list[list[tuple[int, bool]]], elements: int = ELEMENTS) -> Touches:
    ptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    keys = np.array([2 * e + w for row in rows for e, w in row], np.int64)
    return touches(ptr, keys, elements, colouring)


def conflict(a: list[tuple[int, bool]], b: list[tuple[int, bool]]) -> bool:
    return any(e == f and (v or w) for (e, v), (f, w) in itertools.product(a, b))


def waves_of(groups: Groups) -> list[list[NDArray[np.int64]]]:
    """The iterations of each visit of each wave."""
    visits = [groups.picked[lo:hi] for lo, hi in itertools.pairwise(groups.ptr)]
    return [visits[lo:hi] for lo, hi in itertools.pairwise(groups.waves)]


def check(rows: list[list[tuple[int, bool]]], groups: Groups, width: int) -> None:
    assert sorted(groups.picked.tolist()) == list(range(len(rows)))
    when: dict[int, tuple[int, int, int]] = {}
    path = 0
    for k, wave in enumerate(waves_of(groups)):
        assert len(wave) <= width
        for one, other in itertools.combinations(wave, 2):
            assert not any(conflict(rows[a], rows[b]) for a in one for b in other)
        when |= {s: (k, v, at) for v, visit in enumerate(wave) for at, s in enumerate(visit.tolist())}
        work = [sum(1 + len({e for e, _ in rows[s]}) for s in visit) for visit in wave]
        path += max(work, default=0)
    for a, b in itertools.combinations(range(len(rows)), 2):
        if conflict(rows[a], rows[b]):
            assert when[a] < when[b], "iterations in conflict keep their order"
    total = int(groups.weight.sum())
    assert total == sum(1 + len({e for e, _ in row}) for row in rows)
    assert groups.parallelism == pytest.approx(total / path if path else 1.0)


@given(random_touches(), some.sampled_from([1, 2, 5, 16]))
@settings(max_examples=150)
def test_no_two_visits_of_a_wave_conflict_and_nothing_is_lost(rows: list[list[tuple[int, bool]]], width: int) -> None:
    given_ = pack(rows)
    groups = group(given_, width, colouring)
    check(rows, groups, width)
    again = group(given_, width, colouring)
    np.testing.assert_array_equal(groups.picked, again.picked)
    np.testing.assert_array_equal(groups.ptr, again.ptr)
    np.testing.assert_array_equal(groups.waves, again.waves)


@given(random_touches())
def test_touches_keep_every_element_once_as_written_if_it_is_written(rows: list[list[tuple[int, bool]]]) -> None:
    settled = pack(rows)
    for s, row in enumerate(rows):
        found = settled.keys[settled.ptr[s] : settled.ptr[s + 1]].tolist()
        assert sorted(found) == sorted(2 * e + any(w for f, w in row if f == e) for e in {e for e, _ in row})


@given(random_touches())
def test_hottest(rows: list[list[tuple[int, bool]]]) -> None:
    shared = {e: sum(any(f == e for f, _ in row) for row in rows) for e in range(ELEMENTS)
              if any((e, True) in row for row in rows)}  # fmt: skip
    most = max(shared.values(), default=0)
    found = hottest(pack(rows), colouring)
    if most < 2:
        assert found is None
    else:
        assert found is not None
        assert found.iterations == most
        assert shared[found.element] == most


def test_reading_together_is_no_conflict() -> None:
    groups = group(pack([[(0, False), (1 + s % 11, s < 11)] for s in range(11)]), 4, colouring)
    assert len(groups.waves) == 2
    assert groups.parallelism > 3


def test_one_element_for_all_leaves_no_parallelism() -> None:
    groups = group(pack([[(0, True)]] * 30), 8, colouring)
    assert groups.parallelism == 1.0


def test_cold_data_run_in_one_wave() -> None:
    rng = np.random.default_rng(0)
    elements = 1_000_000
    rows = [[(int(e), True) for e in rng.integers(0, elements, 5)] for _ in range(3000)]
    groups = group(pack(rows, elements), 16, colouring)
    assert len(groups.waves) == 2
    assert groups.parallelism > 12


def test_large_and_lukewarm_data_find_parallelism_in_waves_worth_having() -> None:
    """Conflicts enough for one giant component, few enough for groups: neither one wave nor thousands."""
    rng = np.random.default_rng(0)
    n, k, elements = 60_000, 8, 200_000
    keys = 2 * rng.integers(0, elements, n * k) + 1
    groups = group(touches(np.arange(0, n * k + 1, k, dtype=np.int64), keys, elements, colouring), 16, colouring)
    assert groups.parallelism > 4
    assert 1 < len(groups.waves) - 1 < 100
