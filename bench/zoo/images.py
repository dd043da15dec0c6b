"""Networks whose output is an image or a volume: diffusion, segmentation of volumes, a variational autoencoder,
super-resolution."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..memory_models import Job
from .parts import Attention, normal, pick, placed, tokens, trained


class Timed(nn.Module):
    """Two convolutions behind group norms; the time of the diffusion is added between them."""

    def __init__(self, width: int, out: int, time: int) -> None:
        super().__init__()
        self.n1, self.a = nn.GroupNorm(8, width), nn.Conv2d(width, out, 3, padding=1)
        self.time, self.drop = nn.Linear(time, out), nn.Dropout(0.1)
        self.n2, self.b = nn.GroupNorm(8, out), nn.Conv2d(out, out, 3, padding=1)
        self.around = nn.Conv2d(width, out, 1) if width != out else nn.Identity()

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        y = self.a(F.silu(self.n1(x))) + self.time(t)[:, :, None, None]
        return self.around(x) + self.b(self.drop(F.silu(self.n2(y))))


class Looking(nn.Module):
    """Attention over all pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(8, width), Attention(width, max(1, width // 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.attention(self.norm(x).flatten(2).transpose(1, 2))
        return x + y.transpose(1, 2).reshape(x.shape)


class Denoiser(nn.Module):
    """Down, through the middle, up again with what was seen on the way down."""

    def __init__(self, base: int, times: tuple[int, ...]) -> None:
        super().__init__()
        time = 4 * base
        self.base, self.steps = base, nn.Sequential(nn.Linear(base, time), nn.SiLU(), nn.Linear(time, time), nn.SiLU())
        self.first = nn.Conv2d(3, base, 3, padding=1)
        widths, width = [base], base
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, factor in enumerate(times):
            for _ in range(2):
                self.down.append(Timed(width, base * factor, time))
                width = base * factor
                widths.append(width)
            if level < len(times) - 1:
                self.down.append(nn.Conv2d(width, width, 3, 2, 1))
                widths.append(width)
        self.middle, self.seen, self.after = Timed(width, width, time), Looking(width), Timed(width, width, time)
        for level, factor in reversed(list(enumerate(times))):
            for _ in range(3):
                self.up.append(Timed(width + widths.pop(), base * factor, time))
                width = base * factor
            if level:
                self.up.append(nn.ConvTranspose2d(width, width, 4, 2, 1))
        self.last = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        speeds = torch.exp(-9.0 * torch.arange(self.base // 2, device=x.device) / (self.base // 2))
        angles = t[:, None].float() * speeds
        time = self.steps(torch.cat([angles.sin(), angles.cos()], -1))
        x = self.first(x)
        seen = [x]
        for layer in self.down:
            x = layer(x, time) if isinstance(layer, Timed) else layer(x)
            seen.append(x)
        x = self.after(self.seen(self.middle(x, time)), time)
        for layer in self.up:
            x = layer(torch.cat([x, seen.pop()], 1), time) if isinstance(layer, Timed) else layer(x)
        return self.last(x)


def diffusion_unet(device: str, dtype: str, size: str) -> Job:
    """A denoising U-Net; times and noise are drawn in the step, on the device."""
    side, base, times, batch = pick(size, (16, 16, (1, 2), 4), (64, 128, (1, 2, 2, 4), 64))
    model = placed(Denoiser(base, times), device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss(model: Any, x: Any) -> torch.Tensor:
        t = torch.randint(0, 1000, (len(x),), device=x.device)
        noise = torch.randn_like(x)
        share = torch.cos(t * (1.57 / 1000))[:, None, None, None]
        said = model(share * x + (1 - share**2).sqrt() * noise, t)
        return F.mse_loss(said.float(), noise)

    blocks = [layer for layer in (*model.down, model.middle, model.after, *model.up) if isinstance(layer, Timed)]
    return trained(
        model, optimizer, normal(device, dtype, batch, 3, side, side), device, dtype, loss=loss, blocks=blocks
    )


class Volume(nn.Module):
    """Two 3-D convolutions with instance norm."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.a, self.n1 = nn.Conv3d(width, out, 3, padding=1), nn.InstanceNorm3d(out, affine=True)
        self.b, self.n2 = nn.Conv3d(out, out, 3, padding=1), nn.InstanceNorm3d(out, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.leaky_relu(self.n1(self.a(x)), 0.01)
        return F.leaky_relu(self.n2(self.b(x)), 0.01)


class Volumes(nn.Module):
    """A U-Net over volumes."""

    def __init__(self, base: int, levels: int, classes: int) -> None:
        super().__init__()
        widths = [base << k for k in range(levels)]
        self.down = nn.ModuleList(Volume(a, b) for a, b in zip([1, *widths], widths, strict=False))
        self.wider = nn.ModuleList(nn.ConvTranspose3d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(Volume(2 * w, w) for w in reversed(widths[:-1]))
        self.last = nn.Conv3d(base, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = []
        for k, block in enumerate(self.down):
            x = block(F.max_pool3d(x, 2) if k else x)
            seen.append(x)
        seen.pop()
        for wider, block in zip(self.wider, self.up, strict=True):
            x = block(torch.cat([wider(x), seen.pop()], 1))
        return self.last(x)


def unet_3d(device: str, dtype: str, size: str) -> Job:
    """Segmentation of volumes: cross entropy and Dice; SGD with a polynomial schedule."""
    side, base, levels, batch = pick(size, (16, 4, 3, 2), (128, 32, 4, 2))
    model = placed(Volumes(base, levels, 4), device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.99, nesterov=True)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, 100, 0.9)

    def loss(model: Any, both: Any) -> torch.Tensor:
        x, y = both
        logits = model(x).float()
        shares, wanted = logits.softmax(1), F.one_hot(y, 4).movedim(-1, 1)
        dice = 2 * (shares * wanted).sum((2, 3, 4)) / (shares + wanted).sum((2, 3, 4))
        return F.cross_entropy(logits, y) + 1 - dice.mean()

    both = normal(device, dtype, batch, 1, side, side, side), tokens(device, 4, batch, side, side, side)
    blocks = [*model.down, *model.up]
    return trained(model, optimizer, both, device, dtype, loss=loss, blocks=blocks, schedule=schedule)


def vae(device: str, dtype: str, size: str) -> Job:
    """A convolutional variational autoencoder: the latent is drawn in the step; NAdam."""
    side, width, batch = pick(size, (16, 8, 16), (64, 128, 384))
    n, w = side, width
    down: list[nn.Module] = [nn.Conv2d(3, w, 3, padding=1)]
    while n > 4:
        down += [nn.Conv2d(w, 2 * w, 4, 2, 1), nn.BatchNorm2d(2 * w), nn.ELU()]
        n, w = n // 2, 2 * w
    latent = pick(size, 16, 256)
    down += [nn.Flatten(), nn.Linear(w * n * n, 2 * latent)]
    up: list[nn.Module] = [nn.Linear(latent, w * n * n), nn.Unflatten(1, (w, n, n))]
    while n < side:
        up += [nn.ConvTranspose2d(w, w // 2, 4, 2, 1), nn.BatchNorm2d(w // 2), nn.ELU()]
        n, w = 2 * n, w // 2
    up.append(nn.Conv2d(w, 3, 3, padding=1))
    model = placed(nn.ModuleDict({"down": nn.Sequential(*down), "up": nn.Sequential(*up)}), device, dtype)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-4)

    def loss(model: Any, x: Any) -> torch.Tensor:
        mean, log = model["down"](x).float().chunk(2, -1)
        drawn = mean + (0.5 * log).exp() * torch.randn_like(mean)
        far = F.mse_loss(model["up"](drawn).float(), x)
        return far + 1e-4 * (mean**2 + log.exp() - 1 - log).mean()

    blocks = [layer for layer in (*down, *up) if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d))]
    return trained(
        model, optimizer, normal(device, dtype, batch, 3, side, side), device, dtype, loss=loss, blocks=blocks
    )


class Around(nn.Module):
    """Two convolutions with a residual connection that is scaled down."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * self.b(F.relu(self.a(x), inplace=True))


def super_resolution(device: str, dtype: str, size: str) -> Job:
    """Four times the resolution by shuffling channels into pixels; mean absolute error; Adam with AMSGrad."""
    side, width, depth, batch = pick(size, (12, 16, 3, 4), (96, 128, 16, 32))
    blocks = [Around(width) for _ in range(depth)]
    wider = [part for _ in range(2) for part in (nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2))]
    first, last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
    model = placed(nn.Sequential(first, *blocks, *wider, last), device, dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, amsgrad=True)
    both = normal(device, dtype, batch, 3, side, side), normal(device, dtype, batch, 3, 4 * side, 4 * side)
    return trained(
        model, optimizer, both, device, dtype, loss=lambda model, b: F.l1_loss(model(b[0]).float(), b[1]), blocks=blocks
    )
