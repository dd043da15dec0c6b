"""Recorded steps: segments of programs, and playing them on a device that keeps a tape instead of a CUDA graph."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from bench.memory_models import MODELS, Job
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memory_graphs import chain, gpt
from stretto.memory import Step, step
from stretto.memory.addresses.fixed_addresses import FROM_BUFFER, TO_BUFFER, order_moves
from stretto.memory.front_end import common_step
from stretto.memory.planner.instructions import ALLOCATE, COPY_IN, EVICT, FREE, IN, OUT, READY, RUN, WAIT_OUT
from stretto.memory.planner.planner import Infeasible, PlannedProgram, PlannerSettings, make
from stretto.memory.planner.program import HostLink, account
from stretto.memory.run import replay_policy
from stretto.memory.run.devices import NotRecorded, PlainDevice
from stretto.memory.run.graph_segments import as_replayed, cut, segments
from stretto.memory.run.replay_policy import recorded
from test_memory_steps import SMALL


class Tape(TorchDispatchMode):  # type: ignore[misc]
    """Takes down operations with the tensors they were called with. What they change in place is put back after."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rooms = any(room in str(func) for room in ("aten.empty", "aten.set_", "aten.zero_"))  # no work for a device
        if func._schema.is_mutable and not rooms:
            self.before.append((args[0], args[0].clone()))
        result = func(*args, **(kwargs or {}))
        if not rooms:
            self.calls.append((func, args, kwargs or {}, result))
        return result

    def put_back(self) -> None:
        for tensor, value in reversed(self.before):
            tensor.copy_(value)
        self.before.clear()

    def play(self) -> None:
        """The same operations on the same memory: results go where they went."""
        for func, args, kwargs, result in self.calls:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class TapeDevice(PlainDevice):
    """Ordinary memory that plays tapes. `refused`: an operation that it cannot take down."""

    records = True

    def __init__(self, refused: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.refused, self.played = refused, 0

    def allocate(self, nbytes: int) -> torch.Tensor:
        """Zeros: while a tape is made host buffers are not filled, and operations look up places by what they hold."""
        return super().allocate(nbytes).zero_()

    def recorded(self, act: Callable[[], None]) -> Callable[[], None]:
        with Tape() as tape:
            act()
        tape.put_back()
        if self.refused and any(self.refused in str(call[0]) for call in tape.calls):
            raise NotRecorded(f"{self.refused} cannot be taken down")

        def play() -> None:
            self.played += 1
            tape.play()

        return play


@functools.cache
def budget(kind: str, share: float = 0.75) -> int:
    """A share of what the step takes when nothing moves."""
    job = made(kind)
    kept = step(job.step, job.modules, job.optimizers, job.batch, budget="1GiB", device=TapeDevice(), policy="keep")
    assert isinstance(kept, Step)
    return int(share * kept.report.peak)


def made(kind: str) -> Job:
    name, options = SMALL[kind]
    torch.manual_seed(3)
    return MODELS[name]("cpu", **options)


def trained(job: Job, run: Callable[[Any], Any], steps: int = 6) -> list[torch.Tensor]:
    """Losses and parameters; every step has another batch."""
    seen = []
    for k in range(steps):
        batch = tuple(x.roll(k, 0) if k % 2 else x for x in job.batch)
        seen.append(run(batch).detach().clone())
    return [*seen, *(p.detach().clone() for m in job.modules for p in m.state_dict().values())]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("resnet", "experts"))) for kind in SMALL]
)
def test_a_played_step_gives_the_bits_of_a_plain_one(kind: str) -> None:
    plain = made(kind)
    expected = trained(plain, plain.step)
    job, device = made(kind), TapeDevice()
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget(kind), device=device)
    assert isinstance(planned, Step)
    got = trained(job, planned)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert device.played >= 3


def test_nobody_sits_in_a_recording_that_is_over() -> None:
    job, device = made("gpt"), TapeDevice()
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget("gpt", 0.45), device=device)
    assert isinstance(planned, Step)
    trained(job, planned)
    runner = planned._runner
    assert runner is not None
    assert runner._recording is not None
    held = list(runner._recording._fixed_addresses.values())  # so that nobody else gets their addresses
    seats = {seat.data_ptr() for seat in held}
    assert seats & {p.data_ptr() for p in job.modules[0].parameters()}
    planned(tuple(x[:2] for x in job.batch))  # another shape: planned anew
    assert not seats & {p.data_ptr() for p in job.modules[0].parameters()}


def test_what_is_away_for_a_while_is_back_in_its_seat_when_a_step_ends() -> None:
    plain = made("gpt")
    expected = trained(plain, plain.step)
    job, device = made("gpt"), TapeDevice()
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget("gpt", 0.45), device=device)
    assert isinstance(planned, Step)
    assert planned._runner is not None
    assert planned._runner.swapped
    got = trained(job, planned)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert device.played >= 3


@pytest.mark.parametrize("kind", ["gpt", "wgan"])
def test_segments_run_with_copies_as_late_as_they_may_be(kind: str) -> None:
    plain = made(kind)
    expected = trained(plain, plain.step)
    job = made(kind)
    device = TapeDevice("nothing can", late=0.9, seed=2, poison=True)
    device.refused = "aten"  # every recording fails: segments run one after another
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget(kind), device=device)
    got = trained(job, planned)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert device.played == 0


@pytest.mark.parametrize("share", [0.75, 0.45])  # with the smaller one parameters travel
def test_what_cannot_be_recorded_is_called_with_a_notice(share: float, caplog: pytest.LogCaptureFixture) -> None:
    plain = made("gpt")
    expected = trained(plain, plain.step)
    job = made("gpt")
    device = TapeDevice("gelu_backward")
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget("gpt", share), device=device)
    got = trained(job, planned)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert sum("gelu_backward cannot be taken down" in record.message for record in caplog.records) == 1


def test_learning_rates_change_between_played_steps() -> None:
    def run(job: Job, one: Callable[[Any], Any]) -> list[torch.Tensor]:
        schedule = torch.optim.lr_scheduler.LambdaLR(job.optimizers[0], lambda k: 1 / (1 + k))
        seen = []
        for _ in range(6):
            seen.append(one(job.batch).detach().clone())
            schedule.step()
        return seen

    plain = made("gpt")
    expected = run(plain, plain.step)
    job = made("gpt")
    planned = step(job.step, job.modules, job.optimizers, job.batch, budget=budget("gpt"), device=TapeDevice())
    assert all(torch.equal(a, b) for a, b in zip(expected, run(job, planned), strict=True))


# -- pure --------------------------------------------------------------------------------------------------------------


@given(st.data())
def test_everybody_gets_to_a_seat(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))

    def in_layout() -> list[tuple[int, int]]:
        at, found = 0, {}
        for k in data.draw(st.permutations(range(len(sizes)))):
            at += data.draw(st.integers(0, 3))
            found[k] = (at, at + sizes[k])
            at += sizes[k]
        return [found[k] for k in range(len(sizes))]

    places, seats = in_layout(), in_layout()
    memory: dict[int, int] = {}
    for k, (begin, end) in enumerate(places):
        memory.update(dict.fromkeys(range(begin, end), k))
    aside: dict[int, list[int]] = {}
    for what, k in order_moves(places, seats):
        bytes_of = aside[k] if what == FROM_BUFFER else [memory[x] for x in range(*places[k])]
        if what == TO_BUFFER:
            aside[k] = bytes_of
        else:
            memory.update(zip(range(*seats[k]), bytes_of, strict=True))
    for k, seat in enumerate(seats):
        assert [memory[x] for x in range(*seat)] == [k] * sizes[k]


@functools.cache
def tight_gpt(layers: int, more: float) -> PlannedProgram:
    """A plan for a little more than the smallest budget."""
    graph = gpt(layers)
    with pytest.raises(Infeasible) as caught:
        make(graph, PlannerSettings(1))
    return make(graph, PlannerSettings(int(more * caught.value.smallest)))


@pytest.mark.parametrize(("longest", "at_copies"), [(math.inf, False), (1e-3, False), (4e-3, True)])
def test_segments_hold_every_instruction_once_and_copies_that_go_on_are_moved(longest: float, at_copies: bool) -> None:
    program = tight_gpt(4, 1.1).program
    apart = {n for n, node in enumerate(program.graph.nodes) if node.phase == "update"}
    pieces = segments(program, apart, longest, at_copies=at_copies)
    assert [one.update for one in pieces if one.update is not None] == [
        n for what, n in program.instructions if what == RUN and n in apart
    ]
    counted = [instruction for one in pieces for instruction in (*one.before, *one.inside, *one.after)]
    names = {ALLOCATE: None, WAIT_OUT: EVICT, COPY_IN: IN}
    same = sorted((names.get(what, what), which) for what, which in counted if names.get(what, what) is not None)
    under_way = {which for what, which in counted if what == WAIT_OUT}
    for s in under_way:  # its space is given back where the copy was waited for
        same.remove((FREE, s))
    rest = [(what, n) for what, n in program.instructions if not (what == RUN and n in apart)]
    assert same == sorted(rest)
    for one in pieces:
        begun = {(what, s) for what, s in one.inside if what in (OUT, IN)}
        ended = {(OUT if what == EVICT else IN, s) for what, s in one.inside if what in (EVICT, READY)}
        assert begun == ended


def test_a_recording_waits_no_longer_than_its_plan_when_it_is_cut_at_copies() -> None:
    made_plan = tight_gpt(8, 1.2)
    program = made_plan.program
    apart = {n for n, node in enumerate(program.graph.nodes) if node.phase == "update"}
    fine = account(as_replayed(program, segments(program, apart, at_copies=True)))
    coarse = account(as_replayed(program, segments(program, apart)))
    assert fine.seconds <= 1.001 * made_plan.costs.seconds < coarse.seconds
    found, costs = cut(program, apart)
    assert costs.seconds <= coarse.seconds + 1e-4
    assert len(found) > 1


def test_segments_are_few_where_python_binds() -> None:
    program = tight_gpt(8, 1.2).program
    nodes = tuple(replace(node, seconds=node.seconds / 1000) for node in program.graph.nodes)
    quick = replace(program, graph=replace(program.graph, nodes=nodes))
    apart = {n for n, node in enumerate(nodes) if node.phase == "update"}
    fast = HostLink(1e18, 1e18)
    assert len(cut(quick, apart, fast)[0]) < len(segments(quick, apart, at_copies=True))
    assert cut(quick, apart, fast, 1.0)[1].seconds > 1.0


@pytest.mark.parametrize(("longer", "played"), [(1.0, True), (1.5, False)])
def test_a_step_is_played_unless_that_takes_longer(
    longer: float, played: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*args: Any) -> Any:
        found, costs = cut(*args)
        return found, replace(costs, seconds=longer * costs.seconds)

    monkeypatch.setattr(replay_policy, "cut", slowly)
    plan = make(chain(20, 100, 1e-3), PlannerSettings(1 << 60))
    chosen, found = recorded(plan, 1)
    assert (found is not None) == played
    assert ("CUDA graphs are replayed" in chosen.notes[-1]) == played
    assert chosen.costs.seconds >= plan.costs.seconds


def test_short_operations_are_played() -> None:
    plan = make(chain(20, 100, 1e-7), PlannerSettings(1 << 60))
    chosen, found = recorded(plan, 1)
    assert found is not None
    assert chosen.costs.seconds > plan.costs.seconds


def test_batches_in_other_layouts_are_played_as_they_are() -> None:
    def run(one: Any) -> list[float]:
        torch.manual_seed(1)
        batches = [torch.randn(8, 8), torch.randn(8, 8).t(), torch.randn(8, 16)[:, ::2], torch.randn(1, 8).expand(8, 8)]
        return [float(one((x, torch.ones(8, 4))).detach()) for _ in range(2) for x in batches]

    losses = []
    for planned in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        one: Any = common_step(model, F.mse_loss, optimizer)
        if planned:
            batch = torch.randn(8, 8), torch.ones(8, 4)
            one = step(one, [model], [optimizer], batch, budget="1MiB", device=(device := TapeDevice()))
        losses.append(run(one))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)  # products round by the layout of their factors
    assert device.played


class Cramped(TapeDevice):
    """Has no contiguous memory for a recording of more than `most` bytes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.asked = most, -1

    def begin_recording(self, nbytes: int, updates: int = 0) -> None:
        self.asked = nbytes
        if nbytes > self.most:
            raise NotRecorded("not so much is contiguous")


@pytest.mark.parametrize("most", [0, 1 << 40])
def test_a_recording_has_one_piece_for_what_is_large_or_is_not_made(most: int) -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 4)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    makes = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    batch = torch.randn(16384, 256), torch.randn(16384, 4)
    plain = common_step(models[0], F.mse_loss, makes[0])
    one = common_step(models[1], F.mse_loss, makes[1])
    device = Cramped(most)
    planned = step(one, [models[1]], [makes[1]], batch, budget="1GiB", device=device)
    assert isinstance(planned, Step)
    for _ in range(5):
        assert torch.equal(planned(batch), plain(batch).detach())
    assert (device.played > 0) == (most > 0)
    # What tanh gave, its gradient and the one before it; tensors of 16384 × 4 and weights are small.
    assert device.asked == 3 * 16384 * 256 * 4
