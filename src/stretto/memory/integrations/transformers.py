"""A `transformers.Trainer` that trains under a budget of device memory.

    from stretto.memory.integrations.transformers import Trainer

    trainer = Trainer(model, args, train_dataset=data, budget="12GiB")   # otherwise as transformers.Trainer
    trainer.train()

The Trainer's own loop runs: data, schedules, logging, evaluation, checkpoints and callbacks are its own. Of every
update, forward and backward of all accumulated batches, clipping and the optimizer's step are one planned step.
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
    """A Trainer whose updates are planned for a budget.

    Parameters
    ----------
    *args, **options
        As for `transformers.Trainer`.
    budget : int or str
        Bytes on the device, a number or such as "12GiB".
    memory_options : dict, optional
        Further options of `stretto.memory.step`, such as {"host_budget": "64GiB", "chunks": "auto"}.

    Attributes
    ----------
    memory_step : Step or HookedStep or None
        The planned step, while there is training; `memory_step.report.explain()` describes the plan.

    Notes
    -----
    All batches of one update are trained on when the first of them is due; `training_step` then hands out their losses
    one by one, and callbacks find no gradients in `on_pre_optimizer_step`. A last, smaller batch has a plan of its own,
    made once. One device only, and no float16, whose scaler belongs to accelerate: use bfloat16.
    """

    def __init__(
        self, *args: Any, budget: int | str, memory_options: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.memory_step: Step | HookedStep | None = None
        self._memory = {"device": self.args.device, **(memory_options or {}), "budget": budget}
        self._samples: list[Any] = []  # the batches of an update
        self._losses: deque[torch.Tensor] = deque()  # of the batches that were trained on ahead
        self._norm: torch.Tensor | None = None
        self._check()

    def _check(self) -> None:
        several = self.args.world_size > 1 or self.args.n_gpu > 1
        engine = self.is_deepspeed_enabled or self.is_fsdp_enabled
        for wrong, what in (
            (several, "training on several devices; set CUDA_VISIBLE_DEVICES to one"),
            (engine, "DeepSpeed and FSDP; leave them out of the arguments"),
            (self.args.fp16, "fp16=True, whose gradient scaler is accelerate's own; pass bf16=True"),
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
        while hasattr(optimizer, "optimizer"):  # what accelerate wraps
            optimizer = optimizer.optimizer
        one_batch, most = super().training_step, self.args.max_grad_norm or math.inf

        def update(batch: Any) -> Any:
            samples, items = batch
            optimizer.zero_grad()
            losses = [one_batch(model, inputs, items) for inputs in samples]
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), most)
            optimizer.step()
            optimizer.zero_grad()  # the Trainer's loop calls the optimizer once more: it finds no gradients
            return losses, norm

        return step(update, [model], [optimizer], batch, **self._memory)

    def _clip_grad_norm(self, model: Any) -> Any:
        return self._norm

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        return self._norm

    # -- around it -----------------------------------------------------------------------------------------------------

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
