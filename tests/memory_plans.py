"""Counting the plans that are made."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.memory import planning


class Counted:
    """Counts the plans that are made from now on.

    counted = Counted(monkeypatch)
    counted.plans    # 0
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plans = 0
        real = planning.planned

        def planned(*args: Any, **kwargs: Any) -> Any:
            self.plans += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(planning, "planned", planned)
