"""`python -m bench.compile_one NAME`: run an example and print, for each of its loops, what its first call took apart
from the compiled passes themselves.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import numba
import scipy.sparse  # noqa: F401

import stretto.loops.execute.run
import stretto.runtime.blocks.layout  # noqa: F401
from stretto.loops.parallel import Loop


def main() -> None:
    """Run the example as a user would, with every call of a loop timed."""
    numba.njit(lambda x: x + 1)(1)  # what Numba loads at its first use is not compiling either
    first: dict[str, float] = {}
    call = Loop.__call__

    def timed(self: Loop, *args: Any, **kwargs: Any) -> None:
        began = time.perf_counter()
        call(self, *args, **kwargs)
        first.setdefault(self.plain.__name__, time.perf_counter() - began - self.seconds)

    Loop.__call__ = timed  # type: ignore[method-assign]
    path = Path(__file__).parents[1] / "examples" / f"{sys.argv[1]}.py"
    sys.argv = [str(path)]
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(path), run_name="__main__")
    for name, seconds in first.items():
        print(name, seconds)


if __name__ == "__main__":
    main()
