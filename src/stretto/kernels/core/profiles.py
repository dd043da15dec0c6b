"""The numeric profiles that every kernel is compiled for."""

from __future__ import annotations

PROFILES = ("exact", "fast")
