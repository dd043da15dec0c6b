"""Steps on several devices of the CPU: the same bits as on one, within the plan, and every device ends."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from bench.memory_models import gpt, lstm, moe, wgan
from torch import nn

import stretto as st
from stretto.errors import PlanError, RunError
from stretto.memory import Experts, experimental_step_several
from stretto.memory.multi_device import execute
from stretto.memory.multi_device.mailbox import Mailbox
from stretto.memory.multi_device.split import ReceiveNode
from stretto.memory.planner.program import bytes_after
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.execute import Runner

KEPT = torch.linspace(0.5, 1.5, 16)  # a tensor of no module


class Tokens(nn.Module):  # type: ignore[misc]
    """An embedding, a mask that is a constant, a frozen layer, experts, dropout, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.frozen, self.out = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20)
        self.frozen.requires_grad_(False)
        self.experts, self.twice = Experts(16, 32, 4, top_k=2, groups=2), nn.Linear(16, 16)
        self.norm, self.drop = nn.LayerNorm(16), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.frozen(self.table(x)) * KEPT
        x = x + self.drop(self.experts(self.norm(x)))
        return self.out(torch.tanh(self.twice(torch.tanh(self.twice(x)))))


def images() -> tuple[nn.Module, Any]:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(288, 5)
    )
    return model, (torch.randn(12, 3, 8, 8), torch.randint(0, 5, (12,)))


def batch_norm() -> tuple[nn.Module, Any]:
    """Running statistics are buffers that the step changes."""
    model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 5))
    return model, (torch.randn(12, 6), torch.randint(0, 5, (12,)))


def tokens() -> tuple[nn.Module, Any]:
    return Tokens(), (torch.randint(0, 20, (12, 5)), torch.randint(0, 20, (12, 5)))


MODELS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {one.__name__: one for one in (images, batch_norm, tokens)}


def stepping(model: nn.Module) -> tuple[Any, torch.optim.Optimizer]:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)

    def train_step(both: Any) -> Any:
        optimizer.zero_grad()
        logits = model(both[0])
        loss = F.cross_entropy(logits.flatten(0, -2), both[1].flatten())
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "logits": logits.detach(), "three": 3}

    return train_step, optimizer


def pair(model: nn.Module, batch: Any, devices: int, budget: int | str, chunks: Any) -> tuple[Any, Any, nn.Module]:
    """A step on one device, one on several, and the model of the second."""
    other = copy.deepcopy(model)
    plain, optimizer = stepping(model)
    one = st.memory.step(plain, [model], [optimizer], batch, budget="1GiB", device=PlainDevice(), chunks=chunks)
    assert isinstance(one, st.memory.Step)
    split, optimizer = stepping(other)
    places = [PlainDevice(late=0.6, seed=k, poison=True) for k in range(devices)]
    given: Any = (split, [other], [optimizer], batch)
    return one, experimental_step_several(*given, devices=places, budget=budget, chunks=chunks), other


def check(one: Any, several: Any, batch: Any, steps: int = 3) -> None:
    for k in range(steps):
        torch.manual_seed(k)
        expected = one(batch)
        torch.manual_seed(k)
        found = several(batch)
        assert found["three"] == 3
        assert torch.equal(found["loss"], expected["loss"])
        assert torch.equal(found["logits"], expected["logits"])


def same(a: nn.Module, b: nn.Module) -> None:
    for (name, x), y in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        assert torch.equal(x, y), name


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("devices", "chunks"), [(1, None), (2, None), (3, {"batch": 4})])
def test_the_same_bits_as_on_one_device(kind: str, devices: int, chunks: Any) -> None:
    torch.manual_seed(0)
    model, batch = MODELS[kind]()
    one, several, other = pair(model, batch, devices, "1GiB", chunks)
    assert len(several.runners) == devices
    received = [sum(isinstance(n, ReceiveNode) for n in part.graph.nodes) for part in several.plan.together.parts]
    assert all(received) == (devices > 1)
    check(one, several, batch)
    one.close()
    several.close()
    same(model, other)


JOBS: dict[str, Callable[[], Any]] = {
    "gpt": lambda: gpt("cpu", "bf16", batch=4, length=16, width=64, layers=2, words=96),
    "moe": lambda: moe("cpu", batch=4, length=16, width=64, inner=128, layers=2, experts=4, groups=4, words=96),
    "lstm": lambda: lstm("cpu", batch=8, length=4, width=16),
    "two optimizers, double backward": lambda: wgan("cpu", batch=4, side=16, width=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("chunks", [None, {"batch": 2}])
def test_larger_models(kind: str, chunks: Any) -> None:
    torch.manual_seed(0)
    a = JOBS[kind]()
    torch.manual_seed(0)
    b = JOBS[kind]()
    one = st.memory.step(a.step, a.modules, a.optimizers, a.batch, budget="1GiB", device=PlainDevice(), chunks=chunks)
    assert isinstance(one, st.memory.Step)
    given: Any = (b.step, b.modules, b.optimizers, b.batch)
    loose = experimental_step_several(*given, devices=3, budget="1GiB", chunks=chunks)
    places = [PlainDevice(late=0.6, seed=k, poison=True) for k in range(3)]
    share = 1.0 if kind == "lstm" else 0.97  # an update alone takes nearly all of the cells' peak
    tight = experimental_step_several(*given, devices=places, budget=int(share * loose.plan.peak), chunks=chunks)
    assert share == 1.0 or sum(cost.bytes_out for cost in tight.plan.together.joint.costs) > 0
    for k in range(3):
        torch.manual_seed(k)
        expected = torch.utils._pytree.tree_leaves(one(a.batch))
        torch.manual_seed(k)
        found = torch.utils._pytree.tree_leaves(tight(b.batch))
        assert all(torch.equal(x, y) for x, y in zip(expected, found, strict=True))
    one.close()
    tight.close()
    for m, n in zip(a.modules, b.modules, strict=True):
        same(m, n)


def test_the_same_bits_under_a_small_budget_and_no_device_holds_more_than_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model, batch = images()
    seen: list[tuple[int, int]] = []

    def watched(lifted: Any, program: Any, order: Any, owned: Any, optimizers: Any, device: Any) -> Runner:
        allowed = bytes_after(program)

        def watch(at: int) -> None:
            here = sum(s.nbytes for s, x in zip(lifted.graph.storages, made.a, strict=True) if x is not None)
            seen.append((here, allowed[at]))

        made = Runner(lifted, program, order, owned, optimizers, device, watch)
        return made

    monkeypatch.setattr(execute, "Runner", watched)
    one, several, other = pair(model, batch, 2, 48_000, {"batch": 4})
    costs = several.plan.together.joint.costs
    assert sum(cost.bytes_out for cost in costs) > 0
    assert several.plan.peak <= 48_000
    check(one, several, batch)
    assert all(here <= allowed for here, allowed in seen)
    assert max(here for here, _ in seen) > 0.8 * max(cost.peak for cost in costs)
    one.close()
    several.close()
    same(model, other)


def test_training_goes_on_without_the_step() -> None:
    """Optimizer state and parameters are where the caller expects them after close()."""
    torch.manual_seed(0)
    model, batch = batch_norm()
    other = copy.deepcopy(model)
    plain, _ = stepping(model)
    split, optimizer = stepping(other)
    several = experimental_step_several(split, [other], [optimizer], batch, devices=2, budget=16_000)
    for k in range(4):
        if k == 2:
            several.close()
        step = several if k < 2 else split
        assert torch.equal(step(batch)["loss"], plain(batch)["loss"])
    same(model, other)


def test_a_frozen_layer_that_is_changed_is_changed_on_every_device() -> None:
    torch.manual_seed(0)
    model, batch = tokens()
    one, several, other = pair(model, batch, 3, "1GiB", {"batch": 3})
    assert isinstance(model, Tokens)
    assert isinstance(other, Tokens)
    check(one, several, batch, 1)
    places = {t.data_ptr() for local in several._parts for t in local.lifted.constants.values()}
    assert len(places) >= 3  # the frozen layer and the constant, on several devices
    assert not places & {t.data_ptr() for t in (KEPT, other.frozen.weight, other.frozen.bias)}
    new = torch.randn(16, 16)
    for changed in (model, other):
        with torch.no_grad():
            changed.frozen.weight.copy_(new)
    check(one, several, batch, 2)
    for changed in (model, other):
        changed.frozen.bias.data = torch.ones(16)
    check(one, several, batch, 2)
    KEPT.mul_(2.0)
    try:
        check(one, several, batch, 1)
    finally:
        KEPT.div_(2.0)


def test_an_error_on_one_device_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, batch = images()
    split, optimizer = stepping(model)
    posted = Mailbox.post

    def fail(self: Any, pair: int, value: torch.Tensor) -> None:
        if pair == 5:
            raise ValueError("the cable is cut")
        posted(self, pair, value)

    monkeypatch.setattr(Mailbox, "post", fail)
    given: Any = (split, [model], [optimizer], batch)
    several = experimental_step_several(*given, devices=3, budget="1GiB", chunks={"batch": 3})
    with pytest.raises(ValueError, match="the cable is cut"):
        several(batch)


@pytest.mark.timeout(30)
def test_devices_wait_for_values_for_their_turn_and_not_for_one_that_has_failed() -> None:
    mailbox = Mailbox()
    order: list[str] = []

    def second() -> None:
        mailbox.in_turn(1, order.append, "second")

    def first() -> None:
        mailbox.in_turn(0, order.append, "first")

    def fail() -> None:
        raise ValueError("the cable is cut")

    mailbox.together([second, first])
    assert order == ["first", "second"]
    value = torch.ones(3)
    taken, _ = mailbox.together([lambda: mailbox.take(7), lambda: mailbox.post(7, value)])
    assert torch.equal(taken, value)
    assert taken.data_ptr() != value.data_ptr()
    with pytest.raises(ValueError, match="the cable is cut"):
        mailbox.together([lambda: mailbox.take(8), second, fail])
    mailbox.clear()
    mailbox.together([second, first])


def test_what_cannot_be_run_is_refused() -> None:
    torch.manual_seed(0)
    model, batch = batch_norm()
    split, optimizer = stepping(model)
    given: Any = (split, [model], [optimizer], batch)
    wrong: Any
    for wrong in (0, -1, 1.5, True, []):
        with pytest.raises(PlanError, match="is not a number of devices; give an integer of at least 1, or a list"):
            experimental_step_several(*given, devices=wrong, budget="1GiB")
    gpu = PlainDevice()
    gpu.torch = torch.device("cuda", 1)
    with pytest.raises(PlanError, match="devices on cpu, cuda: a step on several devices runs on the CPU only so far"):
        experimental_step_several(*given, devices=[PlainDevice(), gpu], budget="1GiB")
    with pytest.raises(PlanError, match=r"device \d: no plan fits budget=") as refused:
        experimental_step_several(*given, devices=2, budget=2000)
    enough = int(str(refused.value).rpartition("pass budget=")[2].split()[0])  # counts the batch too
    experimental_step_several(*given, devices=1, budget=2 * enough)
    several = experimental_step_several(*given, devices=2, budget="1GiB")
    with pytest.raises(RunError, match="the batch has another shape"):
        several((batch[0][:6], batch[1][:6]))
    model.eval()
    with pytest.raises(RunError, match=r"between train\(\) and eval\(\)"):
        several(batch)
    model.train()
    newer = experimental_step_several(*given, devices=2, budget="1GiB")
    with pytest.raises(RunError, match="another step was made with these parameters"):
        several(batch)
    newer(batch)
    newer.close()
    with pytest.raises(RunError, match="the step was closed"):
        newer(batch)
