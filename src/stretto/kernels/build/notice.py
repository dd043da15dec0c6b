"""Print once, on stderr, that kernels are being compiled: which, how long it takes, and that it happens once."""

from __future__ import annotations

import os
import sys

_said = False


def silence() -> None:
    """Print nothing in this process, for example where a progress bar reports compilation already."""
    global _said  # noqa: PLW0603
    _said = True


def compiling(name: str) -> None:
    """Print the notice before this function is compiled. `STRETTO_COMPILE_NOTICE=0` in the environment disables it."""
    global _said  # noqa: PLW0603
    if _said or os.environ.get("STRETTO_COMPILE_NOTICE") == "0":
        return
    _said = True
    if name.startswith(
        "stretto_loop_"
    ):  # source of a user's loop, from `loops.emit.worker_source`; it is never compiled ahead of time
        what, ahead = "a loop", ""
    else:
        what, ahead = f"kernels ({name} first)", "; `stretto warmup` compiles everything ahead"
    print(
        f"stretto: compiling {what} for the first use on this machine. This adds some seconds, happens once, and is "
        f"kept on disk{ahead}.",
        file=sys.stderr,
        flush=True,
    )
