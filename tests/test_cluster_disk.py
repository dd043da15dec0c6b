"""Plans on nodes that work from disk, and files that the nodes read themselves: the bits of a fit in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from plan_cases import ESTIMATORS, data, digest, documents, learned, ratings
from ring_fleet import InProcess
from stretto.errors import DataError
from stretto.models import mf_nodes

RATINGS = ratings(60_000, 800, 500)
RUNTIMES: dict[str, Any] = {
    "threads": st.Threads(2),
    "nodes": InProcess(3),
    "simulated": st.Simulated(nodes=3, threads=1),
}
MF: dict[str, Any] = {"rank": 6, "epochs": 2, "width": 4, "random_state": 0}
LDA: dict[str, Any] = {"n_components": 8, "epochs": 2, "random_state": 5, "width": 4}


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
    made = mf_nodes.lay_out_from_file

    def changed(*args: Any, **kinds: Any) -> Any:
        job = made(*args, **kinds)
        file.write_text("user,item,rating\n" + "".join([*lines[:-1], "7,7,1\n"]))
        return job

    monkeypatch.setattr("stretto.models.mf_build.lay_out_from_file", changed)
    runtime: Any = InProcess(2)
    model = st.MatrixFactorization(2, epochs=1, runtime=runtime, memory="60MB", duplicates="keep")
    with pytest.raises(DataError, match=r"ratings.csv.*changed"):
        model.fit(file)
