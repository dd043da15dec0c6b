"""Several attempts at a plan, of which the fastest that fits is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import numpy as np

from .cuts import cut
from .decide import Decider
from .gaps import DROP, KEEP, SWAP, Gaps
from .improve import demote, promote, relax, repair
from .lower import Lowered, lower
from .program import Link
from .walk import Steps, walk

ROUNDS = 24
IMPROVEMENTS = 3
LARGE = 20_000  # nodes, from which on fewer things are tried

# Shares of the budget for copies under way and for one run of what is made again; what comes first.
LOOSE = (
    (1 / 16, 0.3, "swap"),
    (1 / 32, 0.15, "cut"),
    (1 / 32, 0.15, "drop"),
    (1 / 32, 0.15, "swap"),
    (1 / 8, 0.3, "swap"),
    (1 / 4, 0.3, "swap"),
)
TIGHT = (
    (1 / 16, 0.3, "cut"),
    (1 / 16, 0.3, "drop"),
    (0.0, 0.5, "cut"),
    (1 / 8, 0.15, "cut"),
    (1 / 4, 0.3, "cut"),
)

Choices = np.ndarray[tuple[int], np.dtype[np.int8]]


@dataclass(frozen=True, eq=False)
class Found:
    """A lowered plan and what is worth telling about it."""

    lowered: Lowered
    steps: Steps
    choice: Choices
    notes: list[str] = field(default_factory=list)


def peak_of(steps: Steps) -> int:
    return max(steps.start, *steps.must)


def search(
    gaps: Gaps,
    budget: int,
    link: Link,
    *,
    swap: bool = True,
    recompute: bool = True,
    host: int | None = None,
    any_will_do: bool = False,
) -> Found | None:
    """The fastest plan found that fits, or None. any_will_do: the first one that fits is enough."""
    keep = walk(gaps, [KEEP] * len(gaps))
    if peak_of(keep) <= budget:
        return Found(lower(gaps.graph, keep, budget, link), keep, np.zeros(len(gaps), np.int8), ["everything fits"])
    count = len(gaps.graph.nodes)
    most = max(2 if count > LARGE else 3, 12_000 // max(count, 1))  # planning takes seconds, not minutes
    ways = (TIGHT + LOOSE if budget < peak_of(keep) / 4 else LOOSE + TIGHT)[:most]
    best: Found | None = None
    for spare_host, (window, longest, begin) in product((True, False) if host is not None else (False,), ways):
        decider = Decider(
            gaps,
            link,
            swap=swap,
            recompute=recompute,
            host=host,
            spare_host=spare_host,
            longest=longest * budget,
            least=min(budget // 5000, int(5 * link.latency * link.out)),
            drop_first=begin == "drop",
        )
        found = attempt(
            decider, keep, budget, budget - int(window * budget), longest if begin == "cut" else 0.0, not any_will_do
        )
        if found is not None and any_will_do:
            return found
        if found is not None and (best is None or found.lowered.seconds < best.lowered.seconds):
            best = found
    if best is None and swap:
        steps = walk(gaps, [SWAP] * len(gaps))
        held = sum(gaps.sizes[s] for s in steps.rooms)
        if peak_of(steps) <= budget and (host is None or held <= host):
            choice = np.full(len(gaps), SWAP, np.int8)
            best = Found(lower(gaps.graph, steps, budget, link), steps, choice, ["everything moves"])
    return best


def attempt(decider: Decider, keep: Steps, budget: int, target: int, share: float, improve: bool) -> Found | None:
    """Decide, walk, and decide again where the walk shows more than was thought."""
    gaps = decider.gaps
    decider.learn(keep)
    if share:
        cut(decider, int(decider.bytes.argmax()) - 1, 0.6 * share * budget)
        decider.learn(walk(gaps, decider.choice.tolist(), decider.longer))
    fits: Steps | None = None
    chosen = decider.choice.copy()
    for _ in range(ROUNDS):
        stuck = decider.reach(target)
        steps = walk(gaps, decider.choice.tolist(), decider.longer)
        peak = peak_of(steps)
        if peak <= budget:
            fits, chosen = steps, decider.choice.copy()
        decider.learn(steps)
        if peak <= target:
            break
        if stuck is not None and not repair(decider, target):
            break
    if fits is None:
        return None
    best = lower(gaps.graph, fits, budget, decider.link)
    if improve:
        best, fits, chosen = _improve(decider, best, fits, chosen, budget, target)
    dropped, swapped = int((chosen == DROP).sum()), int((chosen == SWAP).sum())
    notes = [f"{dropped} gaps are made again, {swapped} are swapped, of {len(gaps)}"]
    return Found(best, fits, chosen, notes)


def _improve(
    decider: Decider, best: Lowered, fits: Steps, chosen: Choices, budget: int, target: int
) -> tuple[Lowered, Steps, Choices]:
    """Small changes to a plan that fits, each kept if it is faster and still fits."""
    gaps = decider.gaps
    longer = dict(decider.longer)
    changes = (relax, promote, demote)
    failed = 0
    large = len(gaps.graph.nodes) > LARGE
    for turn in range(len(changes) * (1 if large else IMPROVEMENTS)):
        if failed == len(changes):
            break
        decider.choice[:] = chosen
        decider.longer = dict(longer)
        decider.learn(fits)
        failed += 1
        if not changes[turn % len(changes)](decider, target):
            continue
        steps = walk(gaps, decider.choice.tolist(), decider.longer)
        if peak_of(steps) > budget:
            decider.learn(steps)
            decider.reach(target)
            steps = walk(gaps, decider.choice.tolist(), decider.longer)
        if peak_of(steps) > budget:
            continue
        lowered = lower(gaps.graph, steps, budget, decider.link)
        if lowered.seconds < best.seconds:
            best, fits, chosen, longer, failed = lowered, steps, decider.choice.copy(), dict(decider.longer), 0
    return best, fits, chosen
