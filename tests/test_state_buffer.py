"""Buffers: writes wait, add up, and are applied element by element; logs replay to the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stretto
from stretto.errors import DataError


def adagrad(w: Any, d: Any, g: Any) -> Any:
    g = g + d * d
    return w - d / np.sqrt(g), g


def revise(w: Any, d: Any, total: Any, seen: Any) -> Any:
    """A step that counts what others added between reading and writing."""
    return w + d + (total - seen) * d, total + d


def test_alone_every_write_is_applied_at_once() -> None:
    W = stretto.zeros((3, 2))
    Wb = stretto.buffer(W)
    Wb[1] += np.array([1.0, 2.0])
    Wb[1, 0] += 0.5
    Wb[1][1] -= 1.0
    Wb[0:2] -= 1.0
    assert W[...].tolist() == [[-1.0, -1.0], [0.5, 0.0], [0.0, 0.0]]
    assert Wb.log == []
    assert float(Wb[1, 0]) == 0.0  # nothing waits


def test_apply_with_helpers() -> None:
    w, g = np.zeros(3), np.full(3, 1.0)
    wb = stretto.buffer(w, apply=adagrad, with_=(g,))
    wb[2] += 3.0
    assert g.tolist() == [1.0, 1.0, 10.0]
    assert w[2] == pytest.approx(-3 / 10**0.5)
    doubled = stretto.buffer(w, apply=lambda value, d, helper: (value + 2 * d, helper), with_=(g,))
    doubled[0] += 1.0
    assert (w[0], g[0]) == (2.0, 1.0)


def plus(w: Any, d: Any) -> Any:
    return w + d


def test_held_writes_wait_and_add_up() -> None:
    W = np.zeros(4)
    Wb = stretto.buffer(W, apply=plus, every=2)
    Wb.hold()
    Wb[3] += 1.0
    Wb[1] += 2.0
    Wb.tick()
    Wb[3] -= 0.5
    assert float(Wb[3]) == 0.5
    assert np.asarray(Wb[:]).tolist() == [0.0, 2.0, 0.0, 0.5]
    assert Wb[3] + 1 == 1.5
    assert not W.any()
    Wb.tick()  # the second iteration: a flush
    assert W.tolist() == [0.0, 2.0, 0.0, 0.5]
    Wb[3] += 1.0
    Wb[0] += 0.0  # written, though with nothing
    Wb.flush()
    log = Wb.take_log()
    assert log.element.tolist() == [1, 3, 0, 3]
    assert log.delta.tolist() == [2.0, 0.5, 0.0, 1.0]
    assert log.seen is None
    assert len(Wb.take_log()) == 0
    Wb.release()
    Wb[0] += 1.0
    assert W[0] == 1.0


def test_a_visit_sees_its_own_additions_and_logs_their_total() -> None:
    W = np.zeros(4)
    Wb = stretto.buffer(W, every=None)
    Wb.hold()
    Wb[3] += 1.0
    Wb[3] += 0.5
    Wb[1] -= 2.0
    assert W.tolist() == [0.0, -2.0, 0.0, 1.5]
    log = Wb.take_log()
    assert log.element.tolist() == [1, 3]
    assert log.delta.tolist() == [-2.0, 1.5]
    W[:] = 10.0
    Wb.replay(log)
    assert W.tolist() == [10.0, 8.0, 10.0, 11.5]
    Wb.release()


def test_deltas_are_of_the_states_own_type() -> None:
    W = stretto.zeros(1)
    Wb = stretto.buffer(W)
    Wb.hold()
    Wb[0] += np.float64(1.0)
    Wb[0] += np.float64(2.0**-30)  # lost in a float32 sum
    Wb.flush()
    assert Wb.take_log().delta.tolist() == [1.0]
    counts = stretto.buffer(stretto.zeros(2, dtype="i8"))
    counts[1] -= np.uint8(1)
    assert counts.target.tolist() == [0, -1]
    with pytest.raises(DataError, match="int64 cannot take float64"):
        counts[0] += 0.5


writes = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), max_size=12)


@given(st.lists(writes, max_size=4), st.sampled_from([None, 1, 2, 3]), st.sampled_from(["add", "adagrad", "revise"]))
def test_a_wave_by_log_and_replay(visits: list[list[tuple[int, int]]], every: int | None, rule: str) -> None:
    """What a plan does with visits that see the same state, against the same written out by hand."""
    apply: Any = {"add": None, "adagrad": adagrad, "revise": revise}[rule]
    start = np.full(4, 1.0)
    w, g = start.copy(), start.copy()
    helpers = () if rule == "add" else (g,)
    wb = stretto.buffer(w, apply, helpers, snapshot=g if rule == "revise" else None, every=every)
    logs = []
    wb.hold()
    for visit in visits:
        w[:], g[:] = start, start
        for element, d in visit:
            wb[element] += d
            wb.tick()
        wb.flush()
        logs.append(wb.take_log())
    w[:], g[:] = start, start
    for log in logs:
        wb.replay(log)
    wb.release()
    expected = by_hand(visits, start, every, rule)
    assert w.tolist() == expected[0].tolist()
    assert g.tolist() == expected[1].tolist()


def by_hand(visits: list[list[tuple[int, int]]], start: Any, every: int | None, rule: str) -> Any:
    def one(w: Any, g: Any, k: int, d: float, seen: float) -> None:
        if rule == "add":
            w[k] += d
        elif rule == "adagrad":
            w[k], g[k] = adagrad(w[k], np.float64(d), g[k])
        else:
            w[k], g[k] = revise(w[k], d, g[k], seen)

    everything: list[list[tuple[int, float, float]]] = []
    for visit in visits:
        w, g = start.copy(), start.copy()
        size = every or max(len(visit), 1)
        records = []
        for lo in range(0, len(visit), size):
            sums: dict[int, float] = {}
            for k, d in visit[lo : lo + size]:
                sums[k] = sums.get(k, 0.0) + d
            for k in sorted(sums):
                records.append((k, sums[k], g[k]))
                one(w, g, *records[-1])
        everything.append(records)
    w, g = start.copy(), start.copy()
    for records in everything:
        if rule == "add":
            totals: dict[int, float] = {}
            for k, total, _ in records:
                totals[k] = totals.get(k, 0.0) + total
            records = [(k, totals[k], 0.0) for k in sorted(totals)]
        for record in records:
            one(w, g, *record)
    return w, g


def test_what_is_refused() -> None:
    W, G = stretto.zeros((2, 2)), stretto.zeros((2, 2))
    Wb = stretto.buffer(W)
    with pytest.raises(DataError, match="`\\+=` and `-=` only"):
        Wb[0] = 1.0
    with pytest.raises(DataError, match="`\\+=` and `-=` only"):
        Wb[0][1] = 1.0
    with pytest.raises(DataError, match="one of the arrays in with_"):
        stretto.buffer(W, adagrad, (W,), snapshot=G)
    with pytest.raises(DataError, match=r"with_\[0\] has shape \(3,\)"):
        stretto.buffer(W, adagrad, (stretto.zeros(3),))
    with pytest.raises(DataError, match="pass the function"):
        stretto.buffer(W, with_=(G,))
    with pytest.raises(DataError, match="every=0"):
        stretto.buffer(W, every=0)
    with pytest.raises(DataError, match="got list"):
        stretto.buffer([1.0])  # type: ignore[arg-type]
    odd = stretto.buffer(W, lambda w, d, g: (w, g, g), (G,))
    with pytest.raises(DataError, match="gave 3 values"):
        odd[0, 0] += 1.0
    assert repr(stretto.buffer(W, adagrad, (G,))) == "buffer(2 x 2, float32, by adagrad)"
