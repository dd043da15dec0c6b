"""Draw random fault schedules: cluster, tables, rule, policy, faults and workers' scripts from one seed.

    schedule = draw(4711)                        anything
    schedule = draw(4711, rule=SSP(1), nodes=2, crashes=1)     the same random numbers, with some choices given

Schedules are small, a few clocks over a few rows, so that thousands can be run; everything else varies widely.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stretto.comm.policy import RANKS, Eager, Lazy, Managed, Policy
from stretto.consistency.rules import ASP, BSP, SSP, Rule
from stretto.runtime.simulated.faults import Crash, Delay, Fault, Pause, Reset, SlowLink
from stretto.store.shard import functions

from .scripts import Script, ScriptTable

ITEM = 1e-3  # virtual seconds of one item of work


@dataclass(frozen=True, eq=False)
class DrawnSchedule:
    """One run to execute and check."""

    seed: int
    workers: int
    clocks: int
    tables: dict[str, dict[str, Any]]  # {name: arguments of st.tables.Table}
    rule: Rule
    policy: Policy
    cluster: dict[str, Any]  # arguments of st.Simulated
    checkpoint: int | None  # clocks between checkpoints
    script: Script = field(repr=False)

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(self.cluster["faults"])

    def described(self, steps: bool = False) -> str:
        """The schedule in words."""
        lines = [f"schedule {self.seed}: {self.workers} workers, {self.clocks} clocks, {self.rule}, {self.policy}"]
        if self.checkpoint is not None:
            lines.append(f"  checkpoints every {self.checkpoint} clocks")
        lines += [f"  table {name}: {_short(arguments)}" for name, arguments in self.tables.items()]
        lines.append(f"  cluster: {_short({k: v for k, v in self.cluster.items() if k != 'faults'})}")
        lines += [f"  {fault}" for fault in self.faults]
        return "\n".join(lines + ([self.script.described()] if steps else []))


def draw(
    seed: int,
    *,
    nodes: int | None = None,
    workers: int | None = None,
    clocks: int | None = None,
    rule: Rule | None = None,
    policy: Policy | None = None,
    kinds: Sequence[str] | None = None,
    crashes: int | None = None,
    checkpoint: int | None = None,
) -> DrawnSchedule:
    """A schedule. kinds: of tables, among "add", "average", "adagrad", "proximal", "adarevision". crashes: how many.
    checkpoint: clocks between checkpoints.
    """
    dice = random.Random(f"stretto schedule {seed}")
    nodes = nodes or dice.randint(1, 6)
    threads = dice.randint(1, 4)
    # Now and then there are nodes without workers.
    fewest = 1 if dice.random() < 0.15 else nodes
    workers = workers or dice.randint(fewest, max(nodes, min(8, nodes * threads)))
    crashes = dice.choice((0, 0, 0, 1, 1, 2)) if crashes is None else crashes
    clocks = clocks or dice.randint(1 + 2 * (crashes > 0), 6)
    rule = rule or _rule(dice)
    policy = policy or _policy(dice, nodes)
    if getattr(rule, "speculate", False) and policy.codec == "f2":
        rule = SSP(rule.s) if isinstance(rule, SSP) else rule
    plain = bool(getattr(rule, "speculate", False))
    tables, sheets = _tables(dice, nodes, kinds, plain)
    busy = dice.randint(1, 5)
    script = Script.draw(dice, sheets, workers, clocks, busy, announces=plain)
    cluster = _cluster(dice, nodes, threads, seed)
    length = _length(dice, clocks, busy, cluster["latency"])
    checkpoint = checkpoint or dice.choice((None, 1, 1, 2, 3))
    cluster["faults"] = _faults(dice, nodes, length, cluster["latency"], crashes)
    return DrawnSchedule(seed, workers, clocks, tables, rule, policy, cluster, checkpoint, script)


def _rule(dice: random.Random) -> Rule:
    kind = dice.choices(("bsp", "ssp", "speculate", "asp"), (35, 42, 10, 13))[0]
    if kind == "bsp":
        return BSP()
    return ASP() if kind == "asp" else SSP(dice.randint(0, 3), speculate=kind == "speculate")


def _policy(dice: random.Random, nodes: int) -> Policy:
    codec = "f2" if dice.random() < 0.25 else None
    kind = dice.choices(("eager", "lazy", "managed"), (25, 20, 55))[0]
    if kind != "managed":
        return Eager(codec) if kind == "eager" else Lazy(codec)
    links = {}
    if nodes > 1 and dice.random() < 0.3:
        for _ in range(dice.randint(1, 3)):
            a, b = dice.sample(range(nodes), 2)
            links[a, b] = _between(dice, 2e4, 2e6)
    return Managed(
        _between(dice, 3e4, 5e6),
        burst=(dice.choice((1, 2, 3, 8, 100)), dice.choice((1, 2, 3, 8, 100))),
        rank=dice.choice(RANKS),
        codec=codec,
        window=dice.choice((1, 2, 4, 32)),
        split=dice.choice((0.5, 0.5, 0.2, 0.8)),
        links=links,
    )


def _tables(
    dice: random.Random, nodes: int, kinds: Sequence[str] | None, plain: bool
) -> tuple[dict[str, dict[str, Any]], list[ScriptTable]]:
    tables, sheets = {}, []
    for number in range(dice.choice((1, 1, 2, 3))):
        name = f"t{number}"
        kind = dice.choice(kinds) if kinds else dice.choices(_KINDS, (60, 7, 7, 7, 19))[0]
        tables[name], sheet = _table(dice, name, kind, nodes, plain)
        sheets.append(sheet)
    return tables, sheets


_REACH = {"f2": 3, "f4": 12, "f8": 60, "i4": 8, "i8": 17}  # powers of ten
_KINDS = ("add", "average", "adagrad", "proximal", "adarevision")


def _table(dice: random.Random, name: str, kind: str, nodes: int, plain: bool) -> tuple[dict[str, Any], ScriptTable]:
    cols = dice.choice((1, 1, 2, 3))
    count = dice.choice((1, 2, 4, 12))
    dtype = "f4"
    whole = kind == "add" and dice.random() < 0.75
    if kind == "add":
        dtype = dice.choice(("f4", "f4", "f8", "i4", "i8", "f2")) if whole else dice.choice(("f4", "f8", "f2"))
        if plain and dtype == "f2":
            dtype = "f4"
    rows: int | None = count
    keys = tuple(range(count))
    if dice.random() < 0.25:
        rows, keys = None, tuple(dice.randint(-(2**60), 2**60) for _ in keys)
    partition: Any = dice.choice(("hash", "range") if rows is not None else ("hash",))
    if dice.random() < 0.15:
        partition = _crosswise
    start: Any = 0.0
    if dice.random() < 0.4:
        start = float(dice.randint(-5, 5))
        if rows is not None and dice.random() < 0.5:
            start = np.array([dice.randint(-5, 5) for _ in range(rows * cols)], dtype=np.float64).reshape(rows, cols)
    shards = tuple(sorted(dice.sample(range(nodes), dice.randint(1, nodes)))) if dice.random() < 0.25 else None
    arguments = {
        "rows": rows,
        "cols": cols,
        "dtype": dtype,
        "apply": _function(dice, kind),
        "start": start,
        "partition": partition,
        "shards": shards,
        "cache_rows": dice.choice((1, 2, 4)) if dice.random() < 0.2 else None,
        "unit": "element" if dice.random() < 0.1 else "row",
    }
    # Sums of integers wrap around; other tables than those that add square what they are given.
    reach = 0 if whole and dtype[0] == "f" else _REACH[dtype] if kind == "add" else 3
    return arguments, ScriptTable(name, keys, cols, whole, dtype in ("i4", "i8"), reach if dice.random() < 0.5 else 0)


def _function(dice: random.Random, kind: str) -> Any:
    rate = dice.choice((0.05, 0.5))
    if kind == "adarevision":
        return functions.adarevision(rate, snapshots=dice.choice((None, None, 0, 1, 4)))
    if kind == "adagrad":
        return functions.adagrad(rate)
    if kind == "proximal":
        return functions.proximal(rate, l1=dice.choice((0.0, 0.1)), l2=dice.choice((0.0, 0.1)))
    return functions.average if kind == "average" else functions.add


def _crosswise(keys: Any, shards: int) -> Any:
    """A partition of the user's own."""
    return (keys // 2 + 1) % shards


def _cluster(dice: random.Random, nodes: int, threads: int, seed: int) -> dict[str, Any]:
    latency = _between(dice, 1e-5, 2e-2)
    cluster: dict[str, Any] = {
        "nodes": nodes,
        "threads": threads,
        "link": [_between(dice, 2e5, 1e8) for _ in range(nodes)] if dice.random() < 0.5 else _between(dice, 2e5, 1e8),
        "latency": latency,
        "jitter": latency * dice.choice((0, 0, 0.5, 5)),
        "seconds_per_item": ITEM,
        "message_cost": dice.choice(((0.0, 0.0), (15e-6, 1e-9), (1e-3, 0.0))),
        "seed": seed,
        "detect": _between(dice, 1e-3, 0.1),
        "back_after": _between(dice, 1e-3, 0.1),
        "save": _between(dice, 1e5, 1e8),
    }
    if dice.random() < 0.4:
        cluster["speed"] = [dice.choice((0.1, 0.5, 1.0, 1.0, 4.0)) for _ in range(nodes)]
    if dice.random() < 0.4:
        cluster["stragglers"] = {"share": dice.choice((0.1, 0.3)), "slow": dice.choice((3.0, 20.0)), "seconds": 0.01}
    if nodes > 1 and dice.random() < 0.2:
        cluster["racks"] = dice.randint(1, nodes)
        cluster["uplink"] = _between(dice, 1e5, 1e7)
    return cluster


def _length(dice: random.Random, clocks: int, busy: int, latency: float) -> float:
    """About how long the run will take, in virtual seconds; now and then far off, so that ends are hit as well."""
    return clocks * (busy * 4 * ITEM + 6 * latency) * dice.choice((0.3, 1, 1, 1, 4))


def _faults(dice: random.Random, nodes: int, length: float, latency: float, crashes: int) -> tuple[Fault, ...]:
    # Most crashes come late enough for a checkpoint to exist.
    faults: list[Fault] = [
        Crash(dice.randrange(nodes), length * dice.random() ** 0.5, back_after=_between(dice, 1e-3, length + 1e-2))
        for _ in range(crashes)
    ]
    faults += [
        Pause(dice.randrange(nodes), dice.uniform(0, length), dice.uniform(0, length / 2))
        for _ in range(dice.choice((0, 0, 1, 2)))
    ]
    if nodes > 1:
        for _ in range(dice.choice((0, 1, 2))):
            a, b = dice.sample(range(nodes), 2)
            at, lasts = dice.uniform(0, length), dice.uniform(0, length)
            if dice.random() < 0.5:
                faults.append(SlowLink(a, b, at, lasts, factor=dice.choice((2.0, 10.0, 100.0))))
            else:
                faults.append(Delay(a, b, at, lasts, extra=dice.uniform(0, 20 * latency)))
        for _ in range(dice.choice((0, 0, 1, 3, 6))):
            a, b = dice.sample(range(nodes), 2)
            lost = dice.choice((0, 1, 2, 1_000_000_000))
            faults.append(
                Reset(a, b, dice.uniform(0, length), lost=lost, doubled=dice.choice((0, 1, 2, 1_000_000_000)))
            )
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _between(dice: random.Random, low: float, high: float) -> float:
    """Log-uniform, three digits."""
    return float(f"{math.exp(dice.uniform(math.log(low), math.log(high))):.3g}")


def _short(arguments: dict[str, Any]) -> str:
    """name=value, without what is usual."""

    def value(given: Any) -> str:
        if isinstance(given, np.ndarray):
            return str(given.tolist())
        return getattr(given, "__name__", None) or getattr(given, "name", None) or repr(given)

    return ", ".join(f"{name}={value(given)}" for name, given in arguments.items() if given is not None)
