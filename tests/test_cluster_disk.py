"""Plans on nodes that work from disk, and files that the nodes read themselves: the bits of a fit in memory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import stretto as st
from plan_cases import ESTIMATORS, data, digest, documents, learned, ratings
from ring_fleet import InProcess
from stretto.data.parts.part import DataPart
from stretto.errors import DataError, PlanError
from stretto.solvers.factorization import node_ratings

RATINGS = ratings(60_000, 800, 500)
RUNTIMES: dict[str, Any] = {
    "threads": st.Threads(2),
    "nodes": InProcess(3),
    "simulated": st.Simulated(nodes=3, threads=1),
}
MF: dict[str, Any] = {"n_components": 6, "max_iter": 2, "width": 4, "random_state": 0}
LDA: dict[str, Any] = {"n_components": 8, "max_iter": 2, "random_state": 5, "width": 4}


def bits(model: Any) -> tuple[str, str]:
    return digest(learned(model)), model.fingerprint_


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> Path:
    """all.csv, the same ratings in four files of a folder, and a corpus."""
    folder: Path = tmp_path_factory.mktemp("files")
    entries = zip(RATINGS.rows.tolist(), RATINGS.cols.tolist(), RATINGS.values.tolist(), strict=True)
    lines = [f"{row},{col},{value}\n" for row, col, value in entries]
    (folder / "parts").mkdir()
    (folder / "all.csv").write_text("user,item,rating\n" + "".join(lines))
    for k in range(4):
        some = lines[k * len(lines) // 4 : (k + 1) * len(lines) // 4]
        (folder / "parts" / f"{k}.csv").write_text("user,item,rating\n" + "".join(some))
    X = documents().tocoo()
    counts = [f"{d + 1} {w + 1} {n}\n" for d, w, n in zip(X.row, X.col, X.data, strict=True)]
    (folder / "docword.txt").write_text(f"{X.shape[0]}\n{X.shape[1]}\n{X.nnz}\n" + "".join(counts))
    return folder


@pytest.fixture(scope="module")
def in_memory(files: Path) -> dict[str, tuple[str, str]]:
    return {
        "mf": bits(st.MatrixFactorization(**MF, runtime=st.Serial()).fit(files / "all.csv")),
        "lda": bits(st.LatentDirichletAllocation(**LDA, runtime=st.Serial()).fit(files / "docword.txt")),
    }


@pytest.mark.parametrize("memory", ["300kB", "60MB"])
@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
@pytest.mark.parametrize("where", ["all.csv", "parts", "parts/*.csv"])
def test_ratings_of_files(files: Path, in_memory: Any, where: str, runtime: Any, memory: str) -> None:
    model = st.MatrixFactorization(**MF, runtime=runtime, memory=memory).fit(str(files / where))
    assert bits(model) == in_memory["mf"]


@pytest.mark.parametrize("memory", ["250kB", "60MB"])
@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
def test_documents_of_a_file(files: Path, in_memory: Any, runtime: Any, memory: str) -> None:
    model = st.LatentDirichletAllocation(**LDA, runtime=runtime, memory=memory).fit(files / "docword.txt")
    assert bits(model) == in_memory["lda"]


def test_real_processes(files: Path, in_memory: Any) -> None:
    pytest.importorskip("zmq", reason="the extra stretto[cluster] is not installed")
    runtime = st.Cluster("processes", nodes=2)
    mf = st.MatrixFactorization(**MF, runtime=runtime, memory="300kB").fit(str(files / "parts"))
    assert bits(mf) == in_memory["mf"]
    lda = st.LatentDirichletAllocation(**LDA, runtime=runtime, memory="250kB").fit(files / "docword.txt")
    assert bits(lda) == in_memory["lda"]


def test_every_node_reads_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts and grains, values that sums round, records held out: the bits of a fit in memory, and each pass
    over the files is shared by the nodes."""
    random = np.random.default_rng(3)
    n = 150_000
    file = tmp_path / "ratings.csv"
    columns = (random.integers(0, 3000, n), random.integers(0, 400, n), random.normal(3, 1, n))
    file.write_text("user,item,rating\n" + "".join(f"{u},{i},{r:.7f}\n" for u, i, r in zip(*columns, strict=True)))
    common: dict[str, Any] = MF | {"duplicates": "keep"}
    here = st.MatrixFactorization(**common, runtime=st.Serial()).fit(file, validation=0.1)
    monkeypatch.setattr("stretto.data.parts.file_set._LEAST", 1 << 18)
    runtime: Any = InProcess(3)
    read: list[tuple[int, str]] = []
    entries = DataPart.entries

    def counted(self: DataPart, *args: Any) -> Any:
        read.append((self.number, threading.current_thread().name))
        return entries(self, *args)

    monkeypatch.setattr(DataPart, "entries", counted)
    there = st.MatrixFactorization(**common, runtime=runtime, memory="600kB").fit(file, validation=0.1)
    assert bits(there) == bits(here)
    assert there.history_ == here.history_
    loading = [one for one in read if one[1].startswith("stretto-parts")]
    assert sorted(number for number, _ in loading) == list(range(6)), "two parts a node, each read once"
    assert {name: sum(one[1] == name for one in loading) for _, name in loading} == {
        f"stretto-parts-{node}": 2 for node in range(3)
    }


@pytest.mark.parametrize("runtime", [InProcess(3), st.Cluster("processes", nodes=3)], ids=["threads", "processes"])
def test_files_on_the_disks_of_nodes(tmp_path: Path, runtime: Any) -> None:
    """Each node has documents and ratings that no other can read; the bits are those of all of them together."""
    lines = [f"{u},{i},{r}\n" for u, i, r in zip(RATINGS.rows, RATINGS.cols, RATINGS.values, strict=True)]
    X = documents()
    for k in range(3):
        (tmp_path / f"{k}").mkdir()
        some = X[k * X.shape[0] // 3 : (k + 1) * X.shape[0] // 3].tocoo()
        counts = [f"{d + 1} {w + 1} {n}\n" for d, w, n in zip(some.row, some.col, some.data, strict=True)]
        text = f"{some.shape[0]}\n{some.shape[1]}\n{some.nnz}\n" + "".join(counts)
        (tmp_path / f"{k}" / "docword.txt").write_text(text)
        (tmp_path / f"{k}" / "ratings.csv").write_text("user,item,rating\n" + "".join(lines[k::3]))
    (tmp_path / "all.csv").write_text("user,item,rating\n" + "".join(line for k in range(3) for line in lines[k::3]))
    lda = st.LatentDirichletAllocation(**LDA, runtime=st.Serial()).fit(X)
    there = st.LatentDirichletAllocation(**LDA, runtime=runtime, memory="250kB")
    assert bits(there.fit(st.NodeFiles(str(tmp_path / "{node}" / "docword.txt")))) == bits(lda)
    mf = st.MatrixFactorization(**MF, runtime=st.Serial()).fit(tmp_path / "all.csv")
    there = st.MatrixFactorization(**MF, runtime=runtime, memory="300kB")
    assert bits(there.fit(st.NodeFiles(str(tmp_path / "{node}" / "*.csv")))) == bits(mf)


def test_files_that_nodes_lack_are_refused(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("user,item,rating\n1,2,3\n2,2,1\n")
    files, nodes = st.NodeFiles(str(tmp_path / "{node}.csv")), cast(Any, InProcess(2))
    with pytest.raises(DataError, match=r"node 1: .*1\.csv.*no such file"):
        st.MatrixFactorization(2, runtime=nodes, memory="60MB").fit(files)
    for model in (st.MatrixFactorization(2), st.LatentDirichletAllocation(2, memory="60MB", runtime=st.Threads(2))):
        with pytest.raises(PlanError, match=r"give the paths themselves"):
            model.fit(files)
    with pytest.raises(DataError, match="give a path"):
        st.NodeFiles("")


def test_nodes_have_files_where_their_share_does_not_fit(files: Path) -> None:
    runtime: Any = InProcess(3)
    st.MatrixFactorization(**MF, runtime=runtime, memory="120kB").fit(str(files / "all.csv"))
    loaded = [runtime.hosts[0].hosts[n].task.nodes[n]._plans[0] for n in range(3)]
    assert all(one.disk is not None and one.disk.holds(one.args["r"]) for one in loaded)
    assert not any(one.disk.holds(one.args["H"]) for one in loaded), "what rotates stays in memory"
    assert sum(int(np.count_nonzero(one.args["r"])) for one in loaded) == len(RATINGS)


@pytest.mark.parametrize("name", ["mf, als", "mf, als, implicit", "mf, ccd"])
def test_row_solvers_from_disk_on_nodes(name: str) -> None:
    wanted = bits(ESTIMATORS[name](runtime=st.Serial()).fit(data(name)))
    model = ESTIMATORS[name](runtime=InProcess(2), memory="200kB").fit(data(name))
    assert model.plan_.physical.tile is not None
    assert bits(model) == wanted


def test_a_part_that_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ratings.csv"
    lines = [f"{k % 50},{k % 41},{k % 5}\n" for k in range(2000)]
    file.write_text("user,item,rating\n" + "".join(lines))
    made = node_ratings.lay_out_from_file

    def changed(*args: Any, **kinds: Any) -> Any:
        job = made(*args, **kinds)
        file.write_text("user,item,rating\n" + "".join([*lines[:-1], "7,7,1\n"]))
        return job

    monkeypatch.setattr("stretto.models.factorization.build.lay_out_from_file", changed)
    runtime: Any = InProcess(2)
    model = st.MatrixFactorization(2, max_iter=1, runtime=runtime, memory="60MB", duplicates="keep")
    with pytest.raises(DataError, match=r"ratings.csv.*changed"):
        model.fit(file)
