"""A cluster in one computer: machines with cables between them, and a Ray node on each.

    with Lab(hosts=4, link="1Gbit") as lab:
        lab.start_ray()
        said = lab.run("import stretto as st; …", timeout=60)       # a driver on host 0
        lab.kill_actor(2); lab.link_down(1, seconds=3.0); lab.limit(3, "100Mbit")

By hand, with the environment of the driver set so that `st.Cluster(address="auto")` finds the cluster:

    python tests/cluster/lab.py --hosts 4 --link 100Mbit -- python job.py

Needs Linux and root (`machines.missing()` says what is missing). One laboratory at a time: a second one waits.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from machines import PREFIX, Machine, end, missing, sweep
from network import RAY_PORTS, Counted, Network

LOCK = Path(f"/tmp/{PREFIX}.lock")
ROOT = Path(__file__).parents[2]
STORE = 100 * 2**20  # bytes of a Ray node's object store: next to nothing goes through it
PORT = RAY_PORTS.start + 8
_RAYS_OWN = ("ray::IDLE", "ray::SPILL", "ray::RESTORE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")


class LabError(RuntimeError):
    """The laboratory could not be set up, or a command in it failed."""


@dataclass(frozen=True)
class Sample:
    """Bytes sent by one machine at a time, in seconds since sampling began."""

    seconds: float
    sent: Counted


class Lab:
    """`hosts` machines on one switch. link: the speed of each cable, cpus: the processors' time each machine gets.

    cpus None: the computer's processors are shared evenly. slots: the processors each Ray node says it has, which is
    what placement goes by. Ray is started by `start_ray`. apart: one more machine, the first, for Ray's head and
    drivers alone, without a quota: for measurements that a driver's own work should not disturb.
    """

    def __init__(
        self,
        hosts: int = 4,
        link: str | None = "1Gbit",
        cpus: float | None = None,
        slots: int = 2,
        apart: bool = False,
        wait: float = 240.0,
    ) -> None:
        reason = missing()
        if reason:
            raise LabError(reason)
        self.link, self.slots, self.apart = link, slots, apart
        self.cpus = len(os.sched_getaffinity(0)) / hosts if cpus is None else cpus
        self._lock = _only_one(wait)
        self.swept = sweep()
        self.folder = Path(f"/tmp/{PREFIX}-{os.getpid()}-{secrets.token_hex(2)}")
        self.folder.mkdir(mode=0o700)
        self.token = secrets.token_hex(24)
        self.machines: list[Machine] = []
        self.network = Network()
        self.notes: list[str] = []
        self.ray_seconds = 0.0
        self._ray = False
        self._later: list[threading.Timer] = []
        try:
            for _ in range(hosts + apart):
                self._add_machine()
        except BaseException:
            self.close()
            raise

    def _add_machine(self) -> Machine:
        machine = Machine(len(self.machines), self.folder)
        self.machines.append(machine)
        self.network.plug(machine, self.link)
        return machine

    @property
    def workers(self) -> list[Machine]:
        """The machines that nodes of jobs run on."""
        return self.machines[int(self.apart) :]

    # -- Ray ----------------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the Ray cluster is reached, from inside."""
        return f"{self.machines[0].ip}:{PORT}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of a driver."""
        search = [str(ROOT / "src"), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ADDRESS": self.address,
            "RAY_DISABLE_IMPORT_WARNING": "1",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(search)),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
        }

    def start_ray(self, timeout: float = 120.0) -> float:
        """A Ray node on every machine, the head on host 0; seconds it took. Machines have no quota meanwhile."""
        began = time.monotonic()
        for machine in self.machines:
            machine.limit(None)
        self._start_node(self.machines[0], timeout)
        with ThreadPoolExecutor(len(self.machines)) as pool:
            list(pool.map(lambda machine: self._start_node(machine, timeout), self.machines[1:]))
        self._ray = True
        self.share()
        self.ray_seconds = time.monotonic() - began
        return self.ray_seconds

    def share(self) -> None:
        """Every machine gets its share of the processors and no more."""
        for machine in self.workers:
            if not machine.limit(self.cpus):
                self.notes.append(f"{machine.name} has no CPU quota: control groups cannot be written here")

    def _start_node(self, machine: Machine, timeout: float) -> None:
        ports = iter(range(PORT + 1, PORT + 100))
        where = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        argv = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start"),
            *(where if machine.number == 0 else [f"--address={self.address}"]),
            f"--node-ip-address={machine.ip}",
            f"--num-cpus={self.slots if machine in self.workers else 0}",
            "--num-gpus=0",
            f"--object-store-memory={STORE}",
            f"--node-manager-port={next(ports)}",
            f"--object-manager-port={next(ports)}",
            f"--dashboard-agent-grpc-port={next(ports)}",
            f"--dashboard-agent-listen-port={next(ports)}",
            f"--runtime-env-agent-port={next(ports)}",
            f"--metrics-export-port={next(ports)}",
            f"--min-worker-port={RAY_PORTS.start + 200}",
            f"--max-worker-port={RAY_PORTS.start + 2000}",
            f"--temp-dir={machine.inside}",
            "--disable-usage-stats",
            f"--labels=machine={machine.name}",
        ]
        log = machine.folder / "ray-start.log"
        with log.open("w") as file:
            done = machine.run(argv, {**self.env, "RAY_ADDRESS": ""}, timeout, to=file)
        if done.returncode:
            raise LabError(f"Ray did not start on {machine.name}:\n{log.read_text()[-2000:]}")

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def start(
        self, code: str | Sequence[str], host: int = 0, env: dict[str, str] | None = None, log: str = "driver.log"
    ) -> tuple[subprocess.Popen[str], Path]:
        """Start a driver on a host: Python source, or a command line. The process, and the file it writes to."""
        machine = self.machines[host]
        path = machine.folder / log
        argv = [sys.executable, "-c", code] if isinstance(code, str) else list(code)
        with path.open("w") as file:
            started = machine.start(
                argv, {**self.env, **(env or {})}, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        return started, path

    def run(
        self, code: str | Sequence[str], host: int = 0, env: dict[str, str] | None = None, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a driver on a host to its end; what it printed is `stdout`. One that is too slow is killed: an error."""
        argv = [sys.executable, "-c", code] if isinstance(code, str) else list(code)
        return self.machines[host].run(argv, {**self.env, **(env or {})}, timeout)

    # -- faults -------------------------------------------------------------------------------------------------------

    def actors(self, host: int) -> list[int]:
        """Processes of Ray actors on a host, as numbered outside."""
        found = self.machines[host].processes()
        return [pid for pid, line in found.items() if line.startswith("ray::") and not line.startswith(_RAYS_OWN)]

    def kill_actor(self, host: int) -> list[int]:
        """kill -9 of every actor on a host; which were."""
        return end(self.actors(host))

    def kill_raylet(self, host: int) -> list[int]:
        """kill -9 of the Ray node of a host: its workers end with it."""
        return end([pid for pid, line in self.machines[host].processes().items() if "/raylet/raylet " in line])

    def add_host(self, timeout: float = 60.0) -> int:
        """One more machine, with a Ray node if the others have one; its number."""
        machine = self._add_machine()
        if self._ray:
            self._start_node(machine, timeout)
            self.share()
        return machine.number

    def link_down(self, host: int, seconds: float) -> threading.Timer:
        """Pull a cable, and put it back after `seconds`; join() what is returned to wait for that."""
        machine = self.machines[host]
        self.network.up(machine, False)
        timer = threading.Timer(seconds, self.network.up, (machine, True))
        timer.daemon = True
        timer.start()
        self._later.append(timer)
        return timer

    def limit(self, host: int, rate: str | None) -> None:
        """Change the speed of a cable, both ways."""
        self.network.limit(self.machines[host], rate)

    # -- counters -----------------------------------------------------------------------------------------------------

    def bytes(self, host: int) -> Counted:
        """What a machine sent since it was plugged in, by the kernel's counters."""
        return self.network.sent(self.machines[host])

    def sample(self, hosts: Sequence[int] | None = None, every: float = 0.05) -> Sampler:
        """Sample the counters of these hosts (None: all) at this interval; use it with `with`."""
        return Sampler(self, range(len(self.machines)) if hosts is None else hosts, every)

    # -- its end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End every process, take network and folder away."""
        for timer in self._later:
            timer.cancel()
        for machine in self.machines:
            machine.close()
        self.network.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sampler:
    """Counters over time: samples[host] is a list of Sample."""

    def __init__(self, lab: Lab, hosts: Sequence[int], every: float) -> None:
        self.samples: dict[int, list[Sample]] = {host: [] for host in hosts}
        self._lab, self._every = lab, every
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        began = time.monotonic()
        while True:
            for host, found in self.samples.items():
                found.append(Sample(time.monotonic() - began, self._lab.bytes(host)))
            if self._end.wait(self._every):
                return

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def most(self, host: int, window: float = 1.0) -> float:
        """The most data-plane bytes per second that a host sent within any `window` seconds (from look to look)."""
        found = self.samples[host]
        most, first = 0.0, 0
        for last, at in enumerate(found):
            # The shortest stretch of looks that is at least a window long and ends here.
            while first + 1 <= last and at.seconds - found[first + 1].seconds >= window:
                first += 1
            length = at.seconds - found[first].seconds
            if length >= window:
                most = max(most, (at.sent.data - found[first].sent.data) / length)
        return most

    def total(self, host: int) -> int:
        """Data-plane bytes that a host sent while it was sampled."""
        found = self.samples[host]
        return found[-1].sent.data - found[0].sent.data if found else 0


def _only_one(wait: float) -> IO[str]:
    """The lock of the laboratory; waits for another one to end."""
    file = LOCK.open("w")
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() > deadline:
                file.close()
                raise LabError(
                    f"another laboratory is at work (it holds {LOCK}) and did not end in {wait:g} s"
                ) from None
            time.sleep(0.2 + 0.1 * random.random())  # at random, so that two that wait do not ask in step


def main() -> int:
    """The laboratory by hand."""
    parser = argparse.ArgumentParser(description="Run a command on host 0 of a cluster of namespaces.")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--link", default="1Gbit", help="the speed of each cable")
    parser.add_argument("--cpus", type=float, help="processors of each host; an even share if not given")
    parser.add_argument("--slots", type=int, default=2, help="processors each Ray node says it has")
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args()
    with Lab(chosen.hosts, chosen.link, chosen.cpus, chosen.slots) as lab:
        print(f"{chosen.hosts} hosts, Ray after {lab.start_ray():.1f} s; files: {lab.folder}", flush=True)
        for note in lab.notes:
            print(note, flush=True)
        with lab.sample() as looks:
            process = lab.machines[0].start(chosen.command, lab.env)
            try:
                code = process.wait(chosen.timeout)
            except subprocess.TimeoutExpired:
                print(f"killed: it took longer than {chosen.timeout:g} s")
                code = 124
        for host in looks.samples:
            sent = lab.bytes(host)
            said = f"{sent.data:,} B of data, {sent.ray:,} B of Ray's, at most {looks.most(host):,.0f} B/s"
            print(f"lab-{host} sent {said}")
        return code


if __name__ == "__main__":
    sys.exit(main())
