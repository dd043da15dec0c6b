"""What a delimited file is taken for: headers, wide tables, extra fields, odd ids; headers that promise too much."""

from __future__ import annotations

import gzip
import os
import socket
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import io

import stretto as st
from stretto.data import Data, detect, inspect, iter_triples, read, scan, write
from stretto.data.convert.convert import as_data
from stretto.data.reading.delimited import fields_of
from stretto.data.reading.report import BadLinesWarning
from stretto.errors import DataError, FormatError
from stretto.models.topics.input import read_vocabulary


def put(folder: Path, text: str | bytes, name: str = "file.txt") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def got(path: str, **options: Any) -> list[tuple[Any, Any, float]]:
    """Records under their outside names, by `read`; `scan` and `inspect` must agree."""
    data = read(path, cache=False, **options)
    found = scan(path, **options)
    parts = list(found.chunks())
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), data.rows)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), data.cols)
    assert found.shape == data.shape
    assert inspect(path, **options).description.nnz == len(data)
    return outside(data)


def outside(data: Data) -> list[tuple[Any, Any, float]]:
    rows = data.rows if data.row_ids is None else data.row_ids.decode(data.rows)
    cols = data.cols if data.col_ids is None else data.col_ids.decode(data.cols)
    return list(zip(rows.tolist(), cols.tolist(), data.values.tolist(), strict=True))


READS = {
    "a header in another order": ("score,when,item,user\n5,1,10,3\n4,2,7,3\n", [(3, 10, 5.0), (3, 7, 4.0)]),
    "pandas' index": (",user,item,rating\n0,3,10,5\n1,3,7,4\n", [(3, 10, 5.0), (3, 7, 4.0)]),
    "a time stamp": ("3,10,5,978300760\n3,7,4,978302109\n", [(3, 10, 5.0), (3, 7, 4.0)]),
    "a date": ("3\t10\t5\t2024-05-01 10:00\n3\t7\t4\t2024-05-02\n", [(3, 10, 5.0), (3, 7, 4.0)]),
    "a last separator": ("3;10;5;\n3;7;4;\n", [(3, 10, 5.0), (3, 7, 4.0)]),
    "quotes with separators": (
        'user,item,rating,note\n3,"a, b",5,"x, y"\n3,c,4,"""z"""\n',
        [(3, "a, b", 5), (3, "c", 4)],
    ),
    "the last line alone is text": ("u1,1,5\nu2,1,4\nu3,2,3\n", [("u1", 1, 5.0), ("u2", 1, 4.0), ("u3", 2, 3.0)]),
    "one line": ("7 8 9\n", [(7, 8, 9.0)]),
    "one line without an end": ("7 8 9", [(7, 8, 9.0)]),
    "CRLF": ("user,item,rating\r\n7,8,9\r\n", [(7, 8, 9.0)]),
    "a byte order mark and a header": ("\ufeffuser,item,rating\r\n7,8,9\r\n", [(7, 8, 9.0)]),
    "a commented record among integers": ("#1,2,3\n7,8,9\n", [(7, 8, 9.0)]),
    "ids in brackets": ("[deleted],<b,5\nann,<c,4\n", [("[deleted]", "<b", 5.0), ("ann", "<c", 4.0)]),
    "pipes": ("user|item|rating\n7|8|9\n", [(7, 8, 9.0)]),
    "a commented header": ("# rating user item\n9 7 8\n", [(7, 8, 9.0)]),
    "a remark that is no header": ("# our user and item\n7 8 9\n", [(7, 8, 9.0)]),
    "a quoted # among text": ('"#ann",8,9\nbob,7,1\n', [("#ann", 8, 9.0), ("bob", 7, 1.0)]),
}


@pytest.mark.parametrize("case", READS)
def test_layouts_that_are_clear(case: str, tmp_path: Path) -> None:
    text, expected = READS[case]
    assert got(put(tmp_path, text)) == expected


REFUSED = {
    "wide, named users": ("user,alien,brazil,heat\n1,5,3,4\n2,4,2,1\n", 1, "looks like a wide table"),
    "wide, numbered items": ("user,1,2,3\n7,5,3,4\n8,4,2,1\n", 1, "looks like a wide table"),
    "wide, two numbered items": ("user,1,2\n7,5,3\n8,4,2\n", 1, "looks like a wide table"),
    "wide, an index without a name": (",1,2,3\n7,5,3,4\n8,4,2,1\n", 1, "looks like a wide table"),
    "wide, no header": ("7,5,3,4,1\n8,4,2,1,3\n", 1, "lines of 5 fields without a header"),
    "wide, no header, three items": ("7,5,3,4\n8,4,2,1\n", 1, r"lines of 4 fields .*columns=\(0, 1, 2\)"),
    "a header that names something else": ("who,what,how\n7,8,9\n", 1, "not clear which column"),
    "two ratings": ("user,item,rating,score\n7,8,9,1\n", 1, "'rating' and 'score' may each be the rating"),
    "no rating": ("user,item,timestamp\n7,8,978300760\n", 1, 'rating="timestamp"'),
    "time stamps for values": ("7,8,978300760\n9,8,978302109\n", None, "look like time stamps"),
    "pairs": ("7,8\n9,8\n", 1, r"columns=\(0, 1\) if every value is 1"),
    "row names, as R writes them": ("user item rating\na 7 8 9\nb 7 9 9\n", 1, "header has 3 fields .* have 4"),
    "decimal commas": ("user,item,rating\n7,8,3,5\n9,8,4,5\n", 1, "decimal commas"),
    "decimal commas beside semicolons": ("user;item;rating\n7;8;3,5\n", 2, "'3,5' has a decimal comma; write a"),
    "the first record lacks its value": ("ann,x,NA\nbob,y,3\n", 1, "'NA' is missing"),
    "ids written as floats": ("7.0,8.0,5\n9.0,8.0,3\n", None, 'ids="text"'),
    "ratings in the users' place": ("4.5,7,8\n3.5,9,8\n", None, "ids of the user column, such as 4.5"),
    "a hash before a text id": ("#ann,x,5\nbob,y,3\n", 1, "begins with '#'"),
    "a commented header that names something else": ("#user,item,when\n7,8,9\n", 2, "no column is called rating"),
    "dates for users": ("2024-01-01,7,5\n2024-01-02,8,4\n", None, "are dates"),
    "JSON": ('{"user": 7, "item": 8, "rating": 9}\n', 1, "looks like JSON; convert it to CSV"),
    "a web page": ("<html>404</html>\n", 1, "XML or HTML"),
    "old Mac": ("1,2,3\r4,5,6\r", 1, "carriage return"),
    "too many fields": ("user,item,rating,when\n7,8,9,1\n7,9,9,1,1\n", 3, "expected 4 fields, found 5"),
    "a field lost": ("7::8::9::978300760\n7::9::978300760\n", 2, "expected 4 fields, found 3"),
    "quotes that do not end": ('user,item,rating,note\n7,8,9,"a\n4,5,1,b"\n', 2, "does not end"),
    "minus nothing": ("1,2,3\n-0,2,4\n5,6,7\n", 2, "'-0' is not a plain integer"),
    "MatrixMarket with a slip": ("%%MatrxMarket matrix coordinate real general\n2 2 1\n1 1 5\n", 1, "MatrixMarket"),
    "MatrixMarket not first": ("\n%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 5\n", 2, "MatrixMarket"),
    "bag-of-words with a slip": ("3\nx\n3\n1 2 1\n1 3 1\n2 1 4\n", 1, "bag-of-words"),
    "bag-of-words, a line lost": ("3\n5\n1 2 1\n1 3 1\n2 1 4\n", 1, "bag-of-words"),
    "svmlight or lda-c": ("1 3:1\n1 5:1\n", None, 'format="svmlight" or format="lda-c"'),
    "lda-c, pairs lost": ("2 0:1 5:3\n1 2:2\n3 1:1 4:1 5:1\n3 1:1 4:1\n2 1:1 3:1\n", 4, "promises 3 pairs and has 2"),
    "a label beyond 64 bits": ("1e999 3:1 4:2\n1 5:1 6:2\n", 1, "label does not fit"),
    "an index beyond belief": ("1 3:1 4:2\n1 999999999999:1 6:2\n", None, "1,000,000,000,000|999,999,999,999 columns"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_clear_is_refused(case: str, tmp_path: Path) -> None:
    text, line, says = REFUSED[case]
    path = put(tmp_path, text)
    for attempt in (read, scan, lambda p: list(iter_triples(p))):
        if "beyond belief" in case and attempt not in (read, scan):
            continue  # which gives indices as written, and allocates nothing by them
        with pytest.raises(FormatError, match=says) as caught:
            attempt(path)
        assert caught.value.line == line


def test_wide_tables_are_no_news_to_info(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="wide table"):
        inspect(put(tmp_path, REFUSED["wide, named users"][0]))


def test_columns_said_by_the_caller(tmp_path: Path) -> None:
    path = put(tmp_path, "when,who,what,how\n1,7,8,2.5\n2,9,8,3\n")
    expected = [(7, 8, 2.5), (9, 8, 3.0)]
    assert got(path, user="who", item="what", rating="how") == expected
    assert got(path, columns=("who", "what", "how")) == expected
    assert got(path, columns=[1, 2, 3]) == expected
    assert got(path, columns=(1, 2)) == [(7, 8, 1.0), (9, 8, 1.0)]
    bare = put(tmp_path, "1,7,8,2.5\n2,9,8,3\n", "bare")
    assert got(bare, columns=(1, 2, 3)) == expected
    with pytest.raises(FormatError, match="no column 'who': the file has no header"):
        read(bare, user="who", item="what", rating="how")
    assert got(put(tmp_path, "7,8,978300760\n", "big"), columns=(0, 1, 2)) == [(7, 8, float(np.float32(978300760)))]
    for columns in ((0, 1, -1), (-1, 0, 1), (0, 0, 1), "who", (0,), (0.5, 1, 2)):
        with pytest.raises(DataError, match="columns="):
            read(path, columns=columns)  # type: ignore[arg-type]


@pytest.mark.parametrize("format", ["parquet", "npz"])
def test_columns_of_binary_files(format: str, tmp_path: Path) -> None:
    data = as_data((["b", "a"], [7, 9], [1.0, 2.0]))
    path = str(tmp_path / "f")
    write(data, path, format)
    if format == "npz":
        with pytest.raises(DataError, match="arrays instead of columns"):
            read(path, user="row")
        return
    assert got(path, user="row", item="col", rating="value") == [("b", 7, 1.0), ("a", 9, 2.0)]
    assert got(path, columns=("col", "row")) == [(7, "b", 1.0), (9, "a", 1.0)]  # scan used to read the default columns
    with pytest.raises(FormatError, match="no column 'who'"):
        scan(path, user="who")


def test_detection_sees_the_last_line_of_a_small_file() -> None:
    """With the last line dropped, two lines of text ids of three would be one of two."""
    assert detect("f", b"1,7,5\nann,7,4\nbob,7,3\n").row_text
    assert detect("f", b"1,7,5\nann,7,4\nbob,7,3").row_text
    assert not detect("f", b"1,7,5\n2,7,4\nbob,7,3", whole=False).row_text  # which may be cut
    assert detect("f", b"ann,x,5\nbob,y,4.2", whole=False).width == 3


def test_fields_of_a_line() -> None:
    assert fields_of('a, "b ""c"" d" ,"",e', ",") == ["a", 'b "c" d', "", "e"]
    assert fields_of('  a  "b c"\td ', " ") == ["a", "b c", "d"]
    assert fields_of("a::b::", "::") == ["a", "b", ""]


# --- headers that promise too much ------------------------------------------------------------------------

MM = "%%MatrixMarket matrix "


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MM + "array real general\n1000000000000 1000000000000\n1\n", "1,000,000,000,000 rows"),
        (MM + "array real general\n3000000 4000000\n1\n", "promises 12000000000000 values, the file has 1"),
        (MM + "array real symmetric\n16000000 16000000\n1\n", "promises 128000008000000 values"),
        (MM + "array complex general\n1 1\n1 1\n", "complex"),
        (MM + "array pattern general\n1 1\n", "no pattern"),
        (MM + "array real general\n2 2\n1\n2\n3\n", "promises 4 values, the file has 3"),
        (MM + "array real general\n2 2\n1\n2\n3\n4\n5\n", "has more than 4"),
        (MM + "array real general\n2 2\n1\nnan\n3\n4\n", "'nan' is not"),
        (MM + "array real general\n2\n1\n", "expected 'rows columns'"),
        (MM + "coordinate real general\n999999999999999999 2 1\n1 1 1\n", "999,999,999,999,999,999 rows"),
        (MM + "coordinate real general\n2 99999999999 1\n1 1 1\n", "99,999,999,999 columns"),
        (MM + "coordinate real general\n99999999999999999999999 2 1\n1 1 1\n", "expected 'rows columns entries'"),
        (MM + "coordinate real general\n2 2 99999999999\n1 1 1\n", "promises 99999999999 entries"),
        (MM + "coordinate real symetric\n2 2 1\n2 1 1\n", "no symmetry 'symetric'; there are general"),
        (MM + "coordinate reel general\n2 2 1\n2 1 1\n", "no field 'reel'"),
        (MM + "coordinate real symmetric\n2 3 1\n2 1 1\n", "is square"),
        ("99999999999\n5\n1\n1 1 1\n", "99,999,999,999 rows"),
        ("5\n999999999999\n1\n1 1 1\n", "999,999,999,999 columns"),
        ("5\n5\n99999999999\n1 1 1\n", "promises 99999999999 entries"),
        ("9" * 5000 + "\n5\n1\n1 1 1\n", "bag-of-words|expected"),
    ],
)
@pytest.mark.parametrize("pack", [False, True])
def test_absurd_sizes_are_refused_before_anything_is_allocated(
    text: str, says: str, pack: bool, tmp_path: Path
) -> None:
    path = put(tmp_path, gzip.compress(text.encode()) if pack else text)
    for attempt in (read, scan, inspect):
        if attempt is inspect and "promises" in says and "entries" in says:
            assert not inspect(path).ok
            continue
        with pytest.raises(FormatError, match=says):
            attempt(path)


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
def test_dense_matrix_market_without_scipy(symmetry: str, tmp_path: Path) -> None:
    m = np.random.default_rng(0).integers(-2, 3, (5, 5)).astype(float)
    m = {"general": m[:, :3], "symmetric": m + m.T, "skew-symmetric": m - m.T}[symmetry]
    io.mmwrite(str(tmp_path / "m.mtx"), m, symmetry=symmetry)
    np.testing.assert_array_equal(read(tmp_path / "m.mtx").to_csr().toarray(), m)
    assert scan(tmp_path / "m.mtx").nnz == np.count_nonzero(m)


def test_entries_outside_are_counted_once(tmp_path: Path) -> None:
    path = put(tmp_path, MM + "coordinate real general\n2 2 3\n1 1 1\n9 9 1\n2 2 4\n")
    with pytest.warns(BadLinesWarning, match="1 line was left out"):
        assert list(read(path, on_error="skip")) == [((0, 0), 1.0), ((1, 1), 4.0)]


def test_a_bad_value_in_svmlight_drops_its_line(tmp_path: Path) -> None:
    path = put(tmp_path, "1 1:5 2:5\n2 1:5 2:1e39\n3 1:5 2:6\n")
    with pytest.warns(BadLinesWarning, match="1 line was left out"):
        data = read(path, on_error="skip")
    assert data.labels is not None
    assert data.labels.tolist() == [1.0, 3.0]
    assert list(data) == [((0, 0), 5.0), ((0, 1), 5.0), ((1, 0), 5.0), ((1, 1), 6.0)]


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"rows": [0], "cols": [0], "values": [1.0], "shape": [1]}, "no pair of sizes"),
        ({"rows": [0], "cols": [0], "values": [1.0], "shape": 7}, "no pair of sizes"),
        ({"rows": [0.5], "cols": [0], "values": [1.0]}, "not an integer"),
        ({"rows": [0], "cols": [0], "values": ["x"]}, "must be numbers"),
        ({"rows": [0], "cols": [0], "values": [1.0], "row_ids.ids": [1, 2]}, "2 ids for 1 rows"),
        ({"rows": [0], "cols": [0], "values": [1.0], "row_ids.text": np.zeros(1, np.uint8)}, "part of them is missing"),
        ({"format": "csr", "shape": [2, 2], "data": [1.0], "indices": [7], "indptr": [0, 1, 1]}, "damaged"),
        ({"format": "csr", "shape": [2, 2], "data": [1.0]}, "damaged"),
        ({"format": "xyz", "shape": [2, 2], "data": [1.0]}, "no sparse format"),
        ({"rows": np.array([None]), "cols": [0], "values": [1.0]}, "Python objects"),
    ],
)
def test_archives_that_make_no_sense(arrays: dict[str, Any], says: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(DataError, match=says):
        read(tmp_path / "f.npz")


def test_an_array_that_promises_more_than_its_bytes(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive, archive.open("rows.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (10**15,)})
        file.write(bytes(80))
    with pytest.raises(FormatError, match=r"rows.npy promises 8,000,000,000,000,000 bytes and has"):
        read(tmp_path / "m.npz")


# --- paths ------------------------------------------------------------------------


def test_pipes_sockets_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    places = {str(tmp_path / "pipe"): "a pipe", str(tmp_path / "socket"): "a socket", "/dev/null": "a device"}
    places[f"file://{tmp_path}/pipe"] = "a pipe"
    for path, what in places.items():
        for attempt in (read, scan, inspect, lambda p: list(iter_triples(p)), read_vocabulary):
            with pytest.raises(DataError, match=f"is {what}, and only regular files can be read"):
                attempt(path)
    listening.close()
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


@pytest.mark.parametrize("path", [b"file", 0, None, 1.5, object()])
def test_what_is_no_path(path: Any) -> None:
    for attempt in (read, scan, inspect, lambda p: list(iter_triples(p))):
        with pytest.raises(DataError, match="a path must be text or a"):
            attempt(path)
    with pytest.raises(DataError, match="a path must be text"):
        write(as_data(([0], [0], [1.0])), path)


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000, "~", "missing/\udcff"])
def test_paths_that_lead_nowhere(path: str) -> None:
    for attempt in (read, scan, inspect):
        with pytest.raises(DataError):
            attempt(path)


def test_an_estimator_that_reads_says_where_the_arguments_belong(tmp_path: Path) -> None:
    path = put(tmp_path, "1,2,3\n4,x,5\n6,7,8\n")
    for model in (st.MatrixFactorization(n_components=2), st.LatentDirichletAllocation(2)):
        with pytest.raises(FormatError, match=r'on_error="skip".*; these are arguments of st.read: fit what it ret'):
            model.fit(path)
    with pytest.raises(DataError, match=r"no such file; check the path$"):
        st.MatrixFactorization().fit(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    "options",
    [
        {"format": None}, {"format": ["csv"]}, {"sep": 7}, {"sep": "/"}, {"ids": None}, {"ids": ["text"]},
        {"on_error": None}, {"on_error": ["skip"]}, {"duplicates": None}, {"duplicates": {}}, {"memory": 1.5},
        {"memory": "9e999"}, {"memory": -1}, {"raw_ids": "yes"}, {"zero_based": "no"}, {"user": 1}, {"columns": 5},
    ],
    ids=str,
)  # fmt: skip
def test_options_of_the_wrong_type(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read(put(tmp_path, "1,2,3\n"), **options)


def test_a_file_rewritten_in_the_same_size_is_read_again(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stretto.data.reading import cache

    monkeypatch.setattr(cache, "cache_root", lambda: tmp_path_factory.getbasetemp() / "layout-cache")
    path = put(tmp_path, "1,2,3\n4,5,6\n")
    os.utime(path, ns=(10**18, 10**18))
    assert outside(read(path)) == [(1, 2, 3.0), (4, 5, 6.0)]
    other = put(tmp_path, "1,2,9\n4,5,6\n", "other")
    os.utime(other, ns=(10**18, 10**18))
    os.replace(other, path)  # as `cp -p` and archives do: another file with the same size and time
    assert outside(read(path)) == [(1, 2, 9.0), (4, 5, 6.0)]


@pytest.mark.parametrize("name", ["a", "7", "007", "", " a", 'a"', '"a', "#a", "a\tb", "a\nb", "1.5"])
def test_text_ids_come_back_as_they_were_or_are_not_written(name: str, tmp_path: Path) -> None:
    data = as_data(([name], ["x"], [1.0]))
    for format in ("npz", "parquet"):
        write(data, tmp_path / format, format)
        assert outside(read(tmp_path / format)) == [(name, "x", 1.0)]
    for format in ("triples", "csv"):
        try:
            write(data, tmp_path / format, format)
        except DataError:
            assert name not in {"a", 'a"'}
        else:
            assert outside(read(tmp_path / format, cache=False)) == [(name, "x", 1.0)]
