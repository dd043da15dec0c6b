"""Hosts of the laboratory: processes with a network, a process table, mounts and a name of their own.

    with Machine(0, Path("/tmp/stretto-lab-4711-x")) as host:
        host.run(["hostname"]).stdout        # "lab-0"
        host.processes()                     # {pid as seen from outside: command line}

A machine is held by one process, the first of its process namespace. When that ends, everything in the namespace ends
with it and the kernel takes back the network; and it ends with us, however we end. So nothing outlives a test run but a
folder and control groups, which the next run removes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

PREFIX = "stretto-lab"
QUOTAS = Path("/sys/fs/cgroup/cpu")  # control groups, version 1
MEMORY = Path("/sys/fs/cgroup/memory")
PERIOD = 20_000  # µs: short, so that a host that used up its share waits for a few milliseconds only
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "tc", "mount")


def missing() -> str:
    """Why no machine can be made here; "" where one can."""
    if os.name != "posix" or not Path("/proc/self/ns/net").exists():
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    gone = [tool for tool in TOOLS if shutil.which(tool) is None]
    if gone:
        return f"not installed: {', '.join(gone)}"
    tried = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--mount", "--uts", "--mount-proc", "true"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    return "" if tried.returncode == 0 else f"namespaces are not allowed here: {tried.stderr.strip()}"


def sweep(temporary: Path = Path("/tmp")) -> list[str]:
    """Remove folders and control groups of laboratories whose process is gone; their names."""
    removed = []
    for place in (temporary, QUOTAS, MEMORY):
        for path in place.glob(f"{PREFIX}-*") if place.is_dir() else ():
            owner = path.name.removeprefix(f"{PREFIX}-").split("-")[0]
            if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
                remove(path)
                removed.append(str(path))
    return removed


def remove(path: Path) -> None:
    """Remove a folder, or a control group, which must be empty of processes: those may take a moment to go."""
    if not {QUOTAS, MEMORY} & set(path.parents):
        shutil.rmtree(path, ignore_errors=True)
        return
    deadline = time.monotonic() + 2.0  # what is left then is removed by the next `sweep`
    while time.monotonic() < deadline:
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:  # a process that was killed is still in it
            time.sleep(0.02)


def end(pids: Sequence[int]) -> list[int]:
    """kill -9 of processes; those that were still there."""
    found = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            found.append(pid)
    return found


class Holder:
    """A process that keeps namespaces alive. pid: the process to enter them by."""

    def __init__(self, *kinds: str, script: str = "") -> None:
        # bash waits for every child it inherits, as the first process of a namespace must.
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", *kinds, "--pid", "--fork", "--kill-child", "--mount-proc"]
        argv += ["bash", "-c", f"{script}\necho ready\nexec >&-\nsleep infinity & wait"]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, text=True
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"no namespace could be made: {' '.join(argv)} ended with {self.process.wait()}")
        outer = self.process.pid
        self.pid = int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])

    def close(self) -> None:
        """End it, and with it whatever runs in its process namespace."""
        end([self.pid, self.process.pid])
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Machine:
    """Host `number`. folder: what it sees as `inside`, so that hosts keep their files apart."""

    def __init__(self, number: int, root: Path, cpus: float | None = None) -> None:
        self.number = number
        self.name = f"lab-{number}"
        self.ip = f"10.77.0.{number + 1}"
        self.folder = root / self.name
        self.inside = root / "host"
        for path in (self.folder, self.inside):
            path.mkdir(parents=True, exist_ok=True)
        hosts = root / "hosts"
        if not hosts.exists():
            names = "\n".join(f"10.77.0.{n + 1} lab-{n}" for n in range(64))
            hosts.write_text(f"127.0.0.1 localhost\n{names}\n")
        script = (
            f"hostname {self.name}; mount --bind {self.folder} {self.inside}; mount --bind {hosts} /etc/hosts; "
            "mount -t tmpfs -o size=1g tmpfs /dev/shm; ip link set lo up"
        )
        self._holder = Holder("--net", "--uts", "--ipc", "--mount", script=script)
        self.pid = self._holder.pid
        self._quota = self._group(root.name)
        self._memory = self._memory_group(root.name)
        self.limit(cpus)

    # -- its share of the processors ----------------------------------------------------------------------------------

    def _group(self, tag: str) -> Path | None:
        if not (QUOTAS / "cpu.cfs_quota_us").exists():
            return None
        group = QUOTAS / f"{tag}-{self.number}"
        try:
            group.mkdir(exist_ok=True)
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cgroup.procs").write_text(str(self.pid))
        except OSError:
            return None
        return group

    def limit(self, cpus: float | None) -> bool:
        """Give it so many processors' time, None: no limit. False where control groups cannot be written."""
        if self._quota is None:
            return cpus is None
        (self._quota / "cpu.cfs_quota_us").write_text(str(-1 if cpus is None else int(cpus * PERIOD)))
        return True

    def _memory_group(self, tag: str) -> Path | None:
        group = MEMORY / f"{tag}-{self.number}"
        try:
            group.mkdir(exist_ok=True)
            (group / "cgroup.procs").write_text(str(self.pid))
        except OSError:
            return None
        return group

    def limit_memory(self, nbytes: int | None) -> bool:
        """Let its processes have so many bytes in all, None: no limit. False where control groups cannot be written."""
        if self._memory is None:
            return nbytes is None
        (self._memory / "memory.limit_in_bytes").write_text(str(-1 if nbytes is None else nbytes))
        return True

    def resident(self) -> int:
        """Bytes of memory that its processes have, files that the kernel keeps left out."""
        if self._memory is None:
            return 0
        stat = dict(line.split() for line in (self._memory / "memory.stat").read_text().splitlines())
        return int(stat["total_rss"])

    def throttled(self) -> float:
        """Seconds for which its processes had work and no processor time left, as the kernel counts them."""
        if self._quota is None:
            return 0.0
        stat = dict(line.split() for line in (self._quota / "cpu.stat").read_text().splitlines())
        return int(stat.get("throttled_time", 0)) * 1e-9

    # -- processes ----------------------------------------------------------------------------------------------------

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` on this machine."""
        enter = ["nsenter", "--target", str(self.pid), "--net", "--uts", "--ipc", "--mount", "--pid", "--", *argv]
        join = "".join(f"echo $$ > {group}/cgroup.procs && " for group in (self._quota, self._memory) if group)
        return ["sh", "-c", f'{join}exec "$@"', "sh", *enter] if join else enter

    def start(self, argv: Sequence[str], env: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[str]:
        """Start a process there, in a process group of its own."""
        return subprocess.Popen(
            self.command(argv), env={**os.environ, **(env or {})}, text=True, start_new_session=True, **more
        )

    def run(
        self,
        argv: Sequence[str],
        env: dict[str, str] | None = None,
        timeout: float = 60.0,
        to: IO[str] | int = subprocess.PIPE,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; one that takes longer than `timeout` is killed, and what it said is raised."""
        process = self.start(argv, env, stdout=to, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=cwd)
        try:
            said, _ = process.communicate(timeout=timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise subprocess.TimeoutExpired(list(argv), timeout, said) from None
            raise
        return subprocess.CompletedProcess(list(argv), process.returncode, said or "")

    def processes(self) -> dict[int, str]:
        """{process number as seen from outside: command line} of what runs there, its first process left out."""
        mine = os.stat(f"/proc/{self.pid}/ns/pid").st_ino
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == self.pid:
                continue
            try:
                if os.stat(entry / "ns" / "pid").st_ino == mine:
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
        return found

    def close(self) -> None:
        """End everything on it."""
        self._holder.close()
        for group in (self._quota, self._memory):
            if group is not None:
                remove(group)

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
