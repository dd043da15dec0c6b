"""Networks of convolutions that classify images."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..memory_models import Job, ResNet
from .parts import classes, normal, pick, placed, tokens, trained


class Scaled(nn.Module):
    """A ConvNeXt block: depthwise 7×7, layer norm over channels, two products, a scale; whole samples are dropped."""

    def __init__(self, width: int, drop: float) -> None:
        super().__init__()
        self.wide = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale, self.drop = nn.Parameter(torch.full((width,), 1e-2)), drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.wide(x).permute(0, 2, 3, 1))
        y = (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)
        if self.training and self.drop:
            kept = torch.rand(len(x), 1, 1, 1, device=x.device) >= self.drop
            y = y * kept / (1 - self.drop)
        return x + y


class Smaller(nn.Module):
    """Half the resolution, twice the channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.cut = nn.LayerNorm(width), nn.Conv2d(width, 2 * width, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cut(self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


class Averaged(nn.Module):
    """Means over all pixels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


def convnext(device: str, dtype: str, size: str) -> Job:
    """ConvNeXt-T with stochastic depth and AdamW."""
    side, width, depths, batch = pick(size, (32, 16, (2, 2), 8), (224, 96, (3, 3, 9, 3), 96))
    layers: list[nn.Module] = []
    for stage, depth in enumerate(depths):
        layers += [
            *([Smaller(width << (stage - 1))] if stage else []),
            *(Scaled(width << stage, 0.1) for _ in range(depth)),
        ]
    last = width << (len(depths) - 1)
    head = (Averaged(), nn.LayerNorm(last), nn.Linear(last, classes(size)))
    model = placed(nn.Sequential(nn.Conv2d(3, width, 4, 4), *layers, *head), device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    both = normal(device, dtype, batch, 3, side, side), tokens(device, classes(size), batch)
    return trained(model, optimizer, both, device, dtype, blocks=layers)


class Dense(nn.Module):
    """A layer of a dense block: its input with a few new channels appended."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.n1, self.a = nn.BatchNorm2d(width), nn.Conv2d(width, 4 * growth, 1, bias=False)
        self.n2, self.b = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.b(F.relu(self.n2(self.a(F.relu(self.n1(x))))))
        return torch.cat([x, y], 1)


def densenet(device: str, dtype: str, size: str) -> Job:
    """DenseNet-121 with SGD, Nesterov's momentum and steps of the learning rate."""
    side, growth, depths, batch = pick(size, (32, 8, (2, 3), 8), (224, 32, (6, 12, 24, 16), 48))
    width = 2 * growth
    layers: list[nn.Module] = []
    for stage, depth in enumerate(depths):
        if stage:
            less = nn.Conv2d(width, width // 2, 1, bias=False)
            layers.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), less, nn.AvgPool2d(2)))
            width //= 2
        for _ in range(depth):
            layers.append(Dense(width, growth))
            width += growth
    first = (nn.Conv2d(3, 2 * growth, 7, 2, 3, bias=False), nn.BatchNorm2d(2 * growth), nn.ReLU(inplace=True))
    head = (nn.BatchNorm2d(width), nn.ReLU(inplace=True), Averaged(), nn.Linear(width, classes(size)))
    model = placed(nn.Sequential(*first, nn.MaxPool2d(3, 2, 1), *layers, *head), device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    both = normal(device, dtype, batch, 3, side, side), tokens(device, classes(size), batch)
    return trained(model, optimizer, both, device, dtype, blocks=layers, schedule=schedule)


class Inverted(nn.Module):
    """Widen, depthwise convolution, weigh the channels by what is in them (squeeze and excitation), narrow."""

    def __init__(self, width: int, out: int, stride: int, kernel: int, widen: int = 4) -> None:
        super().__init__()
        inner = widen * width
        self.up, self.n1 = nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.deep = nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False)
        self.n2 = nn.BatchNorm2d(inner)
        self.squeeze, self.excite = nn.Conv2d(inner, max(4, width // 4), 1), nn.Conv2d(max(4, width // 4), inner, 1)
        self.down, self.n3 = nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)
        self.around = stride == 1 and width == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(self.n1(self.up(x)))
        y = F.silu(self.n2(self.deep(y)))
        y = y * self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True)))).sigmoid()
        y = self.n3(self.down(y))
        return x + y if self.around else y


def efficientnet(device: str, dtype: str, size: str) -> Job:
    """EfficientNet-like: depthwise convolutions, squeeze and excitation, dropout, RMSprop; channels last."""
    plan = pick(
        size,
        [(16, 1, 1, 3), (24, 2, 2, 5)],
        [(16, 1, 1, 3), (24, 2, 2, 3), (40, 2, 2, 5), (80, 3, 2, 3), (112, 3, 1, 5), (192, 4, 2, 5), (320, 1, 1, 3)],
    )
    side, batch = pick(size, (32, 8), (224, 192))
    first = pick(size, 16, 32)
    layers: list[nn.Module] = []
    width = first
    for out, depth, stride, kernel in plan:
        for k in range(depth):
            layers.append(Inverted(width, out, stride if k == 0 else 1, kernel, 4 if layers else 1))
            width = out
    begin = (nn.Conv2d(3, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.SiLU())
    head = (nn.Conv2d(width, 4 * width, 1), nn.SiLU(), Averaged(), nn.Dropout(0.2), nn.Linear(4 * width, classes(size)))
    model = placed(nn.Sequential(*begin, *layers, *head), device, dtype).to(memory_format=torch.channels_last)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, alpha=0.9, momentum=0.9)
    x = normal(device, dtype, batch, 3, side, side).to(memory_format=torch.channels_last)
    return trained(model, optimizer, (x, tokens(device, classes(size), batch)), device, dtype, blocks=layers)


class Tuned(nn.Module):
    """A backbone whose first groups of layers are frozen, while their batch norms still take means; a new head."""

    def __init__(self, backbone: ResNet, frozen: int) -> None:
        super().__init__()
        self.backbone = backbone
        for part in (backbone.head, *backbone.layers[:frozen]):
            part.requires_grad_(False)
        width = backbone.last.in_features
        backbone.last = nn.Sequential(
            nn.Linear(width, width // 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width // 4, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.backbone(x)


def frozen_backbone(device: str, dtype: str, size: str) -> Job:
    """Fine-tuning the last layers of ResNet-50 behind frozen ones that have batch norm in training mode."""
    side, counts, frozen, batch = pick(size, (32, (1, 1, 0, 0), 1, 4), (224, (3, 4, 6, 3), 7, 224))
    model = placed(Tuned(ResNet(counts), frozen), device, dtype)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    both: Any = normal(device, dtype, batch, 3, side, side), tokens(device, 10, batch)
    return trained(model, optimizer, both, device, dtype, blocks=list(model.backbone.layers))
