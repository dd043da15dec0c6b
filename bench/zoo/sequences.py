"""Sequences without a transformer, or with one beside convolutions: recurrent networks, dilated ones, speech."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..memory_models import Job
from .parts import Attention, normal, pick, placed, tokens, trained


class Recurrent(nn.Module):
    """An embedding, PyTorch's own recurrent layers with dropout between them, a head for every position."""

    def __init__(self, kind: Any, vocabulary: int, width: int, layers: int, classes: int, *, both_ways: bool) -> None:
        super().__init__()
        self.embedding, self.drop = nn.Embedding(vocabulary, width), nn.Dropout(0.2)
        self.layers = kind(width, width, layers, batch_first=True, dropout=0.2, bidirectional=both_ways)
        self.head = nn.Linear(2 * width if both_ways else width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.layers(self.drop(self.embedding(x)))[0]))


def lstm_language_model(device: str, dtype: str, size: str) -> Job:
    """nn.LSTM over text; SGD and clipping."""
    vocabulary, width, layers, batch, length = pick(size, (96, 32, 2, 8, 12), (20000, 1024, 2, 96, 192))
    model = placed(Recurrent(nn.LSTM, vocabulary, width, layers, vocabulary, both_ways=False), device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    both = tokens(device, vocabulary, batch, length), tokens(device, vocabulary, batch, length)
    return trained(model, optimizer, both, device, dtype, clip=0.25)


def gru_tagger(device: str, dtype: str, size: str) -> Job:
    """nn.GRU in both directions, a class for every token; Adam."""
    vocabulary, width, layers, batch, length = pick(size, (96, 32, 2, 8, 12), (20000, 768, 2, 256, 192))
    model = placed(Recurrent(nn.GRU, vocabulary, width, layers, 32, both_ways=True), device, dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    both = tokens(device, vocabulary, batch, length), tokens(device, 32, batch, length)
    return trained(model, optimizer, both, device, dtype)


class Gated(nn.Module):
    """A causal dilated convolution with a gate; returns what goes on and what goes to the output."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.before = dilation
        self.wide = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.on, self.out = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = self.wide(F.pad(x, (self.before, 0))).chunk(2, 1)
        y = a.tanh() * b.sigmoid()
        return x + self.on(y), self.out(y)


class WaveNet(nn.Module):
    """Stacks of gated convolutions whose dilations double."""

    def __init__(self, width: int, stacks: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Gated(width, 1 << k) for _ in range(stacks) for k in range(depth))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 256, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embedding(x).transpose(1, 2)
        total = torch.zeros_like(h)
        for block in self.blocks:
            h, out = block(h)
            total = total + out
        return self.head(total).transpose(1, 2)


def wavenet(device: str, dtype: str, size: str) -> Job:
    """Samples of sound one after another, in float32; Adamax and an exponential schedule."""
    width, stacks, depth, batch, length = pick(size, (16, 2, 3, 2, 64), (128, 2, 9, 12, 12000))
    model = placed(WaveNet(width, stacks, depth), device, dtype)
    optimizer = torch.optim.Adamax(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    both = tokens(device, 256, batch, length), tokens(device, 256, batch, length)
    return trained(model, optimizer, both, device, dtype, blocks=model.blocks, schedule=schedule)


class Feed(nn.Module):
    """Half a feed-forward step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.5 * self.layers(x)


class Conformer(nn.Module):
    """Half a feed-forward step, attention, a convolution over time with batch norm, half a feed-forward step."""

    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.before, self.behind, self.last = Feed(width), Feed(width), nn.LayerNorm(width)
        self.n1, self.attention = nn.LayerNorm(width), Attention(width, heads, dropout=0.1)
        self.n2, self.gate = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.deep = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm, self.out, self.drop = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        x = x + self.drop(self.attention(self.n1(x)))
        y = F.glu(self.gate(self.n2(x).transpose(1, 2)), 1)
        y = self.out(F.silu(self.norm(self.deep(y))))
        return self.last(self.behind(x + self.drop(y.transpose(1, 2))))


class Speech(nn.Module):
    """Frames at a quarter of their rate through Conformer blocks."""

    def __init__(self, bands: int, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.slow = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU())
        self.enter = nn.Linear(32 * (bands // 4), width)
        self.blocks = nn.ModuleList(Conformer(width, heads, 15) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.enter(self.slow(x[:, None]).transpose(1, 2).flatten(2))
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def conformer(device: str, dtype: str, size: str) -> Job:
    """A Conformer that names a unit of speech for every frame; AdamW with AMSGrad and one cycle of learning rates."""
    bands, width, heads, layers, batch, frames = pick(size, (16, 32, 2, 2, 4, 64), (80, 512, 8, 10, 24, 1600))
    model = placed(Speech(bands, width, heads, layers, 128), device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, amsgrad=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=100)
    both = normal(device, dtype, batch, frames, bands), tokens(device, 128, batch, frames // 4)
    return trained(model, optimizer, both, device, dtype, blocks=model.blocks, schedule=schedule)
