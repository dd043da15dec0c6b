"""Frozen parameters under a budget: no state, no update, and never written back to the host."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
from torch import nn

from stretto.memory.front_end import common_step
from stretto.memory.measure.costs import costed
from stretto.memory.options import StepSource
from stretto.memory.planner.instructions import IN, OUT
from stretto.memory.planner.planner import Infeasible, PlannerSettings, make
from stretto.memory.planner.program import HostLink
from stretto.memory.planning import capture, remaining_budget

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Adapted(nn.Module):
    """A frozen linear layer with a trained product of two small matrices beside it."""

    def __init__(self, width: int, rank: int = 2) -> None:
        super().__init__()
        self.base = nn.Linear(width, width, bias=False)
        self.base.weight.requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(rank, width)), nn.Parameter(torch.zeros(width, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.base(x) + x @ self.a.T @ self.b.T)


def test_frozen_parameters_come_once_for_each_use_and_never_go() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Adapted(96) for _ in range(8)))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    batch = (torch.randn(16, 96), torch.randn(16, 96))
    cpu = torch.device("cpu")
    train = common_step(model, nn.functional.mse_loss, optimizer)
    lifted = capture(StepSource(train, [model], [optimizer], batch, cpu), 1 << 16).lifted
    numbers = {id(p): k for k, p in enumerate(model.parameters())}
    frozen = {lifted.parameters[numbers[id(p)]] for p in model.parameters() if not p.requires_grad}
    assert len(frozen) == 8
    assert set(lifted.states) == {numbers[id(p)] for p in trained}  # no state of what is not trained
    graph = costed(lifted, cpu)
    assert not any(s in frozen for node in graph.nodes for s in node.writes)
    with pytest.raises(Infeasible) as refused:
        make(graph, remaining_budget(PlannerSettings(1), lifted))
    budget = int(1.15 * refused.value.smallest) + lifted.borrowed
    program = make(graph, remaining_budget(PlannerSettings(budget, HostLink(1e9, 1e9, 1e-6)), lifted)).program
    assert frozen & program.on_host  # some of them do travel
    assert not [which for what, which in program.instructions if what == OUT and which in frozen & program.on_host]
    uses = graph.uses()
    for s in frozen & program.on_host:
        comes = sum(1 for what, which in program.instructions if what == IN and which == s)
        assert 1 <= comes <= len(uses[s])  # forward and backward
