"""The laboratory's network: a switch, and one cable of limited speed to each machine.

    network = Network()
    network.plug(machine, "100Mbit")
    network.limit(machine, "10Mbit"); network.up(machine, False)
    network.sent(machine)                    # Counted(data=…, ray=…, all=…, received=…)

The switch lives in a network namespace of its own, so nothing of this is seen on the computer itself. Each direction of
a cable is limited by a token bucket (`tbf`). Bytes are the kernel's: those of the interface, and by kind those of two
`htb` classes below the bucket on the sending side. They tell Ray from the rest by port: the laboratory gives Ray ports
from RAY_PORTS, and a connection neither of whose ends is one of these is the data plane's.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from machines import Holder, Machine

RAY_PORTS = range(8192, 16384)  # one mask for both ends, as u32 filters have it
CLONE_NEWNET = 0x40000000
DATA, RAY = 0x100001, 0x100002  # classes 10:1 and 10:2
GET_CLASS, NEW_CLASS, DONE, ERROR = 42, 40, 3, 2
DUMP = 0x301
KIND, STATS2, BASIC = 1, 7, 1


class Counted(NamedTuple):
    """Bytes a machine sent over its cable since it was plugged in: data plane, Ray, all; and what came in."""

    data: int
    ray: int
    all: int
    received: int


def bits(rate: str) -> int:
    """Bits in a second: "100Mbit" → 100_000_000."""
    for unit, size in (("Gbit", 10**9), ("Mbit", 10**6), ("kbit", 10**3), ("bit", 1)):
        if rate.endswith(unit):
            return int(float(rate[: -len(unit)]) * size)
    raise ValueError(f"a rate is like '100Mbit' or '1Gbit', not {rate!r}")


class Network:
    """A switch and its cables."""

    def __init__(self) -> None:
        self._switch = Holder("--net")
        self._run(self._switch.pid, "ip link add hub type bridge", "ip link set hub up", "ip link set lo up")
        self._sockets: dict[int, Classes] = {}

    def _run(self, pid: int, *commands: str) -> None:
        script = "\n".join(["set -e", *commands])
        done = subprocess.run(
            ["nsenter", "--target", str(pid), "--net", "sh", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        if done.returncode:
            raise RuntimeError(f"{'; '.join(commands)}: {done.stderr.strip()}")

    def plug(self, machine: Machine, rate: str | None) -> None:
        """Connect a machine; rate None: as fast as the kernel can."""
        port, ends = f"port{machine.number}", (machine.pid, self._switch.pid)
        subprocess.run(
            f"ip link add {port} netns {ends[1]} type veth peer name eth0 netns {ends[0]}".split(),
            check=True,
            timeout=20,
        )
        self._run(ends[1], f"ip link set {port} master hub up")
        self._run(ends[0], f"ip addr add {machine.ip}/24 dev eth0", "ip link set eth0 up")
        self.limit(machine, rate)

    def limit(self, machine: Machine, rate: str | None) -> None:
        """The speed of its cable, both ways, from now on."""
        port = f"port{machine.number}"
        known = machine.number in self._sockets
        speed = bits(rate or "40Gbit")
        # The bucket holds 5 ms, and at least two of the largest packets.
        tbf = f"tbf rate {speed}bit burst {max(131072, speed // 8 // 200)} latency 100ms"
        change = "change" if known else "add"
        self._run(self._switch.pid, f"tc qdisc {change} dev {port} root handle 1: {tbf}")
        self._run(machine.pid, f"tc qdisc {change} dev eth0 root handle 1: {tbf}")
        if known:
            return
        tcp = "protocol ip u32 match ip protocol 6 0xff"
        mask = f"{RAY_PORTS.start} {(0xFFFF ^ (len(RAY_PORTS) - 1)):#x}"
        fast = "htb rate 40Gbit quantum 60000 burst 1m cburst 1m"
        self._run(
            machine.pid,
            "tc qdisc add dev eth0 parent 1:1 handle 10: htb default 1",
            f"tc class add dev eth0 parent 10: classid 10:1 {fast}",
            f"tc class add dev eth0 parent 10: classid 10:2 {fast}",
            f"tc filter add dev eth0 parent 10: prio 1 {tcp} match ip sport {mask} flowid 10:2",
            f"tc filter add dev eth0 parent 10: prio 2 {tcp} match ip dport {mask} flowid 10:2",
        )
        self._sockets[machine.number] = Classes(machine.pid)

    def up(self, machine: Machine, up: bool = True) -> None:
        """Plug the cable in, or pull it out of the switch. The machine keeps its address and its connections."""
        self._run(self._switch.pid, f"ip link set port{machine.number} {'up' if up else 'down'}")

    def sent(self, machine: Machine) -> Counted:
        """What went over its cable so far. Cheap: no process is started."""
        received, sent = interface(machine.pid)
        by = self._sockets[machine.number].read()
        return Counted(by.get(DATA, 0), by.get(RAY, 0), sent, received)

    def close(self) -> None:
        """Take it all away."""
        for each in self._sockets.values():
            each.close()
        self._switch.close()


def interface(pid: int, name: str = "eth0") -> tuple[int, int]:
    """(received, sent) bytes of an interface of a process's network."""
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        if line.strip().startswith(f"{name}:"):
            numbers = line.split(":", 1)[1].split()
            return int(numbers[0]), int(numbers[8])
    raise LookupError(f"no interface {name} in the network of process {pid}")


class Classes:
    """Reads the byte counters of traffic classes of eth0 in a process's network, over a netlink socket."""

    def __init__(self, pid: int) -> None:
        made: list[tuple[socket.socket, int]] = []
        failed: list[OSError] = []

        def enter() -> None:
            # A socket belongs to the network its thread is in when it is made; only this thread moves.
            handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(handle, CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
                made.append((socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0), socket.if_nametoindex("eth0")))
            except OSError as error:
                failed.append(error)
            finally:
                os.close(handle)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        self._socket, self._index = made[0]
        self._socket.bind((0, 0))
        self._lock = threading.Lock()

    def read(self) -> dict[int, int]:
        """{class: bytes}."""
        with self._lock:
            ask = struct.pack("=IHHII", 36, GET_CLASS, DUMP, 1, 0) + struct.pack(
                "=BBHiIII", 0, 0, 0, self._index, 0, 0, 0
            )
            self._socket.send(ask)
            found: dict[int, int] = {}
            while True:
                for kind, body in _split(self._socket.recv(1 << 16)):
                    if kind in (DONE, ERROR):
                        return found
                    if kind == NEW_CLASS:
                        handle = struct.unpack_from("=I", body, 8)[0]
                        found[handle] = found.get(handle, 0) + _bytes(body[20:])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _split(answer: bytes) -> Iterable[tuple[int, bytes]]:
    at = 0
    while at < len(answer):
        size, kind = struct.unpack_from("=IH", answer, at)
        yield kind, answer[at + 16 : at + size]
        at += (size + 3) & ~3


def _attributes(body: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at + 4 <= len(body):
        size, kind = struct.unpack_from("=HH", body, at)
        found[kind & 0x3FFF] = body[at + 4 : at + size]
        at += (size + 3) & ~3
    return found


def _bytes(body: bytes) -> int:
    stats = _attributes(_attributes(body).get(STATS2, b""))
    return int(struct.unpack_from("=Q", stats[BASIC])[0]) if BASIC in stats else 0
