"""The runs of the Bösen reproductions in words, for plots. The short name, which tables have, is added in brackets."""

from __future__ import annotations

import re

_PLAIN = {
    "BS": "bounded staleness",
    "LS": "one node, scaled to all nodes",
    "Lazy": "updates sent at clocks only",
    "ASP-RR": "no staleness bound, rows in turn",
}
_RANKS = {"R": "random order", "RM": "largest relative change first", "E": "largest effect first"}


def in_words(name: str) -> str:
    """What a run is.

    >>> in_words("MC-200-RM")
    'managed, 200 Mbit/s, largest relative change first (MC-200-RM)'
    >>> in_words("BS-4"), in_words("SN-0.2")
    ('bounded staleness, 4 clocks a pass (BS-4)', 'one node, step 0.2 (SN-0.2)')
    """
    bare = name.removeprefix("add-")
    if found := re.fullmatch(r"MC-(\d+)-(R|RM|E)", bare):
        words = f"managed, {found[1]} Mbit/s, {_RANKS[found[2]]}"
    elif found := re.fullmatch(r"BS-(\d)", bare):
        words = f"bounded staleness, {found[1]} clocks a pass"
    elif found := re.fullmatch(r"rotation-(\d+)", bare):
        words = f"rotation, {found[1]} workers"
    elif found := re.fullmatch(r"SN-([\d.]+)", bare):
        words = f"one node, step {found[1]}"
    else:
        words = _PLAIN[bare]
    return f"{words} ({name})"
