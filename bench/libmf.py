"""Time to the test RMSE that LIBMF reaches: its best iteration of 20 at the best of four penalties, on the same split.

LIBMF's penalty is the best of 0.02, 0.035, 0.05 and 0.1 standard deviations of the ratings, chosen on the test part and
by its AVX build where there is one; the target is the lowest RMSE of each build at that penalty, which it often reaches
after few iterations, before it overfits. Stretto runs with its defaults, 20 epochs: nothing is chosen for a set. The
curve of test RMSE and the clock come from separate runs, so that measuring costs neither side time. LIBMF's clock
starts when it has read its file and prepared its blocks (its first line of output); ours includes inspecting the data,
planning and laying out the blocks.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import stretto as st
from stretto.observe.events import EpochDone, Event

from . import report, sets
from .mf_sets import all_sets

RANK, ITERATIONS, EPOCHS, REPEATS = 64, 20, 20, 3
PENALTIES = (0.02, 0.035, 0.05, 0.1)
SETS = ("MovieLens-1M", "dense, 1.7 M", "generated, 2 M", "Epinions", "0.4 M, 1–10", "sparse, 0.6 M")
# On a machine that is shared, BENCH_CLOCK=cpu: seconds of the processor, which other work hardly changes.
SHARED = os.environ.get("BENCH_CLOCK") == "cpu"
NOTE = """
**The machine was shared while this was measured** (`BENCH_CLOCK=cpu`): seconds are those of the processor, of all
threads together. At two threads that leaves out waiting: of LIBMF for blocks, of ours while one thread plans."""


@dataclass(frozen=True)
class Curve:
    """Test RMSE after each epoch, and seconds from the start to its end."""

    rmse: list[float]
    seconds: list[float]

    def to(self, target: float) -> tuple[int, float] | None:
        """(epochs, seconds) to the target, or None when it is not reached."""
        for k, value in enumerate(self.rmse):
            if value <= target:
                return k + 1, self.seconds[k]
        return None


def peers() -> dict[str, str]:
    """LIBMF's programs: `mf-train` on the path, and any named in $MF_TRAIN as LABEL=PATH,…"""
    found = {}
    on_path = shutil.which("mf-train")
    if on_path:
        found["LIBMF"] = on_path
    for item in filter(None, os.environ.get("MF_TRAIN", "").split(",")):
        label, _, path = item.partition("=")
        found[label] = path
    return found


def clock(process: int | None = None) -> float:
    """Seconds; with `SHARED` of the processor, for this process or another one."""
    if not SHARED:
        return time.perf_counter()
    # Linux encodes the processor clock of a process in a negative number, see clock_getcpuclockid(3).
    return time.process_time() if process is None else time.clock_gettime((~process << 3) | 2)


def write_text(data: st.Data, path: Path) -> None:
    """Row, column, rating on each line, as LIBMF reads it."""
    np.savetxt(path, np.column_stack([data.rows, data.cols, data.values]), fmt="%d %d %g")


def curve_of(program: str, threads: int, reg: float, folder: Path) -> list[float]:
    """LIBMF's test RMSE after each iteration."""
    call = [program, "-k", str(RANK), "-t", str(ITERATIONS), "-l2", str(reg), "-s", str(threads)]
    call += ["-p", str(folder / "test.txt"), str(folder / "train.txt"), str(folder / "model.txt")]
    shown = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in shown.splitlines()]
    return [float(words[2]) for words in lines if words and words[0].isdigit()]


def libmf(program: str, threads: int, reg: float, folder: Path) -> Curve:
    """LIBMF's curve and clock."""
    common = [program, "-k", str(RANK), "-t", str(ITERATIONS), "-l2", str(reg), "-s", str(threads)]
    model = str(folder / "model.txt")
    rmse = curve_of(program, threads, reg, folder)
    clocks = []
    for _ in range(REPEATS):
        run = subprocess.Popen([*common, str(folder / "train.txt"), model], stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        began, ends = 0.0, []
        for line in run.stdout:
            now = clock(run.pid)
            words = line.split()
            if words and words[0] == "iter":
                began = now
            elif words and words[0].isdigit():
                ends.append(now - began)
        run.wait()
        clocks.append(ends)
    return Curve(rmse, [statistics.median(c[k] for c in clocks) for k in range(ITERATIONS)])


def stretto(train: st.Data, test: st.Data, threads: int) -> Curve:
    """Our curve and clock."""
    model = st.MatrixFactorization(RANK, max_iter=EPOCHS, random_state=0, n_jobs=threads, duplicates="keep")
    model.fit(train, validation=test)
    rmse = [epoch["test_rmse"] for epoch in model.history_]
    clocks = []
    for _ in range(REPEATS):
        ends: list[float] = []

        def note(event: Event, ends: list[float] = ends) -> None:
            if isinstance(event, EpochDone):
                ends.append(clock())

        began = clock()
        model.fit(train, session=st.Session(listeners=[note]))
        clocks.append([end - began for end in ends])
    return Curve(rmse, [statistics.median(c[k] for c in clocks) for k in range(EPOCHS)])


def main() -> None:
    """Measure every set at 1 and 2 threads."""
    programs = peers()
    if not programs:
        print("LIBMF was not found: put `mf-train` on the path, or name builds in MF_TRAIN=label=path,…")
        return
    chooser = next((path for label, path in programs.items() if "avx" in label.lower()), next(iter(programs.values())))
    rows: list[list[object]] = []
    known = all_sets()
    for name in filter(known.__contains__, SETS):
        make = known[name]
        train, test = replace(make(), row_ids=None, col_ids=None).split(sets.TEST_SHARE, seed=0)
        unit = float(np.std(train.values))
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write_text(train, folder / "train.txt")
            write_text(test, folder / "test.txt")
            penalty = min(PENALTIES, key=lambda each: min(curve_of(chooser, 1, each * unit, folder)))
            for threads in (1, 2):
                ours = stretto(train, test, threads)
                for label, program in programs.items():
                    theirs = libmf(program, threads, penalty * unit, folder)
                    target = min(theirs.rmse)
                    peer, own = theirs.to(target), ours.to(target)
                    assert peer is not None
                    speed = len(train) / np.diff([0.0, *theirs.seconds]).mean() / 1e6
                    own_speed = len(train) / np.median(np.diff(ours.seconds)) / 1e6
                    shown = ["not reached", "—"]
                    if own is not None:
                        shown = [f"{own[1]:.3f} ({own[0]})", f"{own[1] / peer[1]:.2f}"]
                    setting = [name, threads, label, penalty, f"{target:.4f}", f"{peer[1]:.3f} ({peer[0]})"]
                    rates = [f"{min(ours.rmse):.4f}", f"{speed:.1f}", f"{own_speed:.1f}"]
                    rows.append([*setting, *shown, *rates])
                    print(rows[-1], flush=True)
        _save(rows)


def _save(rows: list[list[object]]) -> None:
    """Write the page of the sets that are measured so far."""
    columns = ["set", "threads", "peer", "its penalty, standard deviations", "target: its best RMSE"]
    columns += ["peer, s (iterations)", "Stretto, s (epochs)", "ratio", "Stretto's best RMSE"]
    columns += ["peer, M ratings/s", "Stretto, M ratings/s"]
    settings = f"Rank {RANK}, profile `exact`, median of {REPEATS} runs.{NOTE if SHARED else ''}"
    about = f"{report.text(__doc__)}\n{settings}"
    report.save("libmf", "Time to LIBMF's test RMSE", about, report.table(columns, rows))
