"""Reality takes more than a plan says: it is planned once more with that margin, and then it is an error."""

from __future__ import annotations

import gc
import weakref

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
from bench.memory_models import MODELS, Job

from stretto.errors import RunError
from stretto.memory import Step, step
from stretto.memory.run.devices import PlainDevice
from test_memory_steps import SMALL


class Greedy(PlainDevice):
    """Says that steps took so much more than they may. slabs: host buffers that still exist."""

    def __init__(self, over: list[int]) -> None:
        super().__init__(late=0.5, poison=True)
        self.over, self.budget, self.slabs = over, 0, weakref.WeakSet[torch.Tensor]()

    def allocate_host(self, nbytes: int) -> torch.Tensor:
        gc.collect()
        assert not self.slabs, "the memory of the plan before is still taken"
        slab = super().allocate_host(nbytes)
        self.slabs.add(slab)
        return slab

    def peak(self) -> int | None:
        return self.budget + self.over.pop(0) if self.over else 0


def made(budget: int, device: Greedy) -> tuple[Job, Step]:
    name, options = SMALL["gpt"]
    torch.manual_seed(3)
    job = MODELS[name]("cpu", **options)
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget, device=device)
    assert isinstance(planned, Step)
    device.budget = budget
    return job, planned


@pytest.fixture(scope="module")
def budget() -> int:
    _, kept = made(1 << 30, Greedy([]))
    return int(0.7 * kept.report.peak)


def test_a_step_that_takes_more_is_planned_again_with_that_margin_and_goes_on(
    budget: int, caplog: pytest.LogCaptureFixture
) -> None:
    name, options = SMALL["gpt"]
    torch.manual_seed(3)
    plain = MODELS[name]("cpu", **options)
    job, planned = made(budget, Greedy([20_000, 0, 0]))
    for _ in range(4):
        assert torch.equal(planned(job.batch), plain.step(plain.batch).detach())
    assert planned.report.peak <= budget - 20_000
    assert sum("planning again" in record.message for record in caplog.records) == 1
    for one, other in zip(plain.modules, job.modules, strict=True):
        for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.slow
def test_if_that_does_not_help_it_is_an_error_that_says_by_how_much(budget: int) -> None:
    job, planned = made(budget, Greedy([20_000] * 4))
    for _ in range(3):
        planned(job.batch)
    with pytest.raises(RunError, match=r"steps take .* on the device after planning 4 times; pass a budget of"):
        planned(job.batch)


def test_a_margin_larger_than_the_budget_is_refused_in_plain_words(budget: int) -> None:
    """After a batch that was refused, and is still held on the device, steps seem to take more than twice as much."""
    device = Greedy([2 * budget])
    job, planned = made(budget, device)
    with pytest.raises(RunError, match=r"too small for such a margin; free other memory on the device"):
        planned(job.batch)
    planned(job.batch)  # what was held is gone: the plan is still there, for the budget that was asked for
    assert 0 < planned._planner.budget <= budget
