"""Hosts as processes of this machine, called over a socket pair: no Ray, started in a second.

A call is one pickled tuple (number, method, arguments), its answer (number, worked, value). The socket is inherited, so
no other process can reach it. When a process ends, its end of the socket closes, and waiting callers get an error at
once.

What processes print is forwarded (`output`) and written to a folder of logs. The folder is removed after the job,
unless the job fails and a log is not empty.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from stretto.errors import RunError

from .fleet import HostLost, HostSettings, NotStarted, answers, packed
from .output import Output, label_workers

_LENGTH = struct.Struct("<Q")
_CONCURRENT_CALLS = 8  # calls that a host works on at the same time
_OPEN = 0  # the number of the first call, which creates the host
_STUCK = 20  # seconds without reading from its socket after which a process counts as lost
_READ = 1.0  # seconds for the last lines of a process that has ended


class LocalFleet:
    """Starts `python -m stretto.runtime.cluster.hosts.local_fleet`."""

    def __init__(self, settings: HostSettings) -> None:
        self._settings = settings
        self._members: list[_Process] = []
        self._folder: Path | None = None

    def start(self, numbers: Iterable[int]) -> dict[int, _Process]:
        return {number: self._spawn(number) for number in numbers}

    def replace(self, number: int, within: float) -> _Process | None:
        member = self._spawn(number)
        return member if answers(member, within) else None

    def close(self, keep_logs: bool = False) -> None:
        for member in self._members:
            member.kill()
        self._members.clear()
        folder, self._folder = self._folder, None
        if folder is not None and not (keep_logs and any(log.stat().st_size for log in folder.iterdir())):
            shutil.rmtree(folder, ignore_errors=True)

    def _spawn(self, number: int) -> _Process:
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="stretto-"))
            member = _Process(number, self._settings, self._folder / f"host-{number}.log")
        except OSError as error:
            raise RunError(
                f"no process can be started for host {number}: {error}; see that {tempfile.gettempdir()} (or TMPDIR) "
                "can be written to and that the machine has memory for another process"
            ) from error
        self._members.append(member)
        return member


class _ProcessAnswer:
    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def result(self, timeout: float | None = None) -> Any:
        return self._future.result(timeout)


class _Process:
    """One process, and the thread that takes its answers."""

    def __init__(self, number: int, settings: HostSettings, where: Path) -> None:
        self.number, self._log = number, where
        with ExitStack() as undo:
            here, there = map(undo.enter_context, socket.socketpair())
            here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _STUCK, 0))
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(there.fileno())],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
            there.close()
            undo.pop_all()
        self._socket = here
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._output = Output(number, {"stdout": self._process.stdout, "stderr": self._process.stderr}, where)
        self.note = f"process {self._process.pid} of this machine"
        self._sending = threading.Lock()
        self._numbers = count()
        self._open: dict[int, Future[Any]] = {}
        self._gone = ""
        self._ours = False  # whether the driver killed it
        threading.Thread(target=self._listen, name=f"stretto-host-{number}", daemon=True).start()
        self.call("open", number, settings)

    def call(self, method: str, *args: Any) -> _ProcessAnswer:
        future: Future[Any] = Future()
        body = packed((number := next(self._numbers), method, args))
        with self._sending:
            if self._gone:
                future.set_exception(HostLost(self.number, self._gone))
                return _ProcessAnswer(future)
            self._open[number] = future
            try:
                self._socket.sendall(_LENGTH.pack(len(body)) + body)
            except OSError:
                self._process.kill()  # half a message may have been sent; the listening thread reports the loss
        return _ProcessAnswer(future)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._ours = True
            self._process.kill()
        self._process.wait()
        self._output.wait(_READ)

    def log(self) -> str:
        return str(self._log) if self._log.exists() else ""

    def tail(self) -> list[str]:
        return self._output.tail()

    def _listen(self) -> None:
        refused = ""  # why the host could not be created
        while (body := _receive(self._socket)) is not None:
            number, worked, value = pickle.loads(body)
            future = self._open.pop(number)
            if worked:
                future.set_result(value)
            elif number == _OPEN:
                refused = f"{type(value).__name__}: {value}"
            else:
                future.set_exception(NotStarted(self.number, refused) if refused else value)
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self._output.wait(_READ)
        if code and not self._ours:
            self._output.note(f"process {self._process.pid} has ended ({how})")
        with self._sending:
            self._gone = f"{self.note} has ended ({how})"
            left, self._open = self._open, {}
        for future in left.values():
            future.set_exception(HostLost(self.number, self._gone))
        self._socket.close()


def _receive(connection: socket.socket) -> bytes | None:
    """Receive one message; None: the other side has closed the socket."""
    try:
        head = _exactly(connection, _LENGTH.size)
        return None if head is None else _exactly(connection, _LENGTH.unpack(head)[0])
    except OSError:
        return None


def _exactly(connection: socket.socket, n: int) -> bytes | None:
    found = bytearray(n)
    view = memoryview(found)
    while view:
        got = connection.recv_into(view)
        if not got:
            return None
        view = view[got:]
    return bytes(found)


# --- in the process -------------------------------------------------------------------------------------------------


def _serve(connection: socket.socket) -> None:
    """Answer calls until the driver closes the socket."""
    from .host import Host

    host: Any = None
    sending = threading.Lock()

    def begin(number: int, settings: HostSettings) -> None:
        nonlocal host
        host = Host(
            number,
            settings.job,
            ip=settings.ip or "127.0.0.1",
            threads=settings.threads,
            encrypt=settings.encrypt,
            patience=settings.patience,
        )

    def answer(number: int, method: str, args: tuple[Any, ...]) -> None:
        try:
            value, worked = (begin if method == "open" else getattr(host, method))(*args), True
        except TimeoutError as error:  # must not look like a call that got no answer
            value, worked = RunError(f"TimeoutError: {error}"), False
        except BaseException as error:
            value, worked = error, False
        try:
            body = packed((number, worked, value))
        except RunError as error:
            body = packed((number, False, error))
        with sending:
            connection.sendall(_LENGTH.pack(len(body)) + body)

    with ThreadPoolExecutor(_CONCURRENT_CALLS) as pool:
        while (body := _receive(connection)) is not None:
            number, method, args = pickle.loads(body)
            if method == "open":
                answer(number, method, args)  # creates the host: no other call can run before
            else:
                pool.submit(answer, number, method, args)
        os._exit(0)  # the driver is gone; workers may be in the middle of a computation


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the driver, which stops the hosts
    faulthandler.enable(all_threads=False)
    label_workers()
    _serve(socket.socket(fileno=int(sys.argv[1])))
