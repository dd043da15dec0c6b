"""Fill the kernel cache of this machine, on all its cores.

A family of tasks shares kernels, so one process runs it; families run side by side. A process of its own writes a line
for each task it has done, from which the caller shows how far the work is:

    for name in fill(processes=2): print(name)
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from stretto.errors import RunError

from .tasks import tasks


def _mark(fast: bool) -> Path:
    """Marker file beside the compiled kernels: all are compiled for this processor, Python and Numba settings."""
    from llvmlite import binding

    from stretto.kernels.build.stamps import everything
    from stretto.kernels.build.storage import folder

    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("NUMBA_"))
    processor = (binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
    name = hashlib.sha256(repr((everything(), sys.version, *processor, settings, fast)).encode()).hexdigest()[:16]
    return folder() / f"warm-{name}"


def is_warm(*, fast: bool = False) -> bool:
    """Whether `fill` ran to its end before, for these kernels and this processor."""
    return _mark(fast).exists()


def fill(*, fast: bool = False, processes: int = 1, only: tuple[str, ...] = ()) -> Iterator[str]:
    """Compile what `tasks` lists; yields the name of each task when it is done.

    Parameters
    ----------
    fast : bool
        The profile `fast` too.
    processes : int
        Families that run side by side.
    only : tuple of str
        These families alone.
    """
    families = only or tuple(dict.fromkeys(task.family for task in tasks(fast=fast)))
    lines: queue.Queue[str | None] = queue.Queue()
    waiting, running = list(families), 0
    failed: list[str] = []

    def run(family: str) -> None:
        command = [sys.executable, "-m", "stretto.warmup.fill", family, *(["--fast"] if fast else [])]
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
        ):
            for line in child.stdout or ():
                lines.put(line.strip())
            code = child.wait()
            errors.seek(0)
            problem = errors.read().strip()
        if code != 0:
            failed.append(f"{family}: {problem.splitlines()[-1] if problem else f'exit code {code}'}")
        lines.put(None)

    while waiting or running:
        while waiting and running < max(1, processes):
            threading.Thread(target=run, args=(waiting.pop(0),), daemon=True).start()
            running += 1
        line = lines.get()
        if line is None:
            running -= 1
        else:
            yield line
    if failed:
        raise RunError(f"kernels could not be compiled: {'; '.join(failed)}; run `stretto --debug warmup` for more")
    if not only:
        with contextlib.suppress(OSError):  # a cache that cannot be written is simply not warm
            _mark(fast).touch()


def main() -> None:
    """Run the tasks of one family and write the name of each when it is done."""
    from stretto.kernels.build import notice

    notice.silence()
    for task in tasks(fast="--fast" in sys.argv):
        if task.family == sys.argv[1]:
            task.run()
            print(task.name, flush=True)


if __name__ == "__main__":
    main()
