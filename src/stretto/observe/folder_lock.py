"""Lock a run folder or a checkpoint folder: one writer at a time.

    lock = FolderLock(folder)           # RunError that names the owner, if another process writes to the folder
    …
    lock.release()

The lock is the operating system's (`flock`) on the file `.lock`, which names the process and the machine. It ends with
its process, however that ends, so a file that was left behind is no lock. On file systems without such locks the file
itself is the lock: it counts for as long as its process runs on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from stretto.errors import RunError

NAME = ".lock"

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class FolderLock:
    """The exclusive right to write into an existing folder, until it is released."""

    def __init__(self, folder: Path, what: str = "a run") -> None:
        self._path = folder / NAME
        self._process = os.getpid()
        self._file: int | None = self._take(folder, what)
        os.ftruncate(self._file, 0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        os.write(self._file, json.dumps({"pid": os.getpid(), "machine": socket.gethostname(), "since": since}).encode())

    def _take(self, folder: Path, what: str) -> int:
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
            try:
                if not _locked(file):
                    raise RunError(
                        f"{folder} is being written by {_words(_owner(file))}: two at once would mix what they write; "
                        f"wait until it has ended, or name another folder for {what}"
                    )
                with contextlib.suppress(FileNotFoundError):
                    if os.fstat(file).st_ino == os.stat(self._path).st_ino:
                        return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # its former owner has removed the file meanwhile

    def release(self) -> None:
        """Release the lock. A forked child does not release its parent's."""
        file, self._file = self._file, None
        if file is None:
            return
        if os.getpid() == self._process:
            self._path.unlink(missing_ok=True)
        os.close(file)

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_written(folder: Path) -> bool:
    """Whether a process holds the lock of a folder."""
    if not (folder / NAME).exists():
        return False
    try:
        FolderLock(folder).release()
    except RunError:
        return True
    except OSError:
        pass
    return False


def owner_runs(folder: Path) -> bool:
    """Whether the process that is named in the lock of a folder runs. Takes no lock, so it cannot disturb a run."""
    try:
        file = os.open(folder / NAME, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return False
    try:
        return _alive(_owner(file))
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    """Try to take the lock; whether this process has it now."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        except OSError:
            pass  # not on this file system
    return not _alive(_owner(file))


def _owner(file: int) -> dict[str, Any]:
    os.lseek(file, 0, os.SEEK_SET)
    try:
        found = json.loads(os.read(file, 4096))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _alive(owner: dict[str, Any]) -> bool:
    """Whether the process that wrote the file still runs; one on another machine counts as running."""
    pid = owner.get("pid")
    if not isinstance(pid, int):
        return False
    if owner.get("machine") != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _words(owner: dict[str, Any]) -> str:
    if not owner:
        return "another process"
    where = "" if owner.get("machine") == socket.gethostname() else f" on {owner.get('machine')}"
    return f"process {owner.get('pid')}{where} since {owner.get('since')}"
