"""What the runtimes have in common: they open a crew, which makes the visits of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from .interrupts import raising_ctrl_c

if TYPE_CHECKING:
    from .blocks.crew import Crew


class OpensCrew(ABC):
    """A runtime that runs steps over blocks."""

    @abstractmethod
    def crew(self) -> AbstractContextManager[Crew]:
        """Open a crew, which makes visits, for one or several jobs. The caller handles signals."""

    @contextmanager
    def open(self) -> Iterator[Crew]:
        """Open a crew, which makes visits, for one job. Ctrl-C during the job reaches the caller."""
        with raising_ctrl_c(), self.crew() as crew:
            yield crew
