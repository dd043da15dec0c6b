"""Operations are measured with inputs that do no harm: real random states, indices that exist, offsets that rise."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from stretto.memory.capture.lifted import LiftedStep, OpCall, Ref, Value
from stretto.memory.capture.trace_function import record_operations
from stretto.memory.front_end import common_step
from stretto.memory.measure.costs import costed
from stretto.memory.measure.meter import CostCache, Meter
from stretto.memory.measure.trial_inputs import NotMeasurable, TrialInputs
from stretto.memory.operations import recurrent
from stretto.memory.operations.real_results import is_seed, returned
from stretto.memory.options import StepSource
from stretto.memory.planner.graph import Graph
from stretto.memory.planning import capture

pytestmark = pytest.mark.usefixtures("one_torch_thread")
CPU = torch.device("cpu")
aten = torch.ops.aten


class Trying(Meter):
    """Runs every operation on the CPU and remembers what it was given."""

    def __init__(self, lifted: LiftedStep, path: Path) -> None:
        super().__init__(lifted, CPU, CostCache(path / "costs.json"))
        self.given: dict[str, Any] = {}

    def timed(self, call: OpCall, args: Any, kwargs: Any) -> tuple[float, int]:
        self.given[str(call.target)] = args, call.target(*args, **kwargs)
        return 1e-5, 0


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.bags = nn.Embedding(40, 8), nn.EmbeddingBag(30, 8)
        self.attention, self.lstm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LSTM(8, 8, batch_first=True)

    def forward(self, x: torch.Tensor, bagged: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        h = self.words(x) + self.bags(bagged, offsets).sum()
        h = self.attention(h, h, h, need_weights=False)[0]
        found: torch.Tensor = self.lstm(F.dropout(h, 0.1))[0]
        return found


def lifted() -> LiftedStep:
    model = Words()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.zeros(3, 5).long(), torch.zeros(12).long(), torch.tensor([0, 4, 8]), torch.ones(3, 5, 8)
    return capture(
        StepSource(common_step(model, F.mse_loss, optimizer), [model], [optimizer], batch, CPU), 1 << 30
    ).lifted


def test_the_backward_of_attention_is_measured_on_what_its_forward_returned(tmp_path: Path) -> None:
    meter = Trying(lifted(), tmp_path)
    costed(meter.lifted, CPU, meter=meter)
    for kind, saved in (("_scaled_dot_product_flash_attention_for_cpu", 5), ("onednn_rnn", -1)):
        (forward,) = [results for name, (_, results) in meter.given.items() if f"{kind}.default" in name]
        (backward,) = [args for name, (args, _) in meter.given.items() if f"{kind}_backward" in name]
        assert backward[saved].shape == forward[1 if saved == 5 else 3].shape
        if saved == 5:  # the logarithms of sums of its own query and key; with others they would not be
            q, k = backward[1], backward[2]
            sums = (q @ k.transpose(-1, -2) / 2).logsumexp(-1)
            assert torch.allclose(backward[saved], sums, atol=1e-5)


def test_measuring_draws_none_of_the_random_numbers_of_the_training(tmp_path: Path) -> None:
    meter = Trying(lifted(), tmp_path)
    torch.manual_seed(5)
    costed(meter.lifted, CPU, meter=meter)
    runs = [run for run in meter.lifted.runs if isinstance(run, OpCall) and str(run.target) in meter.given]
    assert any(torch.Tag.nondeterministic_seeded in getattr(run.target, "tags", ()) for run in runs)
    now = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(now, torch.rand(3))


def test_words_exist_and_offsets_rise(tmp_path: Path) -> None:
    meter = Trying(lifted(), tmp_path)
    costed(meter.lifted, CPU, meter=meter)
    (_, words, offsets, *_), _ = meter.given["aten._embedding_bag.default"]
    assert len(set(words.tolist())) > 6
    assert int(words.max()) < 30
    assert offsets.tolist() == [0, 6, 12]


def one_call(target: Any, tensors: list[torch.Tensor], rest: tuple[Any, ...]) -> LiftedStep:
    """A step of one operation, on tensors that exist before."""
    values = [Value(k, x.dtype, tuple(x.shape), tuple(x.stride()), 0) for k, x in enumerate(tensors)]
    call = OpCall(target, (*map(Ref, range(len(values))), *rest), {}, (), True)
    nbytes = [x.untyped_storage().nbytes() for x in tensors]
    nothing: dict[str, Any] = {"parameters": [], "buffers": [], "inputs": [], "outside": [], "states": {}, "shown": []}
    return LiftedStep(graph=Graph((), ()), runs=(call,), values=values, nbytes=nbytes, **nothing)


def test_a_random_state_from_elsewhere_is_not_tried() -> None:
    """The backward of attention reads it through a pointer: of the host or of the device, as its forward left it."""
    x, bias, log = torch.zeros(2, 4, 16, 8), torch.zeros(2, 4, 16, 16), torch.zeros(2, 4, 32)
    state = torch.zeros((), dtype=torch.int64)
    target = aten._scaled_dot_product_efficient_attention_backward.default
    one = one_call(target, [x, x, x, x, bias, x, log, state, state], (0.1, [True] * 4))
    (run,) = one.runs
    assert isinstance(run, OpCall)
    with pytest.raises(NotMeasurable):
        TrialInputs(one, CPU).of(run)


def test_a_mask_in_rows_of_a_multiple_of_eight_is_tried_with_whole_rows() -> None:
    mask = torch.zeros(2, 1, 1, 8)[..., :5].expand(2, 4, 5, 5)
    one = one_call(aten.add.Tensor, [torch.zeros(2, 4, 5, 5), mask], ())
    (run,) = one.runs
    assert isinstance(run, OpCall)
    (_, given), _ = TrialInputs(one, CPU).of(run)
    assert given.stride() == mask.stride()
    assert given.untyped_storage().nbytes() == 2 * 8 * 4


def test_random_states_of_attention_are_known_by_name_and_stay_where_they_are() -> None:
    graph = torch.fx.Graph()
    with FakeTensorMode():
        x = torch.empty(2, 4, 16, 8, device="cuda")
        for target, seeds in (
            (aten._scaled_dot_product_efficient_attention.default, (2, 3)),
            (aten._scaled_dot_product_flash_attention.default, (6,)),
            (aten._scaled_dot_product_cudnn_attention.default, (6, 7)),
        ):
            node = graph.call_function(target, (x, x, x))
            assert tuple(k for k in range(9) if is_seed(node, k)) == seeds


LIBRARY = torch.library.Library("stretto_tests", "FRAGMENT")
LIBRARY.define("dropped(Tensor x) -> (Tensor output, Tensor philox_seed)")
LIBRARY.impl("dropped", lambda x: (x * 2, torch.tensor(7)), "CompositeExplicitAutograd")
torch.library.register_fake(
    "stretto_tests::dropped", lambda x: (torch.empty_like(x), x.new_empty((), dtype=torch.int64)), lib=LIBRARY
)


def test_a_random_state_takes_no_bytes_and_no_plan_moves_it() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        x, seed = torch.ops.stretto_tests.dropped(batch[0])
        loss = model(x).square().mean() + seed
        loss.backward()
        optimizer.step()
        return loss

    lifted = capture(StepSource(train_step, [model], [optimizer], (torch.ones(2, 4),), CPU), 1 << 30).lifted
    (call,) = [run for run in lifted.runs if isinstance(run, OpCall) and "dropped" in str(run.target)]
    x, seed = (lifted.graph.storages[lifted.values[v].storage].nbytes for v in call.makes)
    assert (x > 0, seed) == (True, 0)


def test_gradients_that_a_mask_does_not_ask_for_are_no_results() -> None:
    node = torch.fx.Graph().call_function(aten.native_batch_norm_backward.default, (*[None] * 9, [False, True, True]))
    assert [returned(node, k) for k in range(3)] == [False, True, True]


def test_all_that_was_given_is_finite(tmp_path: Path) -> None:
    meter = Trying(lifted(), tmp_path)
    costed(meter.lifted, CPU, meter=meter)
    for name, (args, _) in meter.given.items():
        floats = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        assert all(bool(x.isfinite().all()) for x in floats), name


def test_cudnn_is_written_down_as_one_operation_with_a_gradient_for_each_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On tensors without memory, with the layouts that the library would have returned."""
    sizes = [(5, 3, 8), (1, 3, 8), (1, 3, 8), (1000,), (512,)]
    monkeypatch.setattr(recurrent, "_fake_results", lambda run, args: [args[0].new_empty(size) for size in sizes])

    def layer(x: Any, hx: Any, cx: Any, *weights: Any) -> list[Any]:
        live = [one.detach().requires_grad_() for one in weights]
        out, *_ = aten._cudnn_rnn(x, live, 4, None, hx, cx, 2, 8, 0, 1, False, 0.0, True, False, [], None)
        out.sum().backward()
        return [out.detach(), *(one.grad for one in live)]

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        args = [torch.empty(n) for n in ((5, 3, 6), (1, 3, 8), (1, 3, 8), (32, 6), (32, 8), (32,), (32,))]
        graph = record_operations(layer, args, recurrent.replacements(), mode)[0].graph
    names = [str(node.target) for node in graph.nodes if "rnn" in str(node.target)]
    assert names == ["stretto.cudnn_rnn.default", "stretto.cudnn_rnn_backward.default"]
    (output,) = (node for node in graph.nodes if node.op == "output")
    assert [tuple(x.meta["val"].shape) for x in output.args[0][1:]] == [(32, 6), (32, 8), (32,), (32,)]
    backward = next(node for node in graph.nodes if "rnn_backward" in str(node.target))
    reserve = backward.args[-2]
    assert reserve.meta["val"].shape == (1000,)
    assert recurrent.runs_once(backward)
    assert not recurrent.draws(reserve.args[0])


def test_recurrent_layers_are_cast_one_by_one_under_autocast_and_put_back_afterwards() -> None:
    gru, x = nn.GRU(6, 8), torch.ones(5, 3, 6)
    wanted = copy.deepcopy(gru).bfloat16()(x.bfloat16())[0]
    before = torch._VF.gru
    with recurrent.traceable([gru], torch.device("cuda")):
        assert gru(x)[0].dtype == torch.float32
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        try:
            assert torch.equal(gru(x)[0], wanted)
        finally:
            torch.set_autocast_enabled("cuda", False)
            torch.set_autocast_dtype("cuda", torch.float16)
    assert torch._VF.gru is before
