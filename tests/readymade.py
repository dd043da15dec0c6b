"""Processes that need not import anything: copies of one that has.

    with Ready(*MODELS) as ready:
        done = ready.run(path, cwd=folder, env=environment)      # like `python path`, in a process of its own
        ready.command(folder / "stretto")                        # a file that is the command `stretto`, for shells

Most of what a block of a page or a command takes is importing scikit-learn, Numba and PyTorch. One process imports them
and makes a copy of itself (fork) for each script: the copy has its own memory, folder, environment and output, and it
runs no code that another script has left behind. A shell's command reaches it through a socket, and hands over its own
standard input and output.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn, Self

COMMAND = "-m stretto.cli"  # instead of a script
MODELS = (
    *(
        "matplotlib.figure",
        "stretto.cli.commands.train",
        "stretto.models.factorization.estimator",
        "stretto.models.topics.estimator",
    ),
    *("stretto.models.linear.lasso", "stretto.models.linear.logistic", "stretto.loops.parallel", "stretto.entry"),
)
LOOPS = (
    "stretto.loops.parallel",
    "stretto.loops.execute.run",
    "stretto.kernels.numeric.vector",
    "stretto.runtime.runtimes",
)
TORCH = ("stretto.memory.front_end", "torch.fx.experimental.proxy_tensor")


class Ready:
    """The process that is copied. modules: what it imports."""

    def __init__(self, *modules: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="ready")
        self._socket = os.path.join(self._folder, "socket")
        self._process = subprocess.Popen(
            [sys.executable, __file__, "serve", self._socket, *modules], stdin=subprocess.PIPE
        )

    def run(self, script: Path, *words: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        command = [*self._asking(str(script)), *words]
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)

    def command(self, path: Path) -> None:
        """Write a file that runs `stretto` with the words it is given."""
        words = " ".join(f'"{word}"' for word in self._asking(COMMAND))
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def _asking(self, script: str) -> list[str]:
        return [sys.executable, "-I", "-S", __file__, "ask", self._socket, script]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # which ends it
        self._process.wait(20)
        shutil.rmtree(self._folder)


def serve(path: str, modules: list[str]) -> None:
    """Import, then make a copy for each that asks, until standard input is closed."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path + ".new")
    server.listen(16)
    for name in modules:
        importlib.import_module(name)
    if "numba" in sys.modules:
        from numba.core.registry import cpu_target

        # What Numba does when it is first used: importing much of itself and of SciPy.
        cpu_target.typing_context.refresh()
        cpu_target.target_context.refresh()
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)  # blocks have tiny tensors, and threads would only wait for one another
    os.rename(path + ".new", path)
    copies: set[int] = set()
    while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
        peer, _ = server.accept()
        request, descriptors = _received(peer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # libraries have threads, at rest
            child = os.fork()
        if child == 0:
            server.close()
            _become(peer, descriptors, request)
        for one in descriptors:
            os.close(one)
        peer.close()
        copies.add(child)
        copies -= {one for one in copies if os.waitpid(one, os.WNOHANG)[0]}


def _received(peer: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request, and the standard input and output of the client."""
    length, descriptors, _, _ = socket.recv_fds(peer, 8, 3)
    with peer.makefile("rb") as file:
        return json.loads(file.read(int.from_bytes(length, "big"))), descriptors


def _become(peer: socket.socket, descriptors: list[int], request: dict[str, Any]) -> NoReturn:
    """Be the process that was asked for, and say at the end how it went."""
    code = 1
    try:
        for place, one in enumerate(descriptors):
            os.dup2(one, place)
            os.close(one)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        script = request["script"]
        sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
        sys.argv, sys.path[0] = [script, *request["words"]], request["cwd"]
        try:
            if script == COMMAND:
                runpy.run_module("stretto.cli", run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(script, run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        peer.sendall(bytes([code & 255]))
        os._exit(code & 255)


def ask(path: str, script: str, words: list[str]) -> int:
    """Have a script run; its exit code."""
    deadline = time.monotonic() + 120
    while not os.path.exists(path):  # it is still importing
        if time.monotonic() > deadline:
            raise TimeoutError("the process that has imported everything did not come up within 120 s")
        time.sleep(0.05)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        request = {"script": script, "words": words, "cwd": os.getcwd(), "env": dict(os.environ)}
        text = json.dumps(request).encode()
        socket.send_fds(peer, [len(text).to_bytes(8, "big")], [0, 1, 2])
        peer.sendall(text)
        answer = peer.recv(1)
    return answer[0] if answer else 1


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(ask(sys.argv[2], sys.argv[3], sys.argv[4:]))
