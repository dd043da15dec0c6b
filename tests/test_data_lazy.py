"""Lazy data: nothing happens until needed, then once, in one pass."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stretto
from stretto.data.reading.source import LineReader
from stretto.data.records.data import Data
from stretto.data.records.record_sets import Dense, LazyRecords, Ragged
from stretto.data.records.records import Column
from stretto.errors import DataError, FormatError

RATINGS = "0 1 5\n# a note\n2 0 3.5\n1 1 4\n"


def parse(line: str) -> Any:
    if line.startswith("#"):
        return None
    i, j, r = line.split()
    return (int(i), int(j)), float(r)


@pytest.fixture
def ratings(tmp_path: Path) -> str:
    path = tmp_path / "ratings.txt"
    path.write_text(RATINGS)
    return str(path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were opened, in order."""
    seen: list[str] = []

    def watched(path: str) -> Any:
        seen.append(path)
        return LineReader(path)

    monkeypatch.setattr("stretto.data.reading.text.LineReader", watched)
    return seen


WANTED = [((0, 1), 5.0), ((2, 0), 3.5), ((1, 1), 4.0)]


def test_a_text_file_is_read_when_needed_and_once(ratings: str, opened: list[str]) -> None:
    data = stretto.text_file(ratings, parse)
    assert opened == []
    assert "nothing made yet" in repr(data)
    assert not data.made
    assert len(data) == 3
    assert data.shape == (3, 2)
    assert list(data) == list(data) == WANTED
    assert data.records() is data.records()
    assert data.materialize() is data.materialize()
    assert opened == [ratings]
    assert "3 x 2, 3 records of float64" in repr(data)


def test_maps_are_fused_record_by_record(ratings: str, opened: list[str]) -> None:
    order: list[tuple[str, float]] = []

    def step(name: str, by: float) -> Callable[[float], float]:
        def f(x: float) -> float:
            order.append((name, x))
            return x * by

        return f

    data = stretto.text_file(ratings, parse).map(step("a", 2)).map(step("b", 10)).map(step("c", 0.5))
    assert order == []
    assert opened == []
    assert [v for _, v in data] == [50.0, 35.0, 40.0]
    assert opened == [ratings]
    assert order[:3] == [("a", 5.0), ("b", 10.0), ("c", 100.0)]  # one record through all of them
    assert [name for name, _ in order] == ["a", "b", "c"] * 3
    assert [v for _, v in data.map(lambda x: x + 1)] == [51.0, 36.0, 41.0]  # goes on from what was made
    assert len(order) == 9
    assert opened == [ratings]


def test_every_verb_waits(ratings: str, opened: list[str]) -> None:
    data = stretto.text_file(ratings, parse).map(int)
    grouped, mixed = data.group_by(0), data.shuffle(0, seed=3)
    tokens = data.expanded().numbered(values=False)
    assert opened == []
    assert list(grouped) == [(0, [(1, 5)]), (1, [(1, 4)]), (2, [(0, 3)])]
    assert grouped.columns == 2
    assert [mixed.places[0][i] for (i, _), _ in data] == [i for (i, _), _ in mixed]
    assert [p for _, p in tokens] == list(range(12))
    assert opened == [ratings]


def test_map_with_the_index(ratings: str) -> None:
    turned = stretto.text_file(ratings, parse).map(lambda index, v: (index[::-1], v), index=True)
    assert list(turned) == [((j, i), v) for (i, j), v in WANTED]
    assert turned.shape == (2, 3)
    flat = turned.map(lambda index, v: (index[0] * 3 + index[1], (v, v > 4)), index=True, shape=(9,))
    assert list(flat) == [(3, (5.0, True)), (2, (3.5, False)), (4, (4.0, False))]
    assert flat.shape == (9,)
    with pytest.raises(DataError, match="a shape goes with index=True"):
        turned.map(abs, shape=(3, 3))
    with pytest.raises(DataError, match="record 1 has the index 2 on axis 1; indices go from 0 to 1"):
        len(turned.map(lambda i, v: (i, v), index=True, shape=(2, 2)))


def test_map_over_what_is_in_memory() -> None:
    d = Data.from_arrays([0, 1], [1, 0], [2, 3], (4, 4))
    squares = d.map(lambda v: v * v)
    assert isinstance(squares, LazyRecords)
    assert squares.shape == (4, 4)
    assert list(squares) == [((0, 1), 4.0), ((1, 0), 9.0)]
    assert np.shares_memory(squares.records().index[0], d.rows)
    cells = stretto.dense([[1, 2], [3, 4]]).map(lambda x: (x, x * 0.5))
    assert list(cells)[3] == ((1, 1), (4, 2.0))
    assert isinstance(cells.materialize(), Dense)
    s = stretto.samples(np.array([[0.0, 2.0], [3.0, 0.0]]), [1, -1])
    scaled = s.map(lambda value: (value[0] > 0, [(f, x / 2) for f, x in value[1]]))
    assert list(scaled) == [(0, (True, [(1, 1.0)])), (1, (False, [(0, 1.5)]))]
    assert isinstance(scaled.materialize(), Ragged)
    assert scaled.columns == 2
    sizes = s.map(lambda value: len(value[1]))
    assert list(sizes) == [(0, 1), (1, 1)]


def test_value_types() -> None:
    d = stretto.dense([1, 2, 3])
    for f, dtype in (
        (int, np.int64),
        (float, np.float64),
        (lambda x: x > 1, np.bool_),
        (np.float32, np.float32),
        (lambda x: x if x < 3 else 3.5, np.float64),
    ):
        column = d.map(f).records().value
        assert isinstance(column, Column)
        assert column.values.dtype == dtype


def test_lists_from_a_file_are_ragged(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("b a\r\n\r\nc a a")

    count = iter(range(10))

    def words(line: str) -> Any:
        return next(count), [ord(w) - ord("a") for w in line.split()]

    made = stretto.text_file(path, words)
    assert list(made) == [(0, [1, 0]), (1, []), (2, [2, 0, 0])]
    assert isinstance(made.materialize(), Ragged)
    apart = stretto.text_file(path, lambda line: (2 * len(line), (1.0, [(len(line), 0.5)])))
    assert next(iter(apart)) == (6, (1.0, [(3, 0.5)]))
    assert apart.records().kind == "sparse"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_packed_files(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "packed"
    path.write_bytes(pack(RATINGS.encode()))
    assert list(stretto.text_file(path, parse)) == WANTED


def test_urls() -> None:
    import fsspec

    with fsspec.open("memory://lazy/ratings.txt", "w") as file:
        file.write(RATINGS)
    assert list(stretto.text_file("memory://lazy/ratings.txt", parse)) == WANTED


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r")), min_size=1, max_size=20))
def test_lines_arrive_as_they_are(lines: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        path.write_bytes("\n".join([*lines, ""]).encode())
        seen: list[str] = []
        len(stretto.text_file(path, seen.append))
        assert seen == lines


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"0 0 1\n0 x 1\n", ":2: the parser raised ValueError: invalid literal .*; repair the line, or let the parser"),
        (b"0 0 1\n\xff\n", ":2: the line is not UTF-8"),
        (b"0 0 1\n0 0\n", ":2: the parser raised ValueError: not enough values"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=says) as caught:
        len(stretto.text_file(path, parse))
    assert caught.value.line == 2


def test_bad_results_are_named(ratings: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r":1: the parser gave 3; return \(index, value\)"):
        len(stretto.text_file(ratings, lambda line: 3))
    with pytest.raises(DataError, match="no such file"):
        len(stretto.text_file(tmp_path / "nothing", parse))
    with pytest.raises(DataError, match="record 0 has the value 'x'"):
        len(stretto.text_file(ratings, lambda line: (0, "x")))
    with pytest.raises(DataError, match="record 0 has the index 'x'"):
        len(stretto.text_file(ratings, lambda line: ("x", 0)))
    with pytest.raises(DataError, match="must be whole numbers, got float64"):
        len(stretto.text_file(ratings, lambda line: (0.5, 0)))
    with pytest.raises(DataError, match="has the index -1 on axis 0; indices go from 0 up"):
        len(stretto.text_file(ratings, lambda line: (-1, 0)))
    data = stretto.text_file(ratings, parse)
    with pytest.raises(DataError, match=r"record 1 has the value 3\.5; return a number"):
        len(data.map(lambda v: (v, v) if v == 5 else v))
    with pytest.raises(ZeroDivisionError) as caught:
        len(data.map(lambda v: 1 / (v - 4)))
    assert "record 2 ((1, 1))" in caught.value.__notes__[0]


def test_nothing_at_all(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_text("")
    data = stretto.text_file(path, parse)
    assert len(data) == 0
    assert list(data) == []
    assert stretto.text_file(path, parse, shape=(3, 4)).shape == (3, 4)
    assert list(stretto.text_file(path, parse, shape=(2, 4)).group_by(0)) == [(0, []), (1, [])]
    assert list(Data.from_arrays([], [], []).map(abs)) == []
