"""The rating sets that are measured on: two real ones where they are present, and a generated one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import stretto as st

TEST_SHARE = 0.1


@dataclass(frozen=True)
class RatingSet:
    """Train and test part of a set. reg: the regularisation both sides are given."""

    name: str
    train: st.Data
    test: st.Data
    reg: float


def real_data() -> Path | None:
    """The folder of real sets: $STRETTO_DATA, or shared/data beside the checkout."""
    beside = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
    for folder in (os.environ.get("STRETTO_DATA"), beside):
        if folder and Path(folder).is_dir():
            return Path(folder)
    return None


def generated(ratings: int = 10_000_000, rows: int = 70_000, cols: int = 12_000, seed: int = 1) -> st.Data:
    """Ratings with Zipf-skewed rows and columns, no row or column with more than 1/64 of them."""
    made = st.generate_ratings(ratings, rows, cols, rank=12, noise=0.5, seed=seed, max_share=1 / 64)
    return made.data


def rating_sets(*, big: bool = True) -> Iterator[RatingSet]:
    """MovieLens-1M and Epinions where they are present, and a generated set of ten million ratings."""
    folder = real_data()
    if folder is not None:
        for name, path, reg in (
            ("MovieLens-1M", "movielens-1m/ratings.tsv.xz", 0.05),
            ("Epinions", "epinions/ratings.tsv.xz", 0.1),
        ):
            yield _split(name, st.read(folder / path, duplicates="last"), reg)
    else:
        print("the real sets were not found; set STRETTO_DATA to their folder to include them")
    if big:
        yield _split("generated 10M", generated(), 0.02)


def _split(name: str, data: st.Data, reg: float) -> RatingSet:
    # Indices instead of the file's ids: the peers know nothing else.
    train, test = replace(data, row_ids=None, col_ids=None).split(TEST_SHARE, seed=0)
    return RatingSet(name, train, test, reg)
