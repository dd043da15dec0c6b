"""What `st.unit` checks of its options: names of arguments, parts, placement, preparation, partition, fresh states."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from stretto.checks import shown, whole
from stretto.errors import PlanError
from stretto.state.state import ReplicatedState
from stretto.tasks.arguments import Argument
from stretto.tasks.files import FileBlocks

from .declared import default_parts, is_partitioned

PARTS = 16  # logical parts of a unit that is given data


def names_of(function: Any, arguments: tuple[Any, ...], looped: bool) -> list[str]:
    """The names of the function's parameters for these arguments, for plans and messages."""
    named = [f"argument {position}" for position in range(len(arguments))]
    try:
        signature = inspect.signature(function)
        signature.bind(*(() if looped else (None,)), *arguments)
    except ValueError:
        return named  # a function that does not say what it takes
    except TypeError as error:
        first = "" if looped else "worker, "
        raise PlanError(
            f"unit {getattr(function, '__name__', function)}: it is called as function({first}…) with "
            f"{len(arguments)} arguments of st.unit, and does not take them: {error}"
        ) from None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [p.name for p in signature.parameters.values() if p.kind in kinds][0 if looped else 1 :]
    return [*taken[: len(arguments)], *named[len(taken) :]]


def parts_of(owner: str, arguments: tuple[Argument, ...], given: int | None) -> int:
    """Parts of a unit; of files that are known, each part needs a block."""
    files = [a.value.opened for a in arguments if isinstance(a.value, FileBlocks) and a.value.opened is not None]
    cut = any(a.kind == "data" or isinstance(a.value, FileBlocks) or is_partitioned(a) for a in arguments)
    most = max(default_parts(arguments), default=PARTS if cut else 1)
    found = min([most, *(len(one.blocks) for one in files)]) if given is None else given
    parts = whole("parts", found, 1, owner)
    for one in files:
        one.assigned(parts)  # raises now if they cannot be shared out
    return parts


def placed(owner: str, placement: Any) -> tuple[tuple[int, int], ...]:
    """Workers by node, sorted by node; () without a placement."""
    if placement is None:
        return ()
    if not isinstance(placement, Mapping) or not placement:
        raise PlanError(f"{owner}: placement={shown(placement)}; give workers by node, such as {{0: 4, 2: 4}}")
    return tuple(
        sorted((whole("node", node, 0, owner), whole("workers", many, 1, owner)) for node, many in placement.items())
    )


def checked_preparation(owner: str, given: Any) -> str | None:
    """How states come to a node, as given, or None for the choice of the plan."""
    if given not in (None, "whole", "on-demand", "served"):
        raise PlanError(f"{owner}: preparation={shown(given)}; choose 'whole', 'on-demand' or 'served'")
    return None if given is None else str(given)


def checked_partition(owner: str, arguments: tuple[Argument, ...], given: Any) -> tuple[tuple[str, Any], ...]:
    """How states are cut over the nodes of a stage: (parameter, cut) for each state that was named."""
    if given is None:
        return ()
    names = [argument.name for argument in arguments if argument.kind == "state"]
    if not isinstance(given, Mapping) or not given.keys() <= set(names):
        raise PlanError(f"{owner}: partition={shown(given)}; give a dict by the name of a state ({', '.join(names)})")
    for name, cut in given.items():
        if cut not in ("range", "parts") and not callable(cut):
            raise PlanError(
                f"{owner}: partition of {name!r} is {shown(cut)}; give 'range', 'parts' or a function(rows, nodes)"
            )
    return tuple(given.items())


def check_replicated(owner: str, arguments: tuple[Argument, ...], mode: str | None, parts: int | None) -> None:
    """Refuse replicated states where they cannot be: as one array, or with data that are replicated too."""
    states = [argument for argument in arguments if argument.kind == "state"]
    copies = [argument.name for argument in states if isinstance(argument.value, ReplicatedState)]
    if copies and mode is not None:
        raise PlanError(
            f"{owner}: mode={mode!r} keeps states as one array, and {copies[0]!r} has a copy for each part; leave out "
            "mode=, or replicate="
        )
    data = [argument.kind for argument in arguments if argument.kind not in ("state", "value")]
    if data and set(data) == {"whole"} and len(copies) == len(states) > 0 and (parts or 1) > 1:
        raise PlanError(
            f"{owner}: data and states are both replicated, so all parts would compute the same; give the data without "
            "st.whole, or the states without replicate="
        )


def fresh_positions(owner: str, arguments: tuple[Argument, ...], fresh: Sequence[Any]) -> tuple[int, ...]:
    """Positions of the arguments whose states start from their first values."""
    found = []
    for one in fresh:
        at = [k for k, argument in enumerate(arguments) if argument.kind == "state" and argument.value is one]
        if not at:
            raise PlanError(f"{owner}: fresh= names a state that the unit does not use; give some of its own states")
        found += at
    return tuple(sorted(found))
