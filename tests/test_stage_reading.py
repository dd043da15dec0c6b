"""Data that are read in blocks while training: what iterations see, errors, sharing, memory, files of nodes."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import DataError, PlanError, RunError
from stretto.runtime.stages import data_store
from stretto.runtime.stages.stage_runs import StagePlace
from stretto.schedule.stages.stage_placement import place_near

WITHIN = 60.0  # seconds that a test waits for another thread


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "stretto-reader"]


def numbers(part: int, parts: int, block: int) -> Any:
    return np.arange(3.0) + 10 * block + 100 * part


def descend(worker: Any, batch: Any, w: Any) -> float:
    w.add(np.arange(3), 0.1 * (batch - w.read(np.arange(3))))
    return float(batch[0])


def total(worker: Any, blocks: Any, w: Any) -> float:
    assert len(blocks) == 4
    return float(sum(block.sum() for block in blocks) + w.read([0])[0])


def batches_task(w: Any, **how: Any) -> Any:
    batches = st.source(numbers, blocks=4, **how)
    step = st.unit(descend, batches, w, parts=3, iterations=5)
    return st.loop(st.seq(step, st.unit(total, batches.all(), w, parts=3)), times=2)


def run_batches(runtime: Any, **how: Any) -> tuple[bytes, Any]:
    w = st.zeros(3, "f8")
    result = st.run(batches_task(w, **how), runtime=runtime)
    return w.array.tobytes(), [stage.value for stage in result.stages]


@pytest.mark.parametrize(
    "runtime",
    [st.Threads(1), st.Threads(3), st.Simulated(nodes=2), st.Cluster("processes", nodes=2)],
    ids=lambda runtime: type(runtime).__name__ + str(runtime.workers),
)
def test_iterations_see_the_same_blocks_on_every_runtime(runtime: Any) -> None:
    bits, values = run_batches(st.Serial())
    # Iterations 4 and 9 of a unit get blocks 0 and 1, and its value is the sum over three parts.
    assert values[0::2] == [300.0, 330.0]
    assert (bits, values) == run_batches(runtime)
    assert (bits, values) == run_batches(runtime, ahead=1, memory=60)  # two blocks of 24 bytes


def test_training_starts_while_blocks_still_load() -> None:
    begun = threading.Event()

    def read(part: int, parts: int, block: int) -> Any:
        assert block == 0 or begun.wait(WITHIN), "block 1 was waited for before iteration 0"
        return np.array([float(block)])

    def use(worker: Any, batch: Any, w: Any) -> None:
        begun.set()
        w.add([0], batch)

    w = st.zeros(1, "f8")
    st.run(st.unit(use, st.source(read, blocks=3), w, parts=2, iterations=3), runtime=st.Threads(2))
    assert w.array[0] == 6.0


def test_no_more_blocks_are_read_ahead_than_asked_for() -> None:
    reads: list[int] = []

    def read(part: int, parts: int, block: int) -> Any:
        reads.append(block)
        return np.array([float(block)])

    def use(worker: Any, batch: Any) -> int:
        while pending := readers():  # threads end when there is nothing more to read
            pending[0].join(WITHIN)
        return len(reads)

    result = st.run(st.unit(use, st.source(read, blocks=9, ahead=2), iterations=4), runtime=st.Threads(1))
    assert result.value == 6  # blocks 0 to 3, and two ahead
    assert sorted(reads) == list(range(6))


def test_blocks_beyond_the_memory_are_read_again() -> None:
    reads: list[int] = []

    def read(part: int, parts: int, block: int) -> Any:
        reads.append(block)
        return np.full(100, float(block))

    def use(worker: Any, batch: Any, w: Any) -> None:
        w.add([0], [batch.mean()])

    found = []
    for memory in (None, "2KiB"):  # a block has 800 bytes
        reads.clear()
        w = st.zeros(1, "f8")
        st.run(st.unit(use, st.source(read, blocks=5, memory=memory), w, iterations=15), runtime=st.Threads(1))
        found.append((float(w.array[0]), len(reads)))
    assert found[0] == (30.0, 5)
    assert found[1][0] == 30.0
    assert 5 < found[1][1] <= 15 + 2  # two are ahead at the end


def test_an_error_of_a_reader_names_unit_part_and_block() -> None:
    def read(part: int, parts: int, block: int) -> Any:
        if block == 2 and part == 1:
            raise ValueError("no such luck")
        return np.array([1.0])

    def use(worker: Any, batch: Any) -> None:
        pass

    task = st.unit(use, st.source(read, blocks=3), parts=2, iterations=3)
    match = r"unit use: block 2 of part 1 cannot be read: ValueError: no such luck"
    for runtime in (st.Serial(), st.Threads(2), st.Cluster("processes", nodes=2)):
        with pytest.raises(RunError, match=match):
            st.run(task, runtime=runtime)


def test_a_failing_unit_ends_the_readers() -> None:
    reads: list[int] = []
    failed = threading.Event()

    def read(part: int, parts: int, block: int) -> Any:
        if block > 1:  # is being read when the unit fails
            assert failed.wait(WITHIN)
        reads.append(block)
        return np.array([1.0])

    def use(worker: Any, batch: Any) -> None:
        raise ValueError("stop")

    def fine(worker: Any, batch: Any) -> None:
        pass

    source = st.source(read, blocks=100, ahead=100)
    session = st.Session()
    task = session.submit(st.unit(use, source, iterations=100), runtime=st.Threads(1))
    later = session.submit(st.unit(fine, source), after=[task])  # so that the data are needed when the unit fails
    with pytest.raises(RunError, match="unit use failed in part 0, iteration 0: ValueError: stop"):
        task.result(WITHIN)
    failed.set()
    with pytest.raises(RunError, match="was skipped"):
        later.result(WITHIN)
    while pending := readers():
        pending[0].join(WITHIN)
    assert len(reads) <= 4  # those of iterations 0 and 1, and one of each thread
    session.close()


def test_blocks_are_read_once_and_freed_after_their_last_task() -> None:
    reads: list[tuple[int, int]] = []
    alive: list[Any] = []

    def read(part: int, parts: int, block: int) -> Any:
        reads.append((part, block))
        found = np.full(10, 1.0)
        alive.append(weakref.ref(found))
        return found

    batches = st.source(read, blocks=3)
    submitted = threading.Event()  # data are freed when no task is left that needs them, so all must be known

    def use(worker: Any, batch: Any) -> float:
        assert submitted.wait(WITHIN)
        return float(batch.sum())

    def use_all(worker: Any, blocks: Any) -> float:
        return float(sum(block.sum() for block in blocks))

    session = st.Session()
    first = session.submit(st.unit(use, batches, parts=2, iterations=3), runtime=st.Threads(2))
    second = session.submit(st.loop(st.unit(use_all, batches.all(), parts=2), times=2), after=[first])
    third = session.submit(st.unit(use, batches, parts=2, iterations=4), after=[second])
    submitted.set()
    assert [task.result(WITHIN).value for task in (first, second, third)] == [20.0, 60.0, 20.0]
    assert sorted(reads) == [(part, block) for part in range(2) for block in range(3)]
    gc.collect()
    assert not [one for one in alive if one() is not None]  # before the session is closed
    session.close()
    assert not [owner for owner in data_store._held if owner.startswith("session")]


def hold(worker: Any, batch: Any) -> int:
    held = [mine for owner, mine in data_store._held.items() if owner.startswith("session")]
    return sum(len(mine) for mine in held)


def count_held(worker: Any) -> int:
    return hold(worker, None)


def test_hosts_free_blocks_after_their_last_task() -> None:
    session = st.Session()
    cluster = st.Cluster("processes", nodes=2)
    task = session.submit(st.unit(hold, st.source(numbers, blocks=2), parts=2), runtime=cluster)
    assert task.result(120).value == 2  # one on each host
    left = 1
    for _ in range(100):  # hosts free them after the result is known, so that a task may find them once more
        left = session.submit(st.unit(count_held, parts=2), after=[task]).result(120).value
        if left == 0:
            break
    assert left == 0
    session.close()


# -- files ------------------------------------------------------------------------------------------------------------


def svmlight(path: Path, rows: range) -> None:
    path.write_text("".join(f"{row} 1:{row}.5 {2 + row % 3}:1\n" for row in rows))


def gather(worker: Any, block: Any, seen: Any, node: Any) -> None:
    X, y = block
    assert X.shape == (len(y), 4)
    assert np.allclose(X.toarray()[:, 0], y + 0.5)
    at = y.astype(int)
    seen.add(at, np.ones(len(at)))
    node.add(at, np.full(len(at), worker.node))


def gathered(files: Any, rows: int, runtime: Any, **how: Any) -> tuple[Any, Any]:
    seen, node = st.zeros(rows, "f8"), st.zeros(rows, "f8")
    result = st.run(st.unit(gather, files, seen, node, **how), runtime=runtime)
    assert (seen.array == 1).all()
    return node.array.astype(int).tolist(), result


def test_files_are_read_in_blocks(tmp_path: Path) -> None:
    svmlight(tmp_path / "a.svm", range(100))
    svmlight(tmp_path / "b.svm", range(100, 140))
    files = st.files(str(tmp_path / "*.svm"), block_bytes=300, features=4)
    assert files.opened is not None
    blocks = len(files.opened.blocks)
    assert blocks == 7
    for parts, iterations in ((1, blocks), (blocks, 1)):
        gathered(files, 140, st.Threads(2), parts=parts, iterations=iterations)
    gathered(files, 140, st.Cluster("processes", nodes=2), parts=blocks)
    assert f"{blocks} blocks of {tmp_path}/*.svm, one an iteration" in st.unit(gather, files, 0, 0).logical()
    assert st.unit(gather, files, 0, 0).parts == blocks
    with pytest.raises(PlanError, match="the files have 7 blocks and the unit 8 parts"):
        st.unit(gather, files, 0, 0, parts=8)


def test_triples_are_read_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "ratings.tsv"
    path.write_text("".join(f"{k}\t{k % 7}\t{k % 5}\n" for k in range(50)))

    def add(worker: Any, block: Any, seen: Any) -> None:
        rows, cols, values = block
        assert (cols == rows % 7).all()
        assert (values == rows % 5).all()
        seen.add(rows, np.ones(len(rows)))

    seen = st.zeros(50, "f8")
    files = st.files(path, block_bytes=100)
    st.run(st.unit(add, files, seen), runtime=st.Serial())
    assert (seen.array == 1).all()


def test_an_error_in_a_file_names_file_and_block(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    svmlight(path, range(60))
    files = st.files(path, block_bytes=200, features=4)
    with path.open("a") as file:
        file.write("1 9:1\n")
    seen = st.zeros(100, "f8")
    task = st.unit(gather, files, seen, seen, parts=1, iterations=4)
    with pytest.raises(RunError, match=rf"unit gather: block 0 of part 0 \({path}, bytes 0 to .*the file changed"):
        st.run(task, runtime=st.Threads(1))
    files = st.files(path, block_bytes=200, features=4)
    assert files.opened is not None
    last = len(files.opened.blocks) - 1
    task = st.unit(gather, files, seen, seen, parts=1, iterations=last + 1)
    with pytest.raises(RunError, match=rf"block {last} of part 0 \({path}.*it has 9 columns and features=4"):
        st.run(task, runtime=st.Threads(1))
    zero = tmp_path / "zero.svm"
    zero.write_text("1 0:1\n")
    task = st.unit(gather, st.files(zero, features=4, format="svmlight"), seen, seen)
    with pytest.raises(RunError, match="it has the index 0, and indices count from 1; give zero_based=True"):
        st.run(task, runtime=st.Serial())
    with pytest.raises(DataError, match="give features="):
        st.files(path)


@pytest.mark.parametrize("runtime", [st.Simulated(nodes=3, threads=2), st.Cluster("processes", nodes=3)])
def test_files_of_nodes_are_read_there(tmp_path: Path, runtime: Any) -> None:
    """Node 1 has most, node 2 nothing."""
    for node, rows in ((0, range(20)), (1, range(20, 100))):
        (tmp_path / str(node)).mkdir()
        svmlight(tmp_path / str(node) / "a.svm", rows)
    files = st.files(st.NodeFiles(f"{tmp_path}/{{node}}/*.svm"), block_bytes=150, features=4)
    where, result = gathered(files, 100, runtime, parts=5, iterations=2)
    assert where == [0] * 20 + [1] * 80
    assert result.stages[0].nodes == (0, 1)
    with pytest.raises(PlanError, match="unit gather: only node 1 has the files of part 1, and its placement leaves"):
        gathered(files, 100, runtime, parts=5, placement={0: 1})
    with pytest.raises(PlanError, match="2 nodes have files of their own and the unit has 1 parts"):
        gathered(files, 100, runtime, parts=1)
    with pytest.raises(DataError, match="no node has such a file"):
        gathered(st.files(st.NodeFiles(f"{tmp_path}/{{node}}/*.csv")), 100, runtime, parts=1)


def test_files_that_only_one_node_can_read_are_read_there(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    svmlight(tmp_path / "1" / "a.svm", range(50))

    def pid(worker: Any, block: Any) -> int:
        return os.getpid()

    files = st.files(st.NodeFiles(f"{tmp_path}/{{node}}/*.svm"), block_bytes=200, features=4)
    result = st.run(st.unit(pid, files, parts=2, workers=1), runtime=st.Cluster("processes", nodes=2))
    assert result.stages[0].nodes == (1,)
    assert result.value not in (0, 2 * os.getpid())


def test_parts_run_where_their_files_are_if_these_nodes_are_free(tmp_path: Path) -> None:
    for name, rows in (("a", range(40)), ("b", range(40, 80)), ("c", range(80, 120))):
        svmlight(tmp_path / f"{name}.svm", rows)
    holders = {"a.svm": 2, "b.svm": 0, "c.svm": 2}
    files = st.files(
        str(tmp_path / "*.svm"), block_bytes=2000, features=4, where=lambda path: [holders[Path(path).name]]
    )
    where, _ = gathered(files, 120, st.Simulated(nodes=3, threads=1), parts=3, workers=3)
    assert where == [2] * 40 + [0] * 40 + [2] * 40
    one, result = gathered(files, 120, st.Simulated(nodes=3), parts=3, workers=1)
    assert len(set(one)) == 1  # on one node, which reads the files of others too
    assert result.stages[0].nodes in ((0,), (2,))  # node 1 has none of them
    gathered(files, 120, st.Threads(2), parts=3)
    with pytest.raises(DataError, match=r"where\(.*\) gave 'x'; return the numbers of the nodes"):
        st.files(str(tmp_path / "*.svm"), features=4, where=lambda path: "x")  # type: ignore[arg-type, return-value]


def test_places_near_files() -> None:
    assert place_near([0, 1, 1, 1], 1, 4) == {0: 1, 1: 1}
    assert place_near([0, 1, 1, 1], 4, 4) == {0: 1, 1: 3}
    assert place_near([0, 1, 1, 1], 9, 2) == {0: 1, 1: 2}
    place = StagePlace(((0, 1), (1, 3)))
    assert place.homes(4, [1, 0, 0, 1]) == (1, 0, 0, 1)
    assert place.homes(6, [0, 5, 5, 5, 5, 5]) == (0, 1, 1, 1, 0, 1)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: st.source(numbers, blocks=0), "blocks"),
        (lambda: st.source(numbers, ahead=3), "give blocks= too"),  # type: ignore[call-overload]
        (lambda: st.source(numbers, blocks=2, ahead=0), "ahead"),
        (lambda: st.files(st.NodeFiles("/x"), where=lambda path: [0]), "and no NodeFiles"),
        (lambda: st.unit(st.parallel(_plain), st.source(numbers, blocks=2)), "which is read in blocks"),
    ],
)
def test_what_is_wrong_is_said(make: Any, match: str) -> None:
    with pytest.raises(PlanError, match=match):
        make()


def _plain(x: Any) -> None:
    for i, v in x:
        x[i] = v
