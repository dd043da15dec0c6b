"""`--config FILE`: options of a command from a TOML file, and the file of options that a run keeps.

    command = "train mf"          # refused by another command; may be left out
    file = "ratings.dat"
    rank = 64
    learning-rate = 0.1           # or learning_rate
    biases = false                # what --no-biases is

What is typed as well wins. A name that is no option of the command is refused, with the nearest that is one. Every
training keeps all of its options, typed or not, in `options.toml` of its folder, which can be given back with --config.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import tomllib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from stretto.atomic import replacing
from stretto.errors import DataError

from .errors import path_of, running_command
from .wording import ALIASES

OPTIONS = "options.toml"
_COMMAND = "command"
# What names a place or is about this one call, so that a repetition does not get it.
_NOT_KEPT = frozenset(["out", "config", "dashboard", "log", "quiet", "verbose"])
_FILES = frozenset(["file", "vocab", "seeds", "user_features", "item_features", "stop_words"])
_NOT_READ = frozenset(["config", "json", "help"])


def take_options(context: typer.Context, file: Path | None) -> Path | None:
    """Callback of --config: the file's options become the defaults of the command."""
    if file is None or context.resilient_parsing:
        return file
    known = _known(context.command)
    repeated = {one.name for one in context.command.params if getattr(one, "multiple", False)}
    found: dict[str, Any] = {}
    for name, value in _read(file).items():
        if name == _COMMAND:
            _check_command(file, value, path_of(context), found)
            continue
        plain = name.replace("-", "_")
        if plain in _NOT_READ or plain not in known:
            raise DataError(f"{file}: {_unknown(name, known, path_of(context))}")
        several = known[plain] in repeated
        if isinstance(value, dict) or (isinstance(value, list) and not several):
            raise DataError(f"{file}: {name} is a {'table' if isinstance(value, dict) else 'list'}; give one value")
        found[known[plain]] = [value] if several and not isinstance(value, list) else value
    context.default_map = {**(context.default_map or {}), **found}
    context.meta["stretto.config"] = str(file), frozenset(found)
    return file


def _known(command: Any) -> dict[str, str]:
    """What options may be called in a file → the name of the parameter."""
    found: dict[str, str] = {}
    for parameter in command.params:
        found[parameter.name] = parameter.name
        for text in parameter.opts:
            found[text.lstrip("-").replace("-", "_")] = parameter.name
    return {name: parameter for name, parameter in found.items() if len(name) > 1}


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise DataError(f"--config {file}: there is no such file; check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"--config {file}: is no TOML ({error}); write options as name = value, text in quotes"
        ) from None


def _check_command(file: Path, value: Any, running: str, found: dict[str, Any]) -> None:
    """Refuse a file of another command. `explain` takes that of any training, and the model from it."""
    if running == "explain" and isinstance(value, str) and value.startswith("train "):
        found["model"] = value.removeprefix("train ")
    elif value != running:
        raise DataError(
            f"{file}: holds options of `stretto {value}`, and this is `stretto {running}`; name another file"
        )


def _unknown(name: str, known: Mapping[str, str], running: str) -> str:
    names = [one.replace("_", "-") for one in known if one not in _NOT_READ and one != "as_json"]
    plain = name.replace("_", "-")
    own = [one for one in ALIASES.get(plain.replace("-", "_"), ()) if one in known]
    near = own or difflib.get_close_matches(plain, names, 1, 0.6)
    if plain.startswith("no-") and plain[3:] in names:
        return f"{name}: write {plain[3:]} = false"
    advice = f"the nearest is {near[0].replace('_', '-')!r}" if near else f"`stretto {running} --help` lists them"
    return f"{name!r} is no option of `stretto {running}`; {advice}"


def to_keep(kind: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a training, by the names they have on the command line; those that are None are left out."""
    context = running_command()
    names = {} if context is None else {one.name: one.opts[0].lstrip("-") for one in context.command.params}
    found: dict[str, Any] = {_COMMAND: f"train {kind}"}
    for name, value in asked.items():
        if value is None or name in _NOT_KEPT:
            continue
        plain = value.value if isinstance(value, Enum) else value
        if name in _FILES and os.path.exists(plain):
            plain = os.path.abspath(plain)
        found[names.get(name, name)] = plain
    return found


def rewritten(path: Path, changed: Mapping[str, Any]) -> None:
    """Change some options in the file of a run."""
    write_options(path, {**_read(path), **changed})


def write_options(path: Path, options: Mapping[str, Any]) -> None:
    """Write options to the file that a run keeps."""
    lines = [f"{name} = {_toml(value)}" for name, value in options.items()]
    again = f"stretto {options.get(_COMMAND, 'train')} --config {OPTIONS} --out FOLDER"
    head = f"# The options of this run; to repeat it: {again}"
    with replacing(path) as fresh:
        fresh.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


def _toml(value: Any) -> str:
    """
    >>> _toml("a\\tb"), _toml(True), _toml(0.5), _toml(3), _toml(float("inf"))
    ('"a\\\\tb"', 'true', '0.5', '3', 'inf')
    """
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
