"""Steps that are not planned honour the budget or are refused; compiled models say that their kernels are not used."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
from torch import nn

from stretto.errors import PlanError, RunError
from stretto.memory import Step, step
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.fallback import HookedStep

pytestmark = pytest.mark.usefixtures("one_torch_thread")
BATCH = (torch.ones(8, 64),)


class Measured(PlainDevice):
    """Says how many bytes each step took."""

    def __init__(self, *peaks: int) -> None:
        super().__init__()
        self.peaks, self.watched = list(peaks), 0

    def reset_peak(self) -> None:
        self.watched += 1

    def peak(self) -> int | None:
        return self.peaks.pop(0) if self.watched and self.peaks else 0


def made(*, plannable: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[Any], Any]]:
    model = nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())

    def train_step(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = model(*batch).square().mean()
        if not plannable:
            loss = loss * loss.item()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, train_step


def hooked(budget: int, device: PlainDevice) -> Any:
    model, optimizer, train_step = made()
    return step(train_step, [model], [optimizer], BATCH, budget=budget, device=device)


def test_a_step_within_the_budget_runs_and_is_measured_until_it_is_known() -> None:
    device = Measured(90_000, 99_000)
    one = hooked(100_000, device)
    assert isinstance(one, HookedStep)
    for _ in range(5):
        one(BATCH)
    assert device.watched == 3
    one((torch.ones(9, 64),))
    assert device.watched == 4


def test_a_step_that_takes_more_than_the_budget_is_refused() -> None:
    one = hooked(100_000, Measured(90_000, 110_000))
    one(BATCH)
    with pytest.raises(
        RunError, match=r"budget=97\.7 KiB: the step takes 107\.4 KiB on cpu\. It is not planned, since .*if"
    ):
        one(BATCH)


def test_parameters_that_exceed_the_budget_are_refused_before_anything_runs() -> None:
    with pytest.raises(PlanError, match=r"parameters, gradients and optimizer state take 32\.5 KiB on cpu"):
        hooked(30_000, Measured())


def test_a_device_that_does_not_measure_has_no_bound() -> None:
    assert isinstance(hooked(1, PlainDevice()), HookedStep)


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize("how", [compiled_in_place, lambda model: torch.compile(model, backend="eager")])
def test_a_compiled_model_is_planned_without_its_kernels_and_says_so(
    how: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer, train_step = made(plannable=True)
    with caplog.at_level(logging.WARNING, "stretto.memory"):
        planned = step(train_step, [how(model)], [optimizer], BATCH, budget="1MiB", device=PlainDevice())
    assert isinstance(planned, Step)
    (line,) = [one.getMessage() for one in caplog.records if one.name == "stretto.memory"]
    assert "the model (Linear) was compiled with torch.compile" in line
    assert "compile=True" in line


def test_a_model_without_parameters_yet_is_refused() -> None:
    model = nn.Sequential(nn.LazyLinear(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(PlanError, match=r"layer 0 \(LazyLinear\) has no parameters yet; call the model once"):
        step(lambda batch: model(*batch), [model], [optimizer], BATCH, budget="1MiB", device=PlainDevice())


@pytest.mark.parametrize(
    ("kind", "why"),
    [(torch.optim.SparseAdam, "takes sparse gradients only"), (torch.optim.LBFGS, "several times")],
)
def test_optimizers_that_no_plan_can_serve_are_named(kind: Any, why: str) -> None:
    model, _, train_step = made()
    one = step(train_step, [model], [kind(model.parameters())], BATCH, budget="1MiB", device=PlainDevice())
    assert isinstance(one, HookedStep)
    assert why in one.why
