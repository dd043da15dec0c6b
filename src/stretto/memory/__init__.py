"""Door: training steps of PyTorch under a budget in bytes. They need torch; the planner does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .door import fit, plan, plan_several, step
    from .experts import Experts, PaddedExperts
    from .multi_device import experimental_step_several
    from .report import Report
    from .stepping import Step

__all__ = [
    "Experts",
    "PaddedExperts",
    "Report",
    "Step",
    "experimental_step_several",
    "fit",
    "plan",
    "plan_several",
    "step",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        import importlib

        from stretto.errors import PlanError

        rooms = {"Experts": "experts", "PaddedExperts": "experts", "Report": "report", "Step": "stepping"}
        rooms["experimental_step_several"] = "multi_device"
        room = rooms.get(name, "door")
        try:
            return getattr(importlib.import_module(f"{__name__}.{room}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise PlanError(
                f"st.memory.{name} needs PyTorch; install it with: pip install 'stretto[memory]'"
            ) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
