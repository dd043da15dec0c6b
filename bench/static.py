"""The static engine's switches: a barrier after every turn or after a rotation, heaviest job first or as given.

Matrix factorisation by SGD (rank 32) with 16 logical workers, and 64 as a pool of small jobs. "Uneven" cuts users and
items into equal numbers, those that are about as active together, blocks in no order: a skewed job pool, as the words
of a text are; "by histogram" is how plans cut. A round is one full rotation; the switches change no number, which is
checked.

Makespan: a rotation in virtual time, when a rating costs one unit, for 2 to 16 workers; given as the share of the
workers' time that is useful. Seconds: one rotation at 2 threads, the fastest of several in turns, both with the
compiled workers of the estimators, which claim visits by themselves (near ones first, then by this rule), and as an
`st.Program` whose jobs call compiled code.
"""

from __future__ import annotations

import time
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st
from stretto.data.partition import BlockPartition, cut
from stretto.kernels.factorization.sgd import sgd_worker
from stretto.programs.program import Program
from stretto.programs.run import run
from stretto.runtime.blocks import pass_control
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.layout import Blocks, lay_out, tally
from stretto.runtime.blocks.source import InMemory
from stretto.runtime.blocks.survey import survey
from stretto.runtime.blocks.team import Team
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.turns import FIRST, SYNC, Rotation, Turn, rotation
from stretto.solvers.factorization.problem import FactorizationProblem, new_factors
from stretto.solvers.factorization.sgd import sgd_step

from . import report, sets

THREADS = 2
ROUNDS = 15
PROBLEM = FactorizationProblem(32, learning_rate=0.01, schedule="constant")
SWITCHES = [(sync, first) for sync, first in product(reversed(SYNC), reversed(FIRST))]
NAMES = [f"{sync}, {first}" for sync, first in SWITCHES]

_NOUGHT = np.zeros(1, np.int64)
_ALONE = Order("alone", 1, 1, _NOUGHT, _NOUGHT)  # one visit by itself


class Laid:
    """Ratings in blocks, and factors to begin with."""

    def __init__(self, data: st.Data, blocks: int, crew: Crew, *, uneven: bool) -> None:
        seen = survey(InMemory(data), crew)
        self.order = rotation(blocks).order
        counts = seen.row_counts, seen.col_counts
        if uneven:
            rows, cols = (_uneven(count, blocks) for count in counts)
        else:
            rows, cols = (cut(count, blocks, seed=0, axis=axis) for axis, count in enumerate(counts))
        tallied = tally((data.rows, data.cols, data.values), rows, cols, self.order, crew)
        self.blocks: Blocks = lay_out(data, rows, cols, self.order, tallied, crew, mean=seen.mean, scale=seen.std)
        self.sizes = rows.sizes, cols.sizes
        self.factors = new_factors(PROBLEM, rows, cols, seen.empty, 0, crew, mean=seen.mean, scale=seen.std)
        self.weight = np.zeros((blocks, blocks), np.int64)
        self.weight[self.order.row_block, self.order.col_block] = self.blocks.weight
        self.visit = {Turn(w, b): v for v, (w, b) in enumerate(zip(*_pairs(self.order), strict=True))}
        states, held = self.states(), self.blocks
        arrays = (held.ptr, held.u, held.i, held.r, held.row_base, held.col_base)
        step = sgd_step(PROBLEM, self.order, 0, self.factors.scale, np.inf, arrays, states, (None, None))
        self.settings = step.args[len(arrays) + len(states) :]

    def args(self, states: tuple[Any, ...], first: int, last: int, *, apart: bool = False) -> tuple[Any, ...]:
        """Arguments of the compiled worker for visits first to last − 1. apart: the states begin with their blocks."""
        held = self.blocks
        base = held.row_base[first:last], held.col_base[first:last]
        if apart:
            base = _NOUGHT, _NOUGHT
        return held.ptr[first : last + 1], held.u, held.i, held.r, *base, *states, *self.settings

    def states(self) -> tuple[NDArray[Any], ...]:
        """Factors to begin with, copied."""
        parts = self.factors.W, self.factors.H, self.factors.b, self.factors.c
        return tuple(part.array.copy() for part in parts)


def _uneven(counts: Ints, blocks: int) -> BlockPartition:
    """Blocks of equally many rows, alike in activity, in an order that says nothing of it."""
    groups = np.array_split(np.argsort(-counts, kind="stable"), blocks)
    shuffled = [groups[k] for k in np.random.default_rng(0).permutation(blocks)]
    place = np.empty(len(counts), np.int32)
    place[np.concatenate(shuffled)] = np.arange(len(counts), dtype=np.int32)
    return BlockPartition(place, np.concatenate([[0], np.cumsum([len(group) for group in shuffled])]).astype(np.int64))


def _pairs(order: Order) -> tuple[list[int], list[int]]:
    return order.row_block.tolist(), order.col_block.tolist()


def claimed(laid: Laid, spec: Rotation, states: tuple[Any, ...], team: Team) -> float:
    """Seconds of one rotation by workers that claim visits: one pass, or one for every turn."""
    prepared = []
    for numbers, order in spec.waiting.passes:
        pass_ = pass_control.start(order, -spec.waiting.place[numbers])
        args = laid.args(states, int(numbers[0]), int(numbers[-1]) + 1)
        prepared.append([(pass_.words, worker, np.zeros(len(numbers)), *args) for worker in range(THREADS)])
    began = time.perf_counter()
    for shares in prepared:
        call = team.call(sgd_worker.exact, shares)
        call.wait()
        call.check()
    return time.perf_counter() - began


class Factorise(Program):
    """The same as a program: a job copies its rows and its block, and calls the compiled worker for one visit."""

    def __init__(self, laid: Laid, spec: Rotation, states: tuple[Any, ...]) -> None:
        self.data, self.schedule = laid, spec
        self.params = dict(zip(("W", "H", "b", "c"), states, strict=True))

    def places(self, job: Turn) -> tuple[slice, slice]:
        v, sizes = self.data.visit[job], self.data.sizes
        row, col = int(self.data.blocks.row_base[v]), int(self.data.blocks.col_base[v])
        return slice(row, row + int(sizes[0][job.worker])), slice(col, col + int(sizes[1][job.block]))

    def update(self, job: Turn, data: Laid, params: Any) -> Any:
        v, (rows, cols) = data.visit[job], self.places(job)
        states = params["W"][rows].copy(), params["H"][cols].copy(), params["b"][rows].copy(), params["c"][cols].copy()
        pass_ = pass_control.start(_ALONE, _NOUGHT, script=_NOUGHT)
        sgd_worker.exact(pass_.words, 0, np.zeros(1), *data.args(states, v, v + 1, apart=True))
        return rows, cols, states

    def aggregate(self, results: Any, params: Any) -> None:
        for rows, cols, (W, H, b, c) in results:
            params["W"][rows], params["b"][rows] = W, b
            params["H"][cols], params["c"][cols] = H, c


def as_program(laid: Laid, spec: Rotation, states: tuple[Any, ...]) -> float:
    """Seconds of one rotation as a program."""
    return run(Factorise(laid, spec, states), rounds=1, runtime=st.Threads(THREADS)).seconds


def measured(laid: Laid, specs: list[Rotation], team: Team) -> list[list[float]]:
    """[2][4] seconds of a rotation: claimed, as a program."""
    found: list[list[list[float]]] = [[[] for _ in specs] for _ in range(2)]
    for _ in range(ROUNDS + 1):
        ends = []
        for k, spec in enumerate(specs):
            for way in range(2):
                states = laid.states()
                found[way][k].append(as_program(laid, spec, states) if way else claimed(laid, spec, states, team))
                ends.append(states)
        for states in ends[1:]:
            if not all(np.array_equal(a, b) for a, b in zip(states, ends[0], strict=True)):
                raise AssertionError("a switch changed a number")
    return [[min(seconds[1:]) for seconds in way] for way in found]


def main() -> None:
    """Play and measure."""
    folder = sets.real_data()
    named = [("generated 2M", sets.generated(2_000_000, 30_000, 8_000))]
    if folder is not None:
        named.insert(0, ("MovieLens-1M", st.read(folder / "movielens-1m/ratings.tsv.xz", duplicates="last")))
    virtual: list[list[object]] = []
    real: list[list[object]] = []
    team = Team(THREADS)
    with st.Threads(THREADS).open() as crew:
        for (name, data), uneven, blocks in product(named, (True, False), (16, 64)):
            laid = Laid(data, blocks, crew, uneven=uneven)
            specs = [rotation(blocks, sync=sync, first=first, weight=laid.weight) for sync, first in SWITCHES]
            head = [name, "uneven" if uneven else "by histogram", blocks]
            for workers in (2, 4, 8, 16):
                shares = [len(data) / (workers * spec.span(workers)) for spec in specs]
                virtual.append([*head, workers, *(f"{share:.0%}" for share in shares), f"{shares[3] / shares[0]:.2f}×"])
                print(*virtual[-1], flush=True)
            if blocks > 16:
                continue
            for way, seconds in zip(("claimed", "program"), measured(laid, specs, team), strict=True):
                ratio = f"{seconds[0] / seconds[3]:.2f}×"
                real.append([*head, way, *(f"{1e3 * one:.1f}" for one in seconds), ratio])
                print(*real[-1], flush=True)
    team.close()
    columns = ["set", "cut", "logical workers"]
    body = "\n\n".join(
        [
            report.table([*columns, "workers", *NAMES, "last over first"], virtual),
            report.table([*columns, f"ms a rotation, {THREADS} threads", *NAMES, "first over last"], real),
        ]
    )
    report.save("static", "Rotation: barriers and the job pool", report.text(__doc__), body)


if __name__ == "__main__":
    main()
