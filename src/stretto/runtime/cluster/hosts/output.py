"""What hosts print: line by line on the driver's own streams, and in a log.

In a host's process, `label_workers` puts the worker's number in front of the lines that a worker function prints. In
the driver's, an `Output` reads the pipes of one process until they are closed, so that nothing is lost when it dies:

    (host 1) worker 3: loss 0.713           print("loss", loss) in a worker function
    (host 1) Fatal Python error: …          what the process itself has to say

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

WORKER = "stretto-worker-"  # names of the workers' threads, before their number
_TAIL = 30  # lines that are kept for error messages
_LONGEST = 1 << 16  # bytes of a line at most


class Output:
    """Reads what a process writes to its stdout and stderr. log: the file that all of it is appended to."""

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
        """Until everything was read, or so long: a process that the host has started may hold the pipes open."""
        for thread in self._threads:
            thread.join(seconds)

    def note(self, line: str) -> None:
        """Write a line of the driver's into the log, and nowhere else."""
        with self._writing, contextlib.suppress(OSError), self._log.open("a") as log:
            log.write(f"[driver] {line}\n")

    def tail(self) -> list[str]:
        """The last lines."""
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
                with contextlib.suppress(OSError, ValueError):  # closed, or gone
                    stream.write(f"{self._prefix}{line}\n")
                    stream.flush()


class WorkerLines(io.TextIOBase):
    """A text stream that passes whole lines on, those of workers' threads with their number in front."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._parts = threading.local()

    def write(self, text: str) -> int:
        """Keep what is no whole line yet; each thread has its own."""
        left = getattr(self._parts, "text", "") + text
        *lines, self._parts.text = left.split("\n")
        if lines:
            label = self._label()
            self._stream.write("".join(f"{label}{line}\n" for line in lines))
            self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """What is no whole line waits for its end, so that lines of several workers are not mixed."""
        with contextlib.suppress(ValueError, OSError):
            self._stream.flush()

    def end(self) -> None:
        """The thread has ended: its last line may have no end."""
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
    """Have lines that workers of this process print begin with their number."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, WorkerLines):
            setattr(sys, name, WorkerLines(stream))


def end_lines() -> None:
    """The calling thread ends."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, WorkerLines):
            stream.end()
