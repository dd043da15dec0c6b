"""The time of a task that reads its data while it trains, beside one that loads all of them first.

Logistic regression by gradient steps on generated svmlight files (24 files of 5,000 samples of 40 among 10,000
features), 2 parts on 2 threads; an iteration of a part makes 24 steps on the block of the iteration, which is one file.
*Load, then train*: a unit that asks for all blocks, then the unit that trains. *Read while training*: the second unit
alone. Both read with the same two threads of the data store, and train the same bits. Files are in the page cache, or
on a storage of 20 MB/s: every read then waits as long as its bytes take at that rate, one after another. Wall seconds
of `st.run`, the median of seven runs in turn; *ratio* is the median of the ratios of runs next to each other. *First
step* is when the first iteration has begun. FlexPS (section 6.2) describes both ways and gives no numbers.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import stretto as st

from . import report

FILES, SAMPLES, ACTIVE, FEATURES = 24, 5_000, 40, 10_000
PARTS, STEPS, RUNS, RATE = 2, 24, 7, 20e6
KEYS = np.arange(FEATURES)


def generate(folder: Path) -> int:
    """Write the files; returns their bytes."""
    draw = np.random.default_rng(0)
    truth = draw.standard_normal(FEATURES)
    for number in range(FILES):
        lines = []
        for _ in range(SAMPLES):
            cols = np.unique(draw.integers(0, FEATURES, ACTIVE))
            values = draw.standard_normal(len(cols)).round(4)
            label = "1" if values @ truth[cols] > 0 else "-1"
            pairs = " ".join(f"{c}:{v}" for c, v in zip((cols + 1).tolist(), values.tolist(), strict=True))
            lines.append(f"{label} {pairs}")
        (folder / f"{number:02}.svm").write_text("\n".join(lines) + "\n")
    return sum(path.stat().st_size for path in folder.glob("*.svm"))


class Storage:
    """Reads blocks of files; with a rate, no faster than a storage of that rate would."""

    def __init__(self, folder: Path, rate: float | None) -> None:
        files = st.files(str(folder / "*.svm"), block_bytes="1GiB", features=FEATURES).opened
        assert files is not None
        assigned = files.assigned(PARTS)
        self._reads, self._rate, self._busy = files.reads(assigned), rate, threading.Lock()
        self.blocks = len(assigned.blocks[0])

    def __call__(self, part: int, parts: int, block: int) -> Any:
        """One block."""
        if self._rate is not None:
            with self._busy:
                time.sleep(self._reads.blocks[part][block].nbytes / self._rate)
        return self._reads(part, parts, block)


def load(worker: Any, blocks: Any) -> None:
    """Ask for every block."""
    for _ in blocks:
        pass


def train(worker: Any, block: Any, w: Any, begun: Any) -> None:
    """Gradient steps on one block; the change is added to the model."""
    begun.append(time.perf_counter())
    X, y = block
    start = w.read()
    x = start.copy()
    for _ in range(STEPS):
        margin = y * (X @ x)
        x -= 0.05 * (X.T @ (-y / (1.0 + np.exp(margin)))) / len(y)
    w.add(KEYS, (x - start) / PARTS)


def measure(storage: Storage, ahead: bool, passes: int) -> tuple[float, float, bytes]:
    """Seconds of the task, seconds until its first step, and the bits."""
    begun: list[float] = []
    w = st.zeros(FEATURES, "f8")
    blocks = st.source(storage, blocks=storage.blocks)
    unit = st.unit(train, blocks, w, st.whole(begun), parts=PARTS, iterations=storage.blocks * passes)
    task = unit if ahead else st.seq(st.unit(load, blocks.all(), parts=PARTS), unit)
    began = time.perf_counter()
    st.run(task, runtime=st.Threads(2))
    return time.perf_counter() - began, min(begun) - began, w.array.tobytes()


def main() -> None:
    """Measure and save."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nbytes = generate(folder)
        measure(Storage(folder, None), True, 1)  # the parser is compiled, and the files are in the page cache
        for where, rate in (("page cache", None), (f"{RATE / 1e6:.0f} MB/s", RATE)):
            for passes in (1, 3):
                found: dict[bool, list[tuple[float, float, bytes]]] = {False: [], True: []}
                for _ in range(RUNS):
                    for ahead, runs in found.items():
                        runs.append(measure(Storage(folder, rate), ahead, passes))
                pairs = zip(found[False], found[True], strict=True)
                ratio = statistics.median(reading[0] / loading[0] for loading, reading in pairs)
                seconds = {ahead: statistics.median(run[0] for run in runs) for ahead, runs in found.items()}
                first = {ahead: statistics.median(run[1] for run in runs) for ahead, runs in found.items()}
                same = len({run[2] for runs in found.values() for run in runs}) == 1
                rows.append(
                    [
                        where,
                        passes,
                        *(f"{seconds[ahead]:.2f}" for ahead in (False, True)),
                        f"{ratio:.2f}",
                        *(f"{first[ahead]:.2f}" for ahead in (False, True)),
                        "yes" if same else "NO",
                    ]
                )
    columns = [
        *("files", "passes", "load, then train, s", "read while training, s", "ratio"),
        *("first step after loading, s", "first step while reading, s", "same bits"),
    ]
    about = f"{report.text(__doc__)} {nbytes / 1e6:.0f} MB in all."
    report.save("stage_reading", "Reading while training", about, report.table(columns, rows), ["scipy"])


if __name__ == "__main__":
    main()
