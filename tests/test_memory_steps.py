"""Planned steps against plain ones, bit by bit: seven kinds of models, policies, copies as late as events allow."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from bench.memory_models import MODELS, Job
from torch import nn

from stretto import memory
from stretto.errors import PlanError, RunError
from stretto.memory import Step, plan, step, train_step
from stretto.memory.capture.lifted import LiftedStep
from stretto.memory.front_end import common_step
from stretto.memory.measure.costs import costed
from stretto.memory.options import StepSource
from stretto.memory.planner.graph import Graph
from stretto.memory.planner.instructions import RECOMPUTE
from stretto.memory.planner.planner import Infeasible, PlannerSettings, make
from stretto.memory.planner.program import bytes_after
from stretto.memory.planning import capture, remaining_budget
from stretto.memory.run.codegen import StepWriter
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.fallback import HookedStep

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet": ("resnet", {"batch": 2, "third": 1, "side": 32, "others": (1, 1, 1)}),
    "gpt": ("gpt", {"batch": 4, "length": 16, "width": 64, "layers": 2, "words": 96}),
    "padded experts": (
        "moe",
        {"batch": 4, "length": 16, "width": 64, "inner": 64, "layers": 1, "experts": 3, "words": 96, "padded": True},
    ),
    "experts": (
        "moe",
        {"batch": 4, "length": 16, "width": 64, "inner": 64, "layers": 1, "experts": 3, "words": 96},
    ),
    "lstm": ("lstm", {"batch": 64, "length": 4, "width": 32}),
    "wgan": ("wgan", {"batch": 16, "side": 16, "width": 4}),
}


def made(kind: str, dtype: str = "fp32") -> Job:
    name, options = SMALL[kind]
    torch.manual_seed(0)
    return MODELS[name]("cpu", dtype, **options)


def late(seed: int = 0) -> PlainDevice:
    return PlainDevice(late=0.7, seed=seed, poison=True)


@functools.cache
def captured(kind: str) -> tuple[Graph, LiftedStep]:
    job, cpu = made(kind), torch.device("cpu")
    lifted = capture(StepSource(job.step, job.modules, job.optimizers, job.batch, cpu), 1 << 16).lifted
    return costed(lifted, cpu), lifted


@functools.cache
def kept_peak(kind: str) -> int:
    """Bytes of a step in which nothing moves."""
    graph, lifted = captured(kind)
    return make(graph, PlannerSettings(2 << 30, policy="keep")).costs.peak + lifted.borrowed


def tight(kind: str) -> int:
    """A budget for which something has to move or to be computed again."""
    graph, lifted = captured(kind)
    peak = kept_peak(kind)
    for share in (0.85, 0.7, 0.55, 0.4):
        budget = int(share * peak)
        try:
            costs = make(graph, remaining_budget(PlannerSettings(budget), lifted)).costs
        except Infeasible as error:  # its largest layer is most of it
            return error.smallest + lifted.borrowed + peak // 8
        if costs.bytes_out or costs.repeated:
            return budget
    pytest.fail("nothing had to move")


def same_as_plain(planned: Any, job: Job, plain: Job, steps: int = 3) -> None:
    for k in range(steps):
        torch.manual_seed(k)
        mine = planned(job.batch)
        torch.manual_seed(k)
        assert torch.equal(mine, plain.step(plain.batch).detach()), f"loss of step {k}"
    for module, other in zip(job.modules, plain.modules, strict=True):
        for (name, a), b in zip(module.state_dict().items(), other.state_dict().values(), strict=True):
            assert torch.equal(a, b), name
    for one, two in zip(job.optimizers, plain.optimizers, strict=True):
        states, others = one.state_dict()["state"], two.state_dict()["state"]
        assert states.keys() == others.keys()
        for key, state in states.items():
            for name, kept in state.items():
                assert torch.equal(torch.as_tensor(kept), torch.as_tensor(others[key][name])), (key, name)


@pytest.mark.parametrize("kind", SMALL)
def test_planned_steps_give_the_bits_of_plain_ones(kind: str) -> None:
    job, plain = made(kind), made(kind)
    budget = tight(kind)
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget, device=late())
    assert isinstance(planned, Step)
    assert planned.report.peak <= budget
    assert planned.planned.costs.bytes_out or planned.planned.costs.repeated
    same_as_plain(planned, job, plain)


@pytest.mark.parametrize("kind", ["gpt", "padded experts"])
def test_mixed_precision_and_the_dissertations_policy(kind: str) -> None:
    job, plain = made(kind, "bf16"), made(kind, "bf16")
    planned = step(
        job.step, job.modules, job.optimizers, job.batch, budget="1GiB", policy="dissertation", device=late(1)
    )
    assert isinstance(planned, Step)
    assert planned.planned.costs.bytes_in
    assert planned.planned.costs.repeated == 0
    same_as_plain(planned, job, plain)


@pytest.mark.parametrize("seed", range(2))
def test_copies_at_any_legal_moment_change_nothing(seed: int) -> None:
    job, plain = made("gpt"), made("gpt")
    budget = int(0.7 * kept_peak("gpt"))
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget, device=late(seed), recompute=False)
    same_as_plain(planned, job, plain, steps=2)


class Odd(nn.Module):
    """Dropout, tied weights, in-place operations, a buffer, a parameter that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 24), nn.Linear(24, 24)
        self.second.weight = self.first.weight
        self.drop = nn.Dropout(0.3)
        self.register_buffer("seen", torch.zeros(24))
        self.unused = nn.Parameter(torch.ones(5))
        self.frozen = nn.Parameter(torch.ones(24), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.drop(F.relu_(self.first(x))) * self.frozen
        self.seen += h.detach().mean(0)
        return self.second(h)


def odd_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, pieces: int = 1, clip: float | None = None
) -> Callable[[Any], torch.Tensor]:
    def train_step(batch: Any) -> torch.Tensor:
        x, y = batch
        optimizer.zero_grad()
        total = torch.zeros(())
        for a, b in zip(x.chunk(pieces), y.chunk(pieces), strict=True):
            loss = F.mse_loss(model(a), b) / pieces
            loss.backward()
            total = total + loss.detach()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return total

    return train_step


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_as_they_are_with_schedules_clipping_and_accumulation(name: str) -> None:
    torch.manual_seed(0)
    model = Odd()
    other = copy.deepcopy(model)
    optimizer, plain = (OPTIMIZERS[name]([p for p in m.parameters() if p.requires_grad]) for m in (model, other))
    rates = [torch.optim.lr_scheduler.StepLR(one, 1, gamma=0.5) for one in (optimizer, plain)]
    batch = torch.randn(64, 24), torch.randn(64, 24)
    functions = odd_step(model, optimizer, 4, 0.5), odd_step(other, plain, 4, 0.5)
    planned = step(functions[0], [model], [optimizer], batch, budget="48KiB", device=late())
    assert isinstance(planned, Step)
    for k in range(4):
        torch.manual_seed(k)
        loss = planned(batch)
        torch.manual_seed(k)
        assert torch.equal(loss, functions[1](batch))
        for rate in rates:
            rate.step()
    for (key, a), b in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), key


class Normed(nn.Module):
    """Batch norm and dropout between dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))
        self.norms = nn.ModuleList(nn.BatchNorm1d(16) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for dense, norm in zip(self.dense, self.norms, strict=True):
            x = F.dropout(torch.tanh(norm(dense(x))), 0.25, self.training)
        return x


def test_computing_again_changes_statistics_once_and_draws_nothing_anew() -> None:
    torch.manual_seed(0)
    model = Normed()
    other = copy.deepcopy(model)
    optimizer, plain = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other))
    batch = torch.randn(256, 16), torch.randn(256, 16)
    planned = step(
        odd_step(model, optimizer), [model], [optimizer], batch, budget="290KiB", device=late(), swap=False, place=False
    )
    assert isinstance(planned, Step)
    program = planned.planned.program
    repeated = [program.graph.nodes[which].name for what, which in program.instructions if what == RECOMPUTE]
    assert any("batch_norm" in name for name in repeated)
    assert not any("drawn" in name or "bernoulli" in name or "native_dropout" in name for name in repeated)
    eager = odd_step(other, plain)
    for k in range(3):
        torch.manual_seed(k)
        mine = planned(batch)
        torch.manual_seed(k)
        assert torch.equal(mine, eager(batch))
    assert int(model.norms[0].num_batches_tracked) == 3
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_state_dict_round_trip_and_going_on() -> None:
    job, plain = made("gpt"), made("gpt")
    budget = int(0.8 * kept_peak("gpt"))
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget, device=late())
    planned(job.batch)
    saved = [copy.deepcopy(one.state_dict()) for one in (*job.modules, *job.optimizers)]
    again = made("gpt")
    for one, state in zip((*again.modules, *again.optimizers), saved, strict=True):
        one.load_state_dict(state)
    resumed = step(again.step, again.modules, again.optimizers, again.batch, budget=budget, device=late(5))
    for _ in range(2):
        resumed(again.batch)
    for _ in range(3):
        plain.step(plain.batch)
    for (name, a), b in zip(again.modules[0].state_dict().items(), plain.modules[0].state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_closing_gives_everything_back_and_the_plain_step_goes_on() -> None:
    job, plain = made("lstm"), made("lstm")
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=int(0.8 * kept_peak("lstm")), device=late())
    planned(job.batch)
    planned.close()
    losses = [plain.step(plain.batch) for _ in range(3)]
    assert torch.equal(job.step(job.batch), losses[1])
    assert torch.equal(job.step(job.batch), losses[2])


def test_another_shape_is_planned_anew() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))
    other = copy.deepcopy(model)
    optimizer, plain = (torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, other))
    planned = train_step(
        model, F.mse_loss, optimizer, (torch.ones(8, 16), torch.ones(8, 4)), budget="64KiB", device=late()
    )
    for rows in (8, 12, 8):
        batch = torch.randn(rows, 16), torch.randn(rows, 4)
        plain.zero_grad()
        loss = F.mse_loss(other(batch[0]), batch[1])
        loss.backward()
        plain.step()
        assert torch.equal(planned(batch), loss.detach())


def test_a_change_of_mode_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(2, 4), torch.ones(2, 4)
    planned = train_step(model, F.mse_loss, optimizer, batch, budget="1GiB", device=late())
    model.eval()
    with pytest.raises(RunError, match="make a new step"):
        planned(batch)


def test_too_small_a_budget_is_refused_with_the_smallest_that_will_do() -> None:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.ones(128, 64), torch.ones(128, 64)
    with pytest.raises(Infeasible, match="smallest") as caught:
        plan(model, F.mse_loss, optimizer, batch, budget="1KiB")
    needed = caught.value.smallest
    assert f"budget={needed} or more" in str(caught.value)
    assert plan(model, F.mse_loss, optimizer, batch, budget=needed).peak <= needed


def test_a_plan_without_memory_and_its_words(tmp_path: Any) -> None:
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(8)))
        batch = torch.empty(512, 8192), torch.empty(512, 8192)
    optimizer = torch.optim.AdamW(model.parameters())
    whole = plan(model, F.mse_loss, optimizer, batch, budget="1TiB", policy="keep")
    report = plan(model, F.mse_loss, optimizer, batch, budget="2GiB")
    assert whole.peak > 4 << 30
    assert report.peak <= 2 << 30
    text = report.explain()
    assert "budget 2.0 GiB" in text
    assert "are kept on the host" in text
    picture = report.draw(tmp_path / "memory.png")
    assert picture.stat().st_size > 10_000


def test_steps_that_use_values_run_with_hooks(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch[0]), batch[1])
        (loss * loss.item()).backward()
        optimizer.step()
        return loss

    batch = torch.ones(2, 4), torch.zeros(2, 4)
    hooked = step(train_step, [model], [optimizer], batch, budget="1GiB", device=late())
    assert isinstance(hooked, HookedStep)
    assert len([r for r in caplog.records if "not planned" in r.getMessage()]) == 1
    before = model.weight.detach().clone()
    hooked(batch)
    assert not torch.equal(before, model.weight)


def test_a_step_that_changes_its_batch_runs_with_hooks() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch[0].mul_(0.5)), batch[1])
        loss.backward()
        optimizer.step()
        return loss

    batch = torch.ones(2, 4), torch.zeros(2, 4)
    hooked = step(train_step, [model], [optimizer], batch, budget="1GiB", device=late())
    assert isinstance(hooked, HookedStep)
    assert r"batch[0] in place" in hooked.why
    assert torch.equal(batch[0], torch.ones(2, 4))


def test_parameters_of_strangers_are_refused() -> None:
    model, stranger = nn.Linear(2, 2), nn.Linear(3, 3)
    optimizer = torch.optim.SGD([*model.parameters(), *stranger.parameters()], lr=0.1)
    with pytest.raises(PlanError, match="belongs to none of the modules"):
        train_step(model, F.mse_loss, optimizer, (torch.ones(1, 2), torch.ones(1, 2)), budget="1GiB", device=late())


def test_verification_passes_and_catches() -> None:
    job = made("gpt")
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget="1GiB", device=late(), verify=True)
    planned(job.batch)
    other = made("gpt")
    wrong = step(other.step, other.modules, other.optimizers, other.batch, budget="1GiB", device=late(), verify=True)
    with torch.no_grad():
        other.modules[0].last.weight.add_(1.0)
    with pytest.raises(RunError, match="differs from the plain one"):
        wrong(other.batch)


@pytest.mark.parametrize("kind", ["gpt", "wgan"])
def test_the_device_holds_what_the_ledger_says_after_every_instruction(kind: str) -> None:
    job = made(kind)
    with pytest.raises(Infeasible) as caught:
        step(job.step, job.modules, job.optimizers, job.batch, budget=4096, device=late())
    planned = step(
        job.step, job.modules, job.optimizers, job.batch, budget=caught.value.smallest, device=late()
    )  # what the refusal says is enough
    assert isinstance(planned, Step)
    runner, graph = planned._runner, planned.planned.program.graph
    assert runner is not None
    seen: list[int] = []

    def look(_: int) -> None:
        seen.append(sum(graph.storages[s].nbytes for s, tensor in enumerate(runner.a) if tensor is not None))

    runner.watch = look
    runner._parts = StepWriter(runner).parts(runner.program.instructions)
    planned(job.batch)  # the optimizers make their state: not there before its first update
    seen.clear()
    planned(job.batch)
    assert seen == bytes_after(planned.planned.program)


@pytest.mark.parametrize("first", ["whole", "transposed", "sliced", "expanded", "offset"])
def test_batches_of_any_layout_are_what_they_are(first: str) -> None:
    layouts: dict[str, Callable[[], torch.Tensor]] = {
        "whole": lambda: torch.randn(8, 8),
        "transposed": lambda: torch.randn(8, 8).t(),
        "sliced": lambda: torch.randn(8, 16)[:, ::2],
        "expanded": lambda: torch.randn(1, 8).expand(8, 8),
        "offset": lambda: torch.randn(9, 8)[1:],
    }
    torch.manual_seed(0)
    models = [nn.Linear(8, 4)]
    models.append(copy.deepcopy(models[0]))
    plain = common_step(models[0], F.mse_loss, torch.optim.SGD(models[0].parameters(), 0.1))
    optimizer = torch.optim.SGD(models[1].parameters(), 0.1)
    target = torch.ones(8, 4)
    planned = train_step(models[1], F.mse_loss, optimizer, (layouts[first](), target), budget="1MiB", device=late())
    for make_one in layouts.values():
        batch = make_one(), target
        assert float(planned(batch)) == pytest.approx(float(plain(batch).detach()), rel=1e-5)  # rounded by layout


@pytest.mark.parametrize("record", [False, True])
def test_a_parameter_that_is_returned_stays_and_a_refusal_says_so(record: bool) -> None:
    from test_memory_recording import TapeDevice

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(batch: Any) -> Any:
        loss = common_step(model, F.mse_loss, optimizer)(batch)
        return loss, model[0].weight.grad, model[0].weight

    batch = torch.randn(8, 32), torch.randn(8, 4)
    device = TapeDevice() if record else PlainDevice()
    with pytest.raises(Infeasible) as refused:
        step(train, [model], [optimizer], batch, budget=2, device=device)
    run = step(train, [model], [optimizer], batch, budget=int(1.2 * refused.value.smallest), device=device)
    for _ in range(4):
        assert torch.equal(run(batch)[2], model[0].weight)


def test_results_that_are_laid_out_otherwise_than_torch_says() -> None:
    """The gradient of mse_loss for a transpose has no gaps on a CPU; torch says that it lies as the transpose does."""

    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.transpose(0, 1).reshape(-1, 8)).view(5, -1, 8).transpose(0, 1)

    found = []
    for budget in (None, "1GiB"):
        torch.manual_seed(0)
        model = Turned()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batch = torch.randn(6, 5, 8), torch.rand(6, 5, 8)

        def plain(both: Any, model: nn.Module = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(both[0]), both[1])
            loss.backward()
            optimizer.step()
            return loss

        made = plain if budget is None else step(plain, [model], [optimizer], batch, budget=budget)
        found.append([*(made(batch).detach() for _ in range(3)), *model.state_dict().values()])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_fit_is_a_deprecated_name_of_train_step() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(2, 4), torch.ones(2, 2)
    with pytest.warns(FutureWarning, match=r"memory\.fit is deprecated .* use stretto\.memory\.train_step"):
        planned = memory.fit(model, F.mse_loss, optimizer, batch, budget="1MiB", device=PlainDevice())
    assert isinstance(planned, Step)
