"""A checkpoint exists completely or not at all, whatever fails and whenever."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from numpy.typing import NDArray

from stretto.errors import CheckpointError
from stretto.observe.events import CheckpointRejected, Event
from stretto.runtime.files import checkpoint
from stretto.runtime.files.checkpoint import Files, interval_seconds, latest, load, save

Arrays = dict[str, NDArray[Any]]
MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def state(step: int) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and meta in which every value shows the step."""
    arrays = {"W": np.full((5, 3), step, "f4"), "H": np.full(7, step, "f8"), "finished": np.full(4, step % 2, bool)}
    return arrays, {"step": step, "epoch": step, "fingerprint": "abc", "best": float(step)}


def step_of(found: checkpoint.Checkpoint) -> int:
    """The step of a checkpoint that must not be a mix of two."""
    step = found.step
    arrays, meta = state(step)
    assert found.meta == meta
    assert found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, strict=True)
    return step


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# ---- what goes in comes out


ARRAYS: Arrays = {
    "bool": np.array([True, False, True]),
    **{
        code: np.arange(-3, 9).astype(code).reshape(3, 4)
        for code in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
    },
    "special": np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324]),
    "scalar": np.array(3.5),
    "empty": np.empty((0, 4), "f4"),
    "empty text": np.empty(0, "U3"),
    "strided": np.arange(24.0).reshape(4, 6)[::2, ::-3],
    "fortran": np.asfortranarray(np.arange(6, dtype="i4").reshape(2, 3)),
    "big-endian": np.arange(4, dtype=">i4"),
    "bytes": np.array([b"one", b"three", b""]),
    "text": np.array([["ä", "xyz"], ["", "q"]]),
    "dates": np.array(["2020-01-01", "NaT"], "M8[D]"),
    "readonly": np.broadcast_to(np.float32(2), (3, 2)),
    'ünusual "name"': np.ones(1, "u1"),
}


def test_every_kind_of_array_round_trips_bit_for_bit(tmp_path: Path) -> None:
    found = load(save(tmp_path, ARRAYS, {"step": 1}))
    assert found.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        got = found.arrays[name]
        assert got.shape == array.shape, name
        assert got.dtype == array.dtype.newbyteorder("<"), name
        assert got.tobytes() == array.astype(got.dtype).tobytes(), name
        assert got.flags.writeable, name


def test_other_tools_can_open_the_arrays(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    path = save(tmp_path, ARRAYS, {"step": 1})
    theirs = load_file(path / "arrays.safetensors")
    assert theirs.keys() == ARRAYS.keys()
    for name in ("bool", "i8", "f2", "f4", "special", "scalar", "empty", "strided", "fortran"):
        np.testing.assert_array_equal(theirs[name], ARRAYS[name])
    assert json.loads((path / "manifest.json").read_bytes())["manifest"]["shapes"]["f4"] == ["<f4", [3, 4]]


def test_we_can_open_what_other_tools_write(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    from stretto.runtime.files import array_file

    path = tmp_path / "theirs.safetensors"
    save_file({"a": np.arange(6.0).reshape(2, 3), "b": np.ones(3, bool)}, path, metadata={"a note": "of theirs"})
    with open(path, "rb") as file:
        arrays = array_file.read(file, path.stat().st_size, lambda piece: None)
    np.testing.assert_array_equal(arrays["a"], np.arange(6.0).reshape(2, 3))
    assert arrays["b"].tolist() == [True] * 3


def test_meta_round_trips(tmp_path: Path) -> None:
    meta = {
        "step": np.int64(3),
        "best": float("inf"),
        "worst": float("-inf"),
        "rate": 0.1 + 0.2,
        "state": 2**127 + 1,
        "nested": {"list": [1, None, "ü", {"deep": np.float32(0.5)}], "pair": (1, 2)},
        "flag": True,
    }
    got = load(save(tmp_path, {}, meta)).meta
    assert got == meta | {"step": 3, "nested": {"list": [1, None, "ü", {"deep": 0.5}], "pair": [1, 2]}}
    assert np.isnan(load(save(tmp_path, {}, {"step": 4, "x": float("nan")})).meta["x"])


@pytest.mark.parametrize("meta", [{}, {"step": -1}, {"step": "1"}, {"step": 1.5}])
def test_a_step_is_required(tmp_path: Path, meta: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="step"):
        save(tmp_path, {}, meta)


@pytest.mark.parametrize("bad", [{1: 2}, {"$float": 1}, object(), {1, 2}, np.ones(3)])
def test_meta_that_would_not_come_back_is_refused_before_anything_is_written(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(TypeError, match="meta"):
        save(tmp_path, {}, {"step": 1, "x": bad})
    assert names(tmp_path) == []


@pytest.mark.parametrize("bad", [np.array([None]), np.ones(2, complex), np.zeros(2, [("a", "i4")])])
def test_arrays_that_would_not_come_back_are_refused(tmp_path: Path, bad: NDArray[Any]) -> None:
    with pytest.raises(TypeError, match="dtype"):
        save(tmp_path, {"x": bad}, {"step": 1})
    with pytest.raises(ValueError, match="__metadata__"):
        save(tmp_path, {"__metadata__": np.ones(1)}, {"step": 1})


# ---- which ones there are


def test_the_newest_are_kept_and_found(tmp_path: Path) -> None:
    for step in range(5):
        assert save(tmp_path, *state(step), keep=2).name == f"checkpoint-{step:06d}"
        assert step_of(latest(tmp_path, "abc")) == step
    assert names(tmp_path) == ["checkpoint-000003", "checkpoint-000004"]
    assert checkpoint.size(tmp_path / "checkpoint-000004") > 100
    with pytest.raises(ValueError, match="keep"):
        save(tmp_path, *state(9), keep=0)


def test_a_run_that_starts_again_is_newer_than_the_one_before(tmp_path: Path) -> None:
    save(tmp_path, *state(20))
    assert save(tmp_path, *state(1)).name == "checkpoint-000021"
    assert step_of(latest(tmp_path)) == 1


def test_nothing_to_find(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="train with checkpoints on"):
        latest(tmp_path)
    with pytest.raises(CheckpointError, match="No such file"):
        latest(tmp_path / "nowhere")


def test_another_plan_is_refused(tmp_path: Path) -> None:
    save(tmp_path, *state(1))
    with pytest.raises(CheckpointError, match=r"plan abc, this is plan def.*another folder"):
        latest(tmp_path, "def")


def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stretto.runtime.files.manifest.FORMAT", 99)
    save(tmp_path, *state(1))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="format 99"):
        latest(tmp_path)


# ---- damage


def damage(path: Path, offset: int, how: str) -> None:
    raw = bytearray(path.read_bytes())
    if how == "cut":
        del raw[offset:]
    elif how == "zero":
        raw[offset:] = bytes(len(raw) - offset)
    elif how == "grow":
        raw[offset:offset] = b"\0"
    else:
        raw[offset] ^= 1 << int(how)
    path.write_bytes(raw)


@pytest.mark.parametrize("file", ["arrays.safetensors", "manifest.json"])
@MANY
@given(data=some.data())
def test_any_damage_is_noticed_and_the_one_before_is_used(tmp_path: Path, file: str, data: some.DataObject) -> None:
    folder = tmp_path / str(len(names(tmp_path)))
    save(folder, *state(1))
    path = save(folder, *state(2)) / file
    before = path.read_bytes()
    offset = data.draw(some.integers(0, len(before) - 1))
    damage(path, offset, data.draw(some.sampled_from(["cut", "zero", "grow", *"01234567"])))
    told: list[Event] = []
    found = latest(folder, "abc", report=told.append)
    if path.read_bytes() == before:  # zeros over zeros
        assert step_of(found) == 2
        return
    assert step_of(found) == 1
    [event] = told
    assert isinstance(event, CheckpointRejected)
    assert event.path == str(path.parent)


def test_every_byte_of_a_small_checkpoint_is_checked(tmp_path: Path) -> None:
    path = save(tmp_path, {"a": np.arange(2, dtype="u1")}, {"step": 1})
    for file in (path / "arrays.safetensors", path / "manifest.json"):
        raw = file.read_bytes()
        for place in range(len(raw)):
            file.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :])
            with pytest.raises(CheckpointError):
                load(path)
        file.write_bytes(raw)
    load(path)


@pytest.mark.parametrize("file", ["arrays.safetensors", "manifest.json"])
def test_a_missing_file_is_noticed(tmp_path: Path, file: str) -> None:
    save(tmp_path, *state(1))
    (save(tmp_path, *state(2)) / file).unlink()
    assert step_of(latest(tmp_path)) == 1


def test_when_all_are_damaged_the_error_names_each(tmp_path: Path) -> None:
    for step in (1, 2):
        damage(save(tmp_path, *state(step)) / "arrays.safetensors", 200, "cut")
    with pytest.raises(CheckpointError, match=r"none of the 2.*000002 is damaged.*000001 is damaged.*Restore"):
        latest(tmp_path)


def test_a_run_goes_on_after_damage(tmp_path: Path) -> None:
    save(tmp_path, *state(1))
    damage(save(tmp_path, *state(2)) / "manifest.json", 99, "3")
    assert latest(tmp_path).step == 1
    save(tmp_path, *state(2))
    assert step_of(latest(tmp_path)) == 2


def test_a_header_that_lies_cannot_make_us_allocate(tmp_path: Path) -> None:
    from stretto.runtime.files import array_file

    for header in (
        {"a": {"dtype": "F64", "shape": [2**50], "data_offsets": [0, 2**53]}},
        {"a": {"dtype": "F64", "shape": [-1, -1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F64", "shape": [1], "data_offsets": [4, 12]}},
        {"a": {"dtype": "F65", "shape": [1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}, "__metadata__": {"a": "|O"}},
        {"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}, "__metadata__": {"a": "<U9"}},
        {"a": 3},
        [1, 2],
    ):
        text = json.dumps(header).encode()
        path = tmp_path / "lies"
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
        with open(path, "rb") as file, pytest.raises(array_file.DamagedFile):
            array_file.read(file, path.stat().st_size, lambda piece: None)


# ---- crashes


class Crash(BaseException):
    """The process is gone: nothing after it runs, not even clean-up."""


class Dying(Files):
    """Dies at the k-th change to the disk, and takes with it what was not forced to disk.

    The file being written then holds half of what it was offered; files never synced lose their content.
    """

    def __init__(self, k: int) -> None:
        self.left, self.dead = k, False
        self.unsynced: set[Path] = set()
        self.kinds: list[str] = []

    def tick(self, kind: str) -> None:
        self.kinds.append(kind)
        if self.left == 0 or self.dead:
            self.die()
        self.left -= 1

    def die(self) -> None:
        self.dead = True
        for path in self.unsynced:
            if path.exists():
                os.truncate(path, path.stat().st_size // 2)
        raise Crash

    def make_folder(self, path: Path) -> None:
        self.tick("make_folder")
        super().make_folder(path)

    def open(self, path: Path) -> BinaryIO:
        self.tick("open")
        self.unsynced.add(path)
        return super().open(path)

    def write(self, file: BinaryIO, data: memoryview) -> None:
        if self.left == 0 and not self.dead:
            super().write(file, data[: len(data) // 2])
        self.tick("write")
        super().write(file, data)

    def fsync(self, file: BinaryIO) -> None:
        self.tick("fsync")
        super().fsync(file)
        self.unsynced.discard(Path(file.name))

    def fsync_folder(self, path: Path) -> None:
        self.tick("fsync_folder")
        super().fsync_folder(path)

    def rename(self, old: Path, new: Path) -> None:
        self.tick("rename")
        super().rename(old, new)
        self.unsynced = {new / path.name if path.parent == old else path for path in self.unsynced}

    def rmtree(self, path: Path) -> None:
        for entry in sorted(path.iterdir()):  # a folder is removed file by file, and may be left half removed
            self.tick("rmtree")
            entry.unlink()
        self.tick("rmtree")
        path.rmdir()


def changes_of_a_save(tmp_path: Path) -> list[str]:
    files, folder = Dying(10**9), tmp_path / "counted"
    save(folder, *state(1), keep=1)
    save(folder, *state(2), keep=1, files=files)
    return files.kinds


def test_a_crash_at_every_change_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    kinds = changes_of_a_save(tmp_path)
    assert {"make_folder", "open", "write", "fsync", "fsync_folder", "rename", "rmtree"} <= set(kinds)
    committed = kinds.index("rename") + 1
    for k in range(len(kinds)):
        folder = tmp_path / f"crash{k}"
        save(folder, *state(1), keep=1)
        with pytest.raises(Crash):
            save(folder, *state(2), keep=1, files=Dying(k))
        assert step_of(latest(folder, "abc")) == (1 if k < committed else 2), (k, kinds[k])
        for path in folder.glob("checkpoint-*"):  # whatever is in sight is whole, also while old ones are removed
            step_of(load(path))
        save(folder, *state(3), keep=1)
        assert names(folder) == ["checkpoint-000003"], (k, kinds[k])
        assert step_of(latest(folder)) == 3


def test_a_crash_of_the_first_save_leaves_nothing_half_done(tmp_path: Path) -> None:
    for k in range(changes_of_a_save(tmp_path).index("rename") + 1):
        folder = tmp_path / f"crash{k}"
        with pytest.raises(Crash):
            save(folder, *state(1), files=Dying(k))
        with pytest.raises(CheckpointError, match="no checkpoints"):
            latest(folder)
        save(folder, *state(2))
        assert step_of(latest(folder)) == 2


def test_crash_after_crash(tmp_path: Path) -> None:
    save(tmp_path, *state(1))
    newest = 1
    for step in range(2, 60):
        files = Dying(step % 17)
        with contextlib.suppress(Crash):
            save(tmp_path, *state(step), files=files)
        found = step_of(latest(tmp_path))
        assert found in (newest, step)
        newest = found
        assert len(list(tmp_path.iterdir())) <= 5


class Refusing(Dying):
    """The disk says no at the k-th change and from then on to everything that takes space; the process lives."""

    def __init__(self, k: int, number: int) -> None:
        super().__init__(k)
        self.number = number

    def die(self) -> None:
        if self.kinds[-1] == "rmtree":
            return
        self.dead = True
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_a_disk_that_refuses_is_reported_and_the_old_one_stays(tmp_path: Path, number: int) -> None:
    kinds = changes_of_a_save(tmp_path)
    for k in range(kinds.index("rename") + 1):
        folder = tmp_path / f"refused{k}"
        save(folder, *state(1))
        with pytest.raises(CheckpointError, match=os.strerror(number)) as caught:
            save(folder, *state(2), files=Refusing(k, number))
        assert "are unchanged" in str(caught.value)
        assert isinstance(caught.value.__cause__, OSError)
        assert names(folder) == ["checkpoint-000001"], (k, kinds[k])
        assert step_of(latest(folder)) == 1


def test_old_ones_that_cannot_be_removed_do_not_stop_a_run(tmp_path: Path) -> None:
    class Stuck(Files):
        def rmtree(self, path: Path) -> None:
            raise PermissionError(errno.EACCES, "no")

    for step in range(1, 4):
        save(tmp_path, *state(step), keep=1, files=Stuck())
    assert step_of(latest(tmp_path)) == 3
    save(tmp_path, *state(4), keep=1)
    assert names(tmp_path) == ["checkpoint-000004"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="could not save"):
        save(tmp_path / "file" / "inside", *state(1))


# ---- the rest


def test_interval() -> None:
    assert interval_seconds(2.0, 10_000) == pytest.approx(200.0)
    assert interval_seconds(2.0, 10_000, nodes=4) == pytest.approx(100.0)
    assert interval_seconds(0.0) == 0.0
    for bad in ((-1.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 1.0, 0), (float("nan"), 1.0, 1)):
        with pytest.raises(ValueError, match="need"):
            interval_seconds(*bad)


def test_saving_does_not_copy_the_arrays(tmp_path: Path) -> None:
    import tracemalloc

    arrays = {"big": np.zeros((512, 16_384), "f4")}
    tracemalloc.start()
    try:
        save(tmp_path, arrays, {"step": 1})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < arrays["big"].nbytes / 8
