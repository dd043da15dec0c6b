"""Rows of the scoreboard: one problem, the finish of every program, the memory of ours and of the fastest peer."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from threadpoolctl import threadpool_limits

from . import same_objective, scoreboard_linear, scoreboard_programs, scoreboard_sets
from .peak_memory import growth_of_a_call
from .same_objective import Finish, Race
from .scoreboard_paths import WORK as PATH
from .scoreboard_paths import PathProblem

CLOSE, EXACT = 1e-4, 1e-7
PATIENCE = 10.0  # a peer's search ends after so many times our time
SLOW = 4.0  # a peer that takes so many times our time with one thread is left out with several
DIVISORS = (10, 100)
OURS = scoreboard_programs.OURS


@dataclass(frozen=True)
class Options:
    """What a run measures."""

    only: Sequence[str] = ()  # parts of "work / set"; none: everything
    threads: int = 1
    limit: float = 20.0  # seconds for each program's search of its tolerance
    slow: Mapping[tuple[str, str, str], frozenset[str]] = field(default_factory=dict)  # peers left out, by cell

    def wants(self, *names: str) -> bool:
        """Whether a cell with these names was asked for; "=work / set" stands for one work and one set alone."""
        label = " / ".join(names)
        return not self.only or any(part in f"={label}" for part in self.only)


@dataclass(frozen=True)
class Row:
    """One cell of the board: a problem, the finish of every program, and memory."""

    work: str
    name: str  # of the set
    half: str
    penalty: str
    finishes: dict[str, Finish]
    least: float  # smallest objective known
    growth: dict[str, float] = field(default_factory=dict)  # MiB by program
    threads: int = 1
    date: str = ""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What a later row with the same key replaces."""
        return self.name, self.work, self.penalty, self.threads

    @property
    def best(self) -> str | None:
        """The fastest peer that reached the objective."""
        done = {title: one.seconds for title, one in self.finishes.items() if title != OURS and one.setting is not None}
        return min(done, key=lambda title: done[title]) if done else None

    @property
    def bound(self) -> bool:
        """Whether the ratio is a lower bound: no peer reached the objective in the time it had."""
        return self.best is None

    @property
    def ratio(self) -> float | None:
        """The best peer's time over ours; 0 if only peers reached the objective, None if it is not known.

        Where no peer reached it, the time that the least patient one had stands for the peer's: a lower bound, which
        says nothing where it is below 1.
        """
        if self.best is None:
            given = [one.seconds for title, one in self.finishes.items() if title != OURS]
            ours = self.finishes[OURS]
            bound = min(given) / ours.seconds if given and ours.setting is not None else 0.0
            return bound if bound >= 1.0 else None
        if self.finishes[OURS].setting is None:
            return 0.0
        return self.finishes[self.best].seconds / self.finishes[OURS].seconds


def slow_peers(rows: Iterable[Row]) -> dict[tuple[str, str, str], frozenset[str]]:
    """The peers of each cell that several threads cannot make faster than ours, by its row with one thread.

    Two threads halve a time at best. The fastest peer is never left out.
    """
    found = {}
    for row in rows:
        ours = row.finishes[OURS]
        if row.threads == 1 and ours.setting is not None:
            others = {title: one for title, one in row.finishes.items() if title not in (OURS, row.best)}
            late = {title for title, one in others.items() if one.setting is None or one.seconds > SLOW * ours.seconds}
            found[row.name, row.work, row.penalty] = frozenset(late)
    return found


def pairs(options: Options) -> list[tuple[str, str]]:
    """(set, work) of the rows asked for, set by set."""
    return [
        (name, work)
        for name in scoreboard_sets.FAMILIES
        for work, about in scoreboard_linear.WORKS.items()
        if name in scoreboard_sets.present(about.use) and options.wants(work, name)
    ]


def slow_everywhere(work: str, options: Options) -> frozenset[str]:
    """The peers that are left out of every cell of a work that was asked for."""
    divisors = DIVISORS if work != PATH else DIVISORS[-1:]
    cells = [(name, work, penalty_of(divisor)) for name, one in pairs(options) if one == work for divisor in divisors]
    return frozenset.intersection(*(options.slow.get(cell, frozenset()) for cell in cells))


def penalty_of(divisor: int) -> str:
    """What a row calls its penalty."""
    return f"λ_max / {divisor}"


def linear_rows(options: Options) -> Iterator[Row]:
    """Rows of the linear models."""
    compiled: set[tuple[str, bool]] = set()
    for name, work in pairs(options):
        data = scoreboard_sets.load(name)
        for divisor in DIVISORS if work != PATH else DIVISORS[-1:]:
            problem = _posed(work, data, divisor)
            if (key := (work, problem.sparse)) not in compiled:
                compiled.add(key)
                small = _posed(work, scoreboard_linear.tiny(*key).data, 10)
                late = slow_everywhere(work, options)
                for title, fit in scoreboard_programs.programs(small, options.threads).items():
                    if title not in late:  # compiling takes longer than most rows
                        fit(1e-3)
            yield _measured(problem, name, options)


def _posed(work: str, data: scoreboard_sets.LinearSet, divisor: int) -> scoreboard_linear.LinearProblem:
    made = PathProblem if work == PATH else scoreboard_linear.LinearProblem
    return made(work, data, divisor)


def _measured(problem: scoreboard_linear.LinearProblem, name: str, options: Options) -> Row:
    penalty = penalty_of(problem.divisor)
    slow = options.slow.get((name, problem.work, penalty), frozenset())
    made = scoreboard_programs.programs(problem, options.threads)
    programs = {title: fit for title, fit in made.items() if title not in slow}
    with threadpool_limits(options.threads):
        exact = programs[OURS](EXACT)
        if isinstance(problem, PathProblem):
            problem.reference(exact[0])
        least = problem.objective(exact)
    settings = dict.fromkeys(programs, scoreboard_programs.LOOSE_TO_TIGHT)
    race = Race(problem.objective, programs, settings, options.threads, options.limit, PATIENCE)
    finishes = race.run(least, CLOSE)
    least = min(least, *(one.objective for one in finishes.values()))
    half, today = scoreboard_sets.half(name), datetime.date.today().isoformat()
    row = Row(problem.work, name, half, penalty, finishes, least, threads=options.threads, date=today)
    if options.threads == 1:  # a copy of a process does not have its other threads, and may wait for them
        for title in filter(None, (OURS, row.best)):
            fit, setting = programs[title], finishes[title].setting
            if setting is not None and finishes[title].seconds < same_objective.LONG:
                with threadpool_limits(1):
                    grown = growth_of_a_call(partial(fit, setting))
                if grown is not None:
                    row.growth[title] = grown
    return row
