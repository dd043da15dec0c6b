"""Python numbers in a batch: new values give the bits of plain steps, and need a new plan only where they must."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn

from memory_plans import Counted
from stretto.memory import Step, step
from stretto.memory.planner.planner import Infeasible
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.fallback import HookedStep
from test_memory_recording import TapeDevice

pytestmark = pytest.mark.usefixtures("one_torch_thread")

Use = Callable[[torch.Tensor, Any], Any]  # a loss and a number: a loss


def steps(use: Use, dtype: torch.dtype = torch.float32) -> tuple[list[nn.Module], list[Any], list[Any]]:
    """Two equal models, their optimizers, and their step functions for batches {"x": tensor, "n": number}."""
    torch.manual_seed(0)
    models: list[nn.Module] = [nn.Linear(6, 4, dtype=dtype)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]

    def function(model: nn.Module, optimizer: Any) -> Callable[[Any], Any]:
        def train(batch: Any) -> Any:
            optimizer.zero_grad()
            loss = use(model(batch["x"]).tanh(), batch["n"]).float().square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return train

    return models, optimizers, [function(*both) for both in zip(models, optimizers, strict=True)]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


FLOATS = [0.1, 0.3, 7.0, 1e-3, -2.5, 1 / 3]
INTS = [1, 3, 12345, 7, -2, 2**24 + 1]
# Uses for which one plan is enough.
ONE_PLAN: dict[str, Use] = {
    "times": lambda x, n: x * n,
    "times from the left": lambda x, n: n * x,
    "plus": lambda x, n: x + n,
    "plus from the left": lambda x, n: n + x,
    "minus": lambda x, n: x - n,
    "minus from the left": lambda x, n: n - x,
    "by": lambda x, n: x / n,
    "by from the left": lambda x, n: n / (x + 3),
    "functions": lambda x, n: torch.div(torch.mul(torch.add(x, n), n), n),
    "compared": lambda x, n: torch.where(x > n, x, 2 * x) * (x != n),
    "compared from the left": lambda x, n: torch.where(n >= x, x, 2 * x),
    "arithmetic before": lambda x, n: x * ((n + 1) * 2 - n / 1000 + 2 % (n + 0.5) + abs(-n) ** 0.5),
    "its square": lambda x, n: x * n**2,
    "twice": lambda x, n: (x * n + x) * n,
    "a single number of the tensor": lambda x, n: x[0, 0] * n,
    "rows of another": lambda x, n: x * (torch.arange(4) * n),
    "none": lambda x, n: x if n is not None else x * 2,
    "in place": lambda x, n: x.clone().mul_(n).add_(n).sub_(0.5).div_(n),
    "what kind it is": lambda x, n: x * n if isinstance(n, (int, float)) else x,
    "a branch that stays": lambda x, n: x * n if n > -1000 else x,
    "the larger of two": lambda x, n: x * max(n, -1e9),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("use", ONE_PLAN)
def test_other_values_give_the_bits_of_plain_steps_with_the_same_plan(
    use: str, recorded: bool, plans: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    for values, kind in ((FLOATS, float), (INTS, int)):
        if kind is int and use == "rows of another":
            values = [1, 2, 3]
        models, optimizers, functions = steps(ONE_PLAN[use])
        x = torch.randn(5, 6)
        device = TapeDevice() if recorded else PlainDevice(late=0.5, poison=True)
        plans.plans = 0
        # The product of integers and a float is a float: that is one of the uses with a plan for each value.
        alone = kind is float and use == "rows of another"
        planned = step(
            functions[0], [models[0]], [optimizers[0]], {"x": x, "n": values[0]}, budget="1MiB", device=device
        )
        assert isinstance(planned, Step), planned.why
        for n in values:
            batch = {"x": x, "n": n}
            assert torch.equal(planned(batch), functions[1](batch).detach()), n
            assert torch.equal(models[0].weight, models[1].weight), n
        assert plans.plans == (len(values) if alone else 1)
    assert alone or not any(one.levelno >= logging.WARNING for one in caplog.records) or use == "rows of another"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("use", ["times", "plus", "minus", "minus from the left", "by", "by from the left", "compared"])
def test_other_dtypes(use: str, dtype: torch.dtype) -> None:
    models, optimizers, functions = steps(ONE_PLAN[use], dtype)
    x = torch.randn(64, 6, dtype=dtype)
    planned = step(functions[0], [models[0]], [optimizers[0]], {"x": x, "n": 0.7}, budget="1MiB", device=PlainDevice())
    assert isinstance(planned, Step), planned.why
    for n in (0.1, 0.3, -2.5, 1 / 3, 3, 7, -2):
        batch = {"x": x, "n": n}
        assert torch.equal(planned(batch), functions[1](batch).detach()), n
        assert torch.equal(models[0].weight, models[1].weight), n


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("use", ["times", "plus", "by", "minus from the left"])
def test_numbers_that_are_too_large_zero_or_none(use: str, dtype: torch.dtype) -> None:
    models, optimizers, functions = steps(ONE_PLAN[use], dtype)
    x = torch.randn(64, 6, dtype=dtype)
    planned = step(functions[0], [models[0]], [optimizers[0]], {"x": x, "n": 0.7}, budget="1MiB", device=PlainDevice())
    for n in (0.0, -0.0, 1e300, -1e6, math.inf, math.nan, 1e-320):
        for model in models:
            nn.init.ones_(model.weight)
        batch = {"x": x, "n": n}
        torch.testing.assert_close(planned(batch), functions[1](batch).detach(), rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(models[0].weight, models[1].weight, rtol=0, atol=0, equal_nan=True)


def test_a_number_may_be_on_the_host_like_any_other_tensor() -> None:
    """Under the smallest budget the plan keeps even a number's tensor on the host between two uses."""
    models, optimizers, functions = steps(lambda x, n: (x * n).tanh() * n)
    x = torch.randn(512, 6)
    given: list[Any] = [functions[0], [models[0]], [optimizers[0]], {"x": x, "n": 0.5}]
    with pytest.raises(Infeasible) as caught:
        step(*given, budget=1000, device=TapeDevice())
    planned = step(*given, budget=caught.value.smallest, device=TapeDevice(late=0.7))
    assert isinstance(planned, Step)
    program, lifted = planned.planned.program, planned._now.captured.lifted
    assert set(lifted.constants) & program.on_host
    for n in FLOATS:
        assert torch.equal(planned({"x": x, "n": n}), functions[1]({"x": x, "n": n}).detach()), n


def rounds(x: torch.Tensor, n: Any) -> torch.Tensor:
    for _ in range(int(n) % 3):
        x = x * 0.5
    return x


# Uses of the value itself: right with every value, with a plan for each.
BY_VALUE: dict[str, Use] = {
    "a loop": rounds,
    "a size": lambda x, n: x.new_ones(abs(int(n)) % 3 + 1).sum() * x,
    "text": lambda x, n: x * len(f"{n}"),
    "a dictionary": lambda x, n: x * {n: 3.0}.get(n, 0.0),
    "functions of Python": lambda x, n: x * math.cos(n),
    "NumPy": lambda x, n: x * float(np.float32(0.5) * n),
    "a power of the tensor": lambda x, n: (x + 2) ** n,
    "dropout": lambda x, n: F.dropout(x, 1.0 if n > 1 else 0.0),
    "clamp": lambda x, n: x.clamp(max=n),
    "a multiple of another": lambda x, n: x.add(x, alpha=n),
    "a full tensor": lambda x, n: x * torch.full((4,), n),
    "an integer in single precision": lambda x, n: x * (torch.tensor([1, 2, 3, 4], dtype=torch.int32) * n),
    "a list": lambda x, n: x * torch.tensor([n, 1.0, 2.0, 3.0]),
    "methods": lambda x, n: x * n.as_integer_ratio()[0] + n.real,
    "a slice": lambda x, n: x[: 1 + int(n)],
    "indices": lambda x, n: x[:, int(n) % 2 :] * x.narrow(1, 0, 1),
    "functions of NumPy": lambda x, n: x * float(np.sqrt(abs(n))),
    "a sum with tensors": lambda x, n: sum([n, x, n]) if n > -1 else x,
    "formatted": lambda x, n: x * len("%s and %.3f" % (n, n)),  # noqa: UP031
    "where": lambda x, n: torch.where(x > 0, x, n),
    "in floating point": lambda x, n: x * torch.as_tensor(n, dtype=torch.float32),
    "what type it is": lambda x, n: x * (2.0 if n.__class__ is float else 3.0),
    "rounded": lambda x, n: x * round(n) + math.floor(n),
    "copied": lambda x, n: x * copy.deepcopy(n).hex().__len__() if isinstance(n, float) else x,
}


@pytest.mark.parametrize("use", BY_VALUE)
def test_uses_of_the_value_itself_are_right_too(use: str) -> None:
    models, optimizers, functions = steps(BY_VALUE[use])
    x = torch.randn(5, 6)
    planned = step(functions[0], [models[0]], [optimizers[0]], {"x": x, "n": 0.5}, budget="1MiB", device=PlainDevice())
    assert isinstance(planned, Step), planned.why
    for n in (0.5, 1.0, 2.0, 0.5, 3, 1, 3, -0.0, 0.0):
        if use == "a power of the tensor" and not n:
            continue
        batch = {"x": x, "n": n}
        assert torch.equal(planned(batch), functions[1](batch).detach()), n
        assert torch.equal(models[0].weight, models[1].weight), n


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x[:n] * n,
        lambda x, n: x.repeat(n, 1),
        lambda x, n: x.view(-1)[n] * x,
        lambda x, n: x * torch.arange(n).sum(),
        lambda x, n: F.pad(x, (n, 0)),
        lambda x, n: x.unsqueeze(n - 1).expand(-1, -1, -1) if n < 2 else x,
        lambda x, n: x.chunk(n, dim=1)[0],
        lambda x, n: x * (torch.arange(4) == n),
        lambda x, n: x.topk(n, dim=1).values,
        lambda x, n: torch.roll(x, n, 0) + x.sum(n % 2, keepdim=True),
    ],
)
def test_sizes_and_places(use: Use) -> None:
    models, optimizers, functions = steps(use)
    x = torch.randn(5, 6)
    planned = step(functions[0], [models[0]], [optimizers[0]], {"x": x, "n": 2}, budget="1MiB", device=PlainDevice())
    assert isinstance(planned, Step), planned.why
    for n in (2, 1, 3, 2, 1):
        batch = {"x": x, "n": n}
        assert torch.equal(planned(batch), functions[1](batch).detach()), n
        assert torch.equal(models[0].weight, models[1].weight), n


def test_a_step_counter_needs_one_plan_for_each_outcome_of_its_conditions(plans: Counted) -> None:
    """Warm-up, then a constant: two plans for any number of steps."""
    models, optimizers, functions = steps(lambda x, n: x * min(1.0, n / 4))
    x = torch.randn(5, 6)
    planned = step(functions[0], [models[0]], [optimizers[0]], {"x": x, "n": 0}, budget="1MiB", device=PlainDevice())
    for n in range(12):
        assert torch.equal(planned({"x": x, "n": n}), functions[1]({"x": x, "n": n}).detach()), n
    assert plans.plans == 2


def test_one_warning_names_the_entry_and_the_line(caplog: pytest.LogCaptureFixture, plans: Counted) -> None:
    models, optimizers, functions = steps(rounds)
    x = torch.randn(5, 6)
    planned = step(functions[0], [models[0]], [optimizers[0]], {"x": x, "n": 1}, budget="1MiB", device=PlainDevice())
    planned({"x": x, "n": 1})
    assert not caplog.records
    for n in (2, 3, 4, 5, 2, 3):
        planned({"x": x, "n": n})
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(said) == 1
    assert said[0].startswith("batch['n']: the step uses the value of this Python number")
    assert "test_memory_numbers.py:" in said[0]
    assert "torch.tensor(value)" in said[0]
    assert plans.plans == 5


def test_numbers_come_back_as_results_of_the_step_at_hand(plans: Counted) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(batch: Any) -> Any:
        x, n, flag, name = batch
        optimizer.zero_grad()
        loss = (model(x) * n).sum()
        loss.backward()
        optimizer.step()
        return {"loss": loss, "n": n, "next": n + 1, "text": name, "flag": flag}

    x = torch.ones(3, 2)
    planned = step(train, [model], [optimizer], (x, 5, True, "a"), budget="1MiB", device=PlainDevice())
    for n in (5, 6, 7):
        shown = planned((x, n, True, "a"))
        assert (shown["n"], shown["next"], shown["text"], shown["flag"]) == (n, n + 1, "a", True)
        assert type(shown["n"]) is int
    assert plans.plans == 1
    planned((x, 7, False, "a"))  # a bool or a string chooses a plan
    planned((x, 7, True, "b"))
    planned((x, 9, False, "a"))
    assert plans.plans == 3


def test_an_integer_is_no_float(plans: Counted) -> None:
    """n / 2 * 2 of an integer is a float: other entries, other plans."""
    models, optimizers, functions = steps(lambda x, n: x * (n // 2))
    x = torch.randn(5, 6)
    planned = step(functions[0], [models[0]], [optimizers[0]], {"x": x, "n": 5}, budget="1MiB", device=PlainDevice())
    for n in (5, 5.0, 7, 7.0, 2**60 + 1, 2**60 + 3):
        assert torch.equal(planned({"x": x, "n": n}), functions[1]({"x": x, "n": n}).detach()), n
    assert plans.plans == 4  # integers, floats, and two that are not exact in floating point


def test_a_branch_by_a_value_may_depend_on_a_number_of_the_batch() -> None:
    models, optimizers, functions = steps(lambda x, n: x * n if x.sum().item() > n else x)
    run = step(functions[0], [models[0]], [optimizers[0]], {"x": torch.zeros(5, 6), "n": 0.5}, budget="1MiB")
    assert isinstance(run, Step)
    for scale, n in ((1.0, 0.5), (-1.0, 0.5), (1.0, -20.0), (1.0, 0.5)):
        batch = {"x": scale * torch.ones(5, 6), "n": n}
        assert torch.equal(run(batch), functions[1](batch))


def test_a_step_that_uses_values_still_runs_with_hooks() -> None:
    models, optimizers, functions = steps(lambda x, n: x * n * x.sum().item())
    batch = {"x": torch.randn(5, 6), "n": 0.5}
    hooked = step(functions[0], [models[0]], [optimizers[0]], batch, budget="1MiB", device=PlainDevice())
    assert isinstance(hooked, HookedStep)
    assert torch.equal(hooked(batch), functions[1](batch))


def test_a_learning_rate_from_the_batch_that_is_set_in_the_step_is_not_frozen() -> None:
    models = [nn.Linear(2, 2)]
    models.append(copy.deepcopy(models[0]))
    runs: list[Any] = []
    x = torch.ones(3, 2)
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(batch: Any, model: nn.Module = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = model(batch[0]).square().sum()
            loss.backward()
            optimizer.param_groups[0]["lr"] = batch[1]
            optimizer.step()
            return loss

        runs.append(train)
        if model is models[0]:
            runs[0] = step(train, [model], [optimizer], (x, 0.5), budget="1MiB", device=PlainDevice())
            assert isinstance(runs[0], HookedStep)
            assert "SGD.param_groups[0].lr changes" in runs[0].why
            assert optimizer.param_groups[0]["lr"] == 0.1
    for rate in (0.5, 0.1, 0.5, 0.2):
        assert torch.equal(runs[0]((x, rate)), runs[1]((x, rate)))
