"""A run record read while it grows: the same summary however it is cut, in a bounded size."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as hs

from page_records import events, record, state_of
from stretto.errors import RunError
from stretto.observe.events import EpochDone, RunStarted
from stretto.observe.log import EVENTS, encode
from stretto.observe.page.names import chosen, names_of, records_in
from stretto.observe.page.series import Series
from stretto.observe.page.tail import RecordTail
from stretto.observe.record import RunRecord


@given(hs.integers(2, 40), hs.integers(1, 300))
def test_a_series_keeps_its_shape_and_its_newest_row(limit: int, epochs: int) -> None:
    series = Series(limit)
    for epoch in range(1, epochs + 1):
        series.add(epoch, seconds=0.5, items=3, objective=1.0 / epoch, metrics={"m": float(epoch)})
        assert len(series) <= limit + 1
    columns = series.columns()
    kept = np.array(columns["epoch"], dtype=np.float64)
    assert kept[-1] == epochs
    np.testing.assert_array_equal(columns["m"], kept)
    np.testing.assert_array_equal(columns["seconds"], 0.5 * kept)
    np.testing.assert_array_equal(columns["items"], 3.0 * kept)
    assert len(set(np.diff(kept[:-1]))) <= 1  # evenly spread


def test_a_repeated_epoch_replaces_those_from_it_on() -> None:
    series = Series()
    for epoch in (1, 2, 3, 2):
        series.add(epoch, seconds=1.0, items=10, objective=float(epoch), metrics={})
    assert series.columns()["epoch"] == [1.0, 2.0]
    assert series.columns()["seconds"] == [1.0, 2.0]


def test_the_summary_of_a_record(tmp_path: Path) -> None:
    state = state_of(record(tmp_path / "one"))
    assert (state["status"], state["epochs"], state["fingerprint"]) == ("done", 6, "f00d")
    assert state["series"]["epoch"] == [1, 2, 3, 4, 5, 6]
    assert state["series"]["test_rmse"][-1] == pytest.approx(1 + 1 / 6)
    assert state["series"]["speed"] == [200.0] * 6
    assert state["passes"] == {"sgd": [3.0, 6]}
    assert [note["kind"] for note in state["notes"]] == ["checkpoint", "warning", "end"]
    assert state["config"] == {"estimator": "Made", "seed": 3}
    assert state["plan"].startswith("plan f00d")
    lanes = state["lanes"]
    assert (lanes["epoch"], lanes["dropped"], len(lanes["visits"])) == (6, 0, 16)
    assert lanes["visits"][5] == [1, 1, 1, 0, 2000, 500]  # worker, blocks, pass, start and length in microseconds


@given(hs.lists(hs.integers(1, 400), max_size=30))
def test_a_growing_file_gives_the_same_as_a_whole_one(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("record")
    whole = b"".join(encode(event) + b"\n" for event in events(12))
    (folder / EVENTS).write_bytes(b"")
    tail = RecordTail(folder)
    at = 0
    with (folder / EVENTS).open("ab", buffering=0) as file:
        for cut in (*cuts, len(whole)):
            file.write(whole[at : at + cut])
            at += cut
            tail.poll()
    once = RecordTail(folder)
    once.poll()
    assert tail.state("a") == once.state("a")
    assert once.state("a")["series"]["epoch"] == list(range(1, 13))


def test_damaged_lines_are_skipped_and_a_new_file_is_read_from_its_start(tmp_path: Path) -> None:
    good = encode(EpochDone(1.0, 1, 9, 1.0, 5, 2.0, {}))
    path = tmp_path / EVENTS
    path.write_bytes(
        b'{"event":"EpochDone","epoch":\n\xff\xfe\n[1]\n' + b'{"event":"' + b"x" * 3_000_000 + b"\n" + good + b"\n"
    )
    tail = RecordTail(tmp_path)
    assert tail.poll()
    assert tail.state("a")["series"]["epoch"] == [1.0]
    assert not tail.poll()
    path.write_bytes(encode(RunStarted(0.0, {})) + b"\n")
    assert tail.poll()
    assert tail.state("a")["series"]["epoch"] == []


def test_a_record_that_disappears_leaves_the_last_state(tmp_path: Path) -> None:
    folder = record(tmp_path / "one")
    tail = RecordTail(folder)
    tail.poll()
    for file in folder.iterdir():
        file.unlink()
    assert not tail.poll()
    assert tail.state("one")["status"] == "done"


def test_a_long_run_takes_bounded_memory(tmp_path: Path) -> None:
    """100,000 epochs cost what 5,000 do; a list of all would take forty times as much."""

    def cost(epochs: int) -> int:
        path = tmp_path / f"{epochs}" / EVENTS
        path.parent.mkdir()
        with path.open("wb") as file:
            for epoch in range(1, epochs + 1):
                file.write(encode(EpochDone(float(epoch), epoch, epochs, 1.0, 5, 1.0 / epoch, {"m": 1.0})) + b"\n")
        tracemalloc.start()
        tail = RecordTail(path.parent)
        tail.poll()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(tail.state("a")["series"]["epoch"]) <= 2049
        return size

    assert cost(100_000) < 2 * cost(5_000)


def test_a_run_whose_process_died_is_interrupted(tmp_path: Path) -> None:
    folder = record(tmp_path / "dead", status=None)
    assert state_of(folder)["status"] == "interrupted"
    going = RunRecord(tmp_path / "alive")
    for event in events(status=None):
        going(event)
    assert state_of(tmp_path / "alive")["status"] == "running"
    going.close()


def test_records_are_found_and_named(tmp_path: Path) -> None:
    one, two = record(tmp_path / "a" / "run"), record(tmp_path / "b" / "run")
    assert records_in(tmp_path / "a") == [one]
    assert names_of([one, two]) == ["a/run", "b/run"]
    assert chosen([tmp_path / "a", one]) == [one.resolve()]
    with pytest.raises(RunError, match="holds no run record"):
        records_in(tmp_path)
    with pytest.raises(RunError, match="does not exist"):
        records_in(tmp_path / "nothing")
    for number in range(7):
        record(tmp_path / "many" / str(number), epochs=1)
    with pytest.raises(RunError, match="at most 6 runs, and these are 7"):
        chosen([tmp_path / "many"])
