"""Parts of a text file: each record in exactly one, found by seeking, and nothing else is read."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as hs

import stretto as st
from stretto.data import iter_triples
from stretto.data.reading.file_part import cut
from stretto.data.reading.report import BadLinesWarning
from stretto.data.reading.source import LineReader
from stretto.errors import DataError, FormatError, RunError

Records = list[tuple[int, int, float]]
any_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


def put(folder: Path, text: str | bytes, name: str = "f.txt") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def records(path: str, **options: Any) -> Records:
    return [r for c in iter_triples(path, **options) for r in zip(*(a.tolist() for a in c), strict=True)]


def in_parts(path: str, n: int, **options: Any) -> list[Records]:
    return [records(path, part=(k, n), **options) for k in range(n)]


def joined(parts: list[Records]) -> Records:
    return [record for part in parts for record in part]


# -- A partition ------------------------------------------------------------------------------------------------------

counts = hs.integers(1, 30)
ends = hs.sampled_from(["\n", "\r\n"])
lines = hs.lists(
    hs.one_of(
        hs.tuples(hs.integers(0, 99), hs.integers(-5, 10**9), hs.integers(1, 9), hs.sampled_from([0, 0, 0, 3, 400])),
        hs.sampled_from(["", "# noted", "% " + 300 * "x"]),
    ),
    min_size=1,
    max_size=40,
)


@any_file
@given(lines, counts, ends, hs.booleans(), hs.sampled_from([",", "\t", "::", " "]), hs.booleans(), hs.integers(16, 99))
def test_the_parts_of_any_file_are_its_records(
    tmp_path: Path, drawn: list[Any], n: int, end: str, closed: bool, sep: str, header: bool, chunk: int
) -> None:
    # A line is "row sep col sep value", and sometimes a long fourth field; the first one fixes the layout.
    body = [d if isinstance(d, str) else sep.join(map(str, (*d[:3], "7" * max(1, d[3])))) for d in drawn]
    text = end.join([*(["# from us", sep.join(("user", "item", "rating", "time"))] if header else []), *body])
    closed = closed or all(isinstance(d, str) for d in drawn[:-1])  # what the file is, a line that is ended has to say
    path = put(tmp_path, f"{text}{end if closed else ''}")
    wanted = [tuple(map(float, d[:3])) for d in drawn if not isinstance(d, str)]
    layout: dict[str, Any] = {"format": "triples", "sep": sep, "columns": (0, 1, 2), "chunk": chunk}
    if not wanted:
        return
    parts = in_parts(path, n, **layout)
    assert joined(parts) == wanted == records(path, **layout)
    # ... and each where its line begins.
    raw = Path(path).read_bytes()
    begins = [0, *(m.end() for m in re.finditer(rb"\n", raw))]
    of = [
        k for k in range(n) for b in begins if len(raw) * k // n <= b < len(raw) * (k + 1) // n and _is_record(raw, b)
    ]
    assert [k for k, part in enumerate(parts) for _ in part] == of


def _is_record(raw: bytes, begin: int) -> bool:
    return raw[begin : begin + 1] in {b"-", *(bytes([48 + d]) for d in range(10))}


@any_file
@given(hs.lists(hs.lists(hs.integers(1, 9), max_size=60), min_size=1, max_size=25), counts, ends, hs.booleans())
def test_the_parts_of_svmlight_count_rows_each_from_0(
    tmp_path: Path, drawn: list[list[int]], n: int, end: str, closed: bool
) -> None:
    body = [" ".join(["0.5", *(f"{10 * r + k}:{v}" for k, v in enumerate(row, 1))]) for r, row in enumerate(drawn)]
    path = put(tmp_path, end.join(["# made by us", *body]) + (end if closed else ""))
    whole = records(path, format="svmlight", chunk=64)
    parts = in_parts(path, n, format="svmlight", chunk=64)
    assert [r[1:] for r in joined(parts)] == [r[1:] for r in whole]
    at = 0
    for part in parts:
        true = [row for row, _, _ in whole[at : at + len(part)]]
        at += len(part)
        shifts = {t - row for t, (row, _, _) in zip(true, part, strict=True)}
        assert len(shifts) <= 1  # one shift for all the part: how many rows came before it
        assert min(shifts, default=0) >= 0


@pytest.mark.parametrize("n", [2, 3, 7, 50])
@pytest.mark.parametrize("format", ["bow", "mm", "lda-c", "movielens"])
def test_formats_with_a_header_or_none(format: str, n: int, tmp_path: Path) -> None:
    made = [(i, j, (i * j) % 5 + 1) for i in range(1, 13) for j in range(1, 9)]
    body = "".join(f"{i} {j} {v}\n" for i, j, v in made)
    text = {
        "bow": f"12\n8\n{len(made)}\n{body}",
        "mm": f"%%MatrixMarket matrix coordinate real general\n% a note\n12 8 {len(made)}\n{body}",
        "lda-c": "".join("8 " + " ".join(f"{j}:{(i * j) % 5 + 1}" for j in range(8)) + "\n" for i in range(12)),
        "movielens": "".join(f"{i}::{j}::{v}::978300760\n" for i, j, v in made),
    }[format]
    path = put(tmp_path, text)
    keep = slice(1, 3) if format == "lda-c" else slice(0, 3)
    parts = in_parts(path, n)
    assert [r[keep] for r in joined(parts)] == [r[keep] for r in records(path)]
    assert sum(map(bool, parts)) >= min(n, 5)


def test_csv_with_quotes_and_named_columns(tmp_path: Path) -> None:
    text = "when,stars,user,item\n" + "".join(f'"a, b",{k % 5},{k},{k * 7}\n' for k in range(40))
    path = put(tmp_path, text, "f.csv")
    columns = ("user", "item", "stars")
    assert joined(in_parts(path, 9, columns=columns)) == [(k, k * 7, k % 5) for k in range(40)]


def test_more_parts_than_bytes_and_lines_longer_than_parts(tmp_path: Path) -> None:
    path = put(tmp_path, f"1 2 3 {5000 * '9'}\n4 5 6 1\n")
    options: dict[str, Any] = {"format": "triples", "sep": " ", "columns": (0, 1, 2)}
    assert [len(p) for p in in_parts(path, 8, **options)] == [1, 0, 0, 0, 0, 0, 0, 1]
    path = put(tmp_path, "1 2 3\n4 5 6")
    assert joined(in_parts(path, 1000)) == [(1, 2, 3), (4, 5, 6)]


def test_a_byte_order_mark_belongs_to_no_record(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    path = put(tmp_path, mark + b"1 2 3\n4 5 6\n7 8 9\n")
    assert joined(in_parts(path, 3)) == [(1, 2, 3), (4, 5, 6), (7, 8, 9)]


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_parts_of_what_fsspec_opens(scheme: str, tmp_path: Path) -> None:
    import fsspec

    url = "memory://parts/r.dat" if scheme == "memory" else f"file://{tmp_path}/r.dat"
    with fsspec.open(url, "wb") as file:
        file.write(b"".join(b"%d,%d,3\n" % (k, k * k) for k in range(100)))
    parts = in_parts(url, 4)
    assert joined(parts) == [(k, k * k, 3) for k in range(100)]
    assert all(parts)


# -- What it costs ----------------------------------------------------------------------------------------------------


class Counted(io.BytesIO):
    """Counts the bytes that are read."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        got = super().read(size)
        self.count += len(got)
        return got

    def readinto(self, buffer: Any) -> int:
        got = super().readinto(buffer)
        self.count += got
        return got


def test_only_the_part_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"".join(b"%d %d 3\n" % (k, k) for k in range(100_000))
    opened: list[Counted] = []

    def open_raw(path: str) -> Any:
        opened.append(Counted(text))
        return opened[-1]

    monkeypatch.setattr("stretto.data.reading.source.open_raw", open_raw)
    n = 40
    found = in_parts("anywhere", n)
    assert joined(found) == [(k, k, 3) for k in range(100_000)]
    head, looks = 1 << 16, 3 * 4096  # the format is detected from the head; both ends are looked for
    assert max(file.count for file in opened) <= head + looks + len(text) // n + 20
    assert len(text) > 10 * head


def test_a_part_inside_one_line_stays_there() -> None:
    stream = Counted(b"1 2 " + 10_000_000 * b"3" + b"\n4 5 6\n")
    for k in range(1, 9):
        stream.count = 0
        part = cut(stream, k, 10)
        assert part.begin == part.end
        assert stream.count <= 1_000_002


# -- What is said -----------------------------------------------------------------------------------------------------


def test_a_bad_line_is_placed(tmp_path: Path) -> None:
    good = [f"{k},{k},{k % 5}" for k in range(1000)]
    path = put(tmp_path, "\n".join(["user,item,rating", *good[:20], "7,8,many", *good[20:]]))
    with pytest.raises(FormatError, match=r"f\.txt:22: the value 'many' is not a number") as caught:
        records(path, part=(0, 4))
    assert caught.value.line == 22  # the file's own number: the part begins where the file does
    path = put(tmp_path, "\n".join(["user,item,rating", *good[:700], "7,8,many", *good[700:]]))
    with pytest.raises(FormatError, match="the value 'many' is not a number; repair") as caught:
        records(path, part=(2, 4))
    assert caught.value.line is None
    said = re.search(r"line (\d+) from byte (\d+) on, where part 2 \(from 0\) of 4 begins", str(caught.value))
    assert said is not None
    rest = Path(path).read_bytes()[int(said[2]) :].split(b"\n")
    assert rest[int(said[1]) - 1] == b"7,8,many"
    for k in (0, 1, 3):
        assert records(path, part=(k, 4))


def test_bad_lines_are_left_out_part_by_part(tmp_path: Path) -> None:
    path = put(tmp_path, "".join(f"{k} {k} {'x' if k in {3, 40} else 5}\n" for k in range(50)))
    with pytest.warns(BadLinesWarning, match="1 line was left out; the first is line 4: the value 'x'"):
        first = records(path, on_error="skip", part=(0, 2))
    with pytest.warns(BadLinesWarning, match=r"the first is line 1\d: .* \(counted from byte 1\d\d on, where part 1"):
        second = records(path, on_error="skip", part=(1, 2))
    assert [r[0] for r in first + second] == [k for k in range(50) if k not in {3, 40}]


def test_what_has_no_parts_says_what_to_do(tmp_path: Path) -> None:
    packed = put(tmp_path, gzip.compress(b"1 2 3\n4 5 6\n"), "f.gz")
    with pytest.raises(DataError, match=r"f\.gz: is packed \(gzip\).*unpack it, or read it whole"):
        records(packed, part=(0, 2))
    assert records(packed, part=(0, 1)) == [(1, 2, 3), (4, 5, 6)]  # the only part is the whole
    names = put(tmp_path, "ada x 3\nbob y 4\n", "names.txt")
    with pytest.raises(DataError, match=r"names\.txt: the ids are text.*integer ids, or read it whole"):
        records(names, part=(1, 2))
    st.write(st.read(put(tmp_path, "1 2 3\n4 5 6\n")), tmp_path / "f.npz")
    with pytest.raises(DataError, match=r"f\.npz: npz files like this one are read whole"):
        records(str(tmp_path / "f.npz"), part=(0, 2))
    dense = put(tmp_path, "%%MatrixMarket matrix array real general\n2 1\n1\n2\n", "f.mtx")
    with pytest.raises(DataError, match="mm files like this one"):
        records(dense, part=(0, 2))


@pytest.mark.parametrize("part", [(2, 2), (-1, 2), (0, 0), (1,), 3, (0.5, 2), "ab"])
def test_a_part_that_is_none(part: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the k-th of n parts, counted from 0"):
        records(put(tmp_path, "1 2 3\n"), part=part)


def test_a_stream_that_cannot_seek(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = LineReader(put(tmp_path, "1 2 3\n4 5 6\n"))

    def seek(*where: int) -> int:
        raise ValueError("a stream, forwards only")

    with text:
        monkeypatch.setattr(text, "stream", type("Stream", (), {"seek": staticmethod(seek)})())
        with pytest.raises(DataError, match=r"cannot be read from the middle .*forwards only.*copy it"):
            text.narrow(0, 2, 0)


# -- Workers ----------------------------------------------------------------------------------------------------------


def ratings_file(folder: Path, n: int = 3000) -> tuple[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(7)
    rows, cols = draw.integers(0, 50, n), draw.integers(0, 30, n)
    stars = draw.integers(1, 6, n)
    path = put(folder, "".join(f"{i}::{j}::{v}::978300760\n" for i, j, v in zip(rows, cols, stars, strict=True)))
    sums = np.zeros((50, 2))
    np.add.at(sums, rows, np.stack([np.ones(n), stars], axis=1))
    return path, sums


def counting(path: str, clocks: int = 1) -> Any:
    """A worker that adds up, once in a clock, how many ratings each user gave, and their stars."""

    def worker(w: Any) -> None:
        x = w.table("x")
        read = w.local.setdefault("read", np.zeros(1, np.int64))
        for _ in w.clocks(clocks):
            for rows, _, values in w.triples(path, chunk=2048):
                read += len(rows)
                x.add(rows, np.stack([np.ones(len(rows)), values], axis=1))

    return worker


TABLE = {"x": st.tables.Table(rows=50, cols=2, dtype="f8")}


@pytest.mark.parametrize("runtime", [st.Serial(), st.Threads(2), st.Simulated(nodes=2, threads=2)], ids=repr)
def test_workers_read_their_parts_and_count(runtime: Any, tmp_path: Path) -> None:
    path, sums = ratings_file(tmp_path)
    result = st.run(counting(path, clocks=3), workers=5, tables=TABLE, runtime=runtime)
    np.testing.assert_array_equal(result.tables["x"], 3 * sums)


def test_workers_of_two_processes_read_their_parts_and_count(tmp_path: Path) -> None:
    pytest.importorskip("zmq", reason="the extra stretto[cluster] is not installed")
    path, sums = ratings_file(tmp_path)
    result = st.run(counting(path), workers=4, tables=TABLE, runtime=st.Cluster("processes", nodes=2))
    np.testing.assert_array_equal(result.tables["x"], sums)


def test_an_entry_is_an_item_of_work(tmp_path: Path) -> None:
    path, _ = ratings_file(tmp_path)
    runtime = st.Simulated(nodes=1, threads=1, seconds_per_item=1.0, message_cost=(0.0, 0.0))
    result = st.run(counting(path, clocks=2), workers=1, tables=TABLE, runtime=runtime)
    assert (result.items, result.seconds) == (6000, 6000.0)


def test_passes_go_through_the_part_again_without_a_tick(tmp_path: Path) -> None:
    path, sums = ratings_file(tmp_path)

    def worker(w: Any) -> None:
        for rows, _, _ in w.triples(path, passes=3):
            w.table("x").add(rows, np.ones((len(rows), 2)))
        assert w.clock == 0

    result = st.run(worker, workers=3, tables=TABLE)
    np.testing.assert_array_equal(result.tables["x"][:, 0], 3 * sums[:, 0])
    with pytest.raises(RunError, match="worker 0 failed at clock 0: DataError: triples: passes=0"):
        st.run(lambda w: list(w.triples(path, passes=0)), tables=TABLE)


def test_a_worker_that_is_started_again_begins_its_part_again(tmp_path: Path) -> None:
    path, sums = ratings_file(tmp_path)

    began: list[int] = []

    def worker(w: Any, fail: bool) -> None:
        x = w.table("x")
        began.append(w.clock)
        for clock in w.clocks(6):
            x.read([0])  # waits for the others: no worker is far ahead of the checkpoints
            for rows, _, values in w.triples(path, chunk=2048):
                x.add(rows, np.stack([np.ones(len(rows)), values], axis=1))
                if fail and clock == 3 and w.number == 1:
                    raise RuntimeError("in the middle of a part")

    options: dict[str, Any] = {"workers": 3, "tables": TABLE, "checkpoint": tmp_path / "saved", "checkpoint_every": 2}
    with pytest.raises(RunError, match="in the middle of a part"):
        st.run(lambda w: worker(w, True), **options)
    result = st.run(lambda w: worker(w, False), resume=True, **options)
    np.testing.assert_array_equal(result.tables["x"], 6 * sums)
    assert began == [0, 0, 0, 2, 2, 2]


def test_a_bad_line_in_a_worker_s_part_ends_the_run(tmp_path: Path) -> None:
    path = put(tmp_path, "".join(f"{k} {k} {'x' if k == 40 else 5}\n" for k in range(50)))
    with pytest.raises(
        RunError,
        match=r"worker 1 failed at clock 0: FormatError: .*from byte \d+ on, where part 1 \(from 0\) of 2 begins",
    ):
        st.run(counting(path), workers=2, tables=TABLE)
