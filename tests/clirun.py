"""Running the command line in tests: inside this process, or as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from typer.testing import CliRunner

from stretto.cli import app
from stretto.kernels.build.storage import folder as kernel_folder

COMMAND = [sys.executable, "-m", "stretto.cli"]


@contextmanager
def private_cache(folder: Path) -> Iterator[None]:
    """A cache for what tests read, thrown away with them; compiled kernels stay where they always are."""
    kernels, before = kernel_folder(), os.environ.get("STRETTO_CACHE")
    kernels.mkdir(parents=True, exist_ok=True)
    (folder / "kernels").symlink_to(kernels.resolve(), target_is_directory=True)
    os.environ["STRETTO_CACHE"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["STRETTO_CACHE"]
        else:
            os.environ["STRETTO_CACHE"] = before


@contextmanager
def empty_pictures() -> Iterator[None]:
    """Pictures of plans and of convergence are files with nothing in them: drawing takes as long as a small training.
    Commands that are processes of their own draw."""
    from matplotlib.figure import Figure

    def saved(_: Figure, path: Path, **__: Any) -> None:
        Path(path).write_bytes(b"")

    with mock.patch.object(Figure, "savefig", saved):
        yield


class Said:
    """What a command said and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def stretto(*args: str | Path, code: int = 0) -> Said:
    """Run a command in this process; it must end with `code`."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)
    assert result.exit_code == code, f"exit code {result.exit_code}\n{result.stdout}\n{result.stderr}"
    return Said(result.exit_code, result.stdout, result.stderr)


def start(*args: str | Path, **more: Any) -> subprocess.Popen[str]:
    """Start a command as a process of its own, its output in pipes."""
    return subprocess.Popen(
        [*COMMAND, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        **more,
    )


def arrays(run: Path) -> dict[str, NDArray[Any]]:
    """Every array of a run's model."""
    from safetensors.numpy import load_file

    return load_file(run / "model.safetensors")


def same_model(one: Path, other: Path) -> bool:
    """Whether two runs ended with the same bits."""
    a, b = arrays(one), arrays(other)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
