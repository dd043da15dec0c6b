"""What the driver says of its hosts: unequal versions, lack of memory, the last loss."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence

from stretto.errors import RunError

from .calls import Address
from .host import versions


def check_versions(address: Address, others: Iterable[Address]) -> None:
    """Raise RunError unless a host runs the same versions as the driver and as the first of the others."""
    compared = {"the driver's machine, " + socket.gethostname(): versions()}
    compared |= {other.machine: other.versions for other in list(others)[:1]}
    for machine, theirs in compared.items():
        for name, version in address.versions.items():
            if theirs.get(name) != version:
                raise RunError(
                    f"{name} is {version} on {address.machine} and {theirs.get(name)} on {machine}: a job needs "
                    "the same on every machine of the cluster; install one of them everywhere"
                )


def killed_for_memory(before: Address | None, here: Address) -> int:
    """Processes that the kernel of a machine killed for memory between two hosts there; 0 if it is another machine."""
    if before is None or before.machine != here.machine or before.starved < 0:
        return 0
    return max(0, here.starved - before.starved)


def last_loss(losses: Sequence[tuple[float, str, str]]) -> str:
    """The last loss of a host, in words. losses: (seconds since the start, host, reason) each."""
    if not losses:
        return "no host was lost before"
    seconds, host, why = losses[-1]
    return f"the last loss, after {seconds:.1f} s, was {host}: {why}"
