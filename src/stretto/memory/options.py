"""Value objects of one training step: what it trains (`StepSource`), how it is planned and run (`StepOptions`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .chunk.chunks import Chunks
from .measure.costs import Rates


@dataclass(frozen=True, eq=False)
class StepSource:
    """A step function with everything it uses.

    source = StepSource(train_step, [model], [optimizer], batch, torch.device("cuda", 0))
    """

    function: Callable[[Any], Any]  # function(batch) does one whole training step
    modules: Sequence[nn.Module]  # all modules whose parameters the function uses
    optimizers: Sequence[torch.optim.Optimizer]  # all optimizers that the function calls
    batch: Any  # an example; a plan holds for batches of the same shapes
    device: torch.device  # the device that computes the step

    @property
    def batch_on_device(self) -> bool:
        """Whether the batch is on the device already. The caller then holds its memory during the whole step."""
        tensors = [x for x in pytree.tree_leaves(self.batch) if isinstance(x, torch.Tensor)]
        return any(tensor.device == self.device for tensor in tensors)


@dataclass(frozen=True)
class StepOptions:
    """How a step is planned and run, besides the settings of the planner. `st.memory.step` documents each option."""

    rates: Rates | None = None  # speeds for estimated times; None: measure on a GPU, default rates on a CPU
    chunks: Chunks = None  # which operations to split into chunks
    compile: bool = False  # fuse chains of small operations with Inductor
    record: bool = False  # record the step as CUDA graphs and replay them
    verify: bool = False  # compare the first planned step with the plain step
