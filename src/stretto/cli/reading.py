"""Reader options of commands as arguments of `stretto.read`: only those that differ from its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from stretto.errors import DataError

_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " ", "blank": " ", "comma": ",", "semicolon": ";"}
# Options that say how a file is read; commands that add up what is repeated have no --duplicates.
READING = (
    *("format", "sep", "columns", "user", "item", "rating", "ids", "zero_based", "duplicates", "on_error", "cache"),
)
_DEFAULTS = {"format": "auto", "duplicates": "error", "on_error": "raise", "ids": "auto", "cache": True}


def reading(**options: Any) -> dict[str, Any]:
    """Arguments for `stretto.read` from options; what is as it would be anyway is left out.

    >>> reading(sep="tab", columns="0,2,rating", ids="auto", user=None)
    {'sep': '\\t', 'columns': [0, 2, 'rating']}
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        given = plain(value)
        if given is not None and given != _DEFAULTS.get(name):
            found[name] = _SEPARATORS.get(given, given) if name == "sep" else given
    if "columns" in found:
        found["columns"] = _columns(found["columns"])
    return found


def plain(value: Any) -> Any:
    """The value of an option as Python's functions take it."""
    return value.value if isinstance(value, StrEnum) else value


def _columns(text: str) -> list[int | str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in {2, 3} or not all(parts):
        raise DataError(
            f"--columns {text}: give user, item and rating by position or name, such as 0,1,2, or the first two"
        )
    return [int(part) if part.isascii() and part.isdigit() and len(part) < 10 else part for part in parts]


def refuse_reading(read: Mapping[str, Any]) -> None:
    """Refuse what a streamed file cannot have: it is read as it is."""
    given = [name for name, value in read.items() if value != _DEFAULTS.get(name) and name != "cache"]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise DataError(
            f"--memory streams the file as it is; {options} needs it in memory: leave it out, or leave --memory out"
        )
