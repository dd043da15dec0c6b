"""Readers: every format there and back, detection, bad input, and the numbers inside."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import io, sparse

from stretto.data import Data, as_data, inspect, iter_triples, ratings, read, scan, write
from stretto.data.reading.report import BadLinesWarning
from stretto.errors import DataError, FormatError, NotEnoughMemory, PlanError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed data goes to a fresh folder; compiled kernels stay where they are, they take seconds to make."""
    from stretto.data.reading import cache

    root = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(cache, "cache_root", lambda: root)


def put(folder: Path, text: str | bytes, name: str = "file.txt") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def outside(data: Data) -> list[tuple[Any, Any, float]]:
    """Records under their outside names."""
    rows = data.rows if data.row_ids is None else data.row_ids.decode(data.rows)
    cols = data.cols if data.col_ids is None else data.col_ids.decode(data.cols)
    return list(zip(rows.tolist(), cols.tolist(), data.values.tolist(), strict=True))


THREE = [(3, 10, 5.0), (1, 10, 3.5), (3, 7, 1.0)]

DELIMITED = {
    "dat": ("ratings.dat", "3::10::5::978300760\n1::10::3.5::978302109\n3::7::1::978301968\n", "movielens"),
    "csv": ("ratings.csv", "userId,movieId,rating,timestamp\n3,10,5.0,1\n1,10,3.5,2\n3,7,1.0,3\n", "movielens"),
    "udata": ("u.data", "3\t10\t5\t881250949\n1\t10\t3.5\t891717742\n3\t7\t1\t878887116\n", "movielens"),
    "tab": ("a", "3\t10\t5\n1\t10\t3.5\n3\t7\t1\n", "triples"),
    "blanks": ("a", "  3 10  5\n1\t10 3.5 \n3 7 1\n", "triples"),
    "semicolon": ("a", "3;10;5\n1;10;3.5\n3;7;1", "triples"),
    "comma, CRLF, blank lines, no last newline": ("a", "3, 10, 5\r\n\r\n1, 10, 3.5\r\n\n3, 7, 1", "triples"),
    "comments": ("a", "# a remark\n3 10 5\n% another\n1 10 3.5\n3 7 1e0\n", "triples"),
    "byte order mark": ("a", "\ufeff3,10,5\n1,10,3.5\n3,7,1\n", "triples"),
    "named columns in another order": ("a", "rating,when,item,user\n5,x,10,3\n3.5,y,10,1\n1,z,7,3\n", "triples"),
    "quoted": ("a", '"user","item","rating"\n"3","10","5"\n"1","10","3.5"\n"3","7","1"\n', "triples"),
}


@pytest.mark.parametrize("case", DELIMITED)
def test_delimited(case: str, tmp_path: Path) -> None:
    name, text, expected = DELIMITED[case]
    path = put(tmp_path, text, name)
    data = read(path)
    assert outside(data) == THREE
    assert data.shape == (2, 2)
    assert data.rows.dtype == data.cols.dtype == np.int32
    assert data.values.dtype == np.float32
    info = inspect(path)
    assert info.format == expected
    assert info.ok


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_packed_whatever_the_name(pack: Any, tmp_path: Path) -> None:
    path = put(tmp_path, pack(DELIMITED["tab"][1].encode()), "plain.tsv")
    assert outside(read(path)) == THREE
    assert inspect(path).compression in {"gzip", "xz", "bzip2"}


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_urls(scheme: str, tmp_path: Path) -> None:
    import fsspec

    url = "memory://stretto/r.dat" if scheme == "memory" else f"file://{tmp_path}/r.dat"
    with fsspec.open(url, "wb") as f:
        f.write(DELIMITED["dat"][1].encode())
    assert outside(read(url)) == THREE


def test_text_ids(tmp_path: Path) -> None:
    path = put(tmp_path, 'user,item,rating\nzoë,B001,5\nann,B002,3\n"li, wei",B001,4\n')
    data = read(path)
    assert data.row_ids is not None
    assert data.row_ids.ids.tolist() == ["ann", "li, wei", "zoë"]
    assert outside(data) == [("zoë", "B001", 5.0), ("ann", "B002", 3.0), ("li, wei", "B001", 4.0)]
    mixed = read(put(tmp_path, "7\tx\t1\n8\ty\t2\n7\ty\t3\n", "mixed"))
    assert outside(mixed) == [(7, "x", 1.0), (8, "y", 2.0), (7, "y", 3.0)]
    zeros = read(put(tmp_path, "007 1 1\n07 1 2\n7 1 3\n", "zeros"))  # three names, not one number
    assert [r[0] for r in outside(zeros)] == ["007", "07", "7"]


def test_ids_as_told(tmp_path: Path) -> None:
    path = put(tmp_path, "7 8 1\n07 8 2\n9 9 3\n10 9 3\n")
    with pytest.raises(FormatError, match='ids="text"'):
        read(path)
    assert [r[0] for r in outside(read(path, ids="text"))] == ["7", "07", "9", "10"]
    with pytest.raises(FormatError, match="'a' is not a plain integer"):
        read(put(tmp_path, "a b 1\n", "t"), ids="integer")
    with pytest.raises(DataError, match="ids must be"):
        read(path, ids="words")


def test_many_text_ids_grow_the_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = sorted({(int(a), int(b)) for a, b in rng.integers(0, 20_000, (30_000, 2))})
    path = put(tmp_path, "".join(f"user-{a}\titem {b}\t{(a + b) % 5 + 1}\n" for a, b in pairs))
    data = read(path)
    assert outside(data) == [(f"user-{a}", f"item {b}", float((a + b) % 5 + 1)) for a, b in pairs]


def test_wide_and_negative_ids(tmp_path: Path) -> None:
    path = put(tmp_path, "76561198000000001 -4 1\n76561198000000000 9000000000 2\n")
    assert outside(read(path)) == [(76561198000000001, -4, 1.0), (76561198000000000, 9000000000, 2.0)]
    with pytest.raises(DataError, match="negative"):
        read(path, raw_ids=True)
    raw = read(put(tmp_path, "3 10 5\n1 10 3\n", "raw"), raw_ids=True)
    assert (raw.shape, raw.row_ids) == ((4, 11), None)


def test_chosen_columns(tmp_path: Path) -> None:
    path = put(tmp_path, "who,what,extra,when\n1,2,9,5\n3,4,8,6\n")
    assert outside(read(path, columns=("who", "what"))) == [(1, 2, 1.0), (3, 4, 1.0)]
    assert outside(read(path, columns=(0, 1, 3))) == [(1, 2, 5.0), (3, 4, 6.0)]
    with pytest.raises(FormatError, match="no column 'whom'; its columns are who, what, extra, when"):
        read(path, columns=("whom", "what"))


def test_the_number_of_columns_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "a.svml").write_text("1 1:2\n-1 3:1\n")
    (tmp_path / "b.svml").write_text("-1 2:2\n")
    path = tmp_path / "a.svml"
    assert read(path).shape == (2, 3)
    assert read(path, n_columns=7).shape == (2, 7)
    assert read(path, n_columns=7).to_csr().toarray()[1].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert read(path).shape == (2, 3), "what is kept on disk has no number of columns"
    assert read([path, tmp_path / "b.svml"], n_columns=5).shape == (3, 5)
    with pytest.raises(DataError, match="n_columns=2, but it has 3 columns; give at least as many"):
        read(path, n_columns=2)
    with pytest.raises(PlanError, match="n_columns"):
        read(path, n_columns=0)
    (tmp_path / "c.tsv").write_text("a\tx\t1\nb\ty\t2\n")
    with pytest.raises(DataError, match="its columns have ids"):
        read(tmp_path / "c.tsv", n_columns=9)


def test_svmlight(tmp_path: Path) -> None:
    path = put(tmp_path, "+1 qid:3 1:0.5 3:2 # a remark\n-1\n# nothing\n2.5 2:1e-3\t5:7\n")
    data = read(path)
    assert data.shape == (3, 5)
    assert data.labels is not None
    assert data.labels.tolist() == [1.0, -1.0, 2.5]
    assert list(data) == [((0, 0), 0.5), ((0, 2), 2.0), ((2, 1), np.float32(1e-3)), ((2, 4), 7.0)]
    assert read(path, zero_based=True).shape == (3, 6)
    assert read(put(tmp_path, "1 0:1 3:1\n", "zero")).shape == (1, 4)
    with pytest.raises(DataError, match="index 0"):
        read(put(tmp_path, "1 0:1 3:1\n", "zero"), zero_based=False)


def test_lda_c(tmp_path: Path) -> None:
    data = read(put(tmp_path, "2 0:1 5:3\n1 2:2\n"))
    assert (data.shape, data.labels) == ((2, 6), None)
    assert list(data) == [((0, 0), 1.0), ((0, 5), 3.0), ((1, 2), 2.0)]


def test_bag_of_words(tmp_path: Path) -> None:
    data = read(put(tmp_path, "3\n5\n3\n1 2 1\n1 5 4\n3 1 2\n"))
    assert data.shape == (3, 5)
    assert list(data) == [((0, 1), 1.0), ((0, 4), 4.0), ((2, 0), 2.0)]


@pytest.mark.parametrize("kind", ["general", "symmetric", "skew-symmetric", "pattern", "integer", "array"])
def test_matrix_market_agrees_with_scipy(kind: str, tmp_path: Path) -> None:
    m = sparse.random(9, 9, 0.3, random_state=1, dtype=np.float64)
    path = str(tmp_path / "m.mtx")
    if kind in {"symmetric", "skew-symmetric"}:
        m = sparse.coo_array(m + m.T if kind == "symmetric" else m - m.T)
        io.mmwrite(path, m, symmetry=kind)
    elif kind == "integer":
        io.mmwrite(path, sparse.coo_array((m * 10).astype(np.int64)))
    elif kind == "array":
        io.mmwrite(path, m.toarray())
    else:
        io.mmwrite(path, m, field="pattern" if kind == "pattern" else None)
    expected = io.mmread(path)
    dense = expected if isinstance(expected, np.ndarray) else expected.toarray()
    np.testing.assert_allclose(read(path).to_csr().toarray(), dense, rtol=1e-6)


BAD = {
    "too few fields": ("1 2 3\n4 5\n", 2, "expected 3 fields, found 2"),
    "too many fields": ("1,2,3\n4,5,6,7\n", 2, "expected 3 fields, found 4"),
    "an empty field": ("1,2,3\n4,,6\n", 2, "the id ''"),
    "an empty last field": ("1,2,3\n4,5,\n", 2, "expected 3 fields, found 3 .one is empty"),
    "a NaN": ("1 2 3\n\n4 5 nan\n", 3, "'nan' is missing"),
    "an infinity": ("1 2 3\n4 5 -inf\n", 2, "is infinite"),
    "too large": ("1 2 3\n4 5 1e39\n", 2, "does not fit a 32-bit float"),
    "a word for a value": ("1 2 3\n4 5 good\n", 2, "'good' is not a number"),
    "a tail on a value": ("1 2 3\n4 5 6x\n", 2, "'6x' is not a number"),
    "a word for an id": ("1 2 3\n4 x 6\n7 8 9\n", 2, "the id 'x' is not a plain integer"),
    "a fraction for an id": ("1 2 3\n4.5 5 6\n7 8 9\n", 2, "the id '4.5'"),
    "svmlight index": ("1 1:2\n1 x:3\n", 2, "expected index:value, found 'x:3'"),
    "svmlight value": ("1 1:2\n1 2:nan\n", 2, "'nan' is missing"),
    "svmlight label": ("1 1:2\nyes 2:1\n", 2, "the label 'yes' is not a number"),
    "bag-of-words column": ("2\n3\n2\n1 1 1\n2 4 1\n", 5, "column 4 is outside 1..3"),
    "bag-of-words row": ("2\n3\n2\n1 1 1\n0 3 1\n", 5, "row 0 is outside 1..2"),
    "bag-of-words count": ("2\n3\n9\n1 1 1\n2 3 1\n", 5, "promises 9 entries, the file has 2"),
    "MatrixMarket": ("%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1\n", 3, "row 3 is outside 1..2"),
    "MatrixMarket head": ("%%MatrixMarket matrix coordinate real general\n2 2\n1 1 1\n", 2, "expected 'rows columns"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_lines_are_named(case: str, tmp_path: Path) -> None:
    text, line, says = BAD[case]
    formats = {"svml": "svmlight", "bag-": "bow"}
    path = put(tmp_path, text)
    with pytest.raises(FormatError, match=says) as caught:
        read(path, formats.get(case[:4], "auto"))
    assert caught.value.line == line
    assert caught.value.path == path
    assert caught.value.remedy
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_skipping_counts_and_warns_once(tmp_path: Path) -> None:
    path = put(tmp_path, "1 2 3\nx\n4 5 nan\n6 7 8\n1 2 1e99\n")
    with pytest.warns(BadLinesWarning, match="3 lines were left out; the first is line 2: expected 3 fields") as seen:
        data = read(path, on_error="skip")
    assert len(seen) == 1
    assert outside(data) == [(1, 2, 3.0), (6, 7, 8.0)]
    with pytest.warns(BadLinesWarning):
        read(path, on_error="skip")  # not silently taken from the cache
    with pytest.raises(DataError, match="on_error"):
        read(path, on_error="ignore")


def test_more_bad_lines_than_notes(tmp_path: Path) -> None:
    path = put(tmp_path, "1 2 3\n" + "bad\n" * 10_000 + "4 5 6\n")
    with pytest.warns(BadLinesWarning, match="10000 lines"):
        assert len(read(path, on_error="skip")) == 2
    slow = "".join(f"{k} 1:0.{k:040d}7\n" for k in range(10_000))
    data = read(put(tmp_path, slow, "slow"), "svmlight")
    assert data.values.tolist() == [float(np.float32(f"0.{k:040d}7")) for k in range(10_000)]


def test_repeated_pairs_in_a_file(tmp_path: Path) -> None:
    path = put(tmp_path, "u i r\n1 2 3\n\n5 6 1\n1 2 4\n")
    with pytest.raises(
        FormatError, match=r"pair \(1, 2\) occurs twice, at lines 2 and 5, with values 3 and 4; say"
    ) as caught:
        read(path)
    assert caught.value.line == 5
    assert outside(read(path, duplicates="last")) == [(1, 2, 4.0), (5, 6, 1.0)]
    assert outside(read(path, duplicates="mean")) == [(1, 2, 3.5), (5, 6, 1.0)]
    assert len(read(path, duplicates="keep")) == 3


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"# only\n# comments\n", "only comments"),
        (b"userId,movieId,rating\n", "no records"),
        (b"\x00\x01\x02\x03 binary", "not a text file"),
        ("1 2 3\n".encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04 broken", "archive is damaged"),
        (b"\x28\xb5\x2f\xfd....", "zstandard"),
        (gzip.compress(b"1 2 3\n" * 50_000, mtime=0)[:150], "ends too early"),
        (gzip.compress(b"1 2 3\n", mtime=0)[:-9] + b"garbage!!", "damaged"),
    ],
)
def test_unusable_files(content: bytes, says: str, tmp_path: Path) -> None:
    path = put(tmp_path, content)
    with pytest.raises(DataError, match=says) as caught:
        read(path)
    assert path in str(caught.value)


def test_unreachable_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "missing.dat")
    with pytest.raises(DataError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(DataError, match="cannot be opened"):
        read("nosuchscheme://x")
    with pytest.raises(DataError, match="no such file"):
        read("memory://nothing/here")
    with pytest.raises(DataError, match="no format 'xml'"):
        read(put(tmp_path, "1 2 3\n"), "xml")


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(
        "stretto.data.reading.source.open", closed, raising=False
    )  # a mode of 0 does not stop the superuser
    with pytest.raises(DataError, match="no permission"):
        read(put(tmp_path, "1 2 3\n"))


def test_memory_is_refused_early(tmp_path: Path) -> None:
    path = put(tmp_path, "".join(f"{k} {k} 1\n" for k in range(5000)))
    with pytest.raises(NotEnoughMemory, match="scan"):
        read(path, memory="10KiB")
    assert len(read(path, memory="1MiB")) == 5000
    with pytest.raises(NotEnoughMemory):
        read(path, memory=100)  # from the cache too
    with pytest.raises(DataError, match="as an amount of memory"):
        read(path, memory="much")


@pytest.fixture(scope="module")
def made() -> Data:
    return ratings(3000, 150, 80, noise=0.5, step=None, seed=4).data


@pytest.mark.parametrize("format", ["triples", "movielens", "svmlight", "mm", "npz", "parquet"])
def test_round_trip(format: str, made: Data, tmp_path: Path) -> None:
    path = str(tmp_path / "there")
    write(made, path, format)
    back = read(path)
    expected = outside(made)
    assert outside(back) == (sorted(expected) if format == "svmlight" else expected)
    assert os.listdir(tmp_path) == ["there"]


@pytest.mark.parametrize("format", ["triples", "npz", "parquet"])
def test_round_trip_of_text_ids(format: str, tmp_path: Path) -> None:
    data = as_data((["ann", "bob", "ann"], ["x", "x", "y"], [1.0, 2.0, 0.1]))
    write(data, tmp_path / "f", format)
    back = read(tmp_path / "f")
    assert outside(back) == outside(data)
    assert back.row_ids == data.row_ids


def test_labels_round_trip(tmp_path: Path) -> None:
    data = Data.from_arrays([0, 2], [1, 0], [1.5, 2.0], (3, 2), labels=[0.1, -3, 2 / 3])
    for name in ("a.svm", "a.npz"):
        write(data, tmp_path / name)
        back = read(tmp_path / name)
        assert back.labels is not None
        assert back.labels.tolist() == [0.1, -3.0, 2 / 3]
        assert list(back) == list(data)
    with pytest.raises(DataError, match="cannot be written"):
        write(data, tmp_path / "no" / "folder")
    with pytest.raises(DataError, match="cannot stand in a text file"):
        write(as_data((["a\tb"], ["c"], [1.0])), tmp_path / "a")
    with pytest.raises(DataError, match="cannot write 'xml'"):
        write(data, tmp_path / "a", "xml")


def test_scipy_npz_and_foreign_npz(tmp_path: Path) -> None:
    m = sparse.random(12, 9, 0.3, format="csr", random_state=0)
    sparse.save_npz(tmp_path / "m.npz", m)
    np.testing.assert_allclose(read(tmp_path / "m.npz").to_csr().toarray(), m.toarray(), rtol=1e-6)
    np.savez(tmp_path / "other.npz", x=np.arange(3))
    with pytest.raises(FormatError, match="it holds x"):
        read(tmp_path / "other.npz")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30),
    st.sampled_from(["r", ".6f", ".17g", ".9e", ".3g"]),
)
def test_numbers_are_rounded_correctly(tmp_path: Path, numbers: list[float], style: str) -> None:
    """Labels as Python reads them; values as NumPy's float32 of the text, digit for digit."""
    texts = [repr(x) if style == "r" else format(x, style) for x in numbers]
    texts = [t if np.isfinite(float(t)) else "1" for t in texts]  # the largest floats, rounded up
    fits = [t if abs(float(t)) < 3e38 else "1" for t in texts]
    path = put(tmp_path, "".join(f"{y} 1:{v}\n" for y, v in zip(texts, fits, strict=True)))
    data = read(path, "svmlight", cache=False)
    assert data.labels is not None
    assert data.labels.tolist() == [float(t) for t in texts]
    assert data.values.tolist() == [float(np.float32(v)) for v in fits]


def test_numbers_next_to_the_middle(tmp_path: Path) -> None:
    """Between two neighbouring 32-bit floats, where rounding twice goes wrong."""
    texts = [
        "16777217",
        "16777217.0000000001",
        "16777216.9999999999",
        "1.00000005960464477539",
        "1.0000000596046447754",
    ]
    texts += [
        "0.1",
        ".5",
        "5.",
        "1e-46",
        "1e-40",
        "3.4028235e38",
        "123456789012345678901234567890",
        "0.000000000000000000000012345",
    ]
    path = put(tmp_path, "".join(f"{k} {k} {t}\n" for k, t in enumerate(texts)))
    assert read(path).values.tolist() == [float(np.float32(t)) for t in texts]


small = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(small, st.integers(24, 80), st.sampled_from(["", "u"]))
def test_chunks_of_any_size_give_the_same(
    tmp_path: Path, records: list[tuple[int, int, int]], chunk: int, pre: str
) -> None:
    path = put(tmp_path, "".join(f"{pre}{i} {j} {v}\n" for i, j, v in records))
    whole = read(path, duplicates="keep", cache=False)
    s = scan(path, chunk=chunk)
    parts = list(s.chunks(chunk))
    assert max(len(p[0]) for p in parts) <= chunk
    for k, array in enumerate((whole.rows, whole.cols, whole.values)):
        assert np.concatenate([p[k] for p in parts]).tolist() == array.tolist()
    assert (s.shape, s.nnz, s.row_ids, s.col_ids) == (whole.shape, len(whole), whole.row_ids, whole.col_ids)
    assert s.row_counts.tolist() == np.bincount(whole.rows, minlength=s.shape[0]).tolist()
    assert s.col_counts.tolist() == np.bincount(whole.cols, minlength=s.shape[1]).tolist()
    raw = list(iter_triples(path, chunk=chunk))
    assert np.concatenate([p[1] for p in raw]).tolist() == [j for _, j, _ in records]


@pytest.mark.parametrize("format", ["svmlight", "bow", "mm", "npz"])
def test_scan_of_other_formats(format: str, made: Data, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    if format == "bow":
        body = "".join(f"{i + 1} {j + 1} {k % 5 + 1}\n" for k, ((i, j), _) in enumerate(made))
        put(tmp_path, f"150\n80\n{len(made)}\n{body}", "f")
    else:
        write(made, path, format)
    whole, s = read(path), scan(path, chunk=1000)
    assert np.concatenate([c[1] for c in s.chunks(1000)]).tolist() == whole.cols.tolist()
    assert (s.shape, s.nnz) == (whole.shape, len(whole))


def test_a_file_that_changes_under_a_scan(tmp_path: Path) -> None:
    path = put(tmp_path, "1 2 3\n4 5 6\n")
    s = scan(path)
    put(tmp_path, "1 2 3\n")
    with pytest.raises(DataError, match="start again"):
        list(s.chunks())
    for changed in ("1 2 3\n3 5 6\n", "1 2 3\n9 5 6\n", "0 2 3\n4 5 6\n"):
        put(tmp_path, changed)
        with pytest.raises(DataError, match="start again"):
            list(s.chunks())


def test_scan_of_far_flung_ids(tmp_path: Path) -> None:
    path = put(tmp_path, "".join(f"{k * 10**12} {-k} 1\n" for k in (5, 1, 3, 5_000)) + "5000000000000 7 2\n")
    s, whole = scan(path, chunk=32), read(path)
    parts = list(s.chunks(32))
    assert np.concatenate([p[0] for p in parts]).tolist() == whole.rows.tolist()
    assert np.concatenate([p[1] for p in parts]).tolist() == whole.cols.tolist()
    assert s.row_counts.tolist() == [1, 1, 2, 1]
    assert s.row_ids == whole.row_ids
    put(tmp_path, "2000000000000 -1 1\n")
    with pytest.raises(DataError, match="start again"):
        list(s.chunks())


def test_a_line_longer_than_a_chunk(tmp_path: Path) -> None:
    path = put(tmp_path, "1 " + " ".join(f"{k}:1" for k in range(1, 400)) + "\n-1 3:2\n")
    s = scan(path, chunk=64)
    assert sum(len(c[0]) for c in s.chunks(64)) == 400


def test_inspect_goes_on_after_problems(tmp_path: Path) -> None:
    path = put(tmp_path, "1 2 3\nbroken\n4 5 nan\n1 2 4\n6 7 8\n1 x 2\n")
    info = inspect(path)
    assert not info.ok
    assert (info.bad_lines, info.description.nnz, info.description.duplicates) == (3, 3, 1)
    assert [p.line for p in info.problems] == [2, 3, 4, 6]
    report = info.text()
    assert "the pair (1, 2) was on line 1 already" in report
    assert "lines of 3 fields separated by blanks" in report


def test_inspect_values(made: Data, tmp_path: Path) -> None:
    write(made, tmp_path / "r.tsv")
    info = inspect(tmp_path / "r.tsv")
    assert info.ok
    assert sum(n for _, n in info.values) == 3000
    assert len(info.values) == 10
    assert "problems  none" in info.text()
