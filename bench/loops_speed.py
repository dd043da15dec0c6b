"""Speed of loops beside Numba: the same loop by hand, and its body as it stands.

One thread, milliseconds of processor time for one call, the least of many, taken in turns. `exact` and `fast` are the
whole call of the decorated loop, in that profile; *strict* is a kernel by hand under `njit(error_model="numpy")`,
*fastmath* the same with `fastmath=True`, *body* what `njit` makes of the loop's body, with rows as NumPy
expressions (where the body has no rows, it is the strict kernel). Ratios say how many times as fast the loop in profile
`exact` is. *two threads* is the time by the clock of the call on one thread over that on two. *compile* is the
processor time of the first call in a process of its own with an empty cache, less that of the second call.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numba

import stretto as st

from . import report
from .loops_speed_cases import CASES, Case

Calls: TypeAlias = dict[str, Callable[[], Any]]
SECONDS = 1.0  # for each case and round of all five
ROUNDS = 5


def timed(calls: Calls, clock: Callable[[], int] = time.process_time_ns) -> dict[str, float]:
    """The least milliseconds of one call of each, taken in turns; short calls are timed several at a time."""
    many, least = {}, {}
    for name, call in calls.items():
        call()
        began = clock()
        call()
        once = max(1, clock() - began)
        many[name], least[name] = max(1, int(2e6 // once)), float("inf")
    for _ in range(ROUNDS):
        for name, call in calls.items():
            began = clock()
            while clock() - began < SECONDS * 1e9 / ROUNDS / len(calls):
                start = clock()
                for _ in range(many[name]):
                    call()
                least[name] = min(least[name], (clock() - start) / many[name])
    return {name: value / 1e6 for name, value in least.items()}


def versions(case: Case) -> Calls:
    """What is timed of a case, by name."""
    made: Calls = {}
    for profile in ("exact", "fast"):
        loop, args = case.loop.using(runtime=st.Threads(1), profile=profile), case.ours()
        made[profile] = partial(loop, *args)
    body = case.naive.plain if hasattr(case.naive, "plain") else case.naive
    forms = {"strict": (case.strict, False), "fastmath": (case.strict, True), "body": (body, False)}
    for name, (function, fast) in forms.items():
        kernel, args = numba.njit(error_model="numpy", fastmath=fast)(function), case.theirs()
        made[name] = partial(kernel, *args)
    return made


def two_threads(case: Case) -> float:
    """Time by the clock on one thread over that on two."""
    calls: Calls = {}
    for threads in (1, 2):
        loop, args = case.loop.using(runtime=st.Threads(threads)), case.ours()
        calls[str(threads)] = partial(loop, *args)
    found = timed(calls, time.perf_counter_ns)
    return found["1"] / found["2"]


def compile_seconds(name: str) -> float:
    """Processor time of the first call in a new process with an empty cache, less that of the second."""
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(
            [sys.executable, "-m", "bench.loops_speed", name],
            env={**os.environ, "STRETTO_CACHE": folder, "XDG_CACHE_HOME": folder},
            capture_output=True,
            text=True,
            check=True,
        )
    return float(found.stdout.split()[-1])


def first_call(name: str) -> None:
    """Print the processor time of the first call, less the second."""
    case = CASES[name]
    numba.njit(lambda x: x + 1)(1)  # what Numba loads at its first use is not compiling
    loop, args = case.loop.using(runtime=st.Threads(1)), case.ours()
    seconds = []
    for _ in range(2):
        began = time.process_time()
        loop(*args)
        seconds.append(time.process_time() - began)
    print(seconds[0] - seconds[1])


def main() -> None:
    """Measure every case."""
    chosen = os.environ.get("LOOPS", "")  # part of a name: only these, and no page is written
    rows = []
    for name, case in CASES.items():
        if chosen not in name:
            continue
        ms = timed(versions(case))
        speed = [f"{ms[other] / ms['exact']:.2f}" for other in ("strict", "fastmath", "body")]
        faster, seconds = f"{two_threads(case):.2f}", f"{compile_seconds(name):.1f}"
        rows.append([name, *(f"{value:.3g}" for value in ms.values()), *speed, faster, seconds])
        print(*rows[-1], sep=" | ", flush=True)
    columns = ["loop", "exact", "fast", "strict", "fastmath", "body", "strict / exact", "fastmath / exact",
               "body / exact", "two threads", "compile"]  # fmt: skip
    if not chosen:
        report.save("loops_speed", "Speed of loops beside Numba", report.text(__doc__), report.table(columns, rows))


if __name__ == "__main__":
    first_call(sys.argv[1])
