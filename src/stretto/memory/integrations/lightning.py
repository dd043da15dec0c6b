"""`BudgetStrategy`, a Lightning strategy that trains within a budget of device memory.

    from stretto.memory.integrations.lightning import BudgetStrategy

    trainer = lightning.Trainer(strategy=BudgetStrategy("12GiB"), max_epochs=3)
    trainer.fit(module, data)

The module stays as it is: `training_step`, `configure_optimizers`, `self.log`, validation and checkpoints. Forward and
backward of all accumulated batches, clipping and the optimizer's step are one planned step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden

from stretto.errors import PlanError
from stretto.memory.capture.side_effects import CannotCapture
from stretto.memory.front_end import step
from stretto.memory.run.fallback import HookedStep
from stretto.memory.run.planned_step import Step

# Hooks of a module that are never called, because the planned step does their work.
_WITHIN = (
    "backward",
    "configure_gradient_clipping",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "optimizer_zero_grad",
)


class BudgetStrategy(SingleDeviceStrategy):
    """Train on one device within a budget of device memory.

    Parameters
    ----------
    budget : int or str
        Bytes on the device, such as "12GiB".
    device : torch.device or str, optional
        Default: the first GPU, or the CPU if torch finds none.
    accelerator, checkpoint_io, precision_plugin
        As for Lightning's strategies.
    **memory_options
        Other options of `stretto.memory.step`, such as host_budget="64GiB" or chunks="auto".

    Attributes
    ----------
    memory_step : Step or HookedStep or None
        The planned step during training; `memory_step.report.explain()` describes the plan.

    Notes
    -----
    With `accumulate_grad_batches`, the strategy keeps batches until the last one of an update arrives. The other
    batches return a loss of zero, and their logged values are logged with the last one.
    """

    strategy_name = "stretto_budget"

    def __init__(
        self,
        budget: int | str,
        device: torch.device | str | None = None,
        accelerator: Any = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
        **memory_options: Any,
    ) -> None:
        where = device if device is not None else "cuda:0" if torch.cuda.is_available() else "cpu"
        super().__init__(where, accelerator, checkpoint_io, precision_plugin)
        self._held = _StepHolder()
        self._memory = {"device": self.root_device, **memory_options, "budget": budget}
        self._waiting: list[Any] = []  # batches of the next update so far
        self._pause: contextlib.ExitStack | None = None
        self._logged = _Logged()

    @property
    def memory_step(self) -> Step | HookedStep | None:
        return self._held.step

    @memory_step.setter
    def memory_step(self, step: Step | HookedStep | None) -> None:
        self._held.step = step

    # -- a step --------------------------------------------------------------------------------------------------------

    def training_step(self, *args: Any, **options: Any) -> Any:
        module, trainer = self.lightning_module, self.lightning_module.trainer
        self._waiting.append(list(args))
        if trainer.fit_loop._should_accumulate():
            return torch.zeros((), device=self.root_device)
        batches, self._waiting = self._waiting, []
        if self.memory_step is None:
            self._check(module)
            self.memory_step = self._planned(batches)
        outputs, values, which = self.memory_step(batches)
        self._logged.replay(module, which, values)
        return outputs[-1]

    def _check(self, module: Any) -> None:
        if not module.automatic_optimization:
            raise PlanError(
                "the module has automatic_optimization=False, but BudgetStrategy runs the optimizer itself; set it to "
                "True"
            )
        if len(self.optimizers) != 1:
            raise PlanError(
                f"configure_optimizers returns {len(self.optimizers)} optimizers, but BudgetStrategy supports one; "
                "return one"
            )
        found = [name for name in _WITHIN if is_overridden(name, module)]
        if found:
            raise PlanError(
                f"the module overrides {', '.join(found)}, which BudgetStrategy never calls; remove the override"
            )

    def _planned(self, batches: list[Any]) -> Step | HookedStep:
        module, (optimizer,), logged = self.lightning_module, self.optimizers, self._logged
        trainer, precision, one_batch = module.trainer, self.precision_plugin, super().training_step
        most, how, count = trainer.gradient_clip_val, trainer.gradient_clip_algorithm, trainer.accumulate_grad_batches

        def update(batches: Any) -> Any:
            optimizer.zero_grad()
            outputs = []
            with logged.collecting(module) as values:
                for args in batches:
                    output = one_batch(*args)
                    loss = output["loss"] if isinstance(output, dict) else output
                    (loss / count).backward()
                    outputs.append(_detached(output))
            if most:
                precision.clip_gradients(optimizer, most, how or "norm")
            optimizer.step()
            optimizer.zero_grad()
            return outputs, values, logged.remember()

        return step(update, [module], [optimizer], batches, **self._memory)

    def backward(self, closure_loss: Any, *_: Any, **__: Any) -> Any:
        """Do nothing: the backward pass is part of the planned step."""
        return closure_loss

    def optimizer_step(self, optimizer: Any, closure: Any, model: Any = None, **_: Any) -> Any:
        """Run the closure: the planned step, which includes the optimizer's step."""
        return closure()

    # -- hooks around steps --------------------------------------------------------------------------------------------

    def on_validation_start(self) -> None:
        if self.memory_step is not None:
            self._pause = contextlib.ExitStack()
            self._pause.enter_context(self.memory_step.paused(self.root_device))

    def on_validation_end(self) -> None:
        if self._pause is not None:
            self._pause.close()
            self._pause = None

    def on_train_end(self) -> None:
        self._close()

    def on_exception(self, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        self.on_validation_end()
        self._waiting = []
        if self.memory_step is not None:
            self.memory_step.close()
            self.memory_step = None


class _StepHolder:
    """Holds the step outside the attributes of the strategy, which are compared when a step is traced."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step: Step | HookedStep | None = None


class _Logged:
    """The values that `training_step` logs: names and options are the same in every step, values are results of it."""

    # Slots instead of a __dict__: `python_state` searches dictionaries for tensors that a step keeps.
    __slots__ = ("_known", "_now")

    def __init__(self) -> None:
        self._known: list[list[tuple[str, dict[str, Any]]]] = []  # by trace: names and options
        self._now: list[tuple[str, dict[str, Any]]] = []  # names and options of the current trace

    @contextlib.contextmanager
    def collecting(self, module: Any) -> Iterator[list[Any]]:
        """Within, `module.log` appends its values to the list that is yielded."""
        values: list[Any] = []
        self._now = []

        def log(name: str, value: Any, **options: Any) -> None:
            if not isinstance(value, (torch.Tensor, int, float)):
                raise CannotCapture(
                    f"training_step logs a {type(value).__name__} with self.log({name!r}, …), which is not supported; "
                    "log a tensor or a number"
                )
            values.append(value.detach() if isinstance(value, torch.Tensor) else value)
            self._now.append((name, options))

        module.__dict__["log"] = log
        try:
            yield values
        finally:
            del module.__dict__["log"]

    def remember(self) -> int:
        """The number of the names and options that were just logged."""
        if self._now not in self._known:
            self._known.append(self._now)
        return self._known.index(self._now)

    def replay(self, module: Any, which: int, values: list[Any]) -> None:
        """Log the values of a step."""
        for (name, options), value in zip(self._known[which], values, strict=True):
            module.log(name, value, **options)


def _detached(output: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, output)
