"""Changed rows are listed while other threads are adding: the list is of one moment, and asking for it never fails."""

from __future__ import annotations

import threading

import numpy as np

from stretto.store.cache.buffer import PendingChanges
from stretto.store.layout import TableSpec
from stretto.store.shard.functions import add

ROWS = 200_000


def test_rows_may_change_while_changed_rows_are_listed() -> None:
    slip = PendingChanges(TableSpec("x", add, rows=ROWS), False, 0, ROWS)
    slip.places(np.arange(ROWS))
    some, none = np.ones(ROWS, np.uint8), np.zeros(ROWS, np.uint8)
    ended = threading.Event()

    def add_and_send() -> None:
        while not ended.is_set():
            np.copyto(slip.changed, some)  # without the interpreter's lock, as compiled adds are
            np.copyto(slip.changed, none)

    thread = threading.Thread(target=add_and_send)
    thread.start()
    try:
        for _ in range(100):
            found = slip.dirty()
            assert (np.diff(found) > 0).all()
    finally:
        ended.set()
        thread.join()
