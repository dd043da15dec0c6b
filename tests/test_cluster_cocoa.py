"""CoCoA on a cluster of processes: the bits of the serial runtime, also when a host is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st

SAMPLES, FEATURES = 96, 40


def data() -> tuple[Any, Any]:
    draw = np.random.default_rng(0)
    X = draw.standard_normal((SAMPLES, FEATURES))
    return X, X[:, :3] @ [1.0, -2.0, 0.5] + 0.1 * draw.standard_normal(SAMPLES)


def made(kind: str) -> Any:
    X, y = data()
    if kind == "lasso":
        return st.cocoa(X, y, alpha=0.05, parts=6, sigma="measured", max_rounds=6, tol=0.0)
    return st.cocoa(X, y > 0, loss="hinge", C=0.01, parts=6, max_rounds=6, tol=0.0)


def bits(task: Any, result: Any) -> Any:
    return task.shared.tobytes(), task.variables.tobytes(), tuple(result.history("gap")), task.objective, task.drift


@pytest.mark.parametrize("kind", ["lasso", "hinge"])
def test_processes_have_the_bits_of_the_serial_runtime(kind: str) -> None:
    one, other = made(kind), made(kind)
    wanted = bits(one, st.run(one, runtime=st.Serial()))
    result = st.run(other, runtime=st.Cluster("processes", nodes=2))
    assert bits(other, result) == wanted
    assert {stage.nodes for stage in result.stages if stage.unit == "solve"} == {(0, 1)}


class KillOnce:
    """A round whose host is killed at one moment, the first time."""

    def __init__(self, function: Any, marker: Path) -> None:
        self.function, self.marker, self.__name__ = function, marker, "solve"

    def __call__(self, worker: Any, *arguments: Any) -> Any:
        if worker.part == 5 and worker.iteration == 3 and not self.marker.exists():
            self.marker.write_text("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        return self.function(worker, *arguments)


def test_a_killed_host_costs_no_bits(tmp_path: Path) -> None:
    one, other = made("lasso"), made("lasso")
    wanted = bits(one, st.run(one, runtime=st.Serial()))
    rounds: Any = next(other.units())
    object.__setattr__(rounds, "function", KillOnce(rounds.function, tmp_path / "killed"))
    with pytest.warns(RuntimeWarning, match="was lost"):
        result = st.run(other, runtime=st.Cluster("processes", nodes=2))
    assert (tmp_path / "killed").exists()
    assert bits(other, result) == wanted
