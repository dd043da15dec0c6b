"""States with sparse rows: what they hold, what they take, what a loop makes of them."""

from __future__ import annotations

import copy
import mmap
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import stretto as st
from stretto import pages
from stretto.errors import CheckpointError, DataError
from stretto.pages import Pages

PAGE = mmap.PAGESIZE


@pytest.fixture(params=["pagemap", "scan"])
def told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a system that says which pages are in memory, and without."""
    if request.param == "scan":
        monkeypatch.setattr(Pages, "_in_memory", lambda self: None)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("width", [1, 3, 16, 1024, 5000])
@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
def test_touched_rows_are_those_that_were_written(width: int, dtype: str) -> None:
    n = 3_000
    W = st.sparse_rows((n, width), dtype)
    assert W.touched.tolist() == []
    assert W.nbytes_used == 0
    rows = np.unique(np.random.default_rng(width).integers(0, n, 40))
    rows = np.unique([0, n - 1, *rows])
    W[rows, width - 1] = 1  # the last byte of a row may be in another page than the first
    assert W.touched.tolist() == rows.tolist()
    W[rows[3]] = 0
    assert rows[3] not in W.touched
    assert W.array.sum() == len(rows) - 1


def test_the_system_says_which_pages_are_in_memory() -> None:
    """Else every page would be read; if this fails on some system, `touched` is slow there and right."""
    W = st.sparse_rows((1_000_000, 64))
    W[500_000] = 1
    held = W._pages._in_memory()
    assert held is not None
    assert len(held) < 10
    assert W.touched.tolist() == [500_000]


def test_bytes_used_are_whole_pages() -> None:
    W = st.sparse_rows((10_000, 64))  # 16 rows in a page of 4 KiB
    per = PAGE // 256
    W[[0, 1, per - 1]] = 1
    assert W.nbytes_used == PAGE
    W[per] = 1
    W[9_000] = 1
    assert W.nbytes_used == 3 * PAGE
    wide = st.sparse_rows((100, PAGE), "f8")  # a row is eight pages
    wide[3, 0] = 1
    assert wide.nbytes_used == 8 * PAGE
    assert wide.nbytes == 100 * 8 * PAGE


def test_more_rows_than_memory_holds() -> None:
    W = st.sparse_rows((10**9, 1000), "f8")  # 8 TB
    W[[0, 10**9 - 1]] = 1
    assert W[10**9 - 1].sum() == 1000
    assert W._pages.nonzero_bytes(np.array([0, 10**9 - 1])) <= 6 * PAGE


def test_a_negative_zero_is_something() -> None:
    W = st.sparse_rows(5_000, "f8")
    W[17] = -0.0
    assert W.touched.tolist() == [17]
    assert np.signbit(W.copy()[17])


def test_it_is_a_state() -> None:
    W = st.sparse_rows((1000, 2))
    assert isinstance(W, st.State)
    W[3] += 1.5
    assert (W @ np.ones(2))[3] == 3.0
    assert W.shape == (1000, 2)
    assert W.array.ctypes.data % 64 == 0
    assert repr(W) == "SparseRows(1000 x 2, float32, 0.0 MiB if dense)"
    W += 1
    assert len(W.touched) == 1000


@pytest.mark.parametrize("dtype", ["f4", "i8", [("w", "f4"), ("n", "i4")]], ids=["f4", "i8", "structs"])
def test_copies_pickles_and_files_hold_the_rows_that_exist(dtype: Any, tmp_path: Path) -> None:
    W = st.sparse_rows((10**7, 4), dtype)
    rows = np.array([5, 6, 9_999_999])
    W.array.view("u1").reshape(10**7, -1)[rows] = np.arange(12, dtype="u1").repeat(W.dtype.itemsize).reshape(3, -1)
    W.save(tmp_path / "W")
    assert (tmp_path / "W").stat().st_size < 4096
    packed = pickle.dumps(W)
    assert len(packed) < 4096
    loaded = st.State.load(tmp_path / "W") if dtype == "i8" else st.SparseRows.load(tmp_path / "W")
    for other in (loaded, pickle.loads(packed), W.copy(), copy.deepcopy(W)):
        assert isinstance(other, st.SparseRows)
        assert (other.shape, other.dtype) == (W.shape, W.dtype)
        assert other.touched.tolist() == rows.tolist()
        assert other[rows].tobytes() == W[rows].tobytes()
        other.array[0] = other.array[5]
        assert 0 not in W.touched


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    W = st.sparse_rows((1000, 4))
    W[7] = 1
    W.save(tmp_path / "W")
    raw = bytearray((tmp_path / "W").read_bytes())
    at = raw.rindex(np.int64(7).tobytes())
    raw[at] = 8  # another row
    (tmp_path / "W").write_bytes(raw)
    with pytest.raises(CheckpointError, match="damaged"):
        st.State.load(tmp_path / "W")


def test_scipy_and_dense() -> None:
    matrix = sparse.random(200, 30, 0.02, "csr", np.float64, np.random.default_rng(1))
    W = st.SparseRows.from_scipy(matrix)
    assert (W.array == matrix.toarray()).all()
    assert (W.to_scipy() != matrix).nnz == 0
    dense = W.to_dense()
    assert type(dense) is st.State
    assert dense.array.tobytes() == W.array.tobytes()
    assert W.to_scipy().dtype == np.float64
    vector = st.sparse_rows(10**9, "i4")
    vector[10**8] = 3
    assert vector.to_scipy().shape == (10**9, 1)
    assert vector.to_scipy().sum() == 3
    with pytest.raises(DataError, match="SciPy has matrices"):
        st.sparse_rows((3, 4, 5)).to_scipy()


def test_no_rows_and_no_numbers() -> None:
    assert st.sparse_rows((0, 4)).touched.tolist() == []
    assert st.sparse_rows((4, 0)).touched.tolist() == []
    assert st.sparse_rows((4, 0)).nbytes_used == 0
    assert st.sparse_rows((0, 4)).copy().shape == (0, 4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: st.sparse_rows((2**60, 2**10)), "more than this system gives"),
        (lambda: st.sparse_rows(()), "give the number of rows"),
        (lambda: st.sparse_rows((4, -1)), "give the number of rows"),
        (lambda: st.sparse_rows(4, "O"), "a state holds numbers"),
        (lambda: st.buffer(st.sparse_rows((2**24, 8))), "write to the state without a buffer"),
        (lambda: st.SparseRows.from_rows([1, 2], np.ones((2, 3)), (9, 4)), r"give \[2, 4\]"),
        (lambda: st.SparseRows.from_rows([1, 9], np.ones((2, 4)), (9, 4)), "from 0 to 8"),
        (lambda: st.SparseRows.from_rows([0.5], np.ones((1, 4)), (9, 4)), "integers from 0 to 8"),
    ],
)
def test_mistakes(make: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        make()


def test_a_map_of_pages_that_holds_nothing_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_IN_MEMORY", np.uint64(0))
    W = st.sparse_rows((10_000, 4))
    W[123] = 1
    assert W._pages._in_memory() is None
    assert W.touched.tolist() == [123]


# -- in loops ---------------------------------------------------------------------------------------------------------


@st.parallel
def factors(ratings: Any, W: Any, H: Any, lr: float) -> None:
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        before = W[i] + 0
        W[i] += lr * e * H[j]
        H[j] += lr * e * before


@st.parallel
def weights(samples: Any, W: Any, step: Any, lr: float) -> None:
    for _, (y, features) in samples:
        s = 0.0
        for f, x in features:
            s += W[f] * x
        for f, x in features:
            step[f] -= lr * (s - y) * x


@pytest.mark.parametrize("runtime", [st.Serial(), st.Threads(2)], ids=lambda r: type(r).__name__)
def test_a_loop_gives_the_same_bits_as_with_a_dense_state(runtime: Any) -> None:
    draw = np.random.default_rng(0)
    n, users = 5_000, draw.integers(0, 5_000, 400)
    ratings = st.Data.from_arrays(users, draw.integers(0, 30, 400), draw.standard_normal(400), shape=(n, 30))
    found = []
    sparse_state = st.sparse_rows((n, 8))
    for W in (st.zeros((n, 8)), sparse_state):
        H = st.random((30, 8), seed=3)
        for _ in range(3):
            factors.using(runtime=runtime)(ratings, W, H, 0.1)
        found.append((W.array.tobytes(), H.array.tobytes()))
    assert found[0] == found[1]
    assert sparse_state.touched.tolist() == np.unique(users).tolist()


@pytest.mark.parametrize("runtime", [st.Serial(), st.Threads(2)], ids=lambda r: type(r).__name__)
def test_rows_that_are_written_through_a_buffer(runtime: Any) -> None:
    X = sparse.random(300, 2_000, 0.005, "csr", np.float64, np.random.default_rng(2))
    samples = st.samples(X, np.ones(300))
    found = []
    sparse_state = st.sparse_rows(2_000, "f8")
    for W in (st.zeros(2_000, "f8"), sparse_state):
        weights.using(runtime=runtime)(samples, W, st.buffer(W), 0.1)
        found.append(W.array.tobytes())
    assert found[0] == found[1]
    assert sparse_state.touched.tolist() == np.unique(X.indices).tolist()


SCRIPT = """
import numpy as np, stretto as st
from test_state_sparse_rows import factors

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1000

def epoch(n):
    draw = np.random.default_rng(0)
    ratings = st.Data.from_arrays(draw.integers(0, n, 500), draw.integers(0, 50, 500), np.ones(500), shape=(n, 50))
    W, H = st.sparse_rows((n, 512)), st.random((50, 512), seed=1)
    factors.using(runtime=st.Threads(2))(ratings, W, H, 0.1)
    return W

epoch(5_000)
before = peak()
W = epoch(300_000)
print(peak() - before, W.nbytes / 1e6, W.nbytes_used / 1e6, len(W.touched))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_loop_takes_memory_for_the_rows_it_writes(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{SCRIPT}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown, dense, used, touched = map(float, done.stdout.split())
    assert touched <= 500
    assert used < 2.1
    assert grown < 40
    assert dense > 600
