"""Which distributions of data and states a unit has (the dissertation's table 3.1), and which is refused.

data          states        name
partitioned   replicated    data-parallel: each part has its rows of the data and a copy of the model
replicated    partitioned   model-parallel: each part has all data and changes its part of the model
partitioned   partitioned   both: as with a parameter server
replicated    replicated    refused: all parts would compute the same
"""

from __future__ import annotations

from stretto.state.state import ReplicatedState
from stretto.tasks.tree import Unit

DISTRIBUTIONS = {
    ("partitioned", "replicated"): "data-parallel",
    ("replicated", "partitioned"): "model-parallel",
    ("partitioned", "partitioned"): "data and states partitioned",
}


def distribution_of(unit: Unit) -> str | None:
    """The distribution of a unit in words; None for one part, or without data or states.

    A state counts as replicated if each part has a copy; served states are partitioned over the nodes. Data that every
    part gets whole (`st.whole`) are replicated. The combination that is refused cannot be made (`st.unit`).
    """
    data = {argument.kind for argument in unit.arguments if argument.kind not in ("state", "value", "knob")}
    data |= {"data" for argument in unit.arguments if argument.declared is not None}
    states = [argument.value for argument in unit.arguments if argument.kind == "state"]
    if not data or not states or unit.parts == 1:
        return None
    copies = all(isinstance(state, ReplicatedState) for state in states)
    return DISTRIBUTIONS[_word(data == {"whole"}), _word(copies)]


def _word(replicated: bool) -> str:
    return "replicated" if replicated else "partitioned"
