"""Rewrite error messages for the command line: Python parameters become the options that the user typed.

Errors name options as Python has them, `on_error="skip"`, because that is what everything below the command line knows.
Here they become what the running command calls them:

    pass on_error="skip"                    pass --on-error skip
    say it with columns=(0, 1, 2)           say it with --columns 0,1,2
    fit without memory=                     fit without --memory

What the command has no option for stays as it is, and the message ends by saying so.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

# What the command line calls by another name than Python.
ALIASES = {
    "random_state": ("seed",),
    "n_jobs": ("workers",),
    "n_components": ("topics", "rank"),
    "max_iter": ("epochs", "max_iter"),
    "fit_intercept": ("intercept",),
    "l2_regularization": ("reg",),
    "bias_l2_regularization": ("bias_reg",),
    "doc_topic_prior": ("alpha",),
    "topic_word_prior": ("beta",),
    "validation": ("test",),
    "column": ("text",),
    "max_features": ("max_words",),
    "ngram_range": ("ngrams",),
}
# Arguments of readers and estimators that a message may advise although no command has them.
PYTHON_ONLY = frozenset(["raw_ids", "n_columns", "map_ids", "shape", "unknown", "labels", "fit_within"])
_VALUE = r""""[^"]*"|'[^']*'|\([^()]*\)|-?[A-Za-z0-9_.]+"""
_OPTION = re.compile(rf"(?<![\w.\-])([A-Za-z][a-z_0-9]*)=(?![=\w\"'(-])|(?<![\w.\-])([A-Za-z][a-z_0-9]*)=({_VALUE})")
_MUST = re.compile(r"(?:(?<=: )|^)(\w+)(?= must be )")  # "MatrixFactorization: n_components must be a whole number"
_AT_DEFAULT = re.compile(r"leave it at its default \([^()]*\)")
_IN_A_CALL = re.compile(r"\w\([^()]*$")  # code to be typed in Python, such as frame.melt("user", value_name="rating")


def as_typed(message: str, command: Any, path: str) -> str:
    """The message with options as a command of click has them.

    Parameters
    ----------
    message : str
        Options as Python has them.
    command : click.Command
        The command that runs.
    path : str
        How it is called, such as "train mf".
    """
    options = {parameter.name: parameter for parameter in command.params if parameter.param_type_name == "option"}
    missing: list[str] = []

    def typed(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if _IN_A_CALL.search(found.string[: found.start()]):
            return found[0]
        option = _option(name, options)
        if option is not None:
            return _typed(option, found[3])
        if name in reading_options() or name in PYTHON_ONLY:
            missing.append(f"{name}=")
        return found[0]

    def subject(found: re.Match[str]) -> str:
        option = _option(found[1], options)
        return found[0] if option is None else str(option.opts[0])

    text = _MUST.sub(subject, _OPTION.sub(typed, _AT_DEFAULT.sub("leave it out", message)))
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        text += f" ({names}: arguments in Python, for which `stretto {path}` has no option)"
    return text


def _option(name: str, options: dict[str, Any]) -> Any:
    """What a command calls a parameter of Python; None where it has no option for it."""
    return next((options[own] for own in ALIASES.get(name, (name,)) if own in options), None)


def reading_options() -> frozenset[str]:
    """Names of the arguments that say how a file is read."""
    return frozenset(
        ["format", "sep", "columns", "user", "item", "rating", "ids", "duplicates", "on_error", "zero_based", "cache"]
    )


def _typed(option: Any, value: str | None) -> str:
    name = option.opts[0]
    if option.is_flag:
        if value == "False":
            return option.secondary_opts[0] if option.secondary_opts else f"no {name}"
        return str(name)
    if value is None:
        return str(name)
    if value == "None" and option.name == "test":
        return f"{name} 0"
    return f"{name} {_plain(value)}"


def _plain(value: str) -> str:
    """A Python value as a shell takes it."""
    if value.startswith("("):
        parts = [part.strip().strip("\"'") for part in value[1:-1].split(",") if part.strip()]
        return shlex.quote(",".join(parts))
    bare = value.strip("\"'")
    if bare == "…":
        return "NAME"
    return repr(" ") if bare == " " else shlex.quote(bare)
