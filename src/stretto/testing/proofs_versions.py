"""AdaRevision worked out anew from a recording: what shards were given and sent, in order, by the rule as published.

Each row keeps, beside its value w, the sum G of all gradients, and z, z′ from which the step follows. A gradient g
that was computed from an older version of the row, whose sum was G_old, is applied as

    b = G − G_old;  η₀ = α/√z′;  z += g² + 2gb;  z′ = max(z′, z);  η = α/√z′;  w += −ηg + (η₀ − η)b;  G += g

with z = z′ = 1 at the start. The sum that belongs to a version is not taken from the shard: the rows that carried the
version to a cache name the adds they held, and those adds have a sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Rows, Update

from .columns import Columns
from .findings import Findings

Floats = NDArray[np.float64]


def prove_versions(columns: Columns, findings: Findings) -> None:
    """Rows of adarevision tables end with what the rule gives, each change revised from the version it was made of."""
    findings.numbers["worked out"] = 0
    # Exact runs have no versions and are compared with the serial run. A cut leaves later clocks out of rows whose
    # versions had them in, so what follows a restart is another sequence than the one recorded.
    if columns.rule.exact or columns.incarnations > 1:
        return
    for table, spec in enumerate(columns.tables):
        if spec.apply.name == "adarevision":
            _Shadow(columns, table, findings).run()


class _Row:
    """One row as the rule has it. past: {witness: (value, sum of gradients)} of every state it was in."""

    def __init__(self, start: Floats, workers: int) -> None:
        self.value = start
        self.total = np.zeros_like(start)
        self.z = np.ones_like(start)
        self.most = np.ones_like(start)
        self.witness = np.zeros(workers, np.int32)
        self.past: dict[bytes, tuple[Floats, Floats]] = {}
        self.versions: dict[int, tuple[bytes, Floats]] = {}
        self.keep()

    def keep(self) -> None:
        self.past[self.witness.tobytes()] = self.value.copy(), self.total.copy()

    def apply(self, g: Floats, old: Floats, rate: float) -> None:
        b = self.total - old
        before = rate / np.sqrt(self.most)
        self.z = self.z + g * g + 2 * g * b
        self.most = np.maximum(self.most, self.z)
        after = rate / np.sqrt(self.most)
        self.value = self.value - after * g + (before - after) * b
        self.total = self.total + g


class _Shadow:
    """All rows of one table."""

    def __init__(self, columns: Columns, table: int, findings: Findings) -> None:
        self.columns, self.table, self.findings = columns, table, findings
        self.spec = columns.tables[table]
        self.rate = float(self.spec.apply.params[0])
        # Changes arrive as they were decoded, so the shard's own rows differ by rounding only; rows sent may be f2.
        narrow = self.spec.dtype == "f2" or columns.layout.policy.codec == "f2"
        self.near = 1e-9 if self.spec.dtype == "f8" else 1e-4
        self.near_sent = 2e-3 if narrow else self.near
        self.rows: dict[int, _Row] = {}

    def run(self) -> None:
        recording = self.columns.recording
        events = [e for e in (*recording.updates, *recording.rows) if e.message.table == self.table]
        for event in sorted(events):
            if isinstance(event.message, Update):
                self.update(event)
            else:
                self.sent(event)
        self.end()

    def row(self, key: int) -> _Row:
        found = self.rows.get(key)
        if found is None:
            start = self.columns.start_rows(self.table, np.array([key]))[0].astype(np.float64)
            found = self.rows[key] = _Row(start, self.columns.workers)
        return found

    def update(self, event: Any) -> None:
        message: Update = event.message
        assert message.versions is not None
        assert message.witness is not None
        for i, key in enumerate(message.keys.tolist()):
            row, version = self.row(key), int(message.versions[i])
            old = row.total
            if version >= 0:
                if version not in row.versions:
                    what = f"version {version} of row {key}, from which node {message.node} changed it, was never sent"
                    self.tell(what, event)
                    continue
                old = row.versions[version][1]
            row.apply(message.deltas[i].astype(np.float64), old, self.rate)
            row.witness = row.witness + message.witness[i]
            row.keep()

    def sent(self, event: Any) -> None:
        message: Rows = event.message
        assert message.versions is not None
        assert message.witness is not None
        for i, key in enumerate(message.keys.tolist()):
            row, version = self.row(key), int(message.versions[i])
            held = message.witness[i].astype(np.int32).tobytes()
            state = row.past.get(held)
            if state is None:
                held_adds = message.witness[i].tolist()
                self.tell(f"row {key} was sent to node {event.target} with adds {held_adds}, as it never was", event)
                continue
            known = row.versions.setdefault(version, (held, state[1]))
            if known[0] != held:
                self.tell(f"version {version} of row {key} was sent with two different contents", event)
            if not _same(message.values[i], state[0], self.near_sent):
                what = f"row {key} was sent as {message.values[i].tolist()}; the rule gives {state[0].tolist()}"
                self.tell(what, event)

    def end(self) -> None:
        if self.table not in self.columns.recording.final:
            return
        keys, _ = self.columns.recording.final[self.table]
        for key, value in zip(keys.tolist(), self.columns.recording.final_values[self.table], strict=True):
            expect = self.row(key).value
            if not _same(value, expect, self.near):
                self.tell(f"at the end row {key} is {value.tolist()}; the rule gives {expect.tolist()}", None)
        self.findings.numbers["worked out"] += len(keys)

    def tell(self, what: str, event: Any) -> None:
        where = f"table {self.spec.name!r}: {what}"
        if event is None:
            self.findings.add("version", where)
        else:
            self.findings.add("version", f"{where} ({event.now:.6g} s)", event.order, event.now)


def _same(value: NDArray[Any], expect: Floats, near: float) -> bool:
    return bool(np.allclose(value, expect, rtol=near, atol=near))
