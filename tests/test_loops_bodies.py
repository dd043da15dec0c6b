"""Random loops run by the interpreter, by compiled code on one thread and on several: the same bits, or a refusal.

`python -m bench loop_bodies` runs thousands of them, on several processors' instruction sets where asked.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench import loop_bodies
from bench.loop_bodies import Outcome
from hypothesis import given, note, settings

from loop_author import Written, bodies, drawn
from loop_bodies import three_ways
from stretto.errors import LoopError, PlanError

MANY = int(os.environ.get("STRETTO_LOOP_BODIES", "5000"))
REFUSED_AT_MOST = 0.3


def check_all(count: int, *, derandomize: bool = False) -> None:
    """So many random loops, most of which run: a generator whose loops are all refused would test nothing."""
    tally = {"run": 0, "refused": 0}

    def check(written: Written) -> None:
        note(repr(written))
        try:
            three_ways(written.loop(), written.arguments)
        except (LoopError, PlanError):
            tally["refused"] += 1
            return
        tally["run"] += 1

    settings(max_examples=count, derandomize=derandomize, database=None)(given(bodies())(check))()
    assert tally["run"] + tally["refused"] >= count
    assert tally["refused"] < REFUSED_AT_MOST * count, tally


def test_a_few_bodies() -> None:
    check_all(8, derandomize=True)


@pytest.fixture
def cache_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of compiled loops are of no use to anybody later."""
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("cache_apart")
def test_many_bodies() -> None:
    """How many: STRETTO_LOOP_BODIES."""
    check_all(MANY)


def test_a_number_draws_one_loop() -> None:
    assert repr(drawn(7)) == repr(drawn(7)) != repr(drawn(8))


def test_the_command_runs_what_its_record_lacks(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    record.write_text('["native", 1000, "run", "1234"]\n["other", 1000, "run", "12"]\n', encoding="utf-8")
    found = loop_bodies.run(range(1000, 1003), ["native"], jobs=1, record=record)
    assert found[0] == Outcome("native", 1000, "run", "1234"), "kept, not run"
    assert [outcome.what for outcome in found[1:]] == ["run", "run"]
    assert len(record.read_text(encoding="utf-8").splitlines()) == 4
    again = loop_bodies.run(range(1000, 1003), ["native"], jobs=1, record=record)
    assert again == found


def test_the_command_counts_failures_and_other_bits() -> None:
    outcomes = [
        Outcome("native", 0, "run", "a"),
        Outcome("native", 1, "AssertionError: x"),
        Outcome("native", 2, "refused"),
        Outcome("generic", 0, "run", "b"),
        Outcome("generic", 1, "run", "c"),
    ]
    assert loop_bodies.other_bits(outcomes) == [0]
    table = loop_bodies.counts(outcomes)
    assert "| native | 3 | 1 | 1 | 1 |" in table
    assert "| generic | 2 | 2 | 0 | 0 |" in table


def test_a_process_that_ends_fails_its_loop_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops after it run in another process."""
    answers = iter([('[4, "run", "a"]\n[5, "ru', -11), ('[6, "run", "b"]\n', 0)])

    class Done:
        def __init__(self) -> None:
            self.stdout, self.returncode = next(answers)
            self.stderr = "Segmentation fault"

    monkeypatch.setattr("bench.loop_bodies.subprocess.run", lambda *_, **__: Done())
    found = loop_bodies._chunk("native", 4, 7, "")
    assert [outcome.number for outcome in found] == [4, 5, 6]
    assert "ended with -11" in found[1].what
