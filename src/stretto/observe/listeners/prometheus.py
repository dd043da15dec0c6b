"""The newest numbers of runs as text for Prometheus: what `/metrics` of the live page answers, and a function.

Names and labels follow Prometheus' conventions: units are in the names, counters end in `_total`, and each run is a
value of the label `run`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stretto.errors import RunError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATUSES = ("running", "done", "early", "stopped", "failed", "interrupted")
_OWN = ("epoch", "seconds", "items", "speed", "objective")  # columns of the epoch table that are no metrics
_Samples = list[tuple[dict[str, str], float]]


def prometheus_text(runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> str:
    """The newest numbers of runs in Prometheus' text format, read from their records.

    Parameters
    ----------
    runs : str, Path, or a list of them
        Folders of runs, or folders with several.

    Returns
    -------
    str
        One sample for each run and number: epochs, objective, metrics, items, seconds, checkpoints, warnings, status.

    Examples
    --------
    >>> import tempfile, numpy as np, stretto as st
    >>> X = np.random.default_rng(0).normal(size=(50, 5))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = st.Lasso(alpha=0.1).fit(X, X[:, 0], session=st.Session(record=f"{folder}/first"))
    ...     lines = st.listeners.prometheus_text(folder).splitlines()
    >>> [line for line in lines if line.startswith("stretto_run_status") and line.endswith(" 1")]
    ['stretto_run_status{run="first",status="done"} 1']
    """
    from stretto.observe.page.names import names_of, records_in
    from stretto.observe.page.tail import RecordTail

    given = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    if not given:
        raise RunError("prometheus_text: no run is named; give the folder of a run, or of several")
    folders = list(dict.fromkeys(record.resolve() for one in given for record in records_in(Path(one))))
    states = []
    for folder, name in zip(folders, names_of(folders), strict=True):
        tail = RecordTail(folder)
        tail.poll()
        states.append(tail.state(name))
    return exposition(states)


def exposition(states: Sequence[Mapping[str, Any]]) -> str:
    """The text for the states of runs, as `RecordTail.state` has them."""
    lines: list[str] = []
    for name, kind, meaning, samples in _families(states):
        found = [(labels, value) for labels, value in samples if math.isfinite(value)]
        if found:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{_labels(labels)}}} {_number(value)}" for labels, value in found]
    return "\n".join(lines) + "\n"


def _families(states: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str, _Samples]]:
    """(name, type, meaning, samples) of every metric."""
    runs = [({"run": str(state["name"])}, state, _last(state)) for state in states]
    status = [({**run, "status": one}, float(state["status"] == one)) for run, state, _ in runs for one in _STATUSES]
    yield "stretto_run_status", "gauge", "1 for the status that the run has, else 0.", status
    info = [({**run, "fingerprint": str(s["fingerprint"] or ""), "profile": str(s["profile"] or "")}, 1.0)
            for run, s, _ in runs]  # fmt: skip
    yield "stretto_run_info", "gauge", "Fingerprint and profile of the run's plan; always 1.", info
    simple = (
        ("stretto_epoch", "gauge", "Epochs done.", "epoch"),
        ("stretto_objective", "gauge", "Objective after the newest epoch.", "objective"),
        ("stretto_items_total", "counter", "Items visited: ratings, tokens or values.", "items"),
        ("stretto_epoch_seconds_total", "counter", "Seconds spent in epochs.", "seconds"),
        ("stretto_items_per_second", "gauge", "Speed of the newest epoch.", "speed"),
    )
    for name, kind, meaning, column in simple:
        yield name, kind, meaning, [(run, last.get(column, math.nan)) for run, _, last in runs]
    planned = [(run, float(state["epochs"] or 0)) for run, state, _ in runs]
    yield "stretto_epochs_planned", "gauge", "Epochs of the whole run.", planned
    metrics = [({**run, "metric": name}, value) for run, _, last in runs for name, value in last.items()
               if name not in _OWN]  # fmt: skip
    yield "stretto_metric", "gauge", "Metrics after the newest epoch, by name.", metrics
    saving = [(run, float(state["saving"])) for run, state, _ in runs]
    yield "stretto_checkpoint_seconds_total", "counter", "Seconds spent on checkpoints.", saving
    warned = [(run, float(state["warnings"])) for run, state, _ in runs]
    yield "stretto_warnings_total", "counter", "Warnings of the run.", warned


def _last(state: Mapping[str, Any]) -> dict[str, float]:
    """The newest number of each column of the epoch table."""
    found: dict[str, float] = {}
    for name, values in state["series"].items():
        known = [value for value in values if value is not None]
        if known:
            found[name] = float(known[-1])
    return found


def _labels(labels: Mapping[str, str]) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items())


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
