"""What operations cost: measured once, remembered on disk, and refused when they give something else than traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

from stretto.memory.capture.lifted import LiftedStep, OpCall
from stretto.memory.capture.side_effects import CannotCapture
from stretto.memory.front_end import common_step
from stretto.memory.measure.costs import costed
from stretto.memory.measure.meter import CallCost, CostCache, Meter
from stretto.memory.options import StepSource
from stretto.memory.planning import capture
from stretto.memory.run.eviction import evicted

CPU = torch.device("cpu")


class Counting(Meter):
    """Runs the calls, but takes its times from a counter."""

    def __init__(self, lifted: LiftedStep, remembered: CostCache) -> None:
        super().__init__(lifted, CPU, remembered)
        self.asked: list[OpCall] = []

    def timed(self, call: OpCall, args: Any, kwargs: Any) -> tuple[float, int]:
        self.asked.append(call)
        return float(len(self.asked)), 64 * len(self.asked)


def lifted(width: int = 32) -> LiftedStep:
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(8, width), torch.ones(8, width)
    return capture(
        StepSource(common_step(model, F.mse_loss, optimizer), [model], [optimizer], batch, CPU), 1 << 30
    ).lifted


def test_equal_calls_are_measured_once_and_remembered(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "costs.json"
    one = lifted()
    meter = Counting(one, CostCache(path))
    graph = costed(one, CPU, meter=meter)
    calls = [run for run in one.runs if isinstance(run, OpCall)]
    assert 0 < len(meter.asked) < len(calls)
    assert len(meter.asked) == len({meter.key(call) for call in calls})
    again = Counting(lifted(), CostCache(path))
    assert [node.seconds for node in costed(again.lifted, CPU, meter=again).nodes] == [n.seconds for n in graph.nodes]
    assert again.asked == []
    other = Counting(lifted(48), CostCache(path))
    costed(other.lifted, CPU, meter=other)
    assert other.asked
    assert len(CostCache(path).costs) > len(meter.asked)


def test_what_others_wrote_meanwhile_is_kept(tmp_path: Path) -> None:
    mine, theirs = CostCache(tmp_path / "costs.json"), CostCache(tmp_path / "costs.json")
    mine.costs["a"], theirs.costs["b"] = CallCost(1.0, 2), CallCost(3.0, 4, ((0, 7), (-1, 8), (-2, 1)))
    mine.save()
    theirs.save()
    assert CostCache(tmp_path / "costs.json").costs == {
        "a": CallCost(1.0, 2),
        "b": CallCost(3.0, 4, ((0, 7), (-1, 8), (-2, 1))),
    }
    assert [p.name for p in tmp_path.iterdir()] == ["costs.json"]


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", '{"version": 0, "costs": {"a": [1, 2]}}', '{"version": 1, "costs": [3]}']
)
def test_a_broken_file_is_an_empty_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    assert CostCache(path).costs == {}


def test_a_folder_that_cannot_be_made_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remembered = CostCache(tmp_path / "file" / "costs.json")
    remembered.costs["a"] = CallCost(1.0, 2)
    remembered.save()


def test_devices_and_switches_have_files_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))
    plain = CostCache.of("NVIDIA H200").path
    assert plain.parent == tmp_path / "memory"
    assert CostCache.of("Other card").path != plain
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = not before
    try:
        assert CostCache.of("NVIDIA H200").path != plain
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert CostCache.of("NVIDIA H200").path == plain


def test_what_cannot_be_tried_is_estimated_and_not_remembered(tmp_path: Path) -> None:
    class Full(Counting):
        def timed(self, call: OpCall, args: Any, kwargs: Any) -> tuple[float, int]:
            self.asked.append(call)
            raise torch.OutOfMemoryError("no room")

    one = lifted()
    meter = Full(one, CostCache(tmp_path / "costs.json"))
    graph = costed(one, CPU, meter=meter)
    assert all(node.seconds > 0 for node in graph.nodes)
    assert len(meter.asked) == len({meter.key(run) for run in one.runs if isinstance(run, OpCall)})
    assert not (tmp_path / "costs.json").exists()


class Crowded(Counting):
    """Has no memory for anything beside the parameters."""

    def __init__(self, lifted: LiftedStep, remembered: CostCache, beside: list[torch.Tensor]) -> None:
        super().__init__(lifted, remembered)
        self.beside = beside
        self.refused = 0

    def timed(self, call: OpCall, args: Any, kwargs: Any) -> tuple[float, int]:
        if any(one.untyped_storage().nbytes() for one in self.beside):
            self.refused += 1
            raise torch.OutOfMemoryError("no room")
        return super().timed(call, args, kwargs)


def test_parameters_make_room_for_what_is_tried_and_come_back(tmp_path: Path) -> None:
    one = lifted()
    whole = torch.arange(64.0)
    parameters = [whole[:32], whole[32:].view(4, 8).t(), torch.ones(3)]  # two share a storage
    before = [p.clone() for p in parameters]
    meter = Crowded(one, CostCache(tmp_path / "costs.json"), parameters)
    graph = costed(one, CPU, meter=meter, movable=parameters)
    distinct = len({meter.key(run) for run in one.runs if isinstance(run, OpCall)})
    assert meter.refused == len(meter.asked) == distinct
    assert max(node.workspace for node in graph.nodes if node.phase != "update") == 64 * distinct
    assert all(torch.equal(now, then) for now, then in zip(parameters, before, strict=True))
    whole[0] = -1.0
    assert parameters[0][0] == -1.0


def test_parameters_come_back_after_a_fault() -> None:
    one = torch.ones(5)
    with pytest.raises(ZeroDivisionError), evicted([one], CPU):
        one.untyped_storage().nbytes() // one.untyped_storage().nbytes()  # it has none
    assert torch.equal(one, torch.ones(5))


def test_values_that_share_a_storage_are_tried_in_one(tmp_path: Path) -> None:
    class Thirds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Linear(16, 48)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.inside(x).chunk(3, -1)
            return torch.addcmul(q, k, v)

    class Shared(Counting):
        sizes: frozenset[int] = frozenset()

        def timed(self, call: OpCall, args: Any, kwargs: Any) -> tuple[float, int]:
            if "addcmul" in str(call.target):
                self.sizes = frozenset(x.untyped_storage().nbytes() for x in tree_leaves(args))
                assert len({x.untyped_storage().data_ptr() for x in tree_leaves(args)}) == 1
                assert len({x.data_ptr() for x in tree_leaves(args)}) == 3
            return super().timed(call, args, kwargs)

    model = Thirds()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(8, 16), torch.ones(8, 16)
    one = capture(
        StepSource(common_step(model, F.mse_loss, optimizer), [model], [optimizer], batch, CPU), 1 << 30
    ).lifted
    meter = Shared(one, CostCache(tmp_path / "costs.json"))
    costed(one, CPU, meter=meter)
    assert meter.sizes == {8 * 48 * 4}


LIBRARY = torch.library.Library("stretto_tests", "FRAGMENT")
LIBRARY.define("turned(Tensor x) -> Tensor")
LIBRARY.impl("turned", lambda x: x.t().contiguous().t(), "CompositeExplicitAutograd")
LIBRARY.define("longer(Tensor x) -> Tensor")
LIBRARY.impl("longer", lambda x: torch.cat([x, x]), "CompositeExplicitAutograd")


def told(x: Any) -> Any:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


torch.library.register_fake("stretto_tests::turned", told, lib=LIBRARY)
torch.library.register_fake("stretto_tests::longer", told, lib=LIBRARY)


def with_operation(operation: Any) -> Any:
    model = nn.Linear(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(operation(batch[0])), batch[1])
        loss.backward()
        optimizer.step()
        return loss

    return capture(
        StepSource(train_step, [model], [optimizer], (torch.ones(2, 4), torch.ones(2, 8)), CPU), 1 << 30
    ).lifted


def test_room_to_lay_a_result_out_as_it_was_traced_is_counted(tmp_path: Path) -> None:
    one = with_operation(torch.ops.stretto_tests.turned)
    meter = Counting(one, CostCache(tmp_path / "costs.json"))
    graph = costed(one, CPU, meter=meter)
    (at,) = [k for k, node in enumerate(graph.nodes) if "turned" in node.name]
    when = 1 + [str(call.target) for call in meter.asked].index("stretto_tests.turned.default")
    assert graph.nodes[at].workspace == 64 * when + 2 * 4 * 4


def test_a_result_that_is_not_what_was_traced_is_refused(tmp_path: Path) -> None:
    one = with_operation(torch.ops.stretto_tests.longer)
    with pytest.raises(CannotCapture, match=r"result 0 of stretto_tests\.longer\.default is torch\.float32 \(4, 4\)"):
        costed(one, CPU, meter=Counting(one, CostCache(tmp_path / "costs.json")))
    assert not (tmp_path / "costs.json").exists()


def test_operations_on_chances_are_tried_with_chances(tmp_path: Path) -> None:
    """A GPU would be lost to the process if it were given others."""
    model = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(8, 6), torch.ones(8, 1)
    step = common_step(model, F.binary_cross_entropy, optimizer)
    one = capture(StepSource(step, [model], [optimizer], batch, CPU), 1 << 30).lifted
    meter = Counting(one, CostCache(tmp_path / "costs.json"))
    costed(one, CPU, meter=meter)
    assert {call.target.__name__ for call in meter.asked} >= {"binary_cross_entropy.default"}


class Looking(Counting):
    """Remembers the numbers of rows that operations were tried with."""

    def __init__(self, lifted: LiftedStep, remembered: CostCache) -> None:
        super().__init__(lifted, remembered)
        self.rows: dict[str, torch.Tensor] = {}

    def timed(self, call: OpCall, args: Any, kwargs: Any) -> tuple[float, int]:
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, torch.Tensor) and x.dtype == torch.int64 and x.dim():
                self.rows[call.target.__name__] = x
        return super().timed(call, args, kwargs)


def test_rows_that_are_taken_and_added_to_are_not_all_the_same(tmp_path: Path) -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(40, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.words(x)
            return self.out(h.index_select(0, x % 16) + h[x % 16])

    model = Rows()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.arange(16), torch.ones(16, 8)
    one = capture(
        StepSource(common_step(model, F.mse_loss, optimizer), [model], [optimizer], batch, CPU), 1 << 30
    ).lifted
    meter = Looking(one, CostCache(tmp_path / "costs.json"))
    costed(one, CPU, meter=meter)
    for name, limit in (
        ("embedding.default", 40),
        ("embedding_dense_backward.default", 40),
        ("index.Tensor", 16),
        ("index_put.default", 16),
        ("index_select.default", 16),
        ("index_add.default", 16),
    ):
        assert len(set(meter.rows[name].tolist())) == 16, name
        assert int(meter.rows[name].max()) < limit
