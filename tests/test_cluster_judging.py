"""Who is lost: decisions over numbers."""

from __future__ import annotations

import pytest

from stretto.runtime.cluster.hosts.failure_detector import BUSY, FIRST, VISITS, StallDetector, lost_one

PATIENCE = 5.0


# --- silence --------------------------------------------------------------------------------------------------------


def test_the_one_that_most_do_not_hear_is_lost() -> None:
    silences = {(0, 2): 6.0, (1, 2): 7.0, (2, 0): 6.0, (2, 1): 6.0}
    assert lost_one(silences, (), PATIENCE) == (2, 2, 7.0)
    assert lost_one({(0, 1): 6.0, (1, 0): 6.0}, (), PATIENCE) == (1, 1, 6.0)


def test_who_answers_the_driver_gets_longer() -> None:
    assert lost_one({(0, 1): 6.0}, (1,), PATIENCE) is None
    assert lost_one({(0, 1): BUSY * PATIENCE + 1}, (1,), PATIENCE) == (1, 1, BUSY * PATIENCE + 1)
    assert lost_one({(0, 1): 6.0, (1, 0): 6.0}, (1,), PATIENCE) == (0, 1, 6.0)


# --- standstill -----------------------------------------------------------------------------------------------------


def test_a_node_that_could_get_on_and_does_not_is_stuck() -> None:
    still = StallDetector(PATIENCE)
    limit = BUSY * PATIENCE
    for now in (0.0, limit / 2, limit):
        still.see(now, {0: ((0, 9 - int(now)), 1), 1: ((0, 7), 2)})  # the first gets on
    assert still.stuck(limit, longest=0.1) is None
    assert still.stuck(limit + 1, longest=0.1) == (1, limit + 1)
    still.see(limit + 1, {0: ((0, 3), 1), 1: ((0, 6), 2)})
    assert still.stuck(limit + 2, longest=0.1) is None


def test_long_visits_are_waited_for() -> None:
    still = StallDetector(PATIENCE)
    still.see(0.0, {0: ((0, 9), 1)})
    longest = 10.0
    assert still.stuck(VISITS * longest - 1, longest) is None
    assert still.stuck(VISITS * longest + 1, longest) == (0, VISITS * longest + 1)
    assert still.stuck(FIRST * PATIENCE - 1, 0.0) is None  # nothing is known of visits yet
    assert still.stuck(FIRST * PATIENCE + 1, 0.0) is not None


def test_who_waits_for_blocks_is_not_stuck() -> None:
    """Of a chain of waiting nodes only the one at its end is to blame; the clock runs from when it could go on."""
    still = StallDetector(PATIENCE)
    still.see(0.0, {0: ((0, 9), 0), 1: ((0, 9), 0), 2: ((0, 9), 1)})
    assert still.stuck(1e3, longest=0.1) == (2, 1e3)
    still.see(100.0, {0: ((0, 9), 0), 1: ((0, 9), 1)})  # its visits were made meanwhile, and 1 has a block
    assert still.stuck(100.0 + BUSY * PATIENCE, longest=0.1) is None
    assert still.stuck(101.0 + BUSY * PATIENCE, longest=0.1) == (1, 1 + BUSY * PATIENCE)


def test_nobody_has_anything_to_do() -> None:
    still = StallDetector(PATIENCE)
    assert still.idle(5.0) == 0.0
    still.see(0.0, {0: ((0, 9), 0), 1: ((0, 9), 0)})
    still.see(30.0, {0: ((0, 9), 0), 1: ((0, 9), 0)})
    assert still.idle(40.0) == pytest.approx(40.0)
    assert still.stuck(1e6, longest=0.1) is None
    still.see(50.0, {0: ((0, 9), 0), 1: ((0, 9), 1)})
    assert still.idle(60.0) == 0.0
    still.see(70.0, {0: ((0, 9), 0), 1: ((0, 8), 0)})
    assert still.idle(80.0) == pytest.approx(10.0)
    still.see(90.0, {})  # all have made theirs
    assert still.idle(100.0) == 0.0
