"""`stretto warmup`: compile kernels ahead of the first fit."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from stretto.cli.json_output import answer
from stretto.cli.options.running import QuietOption
from stretto.cli.output import say

EXAMPLES = "Examples:\n\nstretto warmup\n\nSTRETTO_CACHE=/srv/cache stretto warmup"


def warmup(
    fast: Annotated[bool, typer.Option("--fast", help="Compile profile 'fast' too.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Compile the kernels of readers, solvers and recommendations into the cache, so that the first use does not wait.

    Once for each machine and version, on all cores; a second call finds everything there.
    """
    from stretto.kernels.build.storage import folder
    from stretto.warmup.fill import is_warm

    began = time.perf_counter()
    there = is_warm(fast=fast)
    if not there:
        _compile(fast, quiet)
    seconds = time.perf_counter() - began
    answer(folder=str(folder()), compiled=not there, seconds=seconds)
    if not quiet:
        took = "already" if there else f"after {seconds:.1f} s"
        say(f"kernels are compiled, {took}; they are kept in {folder()}")


def _compile(fast: bool, quiet: bool) -> None:
    """With a progress bar on a terminal; elsewhere a line at the start and one for each quarter of the work."""
    from rich.console import Console
    from rich.progress import Progress

    from stretto.runtime.cpus import available_cpus
    from stretto.warmup.fill import fill
    from stretto.warmup.tasks import tasks

    todo, cores = len(tasks(fast=fast)), available_cpus()
    console = Console(file=sys.stderr)
    lines = not quiet and not console.is_terminal
    if lines:
        print(f"compiling kernels, once for this machine, on {cores} cores", file=sys.stderr, flush=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        shown = bar.add_task("compiling", total=todo)
        for done, name in enumerate(fill(fast=fast, processes=cores), 1):
            bar.update(shown, description=name, advance=1)
            if lines and done * 4 // todo > (done - 1) * 4 // todo:
                print(f"compiling kernels: {done} of {todo} done", file=sys.stderr, flush=True)
