"""Spark in local mode, and what a run takes: seconds, processor seconds and peak memory, of Spark and of Stretto.

    with open_session() as session:          # start-up in session.start
        found = in_turn({"Spark": fit, "Stretto": ours}, session)
        found["Spark"].seconds, found["Spark"].processor

Spark's processes are the Java virtual machine and, for functions in Python, the workers that it starts. The session
listens on the loopback address alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THREADS = 2
MEMORY = "6g"
REPEATS = 3
LONG = 20.0  # seconds from which on a fit is measured once

CAUTION = f"""\
Spark runs in local mode with {THREADS} threads and a heap of {MEMORY}, Stretto with {THREADS} threads, on the same
cores. Other work on the machine had a low priority (a twentieth of the processor time where both wanted it). Fits
alternate in one script, medians of {REPEATS} (one fit where it takes more than {LONG:g} s).
*Processor s* are those of all threads: for Spark of the Java virtual machine with its compiler and garbage collector,
of its Python workers and of the driver. Fits are warm: both programs fitted a small problem before. *From the start of
a process* both import, start, read the same file and fit once, in processes of their own. Peak memory is the high-water
mark of the resident set there: for Spark of the Java process, which fills its heap before it collects."""
START = ["Stretto, s (reading, fit)", "processor s", "MLlib, s (session, reading, fit)", "processor s", "faster"]
START += ["by processor s", "Stretto, MB", "MLlib (Java), MB"]


@dataclass(frozen=True)
class Timed:
    """One program's fits."""

    seconds: float  # median
    processor: float  # median, of all threads and processes
    value: Any  # what the last fit gave


@dataclass(frozen=True)
class Session:
    """A running session."""

    spark: Any
    start: float  # seconds from the call to the first answer of a job
    pid: int  # of the Java virtual machine

    def processor(self) -> float:
        """Processor seconds so far: Java, its Python workers, and this process."""
        return sum(process_seconds(pid) for pid in (self.pid, *descendants(self.pid))) + time.process_time()

    def peak(self) -> float:
        """Peak memory of the Java process, MB."""
        return peak_memory(self.pid)


def require() -> None:
    """End with a message where Spark or Java is missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise SystemExit("this reproduction compares with Spark, and pyspark is not installed: pip install 'pyspark<4'")
    try:
        subprocess.run(["java", "-version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit("this reproduction compares with Spark, and java does not start: install Java 17") from None


@contextmanager
def open_session() -> Iterator[Session]:
    """Start a session and stop it at the end."""
    require()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    began = time.perf_counter()
    from pyspark.sql import SparkSession

    made = SparkSession.builder.master(f"local[{THREADS}]").appName("stretto-reproductions")
    settings = {
        "spark.driver.memory": MEMORY,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Vector instructions for BLAS on Java 17, as Spark's documentation recommends.
        "spark.driver.extraJavaOptions": "--add-modules=jdk.incubator.vector",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(THREADS),
        "spark.default.parallelism": str(THREADS),
    }
    for name, value in settings.items():
        made = made.config(name, value)
    spark = made.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    # ALS cuts its lineage every tenth iteration if there is a folder; without one, twenty of them overflow the stack.
    spark.sparkContext.setCheckpointDir(str(scratch() / "checkpoints"))
    spark.range(10).count()
    seconds = time.perf_counter() - began
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    try:
        yield Session(spark, seconds, pid)
    finally:
        spark.stop()


# --- measuring ------------------------------------------------------------------------------------------------------


def process_seconds(pid: int) -> float:
    """User and system seconds of a process and of its children that ended; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid: int) -> float:
    """High-water mark of the resident set, MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{pid}/status has no line VmHWM")


def descendants(pid: int) -> list[int]:
    """Live processes that a process started, and those that they started."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        mine = parents.get(waiting.pop(), [])
        found += mine
        waiting += mine
    return found


def timed(fit: Callable[[], Any], session: Session) -> Timed:
    """One fit."""
    used, began = session.processor(), time.perf_counter()
    value = fit()
    return Timed(time.perf_counter() - began, session.processor() - used, value)


def in_turn(programs: Mapping[str, Callable[[], Any]], session: Session, repeats: int = REPEATS) -> dict[str, Timed]:
    """Medians of fits in alternation; a program whose first fit takes long makes it once."""
    made: dict[str, list[Timed]] = {name: [] for name in programs}
    for _ in range(repeats):
        for name, fit in programs.items():
            if not (made[name] and made[name][0].seconds > LONG):
                made[name].append(timed(fit, session))
    return {
        name: Timed(
            statistics.median(one.seconds for one in each),
            statistics.median(one.processor for one in each),
            each[-1].value,
        )
        for name, each in made.items()
    }


def alone(module: str, *arguments: str) -> dict[str, Any]:
    """Run `python -m MODULE ARGUMENTS…`, which prints a line of JSON last; with "seconds" from its start to its end."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(f"python -m {module} {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": seconds, **found}


def usage() -> dict[str, float]:
    """Processor seconds and peak memory of this process, for the line that `alone` reads."""
    return {"processor": time.process_time(), "peak": peak_memory(os.getpid())}


def session_usage(session: Session) -> dict[str, float]:
    """The same of Spark's processes, and the seconds of the session's start."""
    return {"start": session.start, "processor": session.processor(), "peak": session.peak()}


def from_start(mine: Mapping[str, float], theirs: Mapping[str, float]) -> list[object]:
    """Cells for the columns `START` from what `alone` gave for both programs."""
    return [
        f"{mine['seconds']:.1f} ({mine['read']:.1f}, {mine['fit']:.1f})",
        f"{mine['processor']:.1f}",
        f"{theirs['seconds']:.1f} ({theirs['start']:.1f}, {theirs['read']:.1f}, {theirs['fit']:.1f})",
        f"{theirs['processor']:.1f}",
        times(mine["seconds"], theirs["seconds"]),
        times(mine["processor"], theirs["processor"]),
        f"{mine['peak']:.0f}",
        f"{theirs['peak']:.0f}",
    ]


def scratch() -> Path:
    """A folder in the system's temporary one, for files that both programs read."""
    folder = Path(tempfile.gettempdir()) / "stretto-spark"
    folder.mkdir(exist_ok=True)
    return folder


def times(ours: float, theirs: float) -> str:
    """How many times as long the other program took."""
    return f"{theirs / ours:.0f}×" if theirs >= 10 * ours else f"{theirs / ours:.1f}×"


def first_within(values: Sequence[float], target: float) -> int | None:
    """Index of the first value at most the target."""
    return next((place for place, value in enumerate(values) if value <= target), None)
