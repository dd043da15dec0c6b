"""What the measurements on the laboratory make of what they see: paces, parts of a set, stalls."""

from __future__ import annotations

import numpy as np
import pytest
from bench import cluster_stall
from bench.cluster_costs import pace
from bench.table_runs import Look, Run
from reproductions import cluster_scaling


def test_pace_leaves_the_first_third_out() -> None:
    slow_start = [0.0, 5.0, 10.0, 11.0, 12.0, 13.0]  # clocks of one second once it runs
    assert pace(slow_start, passes=6) == 1.0
    assert pace(slow_start, passes=3) == 2.0  # two clocks a pass


@pytest.mark.slow  # a reproduction
def test_pace_of_a_simulated_run_counts_the_last_passes() -> None:
    looks = tuple(Look(epoch, seconds, nbytes, 0.0) for epoch, seconds, nbytes in
                  [(0, 0.0, 0), (1, 9.0, 900), (2, 10.0, 1000), (3, 12.0, 1300), (4, 14.0, 1600)])  # fmt: skip
    run = Run("x", 3, 6, 1, looks, {}, (), (), {}, 0.0)
    assert cluster_scaling.pace(run) == 2.0
    assert cluster_scaling.sent(run) == 100.0


@pytest.mark.slow  # a reproduction
def test_a_part_has_its_share() -> None:
    sizes = np.random.default_rng(1).integers(1, 50, 1000)
    some = cluster_scaling.part(sizes, 0.25)
    assert 0.248 * sizes.sum() < sizes[some].sum() <= 0.25 * sizes.sum()


def test_stall_is_what_a_worker_slept() -> None:
    # Two epochs of ten seconds after the first: in the second of them the worker sleeps for half of the time.
    when = np.arange(0.0, 31.0)
    ran = np.interp(when, [0, 20, 30], [0.0, 8.0, 10.0])
    runnable = np.interp(when, [0, 20, 30], [0.0, 12.0, 15.0])
    looks = cluster_stall.Threads(None, 1.0)
    idle = [(float(t), 0.0, 0.0) for t in when]
    looks.seen[1] = {(7, 7): idle, (7, 8): list(zip(when.tolist(), ran.tolist(), runnable.tolist(), strict=True))}
    told = {"epochs": [{"ended": 10.0}, {"ended": 20.0}, {"ended": 30.0}]}
    found = cluster_stall.stalls(told, looks, [1])
    assert found[0, :, 0] == pytest.approx([0.6, 0.3])
    assert found[0, :, 1] == pytest.approx([0.0, 0.5])
