"""Thousands of random fault schedules, each checked by the replay checker; BSP ends with the bits of the serial run.

`make test` runs 500 from a fresh seed, `make test-full` the first ten thousand as well. A schedule that fails names its
seed and the command that runs it again; STRETTO_SCHEDULES=n makes n the fresh seed.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

from stretto.comm.link import Link
from stretto.comm.policy import Eager, Lazy, Managed
from stretto.consistency.rules import ASP, BSP, SSP
from stretto.testing import check_replay, schedules
from stretto.testing.draws import draw
from stretto.testing.schedules import ScheduleFailed, compare, main, run_seed, run_serial, run_simulated, run_threads

# Far from the seeds that test-full runs, so that a day of fresh seeds finds new things.
FRESH = int(os.environ.get("STRETTO_SCHEDULES", 1_000_000 + int.from_bytes(os.urandom(4), "big")))
BLOCK = 30


@pytest.mark.parametrize("block", range(10))
def test_three_hundred_fresh_schedules(block: int) -> None:
    first = FRESH + block * BLOCK
    print(f"python -m stretto.testing.schedules --first {first} --count {BLOCK}")
    for seed in range(first, first + BLOCK):
        run_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_ten_thousand_schedules(block: int) -> None:
    for seed in range(block * 250, (block + 1) * 250):
        run_seed(seed)


@pytest.mark.parametrize("crashes", [0, 1, 2])
def test_bsp_ends_with_the_serial_bits(crashes: int) -> None:
    for seed in range(12):
        report = run_seed(seed, rule=BSP(), crashes=crashes, clocks=5)
        assert report.oldest == 0


def test_real_threads_keep_the_same_promises() -> None:
    """Two threads of one process, as the machine schedules them; nothing is simulated."""
    for seed in range(60):
        schedule = draw(seed)
        result = run_threads(schedule)
        report = check_replay(result.recording)
        if isinstance(schedule.rule, BSP):
            compare(result, run_serial(schedule))
        assert report.numbers["adds"] == len(result.recording.adds)


def test_a_seed_says_everything() -> None:
    one, two = (run_simulated(draw(41)).recording for _ in range(2))
    for name in ("reads", "adds", "ticks", "sends", "deliveries", "restarts"):
        for a, b in zip(getattr(one, name), getattr(two, name), strict=True):
            for x, y in zip(a, b, strict=True):
                assert np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y, (name, a, b)


def test_draws_are_wild() -> None:
    """Everything there is occurs, and nothing is drawn twice."""
    seen: Counter[str] = Counter()
    for seed in range(400):
        schedule = draw(seed)
        seen[type(schedule.rule).__name__ + str(getattr(schedule.rule, "s", ""))] += 1
        seen["speculate"] += schedule.rule.speculate
        seen[type(schedule.policy).__name__] += 1
        seen["codec"] += schedule.policy.codec == "f2"
        if isinstance(schedule.policy, Managed):
            seen[str(schedule.policy.rank)] += 1
            seen["links"] += bool(schedule.policy.links)
        for table in schedule.tables.values():
            seen[table["apply"].name] += 1
            seen["bounded"] += table["cache_rows"] is not None
            seen["any key"] += table["rows"] is None
            seen[table["dtype"]] += 1
        seen.update(type(fault).__name__ for fault in schedule.faults)
        seen[f"{schedule.cluster['nodes']} nodes"] += 1
        seen[f"{schedule.cluster['threads']} threads"] += 1
    expected = ["BSP", "SSP0", "SSP1", "SSP2", "SSP3", "ASP", "speculate", "Eager", "Lazy", "Managed", "codec", "links"]
    expected += ["random", "round-robin", "absolute", "relative", "effective", "bounded", "any key"]
    expected += ["add", "average", "adagrad", "proximal", "adarevision", "f2", "f4", "f8", "i4", "i8"]
    expected += ["Crash", "Pause", "SlowLink", "Delay", "Reset"]
    expected += [f"{n} nodes" for n in range(1, 7)] + [f"{n} threads" for n in range(1, 5)]
    assert [name for name in expected if seen[name] < 5] == []
    assert {type(draw(seed).policy) for seed in range(50)} == {Eager, Lazy, Managed}
    assert {type(draw(seed).rule) for seed in range(50)} == {BSP, SSP, ASP}
    assert draw(3).described(steps=True) == draw(3).described(steps=True)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--verbose"]) == 0
    out = capsys.readouterr().out
    assert "schedule 3:" in out
    assert " kept: " in out
    assert main(["--first", "3", "--count", "2"]) == 0
    assert "2 schedules, every promise kept" in capsys.readouterr().out


def test_a_failing_seed_names_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(self: Link, frame: object) -> list[object]:
        raise AssertionError("planted")

    monkeypatch.setattr(Link, "receive", broken)
    seed = next(seed for seed in range(100) if draw(seed).cluster["nodes"] > 2)
    with pytest.raises(ScheduleFailed, match=f"python -m stretto.testing.schedules --seed {seed} --verbose"):
        run_seed(seed)
    assert main(["--seed", str(seed)]) == 1
    assert f"{schedules.COMMAND} {seed}" in capsys.readouterr().err
