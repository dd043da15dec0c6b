"""The page of one or several runs, as one HTML file: a report with its data, or the frame of the live page.

report([tail.state("first")])        # bytes to write to a file, or to send to a colleague
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stretto.observe.markup import asset, escape, fill, json_block, policy

from .findings import findings

PARTS: dict[str, tuple[str, ...]] = {  # what of a state changes together
    "head": (
        *("name", "status", "message", "started", "ended", "sessions", "fingerprint", "profile", "epochs", "elapsed"),
        *("warnings", "findings"),
    ),
    "series": ("series", "passes", "saving"),
    "lanes": ("lanes",),
    "clocks": ("clocks", "links"),
    "stages": ("stages",),
    "memory": ("memory",),
    "notes": ("notes",),
    "setting": ("config", "versions", "machine", "plan"),
}


def report(states: Sequence[Mapping[str, Any]]) -> bytes:
    """A file that needs nothing else: the page with the data of the runs inside."""
    return document([with_findings(state) for state in states], live=False)


def document(states: Sequence[Mapping[str, Any]], *, live: bool) -> bytes:
    """The page. live: its script asks the server that sent it for changes."""
    style, script = (
        asset("run.css"),
        asset("run-charts.js") + asset("run-lanes.js") + asset("run-panes.js") + asset("run.js"),
    )
    title = ", ".join(str(state["name"]) for state in states) or "runs"
    parts = {
        "policy": policy(script, style, "'self'" if live else ""),
        "title": escape(title),
        "style": style,
        "script": script,
        "data": json_block({"live": live, "runs": [short(dict(state)) for state in states]}),
    }
    return fill(asset("run.html"), parts)


def with_findings(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state with what stands out in it."""
    return {**state, "findings": [[one.level, one.text] for one in findings(state)]}


def short(value: Any) -> Any:
    """Values with six digits: more cannot be seen, and the page is smaller."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: short(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [short(one) for one in value]
    return value
