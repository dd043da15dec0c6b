"""Knobs of replicated states in units that a loop tunes: the share that their filters send, and the exchange period.

Both start from what `st.state` was given. As for every knob the first setting is the most careful one: a filter that
sends everything, an exchange at every yield.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from stretto.consistency.adaptive.knobs import KnobLadder, period_knob, share_knob
from stretto.consistency.replication import Replication
from stretto.state.state import ReplicatedState
from stretto.tasks.tree import Unit

ReplicaKey = tuple[str, str]  # argument of the unit, and "share" or "period"


def replica_ladders(unit: Unit) -> Iterator[tuple[ReplicaKey, KnobLadder]]:
    """The knobs of the replicated states of a unit, with the words that name them."""
    yields = inspect.isgeneratorfunction(unit.function)
    for argument in unit.arguments:
        if not isinstance(argument.value, ReplicatedState):
            continue
        rules = argument.value.replication
        if rules.filter is not None and rules.filter.share is not None:  # a quota follows the time by itself
            yield (argument.name, "share"), share_knob(f"share of {argument.name}", rules.filter.share)
        if yields:  # only a function that yields can exchange less often
            yield (argument.name, "period"), period_knob(f"period of {argument.name}", rules.every)


def tuned_rules(unit: Unit, settings: Mapping[ReplicaKey, float]) -> tuple[tuple[str, Replication], ...]:
    """The rules of the replicated states of a unit with these settings, by argument."""
    found = []
    for argument in unit.arguments:
        share, period = settings.get((argument.name, "share")), settings.get((argument.name, "period"))
        if share is None and period is None:
            continue
        rules: Replication = argument.value.replication
        if share is not None and rules.filter is not None:
            rules = replace(rules, filter=replace(rules.filter, share=share))
        found.append((argument.name, rules if period is None else replace(rules, every=round(period))))
    return tuple(found)
