"""References to compiled kernels that can be sent to other processes: module and name, or generated source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stretto.errors import PlanError

if TYPE_CHECKING:
    from stretto.kernels.core.compile import Kernel


@dataclass(frozen=True, eq=False)
class KernelReference:
    """A kernel by module and name, or by its generated source."""

    module: str  # the module that defines it
    name: str  # its name
    source: str = ""  # of a kernel generated at run time (`kernels.core.generated`)
    users: bytes = b""  # functions of the user's that the source calls, pickled by value
    digests: tuple[str, ...] = ()  # hashes of the code of those functions

    def load(self) -> Kernel:
        """Import or compile the kernel in this process."""
        if not self.source:
            import importlib

            return getattr(importlib.import_module(self.module), self.name)  # type: ignore[no-any-return]
        import pickle

        from stretto.kernels.core import generated

        users = pickle.loads(self.users) if self.users else ()
        return generated.load(self.source, users, self.digests)[self.name]


def named_kernel(kernel: Kernel) -> KernelReference:
    """Reference to a kernel of the library."""
    return KernelReference(kernel.py.__module__, kernel.py.__name__)


def made_kernel(name: str, source: str, users: Sequence[Any], digests: Sequence[str]) -> KernelReference:
    """Reference to a kernel generated at run time."""
    from numba import cloudpickle

    try:
        packed = cloudpickle.dumps(tuple(users), protocol=5) if users else b""
    except Exception as error:
        raise PlanError(
            f"a function that the loop calls cannot be sent to other processes: {error}; make it a function of a "
            "module, or one that uses only numbers and arrays"
        ) from error
    return KernelReference("", name, source, packed, tuple(digests))
