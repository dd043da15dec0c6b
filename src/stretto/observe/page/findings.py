"""What stands out in a run, in plain sentences: from the summary of a record, by rules that each take a few lines.

    findings(tail.state("first"))
    [Finding(level='warn', text='Workers waited 41 % of epoch 12; …')]

A rule reads the summary and says nothing where it has too little to go by.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

State = Mapping[str, Any]
_FEW = 4  # epochs that a rule about their course needs
_WAITING, _UNEVEN, _OUTSIDE, _SAVING, _FIRST, _FALLING, _WORSE = 0.25, 1.25, 0.3, 0.1, 4.0, 0.01, 0.005
_HIGHER_IS_BETTER = ("ndcg", "map", "recall", "precision", "hit_rate", "mrr", "auc", "likelihood", "accuracy", "score")


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about a run."""

    level: Literal["bad", "warn", "good", "note"]
    text: str


def findings(state: State) -> list[Finding]:
    """What stands out, the worst first."""
    found = [one for rule in _RULES for one in rule(state)]
    order = ("bad", "warn", "note", "good")
    return sorted(found, key=lambda one: order.index(one.level))


def busy(state: State) -> dict[int, float]:
    """Microseconds that each worker spent in the visits of the lanes' epoch, by number."""
    visits = (state.get("lanes") or {}).get("visits", ())
    total = dict.fromkeys(range(max((visit[0] for visit in visits), default=-1) + 1), 0.0)
    for worker, _row, _column, _which, _start, length in visits:
        total[worker] += length
    return total


def waited_for(state: State, worker: int) -> dict[int, float]:
    """Microseconds that a worker waited for each other one in the lanes' epoch.

    Before a visit it waited for the one who had its row block or column block last; after its last visit for the worker
    who was the last to end.
    """
    rows: dict[
        tuple[int, int], tuple[float, int]
    ] = {}  # by axis and block: when its last visit ended, and whose it was
    found: dict[int, float] = {}
    ended, over, last = 0.0, 0.0, worker
    for who, row, column, _which, start, length in sorted(state["lanes"]["visits"], key=lambda visit: visit[4]):
        held = [rows[at] for at in ((0, row), (1, column)) if at in rows and min(at) >= 0]
        if who == worker:
            before, whom = max((one for one in held if one[1] != worker), default=(0.0, worker))
            if whom != worker and before > ended:
                found[whom] = found.get(whom, 0.0) + start - ended
            ended = start + length
        rows[0, row] = rows[1, column] = (start + length, who)
        over, last = max((over, last), (start + length, who))
    if last != worker and over > ended:
        found[last] = found.get(last, 0.0) + over - ended
    return found


def _clocks(state: State) -> Iterator[Finding]:
    clocks = state.get("clocks") or {}
    waits, seconds = clocks.get("waits") or [], clocks.get("seconds") or 0.0
    if len(waits) < 2 or seconds <= 0:
        return
    most, least = waits.index(max(waits)), waits.index(min(waits))
    share, other = waits[most] / seconds, waits[least] / seconds
    if share > _WAITING and other < share / 2:
        text = f"Worker {most} waited {share:.0%} of the time for slower ones; worker {least} is the slowest and"
        bound = "" if clocks["bound"] is None else " or a larger staleness bound"
        yield Finding("warn", f"{text} waited {other:.0%}. A more even load{bound} may help.")
    elif share > _WAITING and other > _WAITING:
        text = f"All workers waited {other:.0%} of the time or more, worker {most} the most with {share:.0%}"
        yield Finding("warn", f"{text}: probably for messages. Longer clocks or a larger staleness bound may help.")


def _memory(state: State) -> Iterator[Finding]:
    memory = state.get("memory") or {}
    if memory and (memory["measured"] or 0) > memory["budget"]:
        over = memory["measured"] / memory["budget"] - 1
        yield Finding("warn", f"A step took {over:.1%} more memory than the budget; the step was planned again.")


def _ending(state: State) -> Iterator[Finding]:
    if state["status"] == "failed":
        yield Finding("bad", f"The run failed: {state['message'] or 'no message was recorded'}.")
    elif state["status"] == "interrupted":
        yield Finding("bad", "The run has no end: its process died or was killed. `stretto resume` continues it.")
    elif state["status"] == "stopped":
        yield Finding("note", "The run was stopped before its last epoch. `stretto resume` continues it.")
    elif state["status"] == "early":
        yield Finding("good", "The run stopped early, by its stopping rule.")


def _numbers(state: State) -> Iterator[Finding]:
    values = state["series"]["objective"]
    if values and values[-1] is None and any(value is not None for value in values):
        yield Finding("bad", "The newest objective is not a finite number: the steps are probably too large.")


def _course(state: State) -> Iterator[Finding]:
    values = [value for value in state["series"]["objective"] if value is not None]
    if len(values) < _FEW:
        return
    if values[-1] > values[-2] > values[-3] and values[-1] > min(values):
        yield Finding("warn", "The objective rose in the last two epochs; smaller steps or an earlier end may help.")
    elif (
        state["status"] == "done"
        and not _is_task(state)
        and values[-2] > 0
        and (fall := 1 - values[-1] / values[-2]) > _FALLING
    ):
        yield Finding("note", f"The objective still fell by {fall:.1%} in the last epoch: more epochs may improve it.")


def _held_out(state: State) -> Iterator[Finding]:
    columns = state["series"]
    for name, values in columns.items():
        known = [(e, v) for e, v in zip(columns["epoch"], values, strict=True) if v is not None]
        if not name.startswith(("test", "held", "validation")) or len(known) < _FEW:
            continue
        higher = any(word in name for word in _HIGHER_IS_BETTER)
        epoch, best = (max if higher else min)(known, key=lambda pair: pair[1])
        last = known[-1][1]
        worse = (best - last if higher else last - best) / (abs(best) or 1.0)
        if worse > _WORSE:
            text = f"{name.replace('_', ' ')} was best at epoch {epoch:.0f} ({best:.4g}) and is {last:.4g} now"
            yield Finding("warn", f"{text}: later epochs overfit; early stopping or a larger penalty may help.")


def _lanes(state: State) -> Iterator[Finding]:
    visits = (state.get("lanes") or {}).get("visits", ())
    total = busy(state)
    if len(total) < 2 or state["lanes"]["dropped"]:
        return
    span = max(start + length for *_, start, length in visits)
    if span <= 0:
        return
    share = 1 - sum(total.values()) / (span * len(total))
    epoch = state["lanes"]["epoch"]
    if share > _WAITING:
        least = min(total, key=lambda worker: total[worker])
        own = 1 - total[least] / span
        text = f"Workers waited {share:.0%} of epoch {epoch}, worker {least} the most with {own:.0%}"
        waited = waited_for(state, least)
        most = max(waited, key=lambda worker: waited[worker], default=None)
        if most is not None and waited[most] > sum(waited.values()) / 2:
            text += f", mostly for worker {most}"
        yield Finding("warn", f"{text}. The plan says what its order allows at best; fewer threads may be as fast.")
    mean = sum(total.values()) / len(total)
    most = max(total, key=lambda worker: total[worker])
    if mean > 0 and total[most] / mean > _UNEVEN and share > _WAITING / 2:
        over = total[most] / mean - 1
        yield Finding("note", f"The load is uneven: worker {most} had {over:.0%} more work than the mean worker.")


def _time(state: State) -> Iterator[Finding]:
    elapsed, inside = state["elapsed"], (state["series"]["seconds"] or [0.0])[-1] or 0.0
    if not elapsed or elapsed < 1.0 or state["sessions"] > 1 or _is_virtual(state):
        return
    if state["saving"] > _SAVING * elapsed:
        share = state["saving"] / elapsed
        yield Finding("warn", f"Saving checkpoints took {share:.0%} of the time; save less often.")
    outside = elapsed - inside - state["saving"]
    if inside and outside > _OUTSIDE * elapsed:
        share = outside / elapsed
        yield Finding("note", f"{share:.0%} of the time was between epochs: reading, planning, compiling, evaluating.")


def _first_epoch(state: State) -> Iterator[Finding]:
    columns = state["series"]
    seconds = [value for value in columns["seconds"] if value is not None]
    if len(seconds) < _FEW or columns["epoch"][0] != 1.0:
        return
    later = statistics.median(b - a for a, b in itertools.pairwise(seconds))
    gap = columns["epoch"][1] - 1.0
    if later > 0 and not _is_virtual(state) and seconds[0] > _FIRST * later / gap and seconds[0] > 0.5:
        took = f"{seconds[0]:.1f} s instead of about {later / gap:.2g} s"
        yield Finding("note", f"The first epoch took {took}: probably compiling, or reading data.")


def _is_task(state: State) -> bool:
    """Whether epochs are turns of a task, which ends by a criterion of its own."""
    return bool(state.get("config", {}).get("unit") == "iterations")


def _is_virtual(state: State) -> bool:
    """Whether seconds are those of a simulation."""
    return str(state.get("config", {}).get("runtime", "")).startswith("Simulated")


def _warnings(state: State) -> Iterator[Finding]:
    for note in state["notes"][::-1]:
        if note["kind"] in ("warning", "checkpoint rejected"):
            yield Finding("warn", f"{note['kind'].capitalize()}: {note['text']}")
            more = state["warnings"] - 1
            if note["kind"] == "warning" and more > 0:
                yield Finding("note", f"There {'are' if more > 1 else 'is'} {more} more in the list of events.")
            return


_RULES: tuple[Callable[[State], Iterator[Finding]], ...] = (
    *(_ending, _numbers, _course, _held_out, _lanes, _clocks, _memory, _time, _first_epoch, _warnings),
)
