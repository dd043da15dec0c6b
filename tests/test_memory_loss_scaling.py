"""Gradient scalers: updates are left out in the steps in which a gradient is not finite, and only in those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn

from stretto.memory import Step, step
from stretto.memory.planner.planner import Infeasible
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.fallback import HookedStep

pytestmark = pytest.mark.usefixtures("one_torch_thread")

Made = tuple[nn.Module, torch.optim.Optimizer, torch.amp.GradScaler, Callable[[Any], Any]]


def made(*, clip: bool, fused: bool = False, enabled: bool = True, first: float = 2.0**10) -> Made:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=first, growth_interval=2, enabled=enabled)

    def train(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch[0]), batch[1])
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, optimizer, scaler, train


def batches(infinite: tuple[int, ...]) -> list[Any]:
    generator = torch.Generator().manual_seed(4)
    found = []
    for k in range(8):
        x, y = torch.randn(32, 16, generator=generator), torch.randn(32, 4, generator=generator)
        found.append((x, y * 1e30 * 1e30 if k in infinite else y))
    return found


def planned(job: Made, share: float) -> Any:
    model, optimizer, _, train = job
    how: dict[str, Any] = {"device": PlainDevice(late=0.5, poison=True)}
    try:
        return step(train, [model], [optimizer], batches(())[0], budget=1, **how)
    except Infeasible as error:
        return step(train, [model], [optimizer], batches(())[0], budget=int(share * error.smallest), **how)


@pytest.mark.parametrize("infinite", [(), (0,), (0, 1, 4), (3, 7)])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("share", [1.1, 3.0])
def test_a_scaled_step_is_the_plain_one(clip: bool, infinite: tuple[int, ...], share: float) -> None:
    results: list[Any] = []
    for plan in (False, True):
        job = made(clip=clip)
        run = planned(job, share) if plan else job[3]
        assert not plan or isinstance(run, Step)
        losses = [float(run(batch).detach()) for batch in batches(infinite)]
        state = job[1].state_dict()["state"]
        tensors = [*job[0].state_dict().values(), *(x for one in state.values() for x in one.values())]
        results.append((str(losses), [x.clone() for x in tensors], job[2].get_scale(), job[2]._get_growth_tracker()))
    (losses, tensors, *scale), (losses_planned, tensors_planned, *scale_planned) = results
    assert losses == losses_planned
    assert scale == scale_planned
    assert len(tensors) == len(tensors_planned)
    assert all(map(torch.equal, tensors, tensors_planned))


def test_planning_leaves_a_scaler_as_it_is() -> None:
    job = made(clip=False)
    planned(job, 2.0)
    assert job[2].get_scale() == 2.0**10
    assert job[2]._get_growth_tracker() == 0
    assert not job[2]._per_optimizer_states


def test_a_scaler_that_is_switched_off_does_nothing() -> None:
    job = made(clip=False, enabled=False)
    run = planned(job, 2.0)
    assert isinstance(run, Step)
    assert float(run(batches(())[0])) > 0


def test_a_fused_optimizer_unscales_itself_and_is_refused() -> None:
    run = planned(made(clip=False, fused=True), 2.0)
    assert isinstance(run, HookedStep)
    assert "pass fused=False" in run.why
