"""What watching a run costs: the run itself, and the page of a long one.

Training with a record and a live page that follows it beside training without either, in turns, in one process: the
processor time of that process, the least of several fits. Starting the page, which is another process, is included.

The second table is the page of a run of ten million events: the time to read its record once, the growth of the
process's peak memory by it, and the size of what a viewer is sent.
"""

from __future__ import annotations

import io
import resource
import tempfile
import time
from pathlib import Path

import stretto as st
from stretto.observe.events import EpochDone, PassDone
from stretto.observe.log import EVENTS, encode
from stretto.observe.page.feed import Feed
from stretto.observe.page.process import Dashboard, start
from stretto.observe.page.tail import RecordTail

from . import report

REPEATS, EPOCHS, LONG = 3, 400, 5_000_000  # LONG epochs have two events each
SETS = {"0.2 M ratings, rank 16": (200_000, 2_000, 1_500, 16), "2 M ratings, rank 64": (2_000_000, 20_000, 5_000, 64)}


def fit(data: st.Data, rank: int, folder: Path | None) -> float:
    """Processor seconds of a fit in this process; with a folder it is recorded, and a live page follows the record."""
    pages: list[Dashboard] = []

    def follow(event: object) -> None:
        if not pages and folder is not None:
            pages.append(start([folder]))

    model = st.MatrixFactorization(rank, max_iter=EPOCHS, random_state=0, n_jobs=1)
    session = st.Session() if folder is None else st.Session(record=folder, listeners=[follow])
    began = time.process_time()
    model.fit(data, session=session)
    spent = time.process_time() - began
    for page in pages:
        page.close()
    return spent


def main() -> None:
    """Measure, and write the page."""
    rows: list[list[object]] = []
    for name, (ratings, users, items, rank) in SETS.items():
        data = st.generate_ratings(ratings, users, items, rank=8, noise=0.4, seed=1).data
        fit(data, rank, None)
        plain, watched = [], []
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(REPEATS):
                plain.append(fit(data, rank, None))
                watched.append(fit(data, rank, Path(folder) / str(turn)))
        rows.append([name, f"{min(plain):.3f}", f"{min(watched):.3f}", f"{min(watched) / min(plain) - 1:+.1%}"])
        print(rows[-1], flush=True)
    body = report.table(["work", "without, s", "watched, s", "more"], rows)
    body += "\n\n" + report.table(["events", "record", "reading it", "peak memory", "sent to a viewer"], [long_run()])
    report.save("watching", "Cost of watching", report.text(__doc__), body, (), "watching")


def long_run() -> list[object]:
    """The page of a run of many events."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / EVENTS
        with path.open("wb", buffering=1 << 20) as file:
            buffer = io.BytesIO()
            for epoch in range(1, LONG + 1):
                buffer.write(encode(PassDone(float(epoch), epoch, "sgd", 0.5, 100)) + b"\n")
                buffer.write(encode(EpochDone(float(epoch), epoch, LONG, 0.5, 100, 1.0 / epoch, {"m": 1.0})) + b"\n")
                if epoch % 10_000 == 0:
                    file.write(buffer.getvalue())
                    buffer = io.BytesIO()
        size = path.stat().st_size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        feed = Feed([RecordTail(Path(folder))])
        feed.poll()
        seconds = time.process_time() - began
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        message = feed.news(0)[1] or b""
    shown = (f"{2 * LONG:,}", f"{size / 1e9:.2f} GB", f"{seconds:.0f} s", f"{grown / 1024:.0f} MiB more")
    return [*shown, f"{len(message):,} bytes"]


if __name__ == "__main__":
    main()
