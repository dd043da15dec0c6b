"""Fault schedules: many small random runs on a simulated cluster, each checked by the replay checker.

    python -m stretto.testing.schedules --seed 4711 --verbose       one schedule again, and what it does
    python -m stretto.testing.schedules --first 0 --count 500       many; stops at the first that fails and names it

    run_seed(4711)                                                  the same from Python; raises ScheduleFailed

A schedule comes from its seed alone, and a simulated run from its schedule, so a seed that failed once fails always.
`draws` draws schedules, `scripts` defines what workers do. Runs under BSP() are compared bit for bit with the serial
run of the same workers, with or without crashes.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stretto as st
from stretto.consistency.rules import BSP
from stretto.errors import RunError
from stretto.text import counted

from .draws import DrawnSchedule, draw
from .replay import ReplayReport, check_replay

COMMAND = "python -m stretto.testing.schedules --seed"


class ScheduleFailed(RunError):
    """A schedule violated a guarantee, or could not be run. The message ends with the command that repeats it."""


def run_seed(seed: int, **given: Any) -> ReplayReport:
    """Draw a schedule, run it, check it. given: what is not to be drawn (see `draws.draw`)."""
    schedule = draw(seed, **given)
    try:
        return run_schedule(schedule)
    except Exception as error:
        again = f"{COMMAND} {seed} --verbose" if not given else f"run_seed({seed}, {given})"
        raise ScheduleFailed(
            f"{type(error).__name__}: {error}\n{schedule.described()}\nto run it again: {again}"
        ) from error


def run_schedule(schedule: DrawnSchedule) -> ReplayReport:
    """Run a schedule and check the recording; under BSP() also the bits of the final tables and of `local`."""
    result = run_simulated(schedule)
    report = check_replay(result.recording)
    if isinstance(schedule.rule, BSP):
        compare(result, run_serial(schedule))
    return report


def run_simulated(schedule: DrawnSchedule) -> Any:
    """The run itself, with its recording."""
    return run_on(schedule, st.Simulated(**schedule.cluster), record="full", checkpoint_every=schedule.checkpoint)


def run_threads(schedule: DrawnSchedule, threads: int = 2) -> Any:
    """The same workers on real threads of one process, recorded; the cluster and its faults are left out."""
    return run_on(schedule, st.Threads(threads), record="full")


def run_serial(schedule: DrawnSchedule) -> Any:
    """The reference: the same workers on the serial runtime."""
    return run_on(schedule, st.Serial())


def run_on(schedule: DrawnSchedule, runtime: Any, **more: Any) -> Any:
    """The workers of a schedule on any runtime. more: options of `st.run`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "run: no worker ticked")  # some of these workers end early, on purpose
        return st.run(
            schedule.script.body,
            workers=schedule.workers,
            tables={name: st.tables.Table(**arguments) for name, arguments in schedule.tables.items()},
            sync=schedule.rule,
            comm=schedule.policy,
            runtime=runtime,
            seed=schedule.seed,
            **more,
        )


def compare(result: Any, truth: Any) -> None:
    """Two runs ended with the same bits."""
    for name, expect in truth.tables.items():
        found = result.tables[name]
        if not _same(found, expect):
            raise RunError(f"table {name!r} is not what the serial run gives:\n{found}\ninstead of\n{expect}")
    for number, (found, expect) in enumerate(zip(result.local, truth.local, strict=True)):
        if not np.array_equal(found["memory"], expect["memory"]):
            raise RunError(f"worker {number} remembers {found['memory']}, in the serial run {expect['memory']}")


def _same(found: Any, expect: Any) -> bool:
    if isinstance(found, tuple):
        # (keys, values) of a table without a number of rows; a row never added to may be listed or not.
        return all(_same(a, b) for a, b in zip(found, expect, strict=True))
    return bool(found.dtype == expect.dtype and found.shape == expect.shape and found.tobytes() == expect.tobytes())


def command_line(
    module: str,
    run: Callable[[int], object],
    described: Callable[[int], str],
    arguments: Sequence[str] | None,
) -> int:
    """The command line of a module of schedules; returns the exit code. run, described: functions of a seed."""
    parser = argparse.ArgumentParser(
        prog=f"python -m stretto.testing.{module}", description="Run random fault schedules and check each of them."
    )
    parser.add_argument("--seed", type=int, help="one schedule")
    parser.add_argument("--first", type=int, default=0, help="the first of many (0)")
    parser.add_argument("--count", type=int, default=500, help="how many (500)")
    parser.add_argument("--verbose", action="store_true", help="print what is drawn, every step, and where it fails")
    given = parser.parse_args(arguments)
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.count)
    for seed in seeds:
        if given.verbose:
            print(described(seed), flush=True)
        try:
            report = run(seed)
        except ScheduleFailed as failed:
            if given.verbose:
                traceback.print_exception(failed.__cause__)
            print(f"schedule {seed} failed: {failed}", file=sys.stderr)
            return 1
        if given.verbose or given.seed is not None:
            print(report)
    print(f"{counted(len(seeds), 'schedule')}, every promise kept")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return command_line("schedules", run_seed, lambda seed: draw(seed).described(steps=True), arguments)


if __name__ == "__main__":
    sys.exit(main())
