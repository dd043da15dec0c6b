"""State: an aligned array that behaves as one, the makers, and keeping it in a file."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import pickle
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import stretto
from stretto.errors import CheckpointError, DataError
from stretto.runtime.files import array_file
from stretto.state.state import State

dtypes = st.sampled_from(["f4", "f8", "i4", "i8", "u1", "?", ">f4"])


@given(hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)))
def test_a_state_is_its_array(array: Any) -> None:
    W = stretto.state(array)
    assert not W.size or W.array.ctypes.data % 64 == 0
    assert W.array.flags.c_contiguous
    assert W.dtype.isnative
    assert (W.shape, W.ndim, W.size) == (array.shape, array.ndim, array.size)
    np.testing.assert_array_equal(np.asarray(W), array)
    for again in (W.copy(), pickle.loads(pickle.dumps(W)), copy.deepcopy(W)):
        assert not np.shares_memory(again.array, W.array)
        assert not W.size or again.array.ctypes.data % 64 == 0
        np.testing.assert_array_equal(again, array)


def test_point_and_set_queries() -> None:
    A = stretto.state(np.arange(12.0).reshape(4, 3))
    assert A[2, 1] == 7.0
    assert A[1:3, 2].tolist() == [5.0, 8.0]
    assert A[[0, 3], 0].tolist() == [0.0, 9.0]
    A[1:3, 2] = 0
    assert A[:, 2].tolist() == [2.0, 0.0, 0.0, 11.0]
    assert len(A) == 4
    assert [row[0] for row in A] == [0.0, 3.0, 6.0, 9.0]
    with pytest.raises(IndexError):
        A[4]


def test_an_undecorated_loop_runs() -> None:
    W, H = stretto.random((3, 4), seed=1), stretto.random((3, 4), seed=2)
    w, h = np.array(W), np.array(H)
    for i, j, r in [(0, 1, 2.0), (2, 0, 1.0)]:
        for P, Q in ((W, H), (w, h)):
            e = r - P[i] @ Q[j]
            P[i], Q[j] = P[i] + 0.1 * e * Q[j], Q[j] + 0.1 * e * P[i]
            P[i] -= 0.5
            P[i, 1] += e
            P[i][2] += e
    assert np.array_equal(W, w)
    assert np.array_equal(H, h)
    assert W.dtype == np.float32


def test_arithmetic_gives_arrays_and_in_place_keeps_the_state() -> None:
    W = stretto.full((2, 2), 3.0)
    kept = W
    W += 1
    W *= stretto.state(np.eye(2, dtype="f4"))
    assert W is kept
    assert W[...].tolist() == [[4.0, 0.0], [0.0, 4.0]]
    for made in (W + W, 2 * W, -W, W @ W, np.exp(W), W.T):
        assert type(made) is np.ndarray
        assert made.dtype == np.float32
    assert np.sum(W) == 8.0
    assert np.linalg.norm(W) == pytest.approx(32**0.5)
    assert (W == 4.0).tolist() == [[True, False], [False, True]]
    assert float(stretto.state(2.5)) == 2.5
    assert repr(stretto.zeros((10, 4))) == "State(10 x 4, float32, 0.0 MiB)"
    assert np.asarray(W, dtype="f8").dtype == np.float64
    with pytest.raises(ValueError, match="only as a copy"):
        np.asarray(W, dtype="f8", copy=False)


def test_random_states() -> None:
    W = stretto.random((200, 50), scale=0.1, seed=3)
    assert W.dtype == np.float32
    assert W[...].std() == pytest.approx(0.1, rel=0.05)
    assert W[...].mean() == pytest.approx(0.0, abs=0.005)
    assert np.array_equal(W, stretto.random((200, 50), scale=0.1, seed=3))
    assert not np.array_equal(W, stretto.random((200, 50), scale=0.1, seed=4))
    assert not np.array_equal(stretto.random(9), stretto.random(9))
    assert stretto.random(9, dtype="f8").dtype == np.float64
    with pytest.raises(DataError, match="cannot hold them"):
        stretto.random(3, dtype="i4")


def test_a_script_starts_from_the_same_numbers_each_time() -> None:
    code = "import stretto as st; a, b = st.random(2), st.random(2); print(a[...].tolist(), b[...].tolist())"
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 1


def test_other_makers() -> None:
    assert stretto.zeros(3)[...].tolist() == [0.0, 0.0, 0.0]
    assert stretto.zeros((), dtype="i8").shape == ()
    assert stretto.full((2, 2), [1, 2], dtype="i4")[1].tolist() == [1, 2]
    points = stretto.state(np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]))
    assert points[1]["b"] == 4.0
    points["a"] += 1
    assert points[0]["a"] == 2
    for bad in (np.array(["x"]), np.array([None]), np.array([np.datetime64("2020-01-01")])):
        with pytest.raises(DataError, match="a state holds numbers"):
            stretto.state(bad)


def test_a_state_can_be_forgotten() -> None:
    W = stretto.zeros(3)
    seen = weakref.ref(W)
    del W
    gc.collect()
    assert seen() is None
    with pytest.raises(TypeError, match="unhashable"):
        hash(stretto.zeros(3))


def test_calling_the_room_makes_a_state_whatever_came_first() -> None:
    for first in ("", "st.zeros(1); ", "import stretto.state.buffer; "):
        code = f"import stretto as st; {first}print(type(st.state([1.0])).__name__)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "State"


# --- files ----------------------------------------------------------------------------------------------------------

structs = np.array([(1, 2.0, True), (3, -0.0, False)], dtype=[("n", "u2"), ("x", "f8"), ("on", "?")])


@pytest.mark.parametrize("array", [np.arange(6, dtype="f4").reshape(2, 3), np.float64(3.5), np.empty((0, 4)), structs])
def test_saving_and_loading(array: Any, tmp_path: Path) -> None:
    W = stretto.state(array)
    path = tmp_path / "W.safetensors"
    W.save(path)
    again = State.load(path)
    assert again.dtype == W.dtype
    assert again.shape == W.shape
    assert again.array.tobytes() == W.array.tobytes()
    assert os.listdir(tmp_path) == ["W.safetensors"]


@given(st.data())
def test_damage_is_noticed(data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "W"
        stretto.state(np.arange(10.0)).save(path)
        raw = bytearray(path.read_bytes())
        if data.draw(st.booleans()):
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del raw[data.draw(st.integers(0, len(raw) - 1)) :]
        path.write_bytes(raw)
        with contextlib.suppress(CheckpointError):
            found = State.load(path)  # a changed blank that fills up the header harms nothing
            assert found[...].tolist() == list(range(10))


def test_what_cannot_be_saved_or_loaded(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file"):
        State.load(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="An existing file is unchanged"):
        stretto.zeros(3).save(tmp_path / "no" / "folder")
    other = tmp_path / "other"
    with open(other, "wb") as file:
        array_file.write(file.write, {"x": np.zeros(3)})
    with pytest.raises(CheckpointError, match="holds x, not a state"):
        State.load(other)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "W"
    stretto.full(3, 1.0).save(path)

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(CheckpointError, match="No space left"):
        stretto.full(3, 2.0).save(path)
    monkeypatch.undo()
    assert State.load(path)[...].tolist() == [1.0, 1.0, 1.0]
    assert os.listdir(tmp_path) == ["W"]
