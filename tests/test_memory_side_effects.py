"""Planning changes nothing of the user's: no tensor, no Python state. What a step changes besides its modules is
carried out in every planned step, or the step is refused, with the line that does it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn

from stretto.memory import Step, planning, shape_plans, step
from stretto.memory.capture.python_state import PythonState
from stretto.memory.capture.side_effects import CannotCapture
from stretto.memory.capture.trace_step import trace
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.fallback import HookedStep

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Case:
    """A model, an optimizer, tensors and numbers of its own, and a step that uses them. state: what is compared."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.tensors: list[torch.Tensor] = []

    def before(self, batch: Any) -> Any:
        """What the step does first; its input."""
        return batch[0]

    def after(self) -> None:
        """What it does last."""

    def train(self, batch: Any) -> torch.Tensor:
        x = self.before(batch)
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x), batch[1])
        loss.backward()
        self.optimizer.step()
        self.after()
        return loss

    def state(self) -> list[Any]:
        groups = [{k: v for k, v in g.items() if k != "params"} for g in self.optimizer.param_groups]
        tensors = [*self.model.parameters(), *self.model.buffers(), *self.tensors]
        return [[t.detach().clone() for t in tensors], copy.deepcopy(groups)]


class CountsInATensor(Case):
    def __init__(self) -> None:
        super().__init__()
        self.tensors = [torch.zeros(())]

    def before(self, batch: Any) -> Any:
        self.tensors[0].add_(1)
        return batch[0] * self.tensors[0]


class CountsInAnAttribute(Case):
    """An attribute of a module that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.model.count = torch.zeros(3)

    def before(self, batch: Any) -> Any:
        self.model.count += 1
        self.model.count[1:] *= 2
        return batch[0] * self.model.count.sum()

    def state(self) -> list[Any]:
        return [*super().state(), self.model.count.clone()]


class Averages(Case):
    """An exponential moving average of the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors = [p.detach().clone() for p in self.model.parameters()]

    def after(self) -> None:
        with torch.no_grad():
            for mean, p in zip(self.tensors, self.model.parameters(), strict=True):
                mean.mul_(0.9).add_(p, alpha=0.1)


class AveragesByData(Averages):
    def after(self) -> None:
        for mean, p in zip(self.tensors, self.model.parameters(), strict=True):
            mean.data.copy_(0.9 * mean.data + 0.1 * p.data)


class ClipsWeights(Case):
    """As the first Wasserstein GAN did."""

    def after(self) -> None:
        for p in self.model.parameters():
            p.data.clamp_(-0.1, 0.1)


class OwnCount(torch.optim.SGD):
    """Adam's correction, with a count of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.t = 0

    def step(self, closure: Any = None) -> Any:
        self.t += 1
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(p.grad, alpha=-0.1 / self.t)


class OptimizerCounts(Case):
    def __init__(self) -> None:
        super().__init__()
        self.optimizer = OwnCount(self.model.parameters(), lr=0.1)

    def state(self) -> list[Any]:
        return [*super().state(), self.optimizer.t]


class OptimizerSetsItsRate(OptimizerCounts):
    def __init__(self) -> None:
        super().__init__()

        class Decays(torch.optim.SGD):
            t = 0

            def step(self, closure: Any = None) -> Any:
                self.t += 1
                for group in self.param_groups:
                    group["lr"] = 0.1 / self.t
                return super().step(closure)

        self.optimizer = Decays([{"params": [p]} for p in self.model.parameters()], lr=0.1)


class SetsAnOption(Case):
    """A flag that is always the same: a second step changes nothing more."""

    def before(self, batch: Any) -> Any:
        self.ready = True
        return batch[0]


class DropsOut(Case):
    """What attention gives is a transpose when batches come first."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.4, batch_first=True)
        self.model = nn.Sequential(nn.Unflatten(0, (2, 2)), layer, nn.Flatten(0, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)


class DrawsFromAGenerator(Case):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def before(self, batch: Any) -> Any:
        noise = torch.empty_like(batch[0].t()).uniform_(-1, 1, generator=self.generator).t()
        return batch[0] + noise + torch.randn(8, generator=self.generator)

    def state(self) -> list[Any]:
        return [*super().state(), self.generator.get_state()]


PLANNED = [
    CountsInATensor,
    CountsInAnAttribute,
    Averages,
    AveragesByData,
    ClipsWeights,
    OptimizerCounts,
    OptimizerSetsItsRate,
    SetsAnOption,
    DropsOut,
    DrawsFromAGenerator,
]


class SetsItsRate(Case):
    """A rate that a count in the step decides."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def before(self, batch: Any) -> Any:
        self.count += 1
        self.optimizer.param_groups[0]["lr"] = 0.1 / self.count
        return batch[0]

    def state(self) -> list[Any]:
        return [*super().state(), self.count]


class SetsTheSameRate(Case):
    """A scheduler, or the user, may set another one between steps."""

    def before(self, batch: Any) -> Any:
        self.optimizer.param_groups[0]["lr"] = 0.05
        return batch[0]


class Accumulates(SetsItsRate):
    """Over several calls."""

    def train(self, batch: Any) -> torch.Tensor:
        self.count += 1
        loss = F.mse_loss(self.model(batch[0]), batch[1])
        loss.backward()
        if self.count % 2 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss


class Logs(SetsItsRate):
    def __init__(self) -> None:
        super().__init__()
        self.log: dict[str, list[int]] = {"steps": []}

    def before(self, batch: Any) -> Any:
        self.log["steps"].append(len(self.log["steps"]))
        return batch[0]

    def state(self) -> list[Any]:
        return [*super().state(), copy.deepcopy(self.log)]


class SeedsAGenerator(DrawsFromAGenerator):
    def before(self, batch: Any) -> Any:
        self.generator.manual_seed(5)
        return super().before(batch)


class SumsWithGradients(CountsInATensor):
    """The sum of losses without detach(): in eager mode it grows from step to step."""

    def before(self, batch: Any) -> Any:
        return batch[0]

    def train(self, batch: Any) -> torch.Tensor:
        loss = super().train(batch)
        with torch.enable_grad():
            self.tensors[0] += loss
        return loss


class ChangesAView(CountsInATensor):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.zeros(4)
        self.tensors = [self.table[1]]


REFUSED: dict[type[Case], str] = {
    SetsItsRate: r"SetsItsRate.count changes from .* in every step, at test_memory_side_effects.py:\d+ \(self.count",
    SetsTheSameRate: r"SGD.param_groups\[0\].lr changes from 0.1 to 0.05 in every step, at test_memory_side_effects.py",
    Accumulates: "leaves the gradient of a parameter",
    Logs: r"Logs.log\['steps'\] changes in every step, at test_memory_side_effects.py",
    SeedsAGenerator: "the state of SeedsAGenerator.generator changes",
    SumsWithGradients: "detach",
    ChangesAView: r"view of other memory",
}


def batches() -> list[Any]:
    generator = torch.Generator().manual_seed(9)
    return [(torch.randn(4, 8, generator=generator), torch.randn(4, 8, generator=generator)) for _ in range(4)]


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def made(case: Case) -> Any:
    device = PlainDevice(late=0.5, poison=True)
    return step(case.train, [case.model], [case.optimizer], batches()[0], budget="1MiB", device=device)


def trained(case: Case, run: Callable[[Any], Any]) -> list[Any]:
    torch.manual_seed(1)
    losses = [float(run(batch).detach()) for batch in batches()]
    return [losses, *case.state()]


@pytest.mark.parametrize("kind", [*PLANNED, *REFUSED], ids=lambda kind: kind.__name__)
def test_a_planned_step_does_what_the_plain_one_does(kind: type[Case]) -> None:
    plain, planned = kind(), kind()
    before = planned.state()
    run = made(planned)
    assert equal(planned.state(), before)
    assert isinstance(run, Step if kind in PLANNED else HookedStep)
    assert equal(trained(plain, plain.train), trained(planned, run))


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_what_is_refused_is_named_with_its_line(kind: type[Case]) -> None:
    case = kind()
    with pytest.raises(CannotCapture, match=REFUSED[kind]):
        trace(case.train, [case.model], [case.optimizer], batches()[0], torch.device("cpu"))


def test_a_gradient_for_a_tensor_of_no_module_is_refused_and_taken_back() -> None:
    case = Case()
    scale = torch.ones(8, requires_grad=True)
    case.before = lambda batch: batch[0] * scale  # type: ignore[method-assign]
    assert isinstance(made(case), HookedStep)
    assert scale.grad is None


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: F.dropout(x.t(), 0.5).t(),
        lambda x: F.alpha_dropout(x.t(), 0.5).t(),
        lambda x: F.dropout1d(x.t(), 0.5).t(),
        lambda x: torch.rand_like(x.t()).t() * x,
        lambda x: torch.empty_like(x.t()).normal_().t() * x,
        lambda x: torch.empty_like(x.t()).exponential_(0.7).t() * x,
        lambda x: torch.empty_like(x.t()).random_(3, 9).t() * x,
        lambda x: torch.empty_like(x.t()).geometric_(0.3).t() * x,
        lambda x: torch.empty_like(x.t()).cauchy_().clamp(-2, 2).t() * x,
        lambda x: torch.empty_like(x.t()).log_normal_(0.0, 0.5).t() * x,
        lambda x: torch.empty_like(x.t()).bernoulli_(torch.full((8, 4), 0.3)).t() * x,
        lambda x: F.gumbel_softmax(x.t()).t(),
        lambda x: F.dropout((x * 2).transpose_(0, 1), 0.5).t(),
        lambda x: F.dropout((x * 2).unsqueeze_(1).squeeze_(1).t_(), 0.5).t(),
    ],
)
def test_random_numbers_are_drawn_in_the_order_of_memory(draw: Callable[[Any], Any]) -> None:
    results = []
    for planned in (False, True):
        case = Case()
        case.before = lambda batch: draw(case.model(batch[0]))  # type: ignore[method-assign]  # noqa: B023
        run = made(case) if planned else case.train
        assert not planned or isinstance(run, Step)
        results.append(trained(case, run))
    assert equal(*results)


def test_python_state_is_put_back() -> None:
    class Holder:
        def __init__(self) -> None:
            self.count, self.names, self.deep = 0, {"a"}, {"x": [1, {"y": 2}]}

    holder, local, extra = Holder(), [0], 1.0

    def change(_: Any = None) -> None:
        nonlocal extra
        holder.count += 1
        holder.names.add("b")
        holder.deep["x"][1]["y"] = 3  # type: ignore[index]
        holder.new = 1  # type: ignore[attr-defined]
        local.append(1)
        extra = 2.0

    state = PythonState.of(change, [], [])
    numbers = state.numbers()
    assert state.changes() == []
    assert numbers.changed() == []
    change()
    labels = {one.label for one in state.changes()}
    assert {"Holder.count", "Holder.names", "Holder.new", "the variable local", "the variable extra"} <= labels
    assert any("deep" in label for label in labels)
    assert {"Holder.count", "the variable extra"} <= {one.label for one in numbers.changed()}
    state.restore()
    assert state.changes() == []
    assert (holder.count, holder.names, holder.deep) == (0, {"a"}, {"x": [1, {"y": 2}]})
    assert not hasattr(holder, "new")
    assert (local, extra) == ([0], 1.0)


def test_data_that_a_tensor_of_no_module_is_given_between_steps_is_used() -> None:
    results = []
    for planned in (False, True):
        case = CountsInATensor()
        run = made(case) if planned else case.train
        losses = []
        for k, batch in enumerate(batches()):
            losses.append(float(run(batch).detach()))
            if k == 1:
                case.tensors[0].data = torch.tensor(5.0)
        results.append([losses, *case.state()])
    assert equal(*results)


class Warms(Case):
    """A number that others change between steps, and one that does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.seen = 1.0, 0

    def before(self, batch: Any) -> Any:
        return batch[0] * self.scale


def test_a_number_that_changes_between_steps_is_used(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: list[Any] = []
    plans: list[Any] = []
    traces: list[int] = []

    def counted(*args: Any) -> Any:
        traces.append(len(plans))
        return trace(*args)

    monkeypatch.setattr(shape_plans, "trace", counted)
    monkeypatch.setattr(planning, "trace", counted)
    for planned in (False, True):
        case = Warms()
        run = made(case) if planned else case.train
        losses = []
        for k, batch in enumerate(batches()):
            case.seen += 1
            case.scale = 0.5 if k >= 2 else 1.0
            losses.append(float(run(batch).detach()))
            plans.append(getattr(run, "planned", None))
        results.append([losses, *case.state()])
    assert equal(*results)
    assert plans[4] is plans[5] is not plans[6]  # the count does not matter, the scale does
    assert plans[6] is plans[7]
    assert "Warms.scale has changed since the step was planned" in caplog.text
    # To plan; for the count, which is not read; for the scale, and to plan for it; for the count once more.
    assert traces == [4, 4, 6, 6, 7]
