"""Images by attention and by products: a vision transformer, shifted windows, a mixer, two towers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..memory_models import Job
from .parts import Block, classes, normal, pick, placed, tokens, trained


class Patches(nn.Module):
    """An image as a sequence of patches with positions added."""

    def __init__(self, side: int, patch: int, width: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cut(x).flatten(2).transpose(1, 2) + self.places


class ViT(nn.Module):
    """Patches and a class token through transformer blocks."""

    def __init__(self, side: int, patch: int, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.patches, self.token = Patches(side, patch, width), nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x)
        x = torch.cat([self.token.expand(len(x), -1, -1).to(x.dtype), x], 1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def vit_l(device: str, dtype: str, size: str) -> Job:
    """ViT-L/16 with AdamW and a cosine schedule."""
    side, patch, width, layers, batch = pick(size, (32, 8, 64, 3, 8), (224, 16, 1024, 24, 64))
    model = placed(
        ViT(side, patch, width, width // (16 if size == "tiny" else 64), layers, classes(size)), device, dtype
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    both = normal(device, dtype, batch, 3, side, side), tokens(device, classes(size), batch)
    return trained(model, optimizer, both, device, dtype, blocks=model.blocks, schedule=schedule)


class Windows(nn.Module):
    """Attention within windows of an image, shifted by half a window, with a learned bias for relative positions."""

    def __init__(self, width: int, heads: int, side: int, window: int, *, shifted: bool) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, window // 2 if shifted else 0
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.bias = nn.Parameter(0.02 * torch.randn((2 * window - 1) ** 2, heads))
        at = torch.arange(window)
        y, x = (each.flatten() for each in torch.meshgrid(at, at, indexing="ij"))
        apart = (y[:, None] - y + window - 1) * (2 * window - 1) + (x[:, None] - x + window - 1)
        self.register_buffer("apart", apart.flatten())
        part = torch.zeros(side, side)
        if self.shift:  # pixels that the shift brought together from opposite edges must not see each other
            spans = slice(0, -window), slice(-window, -self.shift), slice(-self.shift, None)
            for number, (rows, columns) in enumerate((a, b) for a in spans for b in spans):
                part[rows, columns] = number
        groups = self._cut(part[None, :, :, None])[..., 0]
        self.register_buffer("hidden", torch.where(groups[:, None] == groups[:, :, None], 0.0, -100.0))

    def _cut(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, rows, columns, width] as [batch · windows, pixels of a window, width]."""
        b, h, w, d = x.shape
        n = self.window
        return x.view(b, h // n, n, w // n, n, d).transpose(2, 3).reshape(-1, n * n, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, d = x.shape
        y = torch.roll(self.n1(x), (-self.shift, -self.shift), (1, 2)) if self.shift else self.n1(x)
        y = self._cut(y)
        count, pixels, _ = y.shape
        q, k, v = self.qkv(y).view(count, pixels, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.bias[self.apart].view(pixels, pixels, self.heads).permute(2, 0, 1)
        mask = self.hidden[:, None] + bias  # [windows, heads, pixels, pixels]
        score = (q @ k.transpose(-1, -2)) * (d // self.heads) ** -0.5
        score = (score.view(b, -1, *score.shape[1:]) + mask).view_as(score)
        y = (score.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(count, pixels, d)
        n = self.window
        y = self.out(y).view(b, h // n, w // n, n, n, d).transpose(2, 3).reshape(b, h, w, d)
        x = x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
        return x + self.feed(self.n2(x))


class Merge(nn.Module):
    """Four neighbouring pixels become one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.less = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        corners = [x[:, a::2, b::2] for a in (0, 1) for b in (0, 1)]
        return self.less(self.norm(torch.cat(corners, -1)))


def swin(device: str, dtype: str, size: str) -> Job:
    """Attention in shifted windows, in stages of falling resolution; AdamW with two parameter groups."""
    side, width, window, depths, batch = pick(size, (32, 32, 4, (2, 2), 4), (224, 96, 7, (2, 2, 6, 2), 96))
    layers: list[nn.Module] = []
    n = side // 4
    for stage, depth in enumerate(depths):
        d = width << stage
        layers += [Windows(d, d // 32, n, min(window, n), shifted=bool(k % 2) and n > window) for k in range(depth)]
        if stage < len(depths) - 1:
            layers.append(Merge(d))
            n //= 2
    body = nn.ModuleList(layers)

    class Swin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut, self.body, self.norm = nn.Conv2d(3, width, 4, 4), body, nn.LayerNorm(d)
            self.head = nn.Linear(d, classes(size))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.cut(x).permute(0, 2, 3, 1)
            for layer in self.body:
                x = layer(x)
            return self.head(self.norm(x).mean((1, 2)))

    model = placed(Swin(), device, dtype)
    plain = [p for p in model.parameters() if p.dim() < 2]
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": decayed}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, weight_decay=0.05)
    both = normal(device, dtype, batch, 3, side, side), tokens(device, classes(size), batch)
    return trained(model, optimizer, both, device, dtype, blocks=layers)


class Mixing(nn.Module):
    """Products over patches, then over channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(patches, width // 2), nn.GELU(), nn.Linear(width // 2, patches))
        self.along = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.across(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.n2(x))


def mixer(device: str, dtype: str, size: str) -> Job:
    """MLP-Mixer in pure bfloat16 with SGD and momentum."""
    side, patch, width, layers, batch = pick(size, (32, 8, 64, 3, 8), (224, 16, 768, 12, 128))
    blocks = [Mixing((side // patch) ** 2, width) for _ in range(layers)]

    class Mean(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean(1)

    layers_ = (Patches(side, patch, width), *blocks, nn.LayerNorm(width), Mean(), nn.Linear(width, classes(size)))
    model = placed(nn.Sequential(*layers_), device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    both = normal(device, dtype, batch, 3, side, side), tokens(device, classes(size), batch)
    return trained(model, optimizer, both, device, dtype, blocks=blocks)


class Text(nn.Module):
    """Token numbers through causal transformer blocks; the last position stands for the text."""

    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int, out: int) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(vocabulary, width), nn.Parameter(0.01 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Block(width, heads, causal=True) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embedding(x) + self.places
        for block in self.blocks:
            h = block(h)
        return self.out(self.norm(h)[:, -1])


def clip(device: str, dtype: str, size: str) -> Job:
    """Images beside texts: two modules, a learned temperature that is clamped after every update."""
    side, patch, width, layers, batch, length = pick(size, (32, 8, 64, 2, 8, 12), (224, 16, 768, 12, 96, 64))
    heads = width // pick(size, 16, 64)
    images = placed(ViT(side, patch, width, heads, layers, 256), device, dtype)
    texts = placed(Text(1000, length, width, heads, layers, 256), device, dtype)
    images.temperature = nn.Parameter(torch.tensor(2.66, device=device))
    optimizer = torch.optim.AdamW([*images.parameters(), *texts.parameters()], lr=1e-4)

    def loss(model: Any, both: Any) -> torch.Tensor:
        picture, text = both
        a, b = F.normalize(images(picture).float(), dim=-1), F.normalize(texts(text).float(), dim=-1)
        score = images.temperature.exp() * a @ b.T
        own = torch.arange(len(score), device=score.device)
        return (F.cross_entropy(score, own) + F.cross_entropy(score.T, own)) / 2

    both = normal(device, dtype, batch, 3, side, side), tokens(device, 1000, batch, length)
    usual = trained(images, optimizer, both, device, dtype, loss=loss)

    def step(both: Any) -> torch.Tensor:
        value = usual.step(both)
        with torch.no_grad():
            images.temperature.clamp_(0.0, 4.6)
        return value

    return Job(step, [images, texts], [optimizer], both, [*images.blocks, *texts.blocks])
