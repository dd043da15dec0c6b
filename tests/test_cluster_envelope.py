"""Envelopes: what goes in comes out, as few bytes as were counted, and nothing that does not fit the job."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from stretto.comm.codec import round_f2
from stretto.comm.link import BARE, Frame
from stretto.comm.messages import Announce, Demand, Dropped, Fetch, NodeClock, Rows, ShardClock, Update
from stretto.comm.policy import Managed
from stretto.comm.sizes import rows_nbytes
from stretto.consistency.clocks import FOREVER
from stretto.consistency.rules import SSP
from stretto.runtime.cluster.blocks.ring import Block
from stretto.runtime.cluster.hosts.calls import RING, TABLES
from stretto.runtime.cluster.net import envelope
from stretto.runtime.cluster.net.envelope import BIG, Envelopes
from stretto.runtime.cluster.net.frame_checks import Checker, Malformed, NoCheck, RingCheck, TableCheck
from stretto.store.layout import Layout, TableSpec
from stretto.store.shard.functions import adarevision, add
from wire_ends import raw

POST = Envelopes("job", 0)
LAYOUT = Layout(
    (
        TableSpec("plain", add, rows=1000, cols=8, partition="range"),
        TableSpec("versioned", adarevision(0.1), rows=1000, cols=3, dtype="f8", partition="range"),
        TableSpec("any key", add, cols=2, dtype="i8"),
        TableSpec("wide", add, rows=10_000, cols=64, partition="range"),
    ),
    nodes=2,
    rule=SSP(1),
    workers=4,
)
CHECK = TableCheck(LAYOUT)
RANDOM = np.random.default_rng(0)


def keys(first: int, n: int) -> Any:
    return np.arange(first, first + n, dtype=np.int64)


def values(n: int, cols: int, dtype: str = "f4") -> Any:
    return (RANDOM.normal(size=(n, cols)) * 100).astype(dtype)


def i4(n: int) -> Any:
    return RANDOM.integers(0, 100, n).astype(np.int32)


def through(message: Any, check: Checker = CHECK, channel: int = TABLES, source: int = 0, target: int = 1) -> Any:
    frame = Frame(3, source, 7, 5, message, False, message.nbytes)
    letter = POST.open(raw(POST.encode(channel, source, target, [frame], check)))
    assert (letter.host, letter.channel, letter.incarnation) == (0, channel, 3)
    (back,) = letter.frames(check)
    assert (back.incarnation, back.source, back.sequence, back.acknowledges, back.asks) == (3, source, 7, 5, False)
    assert back.nbytes == message.nbytes
    return back.message


def assert_same(a: Any, b: Any) -> None:
    """Two messages have the same fields, bit for bit."""
    assert type(a) is type(b)
    for name in (field.name for field in fields(a)):
        assert_equal(getattr(a, name), getattr(b, name))


def assert_equal(a: Any, b: Any) -> None:
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()
        assert b.flags.aligned
        assert b.flags.writeable
        assert b.flags.c_contiguous
    elif isinstance(a, tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_equal(one, other)
    else:
        assert a == b


@pytest.mark.parametrize(
    "message",
    [
        Update(0, 0, 1, 4, 3, keys(500, 20), values(20, 8), 900, True),
        Update(1, 0, 1, 4, -1, keys(600, 5), values(5, 3, "f8"), 900, False, i4(5)),
        Update(0, 0, 9, 4, -1, keys(500, 0), values(0, 8), 48),
        Update(3, 0, 2, 4, 0, keys(5000, 4096), values(4096, 64), 2_000_000),
        NodeClock(0, FOREVER),
        NodeClock(0, 3, ((1, keys(700, 4), i4(4)), (1, keys(800, 1), i4(1)))),
        Fetch(0, 0, keys(500, 3), -2),
        Fetch(0, 3, keys(5000, 5000), 2),
        Dropped(0, 0, keys(500, 3)),
        Dropped(0, 1, keys(500, 3), i4(3)),
        Announce(0, 0, 7, keys(990, 10)),
        ShardClock(0, 12, 3),
        Demand(0, 4),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_goes_in_comes_out(message: Any) -> None:
    assert_same(message, through(message))
    assert_same(message, through(message, NoCheck()))


def test_rows_come_out_too() -> None:
    rows = Rows(1, 0, keys(10, 6), values(6, 3, "f8"), 4, 2, 400, True, i4(6), RANDOM.random(6).astype("f4"))
    assert_same(rows, through(rows))
    of_any = Layout(LAYOUT.tables, nodes=1, workers=4, witness=True)
    witnessed = Rows(0, 0, keys(0, 6), values(6, 8), 4, 2, 400, False, None, None, i4(24).reshape(6, 4))
    assert_same(witnessed, through(witnessed, TableCheck(of_any)))


def test_a_block_comes_out_without_a_copy() -> None:
    parts = (RANDOM.integers(0, 256, 100_000).astype(np.uint8), RANDOM.integers(0, 256, 12).astype(np.uint8))
    block = Block(2, 5, 1, 3, parts)
    check = RingCheck({2: [[50, 100_000], [6, 12]]})
    assert_same(block, through(block, check, RING))
    sent = POST.encode(RING, 0, 1, [Frame(0, 0, 1, 0, block, False, block.nbytes)], check)  # type: ignore[arg-type]
    assert len(sent) == 2
    assert sent[1] is parts[0]
    arrived = np.array(sent[1])
    (frame,) = POST.open([sent[0], arrived]).frames(check)
    assert np.shares_memory(frame.message.parts[0], arrived)  # type: ignore[union-attr]


def test_very_large_arrays_travel_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "CHUNK", 3 * BIG)
    block = Block(0, 5, 0, 3, (RANDOM.integers(0, 256, 7 * BIG + 5).astype(np.uint8),))
    assert len(POST.encode(RING, 0, 1, [Frame(0, 0, 1, 0, block, False, 1)])) == 4  # type: ignore[arg-type]
    assert_same(block, through(block, NoCheck(), RING))


def test_frames_without_a_message_travel_together_with_others() -> None:
    frames = [
        Frame(3, 0, 0, 9, None, True, BARE),
        Frame(3, 0, 4, 9, Demand(0, 1), False, 48),
        Frame(3, 0, 0, 10, None, False, BARE),
    ]
    back = POST.open(POST.encode(TABLES, 0, 1, frames)).frames()
    assert [(f.sequence, f.acknowledges, f.asks, f.nbytes) for f in back] == [
        (0, 9, True, 32),
        (4, 9, False, 48),
        (0, 10, False, 32),
    ]
    assert [f.message is None for f in back] == [True, False, True]


@pytest.mark.parametrize("codec", [None, "f2"])
@pytest.mark.parametrize("filled", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("n", [3, 2000])
def test_rows_take_no_more_bytes_than_were_counted(codec: str | None, filled: float, n: int) -> None:
    policy = Managed("100Mbit", codec=codec)
    check = TableCheck(Layout(LAYOUT.tables, nodes=2, workers=4, rule=SSP(1), policy=policy))
    deltas = np.where(RANDOM.random((n, 64)) < filled, values(n, 64), np.float32(0))
    if filled == 0.5:
        deltas[::2] = values((n + 1) // 2, 64)  # some rows dense, some not
    if codec is not None:
        deltas = round_f2(deltas)
    counted = rows_nbytes(deltas, False, 2 if codec else 4)
    message = Update(3, 0, 1, 4, -1, keys(5000, n), deltas, counted)
    assert_same(message, through(message, check))
    frame = Frame(0, 0, 1, 0, message, False, counted)
    travelled = sum(map(len, raw(POST.encode(TABLES, 0, 1, [frame], check))))
    assert travelled <= counted + 48


def test_a_negative_zero_is_not_left_out() -> None:
    deltas = np.zeros((50, 64), np.float32)
    deltas[::2, 5] = -0.0
    message = Update(3, 0, 1, 4, -1, keys(5000, 50), deltas, rows_nbytes(deltas, False, 4))
    assert_same(message, through(message))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Update(9, 0, 1, 4, 0, keys(500, 2), values(2, 8), 100), "no such table"),
        (Update(0, 0, 1, 4, 0, keys(500, 2), values(2, 7), 100), "rows of another table"),
        (Update(0, 0, 1, 4, 0, keys(500, 2), values(2, 8, "f8"), 100), "rows of another table"),
        (Update(0, 0, 1, 4, 0, keys(999, 2), values(2, 8), 100), "a row out of range"),
        (Update(0, 0, 1, 4, 0, keys(-1, 2), values(2, 8), 100), "a row out of range"),
        (Update(0, 0, 1, 4, 0, keys(100, 2), values(2, 8), 100), "a row of another shard"),
        (Update(0, 0, 1, 4, 0, keys(500, 2), values(2, 8), 100, False, i4(2)), "versions of a table without"),
        (Update(1, 0, 1, 4, 0, keys(500, 2), values(2, 3, "f8"), 100), "versions of a table without"),
        (
            Update(0, 0, 1, 4, 0, keys(500, 2), values(2, 8), 100, witness=i4(8).reshape(2, 4)),
            "columns that do not belong",
        ),
        (Rows(0, 0, keys(500, 2), values(2, 8), 4, 2, 100), "a row of another shard"),
        (Fetch(0, 0, keys(1000, 1), 0), "a row out of range"),
        (Fetch(0, 0, keys(2**40, 1), 0), "a row out of range"),
        (Announce(0, 5, 1, keys(500, 1)), "no such table"),
        (Dropped(0, 1, keys(500, 1)), "versions of a table without"),
        (NodeClock(0, 1, ((0, keys(500, 1), i4(1)),)), "versions of a table without"),
        (Block(0, 0, 0, 0, (np.zeros(4, np.uint8),)), "a block where there are tables"),
    ],
)
def test_what_does_not_fit_the_job_is_refused(message: Any, reason: str) -> None:
    frame = Frame(0, 0, 1, 0, message, False, 100)
    letter = POST.open(POST.encode(TABLES, 0, 1, [frame]))
    with pytest.raises(Malformed, match=reason):
        letter.frames(CHECK)


@pytest.mark.parametrize("size", [49, 0, 51, 2**30])
def test_a_block_of_another_size_is_refused(size: int) -> None:
    check = RingCheck({0: [[50]]})
    block = Block(0, 0, 0, 0, (np.zeros(min(size, 1000), np.uint8),))
    letter = POST.open(POST.encode(RING, 0, 1, [Frame(0, 0, 1, 0, block, False, 1)]))  # type: ignore[arg-type]
    with pytest.raises(Malformed, match="a block of another size"):
        letter.frames(check)


def test_another_job_or_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = Frame(0, 0, 0, 0, None, False, BARE)
    with pytest.raises(Malformed, match="another job"):
        POST.open(Envelopes("another", 0).encode(TABLES, 0, 1, [frame]))
    monkeypatch.setattr(envelope, "PROTOCOL", 2)
    sent = POST.encode(TABLES, 0, 1, [frame])
    monkeypatch.undo()
    with pytest.raises(Malformed, match="another protocol version"):
        POST.open(sent)
