"""What the benches of memory measure in a turn, and what they do before it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from bench import memory_frontier, memory_models, memory_runs, memory_turns
from bench.memory_turns import metered
from torch import nn

from stretto.memory.capture.lifted import OpCall
from stretto.memory.front_end import common_step
from stretto.memory.measure.costs import costed
from stretto.memory.measure.meter import CallCost, CostCache, Meter
from stretto.memory.operations.fuse import Chain
from stretto.memory.options import StepOptions, StepSource
from stretto.memory.planning import capture

CPU = torch.device("cpu")


@pytest.fixture
def in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether somebody has a turn."""
    monkeypatch.setenv("STRETTO_TURNS", str(tmp_path / "turns"))
    (tmp_path / "turns").mkdir()

    def held() -> bool:
        with open(tmp_path / "turns" / "lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    return held


class Stopped:
    """Signals that were sent, instead of sending them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        monkeypatch.setattr(memory_turns, "_tell", lambda folder, what, but=0: self.told.append(what.name))


def meter(path: Path, *, join: bool) -> Meter:
    """Of a small step; join: with its chains compiled."""
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(4, 8), torch.ones(4, 8)
    step = common_step(model, F.mse_loss, optimizer)
    lifted = capture(StepSource(step, [model], [optimizer], batch, CPU), 1 << 30, StepOptions(compile=join)).lifted
    return Meter(lifted, CPU, CostCache(path))


def test_single_operations_are_measured_in_a_turn_while_others_go_on(
    tmp_path: Path, in_turn: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    stopped = Stopped(monkeypatch)

    def tried(self: Meter, call: OpCall) -> CallCost:
        seen.append(in_turn())
        return CallCost(1.0, 0)

    monkeypatch.setattr(Meter, "_try", tried)
    one = meter(tmp_path / "costs.json", join=False)
    with metered():
        costed(one.lifted, CPU, meter=one)
    assert seen
    assert all(seen)
    assert stopped.told == []
    seen.clear()
    costed(one.lifted, CPU, meter=meter(tmp_path / "others.json", join=False))
    assert not any(seen)  # who is not within asks for no turn


def test_the_order_of_allocations_is_that_of_a_step_which_lays_results_out_anew(tmp_path: Path) -> None:
    one = meter(tmp_path / "costs.json", join=False)
    call = next(run for run in one.lifted.runs if isinstance(run, OpCall) and run.single and run.makes)
    value = one.lifted.values[call.makes[0]]
    as_traced = torch.zeros(value.size, dtype=value.dtype)
    assert one._laid_out(call, [as_traced])[0] is as_traced
    otherwise = as_traced.t().contiguous().t()
    (laid,) = one._laid_out(call, [otherwise])
    assert laid is not otherwise
    assert laid.stride() == value.stride


def test_chains_are_compiled_before_the_turn(
    tmp_path: Path, in_turn: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[bool]] = {}

    def tried(self: Meter, call: OpCall) -> CallCost:
        if isinstance(call.target, Chain):
            seen.setdefault(self.key(call), []).append(in_turn())
        return CallCost(1.0, 0)

    monkeypatch.setattr(Meter, "_try", tried)
    one = meter(tmp_path / "costs.json", join=True)
    with metered():
        costed(one.lifted, CPU, meter=one)
    assert seen
    assert all(when == [False, True] for when in seen.values())


def test_steps_are_timed_while_others_stand_still(in_turn: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    stopped = Stopped(monkeypatch)
    memory_runs.timed(lambda: seen.append(in_turn()), 1, 2)
    assert seen == [True] * 3
    assert stopped.told == ["SIGSTOP", "SIGCONT"]
    assert not in_turn()


def test_a_compiled_step_is_made_once_before_the_turn(
    in_turn: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And as many steps are made with it as with others: losses are compared."""
    seen: list[bool] = []
    stopped = Stopped(monkeypatch)

    def step(batch: Any) -> torch.Tensor:
        seen.append(in_turn())
        return torch.tensor(float(len(seen)))

    def nothing(*args: Any) -> int:
        return 0

    monkeypatch.setitem(memory_models.MODELS, "toy", lambda *args: memory_models.Job(step, [], [], None, []))
    for name in (
        "synchronize",
        "empty_cache",
        "reset_peak_memory_stats",
        "max_memory_allocated",
        "max_memory_reserved",
    ):
        monkeypatch.setattr(torch.cuda, name, nothing)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")
    monkeypatch.setattr(memory_frontier, "_said", lambda row, eager: "")
    rows = {}
    for method in ("checkpoint", "compile 1.0", "ours compiled 0.5"):
        seen.clear()
        rows[method] = memory_frontier.measured(("toy", "toy", "fp32", {}), method, lambda job: job.step)
        assert seen[0] == (method == "checkpoint")
        assert all(seen[1:])
        assert len(seen) == memory_frontier.WARM + memory_frontier.STEPS
    assert {row["loss"] for row in rows.values()} == {9.0}
    assert stopped.told == ["SIGSTOP", "SIGCONT"] * 3
