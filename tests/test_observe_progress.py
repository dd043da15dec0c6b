"""What the user sees: a bar on a terminal, one line elsewhere."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from stretto.observe.events import (
    CheckpointRejected,
    CheckpointSaved,
    EpochDone,
    Event,
    PassDone,
    PlanMade,
    RunEnded,
    RunStarted,
    Status,
    Warned,
)
from stretto.observe.progress import Progress
from stretto.text import amount, duration


def run(epochs: int = 5, *, status: Status = "done", message: str = "", step: float = 1.0) -> list[Event]:
    events: list[Event] = [RunStarted(0.0, {}), PlanMade("f", "the [bold]plan[/bold]")]
    for epoch in range(1, epochs + 1):
        now = epoch * step
        events.append(PassDone(now, epoch, "sgd", step, 2_000_000))
        events.append(EpochDone(now, epoch, 5, step, 2_000_000, 100.0 / epoch, {"test_rmse": 0.9}))
    return [*events, CheckpointSaved(5.0, "here", 5, 2**20, 0.1), RunEnded(epochs * step, status, message)]


def shown(events: list[Event], *, terminal: bool, verbose: int = 1) -> str:
    out = io.StringIO()
    progress = Progress(Console(file=out, force_terminal=terminal, width=100, color_system=None), verbose=verbose)
    for event in events:
        progress(event)
    progress.close()
    return out.getvalue()


def test_one_line_when_not_a_terminal() -> None:
    assert (
        shown(run(), terminal=False) == "done  5/5 epochs in 5.0 s  objective 20  test rmse 0.9000  2.0 M ratings/s\n"
    )


def test_a_bar_on_a_terminal() -> None:
    text = shown(run(), terminal=True)
    assert "2/5" in text
    assert "objective 50" in text
    assert "2.0 M ratings/s" in text
    assert "3.0 s left" in text
    assert text.rstrip().endswith("done  5/5 epochs in 5.0 s  objective 20  test rmse 0.9000  2.0 M ratings/s")
    assert "\x1b[?25h" in text[text.rindex("\x1b[?25l") :]  # the cursor comes back


def test_the_cursor_comes_back_when_the_run_dies() -> None:
    text = shown(run()[:5], terminal=True)
    assert "\x1b[?25h" in text[text.rindex("\x1b[?25l") :]


def test_quick_epochs_are_not_all_drawn() -> None:
    slow, fast = (shown(run(step=step), terminal=True).count("\x1b[2K") for step in (1.0, 0.001))
    assert fast < slow


@pytest.mark.parametrize("terminal", [True, False])
def test_silence(terminal: bool) -> None:
    assert shown([*run(), Warned("careful")], terminal=terminal, verbose=0) == ""


def test_everything() -> None:
    lines = shown(run(), terminal=False, verbose=2).splitlines()
    assert lines[0] == "the [bold]plan[/bold]"
    assert lines[1] == "epoch 1/5  objective 100  test rmse 0.9000  2.0 M ratings/s  1.0 s"
    assert "saved here: 1.0 MiB in 100 ms" in lines
    assert len(lines) == 8


def test_warnings_are_always_shown() -> None:
    text = shown([Warned("careful"), CheckpointRejected("p", "p is damaged")], terminal=False)
    assert text == "warning: careful\nwarning: passed over a checkpoint: p is damaged\n"


@pytest.mark.parametrize(("status", "word"), [("early", "stopped early"), ("stopped", "stopped"), ("failed", "failed")])
def test_endings(status: Status, word: str) -> None:
    text = shown(run(3, status=status, message="go on with: resume"), terminal=False)
    assert text.startswith(f"{word}  3/5 epochs")
    assert text.endswith("(go on with: resume)\n")
    assert shown([RunStarted(0.0, {}), RunEnded(1.0, status, "")], terminal=False) == f"{word}\n"


def test_odd_numbers_do_not_break_it() -> None:
    events: list[Event] = [RunStarted(0.0, {}), EpochDone(0.0, 1, 1, 0.0, 0, math.nan), RunEnded(0.0, "done")]
    assert shown(events, terminal=True)
    assert shown(events, terminal=False) == "done  1/1 epochs in 0 ms  objective nan\n"


def test_words_for_numbers() -> None:
    assert [duration(s) for s in (0.0123, 4.2, 59.96, 75, 3599.7, 7322)] == [
        "12 ms",
        "4.2 s",
        "1:00",
        "1:15",
        "1:00:00",
        "2:02:02",
    ]
    assert [amount(v) for v in (0, 950, 1500, 45_200_000, 3e9)] == ["0", "950", "1.5 k", "45.2 M", "3.0 G"]
