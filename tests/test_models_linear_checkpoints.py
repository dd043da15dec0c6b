"""Fits of linear models that are killed after any round and resumed end with the bits of one that never stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import stretto as st
from stretto.errors import CheckpointError, DataError, OtherPlan, PlanError
from stretto.observe.events import CheckpointSaved, EpochDone, Event
from stretto.observe.record import RunRecord

RNG = np.random.default_rng(7)
DENSE = RNG.normal(size=(60, 90))
DENSE[:, 1] = DENSE[:, 0] + 0.01 * DENSE[:, 1]
SPARSE = sp.random_array((80, 120), density=0.1, format="csc", random_state=3)
Y = DENSE[:, :6] @ RNG.normal(size=6) + 0.1 * RNG.normal(size=60)
Z = np.asarray(SPARSE[:, :9].sum(axis=1)) + 0.05 * RNG.normal(size=80)
THREE = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))
SETS = st.schedule.working_sets(first=4)

Fit = Callable[[Any], Any]
FITS: dict[str, Fit] = {
    "lasso": lambda s: st.Lasso(0.002, tol=1e-9, schedule=SETS).fit(DENSE, Y, session=s),
    "sparse": lambda s: st.ElasticNet(1e-3, l1_ratio=0.8, tol=1e-9, schedule=SETS).fit(SPARSE, Z, session=s),
    "positive": lambda s: st.Lasso(0.002, positive=True, standardize=True, tol=1e-10, schedule=SETS).fit(
        DENSE, Y, session=s
    ),
    "logistic": lambda s: st.LogisticRegression(20.0, tol=1e-8, schedule=SETS, l1_ratio=1.0).fit(
        DENSE, Y > 0, session=s
    ),
    "sparse logistic": lambda s: st.LogisticRegression(30.0, tol=1e-8, l1_ratio=1.0).fit(SPARSE, Z > 0.3, session=s),
    "one against the rest": lambda s: st.LogisticRegression(5.0, multi_class="ovr", l1_ratio=1.0).fit(
        DENSE, THREE, session=s
    ),
    "cross-validated": lambda s: st.LassoCV(n_alphas=4, cv=2, eps=0.05).fit(DENSE, Y, session=s),
    "ratios": lambda s: st.ElasticNetCV(l1_ratio=[0.4, 0.9], n_alphas=4, cv=2, eps=0.05).fit(DENSE, Y, session=s),
    "path": lambda s: st.lasso_path(DENSE, Y, n_alphas=6, eps=0.01, tol=1e-8, session=s),
    "schedule": lambda s: st.Lasso(0.2, tol=1e-5, max_iter=2000, schedule=st.schedule.prioritised(width=4)).fit(
        DENSE, Y, session=s
    ),
    "classes": lambda s: st.LogisticRegression(3.0, tol=1e-7, l1_ratio=1.0).fit(DENSE[:, :20], THREE, session=s),
    "ridge": lambda s: st.LogisticRegression(3.0, l1_ratio=0, tol=1e-9).fit(DENSE[:, :20], THREE, session=s),
    "groups": lambda s: st.GroupLasso(1e-3, groups=3, l1_ratio=0.1, tol=1e-10).fit(DENSE, Y, session=s),
    "sparse, several": lambda s: st.MultiTaskElasticNet(1e-3, l1_ratio=0.7, tol=1e-10).fit(
        SPARSE, np.c_[Z, Z**2], session=s
    ),
    "counts": lambda s: st.PoissonRegressor(1e-3, l1_ratio=0.8, tol=1e-9).fit(
        SPARSE, np.round(9 * np.abs(Z)), session=s
    ),
    "huber": lambda s: st.HuberElasticNet(1e-3, l1_ratio=0.9, epsilon=0.2, tol=1e-10).fit(DENSE, Y, session=s),
    "many classes": lambda s: st.LogisticRegression(9.0, tol=1e-6, l1_ratio=1.0).fit(
        SPARSE, np.digitize(Z, [0.2, 0.5]), session=s
    ),
    "sgd": lambda s: st.LogisticRegression(3.0, solver="sgd", optimizer="adarevision", max_iter=6, l1_ratio=1.0).fit(
        DENSE[:, :9], THREE, session=s
    ),
}


def bits(found: Any) -> list[bytes]:
    if isinstance(found, tuple | list) or not hasattr(found, "coef_"):
        return [np.asarray(part).tobytes() for part in (found.alphas, found.coefs, found.gaps, found.rounds)]
    names = ("coef_", "intercept_", "dual_gap_", "objective_", "n_iter_", "mse_path_")
    return [np.asarray(getattr(found, name)).tobytes() for name in names if hasattr(found, name)]


class Killed(BaseException):
    pass


class Killing:
    """Kills the fit when it has saved its n-th checkpoint."""

    def __init__(self, left: int = 1) -> None:
        self.left = left

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, CheckpointSaved):
            self.left -= 1
            if not self.left:
                raise Killed


def session(folder: Path, *listeners: Any, resume: bool = False, record: bool = False) -> st.Session:
    saving = st.Saving(folder / "checkpoints", every_epochs=1)
    return st.Session(folder if record else None, saving, resume, listeners=listeners)


def killed_and_resumed(fit: Fit, folder: Path, *listeners: Any) -> Any:
    """What comes of a fit that is killed after its first checkpoint, then after two, three, one, … more."""
    for kills in range(1000):
        try:
            found = fit(session(folder, *listeners, Killing(1 + kills % 3), resume=kills > 0))
        except Killed:
            continue
        assert kills >= 2, "it was hardly ever killed"
        return found
    raise AssertionError


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_killed_again_and_again(name: str, tmp_path: Path) -> None:
    seen: list[Any] = []
    found = killed_and_resumed(FITS[name], tmp_path / "killed", seen.append)
    whole: list[Any] = []
    assert bits(found) == bits(FITS[name](session(tmp_path / "whole", whole.append)))
    assert bits(found) == bits(FITS[name](None))
    assert {repr(row) for row in rows(seen)} == {repr(row) for row in rows(whole)}


def rows(events: list[Any]) -> list[tuple[Any, ...]]:
    return [(event.epoch, event.objective, event.metrics) for event in events if isinstance(event, EpochDone)]


def test_the_record_of_a_resumed_fit(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        FITS["path"](session(tmp_path, Killing(2), record=True))
    FITS["path"](session(tmp_path, resume=True, record=True))
    found = RunRecord.load(tmp_path)
    assert found.epochs["epoch"].tolist() == [1, 2, 3, 4, 5, 6]
    assert (np.diff(found.epochs["alpha"]) < 0).all()
    assert (found.run["status"], found.run["sessions"], len(found.run["fingerprint"])) == ("done", 2, 16)
    assert found.config["data digest"]
    assert "sufficient statistics" in (tmp_path / "plan.txt").read_text()


@pytest.mark.parametrize("where", [st.Threads(2), st.Simulated(nodes=3)], ids=["threads", "nodes"])
def test_resumed_on_another_runtime(where: Any, tmp_path: Path) -> None:
    """Nodes hold columns and products with them; the driver's vectors are all that a fit resumes from."""

    def fit(given: Any, runtime: Any) -> Any:
        return st.Lasso(0.002, tol=1e-9, schedule=SETS, runtime=runtime).fit(DENSE, Y, session=given)

    places = [where, st.Serial()]
    found = killed_and_resumed(lambda given: fit(given, places[given.resume]), tmp_path)
    assert bits(found) == bits(fit(None, st.Serial()))


def test_what_differs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        FITS["lasso"](session(tmp_path, Killing()))
    again = session(tmp_path, resume=True)
    with pytest.raises(OtherPlan, match=r"alpha is 0.002 in the checkpoint and 0.003 in this run"):
        st.Lasso(0.003, tol=1e-9, schedule=SETS).fit(DENSE, Y, session=again)
    with pytest.raises(OtherPlan, match=r"data digest is \w+ in the checkpoint and \w+ in this run"):
        st.Lasso(0.002, tol=1e-9, schedule=SETS).fit(DENSE, 2 * Y, session=again)
    with pytest.raises(CheckpointError, match="no checkpoints in"):
        FITS["lasso"](session(tmp_path / "empty", resume=True))
    with pytest.raises(CheckpointError, match="resume=True needs a folder of checkpoints"):
        FITS["lasso"](st.Session(resume=True))
    with pytest.raises((PlanError, DataError), match=r"session.* an st.Session"):
        FITS["lasso"]("runs/first")


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    for turn in range(2):
        with pytest.raises(Killed):
            FITS["lasso"](session(tmp_path, Killing(), resume=turn > 0))
    _, newest = sorted((tmp_path / "checkpoints").glob("checkpoint-*"))
    (newest / "arrays.safetensors").write_bytes(b"damaged")
    seen: list[Any] = []
    again = st.Session(saving=st.Saving(tmp_path / "checkpoints", 1), resume=True, listeners=(seen.append,))
    assert bits(FITS["lasso"](again)) == bits(FITS["lasso"](None))
    [rejected] = [event for event in seen if type(event).__name__ == "CheckpointRejected"]
    assert str(newest) in rejected.path


def test_the_interval_follows_from_how_long_saving_takes(tmp_path: Path) -> None:
    seen: list[Any] = []
    FITS["lasso"](st.Session(saving=st.Saving(tmp_path), listeners=(seen.append,)))
    assert not any(isinstance(event, CheckpointSaved) for event in seen)  # a short fit saves nothing
    FITS["lasso"](st.Session(saving=st.Saving(tmp_path, every_seconds=0), listeners=(seen.append,)))
    assert sum(isinstance(event, CheckpointSaved) for event in seen) >= 3


SCRIPT = """
import sys, time
from pathlib import Path
from test_models_linear_checkpoints import FITS, bits, session
from stretto.observe.events import EpochDone

def slow(event):
    if isinstance(event, EpochDone) and sys.argv[2] == "anew":
        time.sleep(0.05)

made = session(Path(sys.argv[1]), slow, resume=sys.argv[2] == "resume")
print(b"".join(bits(FITS["cross-validated"](made))).hex())
"""


def test_kill_dash_nine(tmp_path: Path) -> None:
    script, folder = tmp_path / "job.py", tmp_path / "run"
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}

    def start(how: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(script), str(folder), how], env=env, stdout=subprocess.PIPE, text=True
        )

    job = start("anew")
    deadline = time.monotonic() + 60
    while not any(folder.glob("checkpoints/checkpoint-0*3")) and job.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    job.send_signal(signal.SIGKILL)
    assert job.communicate()[0] == ""
    output, _ = start("resume").communicate(timeout=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert output.strip() == b"".join(bits(FITS["cross-validated"](None))).hex()
