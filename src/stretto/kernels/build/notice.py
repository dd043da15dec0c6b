"""Say once, on stderr, that kernels are being compiled: what, how long it takes, and that it happens once."""

from __future__ import annotations

import os
import sys

_said = False


def silence() -> None:
    """Say nothing in this process, as where a progress bar says it already."""
    global _said  # noqa: PLW0603
    _said = True


def compiling(name: str) -> None:
    """Somebody waits for this function to be compiled. `STRETTO_COMPILE_NOTICE=0` in the environment keeps it quiet."""
    global _said  # noqa: PLW0603
    if _said or os.environ.get("STRETTO_COMPILE_NOTICE") == "0":
        return
    _said = True
    if name.startswith(
        "stretto_loop_"
    ):  # written for a user's loop by `loops.emit.worker_source`; nothing compiles it ahead
        what, ahead = "a loop", ""
    else:
        what, ahead = f"kernels ({name} first)", "; `stretto warmup` compiles everything ahead"
    print(
        f"stretto: compiling {what} for the first use on this machine. This adds some seconds, happens once, and is "
        f"kept on disk{ahead}.",
        file=sys.stderr,
        flush=True,
    )
