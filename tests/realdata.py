"""Where the real data sets are: `$STRETTO_DATA`, or `shared/data` beside the checkout. Tests that need one skip
without it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def data_root() -> Path | None:
    """The folder of the data sets, or None where there is none."""
    given = os.environ.get("STRETTO_DATA")
    root = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    return root if root.is_dir() else None


def find(*parts: str) -> Path:
    """A file or folder of the data sets; the test is skipped, saying so, where it is absent.

    Under `make test-full` (STRETTO_TEST_FULL) a missing data set is a failure instead.
    """
    root = data_root()
    path = None if root is None else root.joinpath(*parts)
    if path is not None and path.exists():
        return path
    why = f"no {'/'.join(parts)} among the data sets; point STRETTO_DATA at their folder"
    if os.environ.get("STRETTO_TEST_FULL"):
        pytest.fail(why)
    pytest.skip(why)
