"""Thirty models at tiny size under budgets of 100, 50 and 35 % of what their plain step takes: the same bits as eager,
with copies as late as the events allow and freed memory filled with NaN."""

from __future__ import annotations

import functools
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
from bench.memory_models import Job
from bench.memory_zoo_observe import plain_peak
from bench.zoo import ZOO, make

from stretto.memory import Step, step
from stretto.memory.planner.planner import Infeasible
from stretto.memory.run.devices import PlainDevice

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SHARES = (1.0, 0.5, 0.35)
STEPS = 3
# In `make test`: different kinds, each taking a few seconds. The rest is slow.
QUICK = ("dlrm", "llama", "branching", "point_cloud")
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}  # where `Entry.rounding` says why bits are not equal


def named(names: Any) -> list[Any]:
    """Models as parameters of a test, with what is expected of them."""
    found = []
    for name in names:
        marks = [] if name in QUICK else [pytest.mark.slow]
        found.append(pytest.param(name, marks=marks))
    return found


def under(budget: int, job: Job, seed: int) -> Step:
    """A planned step, on a device that shows races."""
    device = PlainDevice(late=0.7, seed=seed, poison=True)
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget, device=device)
    assert isinstance(planned, Step), getattr(planned, "why", "")
    assert planned.report.peak <= budget
    return planned


def trained(function: Any, job: Job) -> list[torch.Tensor]:
    """Losses of a few steps, seeded one by one."""
    losses = []
    for number in range(STEPS):
        torch.manual_seed(number)
        losses.append(function(job.batch).detach().clone())
        job.after()
    return losses


def state(job: Job) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name."""
    return {
        f"{number}.{name}": tensor
        for number, module in enumerate(job.modules)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


def same_as_eager(budget: int, name: str, eager: Job, losses: list[torch.Tensor], seed: int) -> None:
    same = functools.partial(torch.allclose, **ROUNDING) if ZOO[name].rounding else torch.equal
    job = make(name, "cpu", "tiny")
    planned = under(budget, job, seed)
    for number, (mine, its) in enumerate(zip(trained(planned, job), losses, strict=True)):
        assert same(mine, its), f"loss of step {number}: {float(mine)}, eager's {float(its)}"
    planned.settle()
    wanted = state(eager)
    different = [key for key, tensor in state(job).items() if not same(tensor, wanted[key])]
    assert not different
    planned.close()


@pytest.mark.parametrize("name", named(ZOO))
def test_a_planned_step_gives_eagers_bits(name: str) -> None:
    eager = make(name, "cpu", "tiny")
    losses = trained(eager.step, eager)
    peak = plain_peak(make(name, "cpu", "tiny"))
    for seed, share in enumerate(SHARES):
        budget = int(share * peak)
        smallest = None
        try:
            same_as_eager(budget, name, eager, losses, seed)
        except Infeasible as refused:
            smallest = refused.smallest
        if smallest is not None:
            assert share < 1.0, "the plain plan takes this much and no more"
            assert smallest > budget
            same_as_eager(smallest, name, eager, losses, seed)
            break


def test_half_of_the_models_are_not_seen_while_tuning() -> None:
    assert len(ZOO) == 30
    assert sum(entry.seen for entry in ZOO.values()) == 15


@pytest.mark.parametrize("name", ZOO)
def test_tiny_models_are_tiny_and_always_the_same(name: str) -> None:
    one, two = make(name, "cpu", "tiny"), make(name, "cpu", "tiny")
    assert sum(p.numel() for module in one.modules for p in module.parameters()) < 1_000_000
    assert all(torch.equal(a, b) for a, b in zip(state(one).values(), state(two).values(), strict=True))
