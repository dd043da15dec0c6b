"""Merge the options of several commands into one: `stretto explain` takes those of `train mf` and `train lda`.

Every option is declared once, by the command that it belongs to. Here it has no default (None: not typed), because the
commands' defaults differ; `MergedOptions.asked` fills in those of the command that is meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from enum import Enum
from typing import Annotated, Any, Optional, get_args, get_type_hints

from stretto.errors import DataError

_ARGUMENT = "file"


class MergedOptions:
    """Options of several commands. commands: name → the function of the command."""

    def __init__(self, commands: Mapping[str, Callable[..., Any]]) -> None:
        self.commands = dict(commands)
        self._defaults = {
            name: {p.name: p.default for p in inspect.signature(command).parameters.values() if p.name != _ARGUMENT}
            for name, command in commands.items()
        }
        self._hints = {name: get_type_hints(command, include_extras=True) for name, command in commands.items()}

    @property
    def names(self) -> list[str]:
        """Every option once, in the order of the commands."""
        return list(dict.fromkeys(option for options in self._defaults.values() for option in options))

    def parameters(self, short: str = "") -> list[inspect.Parameter]:
        """For the signature of the merged command. short: names of one letter that are left to it, such as "-k"."""
        return [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=self._merged(name, short))
            for name in self.names
        ]

    def _merged(self, name: str, short: str) -> Any:
        """The declaration of an option: that of its first command, with what the others add."""
        of = [command for command in self.commands if name in self._defaults[command]]
        kind, info = get_args(self._hints[of[0]][name])[:2]
        infos = [get_args(self._hints[command][name])[1] for command in of]
        decls = dict.fromkeys(text for one in infos for text in (one.default, *(one.param_decls or ())))
        merged = copy(info)
        merged.default, *rest = [text for text in decls if text not in short.split()]
        merged.param_decls = tuple(rest)
        helps = dict.fromkeys(str(one.help) for one in infos)
        if len(helps) > 1:
            merged.help = " ".join(f"{command}: {one.help}" for command, one in zip(of, infos, strict=True))
        merged.min = info.min if len({one.min for one in infos}) == 1 else None
        if len(of) < len(self.commands):
            merged.rich_help_panel = f"{info.rich_help_panel}: {', '.join(of)} only"
        merged.show_default = self._shown(name, of, infos)
        return Annotated[Optional[kind], merged]  # noqa: UP045  (kind is a value)

    def _shown(self, name: str, of: list[str], infos: list[Any]) -> Any:
        """The defaults in words; False shows none."""
        shown = []
        for command, info in zip(of, infos, strict=True):
            default = self._defaults[command][name]
            if isinstance(info.show_default, str):
                shown.append(info.show_default)
            else:
                plain = default.value if isinstance(default, Enum) else default
                shown.append("" if plain is None or isinstance(plain, bool) else str(plain))
        if len(set(shown)) == 1:
            return shown[0] or False
        return "; ".join(f"{command} {text}" for command, text in zip(of, shown, strict=True) if text)

    def chosen(self, typed: Mapping[str, Any], named: str | None) -> str:
        """The command that is meant: the one named, else the first to which all options belong that were typed."""
        given = [name for name, value in typed.items() if value is not None]
        fits = [command for command in self.commands if all(name in self._defaults[command] for name in given)]
        if named is None and fits:
            return fits[0]
        command = next(iter(self.commands)) if named is None else named
        unknown = [name for name in given if name not in self._defaults[command]]
        if unknown:
            strange = [f"--{name.replace('_', '-')}" for name in unknown]
            owners = [other for other in self.commands if all(name in self._defaults[other] for name in unknown)]
            others = " and ".join(owners) or "several models"
            raise DataError(f"{', '.join(strange)} is an option of {others}, not of {command}; leave it out")
        return command

    def asked(self, command: str, typed: Mapping[str, Any]) -> dict[str, Any]:
        """All options of a command: those that were typed, else its defaults."""
        defaults = self._defaults[command]
        return defaults | {name: typed[name] for name in defaults if typed.get(name) is not None}
