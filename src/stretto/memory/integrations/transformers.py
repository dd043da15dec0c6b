"""A `transformers.Trainer` that trains within a budget of device memory.

    from stretto.memory.integrations.transformers import Trainer

    trainer = Trainer(model, args, train_dataset=data, budget="12GiB")   # otherwise as transformers.Trainer
    trainer.train()

The Trainer's own loop runs, with its data, schedules, logging, evaluation, checkpoints and callbacks. For each update,
forward and backward of all accumulated batches, clipping and the optimizer's step are one planned step.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
import transformers

from stretto.errors import PlanError
from stretto.memory.front_end import step
from stretto.memory.run.fallback import HookedStep
from stretto.memory.run.planned_step import Step


class Trainer(transformers.Trainer):
    """A Trainer that trains within a budget of device memory.

    Parameters
    ----------
    *args, **options
        As for `transformers.Trainer`.
    budget : int or str
        Bytes on the device, such as "12GiB".
    memory_options : dict, optional
        Other options of `stretto.memory.step`, such as {"host_budget": "64GiB", "chunks": "auto"}.

    Attributes
    ----------
    memory_step : Step or HookedStep or None
        The planned step during training; `memory_step.report.explain()` describes the plan.

    Notes
    -----
    The first `training_step` of an update trains on all its batches; the later ones return their losses. So callbacks
    find no gradients in `on_pre_optimizer_step`. A last, smaller batch has a plan of its own, made once. One device
    only. float16 is not supported, because its gradient scaler belongs to accelerate: use bfloat16.
    """

    def __init__(
        self, *args: Any, budget: int | str, memory_options: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.memory_step: Step | HookedStep | None = None
        self._memory = {"device": self.args.device, **(memory_options or {}), "budget": budget}
        self._samples: list[Any] = []  # the batches of the current update
        self._losses: deque[torch.Tensor] = deque()  # losses of batches that were trained on and not returned yet
        self._norm: torch.Tensor | None = None  # of the gradients of the last update
        self._check()

    def _check(self) -> None:
        several = self.args.world_size > 1 or self.args.n_gpu > 1
        engine = self.is_deepspeed_enabled or self.is_fsdp_enabled
        for wrong, what in (
            (several, "training on several devices; set CUDA_VISIBLE_DEVICES to one"),
            (engine, "DeepSpeed and FSDP; remove them from the arguments"),
            (self.args.fp16, "fp16=True, whose gradient scaler belongs to accelerate; pass bf16=True"),
        ):
            if wrong:
                raise PlanError(f"stretto.memory.integrations.transformers.Trainer does not support {what}")

    # -- a step --------------------------------------------------------------------------------------------------------

    def get_batch_samples(self, *args: Any, **options: Any) -> Any:
        samples, items = super().get_batch_samples(*args, **options)
        self._samples = samples
        self._losses.clear()
        return samples, items

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        if not self._losses:
            batch = [dict(self._prepare_inputs(one)) for one in self._samples], num_items_in_batch
            model.train()
            if self.memory_step is None:
                self.memory_step = self._planned(model, batch)
            losses, self._norm = self.memory_step(batch)
            self._losses.extend(losses)
        return self._losses.popleft()

    def _planned(self, model: Any, batch: Any) -> Step | HookedStep:
        optimizer = self.optimizer
        while hasattr(optimizer, "optimizer"):  # the optimizer that accelerate wraps
            optimizer = optimizer.optimizer
        one_batch, most = super().training_step, self.args.max_grad_norm or math.inf

        def update(batch: Any) -> Any:
            samples, items = batch
            optimizer.zero_grad()
            losses = [one_batch(model, inputs, items) for inputs in samples]
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), most)
            optimizer.step()
            optimizer.zero_grad()  # the Trainer's loop calls the optimizer again, which must find no gradients
            return losses, norm

        return step(update, [model], [optimizer], batch, **self._memory)

    def _clip_grad_norm(self, model: Any) -> Any:
        return self._norm

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        return self._norm

    # -- evaluation and the training loop ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        if self.memory_step is None:
            yield
        else:
            with self.memory_step.paused(self.args.device):
                yield

    def evaluate(self, *args: Any, **options: Any) -> Any:
        with self._paused():
            return super().evaluate(*args, **options)

    def predict(self, *args: Any, **options: Any) -> Any:
        with self._paused():
            return super().predict(*args, **options)

    def _inner_training_loop(self, *args: Any, **options: Any) -> Any:
        try:
            return super()._inner_training_loop(*args, **options)
        finally:
            if self.memory_step is not None:
                self.memory_step.close()
                self.memory_step = None
