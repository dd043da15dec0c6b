"""States by rows, columns and ranges, data that are declared as states, and when both are freed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import stretto as st
from stretto.errors import PlanError, RunError
from stretto.runtime.stages import data_store
from stretto.state.partitions import Ranges
from task_runtimes import RUNTIMES, runtime_named

DRAW = np.random.default_rng(3)
X = DRAW.standard_normal((40, 23))
S = sparse.random_array((50, 30), density=0.2, rng=DRAW)


# -- dense states ------------------------------------------------------------------------------------------------------


def normalise(worker: Any, D: Any, norms: Any) -> None:
    mine = D.read_own()
    length = np.sqrt((mine**2).sum(axis=0))
    norms.add(D.own, length)
    D.add_own(mine / length - mine)


def double_next(worker: Any, D: Any) -> float:
    """Adds to the first column of the next part, and reads all."""
    column = (int(D.own[-1]) + 1) % D.shape[1]
    D.add([column], D.read([column]))
    return float(D.read().sum())


def by_columns(runtime: Any) -> tuple[Any, ...]:
    D, norms = st.state(X, partition="columns"), st.zeros(23, "f8")
    task = st.seq(st.unit(normalise, D, norms, parts=4), st.unit(double_next, D, parts=4, iterations=2))
    value = st.run(task, runtime=runtime).value
    return D.array.copy(), norms.array.copy(), value


@cache
def serial_columns() -> tuple[Any, ...]:
    return by_columns(st.Serial())


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_part_has_columns_of_its_own_and_reads_and_writes_those_of_others(name: str) -> None:
    D, norms, value = by_columns(runtime_named(name))
    wanted, lengths, total = serial_columns()
    assert (wanted == D).all()
    assert (norms == lengths).all()
    assert value == total
    assert np.allclose(norms, np.linalg.norm(X, axis=0))
    unit = X / np.linalg.norm(X, axis=0)
    unit[:, [0, 5, 11, 17]] *= 4.0  # doubled twice: the first columns of the four parts
    assert np.allclose(D, unit)


def test_a_state_by_columns_is_an_array_and_is_saved_copied_and_started_anew(tmp_path: Path) -> None:
    D = st.state(X, partition="columns")
    assert (D.array == X).all()
    assert (D.copy().array == X).all()
    assert D.shape == (40, 23)
    D[3, 4] = 7.0
    assert D.array[3, 4] == 7.0 == D.stored.array[4, 3]
    D.save(tmp_path / "D.safetensors")
    assert (st.State.load(tmp_path / "D.safetensors").array == D.array).all()

    def add_one(worker: Any, D: Any) -> None:
        D.add_own(np.ones((D.shape[0], len(D.own))))

    before = D.array.copy()
    st.run(st.loop(st.unit(add_one, D, parts=3, fresh=[D]), times=3), runtime=st.Threads(2))
    assert (D.array == before + 1.0).all()


def test_a_checkpoint_has_states_by_columns(tmp_path: Path) -> None:
    def step(worker: Any, D: Any) -> None:
        D.add_own(0.5 * D.read_own())

    wanted = st.state(X, partition="columns")
    st.run(st.unit(step, wanted, parts=2, iterations=6), runtime=st.Serial())
    D = st.state(X, partition="columns")
    task = st.unit(step, D, parts=2, iterations=6)
    calls = []

    def stop(record: Any) -> None:
        calls.append(record)
        if len(calls) == 2:
            raise KeyboardInterrupt

    folder = str(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        st.run(task, runtime=st.Threads(1), checkpoint=folder, checkpoint_every="2 iterations", on_stage=stop)
    D.array[...] = 0.0
    st.run(task, runtime=st.Threads(1), checkpoint=folder, checkpoint_every="2 iterations", resume=True)
    assert (D.array == wanted.array).all()


def test_ranges_are_those_of_parts() -> None:
    def owners(worker: Any, w: Any) -> None:
        w.add_own(np.full(len(w.own), 1.0 + worker.part))

    for partition in ([0, 1, 7], [(0, 1), (1, 7), (7, 10)], [range(1), range(1, 7), range(7, 10)]):
        w = st.state(np.zeros(10), partition=partition)
        unit = st.unit(owners, w)
        assert unit.parts == 3
        st.run(unit, runtime=st.Serial())
        assert w.array.tolist() == [1.0, *[2.0] * 6, *[3.0] * 3]
    assert Ranges("rows", (0, 1, 7)).bounds(10, 2).tolist() == [0, 1, 10]
    assert Ranges("rows", (0, 1, 7)).bounds(10, 6).tolist() == [0, 0, 1, 1, 7, 7, 10]
    assert Ranges("columns").bounds(10, 4).tolist() == [0, 2, 5, 7, 10]


def test_own_rows_and_columns_are_on_the_node_of_the_part() -> None:
    def use_own(worker: Any, w: Any) -> None:
        w.add_own(w.read_own())

    def use_next(worker: Any, w: Any) -> None:
        numbers = (w.own + len(w.own)) % (4 * len(w.own))
        w.add(numbers, w.read(numbers))

    sent = {}
    sizes: dict[str, tuple[int, ...]] = {"rows": (4 * 8192,), "columns": (8192, 4)}
    for axis, size in sizes.items():
        for function in (use_own, use_next):
            w = st.state(np.ones(size), partition=axis)
            result = st.run(st.unit(function, w, parts=4, iterations=3), runtime=st.Simulated(nodes=4, threads=1))
            assert (w.array == 8.0).all()
            sent[axis, function.__name__] = sum(stage.sent for stage in result.stages)
    for axis in ("rows", "columns"):
        assert sent[axis, "use_own"] < sent[axis, "use_next"] / 10


# -- data that are declared as states ----------------------------------------------------------------------------------


def sum_columns(worker: Any, D: Any, total: Any) -> None:
    assert D.read(D.own[:1]).shape == (50, 1)
    total.add(D.own, np.asarray(D.read_own().sum(axis=0)).ravel())


def sum_rows(worker: Any, D: Any, total: Any) -> None:
    assert D.read(D.own[:1]).shape == (1, 30)
    total.add(D.own, np.asarray(D.read_own().sum(axis=1)).ravel())


@pytest.mark.parametrize("name", RUNTIMES)
@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_a_sparse_matrix_is_cut_and_only_read(name: str, axis: str) -> None:
    function, size, kind = (sum_rows, 50, "csr") if axis == "rows" else (sum_columns, 30, "csc")
    D, total = st.state(S, partition=axis), st.zeros(size, "f8")
    assert D.value.format == kind
    st.run(st.unit(function, D, total, parts=4), runtime=runtime_named(name))
    assert np.allclose(total.array, S.sum(axis=1 if axis == "rows" else 0))


def write_files(folder: Path) -> list[str]:
    for name in "abcd":
        lines = [f"{k % 3 - 1} 1:{k}.5 3:{ord(name)}" for k in range(40)]
        (folder / f"{name}.svm").write_text("\n".join(lines))
    return sorted(str(path) for path in folder.glob("*.svm"))


def sum_samples(worker: Any, D: Any, total: Any) -> int:
    X, y = D.read_own()
    assert sum(len(labels) for _, labels in D.blocks()) == len(y) == X.shape[0]
    total.add(np.arange(3), np.asarray(X.sum(axis=0)).ravel())
    return len(y)


@pytest.mark.parametrize("name", RUNTIMES)
def test_files_are_a_state_that_parts_read(name: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    D = st.state(st.files(str(tmp_path / "*.svm"), features=3, block_bytes=200), partition="rows")
    total = st.zeros(3, "f8")
    task = st.seq(st.unit(sum_samples, D, total, parts=3), st.unit(sum_samples, D, total, parts=3))
    assert "read by each part where it runs, only read" in task.logical()
    assert st.run(task, runtime=runtime_named(name)).value == 160
    assert total.array.tolist() == [2 * 4 * 800.0, 0.0, 2 * 40.0 * sum(map(ord, "abcd"))]


def test_a_path_is_opened_when_a_unit_uses_it(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("\n".join(f"{k},{k % 5},{k}.0" for k in range(100)))

    def total(worker: Any, D: Any) -> float:
        return float(D.read_own()[2].sum())

    D = st.state(tmp_path / "r.csv", partition="rows")
    assert D.opened is None
    units = [st.unit(total, D), st.unit(total, D)]
    assert units[0].arguments[0].value is units[1].arguments[0].value
    assert st.run(units[0], runtime=st.Threads(2)).value == 4950.0


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_source_is_read_once_by_each_part(name: str) -> None:
    def count(worker: Any, D: Any) -> int:
        return int(D.read_own().sum())

    D = st.state(st.source(lambda part, parts: np.arange(part, 100, parts)), partition="rows")
    unit = st.unit(count, D)
    assert unit.parts == 16
    assert st.run(unit, runtime=runtime_named(name)).value == 4950


def test_ratings_are_cut_by_records() -> None:
    data = st.generate_ratings(30, 20, 200, seed=1).data

    def count(worker: Any, D: Any) -> int:
        assert len(D.read(D.own[:2])) == 2
        return len(D.read_own())

    assert st.run(st.unit(count, st.state(data, partition="rows"), parts=4), runtime=st.Threads(2)).value == len(data)


# -- lifetimes ---------------------------------------------------------------------------------------------------------


def test_what_no_later_unit_uses_is_freed_while_the_task_runs() -> None:
    def load(worker: Any, D: Any, total: Any) -> None:
        total.add([0], [float(D.read_own().sum())])

    def held(worker: Any, total: Any) -> int:
        """Data sets of tasks that this process holds."""
        return sum(len(data_store.numbers_held(owner)) for owner in list(data_store._held))

    for runtime in (st.Serial(), st.Threads(2), st.Simulated(nodes=2, threads=1), st.Cluster("processes", nodes=2)):
        D = st.state(st.source(lambda part, parts: np.ones(10)), partition="rows")
        total, before = st.zeros(1, "f8"), len(data_store._held)
        inside = st.loop(st.seq(st.unit(held, total, parts=2, name="early"), st.unit(load, D, total, parts=2)), times=2)
        task = st.seq(st.unit(load, D, total, parts=2), inside, st.unit(held, total, parts=2, name="late"))
        result = st.run(task, runtime=runtime)
        assert total.array.tolist() == [60.0]
        values = {record.unit: record.value for record in result.stages if record.value is not None}
        assert values == {"early": 2.0, "late": 0.0}  # the loop needs the data until its last turn
        assert len(data_store._held) == before


def test_a_state_that_is_freed_early_keeps_its_values() -> None:
    def add_one(worker: Any, w: Any) -> None:
        w.add([worker.part], [1.0])

    for runtime in (st.Threads(2), st.Simulated(nodes=2, threads=1), st.Cluster("processes", nodes=2)):
        first, second = st.zeros(2, "f8"), st.zeros(2, "f8")
        task = st.seq(st.unit(add_one, first, parts=2), *[st.unit(add_one, second, parts=2) for _ in range(3)])
        st.run(task, runtime=runtime)
        assert first.array.tolist() == [1.0, 1.0]
        assert second.array.tolist() == [3.0, 3.0]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: st.state(np.zeros(4), partition="columns"), "give a matrix"),
        (lambda: st.state(np.zeros((4, 2)), partition="blocks"), "choose 'rows', 'columns'"),
        (lambda: st.state(np.zeros((4, 2)), partition=3), "choose 'rows', 'columns'"),
        (lambda: st.state(np.zeros(4), partition=[(0, 2), (3, 4)]), "without gaps"),
        (lambda: st.state(np.zeros(4), partition=[(0, 2), (2, 3)]), "from 0 to 4"),
        (lambda: st.state(np.zeros(4), partition=[0, 5]), "begins a range at row 5"),
        (lambda: st.state(S), "give partition='rows'"),
        (lambda: st.state(S, partition="rows", replicate=True), "not replicated"),
        (lambda: st.state("nowhere.csv", partition="columns"), "cut by rows"),
        (lambda: st.state(st.source(lambda part, parts: part), partition=[0, 3]), "evenly"),
        (lambda: st.state(st.source(lambda part, parts: part), "f4", partition="rows"), "dtype"),
    ],
)
def test_refusals(make: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        make()


def test_what_is_only_read_refuses_changes_and_rows_of_others() -> None:
    def change(worker: Any, D: Any) -> None:
        D.add([0], [[1.0] * 30])

    def reach(worker: Any, D: Any) -> None:
        D.read([49 - int(D.own[0])])

    def number(worker: Any, D: Any) -> None:
        print(D.own)

    D = st.state(S, partition="rows")
    with pytest.raises(RunError, match=r"only read; add to a state of st\.zeros"):
        st.run(st.unit(change, D, parts=2), runtime=st.Serial())
    with pytest.raises(RunError, match="are not all in this part"):
        st.run(st.unit(reach, D, parts=2), runtime=st.Serial())
    source = st.state(st.source(lambda part, parts: np.ones(3)), partition="rows")
    with pytest.raises(RunError, match="its rows have no numbers"):
        st.run(st.unit(number, source, parts=2), runtime=st.Serial())

    @st.parallel
    def loop(rows: Any, w: Any) -> None:
        for (i, j), r in rows:
            w[i, j] += r

    with pytest.raises(PlanError, match="declared by parts"):
        st.unit(loop, st.generate_ratings(30, 20, 200, seed=1).data, st.state(np.zeros((30, 20)), partition="columns"))
