"""The live page in a process of its own, so that a run never waits for it.

The process is `python -m stretto.observe.page.process RUN`.

    page = start([Path("runs/first")])     # for a run in this process
    print(page.url)
    page.close()

The process prints its link as its first line. Started by a run, it ends after that run's process has ended and no
viewer is connected.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from stretto.errors import RunError, StrettoError

from .names import chosen
from .server import PageServer

_RUNNING: list[subprocess.Popen[str]] = []  # kept, so that none is collected while it runs
_EVERY = 1.0  # seconds between two checks of the process that started this one


class Dashboard:
    """A live page, served by another process.

    Attributes
    ----------
    url : str
        Its link, for a browser on this machine.
    """

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process, self.url = process, url

    def close(self) -> None:
        """End the page."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._process in _RUNNING:
            _RUNNING.remove(self._process)

    def __repr__(self) -> str:
        return f"Dashboard({self.url})"

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank" rel="noopener">live page of the run</a>'

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(folders: Sequence[Path], *, port: int = 0) -> Dashboard:
    """Start the live page of some runs in another process, which ends some time after this one.

    Parameters
    ----------
    folders : sequence of Path
        Run records. One that has just been begun is enough.
    port : int, default 0
        Port on 127.0.0.1; 0 for any that is free.
    """
    names = [str(folder) for folder in folders]
    command = [sys.executable, "-m", "stretto.observe.page.process", *names, "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--until", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C stops the run; the page shows how it ended
    )
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if not said.startswith("http://"):
        process.kill()
        more = process.communicate()[0].strip()
        raise RunError(f"the live page could not be started: {said or 'it said nothing'} {more}".rstrip())
    _RUNNING.append(process)
    return Dashboard(process, said)


def serve(server: PageServer, until: int | None = None) -> None:
    """Serve until Ctrl-C; or until the process `until` has ended and no viewer is connected."""
    while not server.wait(_EVERY):
        if until is not None and not _runs(until) and not server.viewers:
            server.close()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the page of the runs named."""
    parser = argparse.ArgumentParser(prog="python -m stretto.observe.page.process")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--until", type=int, default=None, metavar="PID")
    asked = parser.parse_args(argv)
    try:
        server = PageServer(chosen(asked.runs), port=asked.port)
    except StrettoError as error:
        print(error, flush=True)
        return 1

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    with server, contextlib.suppress(KeyboardInterrupt):
        print(server.url, flush=True)
        serve(server, asked.until)
    return 0


if __name__ == "__main__":
    sys.exit(main())
