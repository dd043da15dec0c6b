"""Data sets that are cut into parts: whichever node reads them, records, ids and counts are those of `scan`."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pickle
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as hs

import stretto as st
from stretto.data import open_parts, scan
from stretto.data.parts import DataPart, Numbering, merge, shares
from stretto.data.reading.report import BadLinesWarning
from stretto.errors import DataError, FormatError, NotEnoughMemory

any_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
COUNTS = (1, 2, 3, 7, 40)


def put(folder: Path, text: str | bytes, name: str = "f.txt") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def sent(value: Any) -> Any:
    """As another process would have it."""
    return pickle.loads(pickle.dumps(value))


def planned(path: Any, n: int, **options: Any) -> tuple[list[DataPart], Numbering]:
    parts = sent(open_parts(path, **options).parts(n))
    return parts, sent(merge(sent([part.census() for part in reversed(parts)])))


def records(chunks: Any) -> list[tuple[Any, ...]]:
    return [r for c in chunks for r in zip(*(a.tolist() for a in c), strict=True)]


def entries(parts: list[DataPart], numbering: Numbering, chunk: int = 50) -> list[tuple[Any, ...]]:
    found = []
    for part in parts:
        own = list(part.entries(numbering, chunk=chunk))
        assert all(len(c[2]) <= chunk for c in own)
        assert sum(len(c[2]) for c in own) == numbering.firsts[part.number + 1] - numbering.firsts[part.number]
        assert all(c[0].dtype == c[1].dtype == np.int32 and c[2].dtype == np.float32 for c in own)
        found += records(own)
    return found


def same_as_scan(path: str, n: int, **options: Any) -> tuple[list[DataPart], Numbering]:
    wanted = scan(path, **options)
    parts, numbering = planned(path, n, **options)
    assert (numbering.shape, numbering.nnz) == (wanted.shape, wanted.nnz)
    np.testing.assert_array_equal(numbering.row_counts, wanted.row_counts)
    np.testing.assert_array_equal(numbering.col_counts, wanted.col_counts)
    assert (numbering.row_ids, numbering.col_ids) == (wanted.row_ids, wanted.col_ids)
    if wanted.labels is None:
        assert numbering.labels is None
    else:
        np.testing.assert_array_equal(numbering.labels, wanted.labels)
    assert entries(parts, numbering) == records(wanted.chunks())
    return parts, numbering


MADE = [(i, j, (i * j) % 5 + 1) for i in range(1, 31) for j in range(1, 9) if (i + j) % 3]
BODY = "".join(f"{i} {j} {v}\n" for i, j, v in MADE)
TEXTS = {
    "bow": f"33\n9\n{len(MADE)}\n{BODY}",
    "mm": f"%%MatrixMarket matrix coordinate real general\n% a note\n33 9 {len(MADE)}\n{BODY}",
    "svmlight": "# made\n" + "".join(f"{i % 2} 2:{i} 3:{i + 1} 5:2 6:{i * i}\n" for i in range(30)),
    "svmlight0": "".join(f"-1 {'0:3 ' if i == 29 else ''}4:{i}\n" for i in range(30)),
    "lda-c": "".join("8 " + " ".join(f"{j}:{(i * j) % 5 + 1}" for j in range(8)) + "\n" for i in range(12)),
    "movielens": "".join(f"{i * 7}::{j * 1000}::{v}::978300760\n" for i, j, v in reversed(MADE)),
    "csv": "when,stars,user,item\n" + "".join(f'"a, b",{v},{i - 20},{j * 10**15}\n' for i, j, v in MADE),
    "names": "user,item,rating\n" + "".join(f'"ü {i % 7}",f{j},{v}\n' for i, j, v in reversed(MADE)),
    "mixed": "".join(f"0{i % 11}\t{j}\t{v}\n" for i, j, v in MADE),
    "no values": "user item\n" + "".join(f"u{i} {j}\n" for i, j, _ in MADE),
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {"no values": {"columns": (0, 1)}}


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("kind", TEXTS)
def test_text_in_parts_is_what_scan_finds(kind: str, n: int, tmp_path: Path) -> None:
    path = put(tmp_path, TEXTS[kind])
    parts, numbering = same_as_scan(path, n, **OPTIONS.get(kind, {}))
    assert len(parts) == n
    assert {part.kind for part in parts} == {"bytes"}
    assert max(part.nbytes for part in parts) - min(part.nbytes for part in parts) <= 1
    assert all(len(pickle.dumps(part)) < 2500 for part in parts)
    values = [v for _, _, v in records(scan(path, **OPTIONS.get(kind, {})).chunks())]
    assert (numbering.low, numbering.high) == (min(values), max(values))


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("movielens", {"raw_ids": True}), ("csv", {"ids": "text"}), ("svmlight", {"zero_based": True}),
        ("svmlight", {"format": "svmlight"}), ("csv", {"columns": ("item", "user", "stars")}),
        ("names", {"user": "item", "item": "user"}),
    ],
)  # fmt: skip
def test_options_are_those_of_scan(kind: str, options: dict[str, Any], n: int, tmp_path: Path) -> None:
    same_as_scan(put(tmp_path, TEXTS[kind]), n, **options)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("kind", ["bow", "names", "svmlight", "movielens"])
def test_a_packed_file_is_one_part(pack: Any, kind: str, tmp_path: Path) -> None:
    parts, _ = same_as_scan(put(tmp_path, pack(TEXTS[kind].encode()), "f.packed"), 5)
    assert [part.kind for part in parts] == ["whole"]


@pytest.mark.parametrize("form", ["symmetric", "skew-symmetric"])
def test_matrices_of_one_triangle_are_loaded(form: str, tmp_path: Path) -> None:
    text = f"%%MatrixMarket matrix coordinate real {form}\n5 5 3\n2 1 4\n3 1 5\n5 4 1\n"
    parts, _ = same_as_scan(put(tmp_path, text), 3)
    assert [part.kind for part in parts] == ["whole"]
    same_as_scan(put(tmp_path, "%%MatrixMarket matrix array real general\n2 2\n1\n0\n2\n3\n"), 2)


@pytest.mark.parametrize("kind", ["names", "movielens", "svmlight", "bow"])
def test_archives_are_loaded(kind: str, tmp_path: Path) -> None:
    data = st.read(put(tmp_path, TEXTS[kind]), cache=False, duplicates="keep")
    for k, one in enumerate((data, data.shuffle(seed=3))):
        path = str(tmp_path / f"{k}.npz")
        st.write(one, path)
        parts, _ = same_as_scan(path, 4)
        assert [part.kind for part in parts] == ["whole"]


@pytest.mark.parametrize("n", range(1, 9))
def test_a_byte_order_mark_inside_a_file_belongs_to_an_id(n: int, tmp_path: Path) -> None:
    same_as_scan(put(tmp_path, "\ufeffann x 3\nbob y 4\n\ufeffann x 5\nann y 1\n"), n)


def test_triples_are_as_written(tmp_path: Path) -> None:
    parts = open_parts(put(tmp_path, "bob\t70\t1\nann\t80\t2\nbob\t80\t3\n")).parts(2)
    assert records(c for part in parts for c in part.triples(chunk=1)) == [
        ("bob", 70, 1.0), ("ann", 80, 2.0), ("bob", 80, 3.0),
    ]  # fmt: skip
    data = st.read(put(tmp_path, "70 4 1\n80 5 2\n"), cache=False)
    st.write(data, tmp_path / "f.npz")
    assert records(open_parts(tmp_path / "f.npz").parts(1)[0].triples()) == [(70, 4, 1.0), (80, 5, 2.0)]


# -- Any file ---------------------------------------------------------------------------------------------------------

name = hs.text(hs.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters='",#%"'), min_size=1)
numbers = hs.integers(-5, 10**12)


@any_file
@given(
    hs.lists(hs.tuples(hs.one_of(name), numbers, hs.integers(-9, 9)), min_size=1, max_size=60),
    hs.integers(1, 90), hs.sampled_from(["\n", "\r\n"]), hs.booleans(), hs.integers(1, 99),
)  # fmt: skip
def test_any_text_in_any_number_of_parts(
    tmp_path: Path, drawn: list[Any], n: int, end: str, closed: bool, chunk: int
) -> None:
    text = end.join(["user,item,rating", *(f'"x{u}",{i},{v}' for u, i, v in drawn)]) + (end if closed else "")
    path = put(tmp_path, text)
    options: dict[str, Any] = {"format": "triples", "sep": ","}
    wanted = scan(path, **options)
    parts, numbering = planned(path, n, **options)
    assert (numbering.row_ids, numbering.col_ids) == (wanted.row_ids, wanted.col_ids)
    assert entries(parts, numbering, chunk) == records(wanted.chunks())
    as_written = records(c for part in parts for c in part.triples(chunk))
    assert as_written == [(f"x{u}", str(i) if numbering.col_ids.is_text else i, v) for u, i, v in drawn]  # type: ignore[union-attr]


@any_file
@given(hs.lists(hs.lists(hs.integers(0, 9), max_size=20, unique=True), min_size=1, max_size=25), hs.integers(1, 60))
def test_any_svmlight_in_any_number_of_parts(tmp_path: Path, drawn: list[list[int]], n: int) -> None:
    lines = [" ".join([str(k), *(f"{c}:{c + 1}" for c in sorted(row))]) for k, row in enumerate(drawn)]
    path = put(tmp_path, "\n".join(lines))
    if any(drawn):
        same_as_scan(path, n, format="svmlight")
    else:
        with pytest.raises(FormatError, match="no records"):
            planned(path, n, format="svmlight")


# -- Several files ----------------------------------------------------------------------------------------------------


def cut_up(folder: Path, text: str, files: int, header: str = "", ext: str = "csv") -> Path:
    """A folder whose files hold the lines, one after the other, each under the header."""
    folder.mkdir()
    lines = text.splitlines(keepends=True)
    for k in range(files):
        mine = lines[len(lines) * k // files : len(lines) * (k + 1) // files]
        put(folder, header + "".join(mine), f"part-{k:03}.{ext}")
    return folder


@pytest.mark.parametrize("n", [1, 3, 20])
def test_a_folder_a_glob_and_a_list_are_one_data_set(n: int, tmp_path: Path) -> None:
    header, _, body = TEXTS["names"].partition("\n")
    whole = scan(put(tmp_path, TEXTS["names"]))
    folder = cut_up(tmp_path / "many", body, 3, header + "\n")
    put(folder, "", "_SUCCESS")
    put(folder, "not data", ".hidden")
    put(folder, "", "part-004.csv")
    files = sorted(folder.glob("part-00[0-2]*"))
    for path in (folder, str(folder / "*.csv"), files, [folder / "part-000.csv", str(folder / "*-00[12].csv")]):
        parts, numbering = planned(path, n)
        assert (numbering.row_ids, numbering.col_ids) == (whole.row_ids, whole.col_ids)
        np.testing.assert_array_equal(numbering.row_counts, whole.row_counts)
        assert entries(parts, numbering) == records(whole.chunks())
        assert {part.path for part in parts} == {str(file) for file in files}
        assert abs(len(parts) - max(n, 3)) <= 1


@pytest.mark.parametrize("n", [2, 9])
@pytest.mark.parametrize("kind", ["bow", "svmlight", "lda-c", "mm"])
def test_rows_without_ids_follow_one_another(kind: str, n: int, tmp_path: Path) -> None:
    first = put(tmp_path, TEXTS[kind], "a.txt")
    second = put(tmp_path, TEXTS["svmlight0"] if kind == "svmlight" else TEXTS[kind], "b.txt")
    one, two = (
        st.read(path, kind, cache=False, zero_based=True if kind == "svmlight" else None) for path in (first, second)
    )
    parts, numbering = planned([first, second], n, format=kind)
    assert numbering.shape == (one.shape[0] + two.shape[0], max(one.shape[1], two.shape[1]))
    wanted = [*zip(one.rows.tolist(), one.cols.tolist(), one.values.tolist(), strict=True)]
    wanted += zip((two.rows + one.shape[0]).tolist(), two.cols.tolist(), two.values.tolist(), strict=True)
    assert entries(parts, numbering) == wanted
    if one.labels is not None and two.labels is not None:
        np.testing.assert_array_equal(numbering.labels, np.concatenate((one.labels, two.labels)))


def test_files_with_ids_are_united_whatever_they_are(tmp_path: Path) -> None:
    a, b = put(tmp_path, "7 1 5\n9 2 4\n", "a.txt"), put(tmp_path, "ann 1 3\nbob x 2\n8 x 1\n", "b.txt")
    parts, numbering = planned([a, b], 4)
    assert numbering.row_ids is not None
    assert numbering.col_ids is not None
    assert numbering.row_ids.ids.tolist() == ["7", "8", "9", "ann", "bob"]
    assert numbering.col_ids.ids.tolist() == ["1", "2", "x"]
    assert entries(parts, numbering) == [(0, 0, 5), (2, 1, 4), (3, 0, 3), (4, 2, 2), (1, 2, 1)]
    for name in ("a", "b"):
        st.write(st.read(tmp_path / f"{name}.txt", cache=False, ids="text"), tmp_path / f"{name}.npz")
    loaded, archives = planned(str(tmp_path / "*.npz"), 2)
    assert (archives.row_ids, archives.col_ids) == (numbering.row_ids, numbering.col_ids)
    assert sorted(entries(loaded, archives)) == sorted(entries(parts, numbering))


def test_nodes_have_parts_of_nearly_equal_bytes(tmp_path: Path) -> None:
    parts = open_parts(cut_up(tmp_path / "many", BODY, 12, ext="txt")).parts(3)
    assert len(parts) == 12
    dealt = shares(parts, 3)
    assert [part for share in dealt for part in share] == parts
    assert [len(share) for share in dealt] == [4, 4, 4]
    assert [len(share) for share in shares(parts[:2], 5)].count(0) == 3
    with pytest.raises(DataError, match="number of nodes"):
        shares(parts, 0)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    a = put(tmp_path, "user,item,rating\n1,2,3\n4,5,6\n", "a.csv")
    with pytest.raises(FormatError, match=r"b\.csv: its header is rating,user,item, that of .*a\.csv user,item,rating"):
        open_parts([a, put(tmp_path, "rating,user,item\n1,2,3\n4,5,6\n", "b.csv")])
    with pytest.raises(FormatError, match=r"c\.csv: its header is missing"):
        open_parts([a, put(tmp_path, "1,2,3\n4,5,6\n", "c.csv")])
    assert open_parts([a, str(tmp_path / "c.csv")], columns=(0, 1, 2)).parts(2)
    with pytest.raises(FormatError, match=r"d\.txt: it is bow .*, and .*a\.csv is triples; give a glob or a list"):
        open_parts([a, put(tmp_path, TEXTS["bow"], "d.txt")])
    with pytest.raises(FormatError, match=r"e\.txt: its header promises 5 columns, that of .*d\.txt 9"):
        open_parts([tmp_path / "d.txt", put(tmp_path, "3\n5\n1\n1 1 1\n", "e.txt")])
    with pytest.raises(DataError, match="is named twice"):
        open_parts([a, a])
    with pytest.raises(DataError, match="the list of files is empty"):
        open_parts([])
    with pytest.raises(DataError, match="no file matches"):
        open_parts(str(tmp_path / "*.none"))
    (tmp_path / "empty" / "deeper").mkdir(parents=True)
    with pytest.raises(DataError, match=r"is a folder without data files; .*/\*\*/"):
        open_parts(tmp_path / "empty")
    with pytest.raises(DataError, match="no such file"):
        open_parts(tmp_path / "missing")
    with pytest.raises(DataError, match="the number of parts"):
        open_parts(a).parts(0)


# -- Parquet ----------------------------------------------------------------------------------------------------------


def parquet(folder: Path, name: str = "f.parquet", text: bool = True, rows: slice = slice(None), **types: Any) -> str:
    pa = pytest.importorskip("pyarrow")
    made = MADE[rows]
    user = pa.array([f"ü{i % 13}" if text else i * 10**10 for i, _, _ in made])
    table = pa.table(
        {
            "time": list(range(len(made))),
            "rating": [float(v) for _, _, v in made],
            "user": types.get("user", lambda c: c)(user),
            "item": pa.array([j for _, j, _ in made], pa.int32()),
        }
    )
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, folder / name, row_group_size=11)
    return str(folder / name)


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("text", [False, True])
def test_parquet_in_parts_of_row_groups(text: bool, n: int, tmp_path: Path) -> None:
    path = parquet(tmp_path, text=text)
    parts, _ = same_as_scan(path, n)
    groups = -(-len(MADE) // 11)
    assert len(parts) == min(n, groups)
    assert parts[0].begin == 0
    assert all(a.end == b.begin for a, b in pairwise(parts))
    assert parts[-1].end == groups
    same_as_scan(path, n, columns=("item", "user"))


def test_parquet_of_other_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    for k, kind in enumerate((lambda c: c.dictionary_encode(), lambda c: c.cast(pa.large_string()))):
        same_as_scan(parquet(tmp_path, f"{k}.parquet", user=kind), 3)
    with pytest.raises(DataError, match=r"the user column 'user' has \d+ missing ids"):
        planned(parquet(tmp_path, "gaps.parquet", user=lambda c: pa.array([None, *c.to_pylist()[1:]])), 3)
    same_as_scan(parquet(tmp_path, "raw.parquet", user=lambda c: pa.array(range(len(c)))), 3, raw_ids=True)
    packed = put(tmp_path, gzip.compress(Path(parquet(tmp_path)).read_bytes()), "f.parquet.gz")
    assert [part.kind for part in same_as_scan(packed, 3)[0]] == ["whole"]


def test_a_folder_of_parquet_files(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    half = len(MADE) // 2
    parquet(tmp_path / "set", "a.parquet", rows=slice(0, half))
    parquet(tmp_path / "set", "b.parquet", rows=slice(half, None))
    whole = scan(parquet(tmp_path))
    parts, numbering = planned(tmp_path / "set", 5)
    assert (numbering.row_ids, numbering.col_ids) == (whole.row_ids, whole.col_ids)
    assert entries(parts, numbering) == records(whole.chunks())
    parquet(tmp_path / "set", "c.parquet", text=False)
    with pytest.raises(DataError, match=r"c\.parquet: its rows have integers for ids, those of .*a\.parquet text"):
        planned(tmp_path / "set", 5)
    Path(put(tmp_path, Path(parquet(tmp_path)).read_bytes()[:-40], "torn.parquet"))
    with pytest.raises(FormatError, match="damaged"):
        open_parts(tmp_path / "torn.parquet")


# -- URLs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_urls_folders_and_globs_of_urls(scheme: str, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    base = "memory://part-sources/set" if scheme == "memory" else f"file://{tmp_path}/set"
    os.makedirs(tmp_path / "set")
    lines = BODY.splitlines(keepends=True)
    for k in range(2):
        with fsspec.open(f"{base}/{k}.txt", "wb") as file:
            file.write("".join(lines[k::2]).encode())
    same_as_scan(f"{base}/0.txt", 4)
    wanted = scan(put(tmp_path, "".join(lines[0::2] + lines[1::2])))
    for path in (base, f"{base}/", f"{base}/*.txt", [f"{base}/0.txt", f"{base}/1.txt"]):
        parts, numbering = planned(path, 4)
        assert len(parts) == 4
        assert entries(parts, numbering) == records(wanted.chunks())
    assert len(st.read(f"{base}/*.txt")) == len(MADE)
    parts = open_parts(base).parts(2)
    with fsspec.open(f"{base}/1.txt", "wb") as file:
        file.write("".join(lines[1::2]).encode() + b"1 1 1\n")
    parts[0].check()
    with pytest.raises(DataError, match=r"1\.txt: the file changed since its parts were planned: it had"):
        parts[1].census()
    with pytest.raises(DataError, match="no such file"):
        open_parts(f"{base}/9.txt")
    with pytest.raises(DataError, match="no file matches"):
        open_parts(f"{base}/*.csv")


# -- Changes ----------------------------------------------------------------------------------------------------------


def touch(path: str, seconds: int = 5) -> None:
    about = os.stat(path)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns + seconds * 10**9))


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, BODY)
    parts, numbering = planned(path, 3)
    put(tmp_path, BODY + "1 1 1\n")
    for reading in (
        parts[0].check,
        parts[1].census,
        lambda: list(parts[2].entries(numbering)),
        lambda: list(parts[0].triples()),
    ):
        with pytest.raises(DataError, match=r"f\.txt: the file changed .* bytes and has .* plan the parts again"):
            reading()
    put(tmp_path, BODY)
    touch(path)
    with pytest.raises(DataError, match=r"it was modified, or this is a copy .*copies=True"):
        parts[0].check()
    os.remove(path)
    with pytest.raises(DataError, match=r"cannot be read although it could .*restore it, or make it available"):
        parts[0].check()


def test_copies_are_compared_by_their_records(tmp_path: Path) -> None:
    body = "".join(f"{k} {k % 7} 3\n" for k in range(1000, 6000))
    path = put(tmp_path, body)
    parts, numbering = planned(path, 3, copies=True)
    put(tmp_path, body)
    touch(path)
    assert entries(parts, numbering) == records(scan(path).chunks())
    other = body.replace("\n3000 4 3\n", "\n3000 4 5\n")  # in the middle: neither size nor ends tell
    assert other != body
    put(tmp_path, other)
    parts[1].check()
    with pytest.raises(DataError, match=r"part 1 of 3 .*f\.txt, bytes .*its records are not those that its census"):
        list(parts[1].entries(numbering))
    assert list(parts[0].entries(numbering))
    put(tmp_path, body.replace("\n3000 4 3\n", "\n# 00 4 3\n"))
    with pytest.raises(DataError, match="its census counted 1667 records, and it has 1666"):
        list(parts[1].entries(numbering))
    put(tmp_path, body.replace("\n3000 4 3\n", "\n3000 9 3\n"))
    with pytest.raises(DataError, match="ids that it did not hold"):
        list(parts[1].entries(numbering))
    put(tmp_path, body.replace("3", "4", 1))
    with pytest.raises(DataError, match="its contents are different"):
        parts[0].check()


def test_text_ids_that_change_places_are_noticed(tmp_path: Path) -> None:
    body = "".join(f"u{k} i 3\n" for k in range(1000, 6000))
    path = put(tmp_path, body)
    parts, numbering = planned(path, 3, copies=True)
    put(tmp_path, body.replace("u3000", "uxxxx").replace("u3001", "u3000").replace("uxxxx", "u3001"))
    with pytest.raises(DataError, match="its records are not those"):
        list(parts[1].entries(numbering))
    put(tmp_path, body.replace("u3000", "uxxxx"))
    with pytest.raises(DataError, match="it holds ids that its census did not count"):
        list(parts[1].entries(numbering))
    assert path


def test_a_change_while_a_part_is_read(tmp_path: Path) -> None:
    path = put(tmp_path, BODY)
    parts, numbering = planned(path, 1)
    chunks = parts[0].entries(numbering, chunk=20)
    next(chunks)
    touch(path)
    with pytest.raises(DataError, match="changed since"):
        list(chunks)


def test_censuses_must_be_those_of_one_plan(tmp_path: Path) -> None:
    path = put(tmp_path, BODY)
    parts, numbering = planned(path, 3)
    counted = [part.census() for part in parts]
    with pytest.raises(DataError, match="3 parts: that of part 1 is missing"):
        merge([counted[0], counted[2]])
    with pytest.raises(DataError, match="one part was counted twice"):
        merge([*counted, counted[0]])
    with pytest.raises(DataError, match="no census"):
        merge([])
    others = open_parts(path).parts(4)
    with pytest.raises(DataError, match="different plans"):
        merge([*counted[:2], others[2].census()])
    with pytest.raises(DataError, match="numbering is of another plan"):
        list(others[0].entries(numbering))
    with pytest.raises(DataError, match="chunk=0"):
        list(parts[0].triples(chunk=0))


def test_headers_promise_for_all_parts(tmp_path: Path) -> None:
    text = TEXTS["bow"].replace(f"\n{len(MADE)}\n", f"\n{len(MADE) + 1}\n")
    path = put(tmp_path, text)
    with pytest.raises(FormatError, match=f"the header promises {len(MADE) + 1} entries, the file has {len(MADE)}"):
        planned(path, 3)
    with pytest.warns(BadLinesWarning, match="the header promises"):
        planned(path, 3, on_error="skip")


@pytest.mark.parametrize("n", [1, 2, 5])
def test_bad_lines(n: int, tmp_path: Path) -> None:
    text = "".join(f"u{k} {k} {'x' if k in {3, 40} else '1e99' if k == 30 else 5}\n" for k in range(50))
    path = put(tmp_path, text)
    with pytest.raises(FormatError, match=r"the value .* (is not a number|does not fit)"):
        planned(path, n)
    with pytest.warns(BadLinesWarning, match=r"3 lines were left out; the first is in .*f\.txt, line 4: the value 'x'"):
        parts, numbering = planned(path, n, on_error="skip")
    with pytest.warns(BadLinesWarning):
        whole = scan(path, on_error="skip")
    assert (numbering.row_ids, numbering.left_out) == (whole.row_ids, 3)
    np.testing.assert_array_equal(numbering.row_counts, whole.row_counts)
    assert entries(parts, numbering) == records(whole.chunks())
    with pytest.raises(DataError, match="on_error='maybe'"):
        open_parts(path, on_error="maybe")


# -- Reading all of it ------------------------------------------------------------------------------------------------


def test_read_takes_a_folder_a_glob_and_a_list(tmp_path: Path) -> None:
    header, _, body = TEXTS["names"].partition("\n")
    whole = st.read(put(tmp_path, TEXTS["names"]), cache=False, duplicates="keep")
    folder = cut_up(tmp_path / "many", body, 3, header + "\n")
    for path in (folder, str(folder / "*.csv"), sorted(folder.iterdir())):
        data = st.read(path, duplicates="keep")
        assert (data.shape, data.row_ids, data.col_ids) == (whole.shape, whole.row_ids, whole.col_ids)
        for name in ("rows", "cols", "values"):
            np.testing.assert_array_equal(getattr(data, name), getattr(whole, name))
    with pytest.raises(DataError, match=r"more than once|twice|repeated"):
        st.read(folder)
    with pytest.raises(NotEnoughMemory):
        st.read(folder, duplicates="keep", memory=100)
    with pytest.raises(DataError, match="a path must be text"):
        st.read([folder / "part-000.csv", 3])  # type: ignore[list-item]


# -- What it costs ----------------------------------------------------------------------------------------------------


def test_a_part_reads_its_range_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stretto.data.reading.source import open_raw

    counts: list[int] = []

    def counting(path: str) -> Any:
        file: Any = open_raw(path)
        here = len(counts)
        counts.append(0)

        class Counted:
            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *exc: Any) -> None:
                file.close()

            def read(self, size: int = -1) -> bytes:
                got: bytes = file.read(size)
                counts[here] += len(got)
                return got

            def readinto(self, buffer: Any) -> int:
                got: int = file.readinto(buffer)
                counts[here] += got
                return got

        return Counted()

    text = "".join(f"{k},{k % 9},3\n" for k in range(100_000))
    path = put(tmp_path, text)
    monkeypatch.setattr("stretto.data.reading.source.open_raw", counting)
    parts = open_parts(path).parts(40)
    assert sum(counts) <= (1 << 16) + 8  # the driver: the first bytes, which say what the file is
    counts.clear()
    numbering = merge([part.census() for part in parts])
    assert max(counts) <= len(text) // 40 + 2 * 4096 + 100  # a node: its range, and both ends to find lines
    counts.clear()
    assert list(parts[7].entries(numbering))
    assert sum(counts) <= len(text) // 40 + 2 * 4096 + 100


# -- Memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [False, True])
def test_memory_does_not_grow_with_records(text: bool, tmp_path: Path) -> None:
    rows, cols, n = 5000, 2000, 2_000_000
    draw = np.random.default_rng(0)
    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write("user,item,rating\n")
        for _ in range(20):
            r, c = draw.integers(0, rows, n // 20).tolist(), draw.integers(0, cols, n // 20).tolist()
            file.write("".join(f"{'u' if text else ''}{i},{j},3\n" for i, j in zip(r, c, strict=True)))
    small = put(tmp_path, "user,item,rating\nu1,2,3\n" if text else "user,item,rating\n1,2,3\n")
    entries(*planned(small, 1))  # kernels are loaded before anything is measured
    tracemalloc.start()
    try:
        parts, numbering = planned(str(path), 4)
        count = sum(len(values) for part in parts for _, _, values in part.entries(numbering))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (count, numbering.shape) == (n, (rows, cols))
    assert peak < 60e6, f"{peak / 1e6:.0f} MB"
