"""Random nests beside the integer set library: no dependence is missed, and what is parallel is found to be.

Every nest is planned, checked iteration by iteration and executed; `bench/loops_isl.py` says how.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from bench.loops_nests import nest
from bench.loops_oracle import shares

from stretto.loops.analyse import distances
from stretto.loops.layout import cut_visits

pytest.importorskip("islpy")

from bench.loops_isl import examine


def test_no_dependence_is_missed_and_parallel_nests_are_found() -> None:
    outcomes = [examine(seed, interpreted=seed % 5 == 0) for seed in range(250)]
    parallel, found = shares(outcomes)
    assert found / parallel >= 0.95
    assert parallel > 150
    assert sum(outcome.depth == 4 for outcome in outcomes) > 20
    assert Counter(outcome.strategy for outcome in outcomes).keys() >= {
        "independent", "1d", "2d ordered", "2d transformed", "chain"
    }  # fmt: skip
    assert sum(not outcome.exact for outcome in outcomes) <= 5


def test_a_few_nests_on_threads() -> None:
    for seed in range(5000, 5008):
        examine(seed, compiled=True)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_twenty_thousand_nests() -> None:
    outcomes = [examine(seed) for seed in range(1_000_000, 1_020_000)]
    parallel, found = shares(outcomes)
    assert found / parallel >= 0.95


def first_failure(match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        [examine(seed) for seed in range(200)]


def test_the_oracle_notices_a_missed_dependence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "parts", lambda *_: ())
    first_failure("a distance is missed")


def test_the_oracle_notices_visits_that_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_visits, "wavefront", cut_visits.ring)
    first_failure("race in nest|differs")


def test_nests_are_varied() -> None:
    sources = [nest(random.Random(seed)).source for seed in range(200)]
    for part in ("2 * ", " * m", ", -1)", ", 2)", "if ", "i + j", "-i"):
        assert any(part in source for source in sources), part
