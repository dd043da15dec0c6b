"""Forward what hosts print: line by line to the driver's own streams and into a log.

In a host's process, `label_workers` puts the worker's number in front of the lines that a worker function prints. In
the driver, an `Output` reads the pipes of one process until they are closed, so that nothing is lost when the process
dies:

    (host 1) worker 3: loss 0.713           print("loss", loss) in a worker function
    (host 1) Fatal Python error: …          output of the process itself

Ray forwards what its actors print by itself.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections import deque
from pathlib import Path
from typing import IO, Any

WORKER = "stretto-worker-"  # prefix of the names of workers' threads, before their number
_TAIL = 30  # lines that are kept for error messages
_LONGEST = 1 << 16  # bytes of a line at most


class Output:
    """Reads the stdout and stderr of a process.

    Parameters
    ----------
    log : Path
        The file to which all lines are appended.
    """

    def __init__(self, number: int, pipes: dict[str, IO[bytes]], log: Path) -> None:
        self._prefix, self._log = f"(host {number}) ", log
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._writing = threading.Lock()
        self._threads = [
            threading.Thread(target=self._read, args=(name, pipe), name=f"stretto-{name}-{number}", daemon=True)
            for name, pipe in pipes.items()
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until the pipes are read to their end, at most `seconds`: a child of the host may hold them open."""
        for thread in self._threads:
            thread.join(seconds)

    def note(self, line: str) -> None:
        """Write a line of the driver into the log only."""
        with self._writing, contextlib.suppress(OSError), self._log.open("a") as log:
            log.write(f"[driver] {line}\n")

    def tail(self) -> list[str]:
        """The last lines that the process printed."""
        with self._writing:
            return list(self._tail)

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        with pipe:
            while line := pipe.readline(_LONGEST):
                self._take(name, line.decode(errors="replace").rstrip("\r\n"))

    def _take(self, name: str, line: str) -> None:
        with self._writing:
            self._tail.append(line)
            with contextlib.suppress(OSError), self._log.open("a") as log:  # a full disk is no reason to stop reading
                log.write(line + "\n")
            stream = getattr(sys, name)
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):  # the stream is closed
                    stream.write(f"{self._prefix}{line}\n")
                    stream.flush()


class WorkerLines(io.TextIOBase):
    """A text stream that forwards whole lines, with the worker's number in front of those of workers' threads."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._parts = threading.local()

    def write(self, text: str) -> int:
        """Buffer text until its line is complete, separately for each thread."""
        left = getattr(self._parts, "text", "") + text
        *lines, self._parts.text = left.split("\n")
        if lines:
            label = self._label()
            self._stream.write("".join(f"{label}{line}\n" for line in lines))
            self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Keep an incomplete line in the buffer, so that lines of several workers are not mixed."""
        with contextlib.suppress(ValueError, OSError):
            self._stream.flush()

    def end(self) -> None:
        """Forward the thread's last line, which may lack a line break."""
        if getattr(self._parts, "text", ""):
            self.write("\n")

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(self._stream.encoding)

    def fileno(self) -> int:
        return int(self._stream.fileno())

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    @staticmethod
    def _label() -> str:
        name = threading.current_thread().name
        return f"worker {name.removeprefix(WORKER)}: " if name.startswith(WORKER) else ""


def label_workers() -> None:
    """Put the worker's number in front of lines that workers of this process print."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, WorkerLines):
            setattr(sys, name, WorkerLines(stream))


def end_lines() -> None:
    """Forward the calling thread's last lines; the thread calls it before it ends."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, WorkerLines):
            stream.end()
