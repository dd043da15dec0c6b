"""Ranking metrics of the kernel: against their definitions, and with the same bits in every way of running."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelrun import WAYS, cut, run
from ranking_brute import brute
from stretto.kernels.ranking.measures import MEASURES, fill_information, measure_worker

PLACES = np.array([1, 3, 10], np.int64)


def lists(seed: int, users: int, items: int, n: int, held: int) -> dict[str, Any]:
    """Random lists with gaps, held-out items with gains, and items of training; rows without any, too."""
    rng = np.random.default_rng(seed)
    found = np.full((users, n), -1, np.int32)
    wanted, gains, seen = [], [], []
    for u in range(users):
        seen.append(np.sort(rng.choice(items, rng.integers(0, items // 3 + 1), replace=False)))
        free = np.setdiff1d(np.arange(items), seen[u])
        shown = rng.permutation(free)[: rng.integers(0, n + 1)]
        found[u, : len(shown)] = shown
        wanted.append(np.sort(rng.choice(items + 2, min(items, int(rng.integers(0, held + 1))), replace=False)))
        gains.append(rng.integers(1, 6, len(wanted[u])).astype(float))
    pointer = [np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64) for rows in (wanted, seen)]
    flat = [np.concatenate([*rows, []]) for rows in (wanted, gains, seen)]
    return {
        "found": found,
        "wanted": (pointer[0], flat[0].astype(np.int32), flat[1]),
        "seen": (pointer[1], flat[2].astype(np.int32)),
        "information": rng.random(items),
        "items": items,
        "rows": (wanted, gains, seen),
    }


def measured(p: dict[str, Any], *, graded: bool, filtered: bool, way: str = "forwards") -> Any:
    users = len(p["found"])
    values = np.full((users, len(PLACES) * len(MEASURES)), -7.0)
    columns = np.arange(values.shape[1]).reshape(len(PLACES), -1)
    pointer, wanted, gains = p["wanted"]
    seen = p["seen"] if filtered else (np.zeros(1, np.int64), np.zeros(0, np.int32))
    args = (np.arange(users, dtype=np.int32), p["found"], pointer, wanted, gains if graded else np.zeros(0), *seen)
    args += (p["items"], p["information"], PLACES, columns, values)
    out = run(measure_worker, cut(users, 3), *args, way=way)
    assert out.sum() == np.count_nonzero(~np.isnan(values[:, 0]))
    return values.reshape(users, len(PLACES), -1)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    users=st.integers(1, 9),
    items=st.integers(1, 30),
    n=st.integers(1, 12),
    held=st.integers(0, 14),
    graded=st.booleans(),
    filtered=st.booleans(),
)
def test_every_metric_matches_its_definition(
    seed: int, users: int, items: int, n: int, held: int, graded: bool, filtered: bool
) -> None:
    p = lists(seed, users, items, n, held)
    values = measured(p, graded=graded, filtered=filtered)
    wanted, gains, seen = p["rows"]
    for u in range(users):
        gain = dict(zip(wanted[u].tolist(), gains[u].tolist() if graded else [1.0] * len(wanted[u]), strict=True))
        left_out = frozenset(seen[u].tolist()) if filtered else frozenset()
        for at, k in enumerate(PLACES.tolist()):
            for column, name in enumerate(MEASURES):
                expected = brute(
                    name, k, p["found"][u].tolist(), gain, items=items, information=p["information"], seen=left_out
                )
                assert values[u, at, column] == pytest.approx(expected, rel=1e-12, nan_ok=True), (name, k)


def test_items_unknown_to_the_model_are_never_found() -> None:
    p = lists(3, 4, 20, 5, 0)
    p["found"][:] = np.arange(5)
    p["wanted"] = (np.array([0, 2, 2, 2, 2]), np.array([1, 25], np.int32), np.ones(2))
    values = measured(p, graded=False, filtered=False)
    assert values[0, -1, MEASURES.index("recall")] == 0.5
    assert values[0, -1, MEASURES.index("mrr")] == 0.5
    assert np.isnan(values[1:]).all()


@pytest.mark.parametrize("graded", [False, True])
def test_bits_do_not_depend_on_the_way(graded: bool) -> None:
    p = lists(1, 40, 60, 12, 20)
    found = [measured(p, graded=graded, filtered=True, way=way) for way in WAYS]
    assert len({values.tobytes() for values in found}) == 1
    assert np.isfinite(found[0]).any()


def test_information_of_popular_and_rare_items() -> None:
    made = np.empty(4)
    fill_information(np.array([7, 3, 1, 0]), 7, made)
    np.testing.assert_allclose(made, [0, 1, 2, 3], atol=1e-14)
