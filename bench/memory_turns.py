"""Benches that share a GPU take turns: while one measures, the others pause, or prepare.

    with turn():              # steps: nobody else has the GPU, or the processors
        seconds = timed(step)
    with turn(still=False):   # single operations: nobody else has a turn on the GPU, all go on preparing
        seconds = timed(operation)

STRETTO_TURNS names a folder that all benches on a machine share; unset: there are no others and nothing happens. In it
are `lock`, held by the process that has a turn, with its number and since when; and an empty file for each process
group, named by its number and when it began. Benches that are to pause for one another are in groups of their own
(`setsid`).

Somebody who is killed in a turn leaves others stopped: `look_after` is one look of a watchdog, see memory_side_by_side.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

LONGEST = 60.0  # seconds that others pause for a turn

_NOW: list[Path] = []  # the turn that this process has


@contextlib.contextmanager
def turn(*, still: bool = True) -> Iterator[None]:
    """Nobody else has a turn meanwhile. still: nor does anybody else run. A turn within a turn changes nothing."""
    name = os.environ.get("STRETTO_TURNS")
    if not name or _NOW:
        yield
        return
    folder, me = Path(name).absolute(), os.getpgrp()
    register(folder, me)
    with _locked(folder, me):
        _NOW.append(folder)
        try:
            if still:
                _tell(folder, signal.SIGSTOP, but=me)
            yield
        finally:
            _NOW.clear()
            if still:
                _tell(folder, signal.SIGCONT, but=me)


@contextlib.contextmanager
def metered() -> Iterator[None]:
    """Planned steps are made within: single operations are then measured in turns, all others going on."""
    if not os.environ.get("STRETTO_TURNS"):
        yield
        return
    from stretto.memory import planning
    from stretto.memory.measure import meter
    from stretto.memory.measure.meter import CallCost, CostCache, Meter
    from stretto.memory.operations.fuse import Chain

    alone = Meter._try

    def in_turn(self: Meter, call: Any) -> CallCost:
        if isinstance(call.target, Chain):
            alone(self, call)  # it is compiled now, which takes seconds: nobody has to wait for that
        with turn(still=False):
            return alone(self, call)

    measured = meter.link

    def link_in_turn(device: Any, remembered: CostCache) -> Any:
        with turn(still=False):
            return measured(device, remembered)

    with mock.patch.object(Meter, "_try", in_turn), mock.patch.object(planning, "measured_link", link_in_turn):
        yield


@functools.cache
def register(folder: Path, group: int) -> None:
    """A process group that pauses when others ask for it; those that take turns are registered anyway."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{group}.{_began(group)}").touch()


def look_after(folder: Path, longest: float = LONGEST) -> int | None:
    """Everybody goes on if nobody has a turn, or somebody has had one for too long: that one's process group."""
    with open(folder / "lock", "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            group, _, since = lock.read().partition(" ")
            if not since or time.monotonic() - float(since) <= longest:
                return None
            _tell(folder, signal.SIGCONT)
            return int(group)
        lock.truncate(0)  # what somebody said who died since
        _tell(folder, signal.SIGCONT)  # nobody can be stopping others: the lock is ours
    return None


@contextlib.contextmanager
def _locked(folder: Path, me: int) -> Iterator[None]:
    with open(folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            lock.truncate(0)
            lock.write(f"{me} {time.monotonic()}")  # the same clock for all processes
            lock.flush()
            yield
        finally:
            lock.truncate(0)
            fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: a fork made meanwhile has the file open too


def _tell(folder: Path, what: signal.Signals, but: int = 0) -> None:
    """A signal to all groups but one. Those that are no more are forgotten."""
    for path in folder.glob("*.*"):
        number, began = path.name.split(".")
        group = int(number)
        if group == but:
            continue
        try:
            if _began(group) not in ("", began):  # a group outlives its first process, whose number nobody gets then
                raise ProcessLookupError
            os.killpg(group, what)
        except (ProcessLookupError, PermissionError):
            path.unlink(missing_ok=True)


def _began(process: int) -> str:
    """When a process began, as the system counts: numbers are given to others later. Empty: there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return ""
