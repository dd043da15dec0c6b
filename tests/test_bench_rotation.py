"""What the measurements of rotation make of what they see: costs, predictions, points of a curve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench import rotation_costs, rotation_jobs
from bench.rotation_costs import Alone, latency_of, solve
from reproductions import rotation_scaling

from stretto.data import partition
from stretto.models.topics import problem
from stretto.solvers.factorization import sgd

# bench.rotation_calibration imports the laboratory, which only Linux has.
pytest.importorskip("fcntl")
from bench import rotation_calibration


def test_pace_is_the_median_after_the_first_epochs() -> None:
    assert rotation_jobs.pace([0.0, 9.0, 18.0, 19.0, 20.0, 25.0]) == 1.0


def test_costs_of_messages_and_bytes_come_out_of_two_jobs() -> None:
    message, byte, counts = 1e-4, 2e-9, ((72.0, 1e6), (72.0, 8e6))
    cpu = tuple(message * count[0] + byte * count[1] for count in counts)
    assert solve((cpu[0], cpu[1]), counts) == pytest.approx((message, byte))
    # Noise may make the larger job the cheaper one: then bytes cost nothing, and messages their mean.
    assert solve((0.02, 0.01), counts) == pytest.approx((0.015 / 72, 0.0))
    assert solve((0.001, 0.02), counts)[0] == 0.0


def test_latency_is_found_by_bisection() -> None:
    assert latency_of(0.5, lambda latency: 0.1 + 20 * latency) == pytest.approx(0.02, rel=0.01)
    assert latency_of(0.05, lambda latency: 0.1 + 20 * latency) == 0.0


def test_a_machine_alone_tells_an_item_and_its_share() -> None:
    told = [{"spent": [0.0, 5.0, 9.0, 9.1, 9.2], "ends": [0.0, 9.0, 20.0, 20.4, 20.8], "items": 1000}] * 2
    found = Alone.of(told)
    assert found.item == pytest.approx(1e-4)
    assert found.share == pytest.approx(0.25)


def test_a_process_that_is_gone_has_no_seconds() -> None:
    assert rotation_costs.cpu_seconds(2**22 + 1) == 0.0


def test_the_verdict_counts_misses() -> None:
    assert (
        rotation_calibration.verdict([0.9, 1.2, 0.6]) == "2 of 3 predictions are within 25%; the furthest off is 0.60."
    )
    assert rotation_calibration.furthest([0.5, 1.9]) == 0.5


@pytest.mark.slow  # a reproduction
def test_a_fine_grid_has_the_blocks_of_its_width_and_ends() -> None:
    assert rotation_scaling.blocks_of("mf", "planned", (6040, 3706), 1_000_000, 128) == 32
    assert rotation_scaling.blocks_of("mf", "fine", (6040, 3706), 1_000_000, 128) == 256
    before = problem.FEWEST_TOKENS
    with rotation_scaling.grid("fine"):
        choose = vars(sgd)["choose_blocks"]
        assert choose(1_000_000, (6040, 3706), 128) == 256
        assert problem.FEWEST_TOKENS == 1
    assert vars(sgd)["choose_blocks"] is partition.choose_blocks
    assert before == problem.FEWEST_TOKENS


@pytest.mark.slow  # a reproduction
def test_rows_put_rotation_and_tables_under_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation_scaling, "alone", lambda job: 16.0)
    series, table = "MF by rotation, fine grid", "MF over tables"
    point = rotation_scaling.Point(seconds=2.0, blocks=64, sent=5e5, reported=1e6, spent=1.0)
    rows = rotation_scaling.rows_of({(series, "strong", 16): point}, {(table, "strong", 4): 8.0}, "strong")
    assert rows == [
        [series, 16, "2000.0", "1000.0", "8.0", "50%", "64", "0.50", "1.00"],
        [table, 4, "8000.0", "4000.0", "2.0", "50%", "–", "–", "–"],
    ]


def test_a_job_gives_the_same_numbers_in_serial_and_simulated() -> None:
    options: dict[str, Any] = {"count": 20_000, "users": 300, "items": 200, "rank": 4, "epochs": 3}
    one, other = (rotation_jobs.mf(where=where, nodes=3, **options) for where in ("serial", "simulated"))
    assert one["objective"] == other["objective"]
    assert len(other["ends"]) == 3
    assert np.all(np.diff(other["ends"]) > 0)
