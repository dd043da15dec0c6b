"""Models for measuring memory: residual networks of any depth, GPT, a transformer with experts, LSTM cells, WGAN-GP.

Each maker gives a `Job` with random weights; what it learns is of no interest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from stretto.memory import Experts, PaddedExperts


@dataclass(frozen=True, eq=False)
class Job:
    """One training job. blocks: modules that a user would put a checkpoint around. after: called after every step, by
    default without effect (a schedule of learning rates)."""

    step: Callable[[Any], torch.Tensor]
    modules: list[nn.Module]
    optimizers: list[torch.optim.Optimizer]
    batch: Any
    blocks: list[nn.Module]
    after: Callable[[], None] = lambda: None


def cast(device: str, dtype: str) -> Any:
    """Autocast to bfloat16 if the dtype is "bf16"; otherwise a context that does nothing."""
    if dtype != "bf16":
        return contextlib.nullcontext()
    return torch.autocast("cpu" if device == "meta" else device, torch.bfloat16)  # meta: only planned, as on a CPU


def supervised(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
    device: str,
    dtype: str,
    blocks: list[nn.Module],
) -> Job:
    """Cross entropy of what the model says of x against y."""

    def step(both: Any) -> torch.Tensor:
        x, y = both
        optimizer.zero_grad()
        with cast(device, dtype):
            said = model(x)
            loss = F.cross_entropy(said.reshape(-1, said.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return Job(step, [model], [optimizer], batch, blocks)


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 with a way around."""

    def __init__(self, width: int, inner: int, out: int, stride: int) -> None:
        super().__init__()
        self.a, self.na = nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.b, self.nb = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.c, self.nc = nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or width != out:
            self.around = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.na(self.a(x)))
        y = self.relu(self.nb(self.b(y)))
        return self.relu(self.nc(self.c(y)) + self.around(x))


class ResNet(nn.Module):
    """Four groups of bottlenecks; depth is 3 times the bottlenecks plus 2."""

    def __init__(self, counts: tuple[int, int, int, int] = (3, 8, 36, 3), classes: int = 1000) -> None:
        super().__init__()
        self.head = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        layers: list[nn.Module] = []
        width = 64
        for k, count in enumerate(counts):
            for j in range(count):
                inner = 64 << k
                layers.append(Bottleneck(width, inner, 4 * inner, 2 if k and j == 0 else 1))
                width = 4 * inner
        self.layers = nn.ModuleList(layers)
        self.last = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.head(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x.mean((2, 3)))


def resnet(
    device: str,
    dtype: str = "fp32",
    batch: int = 128,
    third: int = 36,
    side: int = 224,
    others: tuple[int, int, int] = (3, 8, 3),
) -> Job:
    """ResNet-152 for third = 36; deeper ones have more blocks in the third group, as SuperNeurons counted."""
    model = ResNet((*others[:2], third, others[2])).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(batch, 3, side, side, device=device)
    if device == "cuda":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (batch,), device=device)
    return supervised(model, optimizer, (x, y), device, dtype, list(model.layers))


class Block(nn.Module):
    """A transformer's layer; its feed-forward part may be experts."""

    def __init__(self, width: int, heads: int, feed: nn.Module) -> None:
        super().__init__()
        self.heads, self.feed = heads, feed
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.feed(self.n2(x))


class Transformer(nn.Module):
    """Words in, words out."""

    def __init__(self, words: int, width: int, length: int, layers: list[nn.Module]) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers, self.norm = nn.ModuleList(layers), nn.LayerNorm(width)
        self.last = nn.Linear(width, words, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for layer in self.layers:
            h = layer(h)
        return self.last(self.norm(h))


def feed_forward(width: int) -> nn.Module:
    """Dense, GELU, dense."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def gpt(
    device: str,
    dtype: str = "fp32",
    batch: int = 16,
    length: int = 1024,
    width: int = 1024,
    layers: int = 24,
    words: int = 50304,
    place: str | None = None,
) -> Job:
    """GPT of 350 million parameters by default. place: where parameters are made, if not on the device."""
    with torch.device(place or device):
        blocks = [Block(width, width // 64, feed_forward(width)) for _ in range(layers)]
        model = Transformer(words, width, length, list(blocks))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = (torch.randint(0, words, (batch, length), device=device) for _ in range(2))
    return supervised(model, optimizer, (x, y), device, dtype, list(blocks))


class Cells(nn.Module):
    """Layers of LSTM cells, unrolled over time."""

    def __init__(self, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(layers))
        self.last = nn.Linear(width, classes)
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b = x.shape[1]
        state = [(x.new_zeros(b, self.width), x.new_zeros(b, self.width)) for _ in self.cells]
        for one in x:
            for k, cell in enumerate(self.cells):
                state[k] = cell(one, state[k])
                one = state[k][0]
        return self.last(one)


def lstm(device: str, dtype: str = "fp32", batch: int = 256, length: int = 256, width: int = 1024) -> Job:
    """Two layers of LSTM cells."""
    model = Cells(width, 2, 1000).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(length, batch, width, device=device)
    return supervised(model, optimizer, (x, torch.randint(0, 1000, (batch,), device=device)), device, dtype, [])


def moe(
    device: str,
    dtype: str = "fp32",
    batch: int = 8,
    length: int = 256,
    width: int = 1024,
    inner: int = 4096,
    layers: int = 6,
    experts: int = 12,
    padded: bool = False,
    factor: float | None = None,
    top_k: int = 1,
    groups: int | None = None,
    words: int = 32768,
    place: str | None = None,
) -> Job:
    """A transformer whose feed-forward parts are experts. factor: their capacity factor; None: padded experts have 2,
    the others drop no token."""

    def part() -> nn.Module:
        if padded:
            return PaddedExperts(width, inner, experts, 2.0 if factor is None else factor)
        return Experts(width, inner, experts, top_k, factor, groups)

    with torch.device(place or device):
        blocks = [Block(width, width // 64, part()) for _ in range(layers)]
        model = Transformer(words, width, length, list(blocks))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x, y = (torch.randint(0, words, (batch, length), device=device) for _ in range(2))
    return supervised(model, optimizer, (x, y), device, dtype, list(blocks))


def wgan(device: str, dtype: str = "fp32", batch: int = 64, side: int = 64, width: int = 64) -> Job:
    """WGAN-GP: the critic's step with a penalty on its gradient (a second derivative), then the generator's."""
    ups: list[nn.Module] = [nn.ConvTranspose2d(128, 8 * width, 4), nn.ReLU()]
    downs: list[nn.Module] = []
    n, channels = 4, 8 * width
    while n < side // 2:
        ups += [nn.ConvTranspose2d(channels, channels // 2, 4, 2, 1), nn.InstanceNorm2d(channels // 2), nn.ReLU()]
        n, channels = 2 * n, channels // 2
    ups += [nn.ConvTranspose2d(channels, 3, 4, 2, 1), nn.Tanh()]
    n, last = side, 3
    while n > 4:
        downs += [nn.Conv2d(last, channels, 4, 2, 1), nn.LeakyReLU(0.2)]
        n, last, channels = n // 2, channels, channels * 2
    maker = nn.Sequential(*ups).to(device)
    critic = nn.Sequential(*downs, nn.Flatten(), nn.Linear(last * 16, 1)).to(device)
    of_maker = torch.optim.Adam(maker.parameters(), lr=1e-4, betas=(0.0, 0.9))
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    real = torch.randn(batch, 3, side, side, device=device)
    noise, mix = torch.randn(2, batch, 128, 1, 1, device=device), torch.rand(batch, 1, 1, 1, device=device)

    def step(both: Any) -> torch.Tensor:
        real, noise, mix = both
        of_critic.zero_grad()
        with cast(device, dtype):
            fake = maker(noise[0]).detach().float()
            between = (mix * real + (1 - mix) * fake).requires_grad_()
            (slope,) = torch.autograd.grad(critic(between).float().sum(), between, create_graph=True)
            penalty = ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
            loss = critic(fake).float().mean() - critic(real).float().mean() + 10 * penalty
        loss.backward()
        of_critic.step()
        of_maker.zero_grad()
        with cast(device, dtype):
            maker_loss = -critic(maker(noise[1])).float().mean()
        maker_loss.backward()
        of_maker.step()
        return loss

    return Job(step, [maker, critic], [of_maker, of_critic], (real, noise, mix), [])


MODELS: dict[str, Callable[..., Job]] = {"resnet": resnet, "gpt": gpt, "moe": moe, "lstm": lstm, "wgan": wgan}
