"""What a trace does not see is refused and runs as it is; what changes between steps is seen."""

from __future__ import annotations

import copy
import io
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from stretto.errors import PlanError, RunError
from stretto.memory import Step, step
from stretto.memory.capture.side_effects import CannotCapture, check_draws
from stretto.memory.capture.trace_step import trace
from stretto.memory.planner.planner import Infeasible
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.fallback import HookedStep

pytestmark = pytest.mark.usefixtures("one_torch_thread")

Made = tuple[nn.Module, torch.optim.Optimizer, Callable[[Any], Any]]


def batch(k: int) -> torch.Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(k))


def usual(model: nn.Module, optimizer: torch.optim.Optimizer | None = None, between: Any = lambda: None) -> Made:
    """The usual step; between: what it does before the update."""
    used = torch.optim.SGD(model.parameters(), 0.1) if optimizer is None else optimizer

    def train(x: Any) -> torch.Tensor:
        used.zero_grad()
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        between()
        used.step()
        return loss

    return model, used, train


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def planned(made: Made, share: float = 1.3, **options: Any) -> Any:
    """The step with little more than the smallest budget."""
    model, optimizer, train = made
    how: dict[str, Any] = {"device": PlainDevice(late=0.5, poison=True), **options}
    try:
        return step(train, [model], [optimizer], batch(0), budget=1, **how)
    except Infeasible as error:
        return step(train, [model], [optimizer], batch(0), budget=int(share * error.smallest), **how)


def same(make: Callable[[], Made], between: Callable[[int, Made], None] = lambda _, __: None) -> Any:
    """Both ways of training give the same; the step that was made."""
    ways = []
    for plan in (False, True):
        torch.manual_seed(0)
        made = make()
        run = planned(made) if plan else made[2]
        torch.manual_seed(1)
        losses = []
        for k in range(4):
            losses.append(float(run(batch(k)).detach()))
            between(k, made)
        ways.append((losses, [p.detach().clone() for p in made[0].parameters()]))
    assert ways[0][0] == pytest.approx(ways[1][0], rel=1e-6)
    for one, other in zip(ways[0][1], ways[1][1], strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-7)
    return run


# -- refused, and right nevertheless -----------------------------------------------------------------------------------


def clipped_outside() -> Made:
    model = net()
    parameters = list(model.parameters())
    return usual(model, between=lambda: nn.utils.clip_grad_norm_(parameters, 0.01))


def punished_outside() -> Made:
    model = net()
    parameters, optimizer = list(model.parameters()), torch.optim.SGD(model.parameters(), 0.1)

    def train(x: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x).square().mean() + sum(p.square().sum() for p in parameters)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, train


def hooked() -> Made:
    made = usual(net())
    next(made[0].parameters()).register_hook(lambda grad: 0 * grad)
    return made


def scheduled() -> Made:
    made = usual(net())
    rates = torch.optim.lr_scheduler.ExponentialLR(made[1], 0.5)

    def train(x: Any) -> Any:
        loss = made[2](x)
        rates.step()
        return loss

    return made[0], made[1], train


def never_cleared() -> Made:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(x: Any) -> Any:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, train


class Remembers(nn.Module):
    def __init__(self, *, buffer: bool) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(16, 16), nn.Linear(16, 4)
        if buffer:
            self.register_buffer("h", torch.zeros(8, 16))
        else:
            self.h = torch.zeros(8, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.h = self.cell(x, self.h).detach()
        return self.out(self.cell(x, self.h))


class Counting(torch.optim.Optimizer):
    """Its step gets smaller with every step of the group."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "count": 0})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["count"] += 1
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"] / group["count"])


def counted() -> Made:
    model = net()
    return usual(model, Counting(model.parameters()))


def reseeded() -> Made:
    model = net()

    class Seeded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.random.fork_rng():
                torch.manual_seed(7)
                return self.inner(F.dropout(x))

    return usual(Seeded())


def two_owners() -> Made:
    made = usual(net())
    other = torch.optim.SGD(made[0].parameters(), 0.1, momentum=0.9)

    def train(x: Any) -> Any:
        loss = made[2](x)
        other.step()
        return loss

    return made[0], made[1], train


def tied_by_memory() -> Made:
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    model[2].weight.data = model[0].weight.data
    return usual(model)


def hidden_in_a_variable() -> Made:
    """Truncated backpropagation: a state goes from step to step."""
    model, h = net(), torch.zeros(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(x: Any) -> torch.Tensor:
        nonlocal h
        optimizer.zero_grad()
        loss: torch.Tensor = model(x + h).square().mean()
        loss.backward()
        h = (x + 0.5 * h).detach()
        optimizer.step()
        return loss

    return model, optimizer, train


def hidden_in_an_object() -> Made:
    class Trainer:
        def __init__(self) -> None:
            self.model, self.kept = net(), {"h": [torch.zeros(8, 16)]}
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

        def train(self, x: Any) -> torch.Tensor:
            self.optimizer.zero_grad()
            loss: torch.Tensor = self.model(x + self.kept["h"][-1]).square().mean()
            loss.backward()
            self.kept["h"].append(x.detach())
            self.optimizer.step()
            return loss

    one = Trainer()
    return one.model, one.optimizer, one.train


class Collects(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.seen = net(), [torch.zeros(16)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x + self.seen[-1])
        self.seen.append(x.detach().mean(0))
        return y


def drawn_elsewhere() -> Made:
    model = net()
    random.seed(3)
    return usual(model, between=lambda: model[0].weight.grad.mul_(random.random()))


def drawn_by_numpy() -> Made:
    model = net()
    np.random.seed(3)  # noqa: NPY002
    return usual(model, between=lambda: model[0].weight.grad.mul_(float(np.random.rand())))  # noqa: NPY002


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (hidden_in_a_variable, "the variable h keeps a tensor"),
        (hidden_in_an_object, "Trainer.kept['h'] keeps a tensor"),
        (lambda: usual(Collects()), "Collects.seen keeps a tensor"),
        (drawn_elsewhere, "random numbers of Python or NumPy"),
        (drawn_by_numpy, "random numbers of Python or NumPy"),
        (clipped_outside, "taken before the step began"),
        (punished_outside, "taken before the step began"),
        (hooked, "has hooks"),
        (scheduled, "scheduler advances"),
        (never_cleared, "leaves the gradient"),
        (lambda: usual(Remembers(buffer=False)), "Remembers.h keeps a tensor"),
        (lambda: usual(Remembers(buffer=True)), "assigns a new buffer h"),
        (reseeded, "state of random numbers"),
        (two_owners, "not in optimizers="),
        (tied_by_memory, "share memory"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_a_trace_would_not_see_runs_as_it_is(make: Callable[[], Made], why: str) -> None:
    made = same(make)
    assert isinstance(made, HookedStep)
    assert why in made.why


def test_random_numbers_are_drawn_where_the_model_is() -> None:
    model, optimizer, train = usual(nn.Sequential(nn.Linear(16, 4), nn.Dropout(0.5)))
    module = trace(train, [model], [optimizer], batch(0), torch.device("cpu")).module
    check_draws(module, torch.device("cpu"))
    with pytest.raises(CannotCapture, match="draws random numbers on cpu within the step"):
        check_draws(module, torch.device("cuda"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named() -> None:
    model, optimizer, train = usual(net())
    with pytest.raises(PlanError, match="torch finds no GPU"):
        step(train, [model], [optimizer], batch(0), budget="1GiB", device="cuda")


# -- planned, and right ------------------------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant, self.first = reentrant, nn.Linear(16, 16)
        self.inner = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.Tanh(), nn.Linear(64, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, self.first(x), use_reentrant=self.reentrant)


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x.view(8, 4, 4))[0]


def clipped_by_groups() -> Made:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return usual(model, optimizer, lambda: nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 0.01))


class Sum(nn.Module):
    """Both parameters have the same gradient, in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(4, 16)), nn.Parameter(torch.ones(4, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.a + self.b)


def shared_gradient() -> Made:
    """This optimizer adds its momentum to the gradient it is given."""
    model = Sum()
    return usual(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, foreach=True))


@pytest.mark.parametrize(
    "make",
    [
        lambda: usual(Checkpointed(reentrant=False)),
        lambda: usual(Checkpointed(reentrant=True)),
        lambda: usual(Cells()),
        lambda: usual(nn.Sequential(nn.utils.weight_norm(nn.Linear(16, 16)), nn.Tanh())),
        clipped_by_groups,
        shared_gradient,
        counted,
    ],
    ids=[
        "checkpoints",
        "checkpoints that run again",
        "cells",
        "weights made anew",
        "clipped by groups",
        "one gradient",
        "an optimizer that counts in its group",
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # the older of two weight norms
def test_what_looks_alike_is_planned(make: Callable[[], Made]) -> None:
    assert isinstance(same(make), Step)


# -- between steps -----------------------------------------------------------------------------------------------------


def test_data_that_a_parameter_is_given_between_steps_is_used() -> None:
    def give(k: int, made: Made) -> None:
        if k == 1:
            for p in made[0].parameters():
                p.data = 0.5 * p.data

    assert isinstance(same(lambda: usual(net()), give), Step)


def test_state_that_is_loaded_between_steps_is_used() -> None:
    kept: list[Any] = []

    def roll_back(k: int, made: Made) -> None:
        if k == 0:
            kept[:] = [copy.deepcopy(made[0].state_dict()), copy.deepcopy(made[1].state_dict())]
        if k == 2:
            made[0].load_state_dict(kept[0])
            made[1].load_state_dict(copy.deepcopy(kept[1]))

    def make() -> Made:
        model = net()
        return usual(model, torch.optim.Adam(model.parameters(), 0.1))

    assert isinstance(same(make, roll_back), Step)


def test_a_tensor_that_is_not_the_modules_may_change() -> None:
    target = torch.zeros(8, 4)

    def make() -> Made:
        target.zero_()
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def train(x: Any) -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        return model, optimizer, train

    assert isinstance(same(make, lambda _, __: target.add_(1.0)), Step)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda m, o: m[1].eval(), "train"),
        (lambda m, o: m[0].weight.requires_grad_(False), "requires_grad"),
        (lambda m, o: o.add_param_group({"params": [nn.Parameter(torch.ones(1))]}), "got or lost"),
        (lambda m, o: setattr(m[0], "weight", nn.Parameter(torch.ones(16, 16))), "other parameters, buffers or layers"),
        (lambda m, o: m.__setitem__(1, nn.ReLU()), "other parameters, buffers or layers"),
        (lambda m, o: m.load_state_dict(copy.deepcopy(m.state_dict()), assign=True), "other parameters"),
    ],
)
def test_what_would_make_it_another_step_is_an_error(change: Callable[[Any, Any], Any], why: str) -> None:
    made = usual(net())
    run = planned(made)
    run(batch(0))
    change(made[0], made[1])
    with pytest.raises(RunError, match=why):
        run(batch(1))


def test_autocast_is_part_of_a_step() -> None:
    run = planned(usual(net()))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RunError, match="autocast"):
        run(batch(0))
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(0)
        made = usual(net())
        within = planned(made)
        torch.manual_seed(0)
        plain = usual(net())[2]
        assert float(within(batch(0))) == float(plain(batch(0)).detach())


def test_the_step_that_was_made_last_has_the_parameters() -> None:
    made = usual(net())
    first, last = planned(made), planned(made)
    with pytest.raises(RunError, match="another step was made"):
        first(batch(0))
    last(batch(0))
    last.close()
    with pytest.raises(RunError, match="was closed"):
        last(batch(0))


def test_numbers_of_other_types_are_other_numbers_and_arrays_are_no_batches() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(given: Any) -> Any:
        x, power = given
        optimizer.zero_grad()
        loss = (model(x).abs() + 1 if power is True else model(x).square()).mean()
        loss.backward()
        optimizer.step()
        return loss

    run = step(train, [model], [optimizer], (batch(0), 1), budget="1MiB", device=PlainDevice())
    assert isinstance(run, Step)
    assert float(run((batch(0), True))) > 1.0
    with pytest.raises(PlanError, match="as_tensor"):
        step(train, [model], [optimizer], (batch(0).numpy(), 1), budget="1MiB", device=PlainDevice())


@pytest.mark.slow
def test_what_is_saved_is_no_larger_than_without_a_plan_and_can_be_pickled() -> None:
    made = usual(net())
    sizes = []
    for _ in range(2):
        file = io.BytesIO()
        torch.save(made[0].state_dict(), file)
        sizes.append(len(file.getvalue()))
        run = planned(made)
        run(batch(0))
    assert sizes[1] < 1.2 * sizes[0]
    again = pickle.loads(pickle.dumps(made[0]))
    assert torch.equal(again(batch(1)), made[0](batch(1)))
    copy.deepcopy(made[0]).state_dict()
