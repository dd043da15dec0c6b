"""Work that goes on while the caller does something else, and a lock with what waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Background:
    """Threads and one condition for all of them. `with background:` holds its lock."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        self._changed.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._changed.__exit__(*error)

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Run a function on a thread of its own."""
        threading.Thread(target=work, name=f"stretto-{name}", daemon=True).start()

    def wait(self, until: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait, with the lock held, until something is true; False after the timeout."""
        return self._changed.wait_for(until, timeout)

    def changed(self) -> None:
        """Wake all who wait; with the lock held."""
        self._changed.notify_all()
