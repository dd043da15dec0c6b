"""What travels between two processes on one machine, the whole protocol included: links number, acknowledge and keep
every message, credit holds back what is too much, every array is checked when it arrives.

A block is one array of 1 MB, as rotation sends it; rows of 1 KB are an update of 16 rows of 14 numbers, one message
each. Bare ZeroMQ sockets show what encryption leaves. The same amounts then go to a parameter server of the plainest
kind, a Ray actor with push and pull, one call after another and 16 in flight; the better of push and pull counts. CPU
is that of the wire's own thread. Both processes and everything else share the machine's cores.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import report
from .wire_bare import bare

SECONDS = 3.0
REPEATS = 3
AHEAD = 16 << 20  # bytes waiting in the wire at which the sender pauses
OWED = 0.02  # seconds after which what arrived is acknowledged anyway, as a node does
WINDOWS = (1, 16)  # Ray calls in flight
BLOCK = 1_000_000
ROWS, COLS = 16, 14  # 16 · (8 + 14 · 4) = 1024 bytes
TABLE_ROWS = 100_000


@dataclass
class Measured:
    """Messages and bytes per second; microseconds of the wire thread per message, sender and receiver."""

    messages: float
    nbytes: float
    sender: float = 0.0
    receiver: float = 0.0


class End:
    """One node on one host, with its link to the other."""

    def __init__(self, host: int, job: str, kind: str, encrypt: bool) -> None:
        from stretto.comm.link import Link
        from stretto.runtime.cluster.net.curve_keys import new_pair
        from stretto.runtime.cluster.net.frame_checks import RingCheck, TableCheck
        from stretto.runtime.cluster.net.wire import Wire
        from stretto.store.layout import Layout, TableSpec
        from stretto.store.shard.functions import add

        self.host, self.other = host, 1 - host
        self.keys = new_pair() if encrypt else None
        self.link = Link(host, self.other, 0)
        self.lock = threading.Lock()
        self.received = 0
        self.cpu = self.due = 0.0
        self.check: Any = RingCheck({0: [[BLOCK]]})
        if kind == "rows":
            spec = TableSpec("rows", add, rows=TABLE_ROWS, cols=COLS, partition="range", shards=(1,))
            self.check = TableCheck(Layout((spec,), nodes=2, workers=2))
        self.wire = Wire(
            host, job, keys=self.keys, deliver=self.deliver, tend=self.tend, silent=lambda host, seconds: None
        )

    def address(self) -> dict[str, Any]:
        return {"endpoint": self.wire.endpoint, "public": self.keys.public if self.keys else ""}

    def meet(self, other: dict[str, Any]) -> None:
        from stretto.runtime.cluster.hosts.calls import Address

        ends = {self.host: self.address(), self.other: other}
        roster = {host: Address(host, end["endpoint"], end["public"], "", 0, "") for host, end in ends.items()}
        self.wire.meet(roster, 0, where=(0, 1), check=self.check)

    def deliver(self, now: float, host: int, channel: int, source: int, target: int, frames: list[Any]) -> None:
        with self.lock:
            for frame in frames:
                self.received += len(self.link.receive(frame))
            replies, self.link.replies = self.link.replies, []
        if replies:
            self.wire.post(host, channel, target, source, replies)

    def tend(self, now: float) -> float:
        self.cpu = time.thread_time()
        if now < self.due:
            return self.due
        self.due = now + OWED
        with self.lock:
            owed = self.link.acknowledgement()
        if owed is not None:
            self.wire.post(self.other, 0, self.host, self.other, [owed])
        return self.due

    def send(self, message: Any) -> None:
        with self.lock:
            frame = self.link.send(message)
            self.wire.post(self.other, 0, self.host, self.other, (frame,))

    def drain(self) -> None:
        while self.link.unacknowledged:
            time.sleep(0.001)


def maker(kind: str) -> Callable[[int], Any]:
    """number → a message."""
    from stretto.comm.messages import Update
    from stretto.runtime.cluster.blocks.ring import Block

    if kind == "block":
        data = np.random.default_rng(0).integers(0, 256, BLOCK).astype(np.uint8)
        return lambda i: Block(0, i, 0, 0, (data,))
    deltas = np.random.default_rng(0).normal(size=(ROWS, COLS)).astype(np.float32)
    keys = np.arange(0, ROWS * 100, 100, dtype=np.int64)
    return lambda i: Update(0, 0, i + 1, i, -1, keys, deltas, 48 + keys.nbytes + deltas.nbytes)


def measure(kind: str, encrypt: bool) -> Measured:
    """Send for some seconds to a new process."""
    words = [sys.executable, "-m", "bench.wire", "peer", kind, str(int(encrypt))]
    make = maker(kind)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        here = End(0, "bench", kind, encrypt)
        try:
            here.meet(json.loads(peer.stdout.readline()))
            peer.stdin.write(json.dumps(here.address()) + "\n")
            peer.stdin.flush()
            peer.stdout.readline()
            here.send(make(0))
            here.drain()
            cpu, sent = here.cpu, 1
            start = time.perf_counter()
            while time.perf_counter() - start < SECONDS:
                if here.wire.backlog(1) > AHEAD:
                    time.sleep(0.004)
                    continue
                for _ in range(64 if kind == "rows" else 1):
                    here.send(make(sent))
                    sent += 1
            here.drain()
            seconds = time.perf_counter() - start
            peer.stdin.write("end\n")
            peer.stdin.flush()
            told = json.loads(peer.stdout.readline())
            if told["received"] != sent or told["malformed"]:
                raise AssertionError(f"sent {sent}, and received {told}")
            spent = here.cpu - cpu
        finally:
            here.wire.close()
    each = make(0).nbytes
    return Measured(sent / seconds, sent * each / seconds, spent / sent * 1e6, told["cpu"] / sent * 1e6)


def peer(kind: str, encrypt: bool) -> None:
    """The other process."""
    there = End(1, "bench", kind, encrypt)
    print(json.dumps(there.address()), flush=True)
    there.meet(json.loads(sys.stdin.readline()))
    print("met", flush=True)
    sys.stdin.readline()
    told = {"received": there.received, "malformed": there.wire.counters.malformed, "cpu": there.cpu}
    print(json.dumps(told), flush=True)
    there.wire.close()


def with_ray() -> dict[tuple[str, int], Measured]:
    """push and pull of blocks and rows, through an actor."""
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

    @ray.remote(num_cpus=1)
    class Server:
        def __init__(self) -> None:
            self.rows = np.zeros((TABLE_ROWS, COLS), np.float32)
            self.block = np.zeros(BLOCK, np.uint8)

        def push_block(self, block: Any) -> None:
            self.block = block

        def pull_block(self) -> Any:
            return self.block

        def push_rows(self, keys: Any, deltas: Any) -> None:
            self.rows[keys] += deltas

        def pull_rows(self, keys: Any) -> Any:
            return self.rows[keys]

    server: Any = Server.remote()  # type: ignore[attr-defined]
    block = np.random.default_rng(0).integers(0, 256, BLOCK).astype(np.uint8)
    keys = np.arange(0, ROWS * 100, 100)
    deltas = np.ones((ROWS, COLS), np.float32)
    calls: dict[str, tuple[Callable[[], Any], int]] = {
        "push block": (lambda: server.push_block.remote(block), BLOCK),
        "pull block": (server.pull_block.remote, BLOCK),
        "push rows": (lambda: server.push_rows.remote(keys, deltas), 1024),
        "pull rows": (lambda: server.pull_rows.remote(keys), 1024),
    }
    found = {}
    try:
        for name, (call, size) in calls.items():
            for window in WINDOWS:
                ray.get([call() for _ in range(4)])
                flying: list[Any] = []
                count = 0
                start = time.perf_counter()
                while time.perf_counter() - start < SECONDS:
                    flying.append(call())
                    if len(flying) >= window:
                        ray.get(flying.pop(0))
                        count += 1
                ray.get(flying)
                rate = (count + len(flying)) / (time.perf_counter() - start)
                found[name, window] = Measured(rate, rate * size)
    finally:
        ray.shutdown()
    return found


def busy_seconds() -> float:
    """Seconds for which the machine's cores worked so far, for any process."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, words[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """The same for this process and those it started that have ended."""
    return sum(os.times()[:4])


def main() -> None:
    """Measure all of it."""
    began, busy, own = time.perf_counter(), busy_seconds(), own_seconds()
    ours: dict[tuple[str, bool], Measured] = {}
    for kind in ("block", "rows"):
        for encrypt in (True, False):
            runs = [measure(kind, encrypt) for _ in range(REPEATS)]
            middle = statistics.median(run.messages for run in runs)
            ours[kind, encrypt] = next(run for run in runs if run.messages == middle)
    others = (busy_seconds() - busy - (own_seconds() - own)) / (time.perf_counter() - began)
    rows = []
    for (kind, encrypt), got in ours.items():
        what = ("1 MB blocks" if kind == "block" else "1 KB rows") + (", CURVE" if encrypt else ", plain")
        cpu = f"{got.sender:.1f} / {got.receiver:.1f}"
        rows.append([what, f"{got.messages:,.0f}", f"{got.nbytes / 1e9:.3f}", cpu])
    ceiling = statistics.median(bare(BLOCK, 2000, True) for _ in range(REPEATS))
    rows.append(["bare ZeroMQ, 1 MB, CURVE", f"{ceiling:,.0f}", f"{ceiling * BLOCK / 1e9:.3f}", "—"])
    rays = with_ray()
    for (name, window), got in rays.items():
        what = f"Ray actor, {name}, {window} in flight"
        rows.append([what, f"{got.messages:,.0f}", f"{got.nbytes / 1e9:.3f}", "—"])
    ratios = [f"- 1 MB with CURVE: {ours['block', True].messages / ceiling:.2f} of what bare ZeroMQ moves"]
    for kind, size, asked in (("block", "1 MB", 4), ("rows", "1 KB", 10)):
        for window in WINDOWS:
            best = max(got.messages for (name, w), got in rays.items() if name.endswith(kind) and w == window)
            curve, plain = (ours[kind, encrypt].messages / best for encrypt in (True, False))
            ratios.append(
                f"- {size}: {curve:.1f} times a Ray actor with {window} calls in flight, {plain:.1f} times "
                f"without CURVE (asked: {asked}; Ray encrypts nothing and hands blocks over in shared memory)"
            )
    beside = f"- cores taken by other processes meanwhile, of {report.cores()}: {others:.2f} (fair with 0.1 or less)"
    body = report.table(["what", "messages/s", "GB/s", "wire thread, µs per message: sender / receiver"], rows)
    report.save(
        "wire", "The wire", report.text(__doc__), body + "\n\n" + "\n".join([*ratios, beside]), ["pyzmq", "ray"]
    )


if __name__ == "__main__" and sys.argv[1:2] == ["peer"]:
    peer(sys.argv[2], sys.argv[3] == "1")
