"""`stretto runs` and `stretto compare`: what run records say, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stretto.cli.json_output import answer
from stretto.cli.output import say, table

RUNS_EXAMPLES = "Examples:\n\nstretto runs\n\nstretto runs experiments --json"
COMPARE_EXAMPLES = "Examples:\n\nstretto compare runs/first runs/second\n\nstretto compare runs --json"


def runs(
    folder: Annotated[Path, typer.Argument(help="A folder of runs.", metavar="FOLDER")] = Path("runs"),
) -> None:
    """List the runs in a folder: what each was, how it ended, and its last numbers."""
    from stretto.observe.page.names import records_in

    found = [_state(record) for record in records_in(folder)]
    answer(runs=[_facts(state) for state in found])
    rows = [
        (
            str(state["name"]),
            str(state["status"]),
            str(next(filter(None, map(state["config"].get, ("estimator", "model", "program"))), "–")),
            f"{int(_last(state).get('epoch', 0)):,} of {state['epochs']:,}",
            _numbers(_last(state)),
            str(state["started"] or "–")[:16].replace("T", " "),
        )
        for state in found
    ]
    table(None, ("run", "status", "what", "epochs", "last numbers", "started (UTC)"), rows, numbers=("epochs",))


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, or one with several.", metavar="RUN…")],
) -> None:
    """Show in what runs differ: their settings, versions and machines, and their last numbers side by side."""
    from stretto.observe.page.names import chosen, names_of

    records = chosen(folders)
    found = [_state(record) for record in records]
    names = names_of(records)
    answer(
        differences={name: dict(zip(names, values, strict=True)) for name, values in _differences(found)},
        runs={name: _facts(state) for name, state in zip(names, found, strict=True)},
    )
    metrics = dict.fromkeys(name for state in found for name in _last(state))
    rows = [(_words(name), *(_shown(_last(state).get(name)) for state in found)) for name in metrics]
    table("last numbers", ("", *names), rows, numbers=names)
    differing_rows = [(name, *(_text(value) for value in values)) for name, values in _differences(found)]
    if differing_rows:
        table("what differs", ("setting", *names), differing_rows)
    elif len(found) > 1:
        say("their settings, versions and machines are the same")


def _state(record: Path) -> dict[str, Any]:
    from stretto.observe.page.tail import RecordTail

    tail = RecordTail(record)
    tail.poll()
    return tail.state(record.name)


def _last(state: dict[str, Any]) -> dict[str, float]:
    """The newest value of each column."""
    found = {}
    for name, values in state["series"].items():
        known = [value for value in values if value is not None]
        if known:
            found[name] = known[-1]
    return found


def _facts(state: dict[str, Any]) -> dict[str, Any]:
    keys = ("name", "status", "message", "started", "ended", "fingerprint", "profile", "epochs", "config")
    return {key: state[key] for key in keys} | {"last": _last(state)}


def _flat(state: dict[str, Any]) -> dict[str, Any]:
    """Settings, machine and versions by name; the settings of a mapping one by one."""
    found: dict[str, Any] = {"fingerprint": state["fingerprint"]}
    for section in ("config", "machine", "versions"):
        for name, value in state[section].items():
            found |= value if isinstance(value, dict) else {name: value}
    return found


def _differences(states: list[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    each = [_flat(state) for state in states]
    names = dict.fromkeys(name for settings in each for name in settings)
    rows = [(name, [settings.get(name) for settings in each]) for name in names]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values)]


def _numbers(last: dict[str, float]) -> str:
    shown = {name: value for name, value in last.items() if name not in ("epoch", "seconds", "items", "speed")}
    return ", ".join(f"{_words(name)} {_shown(value)}" for name, value in list(shown.items())[:3]) or "–"


def _words(name: str) -> str:
    from stretto.cli.output import metric_name

    plain = {"items": "items visited", "seconds": "seconds in epochs", "speed": "items per second", "epoch": "epochs"}
    return plain.get(name) or (name if "_" not in name else metric_name(name))


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def _text(value: Any) -> str:
    return "–" if value is None else str(value)
