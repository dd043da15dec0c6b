"""Run a compiled worker over blocks in every way a runtime may: in order, backwards, or claimed by threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.core import claims
from stretto.kernels.core.compile import Kernel
from stretto.runtime.blocks.pass_control import start
from stretto.schedule.orders.rotation import independent

WAYS = ("forwards", "backwards", "threads")
THREADS = 3


def cut(n: int, blocks: int) -> NDArray[np.int64]:
    """Bounds of `blocks` blocks over n rows; some are empty when there are more blocks than rows."""
    return np.linspace(0, n, blocks + 1).astype(np.int64)


def run(
    worker: Kernel, bounds: NDArray[np.int64], *args: Any, way: str = "forwards", fails: bool = False
) -> NDArray[np.float64]:
    """The per-visit results of one pass; checks that every visit ran, or with `fails` that the pass was stopped."""
    blocks = len(bounds) - 1
    script = {"forwards": np.arange(blocks), "backwards": np.arange(blocks)[::-1].copy(), "threads": None}[way]
    pass_ = start(independent(blocks), np.diff(bounds) + 1, script=script)
    out = np.full(blocks, np.nan)
    if script is None:
        threads = [
            threading.Thread(target=worker.exact, args=(pass_.words, number, out, bounds, *args))
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        worker.exact(pass_.words, 0, out, bounds, *args)
    assert (pass_.control[claims.FAILED] != 0) == fails
    assert fails or pass_.control[claims.LEFT] == 0
    return out
