"""The stops in their order. A stop imports what it needs when it runs."""

from __future__ import annotations

import importlib
from pathlib import Path

from .stop import Shown, Stop


def _stop(name: str, title: str, asks: str) -> Stop:
    def run(folder: Path) -> Shown:
        found: Shown = getattr(importlib.import_module(f".{name}", __package__), name)(folder)
        return found

    return Stop(title, asks, run)


STOPS = (
    _stop(
        "loop_stop", "A loop of your own", "What may run at the same time in a serial loop, and is the result the same?"
    ),
    _stop("rotation_stop", "Who works on what", "How do four workers share one matrix without locks?"),
    _stop("ranking_stop", "Too little bandwidth", "If not all changes can be sent, which ones first?"),
    _stop("straggler_stop", "Slow nodes", "What do nodes cost that are slow for a while, and must all wait for them?"),
    _stop("crash_stop", "A node is killed", "What is lost when a node of a cluster dies in the middle of a fit?"),
    _stop("stages_stop", "Stages of their own width", "How many workers should a job have whose work changes?"),
)
