"""Train PyTorch models within a budget of device memory. Needs torch; the planner itself does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stretto.deprecation import deprecated_names

if TYPE_CHECKING:
    from .front_end import experimental_plan_several, plan, step, train_step
    from .multi_device.execute import experimental_step_several
    from .operations.experts import Experts, PaddedExperts
    from .report.report import Report
    from .run.planned_step import Step

__all__ = [
    "Experts",
    "PaddedExperts",
    "Report",
    "Step",
    "experimental_plan_several",
    "experimental_step_several",
    "plan",
    "step",
    "train_step",
]


# Old names, which warn.
_deprecated = deprecated_names(__name__, {"fit": "stretto.memory:train_step"}, removed_in="0.3")


def __getattr__(name: str) -> Any:
    if name in __all__:
        import importlib

        from stretto.errors import PlanError

        modules = {
            "Experts": "operations.experts",
            "PaddedExperts": "operations.experts",
            "Report": "report.report",
            "Step": "run.planned_step",
            "experimental_step_several": "multi_device.execute",
        }
        try:
            return getattr(importlib.import_module(f"{__name__}.{modules.get(name, 'front_end')}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise PlanError(
                f"st.memory.{name} needs PyTorch; install it with: pip install 'stretto[memory]'"
            ) from error
    return _deprecated(name)
