"""The front end of parameter tables: what users write, what they get back, which errors they see."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import stretto as st
from stretto.errors import DataError, OtherPlan, PlanError, RunError, StrettoError
from stretto.tables.shares import share_of
from stretto.tables.worker import Worker
from stretto.testing import check_replay

RUNTIMES: list[Any] = [st.Serial(), st.Threads(2), st.Simulated(nodes=2, threads=2)]


def _named(value: object) -> str:
    """A test's name that is the same in every process: no addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


EVERYWHERE = pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: type(runtime).__name__)


def once(body: Callable[[Worker], Any], runtime: Any = None, workers: int = 1, **tables: st.tables.Table) -> Any:
    return st.run(body, tables=tables, workers=workers, runtime=runtime or st.Threads(1))


# -- reading and adding ------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_what_everybody_added_is_there(runtime: Any) -> None:
    def body(w: Worker) -> None:
        x = w.table("x")
        for clock in w.clocks(3):
            seen = x.read([0, 1, 2])
            assert seen.shape == (3, 2)
            assert seen.dtype == np.float32
            assert (seen[:, 0] == 4 * clock).all()  # four workers, everything of the clocks before
            x.add([2, 0, 1], np.full((3, 2), 1.0))
            assert (x.read([0])[0] == 4 * clock + 1).all()  # and what it added itself

    result = once(body, runtime, workers=4, x=st.tables.Table(rows=3, cols=2))
    assert result.tables["x"].tolist() == [[12.0, 12.0]] * 3
    assert result.clocks == (3, 3, 3, 3)
    assert result.stopped == "done"


@EVERYWHERE
def test_keys_come_in_any_order_and_more_than_once(runtime: Any) -> None:
    def body(w: Worker) -> None:
        x = w.table("x")
        x.add([3, 1, 3, 3], np.array([[1.0, 2.0], [10.0, 20.0], [0.5, 0.25], [0.25, 0.5]]))
        assert x.read([3, 0, 3, 1]).tolist() == [[1.75, 2.75], [0.0, 0.0], [1.75, 2.75], [10.0, 20.0]]

    result = once(body, runtime, x=st.tables.Table(rows=4, cols=2))
    assert result.tables["x"].tolist() == [[0, 0], [10, 20], [0, 0], [1.75, 2.75]]


@EVERYWHERE
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8"])
def test_dtypes(runtime: Any, dtype: str) -> None:
    def body(w: Worker) -> None:
        x = w.table("x")
        assert x.dtype == np.dtype("f4" if dtype == "f2" else dtype)
        for _ in w.clocks(2):
            x.add(np.arange(5), np.full(5, 3, dtype=x.dtype))
        assert x.read().tolist() == [12] * 5
        assert x.read().dtype == x.dtype

    assert once(body, runtime, workers=2, x=st.tables.Table(rows=5, dtype=dtype)).tables["x"].tolist() == [12] * 5


def test_shapes_of_reads() -> None:
    def body(w: Worker) -> None:
        wide, one = w.table("wide"), w.table("one")
        assert wide.read().shape == (5, 3)
        assert wide.read(4).shape == (3,)
        assert wide.read([4]).shape == (1, 3)
        assert wide.read(np.array([], dtype=np.int64)).shape == (0, 3)
        assert wide.read([]).shape == (0, 3)
        assert one.read().shape == (7,)
        assert one.read(np.int32(3)).shape == ()
        assert one.read([1, 2]).shape == (2,)
        out = np.empty((2, 3), dtype="f4")
        assert wide.read([1, 2], out=out) is out
        flat = np.empty(2, dtype="f8")
        assert one.read([1, 2], out=flat) is flat
        one.add(3, 2.5)
        one.add(np.array([3, 4], dtype=np.uint8), [1, 1])
        assert one.read([3, 4]).tolist() == [3.5, 1.0]
        wide.add(2, [1.0, 2.0, 3.0])
        wide.add([0, 1], 1)
        assert wide.read([0, 2]).tolist() == [[1, 1, 1], [1, 2, 3]]

    once(body, wide=st.tables.Table(rows=5, cols=3), one=st.tables.Table(rows=7, dtype="f8"))


@EVERYWHERE
def test_keys_without_end(runtime: Any) -> None:
    far = np.array([-(2**63), -5, 0, 2**63 - 1])

    def body(w: Worker) -> None:
        x = w.table("x")
        assert x.read(far).tolist() == [7.0] * 4
        x.add(far[::2], [1.0, 2.0])
        w.tick()
        assert x.read(far).tolist() == [9.0, 7.0, 11.0, 7.0]

    result = once(body, runtime, workers=2, x=st.tables.Table(start=7.0))
    found = result.entries("x")
    assert found.keys.tolist() == far.tolist()
    assert result.tables["x"].values.tolist() == [9.0, 7.0, 11.0, 7.0]


@EVERYWHERE
@pytest.mark.parametrize("unit", ["row", "element"])
def test_single_numbers_of_wide_rows(runtime: Any, unit: str) -> None:
    def body(w: Worker) -> None:
        x = w.table("x")
        for _ in w.clocks(2):
            x.add_at([3, 0, 3], [1, 2, 1], [1.0, 5.0, 0.5])
            x.add([2], [[1.0, 0.0, 2.0]])
        assert x.read_at([3, 0, 2, 1], [1, 2, 2, 1]).tolist() == [6.0, 20.0, 8.0, 0.0]
        assert x.read([3, 2]).tolist() == [[0.0, 6.0, 0.0], [4.0, 0.0, 8.0]]

    result = once(body, runtime, workers=2, x=st.tables.Table(rows=4, cols=3, unit=unit))
    assert result.tables["x"].tolist() == [[0, 0, 20], [0, 0, 0], [4, 0, 8], [0, 6, 0]]


def test_sparse_rows_hold_what_was_touched() -> None:
    def body(w: Worker) -> None:
        w.table("x").add_at([10**12, 5], [999, 0], [1.5, 2.5])

    result = once(body, x=st.tables.Table(rows=2 * 10**12, cols=1000, unit="element"))
    found = result.entries("x")
    assert (found.rows.tolist(), found.cols.tolist(), found.values.tolist()) == ([5, 10**12], [0, 999], [2.5, 1.5])


@EVERYWHERE
def test_rows_with_named_parts(runtime: Any) -> None:
    def body(w: Worker) -> None:
        x = w.table("x")
        for _ in w.clocks(2):
            rows = x.read([0, 2])
            assert rows.w.shape == (2, 3)
            assert rows.b.shape == (2,)
            assert np.shares_memory(rows.w, rows.array)
            x.add([0, 2], w=np.ones((2, 3)), b=[1.0, 2.0])
            x.add([1], {"b": [0.5]})
        assert x.read(2).b == 4.0
        with pytest.raises(AttributeError, match="no part 'c'; they have w, b"):
            rows.c  # noqa: B018

    whole = once(body, runtime, x=st.tables.Table(rows=3, fields={"w": 3, "b": 1})).tables["x"]
    assert whole.b.tolist() == [2.0, 1.0, 4.0]
    assert whole.w.tolist() == [[2, 2, 2], [0, 0, 0], [2, 2, 2]]


@EVERYWHERE
def test_asking_ahead_changes_nothing(runtime: Any) -> None:
    def body(w: Worker) -> None:
        x = w.table("x")
        for clock in w.clocks(3):
            later = x.read_async([1, 0])
            x.add([0], [1.0])
            assert later.get().tolist() == [0.0, 2.0 * clock + 1.0]  # as a read now: own writes are in it

    assert once(body, runtime, workers=2, x=st.tables.Table(rows=2)).tables["x"].tolist() == [6.0, 0.0]


@EVERYWHERE
def test_where_rows_begin(runtime: Any) -> None:
    start = np.arange(12.0).reshape(6, 2)

    def body(w: Worker) -> None:
        assert w.table("array").read([5, 0]).tolist() == [[10, 11], [0, 1]]
        assert w.table("number").read([1]).tolist() == [2.5]
        assert w.table("function").read([4, -3]).tolist() == [[8.0, 9.0], [-6.0, -5.0]]
        assert w.table("elements").read_at([2, 1], [1, 0]).tolist() == [5.0, 2.0]

    def by_key(keys: Any) -> Any:
        return np.stack([2.0 * keys, 2.0 * keys + 1], axis=1)

    tables = {
        "array": st.tables.Table(rows=6, cols=2, start=start),
        "number": st.tables.Table(rows=6, start=2.5),
        "function": st.tables.Table(cols=2, start=by_key),
        "elements": st.tables.Table(rows=6, cols=2, unit="element", start=start),
    }
    result = st.run(body, tables=tables, runtime=runtime)
    start[:] = 0.0
    assert result.tables["array"][5].tolist() == [10.0, 11.0]
    assert result.tables["elements"][2, 1] == 5.0


@pytest.mark.parametrize("partition", ["hash", "range", lambda keys, shards: keys % shards])
def test_partitions_do_not_matter(partition: Any) -> None:
    def body(w: Worker) -> None:
        x = w.table("x")
        for clock in w.clocks(3):
            keys = w.random(clock).integers(0, 50, 20)
            x.add(keys, 0.1 * x.read(keys) + 1.0)

    tables = {"x": st.tables.Table(rows=50, cols=2, partition=partition, shards=(0, 2))}
    runs = [
        st.run(body, workers=3, tables=tables, runtime=runtime)
        for runtime in (st.Serial(), st.Simulated(nodes=3, threads=1))
    ]
    assert runs[0].tables["x"].tobytes() == runs[1].tables["x"].tobytes()


# -- workers -----------------------------------------------------------------------------------------------------------


def test_every_worker_gets_its_share() -> None:
    data = np.arange(23)
    seen: dict[int, list[Any]] = {}

    def body(w: Worker) -> None:
        assert (w.workers, w.node, w.clock) == (4, 0, 0)
        seen[w.number] = [batch.tolist() for batch in w.batches(data, 3, passes=2)]

    result = once(body, workers=4, x=st.tables.Table(rows=1))
    assert [[entry for batch in seen[k][: len(seen[k]) // 2] for entry in batch] for k in range(4)] == [
        data[k * 23 // 4 : (k + 1) * 23 // 4].tolist() for k in range(4)
    ]
    assert all(seen[k][: len(seen[k]) // 2] == seen[k][len(seen[k]) // 2 :] for k in range(4))
    assert result.items == 46


def test_kinds_of_data() -> None:
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10)
    ratings = st.Data.from_arrays([0, 0, 1, 2], [1, 2, 0, 1], [1.0, 2.0, 3.0, 4.0])
    cut = [share_of(data, 1, 2) for data in (X, (X, y), scipy.sparse.coo_array(X), ratings, 10)]
    assert [len(share) for share in cut] == [5, 5, 5, 2, 5]
    assert cut[0].take(1, 3).tolist() == X[6:8].tolist()
    assert [part.tolist() for part in cut[1].take(0, 2)] == [X[5:7].tolist(), [5, 6]]
    assert cut[2].take(0, 2).toarray().tolist() == X[5:7].tolist()
    assert cut[3].take(0, 2).values.tolist() == [3.0, 4.0]
    assert cut[4].take(2, 5).tolist() == [7, 8, 9]
    odd = share_of(X, 1, 2, part=lambda worker, workers, n: range(n)[worker::workers])
    assert odd.take(0, 2).tolist() == X[[1, 3]].tolist()
    masked = share_of(y, 0, 1, part=lambda worker, workers, n: y > 6)
    assert masked.take(0, 3).tolist() == [7, 8, 9]
    assert share_of(y, 0, 1, part=lambda worker, workers, n: slice(2, 4)).take(0, 9).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("data", "part", "words"),
    [
        ({"a": 1}, None, "cannot cut dict"),
        ((), None, "no arrays"),
        ((np.zeros(3), np.zeros(4)), None, "3, 4 entries; give arrays of one length"),
        (-1, None, "-1 entries"),
        (5, lambda worker, workers, n: [7], "leaves the data; return indices from 0 to 4"),
        (5, lambda worker, workers, n: [0.5], "return a slice or indices"),
    ],
)
def test_data_that_cannot_be_shared_out(data: Any, part: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        share_of(data, 0, 1, part)


def test_work_is_said_before_the_tick() -> None:
    """On a simulated cluster a batch costs time, and the tick in its body comes after that time."""
    when = []

    def body(w: Worker) -> None:
        for _ in w.batches(10, 5):
            w.tick()

    def watch(view: Any) -> float:
        when.append(view.seconds)
        return 0.0

    spec = st.Simulated(nodes=1, threads=1, seconds_per_item=1.0, message_cost=(0.0, 0.0))
    result = st.run(body, tables={"x": st.tables.Table(rows=1)}, runtime=spec, watch=watch)
    assert when == [0.0, 5.0, 10.0]
    assert result.seconds == 10.0
    assert result.items == 10


def test_random_numbers_depend_on_seed_worker_and_keys() -> None:
    found = {}

    def body(w: Worker) -> None:
        found[w.number] = [w.random(*keys).standard_normal(3).tolist() for keys in ((), (1,), (1, 2))]
        assert w.random(1).standard_normal(3).tolist() == found[w.number][1]

    once(body, workers=2, x=st.tables.Table(rows=1))
    first = dict(found)
    assert len({tuple(numbers) for worker in first.values() for numbers in worker}) == 6
    st.run(body, workers=2, tables={"x": st.tables.Table(rows=1)}, seed=1)
    assert found[0] != first[0]
    once(body, st.Simulated(nodes=2), workers=2, x=st.tables.Table(rows=1))
    assert found == first


# -- what comes back ---------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_watching(runtime: Any) -> None:
    def body(w: Worker) -> None:
        w.local["number"] = w.number
        for _ in w.clocks(6):
            w.table("x").add([0], [1.0])

    def watch(view: Any) -> float:
        assert view["x"].shape == (2,)
        assert len(view.local) == 2
        return float(view["x"][0])

    result = st.run(body, workers=2, tables={"x": st.tables.Table(rows=2)}, runtime=runtime, watch=watch, every=2)
    assert [(look.clock, look.objective) for look in result.history] == [(0, 0.0), (2, 4.0), (4, 8.0), (6, 12.0)]
    assert result.objective == 12.0
    assert [local["number"] for local in result.local] == [0, 1]
    stopped = st.run(
        body,
        workers=2,
        tables={"x": st.tables.Table(rows=2)},
        runtime=runtime,
        watch=watch,
        until=lambda look: look.clock >= 3,
    )
    assert stopped.stopped == "until"
    assert stopped.tables["x"][0] == 6.0  # exactly three clocks: the look that ended it
    assert "until, objective 6" in repr(stopped)


@EVERYWHERE
@pytest.mark.parametrize("apply", [st.tables.add, st.tables.adagrad(0.1), st.tables.adarevision(0.1)], ids=repr)
@pytest.mark.parametrize("unit", ["row", "element"])
def test_a_table_goes_on_where_a_run_ended(runtime: Any, apply: Any, unit: str) -> None:
    def body(w: Worker, clocks: range) -> None:
        x = w.table("x")
        for clock in clocks:
            keys = st.integers(1000, clock) + np.arange(7) * (clock + 1)
            x.add(keys % 40, 0.1 * x.read(keys % 40) + 0.3)
            w.tick()

    def run(table: st.tables.Table, clocks: range) -> Any:
        return st.run(lambda w: body(w, clocks), workers=2, tables={"x": table}, runtime=runtime)

    table = st.tables.Table(rows=40, cols=3, apply=apply, unit=unit, start=np.linspace(0, 1, 120).reshape(40, 3))
    first, last, whole = range(4), range(4, 6), range(6)
    half = run(table, first)
    other = run(half.table("x"), range(0))
    assert other.tables["x"].tobytes() == half.tables["x"].tobytes()
    assert run(other.table("x"), last).tables["x"].tobytes() == run(table, whole).tables["x"].tobytes()


def test_a_table_of_any_keys_goes_on() -> None:
    def body(w: Worker) -> None:
        w.table("x").add([5, -1], [1.0, 2.0])

    first = once(body, x=st.tables.Table(start=0.5))
    second = once(lambda w: w.table("x").add([-1, 9], [10.0, 20.0]), x=first.table("x"))
    third = once(lambda w: w.table("x").read([5]), x=second.table("x"))
    again = once(lambda w: w.table("x").read([5, -1, 9, 11]), x=third.table("x"))
    assert again.tables["x"].values.tolist() == [12.5, 1.5, 20.5, 0.5]


# -- mistakes ----------------------------------------------------------------------------------------------------------

X = st.tables.Table(rows=10, cols=2, check_finite=True)


def announced_late(w: Worker) -> None:
    w.tick()
    w.table("x").announce([1], 0)


MISTAKES: list[tuple[str, Callable[[Worker], Any], type[StrettoError], str]] = [
    (
        "unknown table",
        lambda w: w.table("weigths"),
        PlanError,
        "there is no table 'weigths'; this run has 'x', 'n', 'f'",
    ),
    (
        "too large",
        lambda w: w.table("x").read([1, 10]),
        DataError,
        r"key 10 \(at 1\) does not exist; its rows are 0 to 9",
    ),
    ("negative", lambda w: w.table("x").add([0, 0, -1], np.ones((3, 2))), DataError, r"key -1 \(at 2\)"),
    ("not whole", lambda w: w.table("x").read([1.5]), DataError, "keys are float64, not whole numbers"),
    ("booleans", lambda w: w.table("x").read(np.ones(3, bool)), DataError, "keys are bool, not whole numbers"),
    ("shape of keys", lambda w: w.table("x").read([[1]]), DataError, r"keys have shape \(1, 1\); give a flat list"),
    ("too many bits", lambda w: w.table("n").read(np.array([2**63], np.uint64)), DataError, "more than int64 holds"),
    (
        "width",
        lambda w: w.table("x").add([1], np.ones((1, 3))),
        DataError,
        r"shape \(1, 3\) for 1 keys .* give \[1, 2\]",
    ),
    ("length", lambda w: w.table("x").add([1, 2], np.ones((3, 2))), DataError, r"shape \(3, 2\) for 2 keys"),
    ("flat", lambda w: w.table("x").add([1, 2], np.ones(2)), DataError, r"shape \(2,\) for 2 keys"),
    ("kind", lambda w: w.table("n").add([1], [0.5]), DataError, "deltas are float64 and the table holds int64"),
    ("complex", lambda w: w.table("x").add([1], np.ones((1, 2), complex)), DataError, "complex128"),
    ("NaN", lambda w: w.table("x").add([1, 2], [[1, 1], [1, np.nan]]), DataError, "the delta at 1 holds NaN"),
    ("infinity", lambda w: w.table("x").add([1], [[np.inf, 1]]), DataError, "the delta at 0 holds infinity"),
    ("out dtype", lambda w: w.table("x").read([1], out=np.empty((1, 2))), DataError, "out is float64; give a float32"),
    ("out shape", lambda w: w.table("x").read([1], out=np.empty(2, "f4")), DataError, r"out has shape \(2,\); 1 keys"),
    ("out order", lambda w: w.table("x").read([0, 1], out=np.empty((2, 2), "f4").T), DataError, "C-contiguous"),
    (
        "column",
        lambda w: w.table("x").read_at([1], [2]),
        DataError,
        r"column 2 \(at 0\) does not exist; its columns are 0",
    ),
    ("columns", lambda w: w.table("x").add_at([1, 2, 3], [0, 1], 1.0), DataError, "3 rows and 2 columns"),
    ("field", lambda w: w.table("f").add([1], q=1.0), DataError, "no field q; it has w, b"),
    ("no fields", lambda w: w.table("x").add([1], w=1.0), DataError, "the table has no fields, so no w"),
    ("both", lambda w: w.table("f").add([1], np.ones((1, 3)), b=1.0), DataError, "not both"),
    ("whole", lambda w: w.table("n").read(), DataError, "a table without rows= cannot be read as a whole"),
    ("announced late", announced_late, DataError, "clock 0 is over"),
    (
        "batch size",
        lambda w: list(w.batches(10, 0)),
        RunError,
        "worker 0 failed at clock 0: DataError: batches: size=0",
    ),
    ("theirs", lambda w: 1 // 0, RunError, "worker 0 failed at clock 0: ZeroDivisionError"),
]


@pytest.mark.parametrize(("body", "kind", "words"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_mistakes_of_a_worker(body: Callable[[Worker], Any], kind: type[StrettoError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        once(body, x=X, n=st.tables.Table(dtype="i8"), f=st.tables.Table(rows=3, fields={"w": 2, "b": 1}))
    assert "worker 0" in str(caught.value)


@EVERYWHERE
def test_a_mistake_says_where(runtime: Any) -> None:
    def body(w: Worker) -> None:
        for clock in w.clocks(9):
            w.table("x").read([10 if (w.number, clock) == (2, 3) else 0])

    with pytest.raises(DataError, match=r"^worker 2, clock 3, table 'x': key 10 \(at 0\) does not exist"):
        once(body, runtime, workers=4, x=X)


@EVERYWHERE
def test_a_watching_function_that_fails(runtime: Any) -> None:
    def body(w: Worker) -> None:
        list(w.clocks(5))

    tables = {"x": st.tables.Table(rows=1)}
    with pytest.raises(RunError, match="`watch` failed at clock 2: ZeroDivisionError"):
        st.run(body, tables=tables, runtime=runtime, watch=lambda view: 1 / (view.clock - 2))
    with pytest.raises(RunError, match="watch gave 'a' at clock 0; return a number"):
        st.run(body, tables=tables, runtime=runtime, watch=lambda view: "a")  # type: ignore[arg-type, return-value]


@EVERYWHERE
def test_after_the_end(runtime: Any) -> None:
    kept: list[Any] = []

    def body(w: Worker) -> None:
        kept[:] = [w, w.table("x")]

    once(body, runtime, x=X)
    w, x = kept
    for call in (w.tick, lambda: w.work(1), lambda: list(w.clocks(5)), lambda: next(w.batches(3))):
        with pytest.raises(RunError, match=r"worker 0: .* after its function has returned"):
            call()
    for call in (lambda: x.read([1]), lambda: x.add([1], 1.0), lambda: x.read_at([1], [1]), lambda: x.announce([1])):
        with pytest.raises(RunError, match=r"worker 0, table 'x': .* after the worker's function has returned"):
            call()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rows": 0}, "Table: rows=0 is less than 1; leave it out for any int64 keys"),
        ({"rows": 2.5}, r"Table: rows=2\.5 is not a whole number"),
        ({"cols": -1}, "Table: cols=-1 is less than 1"),
        ({"dtype": "f16"}, r"Table\(dtype='f16'\): choose f2, f4, f8, i4, i8"),
        ({"dtype": "u4"}, "dtype='u4'"),
        ({"dtype": bool}, "dtype=<class 'bool'>"),
        ({"apply": "add"}, "is not a server function; give st.tables.add"),
        ({"apply": st.tables.adagrad}, "is not a server function"),
        ({"unit": "column"}, "unit='column'"),
        ({"placement": "owned"}, "placement='owned'"),
        ({"partition": "round"}, "partition='round'"),
        ({"partition": "range"}, "needs rows="),
        ({"shards": ()}, r"shards=\(\)"),
        ({"shards": (0, 0)}, "give different numbers"),
        ({"shards": 3}, "shards=3"),
        ({"cache_rows": 0}, "cache_rows=0"),
        ({"snapshots": 5}, "add keeps no snapshots"),
        ({"start": "zero"}, "start='zero'"),
        ({"start": np.zeros(3)}, "needs rows="),
        ({"rows": 4, "start": np.zeros(3)}, r"has shape \(3,\); rows=4 and cols=1 need \[4, 1\]"),
        ({"rows": 4, "dtype": "i4", "start": 0.5}, "begins with numbers of that kind"),
        ({"rows": 1, "start": np.nan, "check_finite": True}, "NaN or infinity, which check_finite=True refuses"),
        ({"fields": {}}, "give names and widths"),
        ({"fields": {"a b": 1}}, "'a b' cannot name a field"),
        ({"fields": {"w": 0}}, r"fields\['w'\]=0"),
        ({"fields": {"w": 2}, "cols": 3}, "the fields are 2 wide"),
        ({"fields": {"w": 2}, "unit": "element"}, "fields are parts of a row"),
        ({"placement": "shared"}, "needs rows=: it is one array"),
        ({"rows": 2, "placement": "shared", "apply": st.tables.adagrad(0.1)}, "no server function can be applied"),
        ({"rows": 2, "placement": "shared", "dtype": "f2"}, "is one array: leave out unit="),
        ({"rows": 2, "placement": "shared", "sparse": True}, "cache_rows= and sparse="),
        ({"rows": 2, "sparse": 1}, r"Table\(sparse=1\): choose True, False"),
        ({"rows": 2**40, "cols": 2**40}, "more than 2\\^62"),
    ],
    ids=_named,
)
def test_tables_that_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        st.tables.Table(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tables": {}}, "give a dict of st.tables.Table by name"),
        ({"tables": [X]}, "give a dict of st.tables.Table by name"),
        ({"tables": {"x": 3}}, "'x': int"),
        ({"tables": {3: X}}, "a table's name is text"),
        ({"workers": 0}, "workers=0 is less than 1"),
        ({"workers": 1.5}, "workers=1.5 is not a whole number; give one of at least 1"),
        ({"every": 0}, "every=0 is less than 1"),
        ({"seed": "x"}, "seed='x' is not a whole number"),
        ({"sync": "BSP"}, r"sync='BSP'; give st.BSP\(\), st.SSP\(s\) or st.ASP\(\)"),
        ({"sync": st.tables.SSP}, r"make one: st.tables.SSP\(…\)"),
        ({"comm": 100}, "comm=100; give st.tables.Eager"),
        ({"comm": st.tables.Managed}, r"make one: st.tables.Managed\(…\)"),
        ({"runtime": 2}, r"runtime=2 is not a runtime; give st.Threads\(n\)"),
        ({"runtime": st.Threads}, r"make one: st.Threads\(…\)"),
        ({"watch": 1}, r"watch=1 cannot be called; give a function watch\(view\)"),
        ({"watch": lambda: 0.0}, "watch must be a function"),
        ({"until": lambda look: True}, "until= needs watch="),
        ({"record": True}, "record=True; choose None, 'rows' or 'full'"),
        ({"resume": True}, "need checkpoint="),
        ({"checkpoint_every": 3}, "need checkpoint="),
        ({"checkpoint": 3}, "checkpoint=3; give a folder"),
        ({"checkpoint": st.Saving("x", every_epochs=2)}, "say checkpoint_every="),  # type: ignore[arg-type]
        ({"checkpoint": "x", "checkpoint_every": 0}, "checkpoint_every=0 is less than 1"),
        ({"rounds": 3}, "rounds is nothing that a worker function is run with"),
        ({"tables": {"x": st.tables.Table(rows=2, apply=st.tables.adagrad(0.1), dtype="i4")}}, "needs floats"),
        (
            {"tables": {"x": st.tables.Table(rows=2, placement="shared")}, "runtime": st.Simulated(nodes=1)},
            "table 'x': placement='shared' is memory of one process, and Simulated has several",
        ),
        ({"runtime": st.Serial(), "checkpoint": "x"}, "saves no checkpoints"),
        ({"runtime": st.Serial(), "record": "full"}, "no messages that could be recorded"),
        (
            {"tables": {"x": st.tables.Table(rows=2, shards=(0, 5))}, "runtime": st.Simulated(nodes=2)},
            r"shards=\(0, 5\), but this run has nodes 0 to 1",
        ),
    ],
    ids=_named,
)
def test_runs_that_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        st.run(lambda w: None, **{"tables": {"x": X}, **given})


def test_one_word_for_both_doors() -> None:
    def body(w: Worker) -> None:
        pass

    with pytest.raises(PlanError, match="'body' is a function, so it is called with a worker"):
        st.run(body)  # type: ignore[call-overload]
    with pytest.raises(PlanError, match="run: worker must be a function"):
        st.run(lambda: None, tables={"x": X})  # type: ignore[arg-type, misc]
    with pytest.raises(PlanError, match=r"st.run runs an st.Program, got int"):
        st.run(3)  # type: ignore[call-overload]
    program = st.program(
        update=lambda job, data, params: job,
        aggregate=lambda results, params: None,
        schedule=st.schedule.cyclic(width=1),
        params={"x": np.zeros(2)},
        data=None,
    )
    with pytest.raises(PlanError, match="tables is nothing that a program is run with; there are rounds"):
        st.run(program, tables={})  # type: ignore[call-overload]
    assert st.run(program, rounds=3).rounds == 3


@pytest.mark.parametrize(
    ("place", "words"), [(lambda k, n: k, "shards 5"), (lambda k, n: k * 0.5, "float64"), (lambda k, n: 0, "int64")]
)
def test_partitions_that_are_wrong(place: Any, words: str) -> None:
    def body(w: Worker) -> None:
        w.table("x").read([5])

    with pytest.raises(StrettoError, match=rf"table 'x': partition\(keys, shards\) gave {words}"):
        once(body, st.Simulated(nodes=2), x=st.tables.Table(rows=10, partition=place))


# --- results travel ---------------------------------------------------------------------------------------------------


def _rising(keys: Any) -> Any:
    return np.repeat(np.asarray(keys, np.float64)[:, None], 2, axis=1)


def _by_parity(keys: Any, shards: int) -> Any:
    return keys % shards


@pytest.mark.parametrize("start", [_rising, lambda keys: _rising(keys) + 1, 1.5], ids=["function", "lambda", "number"])
@pytest.mark.parametrize("unit", ["row", "element"])
@pytest.mark.parametrize("record", [None, "full"])
def test_results_can_be_pickled(start: Any, unit: str, record: str | None) -> None:
    def worker(w: Any) -> None:
        w.table("x").add([1, 3], np.ones((2, 2)))
        w.table("free").add([-(2**40)], [1.0])
        w.local["n"] = w.number

    tables = {
        "x": st.tables.Table(rows=5, cols=2, start=start, unit=unit, partition=_by_parity),
        "free": st.tables.Table(apply=st.tables.adagrad(0.5)),
    }
    result = st.run(worker, workers=2, tables=tables, record=record, watch=lambda view: 1.0)
    again = pickle.loads(pickle.dumps(result))
    assert again.tables["x"].tolist() == result.tables["x"].tolist()
    assert again.entries("free").values.tolist() == result.entries("free").values.tolist()
    assert (again.clocks, again.history, again.local) == (result.clocks, result.history, result.local)
    more = st.run(worker, workers=2, tables={name: again.table(name) for name in tables})
    same = st.run(worker, workers=2, tables={name: result.table(name) for name in tables})
    assert more.tables["x"].tolist() == same.tables["x"].tolist()
    assert more.entries("free").values.tolist() == same.entries("free").values.tolist()
    if record == "full":
        assert str(check_replay(again.recording)) == str(check_replay(result.recording))


def test_a_checkpoint_of_other_tables_says_what_differs(tmp_path: Path) -> None:
    def worker(w: Any) -> None:
        for _ in w.clocks(1):
            w.table("x").add([0], [1.0])

    def run(**given: Any) -> Any:
        options: dict[str, Any] = {
            "workers": 2,
            "tables": {"x": st.tables.Table(rows=3)},
            "seed": 1,
            "checkpoint": tmp_path,
        } | given
        return st.run(worker, **options)

    run(checkpoint_every=1)
    with pytest.raises(OtherPlan) as caught:
        run(workers=3, seed=7, tables={"x": st.tables.Table(rows=4, dtype="f8"), "y": st.tables.Table()}, resume=True)
    said = str(caught.value)
    for words in (
        "workers is 2 in the checkpoint and 3 in this run",
        "seed is 1 in the checkpoint and 7 in this run",
        "rows of table 'x' is 3 in the checkpoint and 4 in this run",
        "dtype of table 'x' is f4 in the checkpoint and f8 in this run",
        "tables is x in the checkpoint and x, y in this run",
    ):
        assert words in said
    assert "sync" not in said
    assert len(caught.value.differences) > 4
