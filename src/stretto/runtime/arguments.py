"""Validate integer arguments: re-exports `stretto.checks.whole` for programs."""

from __future__ import annotations

from stretto.checks import whole

__all__ = ["whole"]
