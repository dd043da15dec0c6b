"""Check the options of `st.parallel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from stretto.errors import PlanError
from stretto.schedule.automatic.auto import ready_schedule

from .analyse.analysis import LoopOptions

if TYPE_CHECKING:
    pass


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name, with schedules made ready and single values as tuples."""
    known = {field.name for field in fields(LoopOptions)}
    for name in options:
        if name not in known:
            raise TypeError(f"st.parallel has no option {name!r}; there are runtime, {', '.join(sorted(known))}")
    fixed = dict(options)
    if "schedule" in fixed:
        fixed["schedule"] = ready_schedule(fixed["schedule"])
    for name in ("cut", "blocks"):
        value = fixed.get(name)
        if value is not None and not isinstance(value, tuple):
            fixed[name] = (value,) if isinstance(value, str | int) else tuple(value)
    if fixed.get("width", 1) < 1:
        raise PlanError(f"width={fixed['width']}: at least one visit runs at a time; leave it out, or pass 1 or more")
    if fixed.get("profile", "exact") not in ("exact", "fast"):
        raise PlanError(f"there is no profile {fixed['profile']!r}; pass 'exact' or 'fast'")
    return fixed
