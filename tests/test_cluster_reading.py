"""Ratings that the nodes read themselves: nobody holds them all, and the bits are those of a fit in memory."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import stretto as st
from clirun import private_cache, same_model, stretto
from ring_fleet import InProcess
from stretto.data.reading.scan import scan
from stretto.errors import DataError
from stretto.solvers.factorization import node_ratings
from stretto.solvers.factorization.node_ratings import FileSource

RATINGS, USERS, ITEMS = 12_000, 300, 200


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")):
        yield


def write(path: Path, *, names: bool = False, again: bool = False) -> Path:
    """Ratings of far-flung ids in no order, as text; again: one pair twice."""
    rng = np.random.default_rng(2)
    pairs = rng.choice(USERS * ITEMS, RATINGS, replace=False)
    users, items = 1000 + 7 * (pairs // ITEMS), 3 * (pairs % ITEMS)
    lines = [
        f"{'u' if names else ''}{u},{'i' if names else ''}{i},{v}"
        for u, i, v in zip(users.tolist(), items.tolist(), rng.integers(1, 6, RATINGS).tolist(), strict=True)
    ]
    path.write_text("\n".join([*lines, *lines[: int(again)]]) + "\n")
    return path


@pytest.fixture(scope="module", params=["numbers", "names"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("ratings") / "ratings.csv", names=request.param == "names")


def model(runtime: Any, **settings: Any) -> st.MatrixFactorization:
    return st.MatrixFactorization(6, max_iter=3, width=4, random_state=0, runtime=runtime, **settings)


def same(one: st.MatrixFactorization, other: st.MatrixFactorization) -> None:
    assert one.fingerprint_ == other.fingerprint_
    assert one.history_ == other.history_
    for name in ("user_factors_", "item_factors_", "user_bias_", "item_bias_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("validation", [None, 0.2])
def test_the_same_bits_and_no_node_has_all(file: Path, validation: Any) -> None:
    runtime = InProcess(3, 2)
    mine = model(runtime, memory="1MB").fit(file, validation=validation)
    same(mine, model(st.Serial()).fit(file, validation=validation))
    nodes = [runtime.hosts[0].hosts[n].task.nodes[n]._plans[0] for n in range(3)]  # type: ignore[union-attr]
    held = [np.count_nonzero(node.args["r"]) for node in nodes]  # the ratings, none of which is 0 in its units
    assert sum(held) == len(mine._trained_on) < RATINGS + 1
    assert all(0 < n < 0.6 * sum(held) for n in held)
    plan = cast(Any, runtime.crews[0])._plan
    assert not plan.args["r"].any(), "the driver has ratings"
    assert runtime.hosts[0].asked.count("load") == 3


def test_a_host_is_lost_and_its_part_is_read_again(file: Path) -> None:
    runtime = InProcess(3)
    asked = 0

    def strike(what: str) -> None:
        nonlocal asked
        asked += 1
        if asked == 14:
            runtime.hosts[0].kill(1)

    runtime.prepare = lambda hosts: setattr(hosts, "before", strike)
    same(model(runtime, memory="1MB").fit(file), model(st.Serial()).fit(file))
    assert runtime.hosts[0].incarnation == 2


def test_what_is_held_out_is_what_a_fit_in_memory_holds_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = st.read(file)
    monkeypatch.setattr(node_ratings, "GRAIN", 64)
    source: FileSource = pickle.loads(pickle.dumps(FileSource(scan(file), 1000, 0.3, 5)))
    learn, test = data.split(0.3, seed=5)
    assert len(source) == len(learn)
    chunks = list(source.chunks())
    assert {len(chunk[2]) for chunk in chunks[:-1]} == {960}
    for at, name in enumerate(("rows", "cols", "values")):
        np.testing.assert_array_equal(np.concatenate([chunk[at] for chunk in chunks]), getattr(learn, name))
        np.testing.assert_array_equal(getattr(source.aside(), name), getattr(test, name))


def test_processes_and_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("zmq", reason="the extra stretto[cluster] is not installed")
    file = write(tmp_path / "ratings.csv")
    options = ["--rank", "4", "--epochs", "3", "-q"]
    stretto("train", "mf", file, *options, "--out", tmp_path / "here")
    there = ["--runtime", "cluster:processes", "--nodes", "2", "--memory", "64MB"]
    stretto("train", "mf", file, *options, *there, "--out", tmp_path / "there")
    assert same_model(tmp_path / "here", tmp_path / "there")


def test_errors_reach_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "twice.csv", again=True)
    with pytest.raises(DataError, match=r"twice.csv: pairs are rated more than once, 1 of them .* duplicates='keep'"):
        model(InProcess(2), memory="1MB").fit(file)
    model(InProcess(2), memory="1MB", duplicates="keep").fit(file)
    made = node_ratings.lay_out_from_file

    def changed(*args: Any, **kinds: Any) -> Any:
        job = made(*args, **kinds)
        write(file)
        file.write_text(file.read_text().replace("1000,", "1007,"))
        return job

    monkeypatch.setattr("stretto.models.factorization.build.lay_out_from_file", changed)
    with pytest.raises(DataError, match=r"start again|give every machine the same file"):
        model(InProcess(2), memory="1MB", duplicates="keep").fit(file)
