"""Check server functions: apply the recorded changes again by the published rules and compare.

Under SSP and ASP a shard applies each change when it arrives, so the sequence of Updates determines its rows to the
last bit. They are applied here a second time, in NumPy, in the table's own dtype: one operation after the other, as the
compiled rules are, with w the row, g the change and α the rate:

    average       w += g / workers
    adagrad       z += g²,  w −= α / √z · g
    proximal      w = soft(w − α g, α l1) / (1 + α l2)
    adarevision   b = G − G_old,  η₀ = α/√z′,  z += g² + 2gb,  z′ = max(z′, z),  η = α/√z′,
                  w += (η₀ − η)b − ηg,  G += g

The sum G_old that belongs to the version a gradient was computed from is not taken from the shard: the rows that
carried the version to a cache name the adds they held, and those adds have a sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.codec import round_f2, travels_short
from stretto.comm.messages import Rows, Update

from .columns import RecordingColumns
from .findings import SHOWN, Findings

Floats = NDArray[Any]
RULES = ("average", "adagrad", "proximal", "adarevision")


def prove_functions(columns: RecordingColumns, findings: Findings) -> None:
    """Check that final rows of tables with one of these server functions equal its result for the recorded changes."""
    findings.numbers["worked out"] = 0
    # Exact runs apply whole clocks and are compared with the serial run. A cut leaves later clocks out of rows that had
    # them in, so what follows a restart is another sequence than the one recorded.
    if columns.rule.exact or columns.incarnations > 1 or columns.recording.base:
        return
    for table, spec in enumerate(columns.tables):
        if spec.apply.rule in RULES:
            _Shadow(columns, table, findings).run()


class _Row:
    """One row by the rule. past: {witness: (value, sum of gradients)} of every state it was in."""

    def __init__(self, start: Floats, states: Floats, workers: int) -> None:
        self.value, self.states = start, states
        self.witness = np.zeros(workers, np.int32)
        self.past: dict[bytes, tuple[Floats, Floats]] = {}
        self.versions: dict[int, tuple[bytes, Floats]] = {}
        self.keep()

    @property
    def total(self) -> Floats:
        """The sum of gradients, where the rule keeps one."""
        return self.states[0] if len(self.states) else self.value

    def keep(self) -> None:
        self.past[self.witness.tobytes()] = self.value.copy(), self.total.copy()


class _Shadow:
    """All rows of one table."""

    def __init__(self, columns: RecordingColumns, table: int, findings: Findings) -> None:
        self.columns, self.table, self.findings = columns, table, findings
        self.spec = spec = columns.tables[table]
        self.real = spec.kept if spec.kept.kind == "f" else np.dtype("f8")
        self.params = np.array(_numbers(spec.apply.rule, spec.apply.params, columns.workers), dtype=self.real)
        self.short = travels_short(spec.dtype, columns.layout.policy.codec)
        self.rows: dict[int, _Row] = {}
        self.found = 0

    def run(self) -> None:
        recording = self.columns.recording
        events = [e for e in (*recording.updates, *recording.rows) if e.message.table == self.table]
        with np.errstate(all="ignore"):  # whatever the shard computed is computed here
            for event in sorted(events, key=lambda event: event.order):
                if isinstance(event.message, Update):
                    self.update(event)
                else:
                    self.sent(event)
            self.end()
        self.findings.more("version", self.found - SHOWN)

    def row(self, key: int) -> _Row:
        found = self.rows.get(key)
        if found is None:
            keys, layout = np.array([key]), self.columns.layout
            states = np.empty((self.spec.apply.states, self.spec.cols), self.real)
            given = layout.start_states(self.table, keys)
            for k, start in enumerate(self.spec.apply.starts):
                states[k] = start if given is None else given[k][0]
            found = self.rows[key] = _Row(layout.start_rows(self.table, keys)[0], states, self.columns.workers)
        return found

    def update(self, event: Any) -> None:
        message: Update = event.message
        assert message.witness is not None
        for i, key in enumerate(message.keys.tolist()):
            row = self.row(key)
            old = row.total
            version = -1 if message.versions is None else int(message.versions[i])
            if version >= 0:
                if version not in row.versions:
                    what = f"version {version} of row {key}, from which node {message.node} changed it, was never sent"
                    self.report(what, event)
                    continue
                old = row.versions[version][1]
            row.value, row.states = self.applied(row, message.deltas[i].astype(self.spec.kept), old)
            row.witness = row.witness + message.witness[i]
            row.keep()

    def applied(self, row: _Row, g: Floats, old: Floats) -> tuple[Floats, Floats]:
        """The row and its states after a change."""
        w, states, (rate, *more) = row.value, row.states.copy(), self.params
        match self.spec.apply.rule:
            case "average":
                w = w + g / rate
            case "adagrad":
                states[0] = states[0] + g * g
                w = w - rate / np.sqrt(states[0]) * g
            case "proximal":
                x, zero = w - rate * g, rate - rate
                w = (np.maximum(x - more[0], zero) + np.minimum(x + more[0], zero)) / more[1]
            case _:
                b = states[0] - old
                before = rate / np.sqrt(states[2])
                states[1] = states[1] + (g * g + (g * b + g * b))
                states[2] = np.maximum(states[2], states[1])
                after = rate / np.sqrt(states[2])
                w = w + ((before - after) * b - after * g)
                states[0] = states[0] + g
        return w, states

    def sent(self, event: Any) -> None:
        message: Rows = event.message
        assert message.witness is not None
        for i, key in enumerate(message.keys.tolist()):
            row = self.row(key)
            held = message.witness[i].astype(np.int32).tobytes()
            state = row.past.get(held)
            if state is None:
                held_adds = message.witness[i].tolist()
                self.report(f"row {key} was sent to node {event.target} with adds {held_adds}, as it never was", event)
                continue
            if message.versions is not None:
                known = row.versions.setdefault(int(message.versions[i]), (held, state[1]))
                if known[0] != held:
                    version = int(message.versions[i])
                    self.report(f"version {version} of row {key} was sent with two different contents", event)
            expect = round_f2(state[0]) if self.short else state[0]
            if not _same(message.values[i], expect):
                what = f"row {key} was sent as {message.values[i].tolist()}; the rule gives {expect.tolist()}"
                self.report(what, event)

    def end(self) -> None:
        if self.table not in self.columns.recording.final:
            return
        keys, _ = self.columns.recording.final[self.table]
        for key, value in zip(keys.tolist(), self.columns.recording.final_values[self.table], strict=True):
            expect = self.row(key).value
            if not _same(value, expect):
                self.report(f"at the end row {key} is {value.tolist()}; the rule gives {expect.tolist()}", None)
        self.findings.numbers["worked out"] += len(keys)

    def report(self, what: str, event: Any) -> None:
        self.found += 1
        if self.found > SHOWN:
            return
        where = f"table {self.spec.name!r}: {what}"
        if event is None:
            self.findings.add("version", where)
        else:
            self.findings.add("version", f"{where} ({event.now:.6g} s)", event.order, event.now)


def _numbers(rule: str, params: tuple[float, ...], workers: int) -> tuple[float, ...]:
    """What the rules above take: the rate, and of `proximal` the threshold and the divisor."""
    if rule == "average":
        return params or (float(workers),)
    if rule == "proximal":
        rate, l1, l2 = params
        return rate, rate * l1, 1.0 + rate * l2
    return params


def _same(value: Floats, expect: Floats) -> bool:
    """Bit for bit, but for the sign of zero and what kind of NaN it is."""
    return bool(np.array_equal(value, expect.astype(value.dtype), equal_nan=True))
