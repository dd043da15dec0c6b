"""Files that are nearly right: every format the readers know, mutated from a seed.

`made(kind, seed, mutations)` gives a `Made`: the bytes of a file, and a function that says what it holds by the plain
reader (`plain_reader`), None where only an error is right, or no function where nobody can say. The same arguments give
the same bytes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plain_reader import Plain, read_delimited, read_sized, read_svmlight

Reference = Callable[[bytes, tuple[bool, bool]], list[Plain]]  # each of them would be right; none: nobody can say
TOKENS = (
    *("nan", "inf", "-inf", "1e400", "1e39", "-0", "007", "1_0", "٣", "\u00a0", '"', '""', "'", "NA", "", "null", "#"),
    *("%", "-1", "0", "1.5", "1e3", "+7", "0x10", "1,5", "9" * 18, "9" * 19, "18446744073709551616", "a b", "ü"),
    *("\ufeff", "1:1", "1:", ":1", "\t", ",", ";", "::", " ", "\r", "true", "2024-01-01", "978300760", "=1+1"),
)
NOISE = (b"\0", b"\xff", b"\x80", b"\xe2\x82", b"\r", b"\n", b'"', b"\x1a", b" ", b"\t", b",", b"#", b"%", b"9" * 30)


@dataclass(frozen=True)
class Made:
    """A file.

    name : of the file, which may tell something to a reader
    content : its bytes as they are on disk
    plain : its bytes unpacked, where they can be
    reference : what it holds; None where nobody can say
    strict : it must be refused
    """

    name: str
    content: bytes
    plain: bytes
    reference: Reference | None
    strict: bool = False


def triples(draw: random.Random, text: bool, n: int) -> list[tuple[str, str, str]]:
    """n distinct pairs with values."""
    pairs: dict[tuple[str, str], str] = {}
    while len(pairs) < n:
        i, j = draw.randrange(12), draw.randrange(9)
        users = [f"user {i}", f"ü{i}", f"0{i}"][i % 3] if text else str(i * draw.choice([1, 1, 1000003]))
        items = f"item-{j}" if text and j % 2 else str(j + 1) if not text else f"B{j:04}"
        pairs[users, items] = draw.choice(["5", "3.5", "1", "4", "0.25", "-2", "1e2", "16777217"])
    return [(i, j, v) for (i, j), v in pairs.items()]


def delimited(kind: str, draw: random.Random) -> tuple[str, bytes, Reference]:
    n = draw.randrange(8, 30)
    text = kind in {"quoted", "text"}
    records = triples(draw, text, n)
    time = [str(978300760 + draw.randrange(10**6)) for _ in records]
    header: list[str] | None = None
    columns = (0, 1, 2)
    if kind == "dat":
        sep, rows = "::", [[*r, t] for r, t in zip(records, time, strict=True)]
    elif kind == "udata":
        sep, rows = "\t", [[*r, t] for r, t in zip(records, time, strict=True)]
    elif kind == "csv":
        sep, header = ",", ["userId", "movieId", "rating", "timestamp"]
        rows = [[*r, t] for r, t in zip(records, time, strict=True)]
    elif kind == "ordered":
        sep, header, columns = ",", ["rating", "when", "item", "user"], (3, 2, 0)
        rows = [[v, t, j, i] for (i, j, v), t in zip(records, time, strict=True)]
    elif kind == "quoted":
        sep, header = ";", ["user", "item", "score", "note"]
        rows = [[f'"{i}"', f'"{j}"', v, '"a; ""b"""'] for i, j, v in records]
    else:
        sep = {"tabs": "\t", "blanks": " ", "commas": ",", "text": "\t"}[kind]
        rows = [list(r) for r in records]
    lines = [sep.join(row) for row in ([header] if header else []) + rows]
    end = draw.choice(["\n", "\n", "\r\n"])
    content = (end.join(lines) + draw.choice([end, end, ""])).encode()
    standard = columns == (0, 1, 2)

    def reference(given: bytes, is_text: tuple[bool, bool]) -> list[Plain]:
        if not standard and header is not None and sep.join(header).encode() not in given:
            return []  # without its header nobody knows the order
        # Where no field has a blank, tabs and runs of blanks are the same.
        seps = [sep, " "] if kind == "tabs" else [sep]
        return [read_delimited(given, one, columns, header, is_text) for one in seps]

    name = {"dat": "ratings.dat", "udata": "u.data", "csv": "ratings.csv"}.get(kind, "file.txt")
    return name, content, reference


def svmlight(kind: str, draw: random.Random) -> tuple[str, bytes, Reference]:
    first = 0 if kind == "lda-c" else draw.choice([0, 1])
    lines = []
    for row in range(draw.randrange(8, 25)):
        indices = sorted(draw.sample(range(first, 30), draw.randrange(1, 7)))
        if row == 0 and first == 0 and 0 not in indices:
            indices = [0, *indices]
        values = ["1", "2", "7"] if kind == "lda-c" else ["0.5", "1", "-3e-2"]
        pairs = [f"{index}:{draw.choice(values)}" for index in indices]
        label = str(len(pairs)) if kind == "lda-c" else draw.choice(["1", "-1", "+1", "2.5"])
        lines.append(" ".join([label, *pairs]) + (" # remark" if kind == "svmlight" and not draw.randrange(6) else ""))

    def reference(given: bytes, _: tuple[bool, bool]) -> list[Plain]:
        found = read_svmlight(given, kind == "lda-c")
        many = kind == "lda-c" and 5 * len(found.bad) > len(found.labels) + len(found.bad)
        # Where many lines have another number of pairs than they say, it is a label.
        return [found, read_svmlight(given)] if many else [found]

    return "file.txt", ("\n".join(lines) + "\n").encode(), reference


def sized(kind: str, draw: random.Random) -> tuple[str, bytes, Reference]:
    rows, cols = draw.randrange(5, 12), draw.randrange(5, 12)
    symmetry = {"mm symmetric": "symmetric", "mm skew": "skew-symmetric"}.get(kind, "general")
    if symmetry != "general":
        cols = rows
    places = [(i, j) for i in range(1, rows + 1) for j in range(1, cols + 1) if symmetry == "general" or i > j]
    chosen = draw.sample(places, min(len(places), draw.randrange(8, 25)))
    if kind == "mm array":
        body = [draw.choice(["0", "1.5", "-2", "3e-1"]) for _ in range(rows * cols)]
        head = ["%%MatrixMarket matrix array real general", "% remark", f"{rows} {cols}"]
    elif kind == "bow":
        body = [f"{i} {j} {draw.randrange(1, 5)}" for i, j in sorted(chosen)]
        head = [str(rows), str(cols), str(len(body))]
    else:
        field = {"mm pattern": "pattern", "mm integer": "integer"}.get(kind, "real")
        value = {"pattern": "", "integer": " 3", "real": " 1.25"}[field]
        body = [f"{i} {j}{value}" for i, j in chosen]
        head = [f"%%MatrixMarket matrix coordinate {field} {symmetry}", f"{rows} {cols} {len(body)}"]

    def reference(given: bytes, _: tuple[bool, bool]) -> list[Plain]:
        # Without anything of its first lines nobody knows what it was.
        first = [line.split() for line in given.split(b"\n") if line.strip()][:3]
        if kind == "bow":
            lost = sum(len(words) == 1 for words in first) < 2
        else:
            lost = not first or (b"%" not in b"".join(first[0]) and b"atrix" not in given)
        return [] if lost else [read_sized(given)]

    return "file.mtx", ("\n".join([*head, *body]) + "\n").encode(), reference


def wide(kind: str, draw: random.Random) -> tuple[str, bytes, Reference | None]:
    items = draw.randrange(3, 9)
    named = draw.choice(["film", "number"])
    names = [f"film {j}" if named == "film" else str(j) for j in range(items)]
    rows = [[str(i), *(draw.choice(["1", "2", "3", "4", "5", ""]) for _ in names)] for i in range(10)]
    head = [[draw.choice(["user", "userId", "customer_id", ""]), *names]] if kind == "wide" else []
    return "wide.csv", "".join(",".join(row) + "\n" for row in head + rows).encode(), None


MAKERS: dict[str, Callable[[str, random.Random], tuple[str, bytes, Reference | None]]] = {
    **dict.fromkeys(["dat", "udata", "csv", "ordered", "quoted", "text", "tabs", "blanks", "commas"], delimited),
    **dict.fromkeys(["svmlight", "lda-c"], svmlight),
    **dict.fromkeys(["bow", "mm real", "mm integer", "mm pattern", "mm symmetric", "mm skew", "mm array"], sized),
    **dict.fromkeys(["wide", "wide, no header"], wide),
}
ARCHIVES = ("npz", "npz, scipy", "parquet")
PACKERS = {"gz": lambda b: gzip.compress(b, mtime=0), "xz": lzma.compress, "bz2": bz2.compress}
PACKED = tuple(f"{kind}.{pack}" for kind in ("tabs", "csv", "svmlight", "bow", "mm real") for pack in PACKERS)
KINDS = (*MAKERS, *ARCHIVES, *PACKED)


def made(kind: str, seed: int, mutations: int) -> Made:
    """A file of a kind, mutated so many times."""
    draw = random.Random(f"{kind}/{seed}")
    if kind in ARCHIVES:
        return _archive(kind, draw, mutations)
    base, _, pack = kind.partition(".")
    name, plain, reference = MAKERS[base](base, draw)
    inside = mutations if not pack or draw.randrange(2) else 0
    for _ in range(inside):
        plain = mutated(plain, draw, base)
    content = PACKERS[pack](plain) if pack else plain
    file = Made(name, content, plain, reference, strict=base.startswith("wide") and _is_wide(plain))
    if mutations and not inside:  # the packed bytes themselves
        content = damaged(content, draw)
        return replace(file, content=content)
    return file


def _is_wide(content: bytes) -> bool:
    """Whether enough is left of a wide table to tell it from triples."""
    return sum(line.count(b",") > 2 for line in content.split(b"\n")) >= 2


def mutated(content: bytes, draw: random.Random, kind: str) -> bytes:
    """One change such as people, programs and disks make."""
    lines = content.split(b"\n")
    line = draw.randrange(len(lines))
    cell = draw.choice(TOKENS).encode()
    way = draw.randrange(20)
    if way == 0:
        return damaged(content, draw)
    if way == 1:
        lines.pop(line)
    elif way == 2:
        lines.insert(line, lines[draw.randrange(len(lines))])
    elif way == 3:
        other = draw.randrange(len(lines))
        lines[line], lines[other] = lines[other], lines[line]
    elif way == 4:
        lines.insert(line, cell)
    elif way == 5:
        return content[: draw.randrange(len(content) + 1)]
    elif way == 6:
        at = draw.randrange(len(content) + 1)
        return content[:at] + draw.choice(NOISE) + content[at:]
    elif way == 7:
        return content.replace(b"\n", draw.choice([b"\r\n", b"\r", b"\n\n"]))
    elif way == 8:
        return draw.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\n", b" ", b"# remark\n", b"% remark\n", b"\0"]) + content
    elif way == 9:
        return content.decode("utf-8", errors="replace").encode(draw.choice(["utf-16", "utf-16-le", "utf-32"]))
    elif way == 10:
        return content + content
    elif way == 11:
        return draw.choice([b"", b"\n", b"\xef\xbb\xbf", lines[0], lines[0] + b"\n"])
    elif way == 12:
        lines[line] = lines[line] + draw.choice([b" ", b"\t", b",", b";", b"::0", b" 0", b",0", b" # x", b"\r"])
    elif way == 13:
        lines[line] = b" ".join([b"1"] * draw.choice([1, 2, 50, 20000]))
    elif way == 14 and kind in {"bow", *(k for k in MAKERS if k.startswith("mm"))}:
        head = draw.randrange(min(3, len(lines)))
        sizes = lines[head].split(b" ")
        sizes[draw.randrange(len(sizes))] = draw.choice(
            [b"0", b"1", b"99", b"999999999999", b"9" * 18, b"9" * 400, b"-5", b"x"]
        )
        lines[head] = b" ".join(sizes)
    else:
        lines[line] = _other_token(lines[line], cell, draw)
    return b"\n".join(lines)


def _other_token(line: bytes, cell: bytes, draw: random.Random) -> bytes:
    """The line with one of its tokens replaced."""
    for sep in (b"::", b"\t", b",", b";", b" "):
        if sep in line:
            fields = line.split(sep)
            fields[draw.randrange(len(fields))] = cell
            return sep.join(fields)
    return cell


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Bytes flipped, lost or doubled."""
    at = draw.randrange(len(content) + 1)
    way = draw.randrange(5)
    if way == 0:
        return content[:at]
    if way == 1:
        return content[:at] + content[at + draw.randrange(1, 20) :]
    if way == 2:
        return content[:at] + content[max(0, at - 20) : at] + content[at:]
    if not content:
        return bytes([draw.randrange(256)])
    at = min(at, len(content) - 1)
    return content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]


def _archive(kind: str, draw: random.Random, mutations: int) -> Made:
    records = triples(draw, kind == "parquet" and bool(draw.randrange(2)), draw.randrange(5, 20))
    rows, cols = ([r[side] for r in records] for side in (0, 1))
    values = np.array([float(r[2]) for r in records], np.float32)
    if kind == "parquet":
        import pyarrow
        import pyarrow.parquet

        numbers = all(r.isdigit() for r in rows + cols)
        ids = [[int(x) for x in side] if numbers else side for side in (rows, cols)]
        out = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.table({"user": ids[0], "item": ids[1], "rating": values}), out)
        content = out.getvalue().to_pybytes()
        expected = list(zip(ids[0], ids[1], values.tolist(), strict=True))
        for _ in range(mutations):
            content = damaged(content, draw)
        # Pages of Parquet have no checksum: what a flipped bit made of a value nobody can say.
        return Made("file.parquet", content, content, None if mutations else lambda *_: [Plain(expected)])
    places = sorted({(int(i) % 13, int(j)) for i, j in zip(rows, cols, strict=True)})
    values = values[: len(places)]
    arrays, shape = _arrays(kind, places, values)
    for _ in range(mutations if draw.randrange(3) else 0):
        _other_array(arrays, draw)
        mutations = 0
    content = _zipped(arrays, bool(draw.randrange(2)))
    for _ in range(mutations):
        content = damaged(content, draw)
    expected_places = [(i, j, v) for (i, j), v in zip(places, values.tolist(), strict=True)]

    changed = _arrays(kind, places, values)[0].keys() != arrays.keys() or any(
        not _same(arrays[name], array) for name, array in _arrays(kind, places, values)[0].items()
    )
    return Made("file.npz", content, content, None if changed else lambda *_: [Plain(expected_places, shape=shape)])


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())


def _arrays(
    kind: str, places: list[tuple[int, int]], values: NDArray[Any]
) -> tuple[dict[str, NDArray[Any]], tuple[int, int]]:
    rows, cols = (np.array([p[side] for p in places], np.int32) for side in (0, 1))
    shape = (13, 12)
    if kind == "npz":
        return {"rows": rows, "cols": cols, "values": values, "shape": np.array(shape)}, shape
    indptr = np.searchsorted(rows, np.arange(14)).astype(np.int32)
    return {
        "format": np.array(b"csr"), "shape": np.array(shape), "data": values, "indices": cols, "indptr": indptr,
    }, shape  # fmt: skip


def _other_array(arrays: dict[str, NDArray[Any]], draw: random.Random) -> None:
    """One array changed: its numbers, its type, its shape, or gone."""
    name = draw.choice(sorted(arrays))
    array = arrays[name]
    way = draw.randrange(8)
    if way == 0:
        del arrays[name]
    elif way == 1:
        kinds: list[Any] = [np.float64, np.int8, np.complex128, "U5", "S3", bool]
        if array.dtype.kind in "iuf":
            arrays[name] = array.astype(draw.choice(kinds))
    elif way == 2:
        arrays[name] = np.array(draw.choice([7, "csc", b"xyz", np.nan, [1, 2, 3], [[1, 2], [3, 4]], []]))
    elif way == 3:
        arrays[name] = array.reshape(-1)[: max(0, array.size - draw.randrange(1, 4))]
    elif way == 4:
        arrays[name] = np.array([array, array])
    elif array.dtype.kind in "iuf" and array.size:
        changed = array.copy().reshape(-1)
        with np.errstate(all="ignore"):
            other = np.array(draw.choice([-1, 10**6, 2**31 - 1, -(2**31), 12, 13]))
            changed[draw.randrange(changed.size)] = other.astype(changed.dtype)
        arrays[name] = changed.reshape(array.shape)
    else:
        arrays["row_ids.ids"] = np.array(draw.choice([[1, 2], list(range(13)), [3, 2, 1]]))


def _zipped(arrays: dict[str, NDArray[Any]], packed: bool) -> bytes:
    """As `np.savez`, with times that are always the same."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (2024, 1, 1, 0, 0, 0)), member.getvalue())
    return out.getvalue()
