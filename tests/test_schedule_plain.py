"""Schedules that do not depend on the outcome of their rounds: in turn, at random, by parts."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from stretto import schedule
from stretto.errors import PlanError
from stretto.schedule.spec import Schedule


def rounds(spec: Schedule, size: int, count: int, seed: int = 0) -> list[list[int]]:
    chooser = spec.start(size, seed)
    return [chooser.choose().tolist() for _ in range(count)]


def test_cyclic_takes_all_in_turn_and_ends_a_round_with_the_sweep() -> None:
    assert rounds(schedule.cyclic(2), 5, 4) == [[0, 1], [2, 3], [4], [0, 1]]
    assert rounds(schedule.cyclic(9), 3, 2) == [[0, 1, 2], [0, 1, 2]]


@given(size=st.integers(1, 40), width=st.integers(1, 50), seed=st.integers(0, 2**40))
def test_a_shuffled_sweep_holds_everyone_once_in_another_order_each_time(size: int, width: int, seed: int) -> None:
    each = -(-size // min(width, size))
    found = rounds(schedule.cyclic(width, shuffle=True), size, 3 * each, seed)
    sweeps = [[job for jobs in found[k * each : (k + 1) * each] for job in jobs] for k in range(3)]
    assert all(sorted(sweep) == list(range(size)) for sweep in sweeps)
    if size > 20:
        assert sweeps[0] != sweeps[1] != sweeps[2]


@given(size=st.integers(1, 60), width=st.integers(1, 70), seed=st.integers(0, 2**40))
def test_random_rounds_hold_different_jobs_and_belong_to_their_key(size: int, width: int, seed: int) -> None:
    found = rounds(schedule.random(width), size, 5, seed)
    for jobs in found:
        assert len(set(jobs)) == len(jobs) == min(width, size)
        assert set(jobs) <= set(range(size))
    assert found == rounds(schedule.random(width), size, 5, seed)
    if size > 20 and width == 10:
        assert found != rounds(schedule.random(width), size, 5, seed + 1)


def test_random_rounds_are_even() -> None:
    counts = np.bincount(np.concatenate(rounds(schedule.random(5), 20, 4000)), minlength=20)
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)


@pytest.mark.parametrize("spec", [schedule.cyclic(3, shuffle=True), schedule.random(4)], ids=["cyclic", "random"])
def test_restored_in_the_middle_of_a_sweep_it_goes_on_alike(spec: Schedule) -> None:
    one, other = spec.start(20, 7), spec.start(20, 7)
    for _ in range(3):
        one.choose()
    other.restore(one.arrays())
    assert [one.choose().tolist() for _ in range(12)] == [other.choose().tolist() for _ in range(12)]
    with pytest.raises(PlanError, match="another schedule"):
        spec.start(20, 7).restore({})


@pytest.mark.parametrize("make", [schedule.cyclic, schedule.random, schedule.prioritised])
def test_a_round_without_jobs_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(PlanError, match="at least one job"):
        make(0)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: schedule.cyclic("4"), "width must be a whole number; got '4'"),  # type: ignore[arg-type]
        (lambda: schedule.random(2.0), "width must be a whole number; got 2.0"),  # type: ignore[arg-type]
        (lambda: schedule.clustered(blocks_graph(2, 3), 2.5), "parts must be a whole number"),  # type: ignore[arg-type]
        (lambda: schedule.rotation(1.5), "blocks must be a whole number"),  # type: ignore[arg-type]
        (lambda: schedule.rotation(0), "at least one block, got blocks=0"),
    ],
    ids=["cyclic", "random", "clustered", "rotation", "no blocks"],
)
def test_settings_are_whole_numbers(make: Callable[[], object], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        make()


def blocks_graph(blocks: int, each: int) -> scipy.sparse.csr_array:
    """Blocks of parameters that all depend on each other, and weakly on the next block; numbered across the blocks."""
    size = blocks * each
    block = np.arange(size) % blocks
    weight = np.where(block[:, None] == block, 0.9, 0.0)
    weight[0, 1] = weight[1, 0] = 0.2
    np.fill_diagonal(weight, 1.0)
    return scipy.sparse.csr_array(weight)


def test_clustered_parts_follow_the_graph_and_never_meet_inside() -> None:
    graph = blocks_graph(4, 6)
    spec = schedule.clustered(graph, 4)
    parts = spec.part.reshape(6, 4)
    assert (parts == parts[0]).all()
    assert len(set(parts[0].tolist())) == 4
    assert spec.cut == pytest.approx(0.2)
    chooser = spec.start(24, 0)
    seen: set[int] = set()
    for _ in range(6):
        jobs = chooser.choose()
        assert len({int(spec.part[job]) for job in jobs}) == len(jobs) == 4
        seen |= set(jobs.tolist())
    assert seen == set(range(24))
    assert "0.4% of the dependency" in spec.explain()
    assert spec == schedule.clustered(lambda: graph, 4)


def test_correlation_graph_holds_the_pairs_that_reach_the_threshold() -> None:
    X = np.random.default_rng(0).standard_normal((30, 300))
    X[:, 7] = X[:, 290] + 0.1
    graph = schedule.correlation_graph(X, 0.4, centred=True).toarray()
    exact = np.abs(np.corrcoef(X.T))
    np.fill_diagonal(exact, 0.0)
    np.testing.assert_allclose(graph, np.where(exact >= 0.4, exact, 0.0), atol=1e-6)


def test_graphs_that_cannot_be_cut_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = blocks_graph(2, 3)
    with pytest.raises(PlanError, match="1 to 6 parts"):
        schedule.clustered(graph, 7)
    with pytest.raises(PlanError, match="square SciPy"):
        schedule.clustered(np.eye(3), 2)
    with pytest.raises(PlanError, match="symmetric"):
        schedule.clustered(scipy.sparse.csr_array(np.triu(graph.toarray())), 2)
    with pytest.raises(PlanError, match="above 0"):
        schedule.clustered(-graph, 2)
    with pytest.raises(PlanError, match="6 nodes and the program 5"):
        schedule.clustered(graph, 2).start(5, 0)
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(PlanError, match=r"stretto\[graph\]"):
        schedule.clustered(graph, 2)
