"""`stretto warmup`: compile now what a first fit would otherwise wait for."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from .options import QuietOption
from .show import say

EXAMPLES = "Examples:\n\nstretto warmup\n\nSTRETTO_CACHE=/srv/cache stretto warmup"


def warmup(
    fast: Annotated[bool, typer.Option("--fast", help="Compile profile 'fast' too.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Compile the kernels of readers, solvers and recommendations into the cache, so that the first use does not wait.

    Once for each machine and version; a second call finds everything there.
    """
    from stretto.kernels.build.storage import folder
    from stretto.warmup import is_warm, mark_warm

    began = time.perf_counter()
    there = is_warm(fast=fast)
    if not there:
        _compile(fast, quiet)
        mark_warm(fast=fast)
    if not quiet:
        took = "already" if there else f"after {time.perf_counter() - began:.1f} s"
        say(f"kernels are compiled, {took}; they are kept in {folder()}")


def _compile(fast: bool, quiet: bool) -> None:
    from rich.console import Console
    from rich.progress import Progress

    from stretto.warmup import tasks

    todo = tasks(fast=fast)
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        shown = bar.add_task("compiling", total=len(todo))
        for task in todo:
            bar.update(shown, description=task.name)
            task.run()
            bar.advance(shown)
