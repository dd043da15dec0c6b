"""Jobs that the laboratory's tests run, and a process on host 0 that runs them on request.

    driver = Driver(lab)
    driver.ask("regression", nodes=4)["digest"]         # run it there and wait
    driver.tell("factorise", nodes=4, mark=path); …; driver.answer(60)

One process for many jobs: importing everything and joining Ray takes longer than the jobs do. A job returns a dict of
plain values: "digest" (of all that was learned), "seconds", "said" (warnings), or "error" and "notes" where it failed.
`mark` is a file that appears when the job is well under way, so that a test can strike then.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import stretto as st
from stretto.observe.events import EpochDone
from stretto.runtime.session import Session

if TYPE_CHECKING:
    from lab import Lab


def digest(*arrays: Any) -> str:
    """A hash of arrays, bit by bit."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def _mark(path: str) -> None:
    if path and not os.path.exists(path):
        Path(path).touch()


class Marking:
    """A callback of scikit-learn's kind that makes a file after some epochs."""

    def __init__(self, path: str, epoch: int) -> None:
        self.path, self.epoch = path, epoch

    def setup(self, estimator: Any, context: Any) -> None:
        """Nothing."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Nothing."""

    def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any, fitted_estimator: Any) -> bool:
        """Read the epoch; never stops."""
        if context.parent is not None and metadata["epoch"] >= self.epoch:
            _mark(self.path)
        return False

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing."""


def factorise(runtime: Any, epochs: int = 60, ratings: int = 100_000, mark: str = "", **more: Any) -> dict[str, Any]:
    """Matrix factorisation by rotation."""
    data = st.generate_ratings(ratings, 1500, 1200, rank=6, noise=0.4, seed=3).data
    model = st.MatrixFactorization(
        n_components=16, max_iter=epochs, random_state=0, runtime=runtime, duplicates="last", **more
    )

    def look(event: Any) -> None:  # a listener and no callback: nobody waits for it, and nodes are in two epochs
        if mark and isinstance(event, EpochDone) and event.epoch >= epochs // 4:
            _mark(mark)

    model.fit(data, session=Session(listeners=[look]))
    return {
        "digest": digest(model.user_factors_, model.item_factors_, model.user_bias_, model.item_bias_),
        "objective": float(model.history_[-1]["objective"]),
        "fingerprint": model.fingerprint_,
    }


def topics(runtime: Any, epochs: int = 30, tokens: int = 150_000, mark: str = "", **more: Any) -> dict[str, Any]:
    """A topic model: documents stay, words rotate, totals are merged between epochs."""
    draw = np.random.default_rng(4)
    documents, words = draw.integers(800, size=tokens), draw.zipf(1.3, size=tokens) % 600
    counts = np.zeros((800, 600), np.int32)
    np.add.at(counts, (documents, (words + 7 * (documents % 8)) % 600), 1)
    model = st.LatentDirichletAllocation(
        20, max_iter=epochs, evaluate_every=epochs // 3, random_state=0, runtime=runtime, **more
    )
    if mark:
        model.set_callbacks(Marking(mark, epochs // 4))
    model.fit(counts)
    return {
        "digest": digest(model.components_, model.doc_topic_prior_),
        "objective": float(model.history_[-1]["objective"]),
        "fingerprint": model.fingerprint_,
    }


def _pictures(samples: int = 2400, features: int = 48, classes: int = 6) -> tuple[Any, Any]:
    draw = np.random.default_rng(5)
    y = draw.integers(classes, size=samples)
    X = draw.normal(size=(classes, features))[y] + 2.0 * draw.normal(size=(samples, features))
    return X.astype(np.float32), y


def regression(
    runtime: Any, clocks: int = 60, workers: int = 8, sync: str = "BSP", mark: str = "", pause: float = 0.0
) -> dict[str, Any]:
    """Multiclass logistic regression over two tables: weights by feature, and biases."""
    X, y = _pictures()
    features, classes = X.shape[1], int(y.max()) + 1

    def work(w: Any) -> None:
        weights, biases = w.table("weights"), w.table("biases")
        keys = np.arange(features)
        mine = slice(w.number, None, w.workers)
        part, target = X[mine], y[mine]
        for clock in w.clocks(clocks):
            if pause:
                time.sleep(pause)  # work that takes a while: a test kills a host in the middle of it
            if clock == clocks // 4 and w.number == 0 and mark and not os.path.exists(mark):
                Path(mark).touch()
            scores = part @ weights.read(keys) + biases.read([0])[0]
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            chances[np.arange(len(target)), target] -= 1.0
            weights.add(keys, -0.02 / w.workers * (part.T @ chances))
            biases.add([0], -0.02 / w.workers * chances.sum(axis=0, keepdims=True))
            w.work(len(target))

    found = st.run(
        work,
        workers=workers,
        tables={
            "weights": st.tables.Table(rows=features, cols=classes),
            "biases": st.tables.Table(rows=1, cols=classes, apply=st.tables.adagrad(0.1)),
        },
        sync=st.tables.BSP() if sync == "BSP" else st.tables.SSP(2),
        watch=lambda view: float((np.argmax(X @ view["weights"] + view["biases"][0], axis=1) == y).mean()),
        every=clocks // 6,
        runtime=runtime,
    )
    looks = [(look.clock, look.objective) for look in found.history]
    restarts = [] if found.recording is None else found.recording.restarts
    return {
        "digest": digest(found.tables["weights"], found.tables["biases"]),
        "objective": looks[-1][1],
        "looks": looks,
        "restarts": len(restarts),
        "took": found.seconds,
    }


def failing(runtime: Any) -> dict[str, Any]:
    """A worker that raises."""

    def work(w: Any) -> None:
        for clock in w.clocks(10):
            w.table("x").add([w.number], [1.0])
            if w.number == 3 and clock == 4:
                raise ValueError("the well is dry")

    st.run(work, workers=4, tables={"x": st.tables.Table(rows=4)}, runtime=runtime)
    return {}


def program(runtime: Any, rounds: int = 400, parts: int = 12, mark: str = "", pause: float = 0.0) -> dict[str, Any]:
    """A Lasso by rounds: rows in parts, each with a state of its own, three rounds in flight."""
    draw = np.random.default_rng(6)
    X = draw.standard_normal((1200, 200))
    y = X[:, :6].sum(axis=1) + 0.1 * draw.standard_normal(1200)
    found = (X * X).sum(axis=0)

    def update(job: int, part: Any, params: Any, local: Any) -> Any:
        if pause:
            time.sleep(pause)  # work that takes a while: a test kills a host in the middle of it
        local["updates"] += 1
        columns, rows = part
        return job, columns[:, job] @ params["r"][rows], local["updates"]

    def aggregate(results: Any, params: Any) -> Any:
        moved = []
        for job, slope, updates in results:
            beta = params["beta"][job]
            z = slope + found[job] * beta
            step = np.sign(z) * max(abs(z) - 20.0, 0.0) / found[job] - beta
            params["beta"][job] += step
            params["r"] -= X[:, job] * step
            params["updates"][job] += updates
            moved.append(abs(step))
        return moved

    def schedule(state: Any) -> Any:
        if mark and state.round >= rounds // 10 and not os.path.exists(mark):
            Path(mark).touch()
        return ((np.arange(8) * 23 + 8 * state.round) % 200).tolist()

    made = st.program(
        update=update,
        merge=lambda a, b: (a[0], a[1] + b[1], a[2] + b[2]),
        aggregate=aggregate,
        schedule=schedule,
        data=(X, np.arange(len(X))),
        parts=parts,
        local=lambda part: {"updates": 0},
        params={"beta": np.zeros(200), "r": y.copy(), "updates": np.zeros(200)},
    )
    result = st.run(made, rounds=rounds, pipeline=3, every=rounds, runtime=runtime)
    return {"digest": digest(result.params["beta"], result.params["r"], result.params["updates"])}


def lasso(runtime: Any, steps: int = 60, mark: str = "") -> dict[str, Any]:
    """A path of Lassos: columns on the nodes."""
    draw = np.random.default_rng(8)
    X = draw.standard_normal((400, 20_000)).astype(np.float32)
    y = X[:, :20] @ draw.standard_normal(20) + 0.5 * draw.standard_normal(400)
    if mark:
        _mark(mark)
    _, found, gaps = st.lasso_path(X, y, n_alphas=steps, tol=1e-8, runtime=runtime)
    return {"digest": digest(found, gaps)}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "program": program,
    "lasso": lasso,
    "factorise": factorise,
    "topics": topics,
    "regression": regression,
    "failing": failing,
}


def do(job: str, options: dict[str, Any]) -> dict[str, Any]:
    """Run a job; an error becomes part of the answer."""
    where = {name: options.pop(name) for name in list(options) if name in CLUSTER}
    began = time.monotonic()
    said: list[str] = []

    def hear(message: Warning | str, *_: Any, **__: Any) -> None:
        said.append(str(message))
        print(f"{time.monotonic() - began:.1f} s: {message}", file=sys.stderr, flush=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = hear
        try:
            answer = JOBS[job](st.Cluster(**where), **options)
        except Exception as error:
            chain: list[BaseException] = [error]
            while chain[-1].__cause__ is not None:
                chain.append(chain[-1].__cause__)
            notes = [note for each in chain for note in getattr(each, "__notes__", ())]
            answer = {"error": f"{type(error).__name__}: {error}", "notes": notes}
    return {**answer, "seconds": time.monotonic() - began, "said": said}


CLUSTER = ("address", "nodes", "threads", "encrypt", "patience", "start_within", "replace_within", "restarts")


class Driver:
    """The process on host 0, from outside."""

    def __init__(self, lab: Lab) -> None:
        self._machine = lab.machines[0]
        self.log = lab.machines[0].folder / "driver.log"
        with self.log.open("w") as file:
            self.process = lab.machines[0].start(
                [sys.executable, __file__], lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
            )

    def tell(self, job: str, **options: Any) -> None:
        """Have a job begun."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([job, options]) + "\n")
        self.process.stdin.flush()

    def ready(self, timeout: float) -> bool:
        """Whether there is an answer within `timeout` seconds."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], timeout)[0])

    def answer(self, timeout: float = 60.0) -> dict[str, Any]:
        """What became of it."""
        assert self.process.stdout is not None
        ready = self.ready(timeout)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self._where()
            state = "no answer" if not ready else f"it ended with {self.process.wait(10)}"
            raise RuntimeError(f"driver: {state} after {timeout:g} s; {self.log}:\n{self.log.read_text()[-4000:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _where(self) -> None:
        """Have it write to its log what it is doing, and wait until that is written."""
        before = self.log.stat().st_size
        below = [pid for pid, line in self._machine.processes().items() if line.endswith(__file__)]
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + 5.0  # a process that is stopped writes nothing
        size = last = before
        while (size == before or size != last) and time.monotonic() < deadline:  # until it grew, and grows no more
            time.sleep(0.05)
            last, size = size, self.log.stat().st_size

    def ask(self, job: str, timeout: float = 60.0, **options: Any) -> dict[str, Any]:
        """Both."""
        self.tell(job, **options)
        return self.answer(timeout)

    def close(self) -> None:
        """End it, and with it the process that entered the machine for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def struck(
    lab: Lab, driver: Driver, job: str, kills: int, draw: random.Random, within: float = 300.0, **options: Any
) -> tuple[dict[str, Any], int]:
    """A job during which host processes are killed at random moments once it runs, also while others are replaced.

    The answer, and how many were killed before it came.
    """
    mark = lab.folder / f"mark-{time.monotonic_ns()}"
    driver.tell(job, mark=str(mark), **options)
    deadline = time.monotonic() + within
    while not mark.exists() and time.monotonic() < deadline and not driver.ready(0.02):
        pass
    done = 0
    while done < kills and time.monotonic() < deadline and not driver.ready(draw.uniform(0.2, 5.0)):
        held = [host for host in range(len(lab.machines)) if lab.actors(host)]
        if held:
            done += len(lab.kill_actor(draw.choice(held)))
    return driver.answer(max(1.0, deadline - time.monotonic())), done


def main() -> None:
    """Jobs from standard input, a line each; answers to standard output."""
    faulthandler.register(signal.SIGUSR1)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes to the log
    for line in sys.stdin:
        job, options = json.loads(line)
        print(json.dumps(do(job, options)), file=out, flush=True)


if __name__ == "__main__":
    main()
