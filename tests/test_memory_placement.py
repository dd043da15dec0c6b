"""Where storages are on the device between steps: persistent ones next to one another, an arena for the others."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn

from stretto.memory import Step, train_step
from stretto.memory.addresses.lifetimes import swapped_persistent
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.optimizers import PartialUpdates

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Reserving(PlainDevice):
    """Ordinary memory that counts as a device whose allocator keeps memory: the arena is asked for, and taken away."""

    def __init__(self) -> None:
        super().__init__(late=0.5, poison=True)
        self.arenas: list[int] = []

    def reserved(self) -> int | None:
        return -(1 << 40)  # so little that the smallest arena, of 20 MiB, fits any budget

    def set_arena(self, nbytes: int, updates: int = 0) -> None:
        self.arenas.append(nbytes)


def made(budget: int, device: PlainDevice) -> tuple[nn.Module, torch.optim.Optimizer, Any, Step]:
    torch.manual_seed(0)
    model = nn.Sequential(*(one for _ in range(6) for one in (nn.Linear(64, 64), nn.Tanh())))
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(128, 64), torch.randn(128, 64)
    step = train_step(model, F.mse_loss, optimizer, batch, budget=budget, device=device)
    assert isinstance(step, Step)
    return model, optimizer, batch, step


def plain(steps: int) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(*(one for _ in range(6) for one in (nn.Linear(64, 64), nn.Tanh())))
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(128, 64), torch.randn(128, 64)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_what_stays_on_the_device_is_in_blocks_and_so_is_state_once_it_is_made() -> None:
    device = PlainDevice()
    model, optimizer, batch, step = made(1 << 30, device)
    assert all(device.block_of(p) is not None for p in model.parameters())
    step(batch)
    kept = [x for state in optimizer.state.values() for name, x in state.items() if name.startswith("exp_avg")]
    assert len(kept) == 24
    assert all(device.block_of(x) is not None for x in kept)
    where = [x.data_ptr() for x in kept]
    assert [float(step(batch)) for _ in range(3)] == plain(4)[1:]
    assert where == [
        x.data_ptr() for state in optimizer.state.values() for name, x in state.items() if name.startswith("exp_avg")
    ]


def test_a_first_update_makes_the_state_of_one_parameter_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[list[int]] = []
    real = PartialUpdates._step

    def counted(self: PartialUpdates, parts: Any) -> None:
        turns[-1].append(sum(len(mine) for _, mine in parts))
        real(self, parts)

    monkeypatch.setattr(PartialUpdates, "_step", counted)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(16, n) for n in (16, 16, 160)))
    optimizer, batch = torch.optim.AdamW(model.parameters()), (torch.ones(4, 16), torch.ones(4, 160))
    step = train_step(model, F.mse_loss, optimizer, batch, budget=1 << 30, device=PlainDevice())
    for _ in range(2):
        turns.append([])
        step(batch)
    assert turns[0] == [1] * 6  # of many at once it would take much memory
    assert max(turns[1]) > 1


def test_rows_of_a_parameter_let_go_of_their_state_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    p = nn.Parameter(torch.zeros(8, 4))
    p.grad = torch.ones_like(p)
    optimizer = torch.optim.AdamW([p])
    alive: list[int] = []
    made: list[weakref.ref[torch.Tensor]] = []
    real = PartialUpdates._step

    def watched(self: PartialUpdates, parts: Any) -> None:
        alive.append(sum(one() is not None for one in made))
        real(self, parts)
        made.extend(weakref.ref(optimizer.state[parts[0][1][0]][name]) for name in ("exp_avg", "exp_avg_sq"))

    monkeypatch.setattr(PartialUpdates, "_step", watched)
    PartialUpdates(optimizer, [p]).run(chunk_bytes=32)
    assert alive == [0, 0, 0, 0]
    assert torch.equal(optimizer.state[p]["exp_avg"], torch.full((8, 4), 0.1))


def test_what_is_away_in_part_of_a_step_waits_on_the_host_while_there_is_no_arena() -> None:
    whole = made(1 << 30, PlainDevice())[3].report.peak
    travelled = 0
    for share in (0.7, 0.5, 0.4):
        device = Reserving()
        _, _, batch, step = made(int(share * whole), device)
        travels = swapped_persistent(step.planned.program)
        assert step._runner is not None
        assert step._runner.offloaded == {
            s for s in travels if s not in step._runner._states
        }  # state is yet to be made
        losses = [float(step(batch)) for _ in range(2)]
        with step.paused():  # gives the arena back, and takes another one
            pass
        assert device.arenas.count(0) >= 1
        losses += [float(step(batch)) for _ in range(2)]
        assert losses == plain(4)
        travelled += len(travels)
    assert travelled  # otherwise nothing was shown
