"""Integers that callers pass, checked: the name under which programs import `stretto.checks.whole`."""

from __future__ import annotations

from stretto.checks import whole

__all__ = ["whole"]
