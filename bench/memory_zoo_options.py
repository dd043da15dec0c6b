"""What memory_zoo measures of a model, as options and as words of the command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .memory_models import Job
from .memory_peers import checkpointed, compiled, fully_sharded, saved_on_cpu

PEERS: dict[str, Callable[[Job], Any]] = {
    "compile": compiled(1.0),
    **{f"compile-{share}": compiled(share) for share in (0.5, 0.3, 0.1)},
    "checkpoint": checkpointed,
    "save_on_cpu": saved_on_cpu,
    "fsdp2": fully_sharded,
}


@dataclass(frozen=True)
class Options:
    """What is measured of a model, and how.

    Attributes
    ----------
    device, size : str
        "cuda" or "cpu"; "full" or "tiny".
    shares : tuple of float
        Budgets of ours, as shares of the bytes that eager reserves (on a CPU: of the plan in which nothing moves).
    peers : tuple of str
        Keys of `PEERS`.
    warm, timed : int
        Steps before timing, of which the third one is recorded on a GPU, and steps that are timed.
    compiles : bool
        Also ours with ``compile=True``.
    chunks : str, optional
        "auto" or None, handed to `stretto.memory.step`.
    seconds : float
        Time for the whole model. What does not begin in it is left out, and says so.
    cap : bool
        The allocator gets no more than the budget while ours plans and runs: what would go over it fails.
    sharing : bool
        Other models are measured on the device at the same time: measurements take turns.
    """

    device: str = "cuda"
    size: str = "full"
    shares: tuple[float, ...] = (1.0, 0.5, 0.35, 0.15)
    peers: tuple[str, ...] = ()
    warm: int = 3
    timed: int = 5
    compiles: bool = False
    chunks: str | None = "auto"
    seconds: float = math.inf
    cap: bool = False
    sharing: bool = False

    @property
    def gpu(self) -> bool:
        """Whether bytes are measured."""
        return self.device == "cuda"


def shares_of(text: str) -> tuple[float, ...]:
    """Shares from a comma-separated list, which may be empty."""
    found = tuple(float(each) for each in text.split(",") if each.strip())
    if any(not 0 < share <= 100 for share in found):
        raise ValueError(f"--shares {text}: a share is a number above 0")
    return found


def names_of(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    """Names from a comma-separated list; "all" and "none" are understood."""
    if text in ("all", "none", ""):
        return tuple(known) if text == "all" else ()
    found = tuple(each.strip() for each in text.split(","))
    if wrong := [each for each in found if each not in known]:
        raise ValueError(f"{option}: {wrong[0]!r} is not known; give some of {', '.join(known)}")
    return found
