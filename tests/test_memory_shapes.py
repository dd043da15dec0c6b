"""Plans by shape of batch: each is made once, switching gives the bits of plain steps and holds one plan's memory."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn

from memory_plans import Counted
from stretto.errors import RunError
from stretto.memory import Step, step, train_step
from stretto.memory.front_end import common_step
from stretto.memory.planner.planner import Infeasible
from stretto.memory.run import planned_step
from stretto.memory.run.devices import PlainDevice
from test_memory_recording import TapeDevice, budget, made

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(24, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 4)
    )


def batch_of(rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 24, generator=draw), torch.randn(rows, 4, generator=draw)


def pair() -> tuple[list[nn.Sequential], list[torch.optim.Optimizer]]:
    first = network()
    models = [first, copy.deepcopy(first)]
    return models, [adam(m) for m in models]


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


@functools.cache
def smallest(kind: str, rows: int = 64) -> int:
    model = network()
    with pytest.raises(Infeasible) as caught:
        train_step(
            model, F.mse_loss, torch.optim.Adam(model.parameters()), batch_of(rows), budget=1000, device=DEVICES[kind]()
        )
    return caught.value.smallest


def same(a: nn.Module, b: nn.Module) -> None:
    for (name, x), y in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        assert torch.equal(x, y), name


DEVICES: dict[str, Callable[[], PlainDevice]] = {
    "called": lambda: PlainDevice(late=0.7, poison=True),
    "recorded": lambda: TapeDevice(late=0.7),
}


@pytest.mark.parametrize("kind", DEVICES)
@pytest.mark.parametrize("share", [1.05, 1.3])
def test_each_shape_is_planned_once_and_gives_the_bits_of_plain_steps(
    kind: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, optimizers = pair()
    most = int(share * smallest(kind))
    counted = Counted(monkeypatch)
    planned = train_step(models[0], F.mse_loss, optimizers[0], batch_of(64), budget=most, device=DEVICES[kind]())
    plain = common_step(models[1], F.mse_loss, optimizers[1])
    assert isinstance(planned, Step)
    homes = set()
    for k, rows in enumerate([64, 64, 64, 64, 7, 64, 64, 64, 16, 7, 64, 64, 16, 16, 16, 16]):
        batch = batch_of(rows, k)
        assert torch.equal(planned(batch), plain(batch).detach()), k
        homes.add(planned.planned.program.on_host)
    same(*models)
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        for name, kept in optimizers[1].state[q].items():
            assert torch.equal(optimizers[0].state[p][name], kept), name
    assert counted.plans == 3
    assert len(planned.plans) == 3
    assert len(homes) > 1  # or nothing moves when plans are switched, and nothing was tested


@pytest.mark.parametrize("poison", [False, True])
def test_what_is_on_the_host_in_one_plan_and_travels_in_another(poison: bool) -> None:
    """It sits in a recording's memory while the second plan is in use, and leaves it when plans are switched."""
    plain, job = made("gpt"), made("gpt")
    device = TapeDevice(late=0.7, poison=poison)
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget("gpt", 0.4), device=device)
    assert isinstance(planned, Step)
    host: set[Any] = set()
    travels: set[Any] = set()
    for k, rows in enumerate([4, 4, 4, 4, 3, 3, 3, 3, 4, 1, 1, 1, 1, 3, 4, 1, 3, 4, 4, 4]):
        batch = tuple(x[:rows] for x in job.batch)
        if k == 13:
            with planned.paused():
                for one, other in zip(job.modules, plain.modules, strict=True):
                    same(one, other)
        assert torch.equal(planned(batch), plain.step(batch).detach()), k
        runner = planned._runner
        assert runner is not None
        host.update(runner._owners[s] for s in runner.program.on_host)
        travels.update(runner._owners[s] for s in runner.swapped)
    for one, other in zip(job.modules, plain.modules, strict=True):
        same(one, other)
    assert host & travels
    assert device.played


def test_a_plan_in_use_is_the_only_one_with_memory_on_the_device() -> None:
    models, optimizers = pair()
    device = TapeDevice()
    planned = train_step(models[0], F.mse_loss, optimizers[0], batch_of(64), budget="1MiB", device=device)
    assert isinstance(planned, Step)
    for rows in (64, 64, 64, 64, 8):
        planned(batch_of(rows))
    first = planned._plans[0].runner
    assert first is not None
    assert first._recording is not None
    assert all(x is None for x in (*first.a, *first.v))
    assert not first._recording._actions
    assert first._recording._batch_buffers is None


@pytest.mark.slow
def test_plans_share_host_memory_and_a_budget_for_it_is_kept() -> None:
    class Host(PlainDevice):
        taken = 0

        def allocate_host(self, nbytes: int) -> torch.Tensor:
            Host.taken = nbytes
            return super().allocate_host(nbytes)

    models, optimizers = pair()
    most = int(1.3 * smallest("called"))
    whole = train_step(models[0], F.mse_loss, optimizers[0], batch_of(64), budget=most, device=Host())
    assert isinstance(whole, Step)
    whole(batch_of(64))
    first = whole._host.nbytes
    assert first == whole.planned.costs.host
    whole(batch_of(8))  # needs less: what there is stays
    assert first <= whole._host.nbytes <= 1.5 * first
    assert all(one.runner is not None for one in whole._plans)
    whole(batch_of(60))
    assert whole._host.nbytes <= 1.5 * max(one.planned.costs.host for one in whole._plans)
    whole.close()
    bound = int(1.01 * first)
    strict = train_step(
        models[0], F.mse_loss, optimizers[0], batch_of(64), budget=most, device=Host(), host_budget=bound
    )
    assert isinstance(strict, Step)
    for rows in (64, 8, 64, 32, 8):
        strict(batch_of(rows))
        assert strict._host.nbytes <= bound


def test_only_a_few_plans_are_kept_and_the_least_recently_used_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_step, "KEPT", 3)
    models, optimizers = pair()
    counted = Counted(monkeypatch)
    planned = train_step(models[0], F.mse_loss, optimizers[0], batch_of(2), budget="1MiB", device=PlainDevice())
    plain = common_step(models[1], F.mse_loss, optimizers[1])
    assert isinstance(planned, Step)
    for rows in (2, 3, 4, 2, 5, 2, 4, 3):  # 5 takes the place of 3
        batch = batch_of(rows)
        assert torch.equal(planned(batch), plain(batch).detach())
        assert len(planned.plans) <= 3
    assert counted.plans == 5
    same(*models)


def test_a_batch_that_cannot_be_planned_changes_nothing() -> None:
    models, optimizers = pair()
    most = int(1.1 * smallest("called", 16))
    planned = train_step(models[0], F.mse_loss, optimizers[0], batch_of(16), budget=most, device=PlainDevice())
    plain = common_step(models[1], F.mse_loss, optimizers[1])
    for k in range(3):
        if k == 1:
            with pytest.raises(Infeasible, match="smallest"):
                planned(batch_of(4096))
        assert torch.equal(planned(batch_of(16, k)), plain(batch_of(16, k)).detach())
    same(*models)


# -- evaluation in between ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DEVICES)
def test_evaluation_in_the_middle_of_training(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models, optimizers = pair()
    most = int(1.1 * smallest(kind))
    counted = Counted(monkeypatch)
    planned = train_step(models[0], F.mse_loss, optimizers[0], batch_of(64), budget=most, device=DEVICES[kind]())
    plain = common_step(models[1], F.mse_loss, optimizers[1])
    x = batch_of(9, 99)[0]
    for k in range(8):
        assert torch.equal(planned(batch_of(64, k)), plain(batch_of(64, k)).detach())
        if k in (1, 4, 5):
            with planned.paused():
                models[0].eval()
                said = models[0](x)
            models[1].eval()
            assert torch.equal(said, models[1](x))
            models[1].train()
            assert models[0].training
    same(*models)
    assert counted.plans == 1


def test_changes_of_parameters_while_paused_are_picked_up() -> None:
    models, optimizers = pair()
    most = int(1.2 * smallest("recorded"))
    planned = train_step(models[0], F.mse_loss, optimizers[0], batch_of(64), budget=most, device=TapeDevice(late=0.7))
    plain = common_step(models[1], F.mse_loss, optimizers[1])
    changes: list[Callable[[nn.Sequential, torch.optim.Optimizer], Any]] = [
        lambda m, o: m.load_state_dict({k: v * 1.01 if v.is_floating_point() else v for k, v in SAVED.items()}),
        lambda m, o: [p.data.mul_(0.9) for p in m.parameters()],
        lambda m, o: [p.set_(p.detach() * 1.1) for p in m.parameters()],
        lambda m, o: [b.add_(0.1) for b in m.buffers() if b.is_floating_point()],
        lambda m, o: o.load_state_dict(copy.deepcopy(o.state_dict())),
    ]
    SAVED = copy.deepcopy(models[1].state_dict())
    with torch.no_grad():
        for k, change in enumerate(changes):
            for j in range(4):
                with torch.enable_grad():
                    assert torch.equal(planned(batch_of(64, 10 * k + j)), plain(batch_of(64, 10 * k + j)).detach()), k
            with planned.paused():
                change(models[0], optimizers[0])
            change(models[1], optimizers[1])
            same(*models)


def test_copies_under_way_are_waited_for_before_state_is_loaded() -> None:
    """On a GPU the copies of a step may still write to host memory when the step has returned."""

    class Watching(PlainDevice):
        def settle(self) -> None:
            super().settle()
            seen.append(models[0][0].weight.detach().clone())

    seen: list[torch.Tensor] = []
    models, optimizers = pair()
    planned = train_step(models[0], F.mse_loss, optimizers[0], batch_of(64), budget="1MiB", device=Watching())
    planned(batch_of(64))
    trained = models[0][0].weight.detach().clone()
    seen.clear()
    models[0].load_state_dict(models[1].state_dict())
    assert torch.equal(seen[0], trained)
    assert torch.equal(models[0][0].weight, models[1][0].weight)


def test_a_step_is_not_called_while_paused_and_goes_on_after_an_error() -> None:
    models, optimizers = pair()
    planned = train_step(models[0], F.mse_loss, optimizers[0], batch_of(8), budget="1MiB", device=PlainDevice())

    def evaluate() -> None:
        with planned.paused():
            for _ in range(2):
                with pytest.raises(RunError, match="while it is paused"):
                    planned(batch_of(8))
                with planned.paused():
                    pass
            models[0].eval()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate()
    assert torch.equal(planned(batch_of(8)), common_step(models[1], F.mse_loss, optimizers[1])(batch_of(8)).detach())
    planned.close()
    with pytest.raises(RunError, match="closed"), planned.paused():
        pass


@pytest.mark.slow
def test_a_tensor_of_the_callers_may_be_changed_in_place_wherever_the_plan_has_it() -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(*(nn.Linear(32, 32) for _ in range(3)))]
    models.append(copy.deepcopy(models[0]))
    scale = torch.rand(256, 32)
    runs: list[Any] = []
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(batch: Any, model: nn.Module = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(batch * scale) * scale, batch)
            loss.backward()
            optimizer.step()
            return loss

        runs.append(train)
    batch = torch.randn(256, 32)
    optimizer = runs[0].__defaults__[1]
    with pytest.raises(Infeasible) as caught:
        step(runs[0], [models[0]], [optimizer], batch, budget=1000, device=TapeDevice())
    on_host = set()
    for factor in (1.0, 1.5):
        most = int(factor * caught.value.smallest)
        planned = step(runs[0], [models[0]], [optimizer], batch, budget=most, device=TapeDevice(late=0.5))
        assert isinstance(planned, Step)
        assert planned._runner is not None
        on_host.add(set(planned._runner.lifted.constants) <= planned.planned.program.on_host)
        for _ in range(5):
            assert torch.equal(planned(batch), runs[1](batch).detach())
            scale.mul_(0.9)
        planned.close()
    assert on_host == {True, False}


def test_the_first_batch_of_a_shape_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    models, optimizers = pair()
    planned = train_step(models[0], F.mse_loss, optimizers[0], batch_of(8), budget="1MiB", device=PlainDevice())
    with caplog.at_level(logging.INFO, logger="stretto.memory"):
        for rows in (8, 4, 8, 4):
            planned(batch_of(rows))
    assert sum("another shape" in one.message for one in caplog.records) == 1
