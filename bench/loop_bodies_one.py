"""The process that `bench.loop_bodies` starts: random loops from one number to another, one line of JSON for each.

    python -m bench.loop_bodies_one FIRST PAST

A line has the number, the outcome ("run", "refused", or what went wrong) and a hash of the results, in which every NaN
is the same.
"""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stretto.errors import LoopError, PlanError

sys.path.append(str(Path(__file__).parents[1] / "tests"))


def outcome(number: int) -> tuple[str, str]:
    """What became of the loop of a number, and the hash of its results."""
    from loop_author import drawn
    from loop_bodies import results, three_ways

    written = drawn(number)
    try:
        after = three_ways(written.loop(), written.arguments)
    except (LoopError, PlanError):
        return "refused", ""
    except Exception:  # whatever it is, it is reported with the loop that shows it, and the others are run
        return f"{written!r}\n{traceback.format_exc()}", ""
    return "run", digest(results(after))


def digest(arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """A hash of all bits."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.array(arrays[name])
        if array.dtype.kind == "f":
            array[np.isnan(array)] = np.nan
        found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    """Run them."""
    warnings.simplefilter("ignore")
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        print(json.dumps([number, *outcome(number)]), flush=True)


if __name__ == "__main__":
    main()
