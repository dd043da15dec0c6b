"""The replay checker on recordings that were tampered with: each kind of fault is found in every recording it fits.

Where `test_store_mutations` plants bugs in the code, this changes what a healthy run has left behind: one event, one
count, one number. Every mutation says where it fits, and must be found there.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import pytest

from stretto.consistency.rules import BSP, SSP, Rule
from stretto.store.recording import Recording
from stretto.testing import check_replay
from stretto.testing.draws import draw
from stretto.testing.schedules import run_simulated

Mutation = Callable[[Recording, np.random.Generator], bool]  # False: it does not fit this recording
SEEDS = 25
EXACT = {"i4", "i8"}


def copied(recording: Recording) -> Recording:
    """A recording whose lists and final arrays can be changed."""
    made = copy(recording)
    for name in ("reads", "adds", "ticks", "sends", "deliveries", "updates", "rows", "restarts"):
        setattr(made, name, list(getattr(recording, name)))
    made.final = {table: (keys.copy(), counts.copy()) for table, (keys, counts) in recording.final.items()}
    made.final_values = {table: values.copy() for table, values in recording.final_values.items()}
    return made


def adding(recording: Recording) -> list[int]:
    """Tables whose changes simply add up."""
    return [number for number, spec in enumerate(recording.layout.tables) if spec.own_writes]


def touched(recording: Recording, rng: np.random.Generator, tables: list[int]) -> tuple[int, int, int] | None:
    """(table, row, worker) of a final row that holds adds of a worker."""
    found = [
        (table, int(row), int(worker))
        for table in tables
        if table in recording.final
        for row, worker in zip(*np.nonzero(recording.final[table][1]), strict=True)
    ]
    return found[rng.integers(len(found))] if found else None


# --- the end ----------------------------------------------------------------------------------------------------------


def lost_update(recording: Recording, rng: np.random.Generator) -> bool:
    """A shard lacks an add."""
    at = touched(recording, rng, list(recording.final))
    if at is None:
        return False
    table, row, worker = at
    recording.final[table][1][row, worker] -= 1
    return True


def doubled_update(recording: Recording, rng: np.random.Generator) -> bool:
    """A shard has applied an add twice."""
    at = touched(recording, rng, list(recording.final))
    if at is None:
        return False
    table, row, worker = at
    recording.final[table][1][row, worker] += 1
    return True


def swapped_updates(recording: Recording, rng: np.random.Generator) -> bool:
    """An add was lost and another worker's applied twice: the number of all adds is right."""
    at = touched(recording, rng, list(recording.final))
    if at is None or recording.layout.workers < 2:
        return False
    table, row, worker = at
    recording.final[table][1][row, worker] -= 1
    recording.final[table][1][row, (worker + 1) % recording.layout.workers] += 1
    return True


def lost_row(recording: Recording, rng: np.random.Generator) -> bool:
    """A row that was added to is gone."""
    at = touched(recording, rng, list(recording.final))
    if at is None:
        return False
    table, row, _ = at
    keys, counts = recording.final[table]
    recording.final[table] = np.delete(keys, row), np.delete(counts, row, axis=0)
    recording.final_values[table] = np.delete(recording.final_values[table], row, axis=0)
    return True


def row_twice(recording: Recording, rng: np.random.Generator) -> bool:
    """Two shards hold the same row."""
    at = touched(recording, rng, list(recording.final))
    if at is None:
        return False
    table, row, _ = at
    keys, counts = recording.final[table]
    recording.final[table] = np.append(keys, keys[row]), np.append(counts, counts[row : row + 1], axis=0)
    values = recording.final_values[table]
    recording.final_values[table] = np.append(values, values[row : row + 1], axis=0)
    return True


def off_at_the_end(recording: Recording, rng: np.random.Generator) -> bool:
    """A final row is off by little more than rounding can explain."""
    at = touched(recording, rng, adding(recording))
    if at is None:
        return False
    table, row, _ = at
    key = int(recording.final[table][0][row])
    return _push(recording, table, key, recording.final_values[table][row], recording.final[table][1][row])


def value_without_an_add(recording: Recording, rng: np.random.Generator) -> bool:
    """The count of an add arrived, its number did not."""
    for event in rng.permutation(len(recording.adds)).tolist():
        add = recording.adds[event]
        if add.table not in adding(recording) or recording.restarts or add.table not in recording.final:
            continue
        row = int(np.flatnonzero(recording.final[add.table][0] == add.keys[0])[0])
        value, counts = recording.final_values[add.table][row], recording.final[add.table][1][row]
        if not _visible(recording, add.table, int(add.keys[0]), np.abs(add.deltas[0]).max(), counts):
            continue
        value -= add.deltas[0]
        return True
    return False


# --- reads ------------------------------------------------------------------------------------------------------------


def off_in_a_read(recording: Recording, rng: np.random.Generator) -> bool:
    """A row was read that is off by little more than rounding can explain."""
    reads = [k for k, read in enumerate(recording.reads) if read.table in adding(recording)]
    if not reads:
        return False
    at = int(rng.choice(reads))
    read = recording.reads[at]
    row, values = int(rng.integers(len(read.keys))), read.values.copy()
    recording.reads[at] = read._replace(values=values)
    return _push(recording, read.table, int(read.keys[row]), values[row], read.seen[row], travelled=True)


def stale_read(recording: Recording, rng: np.random.Generator) -> bool:
    """A read shows a row without one add that the rule requires, and has the value that goes with it."""
    rule = recording.layout.rule
    for at in rng.permutation(len(recording.reads)).tolist():
        read = recording.reads[at]
        if read.table not in adding(recording) or recording.restarts:
            continue
        for row, key in enumerate(read.keys.tolist()):
            for worker in np.flatnonzero(read.seen[row]).tolist():
                mine = _adds(recording, read.table, key, worker)
                last = mine[int(read.seen[row, worker]) - 1]
                if worker == read.worker or last[0] < _floor(rule, read.clock):
                    seen, values = read.seen.copy(), read.values.copy()
                    seen[row, worker] -= 1
                    values[row] -= last[1]
                    recording.reads[at] = read._replace(seen=seen, values=values)
                    return True
    return False


def read_from_the_future(recording: Recording, rng: np.random.Generator) -> bool:
    """A read shows more adds of a worker than it ever made."""
    if not recording.reads:
        return False
    at = int(rng.integers(len(recording.reads)))
    read = recording.reads[at]
    seen = read.seen.copy()
    row, worker = int(rng.integers(len(read.keys))), int(rng.integers(recording.layout.workers))
    seen[row, worker] = 1 + sum(
        int((add.keys == read.keys[row]).sum()) for add in recording.adds if add.worker == worker
    )
    recording.reads[at] = read._replace(seen=seen)
    return True


def read_that_goes_back(recording: Recording, rng: np.random.Generator) -> bool:
    """A worker reads a row again and sees less of another than before."""
    if recording.restarts:
        return False
    before: dict[tuple[int, int, int], np.ndarray[Any, Any]] = {}
    for at, read in enumerate(recording.reads):
        for row, key in enumerate(read.keys.tolist()):
            place = (read.worker, read.table, key)
            old = before.get(place)
            if old is not None and old.any():
                seen = read.seen.copy()
                seen[row] = np.maximum(old - 1, 0)
                recording.reads[at] = read._replace(seen=seen)
                return True
            before[place] = read.seen[row]
    return False


# --- the order of things ----------------------------------------------------------------------------------------------


def lost_message(recording: Recording, rng: np.random.Generator) -> bool:
    """A message between two others never came."""
    for at, taken in enumerate(recording.deliveries):
        link = (taken.incarnation, taken.source, taken.target)
        if any((d.incarnation, d.source, d.target) == link for d in recording.deliveries[at + 1 :]):
            del recording.deliveries[at]
            return True
    return False


def message_twice(recording: Recording, rng: np.random.Generator) -> bool:
    """A message was taken twice."""
    if not recording.deliveries:
        return False
    at = int(rng.integers(len(recording.deliveries)))
    recording.deliveries.insert(at, recording.deliveries[at])
    return True


def messages_swapped(recording: Recording, rng: np.random.Generator) -> bool:
    """Two messages of a link were taken in the wrong order."""
    last: dict[tuple[int, int, int], int] = {}
    for at, taken in enumerate(recording.deliveries):
        link = (taken.incarnation, taken.source, taken.target)
        if link in last:
            other = recording.deliveries[last[link]]
            recording.deliveries[at] = taken._replace(sequence=other.sequence)
            recording.deliveries[last[link]] = other._replace(sequence=taken.sequence)
            return True
        last[link] = at
    return False


def message_of_another_life(recording: Recording, rng: np.random.Generator) -> bool:
    """A message of a life that is over was taken."""
    later = [k for k, taken in enumerate(recording.deliveries) if taken.incarnation > 0]
    if not later:
        return False
    at = int(rng.choice(later))
    recording.deliveries[at] = recording.deliveries[at]._replace(incarnation=recording.deliveries[at].incarnation - 1)
    return True


def lost_tick(recording: Recording, rng: np.random.Generator) -> bool:
    """A worker's clock jumped."""
    if recording.restarts:  # the last tick of a life that was cut off may be missing
        return False
    for at, tick in enumerate(recording.ticks):
        if any(other.worker == tick.worker and other.clock > tick.clock for other in recording.ticks[at + 1 :]):
            del recording.ticks[at]
            return True
    return False


def event_in_another_clock(recording: Recording, rng: np.random.Generator) -> bool:
    """An add claims a clock that its worker was not in."""
    if not recording.adds:
        return False
    at = int(rng.integers(len(recording.adds)))
    recording.adds[at] = recording.adds[at]._replace(clock=recording.adds[at].clock + 1)
    return True


MUTATIONS: list[Mutation] = [
    *(lost_update, doubled_update, swapped_updates, lost_row, row_twice, off_at_the_end, value_without_an_add),
    *(off_in_a_read, stale_read, read_from_the_future, read_that_goes_back),
    *(lost_message, message_twice, messages_swapped, message_of_another_life, lost_tick, event_in_another_clock),
]


# --- what the mutations need ------------------------------------------------------------------------------------------


def _floor(rule: Rule, clock: int) -> int:
    return clock if isinstance(rule, BSP) else clock - rule.s if isinstance(rule, SSP) else -1


def _adds(recording: Recording, table: int, key: int, worker: int) -> list[tuple[int, Any]]:
    """(clock, delta) of a worker's adds to a row, in order."""
    return [
        (add.clock, delta)
        for add in recording.adds
        if add.table == table and add.worker == worker
        for at, delta in zip(add.keys.tolist(), add.deltas, strict=True)
        if at == key
    ]


def _tolerance(recording: Recording, table: int, key: int, counts: Any, travelled: bool) -> np.ndarray[Any, Any]:
    """[cols] twice what rounding can do to a row: enough to be found wherever the row stood within it."""
    spec, layout = recording.layout.tables[table], recording.layout
    if spec.dtype in EXACT:
        return np.zeros(spec.cols)
    terms = [np.abs(layout.start_rows(table, np.array([key]))[0].astype(np.float64))]
    for worker in range(layout.workers):
        terms += [np.abs(delta.astype(np.float64)) for _, delta in _adds(recording, table, key, worker)]
    size, n = np.sum(terms, axis=0), int(np.sum(counts)) + len(recording.restarts) * len(terms)
    unit = 2.0**-24 if spec.kept.itemsize == 4 else 2.0**-53
    found: np.ndarray[Any, Any] = 2.1 * n * unit * size
    if spec.dtype == "f2" or layout.policy.codec == "f2":
        found += 2.1 * (2.0**-10 if travelled else 2.0**-11) * size + (len(terms) + 8) * 2.0**-23
        found += np.where(size > 65504, 5 * size, 0.0)
    return found


def _visible(recording: Recording, table: int, key: int, change: float, counts: Any) -> bool:
    return bool(change > _tolerance(recording, table, key, counts, travelled=False).max(initial=0.0))


def _push(recording: Recording, table: int, key: int, value: Any, counts: Any, travelled: bool = False) -> bool:
    """Move a row (in place) by the least that must be found."""
    limit = _tolerance(recording, table, key, counts, travelled)
    if value.dtype.kind == "i":
        value[0] ^= 1
        return True
    before, off = value.copy(), value[0] + value.dtype.type(limit[0])
    value[0] = np.nextafter(off, value.dtype.type(np.inf))
    return bool(np.isfinite(value[0]) and float(value[0]) - float(before[0]) > limit[0])


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_every_fault_is_found_wherever_it_fits(mutate: Mutation, recordings: list[tuple[int, Recording]]) -> None:
    fitted = 0
    for seed, honest in recordings:
        for again in range(3):
            recording = copied(honest)
            if not mutate(recording, np.random.default_rng((seed, again))):
                continue
            fitted += 1
            report = check_replay(recording, raises=False)
            assert not report.ok, f"schedule {seed}, mutation {again}: {mutate.__doc__}"
    assert fitted >= 9, f"fits {fitted} times only"


@pytest.fixture(scope="module")
def recordings() -> list[tuple[int, Recording]]:
    """Healthy ones, of runs with many tables, rules and faults, half of them with crashes."""
    found = []
    for seed in range(SEEDS):
        recording = run_simulated(draw(700_000 + seed, crashes=seed % 2, clocks=5)).recording
        check_replay(recording)
        found.append((seed, recording))
    return found
