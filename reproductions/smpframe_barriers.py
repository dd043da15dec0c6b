"""One barrier a rotation instead of one a turn, and heaviest jobs first: Figures 8 and 9, in virtual time.

The real seconds of the same switches are in `python -m bench static`, whose blocks and weights these are.
"""

from __future__ import annotations

from itertools import product

from bench import sets
from bench.static import NAMES, SWITCHES, Laid

import stretto as st
from stretto.schedule.turns import rotation

from . import report

BLOCKS = (16, 64)
WORKERS = (4, 8, 16)


def fig8() -> tuple[str, str]:
    """Useful share of the workers' time for the four combinations of the switches."""
    folder = sets.real_data()
    name = "MovieLens-1M" if folder is not None else "generated 2M"
    data = (
        sets.generated(2_000_000, 30_000, 8_000)
        if folder is None
        else st.read(folder / "movielens-1m/ratings.tsv.xz", duplicates="last")
    )
    rows: list[list[object]] = []
    barrier, heavy = [], []
    with st.Threads(2).open() as crew:
        for uneven, blocks in product((True, False), BLOCKS):
            laid = Laid(data, blocks, crew, uneven=uneven)
            for workers in WORKERS:
                share = {
                    (sync, first): len(data)
                    / (workers * rotation(blocks, sync=sync, first=first, weight=laid.weight).span(workers))
                    for sync, first in SWITCHES
                }
                cut = "uneven" if uneven else "by histogram"
                rows.append([name, cut, blocks, workers, *(f"{one:.0%}" for one in share.values())])
                if uneven:
                    barrier.append(share["macro", "given"] / share["micro", "given"])
                    heavy.append(share["macro", "heaviest"] / share["macro", "given"])
    columns = ["set", "cut", "logical workers", "workers", *NAMES]
    found = (
        f"uneven blocks, virtual time: macro over micro {min(barrier):.2f}–{max(barrier):.2f}×, "
        f"heaviest first over given {min(heavy):.2f}–{max(heavy):.2f}×"
    )
    return found, "Share of the workers' time that is useful.\n\n" + report.table(columns, rows)
