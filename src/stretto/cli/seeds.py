"""Read the seed words of topics from a file: TOML, JSON, or a line of text for each topic.

sport = ["game", "team"]              {"sport": ["game", "team"]}             sport: game team
3 = ["gene", "dna"]
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from stretto.errors import DataError


def read_seeds(path: str) -> dict[str, Any]:
    """Topic → words, or word → prior tokens, as the file has them; the estimator checks them."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file of seed words; check the path") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text ({error}); convert the file first") from None
    kind = Path(path).suffix.lower()
    try:
        found = tomllib.loads(text) if kind == ".toml" else json.loads(text) if kind == ".json" else _lines(path, text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: is no {kind[1:].upper()} ({error}); correct it") from None
    if not isinstance(found, dict) or not found:
        raise DataError(f'{path}: holds no topics; give lines such as sport = ["game", "team"]')
    return found


def _lines(path: str, text: str) -> dict[str, Any]:
    """`name: word word …` a line; words of several parts are separated by commas. Lines with # are comments."""
    found: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, words = line.partition(":")
        if not colon:
            raise DataError(f"{path}:{number}: has no colon; write a topic as name: word word")
        if name.strip() in found:
            raise DataError(f"{path}:{number}: topic {name.strip()!r} comes twice; give all of its words together")
        listed = words.split(",") if "," in words else words.split()
        found[name.strip()] = [word.strip() for word in listed if word.strip()]
    return found
