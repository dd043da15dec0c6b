"""Models whose state fits on neither side alone, small: the first step, slabs on the host, and the bench's dry runs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
from bench import memory_sizes
from bench.memory_models import Job, gpt

from stretto.memory import Step, step
from stretto.memory.planner.program import bytes_after
from stretto.memory.run.codegen import StepWriter
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.pinned_memory import fault, slab

OPTIONS = {"batch": 2, "length": 16, "width": 64, "layers": 6, "words": 96}
BUDGET, HOST = 1_800_000, 2_900_000  # parameters and Adam's state are 3.7 MB


def job() -> Job:
    torch.manual_seed(0)
    return gpt("cpu", **OPTIONS)  # type: ignore[arg-type]


class Slabs(PlainDevice):
    """Remembers slabs, and what was done with them."""

    def __init__(self) -> None:
        super().__init__(late=0.7, poison=True)
        self.slabs: list[torch.Tensor] = []
        self.done: list[str] = []

    def allocate_host(self, nbytes: int) -> torch.Tensor:
        self.slabs.append(slab(nbytes))
        return self.slabs[-1]

    def pin(self, buffer: torch.Tensor) -> None:
        self.done.append("pin")
        fault(buffer)

    def copy_out(self, which: int, here: torch.Tensor, there: torch.Tensor) -> None:
        self.done.append("out")
        super().copy_out(which, here, there)


def planned(one: Job, device: PlainDevice) -> Step:
    made = step(one.step, one.modules, one.optimizers, one.batch, budget=BUDGET, host_budget=HOST, device=device)
    assert isinstance(made, Step)
    return made


def test_state_that_fits_on_neither_side_alone_gives_the_bits_of_a_plain_step() -> None:
    one, plain = job(), job()
    made = planned(one, Slabs())
    storages, on_host = made.planned.program.graph.storages, made.planned.program.on_host
    persistent = [s for s, storage in enumerate(storages) if storage.persistent]
    assert sum(storages[s].nbytes for s in persistent) > max(BUDGET, HOST)
    assert on_host
    assert set(persistent) - on_host
    assert made.report.peak <= BUDGET
    for _ in range(3):
        assert torch.equal(made(one.batch), plain.step(plain.batch).detach())
    for (name, a), b in zip(one.modules[0].state_dict().items(), plain.modules[0].state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_the_first_step_takes_no_more_than_the_plan_and_makes_state_where_it_lives() -> None:
    one, device = job(), Slabs()
    made = planned(one, device)
    runner, program = made._runner, made.planned.program
    assert runner is not None
    assert made.planned.costs.host <= HOST
    assert [room.numel() for room in device.slabs] == [made.planned.costs.host]  # one, of what the plan says
    seen: list[int] = []

    def look(_: int) -> None:
        there = (s for s, tensor in enumerate(runner.a) if tensor is not None)
        seen.append(sum(program.graph.storages[s].nbytes for s in there))

    runner.watch = look
    runner._parts = StepWriter(runner).parts(program.instructions)
    made(one.batch)
    assert len(seen) == len(program.instructions)
    assert all(real <= said for real, said in zip(seen, bytes_after(program), strict=True))
    assert device.done[0] == "pin"
    assert device.done.count("pin") == 1
    (room,) = device.slabs
    first, last = room.data_ptr(), room.data_ptr() + room.numel()
    parameters = made._captured.traced.watched.parameters
    for number, names in made._captured.lifted.states.items():
        for name, s in names.items():
            kept = one.optimizers[0].state[parameters[number]][name]
            assert (first <= kept.data_ptr() < last) == (s in program.on_host), (number, name)


def test_a_slab_is_there_when_it_is_written_and_keeps_its_bytes() -> None:
    room = slab((4 << 20) + 5)
    assert room.numel() == (4 << 20) + 5
    room[12345], room[-1] = 7, 9
    piece = room[: 1 << 20]
    fault(room)
    assert (int(room[12345]), int(room[-1]), int(room.sum())) == (7, 9, 16)
    del room
    assert int(piece[12345]) == 7  # a view keeps it
    assert slab(0).numel() == 0


@pytest.mark.slow
def test_cases_are_planned_without_memory_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cap = memory_sizes.SPARE + (3 << 30)
    monkeypatch.setitem(memory_sizes.CASES, "toy", memory_sizes.Case(memory_sizes._gpt(2048, 4, 1), cap, "20GiB"))
    monkeypatch.setitem(memory_sizes.CASES, "no", memory_sizes.Case(memory_sizes._gpt(2048, 1, 1), cap, "10MiB"))
    row = memory_sizes.planned_only("toy")
    assert row["size"] == "0.41 B parameters"
    assert 1.5 < row["predicted peak GiB"] <= 3.0
    assert 1.0 < row["host GiB"] <= 4.6  # 12 bytes a parameter, 3 GiB of it on the device
    assert memory_sizes.planned_only("no")["note"].startswith("Infeasible: no plan fits host_budget=10.0 MiB")
