"""The cache of parsed files: used, refreshed, shared, repaired, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stretto.data import Data, ratings, read, write
from stretto.data.reading import cache
from stretto.data.reading.cache import CacheWarning


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "cache_root", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "data"


@pytest.fixture
def file(tmp_path: Path) -> str:
    write(ratings(500, 60, 40, seed=1).data, tmp_path / "r.tsv")
    return str(tmp_path / "r.tsv")


def same(a: Data, b: Data) -> bool:
    equal = all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("rows", "cols", "values"))
    return equal and a.shape == b.shape and a.row_ids == b.row_ids and a.col_ids == b.col_ids


def test_the_second_read_maps_the_arrays(root: Path, file: str) -> None:
    first = read(file)
    assert len(list(root.iterdir())) == 1
    second = read(file)
    assert same(first, second)
    base: Any = second.values
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    read(file, cache=False)
    read(file, duplicates="last")  # other options, another entry
    assert len(list(root.iterdir())) == 2


def test_a_changed_file_is_parsed_again(root: Path, file: str) -> None:
    before = read(file)
    Path(file).write_text(Path(file).read_text() + "9999\t9999\t1\n")
    assert len(read(file)) == len(before) + 1


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "meta"])
def test_a_damaged_entry_is_parsed_again(damage: str, root: Path, file: str) -> None:
    before = read(file)
    (entry,) = root.iterdir()
    rows = entry / "rows.npy"
    content = rows.read_bytes()
    if damage == "truncate":
        rows.write_bytes(content[:-40])
    elif damage == "flip":
        rows.write_bytes(content[:-3] + b"\xff" + content[-2:])
    elif damage == "remove":
        rows.unlink()
    else:
        (entry / "meta.json").write_text("{}")
    assert same(read(file), before)
    assert cache.load(entry, file) is not None  # and it was repaired
    assert [p.name for p in root.iterdir()] == [entry.name]


def test_no_place_for_a_cache(tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blocked").write_text("a file where the folder should be")
    monkeypatch.setattr(cache, "cache_root", lambda: tmp_path / "blocked")
    with pytest.warns(CacheWarning, match="STRETTO_CACHE"):
        assert len(read(file)) == 500


def test_a_full_disk(root: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.warns(CacheWarning, match="No space left"):
        assert len(read(file)) == 500
    assert list(root.iterdir()) == []


def test_another_process_was_first(root: Path, file: str) -> None:
    data = read(file)
    (entry,) = root.iterdir()
    stamp = (entry / "meta.json").stat().st_mtime_ns
    cache.store(entry, data)
    assert (entry / "meta.json").stat().st_mtime_ns == stamp
    assert [p.name for p in root.iterdir()] == [entry.name]


def test_processes_fill_one_cache_together(tmp_path: Path, file: str) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom stretto.data import read\nfrom stretto.data.reading import cache\n"
        f"cache.cache_root = lambda: Path({str(tmp_path / 'shared')!r})\n"
        "print(len(read(sys.argv[1])), float(read(sys.argv[1]).values.sum()))"
    )
    running = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code, file], stdout=subprocess.PIPE) for _ in range(2)
    ]
    said = {p.communicate()[0] for p in running}
    assert all(p.returncode == 0 for p in running)
    assert len(said) == 1
    assert len(os.listdir(tmp_path / "shared" / "data")) == 1
