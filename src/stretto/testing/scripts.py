"""Worker scripts of a fault schedule: reads and adds drawn once, so that a restarted worker repeats them.

    script = Script.draw(random.Random(7), tables, workers=4, clocks=3)
    st.run(script.body, workers=4, tables=…)

What a worker adds depends on what it has read and on its `w.local`, so that a wrong read, or a worker restored wrongly,
shows in the tables. Tables marked `whole` are given small whole numbers only: their sums are exact in any order. What
is added to other tables differs by `reach` powers of ten either way: sums cancel, and terms vanish beside others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]


@dataclass(frozen=True)
class ScriptTable:
    """A table as the script sees it."""

    name: str
    keys: tuple[int, ...]  # to draw from
    cols: int
    whole: bool  # add integers only
    integer: bool = False
    reach: int = 0  # range of the magnitudes that are added, in powers of ten


class ScriptStep(NamedTuple):
    """One thing a worker does: "read", "ask" (read_async), "add", "element" (add_at) or "work". amount: items, or what
    is added [n, cols] before what was read is mixed in."""

    do: str
    table: int
    keys: Keys
    amount: Any


class Script:
    """What the workers of a schedule do.

    steps[worker][clock] : the worker's steps in this clock.
    announces : whether workers announce the rows they will add to.
    open [workers] : whether the worker returns without a tick after its last clock.
    """

    def __init__(
        self, sheets: Sequence[ScriptTable], steps: list[list[list[ScriptStep]]], announces: bool, open: Sequence[bool]
    ) -> None:
        self.sheets, self.steps, self.announces, self.open = tuple(sheets), steps, announces, tuple(open)

    @classmethod
    def draw(
        cls,
        dice: random.Random,
        sheets: Sequence[ScriptTable],
        workers: int,
        clocks: int,
        busy: int,
        announces: bool = False,
    ) -> Script:
        """busy: steps of a worker in a clock at most, ticks not counted."""
        # Some scripts crowd a few rows, some spread out, so that both waiting and early sends happen.
        crowd = dice.choice((1, 2, 3, 8))
        # Some workers leave early.
        lengths = [dice.randint(0, clocks) if dice.random() < 0.1 else clocks for _ in range(workers)]
        steps = [
            [_clock(dice, sheets, dice.randint(0 if dice.random() < 0.1 else 1, busy), crowd) for _ in range(length)]
            for length in lengths
        ]
        open_ = [dice.random() < 0.15 for _ in range(workers)]
        # Other dice, so that the rest of a script depends on its seed alone, whatever is added.
        sizes = np.random.default_rng(dice.getrandbits(32))
        scaled = [[[_scaled(sizes, sheets, step) for step in clock] for clock in worker] for worker in steps]
        return cls(sheets, scaled, announces, open_)

    def body(self, w: Any) -> None:
        """The worker function."""
        tables = [w.table(sheet.name) for sheet in self.sheets]
        local = w.local
        local.setdefault("memory", np.zeros(len(tables), np.int64))
        announced = w.clock  # announcements of an earlier attempt are lost
        end = len(self.steps[w.number])
        while w.clock < end:
            clock = w.clock
            if self.announces:
                announced = self._announce(tables, w.number, announced, min(clock + 2, end))
            asked: list[tuple[int, Any]] = []
            for step in self.steps[w.number][clock]:
                if step.do == "work":
                    w.work(step.amount)
                elif step.do == "read":
                    _remember(local, step.table, tables[step.table].read(step.keys))
                elif step.do == "ask":
                    asked.append((step.table, tables[step.table].read_async(step.keys)))
                else:
                    for table, handle in asked:
                        _remember(local, table, handle.get())
                    asked.clear()
                    self._add(tables[step.table], step, local)
            for table, handle in asked:
                _remember(local, table, handle.get())
            if clock + 1 == end and self.open[w.number]:
                return
            w.tick()

    def _add(self, table: Any, step: ScriptStep, local: dict[str, Any]) -> None:
        sheet = self.sheets[step.table]
        mixed = int(local["memory"].sum() % 3)
        deltas = step.amount + (mixed if sheet.whole else mixed * 0.37)
        deltas = deltas.astype(table.dtype)
        if step.do == "element":
            cols = np.arange(len(step.keys)) % sheet.cols
            table.add_at(step.keys, cols, deltas[:, 0])
        else:
            table.add(step.keys, deltas if sheet.cols > 1 else deltas[:, 0])

    def _announce(self, tables: list[Any], worker: int, first: int, end: int) -> int:
        """Say what will be added to in these clocks; returns the next to be announced."""
        for clock in range(first, end):
            for number, table in enumerate(tables):
                keys = [s.keys for s in self.steps[worker][clock] if s.table == number and s.do in ("add", "element")]
                table.announce(np.unique(np.concatenate([np.zeros(0, np.int64), *keys])), clock)
        return end

    def described(self) -> str:
        """Every step, for a person."""
        lines = []
        for worker, clocks in enumerate(self.steps):
            for clock, steps in enumerate(clocks):
                said = ", ".join(
                    f"work {s.amount}" if s.do == "work" else f"{s.do} {self.sheets[s.table].name}{s.keys.tolist()}"
                    for s in steps
                )
                lines.append(f"  worker {worker} clock {clock}: {said or '-'}")
        return "\n".join(lines)


def _clock(dice: random.Random, sheets: Sequence[ScriptTable], count: int, crowd: int) -> list[ScriptStep]:
    steps = []
    for _ in range(count):
        do = dice.choices(("read", "ask", "add", "element", "work"), (30, 5, 40, 3, 22))[0]
        if do == "work":
            steps.append(ScriptStep(do, 0, np.zeros(0, np.int64), dice.choice((0, 1, 1, 2, 5, 20))))
            continue
        table = dice.randrange(len(sheets))
        sheet = sheets[table]
        among = sheet.keys[:crowd] if dice.random() < 0.7 else sheet.keys
        size = dice.randint(1, min(4, len(among) + 1))
        adding = do in ("add", "element")
        # A key twice in one call is allowed in both.
        picked = (
            [dice.choice(among) for _ in range(size)]
            if dice.random() < 0.3
            else dice.sample(among, min(size, len(among)))
        )
        keys = np.array(picked, dtype=np.int64)
        amount = None
        if adding:
            shape = (len(keys), sheet.cols)
            whole = [dice.randint(-4, 4) for _ in range(shape[0] * shape[1])]
            amount = np.array(whole, dtype=np.float64).reshape(shape) * (1.0 if sheet.whole else 0.173)
        steps.append(ScriptStep(do, table, keys, amount))
    return steps


def _scaled(sizes: np.random.Generator, sheets: Sequence[ScriptTable], step: ScriptStep) -> ScriptStep:
    """The same step with numbers of many sizes, where it adds and the table is made for them."""
    if step.amount is None or step.do == "work" or not sheets[step.table].reach:
        return step
    sheet = sheets[step.table]
    powers = sizes.uniform(0 if sheet.integer else -sheet.reach, sheet.reach, step.amount.shape)
    amount = step.amount * 10.0**powers
    return step._replace(amount=np.trunc(amount) if sheet.integer else amount)


def _remember(local: dict[str, Any], table: int, rows: NDArray[Any]) -> None:
    """Fold what was read into the worker's own state, as a whole number that any change of a bit would change."""
    bits = np.ascontiguousarray(rows).view(np.uint8).reshape(-1).astype(np.int64)
    mark = int((bits * np.arange(1, len(bits) + 1)).sum())
    local["memory"][table] = (local["memory"][table] * 31 + mark) % 1_000_003
