"""Products of row ranges: both ways of computing them, ranges that are empty, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from stretto.memory import Experts
from stretto.memory.capture.lifted import OpCall
from stretto.memory.measure import trial_inputs
from stretto.memory.measure.costs import Rates, estimated
from stretto.memory.operations import grouped_matmul
from stretto.memory.options import StepSource
from stretto.memory.planning import capture

ENDS = {  # of five experts and 20 rows
    "even": [4, 8, 12, 16, 20],
    "one has all": [0, 0, 20, 20, 20],
    "the last has all": [0, 0, 0, 0, 20],
    "some have none": [0, 7, 7, 7, 20],
    "rows of no expert": [3, 3, 9, 11, 14],
    "none has any": [0, 0, 0, 0, 0],
}
GROUPS = [(0, 5), (0, 2), (2, 2), (4, 1)]  # (first expert, how many)


def given(ends: list[int], experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    a, grad = torch.randn(20, 8), torch.randn(20, 16)
    return a, torch.randn(experts, 8, 16), grad, torch.tensor(ends, dtype=torch.int32)


def row_by_row(a: torch.Tensor, b: torch.Tensor, ends: list[int], first: int, before: torch.Tensor) -> torch.Tensor:
    made = before.clone()
    for r in range(len(a)):
        e = sum(r >= end for end in ends) - first
        if 0 <= e < len(b):
            made[r] = a[r] @ b[e]
    return made


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's grouped product is used, as on a GPU: rows of no group are left as they are in memory."""
    if not hasattr(F, "grouped_mm"):
        pytest.skip("torch 2.10 or later has grouped products on the CPU")

    def dirty(a: torch.Tensor, b: torch.Tensor, *, offs: torch.Tensor) -> torch.Tensor:
        made = F.grouped_mm(a, b, offs=offs)
        if b.dim() == 3:
            made[int(offs[-1]) :] = float("nan")
        else:
            made[offs.diff(prepend=offs.new_zeros(1)) == 0] = float("nan")  # as on Blackwell
        return made

    monkeypatch.setattr(grouped_matmul, "_TORCH_GROUPED_MM", dirty)
    monkeypatch.setattr(grouped_matmul, "_has_kernel", lambda a, b: True)
    monkeypatch.setattr(grouped_matmul, "_capability", lambda device: (10, 0))


@pytest.mark.parametrize("case", ENDS)
@pytest.mark.parametrize(("first", "experts"), GROUPS)
def test_rows_of_a_group(case: str, first: int, experts: int) -> None:
    check_rows(case, first, experts)


@pytest.mark.parametrize("case", ENDS)
@pytest.mark.parametrize(("first", "experts"), GROUPS)
def test_rows_of_a_group_at_once(case: str, first: int, experts: int, at_once: None) -> None:
    check_rows(case, first, experts)


def check_rows(case: str, first: int, experts: int) -> None:
    a, b, _, ends = given(ENDS[case], experts)
    before = torch.randn(20, 16)
    op = torch.ops.stretto.grouped_mm
    for turned in (b, b.transpose(1, 2).contiguous().transpose(1, 2)):
        zeros = row_by_row(a, b, ENDS[case], first, torch.zeros(20, 16))
        assert torch.allclose(op(a, turned, ends, first, False, None), zeros, atol=1e-5)
        kept = before.clone()
        made = op(a, turned, ends, first, False, before)
        assert torch.allclose(made, row_by_row(a, b, ENDS[case], first, before), atol=1e-5)
        assert torch.equal(before, kept)
        if ENDS[case][-1] == 20:  # rows outside the group are undefined where there is nothing before
            bounds = [0, *ENDS[case]]
            mine = slice(bounds[first], bounds[first + experts])
            assert torch.allclose(op(a, turned, ends, first, True, None)[mine], zeros[mine], atol=1e-5)
            assert torch.equal(op(a, turned, ends, first, True, before), made)


@pytest.mark.parametrize("case", ENDS)
@pytest.mark.parametrize(("first", "experts"), GROUPS)
def test_weights_of_a_group(case: str, first: int, experts: int) -> None:
    check_weights(case, first, experts)


@pytest.mark.parametrize("case", ENDS)
@pytest.mark.parametrize(("first", "experts"), GROUPS)
def test_weights_of_a_group_at_once(case: str, first: int, experts: int, at_once: None) -> None:
    check_weights(case, first, experts)


def check_weights(case: str, first: int, experts: int) -> None:
    a, _, grad, ends = given(ENDS[case], experts)
    bounds = [0, *ENDS[case]]
    expected = [
        a[bounds[e] : bounds[e + 1]].t() @ grad[bounds[e] : bounds[e + 1]] for e in range(first, first + experts)
    ]
    made = torch.ops.stretto.grouped_mm_weights(a, grad, ends, first, experts)
    assert torch.allclose(made, torch.stack(expected), atol=1e-5)


def test_a_layer_at_once_is_the_same(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    for factor in (None, 0.8):
        layer, x = Experts(8, 16, 6, top_k=2, factor=factor, groups=3), torch.randn(30, 8, requires_grad=True)
        found = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
        with monkeypatch.context() as patch:
            patch.setattr(grouped_matmul, "_has_kernel", lambda a, b: False)
            plain = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
        for one, other in zip(found, plain, strict=True):
            assert torch.allclose(one, other, rtol=1e-3, atol=1e-4)


def test_fake_results_are_laid_out_as_real_ones() -> None:
    a, b, grad, ends = given(ENDS["even"], 5)
    ops = torch.ops.stretto
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(t) for t in (a, b, grad, ends)]
        rows = ops.grouped_mm(fake[0], fake[1].transpose(1, 2).transpose(1, 2), fake[3], 0, False, None)
        weights = ops.grouped_mm_weights(fake[0], fake[2], fake[3], 0, 5)
    for one, real in (
        (rows, ops.grouped_mm(a, b, ends, 0, False, None)),
        (weights, ops.grouped_mm_weights(a, grad, ends, 0, 5)),
    ):
        assert (one.shape, one.stride(), one.dtype) == (real.shape, real.stride(), real.dtype)


def calls_of(layer: nn.Module) -> Any:
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    lifted = capture(StepSource(step, [layer], [optimizer], torch.randn(4096, 64), torch.device("cpu")), 1 << 30).lifted
    return lifted, [run for run in lifted.runs if isinstance(run, OpCall) and "grouped_mm" in str(run.target)]


def test_groups_are_estimated_by_their_share_of_the_rows() -> None:
    """Each has two products forward and three backward (the input has no gradient); four cost what one of all does."""
    rates = Rates(wide=1e9, memory=1e15, least=0.0)
    total = {}
    for groups in (1, 4):
        lifted, calls = calls_of(Experts(64, 128, 8, groups=groups))
        assert len(calls) == 5 * groups
        total[groups] = sum(estimated(lifted, call, rates)[0] for call in calls)
    assert total[4] == pytest.approx(total[1])
    assert total[1] == pytest.approx(5 * 2 * 4096 * 64 * 128 / 1e9)


def test_the_meter_gives_every_expert_an_equal_range_of_rows() -> None:
    lifted, calls = calls_of(Experts(64, 128, 5, groups=2))
    for call in calls:
        (where, (rows, from_zero)), *more = trial_inputs._rising(lifted, call).items()
        assert not more
        assert (rows, from_zero) == (4096, False)
        assert where == (lifted.values[call.args[2].value].storage, torch.int32)
    room = torch.empty(5, dtype=torch.int32)
    trial_inputs._fill(room, 0, (4096, False))
    assert room.tolist() == [819, 1638, 2457, 3276, 4096]
