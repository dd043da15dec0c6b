"""Parts that nodes read: the bits of parts in memory, no data on the driver, and errors that name the part."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import stretto as st
from programs_cut import Cut, Remembering
from programs_made import bits
from rounds_fleet import Stepped
from stretto.errors import OtherPlan, RunError
from stretto.programs.part_sources import ProgramFilePart
from stretto.runtime.simulated.faults import Crash

PARTS = 5


def write(folder: Path) -> None:
    X, y = Cut().data
    for k in range(PARTS):
        rows = slice(10 * k, 10 * (k + 1))
        np.savez(folder / f"part-{k}.npz", X=X[rows], y=y[rows])


def load(path: Path) -> Any:
    """A part; says in which process it is read."""
    with open(path.parent / "read", "a") as log:
        log.write(f"{os.getpid()}\n")
    found = np.load(path)
    return found["X"], found["y"]


def made(kind: Any, folder: Path, *, files: bool = False) -> Any:
    paths = [folder / f"part-{k}.npz" for k in range(PARTS)]
    program = kind(parts=paths if files else [partial(load, path) for path in paths])
    program.data = None  # the driver has none
    program.objective = lambda data, params: float(params["beta"].sum())
    return program


class Files(Cut):
    """Parts are what a file holds."""

    def update(self, job: int, part: Any, params: Any) -> Any:
        return super().update(job, (part["X"], part["y"]), params)


def in_memory(kind: Any) -> Any:
    """The same from parts in memory."""
    X, y = Cut().data
    cut = [(X[10 * k : 10 * (k + 1)], y[10 * k : 10 * (k + 1)]) for k in range(PARTS)]
    program = kind(parts=[dict(zip("Xy", part, strict=True)) for part in cut] if kind is Files else cut)
    program.objective = lambda data, params: float(params["beta"].sum())
    return program


HOW: dict[str, Any] = {"rounds": 10, "pipeline": 2, "every": 5}


@pytest.mark.parametrize("kind", [Cut, Remembering, Files], ids=lambda kind: kind.__name__)
def test_the_bits_of_parts_in_memory(kind: Any, tmp_path: Path) -> None:
    write(tmp_path)
    wanted = bits(st.run(in_memory(kind), runtime=st.Serial(), **HOW))
    nodes = st.Simulated(nodes=3, faults=[Crash(1, at=0.0005, back_after=0.01)], detect=0.05)
    runtimes: tuple[Any, ...] = (st.Serial(), st.Threads(2), nodes, Stepped(3, 1, crash=0.01))
    for runtime in runtimes:
        assert bits(st.run(made(kind, tmp_path, files=kind is Files), runtime=runtime, **HOW)) == wanted, runtime
    assert nodes.report is not None
    assert nodes.report.losses  # and what the lost node held was read again


def test_nodes_read_and_the_driver_does_not(tmp_path: Path) -> None:
    write(tmp_path)
    result = st.run(made(Cut, tmp_path), runtime=st.Cluster("processes", nodes=2), **HOW)
    assert bits(result) == bits(st.run(in_memory(Cut), runtime=st.Serial(), **HOW))
    readers = [int(line) for line in (tmp_path / "read").read_text().split()]
    assert len(readers) == PARTS
    assert len(set(readers)) == 2
    assert os.getpid() not in readers
    plan = made(Cut, tmp_path).plan(runtime=st.Simulated(nodes=2), rounds=3)
    assert "5 of them read where they are held: the driver has none" in plan.explain()


def test_what_files_become(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3.0))
    assert ProgramFilePart.of(tmp_path / "a.npy").read_part().tolist() == [0, 1, 2]
    matrix = scipy.sparse.csr_array(np.eye(3))
    scipy.sparse.save_npz(tmp_path / "b.npz", matrix)
    assert (ProgramFilePart.of(tmp_path / "b.npz").read_part() != matrix).nnz == 0
    (tmp_path / "c.txt").write_text("1 2 3.5\n2 1 4.5\n")
    assert isinstance(ProgramFilePart.of(tmp_path / "c.txt").read_part(), st.Data)


@pytest.mark.parametrize("runtime", [st.Threads(2), st.Simulated(nodes=2)], ids=str)
def test_a_part_that_cannot_be_read_is_named(runtime: Any, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "part-3.npz").unlink()
    for files, error in ((True, "DataError|FileNotFoundError"), (False, "FileNotFoundError")):
        with pytest.raises(RunError, match=rf"part 4 of 5 could not be read: ({error}).*every node that may hold it"):
            st.run(made(Files if files else Cut, tmp_path, files=files), runtime=runtime, **HOW)


def test_a_file_that_changed_is_another_program(tmp_path: Path) -> None:
    write(tmp_path)
    saved = tmp_path / "saved"
    st.run(made(Files, tmp_path, files=True), rounds=4, checkpoint=saved, checkpoint_every=2)
    one = made(Files, tmp_path, files=True).plan(rounds=4).fingerprint
    assert made(Files, tmp_path, files=True).plan(rounds=4).fingerprint == one
    assert st.run(made(Files, tmp_path, files=True), rounds=6, checkpoint=saved, resume=True).rounds == 6
    X, y = Cut().data
    np.savez(tmp_path / "part-0.npz", X=X[:9], y=y[:9])
    assert made(Files, tmp_path, files=True).plan(rounds=4).fingerprint != one
    with pytest.raises(OtherPlan, match="data digest"):
        st.run(made(Files, tmp_path, files=True), rounds=8, checkpoint=saved, resume=True)
    first = made(Cut, tmp_path).plan(rounds=4).fingerprint
    other = made(Cut, tmp_path)
    other.parts[0] = partial(load, tmp_path / "part-1.npz")
    assert other.plan(rounds=4).fingerprint != first
