"""Tasks on a cluster of processes: the bits of the serial runtime, hosts that stay, a host that is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from test_tasks import run_descent, truth


def test_stages_of_every_width_have_the_same_bits() -> None:
    cluster = st.Cluster("processes", nodes=3, threads=2)
    for width in (1, 3, "auto"):
        bits, history, result = run_descent(cluster, width)
        assert (bits, history) == truth(), width
        assert len({nodes for stage in result.stages for nodes in stage.nodes}) == 3


def where(worker: Any, numbers: Any, folder: str) -> None:
    Path(folder, f"{worker.iteration}-{worker.part}").write_text(str(os.getpid()))


def test_hosts_stay_and_read_their_parts_once(tmp_path: Path) -> None:
    reads = tmp_path / "reads"
    reads.mkdir()

    def read(part: int, parts: int) -> Any:
        (reads / f"{part}-{os.getpid()}").touch()
        return np.arange(part, 100, parts)

    numbers = st.source(read)
    task = st.loop(st.unit(where, numbers, str(tmp_path), parts=4), times=3)
    st.run(task, runtime=st.Cluster("processes", nodes=2))
    pids = {path.read_text() for path in tmp_path.glob("*-*") if path.is_file()}
    assert len(pids) == 2
    assert len(list(reads.iterdir())) == 4


def kill_once(worker: Any, w: Any, marker: str) -> None:
    w.add([worker.part], [1.0])
    if worker.part == 1 and worker.iteration == 2:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_host_costs_no_bits(tmp_path: Path) -> None:
    w = st.zeros(4, "f8")
    task = st.loop(st.unit(kill_once, w, str(tmp_path / "killed"), parts=4, iterations=4), times=2)
    with pytest.warns(RuntimeWarning, match="was lost"):
        st.run(task, runtime=st.Cluster("processes", nodes=2))
    assert w.array.tolist() == [8.0] * 4
    assert (tmp_path / "killed").exists()
