"""Units with transactions: their mailbox, and where they cannot run."""

from __future__ import annotations

from stretto.errors import PlanError
from stretto.state.transactions import TransactionState
from stretto.tasks.arguments import Argument
from stretto.tasks.tree import Task, Unit

from .mailbox import MailState


def mailbox_of(owner: str, arguments: tuple[Argument, ...], parts: int, mode: str | None) -> tuple[Argument, ...]:
    """The mailbox of a unit as one argument more; none where no state has transactions."""
    states = [argument.name for argument in arguments if isinstance(argument.value, TransactionState)]
    if not states:
        return ()
    if mode is not None:
        raise PlanError(
            f"{owner}: mode={mode!r} keeps states as one array, and the rows of {states[0]!r} have holders that apply "
            "transactions; leave out mode="
        )
    return (Argument("state", MailState(parts), "mailbox"),)


def refuse_inexact(task: Task) -> None:
    """Raise if a unit has transactions and reads that are not exact."""
    for unit in task.units():
        if _has_mailbox(unit) and (unit.tuned or not unit.sync.exact):
            rule = "'adaptive'" if unit.tuned else f"{unit.sync!r}"
            raise PlanError(
                f"unit {unit.name}: sync={rule}, and transactions are applied in an order that all parts agree on at "
                "the end of a clock; give this unit sync=st.BSP()"
            )


def _has_mailbox(unit: Unit) -> bool:
    return any(isinstance(argument.value, MailState) for argument in unit.arguments)
