"""Compile kernels for a wheel: `python -m stretto.warmup.ship`, which `make wheel` runs.

The tasks (`tasks`) run once, which shows with which types kernels are called. Each of these forms is then compiled
for every level of x86-64 that a wheel ships, by processes that compile and run nothing: code for AVX-512 is made on a
machine without it. The files go to `kernels/compiled/<level>`, where `kernels.build.storage` finds them.

Only profile `exact` is shipped: its bits are the same at every level. Files of another version of Numba or Python, from
other sources or for other types, are not used; those kernels are compiled when they are needed.
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stretto.text import show_mib

Form = tuple[str, str, Any]  # module and name of a kernel or helper, types of its arguments


def forms() -> list[Form]:
    """The forms of kernels and helpers that this process has compiled or loaded, in profile `exact`."""
    from stretto.kernels.build.stamps import PACKAGE

    found: list[Form] = []
    for module in sorted(name for name in sys.modules if name.startswith(f"{PACKAGE}.")):
        for name, value in sorted(vars(sys.modules[module]).items()):
            made = _dispatcher(value)
            if made is not None and made.__module__ == module:
                found += [(module, name, types) for types in made.overloads]
    return found


def _dispatcher(value: Any) -> Any:
    """What holds the compiled forms of a kernel or helper; None for anything else, and for kernels not called yet."""
    from stretto.kernels.build.linking import Helper
    from stretto.kernels.core.compile import Kernel

    if isinstance(value, Kernel):
        return vars(value).get("exact")
    return value if isinstance(value, Helper) else None


def compile_forms(path: Path) -> None:
    """Compile what a file lists, for the processor that Numba's settings name, into the cache they name."""
    from stretto.kernels.build import notice
    from stretto.kernels.core.compile import Kernel

    notice.silence()
    for module, name, types in pickle.loads(path.read_bytes()):
        value = getattr(importlib.import_module(module), name)
        made: Any = value.exact if isinstance(value, Kernel) else value
        made.compile(types)


def ship(folder: Path, wanted: Sequence[Form], levels: Sequence[str], processes: int) -> int:
    """Compile forms for levels into folder/<level>; how many files there are.

    Parameters
    ----------
    folder : Path
        What was in it before is removed.
    wanted : sequence of Form
        See `forms`.
    levels : sequence of str
        See `kernels.build.targets.LEVELS`.
    processes : int
        How many compile at the same time.
    """
    from stretto.kernels.build import targets

    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        jobs = []
        for level in levels:
            for part in range(processes):
                path = Path(temporary) / f"{level}-{part}.pickle"
                path.write_bytes(pickle.dumps(_share(wanted, part, processes)))
                env = {**os.environ, **targets.settings(level), "STRETTO_CACHE": str(Path(temporary) / level)}
                jobs.append(([sys.executable, "-m", "stretto.warmup.ship", str(path)], env))
        _run(jobs, processes)
        for level in levels:
            (folder / level).mkdir(parents=True)
            for path in sorted((Path(temporary) / level / "kernels").glob("*.bin")):
                shutil.copyfile(path, folder / level / path.name)
    return sum(1 for _ in folder.rglob("*.bin"))


def _share(wanted: Sequence[Form], part: int, parts: int) -> list[Form]:
    """Forms of whole modules, so that one process compiles their helpers; the largest go to the least loaded."""
    by_module: dict[str, list[Form]] = {}
    for form in wanted:
        by_module.setdefault(form[0], []).append(form)
    shares: list[list[Form]] = [[] for _ in range(parts)]
    for found in sorted(by_module.values(), key=len, reverse=True):
        min(shares, key=len).extend(found)
    return shares[part]


def _run(jobs: list[tuple[list[str], dict[str, str]]], at_once: int) -> None:
    waiting = list(jobs)
    running: list[subprocess.Popen[bytes]] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            command, env = waiting.pop(0)
            running.append(subprocess.Popen(command, env=env))
        if (code := running.pop(0).wait()) != 0:
            for other in running:
                other.kill()
            raise SystemExit(f"compiling kernels ahead failed with exit code {code}; its message is above")


def main() -> None:
    """Compile everything for every level; with an argument, what that file lists."""
    if len(sys.argv) > 1:
        compile_forms(Path(sys.argv[1]))
        return
    from stretto.kernels.build import notice, storage, targets
    from stretto.runtime.cpus import available_cpus

    from .tasks import tasks

    notice.silence()
    todo = tasks()
    for number, task in enumerate(todo, 1):
        print(f"\rtrying kernels: {number} of {len(todo)}, {task.name}".ljust(70), end="", flush=True)
        task.run()
    print()
    wanted = forms()
    print(f"compiling {len(wanted)} forms of kernels for {', '.join(targets.LEVELS)}", flush=True)
    files = ship(storage.shipped(), wanted, targets.LEVELS, available_cpus())
    size = sum(path.stat().st_size for path in storage.shipped().rglob("*.bin"))
    print(f"{files} files, {show_mib(size)}, in {storage.shipped()}")


if __name__ == "__main__":
    main()
