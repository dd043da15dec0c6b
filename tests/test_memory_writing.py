"""Operations are written down as torch's own tracer writes them down, whatever the model does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.node import map_arg

from stretto.memory import Experts
from stretto.memory.capture import trace_function, trace_step
from stretto.memory.capture.side_effects import CannotCapture

CPU = torch.device("cpu")
Made = tuple[Callable[[Any], Any], list[nn.Module], list[torch.optim.Optimizer], Any]


def trained(model: nn.Module, batch: Any, loss: Callable[[Any], torch.Tensor]) -> Made:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(batch)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return value

    return step, [model], [optimizer], batch


def pictures() -> Made:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 5)
    )
    return trained(model, torch.randn(2, 3, 8, 8), lambda x: model(x).square().mean())


def words() -> Made:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.ModuleList([nn.Embedding(20, 16), layer, nn.Linear(16, 20, bias=False)])
    model[2].weight = model[0].weight
    weights = torch.rand(20)

    def loss(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            h = model[2](model[1](model[0](x) + torch.arange(16) / 16))
        return F.cross_entropy(h.float().flatten(0, 1), x.flatten(), weights) + torch.tensor(2.0)

    return trained(model, torch.randint(0, 20, (3, 7)), loss)


def cells() -> Made:
    model = nn.LSTM(4, 6, 2)
    return trained(model, torch.randn(5, 2, 4), lambda x: model(x)[0].tanh().sum())


def experts() -> Made:
    model = Experts(8, 16, 3)
    return trained(model, torch.randn(12, 8), lambda x: model(x).square().sum())


def slopes() -> Made:
    """A penalty on a gradient, and a teacher without any."""
    model, teacher = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 1)), nn.Linear(4, 1)

    def loss(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            asked = teacher(x)
        y = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(y).sum(), y, create_graph=True)
        y = model(x)
        y[:, 0] += 1.0
        return (y - asked.clone()).square().mean() + (slope.norm(dim=1) - 1).square().mean()

    step, modules, optimizers, batch = trained(model, torch.randn(6, 4), loss)
    return step, [*modules, teacher], optimizers, batch


KINDS: dict[str, Callable[[], Made]] = {one.__name__: one for one in (pictures, words, cells, experts, slopes)}


def listed(made: Made) -> list[Any]:
    """What is done, to which results of what was done before, and what comes out."""
    module = trace_step.trace(*made, CPU).module
    numbers: dict[Any, int] = {}
    constants: dict[int, int] = {}  # torch writes one down again where autograd kept it
    for node in list(module.graph.nodes):
        numbers[node] = len(set(numbers.values()))
        if node.op == "get_attr":
            numbers[node] = constants.setdefault(getattr(module, node.target).data_ptr(), numbers[node])
    first: dict[int, Any] = {}
    for node, number in numbers.items():
        first.setdefault(number, node)

    def of(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return str(x.dtype), tuple(x.shape), x.stride(), x.storage_offset()
        return [of(one) for one in x] if isinstance(x, (list, tuple)) else x

    return [
        (
            node.op,
            str(node.target) if node.op == "call_function" else "",
            str(map_arg((node.args, dict(node.kwargs)), numbers.get)),
            of(node.meta.get("val")),
        )
        for node in first.values()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_list_is_the_one_that_torch_writes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    made = KINDS[kind]()

    own: list[Any] = []

    def noted(*args: Any) -> Any:
        own.append(trace_function.record_operations(*args))
        return own[-1]

    def refused(*_: Any) -> Any:
        raise ValueError("left to torch")

    monkeypatch.setattr(trace_step, "record_operations", noted)
    mine = listed(made)
    assert own  # it was not left to torch
    monkeypatch.setattr(trace_step, "record_operations", refused)
    theirs = listed(made)
    assert len(mine) > 10
    assert mine == theirs


def test_what_is_strange_is_left_to_torch() -> None:
    model = nn.Linear(3, 2)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return model(x).sum() * torch.tensor(3.0).item()  # a number, of a tensor whose value is known

    step, modules, optimizers, batch = trained(model, torch.randn(4, 3), loss)
    assert any("mul" in str(one[1]) for one in listed((step, modules, optimizers, batch)))


def test_what_nobody_can_write_down_is_refused() -> None:
    model = nn.Linear(3, 2)

    def loss(x: torch.Tensor) -> torch.Tensor:
        y = model(x).sum()
        return y if y > 0 else -y

    with pytest.raises(CannotCapture, match=r"reads a value of a tensor into Python.*return y if y > 0 else -y"):
        trace_step.trace(*trained(model, torch.randn(4, 3), loss), CPU)
