"""Benches of memory side by side on one GPU: they prepare together and take turns to measure.

    OUT=out STRETTO_SECONDS=560 STRETTO_JOBS="gpt-bf16 chapter-*" python -m bench memory_side_by_side

Every job is a bench in a process of its own, with a part of the bench's cases. Its numbers, its page and its log are in
OUT/<job> (runs/side_by_side/<job> if OUT is unset); nothing is merged. While one measures steps the others pause,
see memory_turns; a watchdog lets them go on when somebody died in a turn or takes longer than a minute for it. A job is
started when the host has memory for it beside those that run.

STRETTO_JOBS      names of jobs, or patterns; unset: all. They are in the table JOBS below.
STRETTO_SECONDS   all that still runs is ended after so many.
STRETTO_HOST      GiB of host memory for all of them together; 116 if unset.
STRETTO_TURNS     a folder, where others who are not started from here take turns too.

All else (STRETTO_METHODS, STRETTO_SHARES, STRETTO_BATCHES, STRETTO_RECORD, STRETTO_TOY …) is handed on to every job.
"""

from __future__ import annotations

import contextlib
import fnmatch
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stretto.paths import cache_root

from .memory_turns import look_after, register

ROOT = Path(__file__).parent.parent
HOST = 116  # GiB, of a machine that has 125
HALF = HOST // 2 + 2  # more than half: such jobs run one at a time
EVERY = 0.2  # seconds from one check of the jobs to the next
GRACE = 2.0  # seconds to end in
TAIL, WIDE = 5, 300  # lines of a log that are shown, and letters of a line
OWN = ("STRETTO_JOBS", "STRETTO_CASES", "STRETTO_MODELS", "STRETTO_FROM", "STRETTO_SECONDS")  # not handed on


@dataclass(frozen=True)
class Job:
    """bench: its name. cases, models: what it makes of what it has. host: GiB on the host; few jobs need their most at
    the same moment, so for small ones it is what they were seen to have for long. options: of its command line. limit:
    seconds after which it is ended."""

    bench: str
    cases: str
    host: int
    models: str = ""
    options: tuple[str, ...] = ()
    limit: float = math.inf

    def environment(self) -> dict[str, str]:
        """Environment variables of the bench."""
        return {"STRETTO_CASES": self.cases} | ({"STRETTO_MODELS": self.models} if self.models else {})


JOBS: dict[str, Job] = {
    "gpt-bf16": Job("memory_frontier", "gpt-bf16", 9),
    "resnet-bf16": Job("memory_frontier", "resnet-bf16", 7),
    "resnet-fp32": Job("memory_frontier", "resnet-fp32", 9),
    "experts-fp32": Job("memory_frontier", "experts-fp32", 8),
    "lstm-fp32": Job("memory_frontier", "lstm-fp32", 6),
    "wgan-fp32": Job("memory_frontier", "wgan-fp32", 4),
    "gpt-fp32": Job("memory_frontier", "gpt-fp32", 12),
    "lstm-bf16": Job("memory_frontier", "lstm-bf16", 5),
    "few-words-fp32": Job("memory_frontier", "few-words-fp32", 6),
    "experts-bf16": Job("memory_frontier", "experts-bf16", 8),
    "wgan-bf16": Job("memory_frontier", "wgan-bf16", 4),
    "chapter-resnet": Job("memory_chapter", "table_6_4", 4, "resnet"),
    "chapter-gpt": Job("memory_chapter", "table_6_4 figure_6_6 figure_6_7", 4, "gpt"),
    "chapter-moe": Job("memory_chapter", "table_6_4 figure_6_6", 4, "moe"),
    "chapter-lstm": Job("memory_chapter", "table_6_4 figure_6_7", 4, "lstm"),
    "chapter-wgan": Job("memory_chapter", "table_6_4", 4, "wgan"),
    "chapter-experts": Job("memory_chapter", "table_6_14", 4, "moe"),
    "chapter-speeds": Job("memory_chapter", "table_6_6", 4),
    "chapter-long-lstm": Job("memory_chapter", "table_6_9", 4, "lstm"),
    "chapter-long-gpt": Job("memory_chapter", "table_6_9", 4, "gpt"),
    **{f"chunks-{name}": Job("memory_chunks", name, 6) for name in ("attention", "images", "wide", "gpt", "experts")},
    **{f"batches-{name}": Job("memory_batches", name, HALF) for name in ("gpt", "resnet", "moe", "lstm", "wgan")},
    **{f"sizes-{name}": Job("memory_sizes", name, HALF) for name in ("resnet-1916", "resnet-5000")},
    "sizes-moe-5B": Job("memory_sizes", "moe-5B", 66),
    "sizes-moe-8B": Job("memory_sizes", "moe-8B", 95),
    # All there is: those with the most on the host, and those that have the whole card.
    **{f"sizes-{name}": Job("memory_sizes", name, HOST) for name in ("moe-10B", "gpt-10B", "gpt-20B", "gpt-21B")},
}


@dataclass
class Running:
    """A job that was started; its process is the first of a session, so of a process group too."""

    job: Job
    log: Path
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)

    def end(self, how: str) -> None:
        """Note in the log how it ended, and leave nothing of the group behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        with open(self.log, "a") as log:
            log.write(f"{how} with {code} after {time.monotonic() - self.began:.0f} s\n")


def main() -> None:
    """Run the jobs that were asked for and show how their logs end."""
    jobs = chosen(os.environ.get("STRETTO_JOBS", "*").split())
    folder = Path(os.environ.get("OUT") or ROOT / "runs" / "side_by_side").absolute()
    seconds = float(os.environ.get("STRETTO_SECONDS", "inf"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(_ended_by_hand())
        turns = os.environ.get("STRETTO_TURNS") or stack.enter_context(tempfile.TemporaryDirectory(prefix="turns-"))
        run(jobs, folder, Path(turns).absolute(), seconds, float(os.environ.get("STRETTO_HOST", HOST)))
    for name in jobs:
        print(f"== {folder / name}")
        for line in _tail(folder / name / "log"):
            print(line[:WIDE])


def chosen(patterns: Iterable[str]) -> dict[str, Job]:
    """Jobs by name or pattern, in the order of the table."""
    found: set[str] = set()
    for pattern in patterns:
        names = fnmatch.filter(JOBS, pattern)
        if not names:
            raise SystemExit(f"memory_side_by_side: no job {pattern!r} (STRETTO_JOBS); there are {', '.join(JOBS)}")
        found.update(names)
    return {name: job for name, job in JOBS.items() if name in found}


def startable(waiting: dict[str, Job], running: Iterable[Job], host: float = HOST) -> list[str]:
    """Which to start now: in their order those whose memory is free. One that is too large in any case is run with
    nothing beside it.

    >>> startable({"a": Job("x", "", 60), "b": Job("x", "", 70), "c": Job("x", "", 5)}, [], 100)
    ['a', 'c']
    """
    names = []
    taken = float(sum(job.host for job in running))
    for name, job in waiting.items():
        if not taken or taken + job.host <= host:
            names.append(name)
            taken += job.host
    return names


def run(jobs: dict[str, Job], folder: Path, turns: Path, seconds: float, host: float = HOST) -> None:
    """Start jobs as memory gets free, watch them, and end those that still run after `seconds`."""
    turns.mkdir(parents=True, exist_ok=True)
    until, waiting, running, slow = time.monotonic() + seconds, dict(jobs), dict[str, Running](), None
    for name in jobs:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "log").write_text("")
    try:
        while (waiting or running) and time.monotonic() < until:
            for name in [name for name, one in running.items() if one.process.poll() is not None]:
                running.pop(name).end("ended")
                print(f"{name}: ended", flush=True)
            for name in [name for name, one in running.items() if time.monotonic() - one.began > one.job.limit]:
                running.pop(name).end("ended early")
                print(f"{name}: ended early, after its {jobs[name].limit:.0f} seconds", flush=True)
            for name in startable(waiting, [one.job for one in running.values()], host):
                running[name] = start(waiting.pop(name), folder / name, turns, until - time.monotonic())
                print(f"{name}: started", flush=True)
            group = look_after(turns)
            if group is not None and group != slow:
                names = [name for name, one in running.items() if one.process.pid == group]
                print(f"{' '.join(names) or group}: has had its turn for long; the others go on", flush=True)
            slow = group
            if running:
                time.sleep(EVERY)
    finally:
        _end(running)
    for name in waiting:
        (folder / name / "log").write_text("not started: there was no time\n")


def start(job: Job, folder: Path, turns: Path, seconds: float) -> Running:
    """A bench in a session of its own. Caches of compilers are its own too: their locks could be held by one who stands
    still. They are kept from run to run."""
    caches = cache_root().absolute() / "side_by_side" / folder.name
    given = {name: value for name, value in os.environ.items() if name not in OWN}
    given.setdefault("OMP_NUM_THREADS", "2")
    given.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")
    given |= job.environment() | {
        "OUT": str(folder),
        "STRETTO_TURNS": str(turns),
        "STRETTO_SECONDS": str(seconds),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    for earlier in folder.glob(f"{job.bench}.*"):  # or it would be taken for this one's, if that fails
        earlier.unlink()
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(
            command(job), cwd=ROOT, env=given, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    register(turns, process.pid)  # it pauses for others before it takes its first turn, too
    return Running(job, folder / "log", process)


def command(job: Job) -> list[str]:
    """What is run."""
    package = "reproductions" if job.bench == "memory_chapter" else "bench"
    return [sys.executable, "-m", package, job.bench, *job.options]


def _end(running: dict[str, Running]) -> None:
    for what in (signal.SIGTERM, signal.SIGCONT):  # a paused process receives the first after the second
        for one in running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.process.pid, what)
    until = time.monotonic() + GRACE
    for one in running.values():
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, until - time.monotonic()))
        one.end("ended early")


@contextlib.contextmanager
def _ended_by_hand() -> Iterator[None]:
    """End what this process started when it is ended: `timeout` and the like send this signal."""

    def stop(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tail(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-TAIL:]
