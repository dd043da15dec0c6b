"""`st.epochs`: a user's loop over epochs that is killed and resumed ends with the bits of one that never stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import CheckpointError, DataError, OtherPlan, PlanError, RunError
from stretto.observe.record import RunRecord
from stretto.runtime.loop_calls import watcher

RATINGS = st.generate_ratings(200, 30, 20).data
X = np.random.default_rng(0).normal(size=(12, 40))


@st.parallel
def epoch(ratings, W, H, lr, loss):  # type: ignore[no-untyped-def]
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * e * H[j], H[j] + lr * e * W[i]


@st.parallel(schedule=st.schedule.prioritised(width=3), seed=5)
def descend(X, beta, residual, lam):  # type: ignore[no-untyped-def]
    for j in range(X.shape[0]):
        pull = 0.0
        for i in range(X.shape[1]):
            pull += X[j, i] * residual[i]
        old = beta[j]
        beta[j] = old + 0.01 * (pull - lam * old)
        for i in range(X.shape[1]):
            residual[i] -= X[j, i] * (beta[j] - old)


class Killed(Exception):
    pass


def factorise(folder: Path, *, epochs: int = 7, kill: int = 99, loop: Any = epoch, **more: Any) -> list[bytes]:
    """Stochastic gradient descent with a learning rate that a generator draws; killed in the epoch `kill`."""
    W, H, loss = st.random((30, 4), seed=1), st.random((20, 4), seed=2), st.accumulator(0.0)
    draw, squares = np.random.default_rng(3), np.zeros(4)
    data = more.pop("data", RATINGS)
    states = {"W": W, "H": H, "loss": loss, "draw": draw, "squares": squares}
    for t in st.epochs(epochs, folder, states, **{"every": 2, **more}):
        loss.reset()
        loop(data, W, H, 0.01 * draw.random(), loss)
        squares += np.asarray(W)[t] ** 2
        if t == kill:
            raise Killed
    return [np.asarray(part).tobytes() for part in (W, H, loss, squares)]


def test_resumed_from_any_epoch(tmp_path: Path) -> None:
    expect = factorise(tmp_path / "whole")
    for kill in (0, 1, 2, 5):
        folder = tmp_path / str(kill)
        with pytest.raises(Killed):
            factorise(folder, kill=kill)
        assert factorise(folder) == expect
        then, now = (RunRecord.load(where) for where in (tmp_path / "whole", folder))
        assert then.epochs["objective"].tobytes() == now.epochs["objective"].tobytes()
        assert (now.run["status"], now.run["sessions"]) == ("done", 2)
    assert now.epochs["epoch"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert now.epochs["items"].tolist() == [200.0 * t for t in range(1, 8)]
    assert "loss" in now.epochs
    assert "plan" in (folder / "plan.txt").read_text()
    assert watcher.get() is None


def test_a_run_that_is_done_and_one_that_goes_further(tmp_path: Path) -> None:
    first = factorise(tmp_path / "a", epochs=3)
    assert factorise(tmp_path / "a", epochs=3) == first  # nothing is done again, and the states are restored
    assert factorise(tmp_path / "a") == factorise(tmp_path / "b")
    with pytest.raises(RunError, match="already holds the record of a run"):
        factorise(tmp_path / "a", resume=False)


def test_without_the_decorator(tmp_path: Path) -> None:
    found = factorise(tmp_path, epochs=2, loop=epoch.plain)
    assert len(found) == 4
    assert RunRecord.load(tmp_path).epochs["epoch"].tolist() == [1, 2]


def test_the_state_of_a_schedule_is_saved(tmp_path: Path) -> None:
    def run(folder: Path, kill: int = 99) -> list[bytes]:
        beta, residual = st.zeros(12, dtype="f8"), st.state(X[0] + X[3])
        loop = descend.using()
        for t in st.epochs(6, folder, {"beta": beta, "residual": residual}, every=1):
            if t == kill:
                raise Killed
            loop(X, beta, residual, 0.1)
        return [np.asarray(beta).tobytes(), np.asarray(residual).tobytes()]

    expect = run(tmp_path / "whole")
    for kill in (1, 4):
        with pytest.raises(Killed):
            run(tmp_path / str(kill), kill)
        assert run(tmp_path / str(kill)) == expect


def other(ratings: Any, W: Any, H: Any, lr: Any, loss: Any) -> None:
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + 2.0 * lr * e * H[j], H[j] + lr * e * W[i]


def test_what_differs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        factorise(tmp_path, kill=4, config={"lam": 0.5})
    with pytest.raises(OtherPlan, match=r"config lam is 0.5 in the checkpoint and 0.6 in this run"):
        factorise(tmp_path, config={"lam": 0.6})
    with pytest.raises(OtherPlan, match=r"another plan of loop epoch: .*data digest is \w+ in the checkpoint"):
        factorise(tmp_path, config={"lam": 0.5}, data=st.generate_ratings(201, 30, 20).data)
    with pytest.raises(OtherPlan, match=r"width is 16 in the checkpoint and 4 in this run"):
        factorise(tmp_path, config={"lam": 0.5}, loop=epoch.using(width=4))
    changed = st.parallel(other)
    changed.plain.__qualname__ = "epoch"
    with pytest.raises(OtherPlan, match=r"source is \w+ in the checkpoint and \w+ in this run"):
        factorise(tmp_path, config={"lam": 0.5}, loop=changed)
    W = st.zeros((31, 4))
    with pytest.raises(OtherPlan, match=r"W is State float32 \[30, 4\] in the checkpoint and State float32 \[31, 4\]"):
        next(iter(st.epochs(7, tmp_path, {"W": W}, config={"lam": 0.5})))
    assert factorise(tmp_path, config={"lam": 0.5}) == factorise(tmp_path / "whole", config={"lam": 0.5})


def test_data_that_differ_from_call_to_call(tmp_path: Path) -> None:
    batches = [st.generate_ratings(150 + k, 30, 20).data for k in range(3)]

    def run(folder: Path, kill: int = 99) -> bytes:
        W, H, loss = st.random((30, 4), seed=1), st.random((20, 4), seed=2), st.accumulator(0.0)
        for t in st.epochs(7, folder, {"W": W, "H": H, "loss": loss}, every=1):
            if t == kill:
                raise Killed
            epoch(batches[t % 3], W, H, 0.01, loss)
        return np.asarray(W).tobytes()

    with pytest.raises(Killed):
        run(tmp_path / "a", 5)
    assert run(tmp_path / "a") == run(tmp_path / "b")


def test_other_states_and_damage(tmp_path: Path) -> None:
    rows = st.sparse_rows((1000, 3))
    pairs: Any = np.zeros(4, [("x", "f4"), ("n", "i8")])
    states = {"rows": rows, "pairs": pairs, "draw": np.random.Generator(np.random.MT19937(1))}

    def run(folder: Path, count: int, then: Callable[[int], None] = lambda t: None) -> None:
        rows[...] = 0
        pairs["n"] = 0
        states["draw"] = np.random.Generator(np.random.MT19937(1))
        for t in st.epochs(count, folder, states, every=1):
            rows[t * 10] = states["draw"].random(3)
            pairs["n"][t % 4] += t
            then(t)

    run(tmp_path / "whole", 5)
    expect = rows.touched.tolist(), np.asarray(rows[40]).tobytes(), pairs.tobytes()
    run(tmp_path / "cut", 3)
    newest = max((tmp_path / "cut" / "checkpoints").glob("checkpoint-*"))
    (newest / "arrays.safetensors").write_bytes(b"damaged")
    with pytest.warns(RuntimeWarning, match="is damaged: .*the previous checkpoint is used"):
        run(tmp_path / "cut", 5)
    assert (rows.touched.tolist(), np.asarray(rows[40]).tobytes(), pairs.tobytes()) == expect
    for path in (tmp_path / "cut" / "checkpoints").glob("checkpoint-*/arrays.safetensors"):
        path.write_bytes(b"damaged")
    with (
        pytest.raises(CheckpointError, match=r"none of the 2 checkpoints .* Restore one from a copy, or start anew"),
        pytest.warns(RuntimeWarning, match="is damaged"),
    ):
        run(tmp_path / "cut", 6)


def test_log_and_leaving(tmp_path: Path) -> None:
    w = np.zeros(3)
    run = st.epochs(5, tmp_path, {"w": w}, every=1)
    for t in run:
        w += 1
        run.log(w.sum(), rmse=t / 2)
        if t == 2:
            break
    found = RunRecord.load(tmp_path)
    assert (found.run["status"], "was left" in found.run["message"]) == ("stopped", True)
    assert found.epochs["objective"].tolist() == [3.0, 6.0]
    assert found.epochs["rmse"].tolist() == [0.0, 0.5]
    for _ in st.epochs(5, tmp_path, {"w": w}):
        w += 1
    assert w.tolist() == [5.0] * 3
    first, second = (iter(st.epochs(6, tmp_path, {"w": w})) for _ in range(2))
    assert next(first) == 5
    with pytest.raises(RunError, match="this run"):
        next(second)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"states": {"w": 3.0}}, "which is not saved; give arrays"),
        ({"states": {"w": np.zeros(3, complex)}}, "complex128, which is not saved"),
        ({"states": {"a/b": np.zeros(3)}}, "names without a slash"),
        ({"states": {"w": np.broadcast_to(np.zeros(1), 3)}}, "read-only"),
        ({"states": {}}, "states"),
        ({"every": 0}, "every"),
        ({"count": 2.5}, "count"),
        ({"config": {"f": print}}, "config"),
    ],
)
def test_what_is_refused(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises((DataError, PlanError, ValueError), match=words):
        st.epochs(**{"count": 2, "folder": tmp_path, "states": {"w": np.zeros(2)}, **given})


SCRIPT = """
import sys, time
from pathlib import Path
import numpy as np
import stretto as st
from test_loops_epochs import RATINGS, epoch

W, H, loss = st.random((30, 4), seed=1), st.random((20, 4), seed=2), st.accumulator(0.0)
for t in st.epochs(40, sys.argv[1], {"W": W, "H": H, "loss": loss}, every=3):
    loss.reset()
    epoch(RATINGS, W, H, 0.01, loss)
    time.sleep(float(sys.argv[2]))
print(np.asarray(W).tobytes().hex(), loss.get())
"""


def test_kill_dash_nine(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}

    def start(folder: str, wait: float) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), str(tmp_path / folder), str(wait)]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    job = start("killed", 0.05)
    deadline = time.monotonic() + 60
    while not any(tmp_path.glob("killed/checkpoints/checkpoint-000009")) and job.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    job.send_signal(signal.SIGKILL)
    assert job.communicate()[0] == ""
    output, _ = start("killed", 0.0).communicate(timeout=60)
    W, H, loss = st.random((30, 4), seed=1), st.random((20, 4), seed=2), st.accumulator(0.0)
    for _ in range(40):
        loss.reset()
        epoch(RATINGS, W, H, 0.01, loss)
    assert output.split() == [np.asarray(W).tobytes().hex(), repr(loss.get())]
