"""Sparse logistic regression with its weights in another process: every read by itself, or listed ahead in bulk.

A server process holds the weights; the loop runs here, visit by visit, and reaches them through a local socket.
*Without prefetch* every read of a weight is a question and an answer (measured on some samples, and multiplied up to a
whole pass). *Bulk prefetch*: the function that was sliced out of the loop's body lists what every visit reads, one
question fetches that, the compiled visit runs, and one message takes the new weights back; the lists are made anew in
every pass. *Lists kept*: the same with the lists of the first pass. *In memory* is the same compiled loop without a
server. One process computes and one serves, as in the experiment of the Orion paper with KDD2010 (Algebra), where a
pass took 7682 s, 9.2 s with bulk prefetching and 6.3 s with cached lists.
"""

from __future__ import annotations

import math
import multiprocessing
import socket
import statistics
import struct
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st
from stretto.loops.execute.prepared import PreparedLoop
from stretto.loops.execute.run import run
from stretto.loops.loop_plan import LoopPlan

from . import report, sets

ONE, MANY, SET, END = b"o", b"m", b"s", b"e"
VISITS, PASSES, ALONE = 64, 5, 20_000  # ALONE: reads that are made one by one


@st.parallel
def epoch(samples, w, out, lr):  # type: ignore[no-untyped-def]
    """One pass of logistic regression; what is added to `out` goes to w."""
    for i, (y, features) in samples:  # noqa: B007
        z = 0.0
        for f, x in features:
            z += w[f] * x
        g = 1.0 / (1.0 + math.exp(-z)) - y
        for f, x in features:
            out[f] -= lr * g * x


# --- the process that holds the weights -----------------------------------------------------------------------------


def receive(link: socket.socket, room: memoryview) -> memoryview:
    """Fill the free buffer from the link."""
    at = 0
    while at < len(room):
        got = link.recv_into(room[at:])
        if not got:
            raise ConnectionError("the other side has gone")
        at += got
    return room


def received(link: socket.socket, n: int, dtype: str) -> NDArray[Any]:
    found = np.empty(n, dtype)
    if n:
        receive(link, found.data.cast("B"))
    return found


def serve(link: socket.socket, size: int) -> None:
    """Answer until asked to end."""
    weights = np.zeros(size, np.float32)
    head = memoryview(bytearray(9))
    while True:
        receive(link, head)
        op, n = bytes(head[:1]), struct.unpack_from("<q", head, 1)[0]
        if op == ONE:
            link.sendall(weights[n].tobytes())
        elif op == MANY:
            link.sendall(memoryview(weights[received(link, n, "i8")]).cast("B"))
        elif op == SET:
            which = received(link, n, "i8")
            weights[which] = received(link, n, "f4")
        else:
            return


@dataclass(frozen=True)
class Remote:
    """The weights, seen from here."""

    link: socket.socket

    def __getitem__(self, k: int) -> float:
        """One weight: a question and an answer."""
        self.link.sendall(ONE + struct.pack("<q", k))
        value: float = struct.unpack("<f", receive(self.link, memoryview(bytearray(4))))[0]
        return value

    def fetch(self, which: NDArray[np.int64]) -> NDArray[np.float32]:
        self.link.sendall(MANY + struct.pack("<q", len(which)) + which.tobytes())
        return received(self.link, len(which), "f4")

    def put(self, which: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        self.link.sendall(SET + struct.pack("<q", len(which)) + which.tobytes() + values.tobytes())


class Nothing:
    """Where the additions of the plain loop go when only its reads are measured."""

    def __getitem__(self, k: int) -> float:
        return 0.0

    def __setitem__(self, k: int, value: float) -> None:
        pass


# --- the three ways -------------------------------------------------------------------------------------------------


def one_by_one(data: Any, remote: Remote) -> float:
    """Seconds for each read, when every read is a question of its own."""
    some, reads = [], 0
    for record in data:
        some.append(record)
        reads += len(record[1][1])
        if reads >= ALONE:
            break
    began = time.perf_counter()
    epoch.plain(some, remote, Nothing(), 0.1)
    return (time.perf_counter() - began) / reads


def alone(prepared: PreparedLoop) -> list[PreparedLoop]:
    """The same loop, one visit at a time."""
    visits = prepared.visits
    every = [np.array([v], np.int64) for v in range(len(visits))]
    return [replace(prepared, visits=replace(visits, waves=(wave,))) for wave in every]


def in_bulk(
    plan: LoopPlan, visits: list[PreparedLoop], w: NDArray[Any], remote: Remote, crew: Any, keep: bool
) -> float:
    """Seconds of one pass in which every visit fetches what it reads, runs, and puts back what it changed."""
    part = plan.parts[0]
    began = time.perf_counter()
    prefetch = plan.prefetch()
    found = prefetch.elements(crew) if keep else prefetch.record(crew)
    ptr, elements = found.of("w")
    for v, visit in enumerate(visits):
        which = elements[ptr[v] : ptr[v + 1]]
        w[which] = remote.fetch(which)
        run(visit, plan.held, part.known, crew)
        remote.put(which, w[which])
    remote.fetch(elements[:1])  # the last message has arrived
    return time.perf_counter() - began


def in_memory(data: Any, columns: int, passes: int, crew: Any) -> tuple[float, NDArray[Any]]:
    """Seconds of a pass of the same visits without a server, and the weights after `passes` of them."""
    w = np.zeros(columns, np.float32)
    plan = made(data, w)
    taken = []
    for _ in range(passes):
        began = time.perf_counter()
        run(plan.parts[0].prepared, plan.held, plan.parts[0].known, crew)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken), w


def made(data: Any, w: NDArray[Any]) -> LoopPlan:
    """The plan: a wave for every visit, so that each sees what the one before it changed."""
    return epoch.using(blocks=(VISITS,), width=1).plan(data, w, st.buffer(w), 0.1)


def measure(name: str, data: Any, columns: int) -> list[object]:
    """One row of the table."""
    here, there = socket.socketpair()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there, columns), daemon=True)
    server.start()
    there.close()
    remote = Remote(here)
    reads = data.entries
    remote.fetch(np.zeros(1, np.int64))
    single = one_by_one(data, remote)
    w = np.zeros(columns, np.float32)
    plan = made(data, w)
    visits = alone(plan.parts[0].prepared)
    with st.Threads(1).open() as crew:
        fresh = [in_bulk(plan, visits, w, remote, crew, keep=False) for _ in range(PASSES)]
        kept = [in_bulk(plan, visits, w, remote, crew, keep=True) for _ in range(PASSES + 1)][1:]
        memory, expect = in_memory(data, columns, 2 * PASSES + 1, crew)
    every = np.arange(columns)
    same = "same bits" if np.array_equal(remote.fetch(every), expect) else "DIFFERENT"
    here.sendall(END + struct.pack("<q", 0))
    server.join()
    here.close()
    without, bulk, cached = single * reads, statistics.median(fresh), statistics.median(kept)
    listed = len(plan.prefetch().elements().visit_elements)
    return [
        name, f"{len(data):,}", f"{reads:,}", f"{listed:,}", f"{single * 1e6:.1f} µs", f"{without:.1f}", f"{bulk:.3f}",
        f"{cached:.3f}", f"{memory:.3f}", f"{without / bulk:.0f}", f"{bulk / cached:.2f}", same,
    ]  # fmt: skip


def generated(samples: int = 200_000, columns: int = 500_000, each: int = 36, seed: int = 0) -> Any:
    """Samples like those of KDD2010 at a fortieth of its size: as many features each, frequencies falling as 1/rank."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(seed)
    rank = np.exp(rng.random(samples * each) * math.log(columns)).astype(np.int64) - 1
    place = rng.permutation(columns)[rank]
    rows = np.repeat(np.arange(samples), each)
    X = csr_matrix((np.ones(len(rows), np.float32), (rows, place)), shape=(samples, columns))
    X.data[:] = 1.0
    return st.samples(X, (rng.random(samples) < 0.8).astype(np.float32))


def main() -> None:
    """Measure on generated samples, and on a9a where it is present."""
    rows = []
    folder = sets.real_data()
    path = None if folder is None else folder / "a9a" / "a9a.trn.libsvm.xz"
    if path is not None and path.exists():
        read = st.read(path, format="svmlight")
        assert read.labels is not None
        data = st.samples(read, (read.labels > 0).astype(np.float32))
        rows.append(measure("a9a", data, data.columns))
        print(rows[-1], flush=True)
    else:
        print("a9a was not found; set STRETTO_DATA to the folder of the real sets to include it")
    data = generated()
    rows.append(measure("generated", data, data.columns))
    columns = ["set", "samples", "reads", "listed", "one read", "without prefetch, s"]
    columns += ["bulk prefetch, s", "lists kept, s", "in memory, s", "without / bulk", "bulk / kept"]
    columns += ["weights against the loop in memory"]
    notes = [
        f"Seconds for one pass, median of {PASSES}, in {VISITS} visits, one at a time; *without prefetch* measured on",
        f"{ALONE:,} reads. *Listed*: elements in the lists of all visits together.",
    ]
    about = "\n".join([report.text(__doc__), *notes])
    report.save("prefetch", "Prefetch", about, report.table(columns, rows), ["scipy"])
