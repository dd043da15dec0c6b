"""Threads that are kept for later work."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from stretto.runtime import kept_threads


def test_work_has_its_name_and_threads_are_used_again() -> None:
    seen: list[tuple[str, int]] = []

    def work() -> None:
        seen.append((threading.current_thread().name, threading.get_ident()))

    for number in range(3):
        running = kept_threads.start(f"stretto-worker-{number}", work)
        running.join()
        running.join()  # at any time, as often as one likes
    assert [name for name, _ in seen] == ["stretto-worker-0", "stretto-worker-1", "stretto-worker-2"]
    assert len({thread for _, thread in seen}) == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("stretto-worker")]


def test_all_run_at_the_same_time() -> None:
    together = threading.Barrier(kept_threads._KEPT + 5, timeout=30.0)

    def meet() -> None:
        together.wait()

    running = [kept_threads.start("stretto-many", meet) for _ in range(together.parties)]
    for one in running:
        one.join()
    assert not together.broken
    assert len(kept_threads._waiting.threads) <= kept_threads._KEPT


def test_an_error_is_reported_and_the_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_value))
    kept_threads.start("stretto-fails", [].remove, "x").join()
    assert isinstance(reported[0], ValueError)
    done: list[int] = []
    kept_threads.start("stretto-works", done.append, 1).join()
    assert done == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    kept_threads.start("stretto-parent", [].clear).join()
    child = os.fork()
    if not child:
        done: list[int] = []
        kept_threads.start("stretto-child", done.append, 1).join()
        os._exit(0 if done == [1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
