"""Ordinary layers and steps, planned so that everything moves, against eager: the same bits, or a plain refusal."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from stretto.memory import Step, step
from stretto.memory.capture.lifted import OpCall
from stretto.memory.options import StepSource
from stretto.memory.planning import capture
from stretto.memory.run.devices import PlainDevice
from stretto.memory.run.fallback import HookedStep

pytestmark = pytest.mark.usefixtures("one_torch_thread")

Case = tuple[nn.Module, tuple[Any, ...]]


class Then(nn.Module):
    """A layer, and a function of what it returns and of the rest of the batch."""

    def __init__(self, layer: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x: torch.Tensor, *rest: Any) -> Any:
        return self.function(self.layer(x), *rest)


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=dropout, batch_first=True)

    def forward(self, x: torch.Tensor, padding: torch.Tensor, later: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.attention(x, x, x, key_padding_mask=padding, attn_mask=later, need_weights=False)[0]
        return found


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.encoder(x, src_key_padding_mask=padding)
        return found


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, later: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.decoder(x, memory, tgt_mask=later, tgt_is_causal=True)
        return found


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.line = nn.EmbeddingBag(20, 8, mode="mean"), nn.Linear(8, 3)

    def forward(self, words: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.line(self.words(words, offsets))
        return found


class Spectral(nn.Module):
    """A layer of a Fourier neural operator: complex weights, and conjugates in its backward."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.weight = nn.Conv1d(4, 4, 1), nn.Parameter(torch.randn(4, 4, 5, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = torch.fft.rfft(self.mix(x))
        out = torch.zeros_like(waves)
        out[..., :5] = torch.einsum("bix,iox->box", waves[..., :5], self.weight)
        return torch.fft.irfft(out, n=16)


class Grid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.turn = nn.Conv2d(4, 4, 3, padding=1), nn.Parameter(torch.eye(2, 3).repeat(2, 1, 1) + 0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = F.affine_grid(self.turn, [2, 4, 6, 6], align_corners=False)
        return F.grid_sample(self.conv(x), grid, align_corners=False)


class Half(nn.Module):
    """Half of it runs without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))
        self.after = nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            h = self.before(x)
        found: torch.Tensor = self.after(h)
        return found


class Again(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = checkpoint(self.second, self.first(x), use_reentrant=False)
        return found


class Twice(nn.Module):
    """Uses its weight in two regions of autocast, each of which casts it."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            h = self.line(x)
        with torch.autocast("cpu", torch.bfloat16):
            found: torch.Tensor = self.line(h.relu())
        return found.float()


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def conv() -> nn.Module:
    return nn.Conv2d(4, 4, 3, padding=1)


def biased() -> nn.Module:
    norm = nn.BatchNorm2d(4)
    norm.weight.requires_grad_(False)
    return norm


S = nn.Sequential
IMAGE, ROWS, TIMES = torch.randn(2, 4, 8, 8), torch.randn(6, 6), torch.randn(5, 3, 6)
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
LATER = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
LETTERS, LETTERS_LONG = torch.tensor([[1, 2, 0], [3, 1, 0], [2, 2, 0]]), torch.tensor([2, 2, 1])
TIMES_LONG = torch.tensor([5, 4, 5])
WORDS = torch.randint(0, 20, (4, 5))
norms = nn.utils.parametrizations


def squares(x: torch.Tensor) -> torch.Tensor:
    return x @ x.T + torch.eye(6)


LAYERS: dict[str, Callable[[], Case]] = {
    # batch norm with and without something to learn before it
    "batch norm behind a frozen layer": lambda: (S(frozen(conv()), nn.BatchNorm2d(4), nn.ReLU(), conv()), (IMAGE,)),
    "batch norm first": lambda: (S(nn.BatchNorm2d(4), conv()), (IMAGE,)),
    "frozen batch norm": lambda: (S(conv(), frozen(nn.BatchNorm2d(4)), conv()), (IMAGE,)),
    "batch norm with a frozen weight": lambda: (S(frozen(conv()), biased(), conv()), (IMAGE,)),
    "batch norm in eval mode": lambda: (S(frozen(conv()), nn.BatchNorm2d(4).eval(), conv()), (IMAGE,)),
    "instance norm behind a frozen layer": lambda: (
        S(frozen(conv()), nn.InstanceNorm2d(4, affine=True, track_running_stats=True), conv()),
        (IMAGE,),
    ),
    "half without gradients": lambda: (Half(), (IMAGE,)),
    "frozen in the middle": lambda: (S(nn.Linear(6, 6), frozen(nn.Linear(6, 6)), nn.Linear(6, 2)), (ROWS,)),
    "layer norm behind a frozen layer": lambda: (S(frozen(nn.Linear(6, 6)), nn.LayerNorm(6)), (ROWS,)),
    "group norm behind a frozen layer": lambda: (S(frozen(conv()), nn.GroupNorm(2, 4)), (IMAGE,)),
    "rms norm": lambda: (S(nn.Linear(6, 6), nn.RMSNorm(6)), (ROWS,)),
    # recurrent
    "lstm": lambda: (nn.LSTM(6, 8, num_layers=2, batch_first=True), (TIMES,)),
    "lstm both ways with dropout": lambda: (nn.LSTM(6, 8, num_layers=2, dropout=0.3, bidirectional=True), (TIMES,)),
    "lstm with projections": lambda: (nn.LSTM(6, 8, proj_size=4), (TIMES,)),
    "gru": lambda: (nn.GRU(6, 8, num_layers=2), (TIMES,)),
    "rnn": lambda: (nn.RNN(6, 8), (TIMES,)),
    # attention
    "attention with masks": lambda: (Attention(), (torch.randn(3, 5, 8), PADDING, LATER)),
    "attention with masks and dropout": lambda: (Attention(0.2), (torch.randn(3, 5, 8), PADDING, LATER)),
    "encoder with a padding mask": lambda: (Encoder(), (torch.randn(3, 5, 8), PADDING)),
    "decoder": lambda: (Decoder(), (torch.randn(3, 5, 8), torch.randn(3, 7, 8), LATER)),
    # images
    "transposed convolution": lambda: (nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), (IMAGE,)),
    "3-d convolution": lambda: (
        S(nn.Conv3d(2, 3, 3), nn.BatchNorm3d(3), nn.MaxPool3d(2)),
        (torch.randn(2, 2, 6, 6, 6),),
    ),
    "pixel shuffle": lambda: (S(nn.Conv2d(4, 8, 3), nn.PixelShuffle(2), nn.PReLU()), (IMAGE,)),
    "adaptive pools": lambda: (S(conv(), nn.AdaptiveAvgPool2d((3, 2)), nn.AdaptiveMaxPool2d(2)), (IMAGE,)),
    "bilinear": lambda: (Then(conv(), lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear")), (IMAGE,)),
    "bicubic": lambda: (Then(conv(), lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic")), (IMAGE,)),
    "upsample": lambda: (S(conv(), nn.Upsample(scale_factor=2)), (IMAGE,)),
    "grid sample": lambda: (Grid(), (IMAGE,)),
    "dropouts": lambda: (S(conv(), nn.Dropout2d(0.3), nn.AlphaDropout(0.2), nn.RReLU()), (IMAGE,)),
    # tables
    "bags of words": lambda: (Bag(), (torch.randint(0, 20, (12,)), torch.tensor([0, 3, 7]))),
    "a table with a largest norm": lambda: (S(nn.Embedding(20, 8, max_norm=1.0), nn.Linear(8, 3)), (WORDS,)),
    # parametrisations and mathematics
    "weight norm": lambda: (S(norms.weight_norm(nn.Linear(6, 5)), nn.Linear(5, 2)), (ROWS,)),
    "spectral norm": lambda: (S(norms.spectral_norm(nn.Linear(6, 5)), nn.Linear(5, 2)), (ROWS,)),
    "fourier": lambda: (Spectral(), (torch.randn(2, 4, 16),)),
    "inverse": lambda: (Then(nn.Linear(6, 6), lambda x: torch.linalg.inv(squares(x))), (ROWS,)),
    "cholesky": lambda: (Then(nn.Linear(6, 6), lambda x: torch.linalg.cholesky(squares(x))), (ROWS,)),
    "checkpoint": lambda: (Again(), (ROWS,)),
    "two regions of autocast": lambda: (Twice(), (ROWS,)),
    # losses
    "weighted logits": lambda: (
        Then(
            nn.Linear(6, 5),
            lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(6, 5), pos_weight=torch.arange(1.0, 6.0)),
        ),
        (ROWS,),
    ),
    "ctc": lambda: (
        Then(nn.Linear(6, 5), lambda x, y, n, m: F.ctc_loss(x.log_softmax(-1), y, n, m, zero_infinity=True)),
        (TIMES, LETTERS, TIMES_LONG, LETTERS_LONG),
    ),
    "smooth labels": lambda: (
        Then(nn.Linear(6, 5), lambda x: F.cross_entropy(x, torch.arange(6) % 5, label_smoothing=0.1)),
        (ROWS,),
    ),
}
MIXED: dict[str, Callable[[], Case]] = {
    "group norm": lambda: (S(conv(), nn.GroupNorm(2, 4), nn.SiLU(), conv()), (IMAGE,)),
    "group norm, channels last": lambda: (
        S(conv(), nn.GroupNorm(2, 4), conv()).to(memory_format=torch.channels_last),
        (IMAGE.to(memory_format=torch.channels_last),),
    ),
    "batch norm": lambda: (S(conv(), nn.BatchNorm2d(4), conv()), (IMAGE,)),
    "instance norm": lambda: (S(conv(), nn.InstanceNorm2d(4, affine=True), conv()), (IMAGE,)),
    "layer norm": lambda: (S(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 2)), (ROWS,)),
    "gru": lambda: (nn.GRU(6, 8), (TIMES,)),
    "attention": lambda: (Attention(), (torch.randn(3, 5, 8), PADDING, LATER)),
}


def usual(model: nn.Module, *, mixed: bool = False) -> tuple[torch.optim.Optimizer, Callable[[Any], torch.Tensor]]:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)

    def train_step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16) if mixed else contextlib.nullcontext():
            out = model(*batch)
            loss: torch.Tensor = ((out[0] if isinstance(out, tuple) else out) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return optimizer, train_step


def moving(function: Any, model: nn.Module, optimizer: Any, batch: Any) -> Any:
    """Planned so that whatever can leave the device leaves it, and is overwritten there."""
    device = PlainDevice(late=0.7, seed=1, poison=True)
    options: dict[str, Any] = {"policy": "dissertation", "partition": 1, "distance": 1}
    return step(function, [model], [optimizer], batch, budget="64MiB", device=device, **options)


def same_as_eager(case: Case, *, mixed: bool = False) -> None:
    model, batch = case
    other = copy.deepcopy(model)
    (optimizer, mine), (_, theirs) = usual(model, mixed=mixed), usual(other, mixed=mixed)
    planned = moving(mine, model, optimizer, batch)
    assert isinstance(planned, Step), planned.why
    assert planned.planned.costs.bytes_out
    for k in range(2):
        torch.manual_seed(k)
        loss = planned(batch)
        torch.manual_seed(k)
        assert torch.equal(loss, theirs(batch)), f"loss of step {k}"
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_the_bits_of_eager(name: str) -> None:
    torch.manual_seed(0)
    same_as_eager(LAYERS[name]())


@pytest.mark.parametrize("name", MIXED)
def test_a_layer_in_mixed_precision_gives_the_bits_of_eager(name: str) -> None:
    torch.manual_seed(0)
    same_as_eager(MIXED[name](), mixed=True)


def test_views_of_a_cast_that_was_made_before_are_views_of_the_first_one() -> None:
    """A view that counts as an operation holds memory that the plan has given back."""
    model, cpu = Twice(), torch.device("cpu")
    optimizer, train_step = usual(model)
    lifted = capture(StepSource(train_step, [model], [optimizer], (ROWS,), cpu), 1 << 30).lifted
    targets = [run.target for run in lifted.runs if isinstance(run, OpCall)]
    assert targets.count(torch.ops.aten.addmm.default) == 2
    assert torch.ops.aten.t.default not in targets


def sharpness_aware(model: nn.Module) -> tuple[torch.optim.Optimizer, Callable[[Any], torch.Tensor]]:
    """SAM: the gradient at the worst place near the parameters is applied to the parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def train_step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(*batch).square().mean()
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
            moves = [p.grad * (0.05 / (norm + 1e-12)) for p in model.parameters() if p.grad is not None]
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        optimizer.zero_grad()
        model(*batch).square().mean().backward()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        optimizer.step()
        return loss

    return optimizer, train_step


def test_parameters_changed_in_place_between_two_backward_passes() -> None:
    torch.manual_seed(0)
    model = S(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    other = copy.deepcopy(model)
    (optimizer, mine), (_, theirs) = sharpness_aware(model), sharpness_aware(other)
    planned = moving(mine, model, optimizer, (ROWS,))
    assert isinstance(planned, Step), planned.why
    for _ in range(3):
        assert torch.equal(planned((ROWS,)), theirs((ROWS,)))
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_two_networks_with_spectral_norm_trained_in_turn() -> None:
    """The critic is read again after its update: what is read are views of its parameters."""
    torch.manual_seed(0)
    critic = S(norms.spectral_norm(nn.Linear(6, 8)), nn.BatchNorm1d(8), nn.Linear(8, 1))
    pair = nn.ModuleList([nn.Linear(4, 6), critic])
    batch = torch.randn(5, 4), torch.randn(5, 6)

    def made(both: nn.ModuleList) -> tuple[list[torch.optim.Optimizer], Callable[[Any], torch.Tensor]]:
        makes, judges = (torch.optim.SGD(one.parameters(), lr=0.1) for one in both)

        def train_step(batch: Any) -> torch.Tensor:
            judges.zero_grad()
            loss = both[1](both[0](batch[0]).detach()).mean() - both[1](batch[1]).mean()
            loss.backward()
            judges.step()
            both[1].requires_grad_(False)
            makes.zero_grad()
            fooled = -both[1](both[0](batch[0])).mean()
            fooled.backward()
            makes.step()
            both[1].requires_grad_(True)
            total: torch.Tensor = loss.detach() + fooled.detach()
            return total

        return [makes, judges], train_step

    other = copy.deepcopy(pair)
    (optimizers, mine), (_, theirs) = made(pair), made(other)
    options: dict[str, Any] = {"policy": "dissertation", "partition": 1, "distance": 1}
    device = PlainDevice(late=0.7, seed=1, poison=True)
    planned = step(mine, [pair], optimizers, batch, budget="64MiB", device=device, **options)
    assert isinstance(planned, Step), planned.why
    for k in range(3):
        assert torch.equal(planned(batch), theirs(batch)), f"loss of step {k}"
    lifted = capture(StepSource(mine, [pair], optimizers, batch, torch.device("cpu")), 1 << 30).lifted
    assert torch.ops.aten.detach.default not in [run.target for run in lifted.runs if isinstance(run, OpCall)]


def packed(x: torch.Tensor) -> torch.Tensor:
    return nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4, 2])).data


REFUSED: dict[str, tuple[Callable[[], Case], str]] = {
    "sparse table": (
        lambda: (S(nn.Embedding(20, 8, sparse=True)), (WORDS,)),
        "layer 0 .Embedding. has sparse=True.*use",
    ),
    "lengths": (lambda: (Then(nn.Linear(6, 4), packed), (TIMES,)), "packs sequences by their lengths; pad them"),
    "ctc with lengths as numbers": (
        lambda: (Then(nn.Linear(6, 5), lambda x: F.ctc_loss(x.log_softmax(-1), LETTERS, (5,) * 3, (2,) * 3)), (TIMES,)),
        "ctc_loss receives lengths as Python numbers; pass tensors",
    ),
    "ctc with targets in a row": (
        lambda: (
            Then(nn.Linear(6, 5), lambda x: F.ctc_loss(x.log_softmax(-1), LETTERS.flatten(), TIMES_LONG, LETTERS_LONG)),
            (TIMES,),
        ),
        "targets of all texts in one row",
    ),
    "mask as an index": (lambda: (Then(nn.Linear(6, 4), lambda x: x[x > 0]), (ROWS,)), "size of a result depends on"),
    "a value": (
        lambda: (Then(nn.Linear(6, 4), lambda x: x * float(x.sum())), (ROWS,)),
        r"reads a value of a tensor into Python.*test_memory_layers.py:\d+ \(.*float\(x.sum\(\)\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_planned_is_refused_in_words_of_the_step(name: str) -> None:
    make, why = REFUSED[name]
    model, batch = make()
    optimizer, train_step = usual(model)
    hooked = moving(train_step, model, optimizer, batch)
    assert isinstance(hooked, HookedStep)
    assert re.search(why, hooked.why), hooked.why
