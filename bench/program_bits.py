"""The same bits everywhere: every schedule × loss × storage of `st.SparseRegression`, programs of Python functions, and
estimators, on `st.Serial()`, `st.Threads(1)`, `st.Threads(3)`, `st.Simulated(nodes=4)` and four namespace hosts.

The hosts are network namespaces of this computer at 1 Gbit with a Ray node each; they are started once and run all
cells. Each cell of a regression is run by rows and by columns, at pipeline depth 1 and 3, with an intercept. A cell is
*same* if coefficients, what is fitted, the history of the objective, the jobs of every round and the choices of the
schedule are equal bit by bit on all five. `--sample n` runs every n-th cell.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse

import stretto as st

from . import report

NODES, ROUNDS = 4, 40
ROWS, SIZE = 600, 80
LATENCY = 200e-6  # what `auto` takes as the latency, so that its choices are the same on all runtimes


def squared(change: Any) -> Any:
    """A priority function of the user's."""
    return change * change


def schedules() -> dict[str, Any]:
    """By name."""
    graph = scipy.sparse.random_array((SIZE, SIZE), density=0.03, format="csr", rng=np.random.default_rng(0))
    return {
        "cyclic": st.schedule.cyclic(4),
        "cyclic, shuffled": st.schedule.cyclic(4, shuffle=True),
        "random": st.schedule.random(6),
        "prioritised": st.schedule.prioritised(12, threshold=0.2),
        "prioritised, no conflicts": st.schedule.prioritised(4, conflicts=None),
        "prioritised, three schedulers": st.schedule.prioritised(8, threshold=0.2, schedulers=3),
        "prioritised, a priority function": st.schedule.prioritised(8, threshold=0.2, by=squared),
        "clustered": st.schedule.clustered((graph + graph.T) / 2, 6),
        "working sets": st.schedule.working_sets(first=10),
        "auto": st.schedule.auto(16, latency=LATENCY),
    }


def data(storage: str, loss: str) -> tuple[Any, Any]:
    """Correlated columns, few of which matter."""
    draw = np.random.default_rng(3)
    X = draw.standard_normal((ROWS, SIZE)) + 0.3 * draw.standard_normal((ROWS, 1))
    if storage == "sparse":
        X[np.abs(X) < 1.0] = 0.0
    y = X[:, ::9].sum(axis=1) + 0.5 * draw.standard_normal(ROWS) + 1.0
    target = y if loss == "squared" else np.where(y > np.median(y), 1.0, -1.0)
    return (scipy.sparse.csr_array(X) if storage == "sparse" else X), target


class Gradient(st.Program):
    """Gradient steps on least squares, rows in parts; a job is a coordinate. memory: parts keep a running mean."""

    def __init__(self, schedule: Any, *, memory: bool) -> None:
        X, y = data("dense", "squared")
        self.schedule = own_schedule if schedule is None else schedule
        self.parts, self.data, self.columns = 7, (X, y), X
        self.params = {"beta": np.zeros(SIZE)}
        if memory:
            setattr(self, "update", self._remembering)  # noqa: B010  takes the state of its part as well
            self.local = self._local

    def update(self, job: int, part: Any, params: Any) -> Any:
        X, y = part
        return (job,), X[:, job] @ (y - X @ params["beta"]) / len(y)

    def _local(self, part: Any) -> dict[str, Any]:
        return {"mean": 0.0}

    def _remembering(self, job: int, part: Any, params: Any, local: Any) -> Any:
        jobs, slope = Gradient.update(self, job, part, params)
        local["mean"] = 0.7 * local["mean"] + 0.3 * slope
        return jobs, slope + 0.1 * local["mean"]

    def merge(self, a: Any, b: Any) -> Any:
        return a[0], a[1] + b[1]

    def aggregate(self, results: Any, params: Any) -> Any:
        steps = np.array([0.02 * slope for _, slope in results])
        params["beta"][[job for (job,), _ in results]] += steps
        return steps

    def objective(self, data: Any, params: Any) -> float:
        return float(np.square(data[1] - data[0] @ params["beta"]).sum())


def own_schedule(state: Any) -> list[int]:
    """A schedule of the user's: what moved last, and some at random."""
    moved = [] if state.last is None else [state.last.jobs[int(np.abs(state.last.changes).argmax())]]
    return [*moved, *(int(job) for job in state.random.permutation(SIZE)[:5] if job not in moved)]


def regression_bits(schedule: Any, storage: str, loss: str) -> Callable[[Any], str]:
    """Both cuts, both depths."""
    X, y = data(storage, loss)

    def run(runtime: Any) -> str:
        found = hashlib.sha256()
        for by, depth in product(("rows", "columns"), (1, 3)):
            program = st.SparseRegression(
                X, y, 0.03, l1_ratio=0.8, loss=loss, intercept=True, schedule=schedule, by=by, blocks=5
            )
            result = st.run(program, rounds=ROUNDS, pipeline=depth, every=7, seed=4, record=True, runtime=runtime)
            _feed(found, result)
        return found.hexdigest()[:16]

    return run


def program_bits(schedule: Any, memory: bool) -> Callable[[Any], str]:
    """A program of Python functions, both depths."""

    def run(runtime: Any) -> str:
        found = hashlib.sha256()
        for depth in (1, 3):
            program = Gradient(schedule, memory=memory)
            _feed(found, st.run(program, rounds=ROUNDS, pipeline=depth, every=7, seed=4, record=True, runtime=runtime))
        return found.hexdigest()[:16]

    return run


def _feed(found: Any, result: Any) -> None:
    for name in sorted(result.params):
        found.update(np.ascontiguousarray(result.params[name]).tobytes())
    looks = [(look.round, look.objective, look.updates) for look in result.history]
    found.update(repr((looks, [(one.jobs, one.read) for one in result.record], result.choices)).encode())


def estimator_bits(make: Callable[[Any], Any], X: Any, y: Any, names: Sequence[str]) -> Callable[[Any], str]:
    """What an estimator has learned."""

    def run(runtime: Any) -> str:
        found = hashlib.sha256()
        model = make(runtime).fit(X) if y is None else make(runtime).fit(X, y)
        for name in names:
            found.update(np.ascontiguousarray(getattr(model, name)).tobytes())
        return found.hexdigest()[:16]

    return run


def cells() -> dict[tuple[str, str], Callable[[Any], str]]:
    """(what, how) -> run(runtime) -> bits."""
    found: dict[tuple[str, str], Callable[[Any], str]] = {}
    for name, schedule in schedules().items():
        for loss, storage in product(("squared", "logistic"), ("dense", "sparse")):
            found[f"SparseRegression, {name}", f"{loss}, {storage}"] = regression_bits(schedule, storage, loss)
    for name, schedule in {**schedules(), "a schedule of the program's own": None}.items():
        for memory in (False, True):
            how = "parts with state" if memory else "parts"
            found[f"program, {name}", how] = program_bits(schedule, memory)
    fits = ("coef_", "intercept_")
    for storage in ("dense", "sparse"):
        X, y = data(storage, "squared")
        labels, three = np.sign(y - np.median(y)), np.digitize(y, [-2.0, 3.0])
        found["Lasso", storage] = estimator_bits(lambda r: st.Lasso(0.05, runtime=r), X, y, fits)
        found["ElasticNet", storage] = estimator_bits(lambda r: st.ElasticNet(0.05, runtime=r), X, y, fits)
        found["LassoCV", storage] = estimator_bits(lambda r: st.LassoCV(runtime=r, cv=3), X, y, (*fits, "alpha_"))
        found["LogisticRegression, binary", storage] = estimator_bits(
            lambda r: st.LogisticRegression(l1_ratio=1.0, runtime=r), X, labels, fits
        )
        found["LogisticRegression, three classes", storage] = estimator_bits(
            lambda r: st.LogisticRegression(l1_ratio=1.0, runtime=r), X, three, fits
        )
    ratings = st.generate_ratings(20_000, 300, 200, rank=4, noise=0.3, seed=1).data
    for solver in ("sgd", "als", "ccd"):
        found[f"MatrixFactorization, {solver}", "ratings"] = estimator_bits(
            lambda r, solver=solver: st.MatrixFactorization(  # type: ignore[misc]
                n_components=8, solver=solver, max_iter=3, random_state=0, runtime=r, duplicates="last"
            ),
            ratings, None, ("user_factors_", "item_factors_"),
        )  # fmt: skip
    counts = np.random.default_rng(2).poisson(0.3, (200, 150)).astype(np.int32)
    found["LatentDirichletAllocation", "counts"] = estimator_bits(
        lambda r: st.LatentDirichletAllocation(8, max_iter=3, random_state=0, runtime=r), counts, None, ("components_",)
    )
    return found


class StartedCluster:
    """A cluster whose hosts are started once and run one job after another."""

    name = "cluster"

    def __init__(self, spec: st.Cluster, hosts: Any) -> None:
        self.spec, self.hosts, self.nodes, self.workers = spec, hosts, spec.nodes, spec.workers
        self.threads = spec.threads

    @contextmanager
    def crew(self) -> Iterator[Any]:
        """Runs passes over blocks."""
        from stretto.runtime.cluster.blocks.block_executor import ClusterCrew

        crew = ClusterCrew(self.hosts)
        try:
            yield crew
        finally:
            crew.close()

    open = crew

    @contextmanager
    def rounds(self, pipeline: Any, work: Any) -> Iterator[Any]:
        """Runs rounds of a program."""
        from stretto.runtime.cluster.hosts.fleet import packed
        from stretto.runtime.cluster.rounds.driver import HostRounds
        from stretto.runtime.cluster.rounds.task import make_rounds_task

        yield HostRounds(pipeline, work, self.hosts, make_rounds_task, pack=packed)


@contextmanager
def started(spec: st.Cluster) -> Iterator[StartedCluster]:
    """A cluster that is started once."""
    from stretto.runtime.cluster.hosts.hosts import Hosts

    with Hosts(spec) as hosts:
        yield StartedCluster(spec, hosts)


def compare(spec: st.Cluster, sample: int) -> dict[str, Any]:
    """Run cells on all runtimes; what differs, and seconds by runtime."""
    warnings.simplefilter("ignore")  # fits that end before they converge: bits are compared, not models
    chosen = list(cells().items())[::sample]
    local: dict[str, Any] = {
        "serial": st.Serial(),
        "threads(1)": st.Threads(1),
        "threads(3)": st.Threads(3),
        "simulated(4)": st.Simulated(nodes=4, latency=LATENCY),
    }
    rows, seconds = [], dict.fromkeys([*local, "hosts"], 0.0)
    began = time.perf_counter()
    with started(spec) as hosts:
        start = time.perf_counter() - began
        for (what, how), run in chosen:
            found = {}
            for name, runtime in {**local, "hosts": hosts}.items():
                began = time.perf_counter()
                try:
                    found[name] = run(runtime)
                except Exception as error:
                    found[name] = f"{name} failed: {type(error).__name__}: {error}"  # differs from the others
                seconds[name] += time.perf_counter() - began
            rows.append((what, how, found))
            print(f"# {len(rows)} of {len(chosen)}: {what}, {how}: {set(found.values())}", flush=True)
    return {"rows": rows, "seconds": seconds, "start": start}


def page(found: dict[str, Any]) -> str:
    """A row for each kind of cell."""
    table: dict[str, list[str]] = {}
    different = []
    for what, how, bits in found["rows"]:
        same = len(set(bits.values())) == 1
        table.setdefault(what, []).append(f"{how}: {'same' if same else 'DIFFERENT'}")
        if not same:
            different.append(f"- {what}, {how}: {bits}")
    body = report.table(["what", "cells"], [[what, "; ".join(each)] for what, each in table.items()])
    count = len(found["rows"])
    body += (
        f"\n\n{count - len(different)} of {count} cells have the same bits on all five runtimes. Hosts were started "
    )
    body += f"once, in {found['start']:.0f} s. Seconds of all cells: "
    body += ", ".join(f"{name} {seconds:.0f}" for name, seconds in found["seconds"].items()) + "."
    return "\n".join([body, "", *different]) if different else body


def on_laboratory(lab: Any, sample: int) -> dict[str, Any]:
    """Compare on a laboratory with Ray."""
    code = f"from bench.program_bits import on_hosts; on_hosts({sample})"
    done = lab.run([sys.executable, "-c", code], timeout=3000)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"it failed:\n{done.stdout[-4000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def main(argv: Sequence[str] = ()) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench program_bits", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sample", type=int, default=1, help="run every n-th cell")
    sample = parser.parse_args(list(argv)).sample
    from .laboratory import laboratory

    with laboratory(NODES) as lab:
        found = on_laboratory(lab, sample)
    command = f"program_bits --sample {sample}" if sample > 1 else "program_bits"
    body = page(found)
    report.save("program_bits", "The same bits everywhere", report.text(__doc__), body, ["ray", "pyzmq"], command)


def on_hosts(sample: int) -> None:
    """Compare, on the driver's machine; the last line is JSON."""
    print(json.dumps(compare(st.Cluster(nodes=NODES, patience=30.0, start_within=300.0), sample)))


if __name__ == "__main__":
    main(sys.argv[1:])
